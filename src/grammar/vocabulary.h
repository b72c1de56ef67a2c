/* grammar/vocabulary.h - the tokens of a model as trees of their bytes, in depth-first order.
 *
 * Node i of a tree is one byte. Its descendants are the nodes from i + 1 to end[i] - 1, so a walk
 * that finds a byte impossible goes on at end[i] and has skipped every token that begins like this.
 *
 * Most tokens are plain text: UTF-8 characters that stand for themselves inside a JSON string; the
 * last one may be cut. Where a string may go on with any text of some length, all texts up to this
 * length may follow without a walk. Texts are therefore known by classes of length: a mask of the
 * texts up to a length, and a tree of the longer ones. Likewise all the text below a node may
 * follow where it is short enough: the tokens below each node are a part of a list, and large parts
 * have a mask. Words are texts of few characters, all from one set (letters; letters and digits).
 * Formats and patterns often allow all of them, where they do not allow any text. Texts that a
 * control character ends have a tree of their own, since no JSON string has them.
 *
 * Lifetime: vocabulary_create (grammar/grammar.h). Thread: any, once created.
 */
#ifndef GRAMMAR_VOCABULARY_H
#define GRAMMAR_VOCABULARY_H

#include <stdbool.h>
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

/* Of a node of plain text: the tokens that end at it or below. */
struct text_part {
    uint32_t first;       /* in `tokens`; the part ends where that of the node at `end` begins */
    uint16_t chars_below; /* of the longest text below the node; TEXT_SPLIT: amid a character */
    uint16_t mask;        /* 1 + index in part_masks, or 0 */
};
enum { TEXT_SPLIT = UINT16_MAX, TEXT_CHARS_MAX = UINT16_MAX - 1, TEXT_CLASSES = 5 };

enum { WORD_CLASSES = 2, WORD_CHARS_MAX = 10 };
bool word_has(int word_class,
              uint8_t byte); /* the set of bytes of a class; the last has the most */

struct text_class {
    uint16_t chars; /* the texts of up to so many characters are in `mask`, the others in `tree` */
    uint64_t *mask;
    struct token_tree tree;
    struct text_part *parts; /* by node of `tree`, and one behind the last */
    uint32_t *tokens;        /* of `tree`, in its order */
    uint64_t *part_masks;    /* of vocabulary_words each */
};

struct vocabulary {
    uint32_t count;                        /* of tokens */
    struct text_class texts[TEXT_CLASSES]; /* the first has all in its tree, the last none */
    struct text_class words[WORD_CLASSES]; /* words are in `mask`, the other texts in `tree` */
    struct token_tree controls;            /* plain text or nothing, then a control character */
    struct token_tree rest;                /* all other tokens */
    uint32_t *next_alike; /* by token: another token with the same bytes, or TOKEN_ABSENT */
    char *bytes;          /* of all tokens, one after the other */
    uint32_t *starts;     /* [count + 1]: where the bytes of a token begin */
};

#endif
