/* hub/progress.h - how far a long piece of work is, on one line.
 *
 * On a terminal: a bar on standard error with bytes, percent, rate and time left, drawn at
 * most ten times a second and wiped at the end. Elsewhere: nothing, or, for work that may take
 * minutes, a plain line every ten seconds, so that a log shows life without filling up.
 *
 *     progress_init(&p, &env, PROGRESS_SILENT);
 *     progress_begin(&p, "loading", total_bytes, 0);
 *     progress_update(&p, done_bytes);             as often as you like: it is cheap
 *     progress_end(&p);                            the line is clear for an answer or an error
 *
 * A NULL progress is accepted by every call but init and does nothing.
 *
 * Lifetime: the caller's storage; holds nothing. Thread: its owner.
 */
#ifndef HUB_PROGRESS_H
#define HUB_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct env_settings;

enum { PROGRESS_LABEL_BYTES = 48, PROGRESS_SIZE_BYTES = 24 };

/* What to do where standard error is no terminal. */
enum progress_elsewhere { PROGRESS_SILENT, PROGRESS_LINES };

struct progress {
    bool bar, lines; /* neither: silent */
    bool drawn;      /* a bar stands on the terminal's line */
    bool share_only; /* counts no bytes: only the percentage is shown */
    char label[PROGRESS_LABEL_BYTES];
    uint64_t total_bytes; /* 0 = unknown */
    uint64_t first_bytes; /* done before progress_begin: no part of the rate */
    uint64_t done_bytes;
    int64_t began_us, shown_us;
};

void progress_init(struct progress *p, const struct env_settings *env,
                   enum progress_elsewhere elsewhere);

void progress_begin(struct progress *p, const char *label, uint64_t total_bytes,
                    uint64_t done_bytes);
void progress_update(struct progress *p, uint64_t done_bytes);

/* The same for work that knows its share (0 to 1) and not its bytes. */
void progress_begin_share(struct progress *p, const char *label);
void progress_update_share(struct progress *p, double share);

void progress_set_total(struct progress *p, uint64_t total_bytes); /* once it is known */
void progress_end(struct progress *p);

/* "98.4 MB": a size for people, decimal units, three significant digits. Returns `out`. */
const char *progress_size_text(uint64_t bytes, char out[PROGRESS_SIZE_BYTES]);

/* The line for a given state and width; what the bar shows. For tests. */
void progress_render(const struct progress *p, int64_t now_us, uint32_t columns, char *out,
                     uint32_t out_bytes);

#endif
