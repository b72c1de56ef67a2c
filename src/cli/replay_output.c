/* cli/replay_output.c - see cli/replay_output.h. */
#include "cli/replay_output.h"

#include "base/buf.h"
#include "cli/generated.h"
#include "sim/replay_list.h"

static void put_time(const char *name, bool has, double ms, struct buf *out) {
    buf_printf(out, ",\"%s\":", name);
    if (has)
        put_json_number(out, ms);
    else
        buf_put_text(out, "null");
}

static void put_result(const struct choice_result *c, const char *id, uint32_t index,
                       struct buf *out) {
    buf_printf(out, "{\"id\":%s,\"choice\":%u,\"tokens\":[", id, index);
    for (uint32_t i = 0; i < c->answer_tokens; i++)
        buf_printf(out, "%s%d", i ? "," : "", c->tokens[i]);
    buf_put_text(out, "],\"logprobs\":[");
    for (uint32_t i = 0; i < c->answer_tokens; i++) {
        if (i) buf_put_char(out, ',');
        put_json_number(out, (double)c->logprobs[i]);
    }
    buf_printf(out, "],\"finish_reason\":\"%s\"", finish_name(c->finish));
    double ttft_ms, tpot_ms;
    bool has_ttft = choice_result_ttft_ms(c, &ttft_ms),
         has_tpot = choice_result_tpot_ms(c, &tpot_ms);
    put_time("ttft_ms", has_ttft, ttft_ms, out);
    put_time("tpot_ms", has_tpot, tpot_ms, out);
    buf_printf(out, ",\"preempted\":%u,\"cached_tokens\":%u", c->preempt_count, c->cached_tokens);
    buf_printf(out, ",\"drafted\":%u,\"accepted\":%u", c->drafted, c->accepted);
    if (c->refusal) {
        buf_put_text(out, ",\"error\":");
        buf_put_json_string(out, str_of(c->refusal));
    }
    buf_put_text(out, "}\n");
}

void replay_put_results(const struct replay *r, struct buf *out) {
    for (uint32_t i = 0; i < r->list->count; i++)
        for (uint32_t c = r->first[i]; c < r->first[i + 1]; c++)
            put_result(&r->results[c], r->list->items[i].id, c - r->first[i], out);
}

void replay_put_table(const struct replay_summary *s, struct buf *out) {
    buf_printf(out, "%u requests, %llu output tokens in %.2f s: %.1f tokens/s\n", s->requests,
               (unsigned long long)s->output_tokens, s->elapsed_s, s->output_tokens_per_s);
    if (s->batch_choices > 0)
        buf_printf(
            out,
            "of these, %u batch lines with %llu output tokens; the times below are of the others\n",
            s->batch_choices, (unsigned long long)s->batch_output_tokens);
    buf_printf(out, "first token  p50 %.1f ms  p99 %.1f ms\n", s->ttft_ms.p50, s->ttft_ms.p99);
    buf_printf(out, "per token    p50 %.1f ms  p99 %.1f ms\n", s->tpot_ms.p50, s->tpot_ms.p99);
    buf_printf(out, "%llu steps, %.1f us of scheduling each, %llu preemptions, %.1f %% KV waste\n",
               (unsigned long long)s->steps, s->sched_us_per_step,
               (unsigned long long)s->preemptions, 100 * s->kv_waste);
    if (s->drafted > 0)
        buf_printf(out, "%llu drafts verified, %llu accepted\n", (unsigned long long)s->drafted,
                   (unsigned long long)s->accepted);
}
