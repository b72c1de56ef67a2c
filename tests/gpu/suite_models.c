/* Goal:   whole models compute what they compute on the CPU.
 * Method: every golden model, as a folder and as a GGUF, on both devices: logits of a prompt, or an
 *         embedding. Models of f32 and quantised weights must agree to the bit, those with 16-bit
 *         weights within bf16's and f16's rounding of activations, those that are stored in fp8
 *         within e4m3's; and logits must not depend on how a prompt is cut. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "check.h"
#include "reference/forward.h"

enum { TOKENS = 40, PATH_BYTES = 4096 };

/* Each product rounds its activations by up to 2^-9; the models are narrow, so little averages
 * out: 2 % of the largest logit is about twice what is seen. */
static const double TOLERANCE_16_BIT = 0.02;

/* e4m3 has three bits of mantissa: each factor of a product is off by up to 2^-4, by 2.6 % on
 * average. In the logits of these models, whose weights are random, 12 % of it are seen. */
static const double TOLERANCE_FP8 = 0.15;

/* All rows of outputs of a prompt. */
struct outputs {
    float *values;
    uint32_t width, rows;
};

static enum status keep_rows(void *ctx, uint32_t first, uint32_t count, const float *rows) {
    struct outputs *o = ctx;
    memcpy(o->values + (size_t)first * o->width, rows, (size_t)count * o->width * sizeof(float));
    o->rows = first + count;
    return ST_OK;
}

static bool run_model(struct checks *c, const char *path, const struct forward_options *options,
                      struct outputs *out) {
    struct err err = {{0}};
    struct forward *e = NULL;
    int32_t ids[TOKENS];
    enum status st = forward_open(path, options, &e, &err);
    *out = (struct outputs){.values = NULL};
    if (st == ST_OK) {
        bool is_encoder = forward_is_encoder(e);
        uint32_t vocab = is_encoder ? 64 : forward_vocab(e);
        for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (int32_t)(rng_at(7, 0, i) % vocab);
        out->width = is_encoder ? forward_embed_dims(e) : vocab;
        out->values = mem_zalloc_array((size_t)TOKENS * out->width, sizeof(float));
        CHECK(out->values);
        st = is_encoder ? forward_embed(e, ids, TOKENS, out->values, &err)
                        : forward_logits(e, ids, TOKENS, keep_rows, out, &err);
        if (is_encoder) out->rows = 1;
    }
    check_that(c, st == ST_OK, "%s on %s: %s", path, options->device, err.text);
    forward_close(e);
    return st == ST_OK;
}

static double largest_of(const struct outputs *o) {
    double most = 0;
    for (size_t i = 0; i < (size_t)o->rows * o->width; i++)
        most = fmax(most, fabs((double)o->values[i]));
    return most;
}

static double largest_difference(const struct outputs *a, const struct outputs *b) {
    double most = 0;
    if (a->rows != b->rows || a->width != b->width) return INFINITY;
    for (size_t i = 0; i < (size_t)a->rows * a->width; i++) {
        double d = fabs((double)a->values[i] - (double)b->values[i]);
        if (!(d <= most)) most = d;
    }
    return most;
}

/* The length of the difference over that of the first. */
static double difference_share(const struct outputs *a, const struct outputs *b) {
    double all = 0, apart = 0;
    if (a->rows != b->rows || a->width != b->width) return INFINITY;
    for (size_t i = 0; i < (size_t)a->rows * a->width; i++) {
        double d = (double)a->values[i] - (double)b->values[i];
        all += (double)a->values[i] * (double)a->values[i];
        apart += d * d;
    }
    return sqrt(apart / all);
}

static bool same_bits(const struct outputs *a, const struct outputs *b) {
    return a->rows == b->rows && a->width == b->width &&
           memcmp(a->values, b->values, (size_t)a->rows * a->width * sizeof(float)) == 0;
}

/* Graphs, fused kernels and products of bytes on tensor cores change no bit. */
static void check_variant(struct checks *c, const char *path, struct forward_options *o,
                          const struct outputs *gpu) {
    char device[256];
    struct outputs other;
    snprintf(device, sizeof(device), "%s,graphs=off,fusion=off,codes=plain", c->device);
    o->device = device;
    o->chunk_tokens = TOKENS;
    if (!run_model(c, path, o, &other)) return;
    check_that(c, same_bits(gpu, &other), "%s: other bits op by op, by up to %g", path,
               largest_difference(gpu, &other));
    mem_free(other.values);
}

/* The same model with fp8 weights: near the CPU's floats, and the same bits in any chunks. */
static void check_fp8(struct checks *c, const char *path, struct forward_options *o,
                      const struct outputs *cpu) {
    struct outputs whole, cut;
    o->device = c->device;
    o->fp8_weights = true;
    o->chunk_tokens = TOKENS;
    if (run_model(c, path, o, &whole)) {
        double share = difference_share(cpu, &whole);
        check_that(c, share > 0 && share <= TOLERANCE_FP8,
                   "%s in fp8: differs from the CPU by %g of the logits' length", path, share);
        o->chunk_tokens = 7;
        if (run_model(c, path, o, &cut)) {
            check_that(c, same_bits(&whole, &cut), "%s in fp8: other bits in chunks of 7", path);
            mem_free(cut.values);
        }
        mem_free(whole.values);
    }
    o->fp8_weights = false;
}

/* How far a model's logits may be from the CPU's. */
enum nearness { SAME_BITS, NEAR_16_BIT, NEAR_FP8 };

/* Stored in fp8: with a scale for each row it stays so, with scales of blocks it becomes bf16. */
static enum nearness nearness_of(const char *name) {
    if (strstr(name, "f16")) return NEAR_16_BIT;
    if (!strstr(name, "-fp8")) return SAME_BITS;
    return strstr(name, "-blocks") || strstr(name, "-deepseek") ? NEAR_16_BIT : NEAR_FP8;
}

static void check_nearness(struct checks *c, const char *path, enum nearness nearness,
                           const struct outputs *cpu, const struct outputs *gpu) {
    double most = largest_difference(cpu, gpu), share = difference_share(cpu, gpu);
    if (nearness == SAME_BITS)
        check_that(c, same_bits(cpu, gpu), "%s: other bits than the CPU, by up to %g", path, most);
    else if (nearness == NEAR_16_BIT)
        check_that(c, most <= TOLERANCE_16_BIT * largest_of(cpu),
                   "%s: differs from the CPU by %g, where the largest number is %g", path, most,
                   largest_of(cpu));
    else
        check_that(c, share > 0 && share <= TOLERANCE_FP8,
                   "%s: differs from the CPU by %g of the logits' length", path, share);
}

/* What is stored in fp8, in bf16: nearer to the CPU. */
static void check_stored_off(struct checks *c, const char *path, struct forward_options *o,
                             const struct outputs *cpu) {
    char device[256];
    struct outputs other;
    snprintf(device, sizeof(device), "%s,stored=off", c->device);
    o->device = device;
    o->chunk_tokens = TOKENS;
    if (!run_model(c, path, o, &other)) return;
    check_nearness(c, path, NEAR_16_BIT, cpu, &other);
    mem_free(other.values);
}

static void check_path(struct checks *c, const char *name, const char *path, enum kv_type kv) {
    struct forward_options o = {.threads = 1,
                                .ctx_tokens = 64,
                                .chunk_tokens = TOKENS,
                                .kv_type = kv,
                                .isa = "ref",
                                .device = "cpu",
                                .tokens_only = true};
    struct outputs cpu, gpu, cut;
    enum nearness nearness = nearness_of(name);
    if (!run_model(c, path, &o, &cpu)) return;
    o.device = c->device;
    o.isa = NULL;
    if (run_model(c, path, &o, &gpu)) {
        check_nearness(c, path, nearness, &cpu, &gpu);
        for (uint32_t chunk = 1; chunk <= 7; chunk += 6) {
            o.chunk_tokens = chunk;
            if (!run_model(c, path, &o, &cut)) continue;
            check_that(c, same_bits(&gpu, &cut), "%s: other bits in chunks of %u, by up to %g",
                       path, chunk, largest_difference(&gpu, &cut));
            mem_free(cut.values);
        }
        check_variant(c, path, &o, &gpu);
        if (nearness == NEAR_FP8) check_stored_off(c, path, &o, &cpu);
        if (nearness == NEAR_16_BIT) check_fp8(c, path, &o, &cpu);
        mem_free(gpu.values);
    }
    mem_free(cpu.values);
}

static void check_model(struct checks *c, const char *name) {
    char dir[PATH_BYTES], path[PATH_BYTES];
    /* Each format with some models. Where products are not the CPU's to the bit, numbers of fp8,
     * which lie far apart, would be others here and there. */
    static const enum kv_type kinds[] = {KV_F32, KV_F16, KV_I8, KV_F8};
    enum kv_type kv = kinds[strlen(name) % (nearness_of(name) == SAME_BITS ? 4 : 3)];
    if (!path_join(dir, sizeof(dir), c->models, name)) return;
    if (path_join(path, sizeof(path), dir, "config.json") && file_exists(path))
        check_path(c, name, dir, kv);
    if (path_join(path, sizeof(path), dir, "model.gguf") && file_exists(path))
        check_path(c, name, path, kv);
}

void suite_models(struct checks *c) {
    struct dirent **entries;
    int found = scandir(c->models, &entries, NULL, alphasort);
    check_that(c, found > 2, "no models under %s", c->models);
    for (int i = 0; i < found; i++) {
        if (entries[i]->d_name[0] != '.') check_model(c, entries[i]->d_name);
        free(entries[i]);
    }
    if (found >= 0) free(entries);
}
