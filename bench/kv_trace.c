/* bench/kv_trace.c - how well the KV cache uses its memory on public traces of real traffic.
 *
 * Usage: bench/kv_trace [data folder]      (else $JITNEY_TEST_DATA, else ../shared/data)
 *
 * 1. Waste: the arrivals and lengths of azure_conv.csv are served on a clock of fixed steps, one
 *    token per running sequence and step beside a budget of prompt tokens. After each step: token
 *    slots of held blocks, and how many of them hold a token.
 * 2. Hits: the prompts of mooncake_conversation.jsonl (512-token blocks, known by number) go
 *    through the prefix cache and through an ideal LRU over single blocks, at the same sizes.
 *    "one by one" ends each request before the next comes, which is what the LRU sees; "held"
 *    keeps each open for its output length in the trace's time, as a server does.
 *
 * Exits with 1 when a figure misses its limit, so that a test can run it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "kv/cache.h"

enum { PATH_BYTES = 4096, TRACE_BYTES_MAX = 64 << 20 };

static const double WASTE_MAX_PERCENT = 4.0, LRU_GAP_MAX_POINTS = 1.0;

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "kv_trace: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void *must_have(void *memory) {
    if (!memory) must(ST_NOMEM, &(struct err){"out of memory"});
    return memory;
}

/* The next line of `rest`, which moves past it; false at the end. */
static bool next_line(struct str *rest, struct str *line) {
    if (rest->len == 0) return false;
    const char *end = memchr(rest->ptr, '\n', rest->len);
    size_t len = end ? (size_t)(end - rest->ptr) : rest->len;
    *line = str_trim(str_take(*rest, len));
    *rest = str_skip(*rest, end ? len + 1 : len);
    return true;
}

/* ---- 1. waste ---- */

enum {
    STEP_US = 25000,
    STEP_PROMPT_TOKENS = 2048,
    AZURE_SEQS = 512,
    AZURE_TOKENS_MAX = 16384,
    AZURE_BLOCKS = 65536,
    BLOCK_TOKENS = 16,
};

struct azure_request {
    int64_t at_us;
    uint32_t prompt, output;
};

struct azure_seq {
    kv_seq kv;
    uint32_t computed, prompt, total;
};

struct azure {
    struct azure_request *requests;
    uint32_t count, next;
    struct kv_cache *kv;
    struct azure_seq running[AZURE_SEQS];
    uint32_t running_count, running_max;
    double used, held, share_sum; /* over steps */
    uint64_t steps, grown;
    int64_t spent_us;
};

/* "2023-11-16 18:15:46.6805900,374,44": the trace stays within a day. */
static bool parse_azure(struct str line, struct azure_request *out) {
    char text[128];
    unsigned hours, minutes;
    double seconds;
    snprintf(text, sizeof(text), "%.*s", STR_ARG(line));
    int n = sscanf(text, "%*d-%*d-%*d %u:%u:%lf,%u,%u", &hours, &minutes, &seconds, &out->prompt,
                   &out->output);
    if (n != 5) return false;
    out->at_us = (int64_t)((hours * 3600.0 + minutes * 60.0 + seconds) * 1e6);
    return true;
}

static void read_azure(struct azure *a, const char *path) {
    struct buf text;
    struct err err = {{0}};
    struct str line;
    buf_init(&text, TRACE_BYTES_MAX);
    must(file_read(path, &text, &err), &err);
    a->requests = must_have(mem_alloc_array(buf_str(&text).len / 8 + 1, sizeof(a->requests[0])));
    for (struct str rest = buf_str(&text); next_line(&rest, &line);)
        a->count += parse_azure(line, &a->requests[a->count]);
    buf_deinit(&text);
}

static void admit(struct azure *a, int64_t now_us) {
    while (a->next < a->count && a->requests[a->next].at_us <= now_us &&
           a->running_count < AZURE_SEQS) {
        const struct azure_request *r = &a->requests[a->next++];
        struct azure_seq *s = &a->running[a->running_count++];
        *s = (struct azure_seq){.prompt = r->prompt, .total = r->prompt + r->output};
        CHECK(s->total <= AZURE_TOKENS_MAX);
        CHECK(kv_seq_open(a->kv, (struct kv_salt){0, 0}, &s->kv) == ST_OK);
    }
    if (a->running_count > a->running_max) a->running_max = a->running_count;
}

/* Every decoding sequence takes one token, prompts share the budget in order of arrival. */
static void run_step(struct azure *a) {
    uint32_t budget = STEP_PROMPT_TOKENS;
    int64_t start = clock_now(&clock_real);
    for (uint32_t i = 0; i < a->running_count; i++) {
        struct azure_seq *s = &a->running[i];
        uint32_t tokens = 1;
        if (s->computed < s->prompt) {
            tokens = s->prompt - s->computed < budget ? s->prompt - s->computed : budget;
            budget -= tokens;
        }
        s->computed += tokens;
        CHECK(kv_seq_grow(a->kv, s->kv, s->computed, NULL) == ST_OK);
        kv_seq_commit(a->kv, s->kv, NULL, s->computed);
        a->grown++;
    }
    a->spent_us += clock_now(&clock_real) - start;
}

static void count_slots(struct azure *a) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < a->running_count; i++) used += a->running[i].computed;
    double held = (double)kv_cache_stats(a->kv).groups[0].held_count * BLOCK_TOKENS;
    if (held == 0) return;
    a->used += (double)used;
    a->held += held;
    a->share_sum += 1.0 - (double)used / held;
    a->steps++;
}

static void finish_done(struct azure *a) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->running_count; i++) {
        struct azure_seq *s = &a->running[i];
        if (s->computed >= s->total)
            kv_seq_close(a->kv, s->kv);
        else
            a->running[kept++] = *s;
    }
    a->running_count = kept;
}

static bool bench_waste(const char *path) {
    static struct azure a;
    struct err err = {{0}};
    const struct kv_cache_options options = {
        .block_tokens = BLOCK_TOKENS,
        .group_count = 1,
        .groups = {{.block_count = AZURE_BLOCKS}},
        .seq_max = AZURE_SEQS,
        .tokens_max = AZURE_TOKENS_MAX,
    };
    read_azure(&a, path);
    must(kv_cache_create(&a.kv, &options, &err), &err);
    CHECK(a.count > 0);
    for (int64_t now = a.requests[0].at_us; a.next < a.count || a.running_count > 0;
         now += STEP_US) {
        admit(&a, now);
        run_step(&a);
        count_slots(&a);
        finish_done(&a);
    }
    double by_step = 100.0 * a.share_sum / (double)a.steps, by_slot = 100.0 * (1 - a.used / a.held);
    printf("waste: %u requests, %llu steps of %d ms, at most %u at once, blocks of %d tokens\n",
           a.count, (unsigned long long)a.steps, STEP_US / 1000, a.running_max, BLOCK_TOKENS);
    printf("  slots held but unused: %.3f %% mean over steps, %.3f %% of all (limit %.0f %%)\n",
           by_step, by_slot, WASTE_MAX_PERCENT);
    printf("  grow and commit: %.0f ns a sequence and step\n",
           1000.0 * (double)a.spent_us / (double)a.grown);
    kv_cache_verify(a.kv);
    kv_cache_destroy(a.kv);
    mem_free(a.requests);
    return by_step < WASTE_MAX_PERCENT;
}

/* ---- 2. hits ---- */

enum {
    MOON_BLOCK = 512,
    MOON_TOKENS_MAX = 1 << 18,
    MOON_SEQS = 1024,
    TOKEN_US = 30000, /* how long a request of the trace stays for each of its output tokens */
};

struct moon_request {
    int64_t at_us, end_us;
    uint32_t prompt, total; /* tokens */
    uint32_t *ids;          /* of the full blocks of all tokens; output has numbers of its own */
    uint32_t id_count;
};

struct moon {
    struct moon_request *requests;
    uint32_t count, id_max;
};

static void read_moon_line(struct moon *m, struct str line) {
    struct err err = {{0}};
    struct json *doc = NULL;
    must(json_parse(line, &json_limits_request, &doc, &err), &err);
    struct moon_request *r = &m->requests[m->count++];
    const struct json *ids = json_get(doc, "hash_ids");
    int64_t output = json_int(json_get(doc, "output_length"), 0);
    r->at_us = 1000 * json_int(json_get(doc, "timestamp"), 0);
    r->end_us = r->at_us + output * TOKEN_US;
    r->prompt = (uint32_t)json_int(json_get(doc, "input_length"), 0);
    r->total = r->prompt + (uint32_t)output;
    r->id_count = r->total / MOON_BLOCK;
    CHECK(r->total > 0 && r->total <= MOON_TOKENS_MAX);
    CHECK(r->prompt / MOON_BLOCK <= json_count(ids));
    r->ids = must_have(mem_alloc_array((size_t)r->id_count + 1, sizeof(r->ids[0])));
    for (uint32_t i = 0; i < r->prompt / MOON_BLOCK; i++) {
        r->ids[i] = (uint32_t)json_int(json_at(ids, i), 0);
        if (r->ids[i] >= m->id_max) m->id_max = r->ids[i] + 1;
    }
    json_destroy(doc);
}

static void read_moon(struct moon *m, const char *path) {
    struct buf text;
    struct err err = {{0}};
    struct str line;
    buf_init(&text, TRACE_BYTES_MAX);
    must(file_read(path, &text, &err), &err);
    m->requests = must_have(mem_zalloc_array(buf_str(&text).len / 32 + 1, sizeof(*m->requests)));
    for (struct str rest = buf_str(&text); next_line(&rest, &line);)
        if (line.len > 0) read_moon_line(m, line);
    buf_deinit(&text);
    for (uint32_t r = 0; r < m->count; r++) /* blocks with output in them are not shared */
        for (uint32_t i = m->requests[r].prompt / MOON_BLOCK; i < m->requests[r].id_count; i++)
            m->requests[r].ids[i] = m->id_max++;
}

/* Blocks that a hit may reach: full ones before the last token. */
static uint32_t hit_limit(const struct moon_request *r) { return (r->prompt - 1) / MOON_BLOCK; }

/* The ideal: every block by itself in one list, the latest touched first. id_max heads it. */
struct lru {
    uint32_t *next, *prev;
    bool *there;
    uint32_t head, count, capacity;
};

static void lru_unlink(struct lru *l, uint32_t id) {
    l->next[l->prev[id]] = l->next[id];
    l->prev[l->next[id]] = l->prev[id];
}

static void lru_touch(struct lru *l, uint32_t id) {
    if (l->there[id]) {
        lru_unlink(l, id);
    } else if (l->count == l->capacity) {
        uint32_t oldest = l->prev[l->head];
        lru_unlink(l, oldest);
        l->there[oldest] = false;
    } else {
        l->count++;
    }
    l->there[id] = true;
    l->next[id] = l->next[l->head];
    l->prev[id] = l->head;
    l->prev[l->next[l->head]] = id;
    l->next[l->head] = id;
}

static double ideal_percent(const struct moon *m, uint32_t capacity) {
    struct lru l = {.head = m->id_max, .capacity = capacity};
    l.next = must_have(mem_alloc_array((size_t)m->id_max + 1, sizeof(l.next[0])));
    l.prev = must_have(mem_alloc_array((size_t)m->id_max + 1, sizeof(l.prev[0])));
    l.there = must_have(mem_zalloc_array((size_t)m->id_max + 1, sizeof(l.there[0])));
    l.next[l.head] = l.prev[l.head] = l.head;
    uint64_t hit_tokens = 0, tokens = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        const struct moon_request *r = &m->requests[i];
        uint32_t hit = 0;
        while (hit < hit_limit(r) && l.there[r->ids[hit]]) hit++;
        hit_tokens += (uint64_t)hit * MOON_BLOCK;
        tokens += r->prompt;
        for (uint32_t k = r->id_count; k > 0; k--) lru_touch(&l, r->ids[k - 1]);
    }
    mem_free(l.next);
    mem_free(l.prev);
    mem_free(l.there);
    return 100.0 * (double)hit_tokens / (double)tokens;
}

struct moon_run {
    struct kv_cache *kv;
    int32_t *text;
    kv_seq open[MOON_SEQS];
    int64_t end_us[MOON_SEQS];
    uint32_t open_count;
};

static void close_at(struct moon_run *run, uint32_t i) {
    kv_seq_close(run->kv, run->open[i]);
    run->open_count--;
    run->open[i] = run->open[run->open_count];
    run->end_us[i] = run->end_us[run->open_count];
}

/* The one that ends first; false if it ends after `now_us`, or there is none. */
static bool close_first(struct moon_run *run, int64_t now_us) {
    if (run->open_count == 0) return false;
    uint32_t first = 0;
    for (uint32_t i = 1; i < run->open_count; i++)
        if (run->end_us[i] < run->end_us[first]) first = i;
    if (run->end_us[first] > now_us) return false;
    close_at(run, first);
    return true;
}

static void serve(struct moon_run *run, const struct moon_request *r) {
    for (uint32_t i = 0; i < r->total; i++) /* a block's number is its text */
        run->text[i] = i / MOON_BLOCK < r->id_count ? (int32_t)r->ids[i / MOON_BLOCK] : (int32_t)i;
    if (run->open_count == MOON_SEQS) close_first(run, INT64_MAX);
    kv_seq s;
    CHECK(kv_seq_open(run->kv, (struct kv_salt){0, 0}, &s) == ST_OK);
    kv_seq_attach(run->kv, s, run->text, r->prompt);
    while (kv_seq_grow(run->kv, s, r->total, NULL) != ST_OK) CHECK(close_first(run, INT64_MAX));
    kv_seq_commit(run->kv, s, run->text, r->total);
    run->open[run->open_count] = s;
    run->end_us[run->open_count++] = r->end_us;
}

static double cache_percent(const struct moon *m, uint32_t capacity, bool held) {
    static struct moon_run run;
    struct err err = {{0}};
    const struct kv_cache_options options = {
        .block_tokens = MOON_BLOCK,
        .group_count = 1,
        .groups = {{.block_count = capacity}},
        .seq_max = MOON_SEQS,
        .tokens_max = MOON_TOKENS_MAX,
        .prefix_cache = true,
    };
    run = (struct moon_run){.text = must_have(mem_alloc_array(MOON_TOKENS_MAX, sizeof(int32_t)))};
    must(kv_cache_create(&run.kv, &options, &err), &err);
    for (uint32_t i = 0; i < m->count; i++) {
        while (close_first(&run, held ? m->requests[i].at_us : INT64_MAX)) continue;
        serve(&run, &m->requests[i]);
    }
    struct kv_cache_stats n = kv_cache_stats(run.kv);
    kv_cache_verify(run.kv);
    kv_cache_destroy(run.kv);
    mem_free(run.text);
    return 100.0 * (double)n.hit_tokens / (double)n.lookup_tokens;
}

static bool bench_hits(const char *path) {
    static const uint32_t capacities[] = {1000, 3000, 10000, 30000, 100000, 250000};
    static struct moon m;
    bool good = true;
    read_moon(&m, path);
    printf("hits: %u prompts in blocks of %d tokens, %% of prompt tokens (limit: %.0f point from "
           "the ideal)\n",
           m.count, MOON_BLOCK, LRU_GAP_MAX_POINTS);
    printf("  %8s %10s %12s %10s\n", "blocks", "ideal LRU", "one by one", "held");
    for (size_t i = 0; i < sizeof(capacities) / sizeof(capacities[0]); i++) {
        double ideal = ideal_percent(&m, capacities[i]);
        double single = cache_percent(&m, capacities[i], false);
        double held = cache_percent(&m, capacities[i], true);
        printf("  %8u %10.2f %12.2f %10.2f\n", capacities[i], ideal, single, held);
        good &= ideal - single <= LRU_GAP_MAX_POINTS && ideal - held <= LRU_GAP_MAX_POINTS;
    }
    for (uint32_t i = 0; i < m.count; i++) mem_free(m.requests[i].ids);
    mem_free(m.requests);
    return good;
}

int main(int argc, char **argv) {
    const char *data = argc > 1 ? argv[1] : getenv("JITNEY_TEST_DATA");
    char azure[PATH_BYTES], moon[PATH_BYTES];
    if (!data || !data[0]) data = "../shared/data";
    bool fit = path_join(azure, sizeof(azure), data, "traces/azure_conv.csv") &&
               path_join(moon, sizeof(moon), data, "traces/mooncake_conversation.jsonl");
    if (!fit || !file_exists(azure) || !file_exists(moon)) {
        printf("skipped: no traces under %s\n", data);
        return EXIT_SUCCESS;
    }
    bool good = bench_waste(azure);
    good &= bench_hits(moon);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
