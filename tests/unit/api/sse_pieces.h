/* Reads the server-sent events that an encoder has written, piece by piece. */
#ifndef TESTS_UNIT_API_SSE_PIECES_H
#define TESTS_UNIT_API_SSE_PIECES_H

#include <stdlib.h>
#include <string.h>

#include "api/codec.h"
#include "base/check.h"

struct sse_piece {
    uint32_t number;
    struct str name, data;
};

/* The text before the next line break, which `left` then begins after. */
static inline struct str sse_line(struct str *left) {
    const char *end = memchr(left->ptr, '\n', left->len);
    CHECK(end);
    struct str line = str_take(*left, (size_t)(end - left->ptr));
    *left = str_skip(*left, line.len + 1);
    return line;
}

/* False: `left` has ended. Otherwise `left` is what follows the piece. */
static inline bool sse_next(struct str *left, struct sse_piece *out) {
    if (left->len == 0) return false;
    struct str id = sse_line(left), line = sse_line(left);
    CHECK(str_starts(id, STR("id: ")));
    *out = (struct sse_piece){.number = (uint32_t)strtoul(id.ptr + 4, NULL, 10)};
    if (str_starts(line, STR("event: "))) {
        out->name = str_skip(line, 7);
        line = sse_line(left);
    }
    CHECK(str_starts(line, STR("data: ")));
    out->data = str_skip(line, 6);
    CHECK(sse_line(left).len == 0);
    return true;
}

#endif
