/* grammar/vocabulary.h - the tokens of a model as trees of their bytes, in depth-first order.
 *
 * Node i of a tree is one byte. Its descendants are the nodes from i + 1 to end[i] - 1, so a walk
 * that finds a byte impossible goes on at end[i] and has skipped every token that begins like this.
 *
 * Most tokens are plain text: whole UTF-8 characters that stand for themselves inside a JSON
 * string. Where such a string may go on, all of them may follow, so these are known as a mask, and
 * a second tree has the others.
 *
 * Lifetime: vocabulary_create (grammar/grammar.h). Thread: any, once created.
 */
#ifndef GRAMMAR_VOCABULARY_H
#define GRAMMAR_VOCABULARY_H

#include <stdint.h>

enum { VOCABULARY_TOKEN_BYTES_MAX = 1024 };
#define TOKEN_ABSENT UINT32_MAX

struct vocabulary_node {
    uint32_t end;   /* index behind the last descendant */
    uint32_t token; /* that ends here, or TOKEN_ABSENT; further ones by next_alike */
    uint16_t depth; /* 0 for the first byte of a token */
    uint8_t byte;
};

struct token_tree {
    struct vocabulary_node *nodes;
    uint32_t node_count;
};

struct vocabulary {
    uint32_t count;              /* of tokens */
    struct token_tree all, rest; /* every token; those that are not plain text */
    uint64_t *text;              /* mask of the tokens that are plain text */
    uint32_t text_chars_max;     /* characters of the longest of them */
    uint32_t *next_alike;        /* by token: another token with the same bytes, or TOKEN_ABSENT */
    char *bytes;                 /* of all tokens, one after the other */
    uint32_t *starts;            /* [count + 1]: where the bytes of a token begin */
};

#endif
