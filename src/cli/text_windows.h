/* cli/text_windows.h - a text as windows of tokens, as `jitney compare`, `jitney perplexity` and
 * `jitney quantize` read it.
 *
 * The text is read before the model, with the model's tokenizer alone. So an error about a missing
 * or short text comes at once, before work that takes long.
 *
 * Lifetime: read, deinit. Thread: the main thread. Memory: the text while it is read, its tokens.
 */
#ifndef CLI_TEXT_WINDOWS_H
#define CLI_TEXT_WINDOWS_H

#include <stdint.h>

#include "base/status.h"
#include "cli/cli.h"
#include "text/tokenizer.h"

extern const struct flag flags_text[]; /* --file --ctx --chunks */

/* Windows for calibration: the least, and the most unless --chunks says otherwise. */
enum { CALIBRATE_WINDOWS_MIN = 8, CALIBRATE_WINDOWS_DEFAULT = 64 };

struct text_windows {
    struct tokens ids; /* windows * window_tokens of them at least */
    uint32_t windows, window_tokens;
};

/* `path`: of the text; "-" reads standard input. `model_path`: of the model whose tokenizer is
 * taken. The flags are flags_text. Where the tokenizer puts a token before each text, every window
 * begins with it. ST_BAD: the text has too few tokens, `err` says how many there are and how many
 * are wanted; or it is a folder. */
enum status text_windows_read(const struct args *args, const char *path, const char *model_path,
                              struct text_windows *out, struct err *err);
/* The same for calibration: CALIBRATE_WINDOWS_MIN windows or --chunks are wanted. */
enum status text_windows_read_calibration(const struct args *args, const char *path,
                                          const char *model_path, struct text_windows *out,
                                          struct err *err);
void text_windows_deinit(struct text_windows *t); /* a zeroed one is fine */

static inline const int32_t *text_windows_at(const struct text_windows *t, uint32_t i) {
    return t->ids.ids + (size_t)i * t->window_tokens;
}

static inline uint32_t text_windows_tokens(const struct text_windows *t) {
    return t->windows * t->window_tokens;
}

#endif
