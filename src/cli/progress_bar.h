/* cli/progress_bar.h - how far a long piece of work is, on one line of the terminal.
 *
 * On a terminal: a bar on standard error with bytes, percent, rate and time left, drawn at most ten
 * times a second and erased at the end. Elsewhere: nothing, or, for work that may take minutes, a
 * plain line every ten seconds, so that a log shows progress without filling up.
 *
 *     progress_bar_init(&p, &env, PROGRESS_BAR_SILENT);
 *     progress_bar_begin(&p, "loading", total_bytes, 0);
 *     progress_bar_update(&p, done_bytes);         may be called for every piece: it is cheap
 *     progress_bar_end(&p);                        the line is free for an answer or an error
 *
 * Lifetime: the caller's storage; owns nothing. Thread: its owner. Memory: none.
 */
#ifndef CLI_PROGRESS_BAR_H
#define CLI_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>

#include "hub/progress.h"

struct env_settings;

/* What to write where standard error is not a terminal. */
enum progress_bar_elsewhere { PROGRESS_BAR_SILENT, PROGRESS_BAR_LINES };

enum { PROGRESS_BAR_TEXT_BYTES = 128 };

struct progress_bar {
    bool bar, lines; /* neither: silent */
    bool drawn;      /* the bar is on the terminal's line now */
    bool share_only; /* counts no bytes: only the percentage is shown */
    char label[PROGRESS_LABEL_BYTES];
    uint64_t total_bytes; /* 0: not known */
    uint64_t first_bytes; /* done before progress_bar_begin; not counted in the rate */
    uint64_t done_bytes;
    char text[PROGRESS_BAR_TEXT_BYTES]; /* not "": shown instead of bytes, rate and time left */
    uint64_t shown_tenth;               /* of the work, for work with a text */
    int64_t began_us, shown_us;
};

void progress_bar_init(struct progress_bar *p, const struct env_settings *env,
                       enum progress_bar_elsewhere elsewhere);

void progress_bar_begin(struct progress_bar *p, const char *label, uint64_t total_bytes,
                        uint64_t done_bytes);
void progress_bar_update(struct progress_bar *p, uint64_t done_bytes);
void progress_bar_end(struct progress_bar *p);

/* For work that reports a share from 0 to 1: begin, and a load_progress_fn (engine/loaded_model.h)
 * whose `ctx` is the bar. */
void progress_bar_begin_share(struct progress_bar *p, const char *label);
void progress_bar_on_load(void *ctx, const char *stage, double share);

/* For work that counts something else than bytes: `text` says what is done and how fast. Elsewhere
 * than on a terminal a line is written also for every tenth of the work, at most one a second. */
void progress_bar_update_text(struct progress_bar *p, uint64_t done, const char *text);

/* A progress_fn (hub/progress.h) whose `ctx` is the bar; it begins and ends the bar by itself. */
void progress_bar_on_transfer(void *ctx, const char *label, uint64_t done_bytes,
                              uint64_t total_bytes);

/* The line for a given state and width: what the bar shows. For tests. */
void progress_bar_render(const struct progress_bar *p, int64_t now_us, uint32_t columns, char *out,
                         uint32_t out_bytes);

#endif
