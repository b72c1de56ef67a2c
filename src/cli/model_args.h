/* cli/model_args.h - flags that several commands share, and the models that they name.
 *
 * Lifetime: the tables are static; what is opened belongs to the caller.
 * Thread: the main thread.
 */
#ifndef CLI_MODEL_ARGS_H
#define CLI_MODEL_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/cli.h"
#include "hub/model_cache.h"
#include "graph/kv_space.h"
#include "sample/sampler.h"

struct loaded_model;
struct service;
struct model_file;
struct speculate_option;
struct tokenizer;

extern const struct flag flags_engine[];   /* --threads ... --verify */
extern const struct flag flags_chunk[];    /* --chunk */
extern const struct flag flags_context[];  /* --ctx */
extern const struct flag flags_sampling[]; /* --temp --seed --top-k ... --logit-bias */

/* The path of the model. ST_MISSING: `err` says how to fetch it. */
enum status model_args_path(const struct args *a, char path[MODEL_PATH_BYTES], struct err *err);
/* The same for any name of a model. */
enum status model_args_resolve(const char *name, char path[MODEL_PATH_BYTES], struct err *err);

/* A model without its weights. */
struct text_model {
    struct model_file *file;
    struct tokenizer *tokenizer;
};
enum status text_model_open(const struct args *a, struct text_model *out, struct err *err);
void text_model_close(struct text_model *m); /* a zeroed one is fine */

/* An engine for one request at a time, not started, as flags_engine and flags_chunk say, with
 * progress on a terminal. `ctx_tokens` as in struct loaded_model_options. taps_logits: requests may
 * have a logits tap (struct request_spec). speculate: NULL: off. Close it with service_close. */
enum status model_args_service(const struct args *a, uint32_t ctx_tokens, bool taps_logits,
                               const struct speculate_option *speculate, struct service *out,
                               struct err *err);

/* The same for the model at `path`, without drafts. */
enum status model_args_service_at(const struct args *a, const char *path, uint32_t ctx_tokens,
                                  bool taps_logits, struct service *out, struct err *err);

/* The model alone, without an engine. tokens_only: it may come without a tokenizer. Close it with
 * loaded_model_close. */
enum status model_args_load(const struct args *a, uint32_t ctx_tokens, bool tokens_only,
                            struct loaded_model *out, struct err *err);
enum kv_type model_args_kv_type(const struct args *a);

/* The context size from flags_context; 0: the model's. */
uint32_t model_args_ctx(const struct args *a);

/* The values of flags_sampling. The biases are written to `bias`, which `out` borrows. Without
 * --seed the seed is random. */
enum exit_code model_args_sampling(const struct args *a, struct logit_bias bias[LOGIT_BIAS_MAX],
                                   struct sample_params *out, struct err *err);

#endif
