/* text/text_limits.h - limits for tokenizer files; checked before anything is
 * allocated. */
#ifndef TEXT_TEXT_LIMITS_H
#define TEXT_TEXT_LIMITS_H

#include <stddef.h>

enum {
    VOCAB_MAX = 1 << 22,        /* ids; the largest vocabularies today have 2^18 */
    PIECE_BYTES_MAX = 1 << 16,  /* of one entry of the vocabulary */
    ADDED_BYTES_MAX = 1 << 10,  /* of one added token: the search costs this much per byte */
    ADDED_MAX = 1 << 20,        /* added tokens */
    STEPS_MAX = 64,             /* steps of a chain, nested sequences flattened */
    NESTING_MAX = 8,            /* sequences inside sequences */
    PATTERN_BYTES_MAX = 1 << 16 /* of one regular expression */
};
#define TEXT_BYTES_MAX ((size_t)1 << 31) /* of a text on its way; normalising can grow it */
#define VOCAB_BYTES_MAX ((size_t)1 << 28)

#endif
