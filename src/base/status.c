/* base/status.c - see base/status.h for the contract. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *status_name(enum status st) {
    switch (st) {
    case ST_OK:
        return "ok";
    case ST_FULL:
        return "full";
    case ST_NOMEM:
        return "out of memory";
    case ST_BAD:
        return "bad data";
    case ST_MISSING:
        return "missing";
    case ST_CREATE:
        return "cannot create";
    case ST_IO:
        return "input/output error";
    case ST_UNAVAILABLE:
        return "unavailable";
    case ST_DEVICE:
        return "device failed";
    case ST_CANCELLED:
        return "cancelled";
    }
    return "unknown status";
}

/* Model files put their own names into our sentences: keep terminals and logs safe from them. */
static void make_printable(char *text) {
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
}

/* A sentence that filled the buffer may end inside a character: drop the part of it. */
static void trim_partial_utf8(char *text, size_t len) {
    size_t i = len;
    while (i > 0 && ((unsigned char)text[i - 1] & 0xC0) == 0x80) i--;
    if (i == 0) return;
    unsigned char lead = (unsigned char)text[i - 1];
    size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (len - (i - 1) < want) text[i - 1] = 0;
}

enum status err_set(struct err *err, enum status st, const char *fmt, ...) {
    if (!err) return st;
    va_list args;
    va_start(args, fmt);
    int need = vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    make_printable(err->text);
    if (need >= (int)sizeof(err->text)) trim_partial_utf8(err->text, sizeof(err->text) - 1);
    return st;
}

enum status err_prefix(struct err *err, enum status st, const char *prefix) {
    if (!err) return st;
    struct err said = *err;
    return err_set(err, st, "%s: %s", prefix, said.text);
}
