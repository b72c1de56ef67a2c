/* cli/calibration_text.h - the text that a model is calibrated with, as windows of tokens.
 *
 * Lifetime: read, deinit. Thread: the main thread. Memory: the text while it is read, its tokens.
 */
#ifndef CLI_CALIBRATION_TEXT_H
#define CLI_CALIBRATION_TEXT_H

#include <stdint.h>

#include "base/status.h"
#include "text/tokenizer.h"

struct args;

/* Windows of --ctx tokens that are wanted at least, and taken at most unless --chunks says. */
enum { CALIBRATE_WINDOWS_MIN = 8, CALIBRATE_WINDOWS_DEFAULT = 64 };

struct calibration_text {
    struct tokens ids; /* windows * window_tokens of them at least */
    uint32_t windows, window_tokens;
};

/* The flags are flags_compare. Where the tokenizer puts a token before each text, every window
 * begins with it. ST_BAD: the text is too short, `err` says how much is wanted. */
enum status calibration_text_read(const struct args *args, const char *path,
                                  const struct tokenizer *tokenizer, struct calibration_text *out,
                                  struct err *err);
void calibration_text_deinit(struct calibration_text *t); /* a zeroed one is fine */

static inline const int32_t *calibration_text_window(const struct calibration_text *t, uint32_t i) {
    return t->ids.ids + (size_t)i * t->window_tokens;
}

#endif
