/* Goal:   layers in one launch (step=resident) give the bits of the kernels that they replace.
 * Method: small models whose sides fit no share, slot or window evenly, with and without norms of
 *         heads and biases, over caches of f16 and fp8, run on the usual device and on one with
 *         that option. Prompts of several lengths fill the cache; then 1 to 4 sequences decode some
 *         tokens, in the end with a row that is skipped. All logits are compared. On a card the
 *         steps are repeated, and shapes are those of real models, with fewer layers. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "check.h"
#include "kernels/cuda_load.h"
#include "shaped.h"

enum { SEQS = 4, STEPS = 3, REPEATS = 20 };
static const char option[] = ",step=resident";

struct plan {
    struct shape shape;
    uint32_t seqs, past; /* tokens of the longest sequence; each further one has `apart` fewer */
    uint32_t apart;
    enum kv_type kv_type;
    enum rope_style style;
    bool is_rich;
};

static bool open_at(struct checks *c, const struct plan *p, const char *more, struct shaped *m) {
    struct shaped_sizes sizes = {.rows = p->past > SEQS ? p->past : SEQS,
                                 .seqs = SEQS,
                                 .tokens = p->past + 64,
                                 .kv_tokens = SEQS * (p->past + 64 + 63) / 64 * 64,
                                 .kv_type = p->kv_type,
                                 .style = p->style,
                                 .is_rich = p->is_rich};
    char device[256];
    snprintf(device, sizeof(device), "%s%s", c->device, more);
    bool is_open = shaped_open(m, &p->shape, device, &sizes);
    check_that(c, is_open, "%s cannot be run", device);
    return is_open;
}

static uint32_t past_of(const struct plan *p, uint32_t seq) { return p->past - seq * p->apart; }

/* Sequence `seq` of one step that has only its rows, where it stands among all. */
static void place_seq(struct shaped *m, uint32_t seq, uint32_t row) {
    for (uint32_t k = 0; k < m->step->sizes.blocks_max; k++)
        step_blocks(m->step, row, 0)[k] = (seq * m->step->sizes.blocks_max + k) % m->kv.block_count;
}

static bool run_prompts(struct shaped *m, const struct plan *p) {
    for (uint32_t s = 0; s < p->seqs; s++) {
        struct err err = {{0}};
        shaped_set_step(m, 1, past_of(p, s), 0);
        place_seq(m, s, 0);
        for (uint32_t r = 0; r < m->step->row_count; r++)
            m->step->token[r] = (int32_t)((r * 31 + s * 7) % p->shape.vocab);
        if (m->dev.submit(m->dev.self, m->program, m->step, &err) != ST_OK) return false;
        if (m->dev.collect(m->dev.self, m->program, &m->result, &err) != ST_OK) return false;
    }
    return true;
}

/* A step of so many sequences; `skipped`: the row that is marked -1. */
static bool run_step(struct shaped *m, const struct plan *p, uint32_t seqs, uint32_t number,
                     uint32_t skipped) {
    struct err err = {{0}};
    shaped_set_step(m, seqs, 1, 0);
    m->step->hands_over = true;
    for (uint32_t r = 0; r < seqs; r++) {
        m->step->pos[r] = r == skipped ? -1 : (int32_t)(past_of(p, r) + number);
        m->step->token[r] = (int32_t)((number * 131 + r * 17) % p->shape.vocab);
    }
    return m->dev.submit(m->dev.self, m->program, m->step, &err) == ST_OK &&
           m->dev.collect(m->dev.self, m->program, &m->result, &err) == ST_OK;
}

static void compare(struct checks *c, const struct plan *p, const struct shaped *a,
                    const struct shaped *b, uint32_t seqs, uint32_t skipped, const char *when) {
    size_t row = a->result.row_floats, bytes = p->shape.vocab * sizeof(float);
    for (uint32_t r = 0; r < seqs; r++) {
        const float *one = a->result.rows + r * row, *other = b->result.rows + r * row;
        if (r == skipped) continue;
        check_that(c, memcmp(one, other, bytes) == 0, "%s, %s: row %u of %u has other bits",
                   p->shape.name, when, r, seqs);
    }
}

static void check_steps(struct checks *c, const struct plan *p, struct shaped *usual,
                        struct shaped *resident) {
    uint32_t repeats = c->is_quick ? 1 : REPEATS, number = 0;
    bool is_fine = run_prompts(usual, p) && run_prompts(resident, p);
    for (uint32_t i = 0; is_fine && i < STEPS * repeats; i++) {
        uint32_t seqs = p->seqs - i % p->seqs, skipped = i % STEPS == 2 && seqs > 1 ? 0 : SEQS;
        is_fine = run_step(usual, p, seqs, number, skipped) &&
                  run_step(resident, p, seqs, number, skipped);
        if (is_fine) compare(c, p, usual, resident, seqs, skipped, i % 2 ? "later" : "at first");
        number = (number + 1) % (STEPS * 8);
    }
    check_that(c, is_fine, "%s: a step failed", p->shape.name);
    struct cuda_library_resident done = cuda_program_resident(resident->program);
    if (done.is_off) printf("  %s\n", done.why_not); /* the card cannot do it */
    if (done.is_off) return;
    check_that(
        c,
        !done.why_not && done.layers == p->shape.layers && done.steps >= (c->is_quick ? STEPS : 1),
        "%s: %u layers in one launch, %llu times%s%s", p->shape.name, done.layers,
        (unsigned long long)done.steps, done.why_not ? ": " : "", done.why_not ? done.why_not : "");
}

static void check_plan(struct checks *c, const struct plan *p) {
    static struct shaped usual, resident;
    uint32_t failed = c->failed;
    if (open_at(c, p, "", &usual)) {
        if (open_at(c, p, option, &resident)) {
            check_steps(c, p, &usual, &resident);
            shaped_close(&resident);
        }
        shaped_close(&usual);
    }
    printf("  %s %s\n", c->failed == failed ? "PASS" : "FAIL", p->shape.name);
    fflush(stdout);
}

static const struct plan plans[] = {
    {{"8B", DTYPE_BF16, 3, 4096, 32, 8, 128, 14336, 4096, false},
     4,
     1500,
     333,
     KV_F16,
     ROPE_ADJACENT,
     false},
    {{"0.6B", DTYPE_BF16, 5, 1024, 16, 8, 128, 3072, 4096, false},
     4,
     700,
     149,
     KV_F16,
     ROPE_NEOX,
     true},
    {{"f8", DTYPE_BF16, 4, 2048, 16, 4, 128, 5632, 4096, false},
     3,
     3000,
     800,
     KV_F8,
     ROPE_NEOX,
     true},
    {{"odd", DTYPE_F16, 4, 1600, 20, 5, 64, 1352, 4100, false},
     4,
     600,
     190,
     KV_F16,
     ROPE_NEOX,
     true},
};
static const struct plan quick[] = {
    {{"even", DTYPE_BF16, 3, 256, 4, 2, 64, 320, 100, false}, 4, 290, 90, KV_F16, ROPE_NEOX, true},
    {{"odd", DTYPE_F16, 2, 648, 3, 1, 128, 1352, 100, false},
     2,
     70,
     66,
     KV_F16,
     ROPE_ADJACENT,
     true},
    {{"f8", DTYPE_BF16, 2, 384, 4, 2, 128, 200, 100, false},
     3,
     270,
     131,
     KV_F8,
     ROPE_ADJACENT,
     false},
    {{"f8_64", DTYPE_BF16, 2, 136, 2, 2, 64, 72, 100, false}, 1, 100, 0, KV_F8, ROPE_NEOX, true},
    {{"windows", DTYPE_BF16, 1, 128, 2, 1, 64, 5208, 100, false},
     4,
     9,
     2,
     KV_F16,
     ROPE_NEOX,
     false},
    {{"long", DTYPE_BF16, 2, 128, 2, 1, 128, 128, 100, false},
     2,
     1400,
     900,
     KV_F16,
     ROPE_NEOX,
     false},
};

void suite_resident(struct checks *c) {
    uint32_t count =
        c->is_quick ? sizeof(quick) / sizeof(quick[0]) : sizeof(plans) / sizeof(plans[0]);
    for (uint32_t i = 0; i < count; i++) {
        const struct plan *p = c->is_quick ? &quick[i] : &plans[i];
        if (!c->shape || strcmp(c->shape, p->shape.name) == 0) check_plan(c, p);
    }
}
