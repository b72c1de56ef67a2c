/* Goal:   which options that are off make steps faster, told in one call on a card.
 * Method: all variants of the device are open beside each other, on models of a few layers, and
 *         their steps are timed in turns, so that what slows the card down for a while slows all of
 *         them. A time is the least of some rounds; the table has the others' gain over the first
 *         variant. Caches of fp8 shapes are fp8, too. --shape and --variants name others. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "shaped.h"

enum { VARIANTS_MAX = 6, STEPS_MAX = 7, ROUNDS = 5, PROMPT = 2048, BLOCKS = 4099, NAME_MAX = 64 };
enum { FEW_ROWS = 64, FEW_ROWS_STEPS = 20, MANY_ROWS_STEPS = 4 };

/* A step of so many sequences with so many rows each, from a position on; seqs 0 ends a list. */
struct timed_step {
    uint32_t seqs, rows, first;
};

struct plan {
    const char *shape, *variants; /* with a slash between */
    struct timed_step steps[STEPS_MAX];
};

struct variant {
    char name[NAME_MAX];
    struct shaped model;
    double least_us[STEPS_MAX];
};

/* ---- opening ---- */

static bool open_variant(const struct checks *c, const struct plan *p, const struct shape *s,
                         struct variant *v) {
    char device[256];
    uint32_t rows = 1, seqs = 1, tokens = 1;
    for (uint32_t i = 0; i < STEPS_MAX && p->steps[i].seqs > 0; i++) {
        const struct timed_step *t = &p->steps[i];
        if (t->seqs * t->rows > rows) rows = t->seqs * t->rows;
        if (t->seqs > seqs) seqs = t->seqs;
        if (t->first + t->rows > tokens) tokens = t->first + t->rows;
    }
    struct shaped_sizes sizes = {.rows = rows,
                                 .seqs = seqs,
                                 .tokens = tokens,
                                 .kv_tokens = (c->is_quick ? seqs * tokens / 64 + 1 : BLOCKS) * 64,
                                 .kv_type = s->is_fp8 ? KV_F8 : KV_F16};
    snprintf(device, sizeof(device), "%s%s", c->device, v->name);
    return shaped_open(&v->model, s, device, &sizes);
}

/* How many of the names in `list` there are; their models are open. */
static uint32_t open_all(struct checks *c, const struct plan *p, const struct shape *s,
                         const char *list, struct variant *out) {
    uint32_t count = 0;
    for (const char *at = list; at && count < VARIANTS_MAX;) {
        size_t len = strcspn(at, "/");
        snprintf(out[count].name, NAME_MAX, "%.*s", (int)len, at);
        bool is_open = open_variant(c, p, s, &out[count]);
        check_that(c, is_open, "%s%s cannot be run", p->shape, out[count].name);
        if (is_open) count++;
        at = at[len] == '/' ? at + len + 1 : NULL;
    }
    return count;
}

/* ---- measuring ---- */

static void time_step(struct variant *v, const struct timed_step *t, double *least_us,
                      uint32_t times) {
    shaped_set_step(&v->model, t->seqs, t->rows, t->first);
    shaped_run(&v->model, 2); /* a graph is recorded the second time */
    double us = shaped_run(&v->model, times);
    if (*least_us <= 0 || us < *least_us) *least_us = us;
}

static void time_all(struct variant *all, uint32_t count, const struct timed_step *t, uint32_t i,
                     bool is_quick) {
    uint32_t times = t->seqs * t->rows <= FEW_ROWS ? FEW_ROWS_STEPS : MANY_ROWS_STEPS;
    for (uint32_t round = 0; round < (is_quick ? 1 : ROUNDS); round++)
        for (uint32_t v = 0; v < count; v++)
            time_step(&all[v], t, &all[v].least_us[i], is_quick ? 1 : times);
}

static void tell(struct checks *c, const struct plan *p, const struct variant *all, uint32_t count,
                 uint32_t i) {
    const struct timed_step *t = &p->steps[i];
    char name[128];
    printf("  %-10s%4u x %-5u", p->shape, t->seqs, t->rows);
    for (uint32_t v = 0; v < count; v++) {
        double us = all[v].least_us[i], first = all[0].least_us[i];
        if (v == 0)
            printf(" %9.1f us", us);
        else
            printf(" %9.1f us %+5.1f %%", us, us > 0 ? 100 * (first / us - 1) : 0.0);
        snprintf(name, sizeof(name), "%.20s%.60s %ux%u", p->shape, all[v].name, t->seqs, t->rows);
        check_figure(c, "options_us", name, us);
    }
    printf("\n");
    fflush(stdout);
}

static void run_plan(struct checks *c, const struct plan *p) {
    static struct variant all[VARIANTS_MAX];
    const struct shape *s = shape_find(p->shape);
    check_that(c, s != NULL, "unknown shape \"%s\"", p->shape);
    if (!s) return;
    memset(all, 0, sizeof(all));
    uint32_t count = open_all(c, p, s, c->variants[0] ? c->variants : p->variants, all);
    printf("  %s:", p->shape);
    for (uint32_t v = 0; v < count; v++) printf("  %s", all[v].name[0] ? all[v].name : "usual");
    printf("\n");
    for (uint32_t i = 0; i < STEPS_MAX && p->steps[i].seqs > 0; i++) {
        time_all(all, count, &p->steps[i], i, c->is_quick);
        tell(c, p, all, count, i);
    }
    for (uint32_t v = 0; v < count; v++) shaped_close(&all[v].model);
}

/* ---- entry point ---- */

void suite_options(struct checks *c) {
    static const struct plan plans[] = {
        {"0.6B-bf16",
         "/,two=first/,two=always/,step=resident",
         {{1, 1, 512}, {2, 1, 512}, {4, 1, 512}}},
        {"2B-bf16",
         "/,step=resident",
         {{1, 1, 512}, {2, 1, 512}, {4, 1, 512}, {1, 1, 100}, {1, 1, 4000}}},
        {"2B-fp8",
         "/,acts=clusters/,e4m3=card/,dense=on/,acts=clusters,e4m3=card,dense=on",
         {{1, 1, 512},
          {4, 1, 512},
          {8, 1, 512},
          {32, 1, 512},
          {256, 1, 512},
          {1024, 1, 192},
          {1, PROMPT, 0}}},
    };
    static const struct plan quick[] = {
        {"tiny-fp8", "/,acts=clusters/,e4m3=card,dense=on", {{1, 1, 8}, {1, 9, 0}}},
    };
    uint32_t count =
        c->is_quick ? sizeof(quick) / sizeof(quick[0]) : sizeof(plans) / sizeof(plans[0]);
    const struct plan other = {
        c->shape,
        "",
        {{1, 1, 512}, {4, 1, 512}, {8, 1, 512}, {32, 1, 512}, {256, 1, 512}, {1, PROMPT, 0}}};
    bool is_planned = !c->shape;
    for (uint32_t i = 0; i < count; i++) {
        const struct plan *p = c->is_quick ? &quick[i] : &plans[i];
        bool is_this = c->shape && strcmp(c->shape, p->shape) == 0;
        if (!c->shape || is_this) run_plan(c, p);
        is_planned = is_planned || is_this;
    }
    if (!is_planned) run_plan(c, &other);
}
