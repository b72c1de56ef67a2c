/* cli/compare_run.h - two models on the same text: `jitney compare`, `jitney quantize --report`.
 *
 * The text is cut into windows as `jitney perplexity` does. Both models compute each window; the
 * positions of its second half are compared (quant/divergence.h). Then both continue some of the
 * windows, always with the most likely token, and the tokens that they have in common are counted.
 * With --svg layers of B are tried in A (cli/layer_kl.h).
 *
 * Lifetime: all of it is in use during compare_models only. Thread: the main thread. Memory: both
 * models, and the logits of half a window.
 */
#ifndef CLI_COMPARE_RUN_H
#define CLI_COMPARE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/cli.h"
#include "cli/layer_kl.h"
#include "cli/text_windows.h"
#include "quant/divergence.h"

struct buf;

extern const struct flag flags_compare[]; /* --greedy --svg; flags_text belong to it */

/* One of the two models. */
struct compared {
    char path[4096];
    char shown[4096]; /* what it is called in messages and tables */
    uint64_t bytes;   /* of its files */
    double bits_per_weight;
    double decode_rate; /* tokens a second while generating; 0: --greedy 0 */
};

struct comparison {
    struct compared a, b;
    struct divergence_result apart;
    struct text_windows text;
    uint32_t greedy_tokens; /* generated from each start; 0: none */
    double greedy_agree;    /* share of them before the first that differs */
    bool has_layers;        /* --svg */
    struct layer_kl layers;
};

/* What can be known before the work: reads the text of --file with the tokenizer of the model at
 * `model_path`. ST_BAD: it is too short. ST_MISSING, ST_IO: it cannot be read. ST_CREATE: the file
 * of --svg cannot be written. */
enum status comparison_prepare(const struct args *args, const char *model_path,
                               struct comparison *c, struct err *err);

/* It is prepared; the paths and names are set. The flags are flags_text, flags_compare, flags_chunk
 * and flags_engine; the file of --svg is written. ST_BAD: the vocabularies differ (`err` names the
 * first token that does), or layers cannot be exchanged (cli/layer_kl.h). */
enum status compare_models(const struct args *args, struct comparison *c, struct err *err);
void comparison_deinit(struct comparison *c); /* a zeroed one is fine */

/* The members of the JSON object, without braces; a table for people. */
void comparison_put_json(const struct comparison *c, struct buf *out);
void comparison_put_table(const struct comparison *c, struct buf *out);

#endif
