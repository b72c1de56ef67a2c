/* text/vocab.c - pieces and ids. See text/vocab.h. */
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/text_int.h"

enum status vocab_init(struct vocab *v, uint32_t expected_count) {
    memset(v, 0, sizeof(*v));
    v->arena = arena_create(VOCAB_BYTES_MAX);
    v->model = map_create(expected_count);
    v->all = map_create(expected_count);
    return v->arena && v->model && v->all ? ST_OK : ST_NOMEM;
}

void vocab_deinit(struct vocab *v) {
    map_destroy(v->model);
    map_destroy(v->all);
    arena_destroy(v->arena);
    mem_free(v->pieces);
    mem_free(v->shown);
    mem_free(v->kinds);
    mem_free(v->scores);
    memset(v, 0, sizeof(*v));
}

static enum status grow(struct vocab *v, uint32_t count) {
    uint32_t cap = v->cap ? v->cap : 1024;
    while (cap < count) cap *= 2;
    struct str *pieces = mem_realloc(v->pieces, cap * sizeof(pieces[0]));
    if (!pieces) return ST_NOMEM;
    v->pieces = pieces;
    uint8_t *kinds = mem_realloc(v->kinds, cap);
    if (!kinds) return ST_NOMEM;
    v->kinds = kinds;
    memset(pieces + v->cap, 0, (cap - v->cap) * sizeof(pieces[0]));
    memset(kinds + v->cap, PIECE_NONE, cap - v->cap);
    v->cap = cap;
    return ST_OK;
}

/* A copy in the arena, with bytes that are not UTF-8 repaired: a few GGUF files hold such. */
static struct str keep(struct vocab *v, struct str text) {
    if (utf8_is_valid(text)) return arena_dup(v->arena, text);
    struct buf fixed;
    buf_init(&fixed, 3 * (size_t)PIECE_BYTES_MAX + 1);
    utf8_put_lossy(&fixed, text);
    struct str copy = {0};
    if (buf_status(&fixed) == ST_OK) copy = arena_dup(v->arena, buf_str(&fixed));
    buf_deinit(&fixed);
    return copy;
}

enum status vocab_set(struct vocab *v, uint32_t id, struct str text, enum piece_kind kind,
                      struct err *err) {
    if (id >= VOCAB_MAX)
        return err_set(err, ST_BAD, "token id %u is past the limit of %d", id, VOCAB_MAX);
    if (text.len > PIECE_BYTES_MAX)
        return err_set(err, ST_BAD, "token %u has %zu bytes, the limit is %d", id, text.len,
                       PIECE_BYTES_MAX);
    if (id >= v->cap) TRY(grow(v, id + 1));
    struct str copy = keep(v, text);
    if (!copy.ptr) return err_set(err, ST_NOMEM, "no memory for the vocabulary");
    v->pieces[id] = copy;
    v->kinds[id] = (uint8_t)kind;
    if (id >= v->count) v->count = id + 1;
    if (copy.len > v->longest) v->longest = (uint32_t)copy.len;
    return ST_OK;
}

token_id vocab_find(const struct vocab *v, struct str text) {
    uint32_t id;
    return map_find(v->model, text, &id) ? (token_id)id : TOKEN_NONE;
}

enum status vocab_show(struct vocab *v, uint32_t id, struct str text) {
    CHECK(id < v->count);
    if (!v->shown) v->shown = mem_zalloc_array(v->count, sizeof(v->shown[0]));
    if (!v->shown) return ST_NOMEM;
    v->shown[id] = text;
    return ST_OK;
}
