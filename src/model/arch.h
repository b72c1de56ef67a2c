/* model/arch.h - the plug of an architecture.
 *
 * A plug: one file arch_X.c each, listed in arch_list.c. An architecture reads the
 * hyperparameters that only it has, lists the weights whose names differ from the usual ones, and
 * writes its forward pass with the functions of model/blocks.h.
 */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include "model/model.h"

struct flow; /* model/blocks.h */

/* A tensor of a folder whose name differs from the usual one. `%u` is the layer; in experts, a
 * second `%u` is the expert. */
struct name_override {
    bool is_vec;
    int slot; /* enum vec or enum mat */
    const char *hf;
};

struct arch {
    const char *name;       /* general.architecture in GGUF */
    const char *hf;         /* model_type in config.json */
    const char *const *aka; /* other spellings of either, NULL-terminated, or NULL */
    bool encoder;

    /* Change what hparams_read found. ST_BAD names the key at fault. */
    enum status (*read_hparams)(const struct model_file *f, struct hparams *hp, struct err *err);

    /* NULL-terminated by hf == NULL; NULL if all names are the usual ones. */
    const struct name_override *names;

    /* Vectors that every layer has beside its two norms, ended by VEC_COUNT; NULL if none. A file
     * that lacks one is refused: without it the model would run and give wrong results. */
    const enum vec *needs;

    /* Write the forward pass. Pure: same model, same tape. */
    void (*build)(const struct model *m, enum model_goal goal, struct tape *t);

    /* One layer of it. NULL: an encoder, which build() writes as a whole. */
    void (*build_layer)(struct flow *f, uint32_t layer);
};

extern const struct arch *const archs[]; /* NULL-terminated; arch_list.c */

/* By the name a file of that kind uses; NULL if no architecture has it. */
const struct arch *arch_find(const char *name, bool is_hf);

#endif
