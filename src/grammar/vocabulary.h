/* grammar/vocabulary.h - the tokens of a model as trees of their bytes.
 *
 * A node of a tree is one byte. The children of a node are adjacent in memory: a walk that finds a
 * byte impossible goes on with the next node and reads nothing below the skipped one. They are
 * followed by the children of the first child, so that a walk of all nodes reads them nearly in
 * order.
 *
 * Most tokens are plain text: UTF-8 characters that stand for themselves inside a JSON string; the
 * last one may be cut. Where a string may go on with any text of some length, all texts up to this
 * length may follow without a walk. Texts are therefore known by classes of length: a mask of the
 * texts up to a length, and a tree of the longer ones. Where longer texts may not follow, the mask
 * of the exact length is enough. Likewise all the text below a node may
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
    uint32_t token;    /* that ends here, or TOKEN_ABSENT */
    uint32_t children; /* index of the first */
    uint16_t child_count;
    uint8_t byte;
    bool has_alike; /* further tokens end here, by next_alike */
};

struct token_tree {
    struct vocabulary_node *nodes;
    uint32_t node_count;
    uint32_t root_count; /* of first bytes: the nodes from 0 on */
};

/* Of a node of plain text: the tokens that end at it or below. */
struct text_part {
    uint32_t first, end;  /* in `tokens` */
    uint16_t chars_below; /* of the longest text below the node; TEXT_SPLIT: amid a character */
    uint16_t mask;        /* 1 + index in part_masks, or 0 */
};
enum {
    TEXT_SPLIT = UINT16_MAX,
    TEXT_CHARS_MAX = UINT16_MAX - 1,
    TEXT_CLASSES = 5,
    TEXT_LENGTHS = 33
};

enum { WORD_CLASSES = 2, WORD_CHARS_MAX = 10 };
bool word_has(int word_class,
              uint8_t byte); /* the set of bytes of a class; the last has the most */

struct text_class {
    uint16_t chars; /* the texts of up to so many characters are in `mask`, the others in `tree` */
    uint64_t *mask;
    struct token_tree tree;
    struct text_part *parts; /* by node of `tree` */
    uint32_t *tokens;        /* of `tree`, in its order */
    uint64_t *part_masks;    /* of vocabulary_words each */
};

struct long_text {
    uint32_t chars, token;
};

struct vocabulary {
    uint32_t count;                        /* of tokens */
    struct text_class texts[TEXT_CLASSES]; /* the first has all in its tree, the last none */
    struct text_class words[WORD_CLASSES]; /* words are in `mask`, the other texts in `tree` */
    struct token_tree controls;            /* plain text or nothing, then a control character */
    struct token_tree rest;                /* all other tokens */
    uint64_t *lengths; /* masks of the texts of up to 0, 1, ... TEXT_LENGTHS - 1 characters */
    struct long_text *long_texts; /* the others, by their length */
    uint32_t long_count;
    uint32_t *next_alike; /* by token: another token with the same bytes, or TOKEN_ABSENT */
    char *bytes;          /* of all tokens, one after the other */
    uint32_t *starts;     /* [count + 1]: where the bytes of a token begin */
};

#endif
