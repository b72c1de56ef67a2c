/* translate/translate_int.h - what the files of this folder share; no other folder includes it. */
#ifndef TRANSLATE_TRANSLATE_INT_H
#define TRANSLATE_TRANSLATE_INT_H

#include "base/status.h"
#include "translate/rows.h"

struct gguf_writer;
struct model;
struct model_file;
struct tokenizer;

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

#endif
