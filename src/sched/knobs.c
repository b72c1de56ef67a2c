/* sched/knobs.c - see sched/knobs.h. To add a knob: a field there, a row and a default here. */
#include "sched/knobs.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/pool.h"
#include "sched/drafts.h"

enum kind { KIND_COUNT, KIND_REAL, KIND_SWITCH, KIND_KV_TYPE, KIND_PREEMPT };

struct row {
    const char *name;
    enum kind kind;
    size_t offset;
    double min, max;
    const char *unit, *policy, *help;
};

#define AT(field) offsetof(struct knobs, field)

static const struct row rows[] = {
    {"kv_blocks", KIND_COUNT, AT(kv_blocks), 0, 16777216, "blocks", NULL,
     "KV blocks in the pool; 0: as many as the memory limit of the engine allows"},
    {"block_size", KIND_COUNT, AT(block_size), 1, 1024, "tokens", NULL,
     "tokens in a KV block; some devices need a multiple of 16"},
    {"max_seqs", KIND_COUNT, AT(max_seqs), 1, 4096, "sequences", NULL,
     "maximum number of running sequences (the size of the batch)"},
    {"max_step_tokens", KIND_COUNT, AT(max_step_tokens), 1, 65536, "tokens", NULL,
     "maximum number of tokens computed in one step"},
    {"step_target_ms", KIND_REAL, AT(step_target_ms), 0, 60000, "ms", NULL,
     "target time of a step: prefill gets the time that decoding leaves; 0: no target"},
    {"chunk_tokens", KIND_COUNT, AT(chunk_tokens), 0, 65536, "tokens", NULL,
     "maximum number of tokens of one prompt in a step; 0: no separate limit"},
    {"prefix_cache", KIND_SWITCH, AT(prefix_cache), 0, 1, "", NULL,
     "keep computed KV blocks and reuse them for prompts with the same prefix"},
    {"prefix_blocks", KIND_COUNT, AT(prefix_blocks), 0, 16777216, "blocks", NULL,
     "KV blocks that cached prefixes may fill before the least recently used are evicted; running "
     "sequences may use the whole pool; 0: a quarter of the pool, at least one context, or the "
     "whole pool if its size was set"},
    {"kv_type", KIND_KV_TYPE, AT(kv_type), 0, 4, "", NULL, "number format of keys and values"},
    {"preempt", KIND_PREEMPT, AT(preempt), 0, 2, "", NULL,
     "how the KV blocks of a preempted sequence are restored; auto: the cheaper way"},
    {"preempt_max", KIND_COUNT, AT(preempt_max), 0, 1000, "times", NULL,
     "how often one sequence may be preempted; after that only the oldest sequence can preempt it"},
    {"spill_blocks", KIND_COUNT, AT(spill_blocks), 0, 16777216, "blocks", NULL,
     "KV blocks that fit in the spill store; 0: no swapping"},
    {"watermark", KIND_REAL, AT(watermark), 0, 0.5, "share", NULL,
     "share of the KV blocks that must stay free when a sequence is admitted"},
    {"tenant_reserve", KIND_REAL, AT(tenant_reserve), 0, 0.5, "share", NULL,
     "share of the batch slots and of the KV blocks that a tenant above its share leaves to other "
     "tenants, if the server has several; 0: none"},
    {"queue_max", KIND_COUNT, AT(queue_max), 1, 1048576, "sequences", NULL,
     "sequences that may wait beside max_seqs that run; a request over max_seqs + queue_max is "
     "refused"},
    {"batch_slowdown", KIND_REAL, AT(batch_slowdown), 0, 10, "share", NULL,
     "share by which batch lines may lengthen steps of fast requests, and 0.1 more; steps of the "
     "slowest 0.1 at most; 0: lines run only in steps without other requests"},
    {"draft_max", KIND_COUNT, AT(draft_max), 0, DRAFT_MAX, "tokens", NULL,
     "most draft tokens of one sequence in a step, if speculation is on; 0: none"},
    {"threads", KIND_COUNT, AT(threads), 0, POOL_THREADS_MAX, "threads", NULL,
     "compute threads; 0: one for each processor that the process may use, minus one on 8 "
     "processors or more"},
    {"static_wait_ms", KIND_REAL, AT(static_wait_ms), 0, 600000, "ms", "static",
     "waiting time of the oldest request after which a batch starts that is not full"},
    {"dynamic_batch", KIND_COUNT, AT(dynamic_batch), 1, 4096, "sequences", "dynamic",
     "number of waiting sequences that starts a batch"},
    {"dynamic_window_ms", KIND_REAL, AT(dynamic_window_ms), 0, 600000, "ms", "dynamic",
     "waiting time of a sequence that starts a batch that is not full"},
    {"waiting_served_ratio", KIND_REAL, AT(waiting_served_ratio), 0, 1000, "ratio", "prefill-first",
     "prefill starts when waiting / running reaches this ratio"},
    {"max_waiting_tokens", KIND_COUNT, AT(max_waiting_tokens), 1, 1000000, "steps", "prefill-first",
     "number of decode steps after which prefill starts at any ratio"},
    {"prefill_every", KIND_COUNT, AT(prefill_every), 1, 1000000, "steps", "prefill-first",
     "number of steps between two checks of the ratio"},
    {"mlfq_levels", KIND_COUNT, AT(mlfq_levels), 1, 16, "queues", "mlfq", "number of queues"},
    {"mlfq_quantum_ms", KIND_REAL, AT(mlfq_quantum_ms), 0.001, 600000, "ms", "mlfq",
     "compute time in the first queue before a sequence moves down; doubles with each queue"},
    {"mlfq_starve_ms", KIND_REAL, AT(mlfq_starve_ms), 1, 3600000, "ms", "mlfq",
     "waiting time after which a sequence moves to the first queue"},
    {"sjf_margin", KIND_REAL, AT(sjf_margin), 0, 100, "share", "sjf",
     "share by which an answer may exceed its predicted length; then it is predicted again and may "
     "be preempted"},
    {"sjf_patience", KIND_REAL, AT(sjf_patience), 0, 1000000, "ratio", "sjf",
     "work of shorter requests that may go before a longer one, as a multiple of its own; 0: first "
     "come, first served"},
    {"deadline_shed", KIND_REAL, AT(deadline_shed), 0, 100, "share", "deadline",
     "a request that is late by more than this share of its target is ended; 0: it is delayed"},
    {"fair_output_weight", KIND_REAL, AT(fair_output_weight), 0, 100, "ratio", "fair",
     "cost of an output token, in input tokens"},
};
enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

/* Names of the values of KIND_SWITCH, KIND_KV_TYPE and KIND_PREEMPT, by number. */
static const char *const switch_words[] = {"off", "on", NULL};
static const char *const kv_type_words[] = {"f16", "f32", "int8", "fp8", "int4", NULL};
static const char *const preempt_words[] = {"swap", "recompute", "auto", NULL};

static const char *const *words_of(enum kind kind) {
    switch (kind) {
    case KIND_SWITCH:
        return switch_words;
    case KIND_KV_TYPE:
        return kv_type_words;
    case KIND_PREEMPT:
        return preempt_words;
    default:
        return NULL;
    }
}

struct knobs knobs_default(void) {
    return (struct knobs){
        .block_size = 16,
        .max_seqs = 64,
        .max_step_tokens = 512,
        .prefix_cache = true,
        .preempt = PREEMPT_AUTO,
        .preempt_max = 3,
        .spill_blocks = 256,
        .watermark = 0.01,
        .tenant_reserve = 0.125,
        .queue_max = 1024,
        .batch_slowdown = 0.15,
        .draft_max = 12,
        .static_wait_ms = 100,
        .dynamic_batch = 8,
        .dynamic_window_ms = 20,
        .waiting_served_ratio = 0.3,
        .max_waiting_tokens = 20,
        .prefill_every = 1,
        .mlfq_levels = 6,
        .mlfq_quantum_ms = 10,
        .mlfq_starve_ms = 3000,
        .sjf_margin = 0.5,
        .sjf_patience = 50,
        .deadline_shed = 0.5,
        .fair_output_weight = 2,
    };
}

static double get(const struct knobs *k, const struct row *r) {
    const char *at = (const char *)k + r->offset;
    double real;
    uint32_t count;
    enum preempt_mode mode;
    bool on;
    switch (r->kind) {
    case KIND_REAL:
        return memcpy(&real, at, sizeof(real)), real;
    case KIND_SWITCH:
        return memcpy(&on, at, sizeof(on)), on;
    case KIND_PREEMPT:
        return memcpy(&mode, at, sizeof(mode)), mode;
    default:
        return memcpy(&count, at, sizeof(count)), count;
    }
}

static void put(struct knobs *k, const struct row *r, double value) {
    char *at = (char *)k + r->offset;
    uint32_t count = (uint32_t)value;
    enum preempt_mode mode = (enum preempt_mode)count;
    bool on = count != 0;
    switch (r->kind) {
    case KIND_REAL:
        memcpy(at, &value, sizeof(value));
        break;
    case KIND_SWITCH:
        memcpy(at, &on, sizeof(on));
        break;
    case KIND_PREEMPT:
        memcpy(at, &mode, sizeof(mode));
        break;
    default:
        memcpy(at, &count, sizeof(count));
    }
}

static void show_range(const struct row *r, char *out, size_t size) {
    const char *const *words = words_of(r->kind);
    if (!words) {
        snprintf(out, size, "%.15g to %.15g", r->min, r->max);
        return;
    }
    size_t used = 0;
    out[0] = 0;
    for (; *words && used < size; words++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "|" : "", *words);
}

static void show_value(const struct row *r, double value, char *out, size_t size) {
    const char *const *words = words_of(r->kind);
    if (words)
        snprintf(out, size, "%s", words[(uint32_t)value]);
    else
        snprintf(out, size, "%.15g", value);
}

/* Switches also accept true, yes, 1 and false, no, 0. */
static bool parse_word(const struct row *r, struct str value, double *out) {
    const char *const *words = words_of(r->kind);
    for (uint32_t i = 0; words[i]; i++)
        if (str_is(value, words[i])) return *out = i, true;
    if (r->kind != KIND_SWITCH) return false;
    bool on = str_is(value, "true") || str_is(value, "yes") || str_is(value, "1");
    bool off = str_is(value, "false") || str_is(value, "no") || str_is(value, "0");
    *out = on;
    return on || off;
}

static bool parse_number(const struct row *r, struct str value, double *out) {
    uint64_t count;
    if (r->kind == KIND_REAL) return str_to_f64(value, out) && isfinite(*out);
    if (!str_to_u64(value, &count)) return false;
    *out = (double)count;
    return true;
}

static const struct row *nearest(struct str name) {
    const struct row *best = &rows[0];
    uint32_t best_distance = UINT32_MAX;
    for (uint32_t i = 0; i < ROW_COUNT; i++) {
        uint32_t d = str_distance(name, str_of(rows[i].name));
        if (d < best_distance) {
            best_distance = d;
            best = &rows[i];
        }
    }
    return best;
}

enum status knobs_set(struct knobs *k, struct str name, struct str value, struct err *err) {
    const struct row *r = nearest(name);
    if (!str_is(name, r->name))
        return err_set(err, ST_BAD,
                       "unknown knob '%.*s'; did you mean '%s'? (\"jitney knobs\" lists all)",
                       STR_ARG(name), r->name);
    char range[64];
    show_range(r, range, sizeof(range));
    if (words_of(r->kind)) {
        double word;
        if (!parse_word(r, value, &word))
            return err_set(err, ST_BAD, "knob %s: '%.*s' is not one of %s", r->name, STR_ARG(value),
                           range);
        put(k, r, word);
        return ST_OK;
    }
    double number;
    if (!parse_number(r, value, &number))
        return err_set(err, ST_BAD, "knob %s: '%.*s' is not a%s number (%s)", r->name,
                       STR_ARG(value), r->kind == KIND_COUNT ? " whole" : "", range);
    if (number < r->min || number > r->max)
        return err_set(err, ST_BAD, "knob %s: %.*s is out of range, expected %s", r->name,
                       STR_ARG(value), range);
    put(k, r, number);
    return ST_OK;
}

enum status knobs_set_pair(struct knobs *k, struct str pair, struct err *err) {
    const char *equals = pair.len ? memchr(pair.ptr, '=', pair.len) : NULL;
    if (!equals) return err_set(err, ST_BAD, "'%.*s' is not of the form NAME=VALUE", STR_ARG(pair));
    size_t name_len = (size_t)(equals - pair.ptr);
    return knobs_set(k, str_take(pair, name_len), str_skip(pair, name_len + 1), err);
}

/* Those that decide how much memory an engine, its KV cache and its device set aside. */
static const char *const fixed[] = {"kv_blocks",    "block_size",    "max_seqs", "prefix_cache",
                                    "spill_blocks", "prefix_blocks", "kv_type",  "threads"};
/* Those for which that memory is a maximum. */
static const char *const capped[] = {"max_step_tokens", "queue_max"};

bool knobs_is_live(uint32_t i) {
    CHECK(i < ROW_COUNT);
    for (size_t n = 0; n < sizeof(fixed) / sizeof(fixed[0]); n++)
        if (strcmp(rows[i].name, fixed[n]) == 0) return false;
    return true;
}

enum status knobs_check_caps(const struct knobs *start, const struct knobs *next, struct err *err) {
    for (uint32_t i = 0; i < ROW_COUNT; i++)
        for (size_t n = 0; n < sizeof(capped) / sizeof(capped[0]); n++)
            if (strcmp(rows[i].name, capped[n]) == 0 && get(next, &rows[i]) > get(start, &rows[i]))
                return err_set(err, ST_BAD,
                               "knob %s: %.0f is more than at the start (%.0f), for which memory "
                               "was set aside; give less, or restart the server with --set",
                               rows[i].name, get(next, &rows[i]), get(start, &rows[i]));
    return ST_OK;
}

uint32_t knobs_count(void) { return ROW_COUNT; }

void knobs_show(const struct knobs *k, uint32_t i, struct knob_row *out) {
    CHECK(i < ROW_COUNT);
    const struct row *r = &rows[i];
    const struct knobs fallback = knobs_default();
    *out =
        (struct knob_row){.name = r->name, .policy = r->policy, .unit = r->unit, .help = r->help};
    show_value(r, get(k, r), out->value, sizeof(out->value));
    show_value(r, get(&fallback, r), out->fallback, sizeof(out->fallback));
    show_range(r, out->range, sizeof(out->range));
}
