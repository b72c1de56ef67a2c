/* cli/stdin_texts.c - see cli/stdin_texts.h. */
#include "cli/stdin_texts.h"

#include <string.h>

#include "base/file.h"

enum { STDIN_BYTES_MAX = 1 << 30 };

enum status stdin_texts_read(struct stdin_texts *t, bool split_at_nul, struct err *err) {
    *t = (struct stdin_texts){.split = split_at_nul};
    buf_init(&t->bytes, STDIN_BYTES_MAX);
    enum status st = file_read("-", &t->bytes, err);
    t->rest = buf_str(&t->bytes);
    if (st != ST_OK) stdin_texts_deinit(t);
    return st;
}

bool stdin_texts_next(struct stdin_texts *t, struct str *text) {
    if (t->done) return false;
    const char *nul = t->split && t->rest.len ? memchr(t->rest.ptr, 0, t->rest.len) : NULL;
    if (!nul) {
        t->done = true;
        *text = t->rest;
        return true;
    }
    *text = str_take(t->rest, (size_t)(nul - t->rest.ptr));
    t->rest = str_skip(t->rest, text->len + 1);
    return true;
}

void stdin_texts_deinit(struct stdin_texts *t) { buf_deinit(&t->bytes); }
