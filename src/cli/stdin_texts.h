/* cli/stdin_texts.h - standard input as one text, or as several separated by NUL bytes.
 *
 * N texts have N-1 separators; nothing is trimmed, a final newline belongs to the last text.
 *
 * Lifetime: read, walk, deinit. Thread: the main thread.
 */
#ifndef CLI_STDIN_TEXTS_H
#define CLI_STDIN_TEXTS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct stdin_texts {
    struct buf bytes;
    struct str rest;
    bool split, done;
};

enum status stdin_texts_read(struct stdin_texts *t, bool split_at_nul, struct err *err);
bool stdin_texts_next(struct stdin_texts *t, struct str *text); /* false: there are no more */
void stdin_texts_deinit(struct stdin_texts *t);

#endif
