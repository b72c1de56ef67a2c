/* translate/translate_int.h - what the files of this folder share; no other folder includes it. */
#ifndef TRANSLATE_TRANSLATE_INT_H
#define TRANSLATE_TRANSLATE_INT_H

#include "base/status.h"
#include "translate/rows.h"

struct arch;
struct buf;
struct gguf_writer;
struct model;
struct model_file;
struct tokenizer;

/* tokenizer.ggml.token_type; the numbers are GGUF's. */
enum token_type {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_USER = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6
};

/* A folder that becomes a GGUF. */
struct to_gguf {
    struct model_file *folder;
    struct model *model;         /* of the folder */
    struct tokenizer *tokenizer; /* of the folder */
    const char *arch;            /* general.architecture */
    struct gguf_writer *writer;  /* of the keys */
    struct model_file *view;     /* once the keys are there */
    struct err *err;
};

/* gguf_keys.c: the numbers. ST_BAD: a scaling of rope that a GGUF does not have. */
enum status gguf_put_numbers(struct to_gguf *g);

/* gguf_tokens.c: tokenizer.*. */
enum status gguf_put_tokens(struct to_gguf *g);

/* gguf_tensors.c */
enum status gguf_add_tensors(struct to_gguf *g);

/* Does the architecture's GGUF have the rows of Q and K in pairs? */
bool gguf_has_pairs(const char *arch);

/* A GGUF that becomes a folder. */
struct to_folder {
    struct model_file *gguf;
    struct model *model;         /* of the GGUF */
    struct tokenizer *tokenizer; /* of the GGUF */
    const struct arch *arch;     /* of the folder */
    struct model_file *view;     /* once the texts are there */
    struct err *err;
};

/* folder_config.c: config.json and generation_config.json. ST_BAD: divisors of rope that are those
 * of no scaling. */
enum status folder_put_config(const struct to_folder *f, struct buf *out);
enum status folder_put_generation(const struct to_folder *f, struct buf *out);

/* folder_tokens.c: tokenizer.json and tokenizer_config.json. */
enum status folder_put_tokenizer(const struct to_folder *f, struct buf *out);
enum status folder_put_tokenizer_config(const struct to_folder *f, struct buf *out);
enum status folder_token_type(const struct to_folder *f, uint32_t id, enum token_type *out);
void folder_put_merge(struct str left, struct str right, bool is_first, struct buf *out);

/* spm_merges.c: the merges of a vocabulary with scores, as the items of a JSON list. */
enum status folder_put_spm_merges(const struct to_folder *f, struct buf *out);

/* folder_tensors.c */
enum status folder_add_tensors(struct to_folder *f);

#endif
