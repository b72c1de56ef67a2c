/* sim/replay_list.c - results and summary; see sim/replay_list.h for the contract. */
#include "sim/replay_list.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/request.h"

enum status replay_init(struct replay *r, const struct request_list *list, struct err *err) {
    *r = (struct replay){.list = list, .choice_count = request_list_choices(list)};
    r->results = mem_zalloc_array(r->choice_count + 1, sizeof(r->results[0]));
    r->first = mem_zalloc_array(list->count + 1, sizeof(r->first[0]));
    if (!r->results || !r->first) {
        replay_deinit(r);
        return err_set(err, ST_NOMEM, "out of memory for %u results", r->choice_count);
    }
    for (uint32_t i = 0; i < list->count; i++) r->first[i + 1] = r->first[i] + list->items[i].n;
    return ST_OK;
}

void replay_deinit(struct replay *r) {
    for (uint32_t i = 0; r->results && i < r->choice_count; i++) {
        mem_free(r->results[i].tokens);
        mem_free(r->results[i].logprobs);
        mem_free(r->results[i].refusal);
    }
    mem_free(r->results);
    mem_free(r->first);
    *r = (struct replay){.list = NULL};
}

static enum status keep_reason(struct choice_result *out, const char *why) {
    if (!why[0]) return ST_OK;
    out->refusal = mem_dup(why, strlen(why));
    return out->refusal ? ST_OK : ST_NOMEM;
}

/* An engine on the real clock may be some tokens past the end that the list asks for. */
static uint32_t answer_tokens(const struct replay *r, uint32_t request, const struct choice *c,
                              uint32_t ready) {
    const uint32_t *stops = r->list->items[request].stops;
    uint32_t tokens = ready - c->prompt_tokens;
    return stops && stops[c->index] > 0 && tokens > stops[c->index] ? stops[c->index] : tokens;
}

static enum status keep_answer(struct choice_result *out, const struct choice *c) {
    if (out->answer_tokens == 0) return ST_OK;
    out->tokens = mem_alloc_array(out->answer_tokens, sizeof(out->tokens[0]));
    out->logprobs = mem_alloc_array(out->answer_tokens, sizeof(out->logprobs[0]));
    if (!out->tokens || !out->logprobs) return ST_NOMEM;
    for (uint32_t i = 0; i < out->answer_tokens; i++) {
        out->tokens[i] = c->tokens[c->prompt_tokens + i];
        out->logprobs[i] = c->logprobs ? c->logprobs[i].logprob : 0;
    }
    return ST_OK;
}

enum status replay_take(struct replay *r, uint32_t request, const struct choice *c,
                        int64_t began_us) {
    CHECK(request < r->list->count);
    struct choice_result *out = &r->results[r->first[request] + c->index];
    CHECK(!out->is_done);
    int64_t arrived_us = began_us + r->list->items[request].at_us;
    uint32_t ready;
    out->finish = choice_poll(c, &ready);
    CHECK(out->finish != FINISH_NONE);
    out->is_done = true;
    r->done_count++;
    out->cached_tokens = c->cached_tokens;
    out->preempt_count = c->preempt_count;
    out->drafted = atomic_load_explicit(&c->drafted, memory_order_relaxed);
    out->accepted = c->accepted;
    if (ready > c->prompt_tokens) out->first_token_us = c->first_token_us - arrived_us;
    out->finished_us = c->finished_us - arrived_us;
    if (c->finished_us - began_us > r->end_us) r->end_us = c->finished_us - began_us;
    out->answer_tokens = answer_tokens(r, request, c, ready);
    if (!r->drops_answers) TRY(keep_answer(out, c));
    bool has_reason = out->finish == FINISH_REFUSED || out->finish == FINISH_ERROR;
    return has_reason ? keep_reason(out, c->request->refusal.text) : ST_OK;
}

enum status replay_refuse(struct replay *r, uint32_t request, const char *why) {
    for (uint32_t i = r->first[request]; i < r->first[request + 1]; i++) {
        struct choice_result *out = &r->results[i];
        CHECK(!out->is_done);
        out->is_done = true;
        out->finish = FINISH_REFUSED;
        r->done_count++;
        TRY(keep_reason(out, why));
    }
    return ST_OK;
}

/* ---- summary ---- */

bool choice_result_ttft_ms(const struct choice_result *c, double *ms) {
    *ms = (double)c->first_token_us / 1e3;
    return c->answer_tokens > 0;
}

/* An answer that was cut off has no time per token: it did not end at its last token. */
bool choice_result_tpot_ms(const struct choice_result *c, double *ms) {
    *ms = 0;
    if (c->answer_tokens < 2 || (c->finish != FINISH_STOP && c->finish != FINISH_LENGTH))
        return false;
    *ms = (double)(c->finished_us - c->first_token_us) / 1e3 / (c->answer_tokens - 1);
    return true;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* By nearest rank: the smallest value that `share` of all do not exceed. */
static double percentile(const double *sorted, uint32_t count, double share) {
    uint32_t rank = (uint32_t)(share * count);
    if (rank < share * count) rank++;
    return sorted[rank > 0 ? rank - 1 : 0];
}

static struct spread spread_of(const struct replay *r,
                               bool (*get)(const struct choice_result *, double *)) {
    struct spread out = {.count = 0};
    double *values = mem_alloc_array(r->choice_count + 1, sizeof(values[0]));
    if (!values) return out;
    for (uint32_t i = 0; i < r->list->count; i++)
        for (uint32_t c = r->first[i]; c < r->first[i + 1] && !r->list->items[i].is_batch; c++)
            if (get(&r->results[c], &values[out.count])) out.count++;
    qsort(values, out.count, sizeof(values[0]), by_value);
    if (out.count > 0) {
        out.p50 = percentile(values, out.count, 0.5);
        out.p99 = percentile(values, out.count, 0.99);
    }
    mem_free(values);
    return out;
}

static void count_batch(const struct replay *r, uint32_t request, struct replay_summary *s) {
    for (uint32_t c = r->first[request]; c < r->first[request + 1]; c++) {
        s->batch_choices++;
        s->batch_output_tokens += r->results[c].answer_tokens;
    }
}

struct replay_summary replay_summarize(const struct replay *r, const struct engine_stats *stats) {
    struct replay_summary s = {.requests = r->list->count,
                               .choices = r->choice_count,
                               .elapsed_s = (double)r->end_us / 1e6,
                               .ttft_ms = spread_of(r, choice_result_ttft_ms),
                               .tpot_ms = spread_of(r, choice_result_tpot_ms),
                               .preemptions = stats->sched.preempted,
                               .steps = stats->sched.steps};
    for (uint32_t i = 0; i < r->list->count; i++) {
        s.prompt_tokens += (uint64_t)r->list->items[i].prompt_tokens * r->list->items[i].n;
        if (r->list->items[i].is_batch) count_batch(r, i, &s);
    }
    for (uint32_t i = 0; i < r->choice_count; i++) {
        s.ends[r->results[i].finish]++;
        s.output_tokens += r->results[i].answer_tokens;
        s.cached_tokens += r->results[i].cached_tokens;
        s.drafted += r->results[i].drafted;
        s.accepted += r->results[i].accepted;
    }
    if (r->end_us > 0) s.output_tokens_per_s = (double)s.output_tokens / s.elapsed_s;
    const struct sched_stats *sched = &stats->sched;
    if (sched->held_positions > 0)
        s.kv_waste = 1 - (double)sched->used_positions / (double)sched->held_positions;
    if (sched->steps > 0) s.sched_us_per_step = (double)stats->sched_us / (double)sched->steps;
    return s;
}

/* ---- output ---- */

static void put_spread(const char *name, const struct spread *s, struct buf *out) {
    buf_printf(out, ",\"%s\":", name);
    if (s->count > 0)
        buf_printf(out, "{\"p50\":%.9g,\"p99\":%.9g}", s->p50, s->p99);
    else
        buf_put_text(out, "{\"p50\":null,\"p99\":null}");
}

void replay_put_summary(const struct replay_summary *s, struct buf *out) {
    buf_printf(out, "{\"output_tokens_per_s\":%.9g", s->output_tokens_per_s);
    put_spread("ttft_ms", &s->ttft_ms, out);
    put_spread("tpot_ms", &s->tpot_ms, out);
    buf_printf(out, ",\"preemptions\":%llu,\"kv_waste\":%.9g,\"steps\":%llu",
               (unsigned long long)s->preemptions, s->kv_waste, (unsigned long long)s->steps);
    buf_printf(out, ",\"sched_us_per_step\":%.9g,\"elapsed_s\":%.9g", s->sched_us_per_step,
               s->elapsed_s);
    buf_printf(out, ",\"requests\":%u,\"choices\":%u", s->requests, s->choices);
    buf_printf(out, ",\"prompt_tokens\":%llu,\"output_tokens\":%llu,\"cached_tokens\":%llu",
               (unsigned long long)s->prompt_tokens, (unsigned long long)s->output_tokens,
               (unsigned long long)s->cached_tokens);
    buf_printf(out, ",\"drafted\":%llu,\"accepted\":%llu", (unsigned long long)s->drafted,
               (unsigned long long)s->accepted);
    buf_printf(out, ",\"batch_choices\":%u,\"batch_output_tokens\":%llu", s->batch_choices,
               (unsigned long long)s->batch_output_tokens);
    buf_put_text(out, ",\"finish_reasons\":{");
    for (uint32_t i = FINISH_STOP; i <= FINISH_ERROR; i++)
        buf_printf(out, "%s\"%s\":%u", i > FINISH_STOP ? "," : "",
                   finish_name((enum finish_reason)i), s->ends[i]);
    buf_put_text(out, "}}\n");
}
