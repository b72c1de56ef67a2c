/* text/text_int.h - what the tokenizer's files share; no other folder includes it.
 *
 * A tokenizer is data: a vocabulary, a list of normaliser steps, a list of pre-tokenizer
 * steps, one model, a post-processor and a list of decoder stages. The readers
 * (tokenizer_gguf.c, tokenizer_json.c) fill it, and nothing changes it afterwards. A call that
 * encodes has its own struct work, so calls never meet.
 *
 * Texts inside are valid UTF-8: tokenizer_encode repairs its input once. Sizes that a file
 * states are held against text_limits.h before anything is allocated.
 */
#ifndef TEXT_TEXT_INT_H
#define TEXT_TEXT_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "text/added.h"
#include "text/decoder.h"
#include "text/models.h"
#include "text/normalize.h"
#include "text/pretok.h"
#include "text/regex.h"
#include "text/text_limits.h"
#include "text/tokenizer.h"
#include "text/trie.h"
#include "text/unicode.h"
#include "text/vocab.h"

struct json;

/* ---- postproc.c: tokens around a text ---- */

enum { POST_SEQUENCE = -2, POST_ITEMS_MAX = 64 };
struct post { /* ids, with POST_SEQUENCE in the place of the text's ids */
    token_id items[POST_ITEMS_MAX];
    uint32_t count;
};
/* Make `p` the composition: `outer` with each POST_SEQUENCE replaced by the items of `p`. */
bool post_nest(struct post *p, const struct post *outer); /* false: too many items */

/* ---- tokenizer.c ---- */

enum tok_model { TOK_BPE, TOK_SPM, TOK_UNIGRAM, TOK_WORDPIECE };

struct tokenizer {
    enum tok_model model;
    struct vocab vocab;
    struct added added;
    struct norm_chain norm;
    struct pretok_chain pretok;
    struct bpe bpe;
    struct unigram unigram;
    struct wordpiece wordpiece;
    struct post post;
    struct decoder_chain decoder;
    struct trie *user; /* GGUF unigram: tokens that normalising does not change */
    token_id bos, eos;
    token_id more_ends[2]; /* GGUF: end of turn, end of message */
    uint32_t more_end_count;
    uint8_t *flags;                                /* by id: TOKEN_SPECIAL, TOKEN_END; heap */
    struct str chat_template, chat_template_tools; /* vocab arena */
};
enum { TOKEN_SPECIAL = 1, TOKEN_END = 2 };

struct model_file;
enum status tokenizer_read_gguf(struct tokenizer *t, struct model_file *f, struct err *err);
enum status tokenizer_read_json(struct tokenizer *t, const struct json *doc, struct err *err);
enum status norm_read(struct tokenizer *t, const struct json *v, struct err *err);
enum status pretok_read(struct tokenizer *t, const struct json *v, struct err *err);
enum status post_read(struct tokenizer *t, const struct json *v, struct err *err);
enum status decode_read(struct tokenizer *t, const struct json *v, struct err *err);
enum status pattern_read(struct pattern *p, const struct json *v, const char *what,
                         struct err *err);
enum status text_dup(struct tokenizer *t, struct str text, struct str *out); /* vocab arena */

#endif
