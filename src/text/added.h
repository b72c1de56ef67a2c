/* text/added.h - tokens cut out of the text before everything else. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "text/tokenizer.h"

struct trie;

struct added_token {
    struct str text; /* vocab arena */
    token_id id;
    bool special, lstrip, rstrip, single_word, normalized;
};

struct added {
    struct added_token *tokens; /* heap */
    uint32_t count, cap;
    struct trie *raw, *normalized; /* text -> index into tokens; NULL if there are none */
    bool first_raw[256], first_normalized[256];
};
enum status added_push(struct added *a, struct added_token token);
void added_deinit(struct added *a);

struct tokenizer;
enum status added_index(struct tokenizer *t); /* once all are known; normalises their texts */

/* The next cut: the text before it (may be empty), and the token (TOKEN_NONE for the text
 * after the last one). */
struct added_cut {
    struct str before;
    token_id id;
};
struct added_scan {
    const struct added *a;
    struct str text;
    size_t pos;   /* where the search continues */
    size_t taken; /* everything before it has been given out */
    bool normalized, plain_special;
    struct plain_bytes plain;
};
/* Is one of the bytes [start, end) listed? */
bool plain_bytes_in(struct plain_bytes plain, size_t start, size_t end);
bool added_scan_next(struct added_scan *s, struct added_cut *cut);

#endif
