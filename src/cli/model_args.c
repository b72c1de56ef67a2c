/* cli/model_args.c - see cli/model_args.h. */
#include "cli/model_args.h"

#include <stdio.h>
#include <string.h>

#include "base/pool.h"
#include "cli/progress_bar.h"
#include "config/env.h"
#include "engine/service.h"
#include "format/model_file.h"
#include "kernels/devices.h"
#include "sample/random_seed.h"
#include "text/tokenizer.h"

const struct flag flags_engine[] = {
    {.name = "threads",
     .letter = 't',
     .kind = FLAG_INT,
     .value = "N",
     .min = 1,
     .max = POOL_THREADS_MAX,
     .help = "Number of compute threads. If not given: one for each processor that the process may "
             "use, minus one on 8 processors or more, which is left to other work. The result is "
             "the same bits with any number."},
    {.name = "kv-type",
     .kind = FLAG_WORD,
     .value = "f16|f32|int8|fp8|int4",
     .fallback = "f16",
     .help =
         "Number format of the KV cache. int8 needs about half the memory of f16 and is a "
         "little less exact; fp8 (e4m3) needs half of it and is less exact than int8; int4 needs "
         "little more than a quarter and is less exact than fp8 (CPU only)."},
    {.name = "device",
     .kind = FLAG_TEXT,
     .value = "auto|cpu|cuda:N",
     .fallback = "auto",
     .help = "Device that runs the model; auto: the best one of this machine.",
     .check = device_check_name},
    {.name = "weights",
     .kind = FLAG_WORD,
     .value = "auto|fp8",
     .fallback = "auto",
     .help = "Number format of the weights on the device; auto: as the model file has them. fp8: "
             "16-bit matrices of the layers are converted to e4m3 while they are loaded: faster "
             "and less exact. Needs an NVIDIA H100 or H200."},
    {.name = "isa",
     .kind = FLAG_WORD,
     .value = "auto|amx|avx512|avx2|dotprod|neon|portable|ref",
     .fallback = "auto",
     .help =
         "Instruction set of the CPU kernels; auto: the best that the processor has. ref is the "
         "slow reference.",
     .check = device_check_isa},
    {.name = "weights-cache",
     .kind = FLAG_WORD,
     .value = "on|off",
     .fallback = "on",
     .help = "Use weights that a server has cached in the order in which the kernels read them."},
    {.name = "verify",
     .kind = FLAG_BOOL,
     .help = "Check the checksums of cached weights before using them; damaged ones are removed, "
             "and the weights are converted again. Only a server caches them again."},
    {0},
};

const struct flag flags_chunk[] = {
    {.name = "chunk",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "256",
     .min = 1,
     .max = 4096,
     .help =
         "Tokens of a prompt that are computed in one step; changes speed and memory, never the "
         "result."},
    {0},
};

const struct flag flags_context[] = {
    {.name = "ctx",
     .letter = 'c',
     .kind = FLAG_INT,
     .value = "N",
     .min = 1,
     .max = 1 << 24,
     .help =
         "Tokens of context, prompt and answer together. If not given: the context of the model, "
         "at most 8192."},
    {0},
};

/* Columns of sample/ranges.def, as members of struct flag. */
#define LIMITS(row) .min = (double)row(SAMPLE_LEAST_OF), .max = (double)row(SAMPLE_MOST_OF)
#define DEFAULT(row) .fallback = row(FALLBACK_TEXT)
#define FALLBACK_TEXT(name, kind, least, most, value, text) #value
#define HELP(row) .help = row(SAMPLE_HELP_OF)
#define REAL_FLAG(flag, letter_of_value, row)                                                      \
    {                                                                                              \
        .name = (flag), .kind = FLAG_REAL, .value = (letter_of_value), LIMITS(row), DEFAULT(row),  \
        HELP(row)                                                                                  \
    }
#define INT_FLAG(flag, row)                                                                        \
    { .name = (flag), .kind = FLAG_INT, .value = "N", LIMITS(row), DEFAULT(row), HELP(row) }

const struct flag flags_sampling[] = {
    REAL_FLAG("temp", "T", SAMPLE_TEMPERATURE),
    {.name = "seed",
     .kind = FLAG_INT,
     .value = "S",
     LIMITS(SAMPLE_SEED),
     .help = SAMPLE_SEED(SAMPLE_HELP_OF) " If not given, each run takes a random seed."},
    INT_FLAG("top-k", SAMPLE_TOP_K),
    REAL_FLAG("typical", "P", SAMPLE_TYPICAL_P),
    REAL_FLAG("top-p", "P", SAMPLE_TOP_P),
    REAL_FLAG("min-p", "P", SAMPLE_MIN_P),
    REAL_FLAG("repeat-penalty", "X", SAMPLE_REPETITION_PENALTY),
    REAL_FLAG("presence-penalty", "X", SAMPLE_PRESENCE_PENALTY),
    REAL_FLAG("frequency-penalty", "X", SAMPLE_FREQUENCY_PENALTY),
    INT_FLAG("penalty-window", SAMPLE_PENALTY_WINDOW),
    {.name = "logit-bias",
     .kind = FLAG_TEXT,
     .value = "ID=B",
     .repeats = true,
     .help = "Add B to the logit of token ID; -inf forbids the token."},
    {0},
};

/* Without a cache folder (no HOME), paths still work. */
static void find_cache(struct model_cache *cache) {
    struct env_settings env;
    struct err ignored = {0};
    env_read(&env);
    if (model_cache_init(cache, &env, &ignored) != ST_OK) cache->root[0] = 0;
}

enum status model_args_resolve(const char *name, char path[MODEL_PATH_BYTES], struct err *err) {
    struct model_cache cache;
    find_cache(&cache);
    return model_cache_resolve(&cache, name, path, err);
}

enum status model_args_path(const struct args *a, char path[MODEL_PATH_BYTES], struct err *err) {
    return model_args_resolve(args_model(a), path, err);
}

enum status text_model_open(const struct args *a, struct text_model *out, struct err *err) {
    char path[MODEL_PATH_BYTES];
    *out = (struct text_model){0};
    TRY(model_args_path(a, path, err));
    TRY(model_file_open(path, &out->file, err));
    enum status st = tokenizer_create(out->file, &out->tokenizer, err);
    if (st != ST_OK) text_model_close(out);
    return st;
}

void text_model_close(struct text_model *m) {
    tokenizer_destroy(m->tokenizer);
    model_file_close(m->file);
    *m = (struct text_model){0};
}

enum kv_type model_args_kv_type(const struct args *a) {
    const char *word = args_text(a, "kv-type");
    if (strcmp(word, "f32") == 0) return KV_F32;
    if (strcmp(word, "fp8") == 0) return KV_F8;
    if (strcmp(word, "int4") == 0) return KV_I4;
    return strcmp(word, "int8") == 0 ? KV_I8 : KV_F16;
}

/* The folder of prepared weights that a server has kept; NULL: it is not used. */
static const char *images_of(const struct args *a, char path[MODEL_PATH_BYTES]) {
    struct model_cache cache;
    find_cache(&cache);
    bool is_wanted = strcmp(args_text(a, "weights-cache"), "on") == 0;
    return is_wanted && model_cache_images(&cache, path) ? path : NULL;
}

/* What opening a model needs beside its own options. */
struct loading {
    char path[MODEL_PATH_BYTES], images[MODEL_PATH_BYTES];
    struct weight_cache_options weights;
    struct progress_bar bar;
};

static void begin_loading_at(struct loading *l, const struct args *a, const char *path) {
    struct env_settings env;
    snprintf(l->path, sizeof(l->path), "%s", path);
    l->weights = (struct weight_cache_options){.dir = images_of(a, l->images),
                                               .verify = args_on(a, "verify")};
    env_read(&env);
    progress_bar_init(&l->bar, &env, PROGRESS_BAR_SILENT);
    progress_bar_begin_share(&l->bar, "loading");
}

static enum status begin_loading(struct loading *l, const struct args *a, struct err *err) {
    char path[MODEL_PATH_BYTES];
    TRY(model_args_path(a, path, err));
    begin_loading_at(l, a, path);
    return ST_OK;
}

/* `loaded`: what was opened, if `st` is ST_OK. */
static enum status end_loading(struct loading *l, enum status st,
                               const struct loaded_model *loaded) {
    progress_bar_end(&l->bar);
    if (st != ST_OK) return st;
    const char *note = weight_cache_report(loaded->weights).note;
    if (note[0]) fprintf(stderr, "jitney: %s; the weights were converted again\n", note);
    return ST_OK;
}

static struct knobs knobs_of(const struct args *a) {
    static const uint32_t kv_types[] = {
        [KV_F16] = 0, [KV_F32] = 1, [KV_I8] = 2, [KV_F8] = 3, [KV_I4] = 4};
    struct knobs k = knobs_default();
    k.threads = (uint32_t)args_int(a, "threads");
    k.max_step_tokens = (uint32_t)args_int(a, "chunk");
    k.kv_type = kv_types[model_args_kv_type(a)];
    return k;
}

/* What both ways to open a service have in common. */
static struct service_options service_options_of(const struct args *a, struct loading *l,
                                                 uint32_t ctx_tokens, bool taps_logits) {
    return (struct service_options){
        .knobs = knobs_of(a),
        .ctx_tokens = ctx_tokens,
        .is_single = true,
        .logit_rows = taps_logits ? (uint32_t)args_int(a, "chunk") : 0,
        .device = args_text(a, "device"),
        .isa = args_text(a, "isa"),
        .fp8_weights = strcmp(args_text(a, "weights"), "fp8") == 0,
        .weights = l->weights,
        .speculate = speculate_option_default(),
        .on_progress = progress_bar_on_load,
        .progress_ctx = &l->bar,
    };
}

enum status model_args_service(const struct args *a, uint32_t ctx_tokens, bool taps_logits,
                               const struct speculate_option *speculate, struct service *out,
                               struct err *err) {
    struct loading l;
    TRY(begin_loading(&l, a, err));
    struct service_options options = service_options_of(a, &l, ctx_tokens, taps_logits);
    if (speculate) options.speculate = *speculate;
    return end_loading(&l, service_open(out, l.path, &options, err), &out->loaded);
}

enum status model_args_service_at(const struct args *a, const char *path, uint32_t ctx_tokens,
                                  bool taps_logits, struct service *out, struct err *err) {
    struct loading l;
    begin_loading_at(&l, a, path);
    const struct service_options options = service_options_of(a, &l, ctx_tokens, taps_logits);
    return end_loading(&l, service_open(out, l.path, &options, err), &out->loaded);
}

enum status model_args_load(const struct args *a, uint32_t ctx_tokens, bool tokens_only,
                            struct loaded_model *out, struct err *err) {
    struct loading l;
    TRY(begin_loading(&l, a, err));
    const struct loaded_model_options options = {
        .threads = (uint32_t)args_int(a, "threads"),
        .ctx_tokens = ctx_tokens,
        .device = args_text(a, "device"),
        .isa = args_text(a, "isa"),
        .fp8_weights = strcmp(args_text(a, "weights"), "fp8") == 0,
        .tokens_only = tokens_only,
        .weights = l.weights,
        .on_progress = progress_bar_on_load,
        .progress_ctx = &l.bar,
    };
    return end_loading(&l, loaded_model_open(out, l.path, &options, err), out);
}

uint32_t model_args_ctx(const struct args *a) { return (uint32_t)args_int(a, "ctx"); }

/* "ID=B" */
static bool parse_bias(const char *text, struct logit_bias *out) {
    const char *equals = strchr(text, '=');
    if (!equals) return false;
    uint64_t token;
    double bias;
    if (!str_to_u64((struct str){text, (size_t)(equals - text)}, &token)) return false;
    if (!str_to_f64(str_of(equals + 1), &bias) || token > INT32_MAX) return false;
    *out = (struct logit_bias){(int32_t)token, (float)bias};
    return true;
}

static enum exit_code read_biases(const struct args *a, struct logit_bias bias[LOGIT_BIAS_MAX],
                                  uint32_t *count, struct err *err) {
    *count = args_count(a, "logit-bias");
    if (*count > LOGIT_BIAS_MAX)
        return usage_set(err, "--logit-bias was given %u times; the maximum is %d", *count,
                         LOGIT_BIAS_MAX);
    for (uint32_t i = 0; i < *count; i++) {
        const char *text = args_text_at(a, "logit-bias", i);
        if (!parse_bias(text, &bias[i]))
            return usage_set(err, "--logit-bias is \"%s\"; it must be a token id, '=' and a number",
                             text);
    }
    return EXIT_FINE;
}

enum exit_code model_args_sampling(const struct args *a, struct logit_bias bias[LOGIT_BIAS_MAX],
                                   struct sample_params *out, struct err *err) {
    uint32_t bias_count;
    enum exit_code code = read_biases(a, bias, &bias_count, err);
    if (code != EXIT_FINE) return code;
    *out = (struct sample_params){
        .temperature = (float)args_real(a, "temp"),
        .top_k = (uint32_t)args_int(a, "top-k"),
        .top_p = (float)args_real(a, "top-p"),
        .min_p = (float)args_real(a, "min-p"),
        .typical_p = (float)args_real(a, "typical"),
        .repetition_penalty = (float)args_real(a, "repeat-penalty"),
        .presence_penalty = (float)args_real(a, "presence-penalty"),
        .frequency_penalty = (float)args_real(a, "frequency-penalty"),
        .penalty_window = (int32_t)args_int(a, "penalty-window"),
        .seed = args_given(a, "seed") ? (uint64_t)args_int(a, "seed") : random_seed(),
        .bias = bias,
        .bias_count = bias_count,
    };
    return sample_params_check(out, err) == ST_OK ? EXIT_FINE : EXIT_USAGE;
}
