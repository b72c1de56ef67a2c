/* fuzz/use_tokenizer.h - everything that can be asked of a tokenizer, for the fuzz targets. */
#ifndef FUZZ_USE_TOKENIZER_H
#define FUZZ_USE_TOKENIZER_H

#include "base/buf.h"
#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

static inline void use_decode(const struct tokenizer *t, const struct tokens *ids, bool skip) {
    struct buf whole, joined, piece;
    struct detok d = {0};
    buf_init(&whole, 1 << 24);
    buf_init(&joined, 1 << 24);
    buf_init(&piece, 1 << 24);
    enum status st = tokenizer_decode(t, ids->ids, ids->count, skip, &whole);
    for (size_t i = 0; st == ST_OK && i < ids->count; i++) {
        buf_clear(&piece);
        if (detok_push(&d, t, ids->ids[i], skip, &piece) != ST_OK) break;
        CHECK(utf8_is_valid(buf_str(&piece)));
        buf_put_str(&joined, buf_str(&piece));
    }
    detok_finish(&d, &joined);
    if (st == ST_OK && buf_status(&joined) == ST_OK)
        CHECK(str_eq(buf_str(&whole), buf_str(&joined)));
    buf_deinit(&whole);
    buf_deinit(&joined);
    buf_deinit(&piece);
}

static inline void use_tokenizer(const struct tokenizer *t, struct str text) {
    for (int mode = 0; mode < 3; mode++) {
        struct encode_options options = {.plain_special = mode == 1, .add_special = mode == 2};
        struct tokens ids = {0};
        if (tokenizer_encode(t, text, options, &ids) == ST_OK) {
            for (size_t i = 0; i < ids.count; i++) {
                CHECK(ids.ids[i] >= 0);
                CHECK((uint32_t)ids.ids[i] < tokenizer_vocab(t));
            }
            for (size_t i = 0; i < text.len && i < 64; i++)
                if (tokens_push(&ids, (uint8_t)text.ptr[i]) != ST_OK) break;
            use_decode(t, &ids, mode == 1);
        }
        tokens_deinit(&ids);
    }
    for (token_id id = -1; id <= (token_id)tokenizer_vocab(t) && id < 300; id++) {
        struct str piece = tokenizer_piece(t, id);
        if (piece.len) CHECK(tokenizer_find(t, piece) != TOKEN_NONE);
        if (tokenizer_is_end(t, id)) CHECK(id >= 0);
    }
    (void)tokenizer_chat_template(t, true);
}

#endif
