/* text/tokenizer.h - text to token ids and back.
 *
 * A tokenizer is a pipeline built once from a model file:
 *
 *   text -> added tokens cut out -> normalise -> pre-tokenize -> model -> post-process -> ids
 *
 * The model is byte-level BPE, SentencePiece BPE with byte fallback, unigram or WordPiece.
 * From GGUF the pipeline follows tokenizer.ggml.model and .pre; from a Hugging Face folder it
 * follows tokenizer.json. Encoding takes time linear in the text (times a logarithm), whatever
 * the text. Bytes that are not UTF-8 are read as U+FFFD, as the `tokenizers` package does.
 *
 * Lifetime: create from an open model file, which may be closed afterwards; destroy.
 * Thread: any number may encode and decode at once; nothing in it changes after create.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct json;
struct model_file;
struct tokenizer; /* opaque */

typedef int32_t token_id; /* 0 .. vocab_count-1; -1 is "none" */
enum { TOKEN_NONE = -1 };

/* A growing list of ids; zero-initialise, tokens_deinit. */
struct tokens {
    token_id *ids;
    size_t count, cap;
};
void tokens_deinit(struct tokens *t);
enum status tokens_push(struct tokens *t, token_id id);

/* ST_BAD with a sentence names the key or the part of tokenizer.json that is wrong or not
 * supported. */
enum status tokenizer_create(struct model_file *f, struct tokenizer **out, struct err *err);

/* From a parsed tokenizer.json alone; `config` is tokenizer_config.json or NULL. `name` is for
 * messages. The documents may be destroyed afterwards. */
enum status tokenizer_create_json(const struct json *doc, const struct json *config,
                                  const char *name, struct tokenizer **out, struct err *err);
void tokenizer_destroy(struct tokenizer *t); /* NULL is fine */

/* Offsets, in rising order, of bytes that are part of no special token (text/content_guard.h). */
struct plain_bytes {
    const size_t *at;
    size_t count;
};

struct encode_options {
    bool plain_special; /* the text of a special token is ordinary text */
    bool add_special;   /* BOS, EOS, [CLS] ... as the model's post-processor says */
    struct plain_bytes plain;
};

/* Append the ids of `text` to `out`. ST_NOMEM only. */
enum status tokenizer_encode(const struct tokenizer *t, struct str text,
                             struct encode_options options, struct tokens *out);

/* What `--add-special` would put around a text, for callers that build their own. */
token_id tokenizer_bos(const struct tokenizer *t); /* TOKEN_NONE if it has none */
token_id tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);

/* Every token that ends an answer: eos, end of turn, and what generation_config lists. */
bool tokenizer_is_end(const struct tokenizer *t, token_id id);
bool tokenizer_is_special(const struct tokenizer *t, token_id id); /* control or added special */

uint32_t tokenizer_vocab(const struct tokenizer *t);                  /* ids are below this */
struct str tokenizer_piece(const struct tokenizer *t, token_id id);   /* as in the file */
token_id tokenizer_find(const struct tokenizer *t, struct str piece); /* TOKEN_NONE if absent */
const char *tokenizer_model(const struct tokenizer *t); /* "bpe", "spm", "unigram", "wordpiece" */

/* The chat template as the model ships it; empty if there is none. `tools` selects the
 * template for tool use if a model ships several. */
struct str tokenizer_chat_template(const struct tokenizer *t, bool tools);

/* The text of some ids, as the `tokenizers` package decodes them; `skip_special`: without special
 * tokens. Invalid UTF-8 becomes U+FFFD. */
enum status tokenizer_decode(const struct tokenizer *t, const token_id *ids, size_t count,
                             bool skip_special, struct buf *out);

/* The bytes of one token amid others, which need not be whole characters: for lists of
 * log-probabilities. Appends nothing for an unknown id. */
enum status tokenizer_token_bytes(const struct tokenizer *t, token_id id, struct buf *out);

/* Text as it comes, token by token, never half a character. The pieces of a stream joined are
 * what tokenizer_decode gives for all the ids at once. Zero-initialise; it owns nothing.
 *
 * Byte tokens ("<0xE2>") are held until another token ends their run, because a run that is
 * not UTF-8 as a whole becomes one U+FFFD per byte; a run is decided after DETOK_RUN_BYTES. */
enum { DETOK_RUN_BYTES = 240 };
struct detok {
    const struct tokenizer *t;  /* borrowed, from the first push */
    char held[DETOK_RUN_BYTES]; /* a run of byte tokens, or part of a character */
    uint8_t held_len;
    bool bad_run;     /* the run is known not to be UTF-8 */
    bool has_pending; /* a token is held until it is known whether it is the last */
    token_id pending;
    uint32_t stripped; /* characters taken off the front so far; capped */
    uint32_t seen;     /* bit per decoder stage: it has had a token */
};
enum status detok_push(struct detok *d, const struct tokenizer *t, token_id id, bool skip_special,
                       struct buf *out);
void detok_finish(struct detok *d, struct buf *out); /* what is held; half characters as U+FFFD */

#endif
