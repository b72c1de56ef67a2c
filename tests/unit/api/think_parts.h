/* unit/api/think_parts.h - the thought and the text that a think parser has given, each joined. */
#ifndef UNIT_API_THINK_PARTS_H
#define UNIT_API_THINK_PARTS_H

#include "api/think.h"
#include "base/buf.h"
#include "base/check.h"

struct think_parts {
    struct buf thought, text;
};

static void parts_on_thought(void *ctx, struct str piece) {
    struct think_parts *parts = ctx;
    CHECK(piece.len > 0);
    CHECK(parts->text.len == 0); /* thoughts come first */
    buf_put_str(&parts->thought, piece);
}

static void parts_on_text(void *ctx, struct str piece) {
    struct think_parts *parts = ctx;
    CHECK(piece.len > 0);
    buf_put_str(&parts->text, piece);
}

static inline struct think_callbacks think_parts_init(struct think_parts *parts) {
    buf_init(&parts->thought, 1 << 24);
    buf_init(&parts->text, 1 << 24);
    return (struct think_callbacks){parts_on_thought, parts_on_text, parts};
}

static inline void think_parts_deinit(struct think_parts *parts) {
    buf_deinit(&parts->thought);
    buf_deinit(&parts->text);
}

#endif
