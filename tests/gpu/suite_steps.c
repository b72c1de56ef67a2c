/* Goal:   a row of a decoding step has one set of bits, whatever else the step holds and however it
 *         is launched.
 * Method: a small model of real proportions decodes so many tokens of many sequences that attention
 *         has two segments. Then the next token of the first 1, 2, 3... of them is computed, each
 *         number several times, with steps of other tokens between them (a graph is recorded the
 *         second time and launched the third), and every row of logits is compared with that of the
 *         usual device and all sequences. Variants that a plan names itself are
 *         compared, too: codes of 8 bits beside those of 4, other shares of a product's tiles. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "check.h"
#include "kernels/cuda_load.h"
#include "shaped.h"

enum { SEQS = 256, PAST = 270, REPEATS = 3, QUICK_SEQS = 17, QUICK_PAST = 70 };
enum { TALL_SEQS = 16, TALL_PAST = 4 };

struct plan {
    struct shape shape;
    uint32_t seqs, past;
    enum kv_type kv_type;
    enum rope_style style;
    const char *beside; /* variants that have the same bits, too; NULL: none */
};

static const uint32_t batches[] = {1,  2,  3,  4,  5,  6,  7,   8,   9,   12, 15,
                                   16, 17, 31, 32, 33, 64, 100, 128, 200, 256};
enum { BATCHES = sizeof(batches) / sizeof(batches[0]) };

static bool open_at(const struct plan *p, const char *device, struct shaped *m) {
    struct shaped_sizes sizes = {.rows = p->seqs,
                                 .seqs = p->seqs,
                                 .tokens = p->past + 64,
                                 .kv_tokens = p->seqs * (p->past + 64 + 63) / 64 * 64,
                                 .kv_type = p->kv_type,
                                 .style = p->style};
    if (!shaped_open(m, &p->shape, device, &sizes)) return false;
    for (uint32_t pos = 0; pos < p->past; pos++) {
        shaped_set_step(m, p->seqs, 1, pos);
        m->step->hands_over = true;
        shaped_run(m, 1);
    }
    return true;
}

/* How many rows differ from the reference's. */
static uint32_t differing(const struct shaped *m, const float *reference, uint32_t seqs) {
    size_t row = m->result.row_floats, bytes = m->shape->vocab * sizeof(float);
    uint32_t count = 0;
    for (uint32_t r = 0; r < seqs; r++)
        count += memcmp(m->result.rows + r * row, reference + r * row, bytes) != 0;
    return count;
}

/* Other tokens in the same places, so that nothing that a step leaves behind can pass for the
 * result of the next. */
static void run_others(struct shaped *m, uint32_t seqs, uint32_t pos) {
    shaped_set_step(m, seqs, 1, pos);
    m->step->hands_over = true;
    for (uint32_t i = 0; i < seqs; i++)
        m->step->token[i] = (int32_t)((uint32_t)(m->step->token[i] + 13) % m->shape->vocab);
    shaped_run(m, 1);
}

/* Where the variant is to do layers in one launch, it did so if weights are of 16 bits, and with no
 * others. */
static void check_resident(struct checks *c, const struct plan *p, const char *variant,
                           const struct shaped *m) {
    if (!strstr(variant, "step=resident")) return;
    bool is_16_bit = p->shape.type == DTYPE_BF16 || p->shape.type == DTYPE_F16;
    struct cuda_library_resident done = cuda_program_resident(m->program);
    bool is_done = !done.why_not && done.layers == p->shape.layers && done.steps > 0;
    bool is_right = is_16_bit && !p->shape.is_fp8 ? is_done : done.why_not && done.steps == 0;
    check_that(c, is_right, "%s%s: %u layers in one launch, %llu times%s%s", p->shape.name, variant,
               done.layers, (unsigned long long)done.steps, done.why_not ? ": " : "",
               done.why_not ? done.why_not : "");
}

static void check_variant(struct checks *c, const struct plan *p, const char *variant,
                          const float *reference) {
    static struct shaped m;
    char device[256];
    uint32_t failed = c->failed;
    snprintf(device, sizeof(device), "%s%s", c->device, variant);
    bool is_open = open_at(p, device, &m);
    check_that(c, is_open, "%s cannot be run", device);
    for (int b = 0; is_open && b < BATCHES; b++)
        for (int i = 0; i < REPEATS && batches[b] <= p->seqs; i++) {
            run_others(&m, batches[b], p->past);
            shaped_set_step(&m, batches[b], 1, p->past);
            m.step->hands_over = true;
            bool has_run = shaped_run(&m, 1) > 0 || c->is_quick;
            uint32_t other = has_run ? differing(&m, reference, batches[b]) : batches[b];
            check_that(c, other == 0, "%s%s: %u of %u rows have other bits (time %d)",
                       p->shape.name, variant, other, batches[b], i + 1);
        }
    if (is_open) check_resident(c, p, variant, &m);
    printf("  %s %s%s\n", c->failed == failed ? "PASS" : "FAIL", p->shape.name, variant);
    fflush(stdout);
    if (is_open) shaped_close(&m);
}

/* A list with slashes between. */
static void check_variants(struct checks *c, const struct plan *p, const char *list,
                           const float *reference) {
    char variant[256];
    while (list) {
        size_t len = strcspn(list, "/");
        snprintf(variant, sizeof(variant), "%.*s", (int)len, list);
        check_variant(c, p, variant, reference);
        list = list[len] == '/' ? list + len + 1 : NULL;
    }
}

static void check_plan(struct checks *c, const struct plan *p) {
    static struct shaped m;
    if (!open_at(p, c->device, &m)) {
        check_that(c, false, "%s cannot be run", c->device);
        return;
    }
    shaped_set_step(&m, p->seqs, 1, p->past);
    m.step->hands_over = true;
    shaped_run(&m, 1);
    size_t floats = m.result.row_floats * p->seqs;
    float *reference = mem_alloc_array(floats, sizeof(float));
    CHECK(reference);
    memcpy(reference, m.result.rows, floats * sizeof(float));
    shaped_close(&m);
    check_variants(c, p, c->variants, reference);
    check_variants(c, p, p->beside, reference);
    mem_free(reference);
}

static const struct plan plans[] = {
    {{"wide", DTYPE_BF16, 2, 1024, 8, 2, 128, 3072, 4096, false},
     SEQS,
     PAST,
     KV_F16,
     ROPE_NEOX,
     NULL},
    {{"odd", DTYPE_F16, 2, 1600, 20, 5, 64, 1344, 4100, false},
     SEQS,
     PAST,
     KV_F16,
     ROPE_NEOX,
     NULL},
    {{"tall", DTYPE_BF16, 1, 1024, 8, 2, 128, 3072, 128256, false},
     TALL_SEQS,
     TALL_PAST,
     KV_F16,
     ROPE_NEOX,
     NULL},
    {{"turned", DTYPE_BF16, 1, 1024, 8, 2, 128, 3072, 4096, false},
     SEQS,
     PAST,
     KV_F8,
     ROPE_ADJACENT,
     NULL},
    {{"q8_0", DTYPE_Q8_0, 2, 1024, 8, 2, 128, 3072, 4096, false},
     SEQS,
     PAST,
     KV_F16,
     ROPE_NEOX,
     NULL},
    {{"q6_k", DTYPE_Q6_K, 1, 1024, 8, 2, 128, 2816, 4112, false},
     SEQS,
     PAST,
     KV_F16,
     ROPE_NEOX,
     NULL},
    {{"q4_0", DTYPE_Q4_0, 1, 1024, 8, 2, 128, 14336, 4096, false},
     SEQS,
     PAST,
     KV_F16,
     ROPE_NEOX,
     ",codes=bytes/,tiles=even"},
    {{"iq4_xs", DTYPE_IQ4_XS, 1, 1024, 8, 2, 128, 2816, 4112, false},
     SEQS,
     PAST,
     KV_F16,
     ROPE_NEOX,
     ",codes=bytes"},
    {{"fp8", DTYPE_BF16, 2, 1024, 8, 2, 128, 3072, 4096, true},
     SEQS,
     PAST,
     KV_F16,
     ROPE_NEOX,
     NULL},
};
static const struct plan quick[] = {
    {{"quick", DTYPE_BF16, 1, 576, 2, 1, 64, 128, 100, false},
     QUICK_SEQS,
     QUICK_PAST,
     KV_F16,
     ROPE_NEOX,
     NULL},
    {{"quick_turned", DTYPE_BF16, 1, 256, 2, 1, 128, 128, 100, false},
     QUICK_SEQS,
     QUICK_PAST,
     KV_F8,
     ROPE_ADJACENT,
     NULL},
    {{"quick_q", DTYPE_Q4_K, 1, 768, 4, 1, 64, 256, 100, false},
     QUICK_SEQS,
     QUICK_PAST,
     KV_F16,
     ROPE_NEOX,
     ",codes=bytes"},
    {{"quick_q4_0", DTYPE_Q4_0, 1, 768, 4, 1, 64, 288, 100, false},
     QUICK_SEQS,
     QUICK_PAST,
     KV_F16,
     ROPE_NEOX,
     ",codes=bytes/,tiles=even"},
    {{"quick_iq4", DTYPE_IQ4_NL, 1, 768, 4, 1, 64, 256, 100, false},
     QUICK_SEQS,
     QUICK_PAST,
     KV_F16,
     ROPE_NEOX,
     ",codes=bytes"},
    {{"quick_fp8", DTYPE_BF16, 1, 640, 2, 1, 64, 256, 100, true},
     QUICK_SEQS,
     QUICK_PAST,
     KV_F16,
     ROPE_NEOX,
     NULL},
};

void suite_steps(struct checks *c) {
    uint32_t passed = c->passed;
    uint32_t count =
        c->is_quick ? sizeof(quick) / sizeof(quick[0]) : sizeof(plans) / sizeof(plans[0]);
    for (uint32_t i = 0; i < count; i++) {
        const struct plan *p = c->is_quick ? &quick[i] : &plans[i];
        if (!c->shape || strcmp(c->shape, p->shape.name) == 0) check_plan(c, p);
    }
    check_figure(c, "identity", "passed", c->passed - passed);
    check_figure(c, "identity", "failed", c->suite_failed);
}
