/* text/vocab.h - pieces and ids. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "text/tokenizer.h"

struct arena;
struct map;

/* The numbers are GGUF's. */
enum piece_kind {
    PIECE_NONE = 0,
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN = 2,
    PIECE_CONTROL = 3,
    PIECE_USER = 4,
    PIECE_UNUSED = 5,
    PIECE_BYTE = 6,
};

struct vocab {
    struct arena *arena; /* the bytes of all pieces */
    struct str *pieces;  /* by id; ptr == NULL: no such id */
    struct str *shown;   /* by id; what decoding starts from where it is not the piece, or NULL */
    uint8_t *kinds;      /* by id; enum piece_kind */
    double *scores;      /* by id; NULL if the model has none */
    struct map *model;   /* text -> id, what the model may produce */
    struct map *all;     /* text -> id, added tokens first */
    uint32_t count, cap; /* ids are below count */
    uint32_t longest;    /* bytes of the longest piece */
};

enum status vocab_init(struct vocab *v, uint32_t expected_count);
void vocab_deinit(struct vocab *v);
/* Give `id` a piece; the text is copied. ST_BAD past the limits above. */
enum status vocab_set(struct vocab *v, uint32_t id, struct str text, enum piece_kind kind,
                      struct err *err);
token_id vocab_find(const struct vocab *v, struct str text); /* what the model may produce */
/* Decode `id` as `text`, which outlives the vocabulary. Once all pieces are set. */
enum status vocab_show(struct vocab *v, uint32_t id, struct str text);

#endif
