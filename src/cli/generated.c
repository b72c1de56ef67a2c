/* cli/generated.c - see cli/generated.h. */
#include "cli/generated.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "engine/request_run.h"
#include "text/tokenizer.h"

enum { TEXT_BYTES_MAX = 1 << 28, STEPS_BYTES_MAX = 1 << 30 };

void generated_init(struct generated *g, int mode) {
    *g = (struct generated){.mode = mode};
    buf_init(&g->text, TEXT_BYTES_MAX);
    buf_init(&g->steps, STEPS_BYTES_MAX);
}

void generated_deinit(struct generated *g) {
    buf_deinit(&g->text);
    buf_deinit(&g->steps);
}

bool generated_take(void *ctx, const struct token_event *event) {
    struct generated *g = ctx;
    if (g->mode & GENERATED_COLLECT) buf_put_str(&g->text, event->text);
    if (g->mode & GENERATED_DETAIL && event->sample)
        buf_put(&g->steps, event->sample, sizeof(*event->sample));
    if (g->mode & GENERATED_STREAM && event->text.len > 0) {
        g->out_status = out_write(event->text, &g->out_err);
        if (g->out_status == ST_OK) g->out_status = out_flush(&g->out_err);
    }
    return g->out_status == ST_OK;
}

enum status generated_status(const struct generated *g, struct err *err) {
    if (g->out_status != ST_OK) {
        *err = g->out_err;
        return g->out_status;
    }
    enum status st = buf_status(&g->text);
    if (st == ST_OK) st = buf_status(&g->steps);
    return st == ST_OK ? ST_OK : err_set(err, ST_NOMEM, "the answer does not fit in memory");
}

void put_json_number(struct buf *out, double value) {
    bool finite = value >= -DBL_MAX && value <= DBL_MAX;
    if (finite)
        buf_printf(out, "%.9g", value);
    else
        buf_put_text(out, "null");
}

static uint32_t step_count(const struct generated *g) {
    return (uint32_t)(g->steps.len / sizeof(struct sample_result));
}

static struct sample_result step_at(const struct generated *g, uint32_t i) {
    struct sample_result step;
    memcpy(&step, g->steps.ptr + i * sizeof(step), sizeof(step));
    return step;
}

static void put_top(const struct sample_result *step, const struct tokenizer *t, struct buf *out) {
    buf_put_char(out, '[');
    for (uint32_t i = 0; i < step->top_count; i++) {
        buf_printf(out, "%s{\"token\":%d,\"piece\":", i ? "," : "", step->top[i].token);
        buf_put_json_string(out, tokenizer_piece(t, step->top[i].token));
        buf_put_text(out, ",\"logprob\":");
        put_json_number(out, (double)step->top[i].logprob);
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

void generated_put_json(const struct generated *g, const struct tokenizer *t,
                        const struct request_usage *usage, struct buf *out) {
    uint32_t count = step_count(g);
    bool tops = count > 0 && step_at(g, 0).top_count > 0;
    buf_put_text(out, "\"text\":");
    buf_put_json_string(out, buf_str(&g->text));
    buf_put_text(out, ",\"tokens\":[");
    for (uint32_t i = 0; i < count; i++)
        buf_printf(out, i ? ",%d" : "%d", step_at(g, i).chosen.token);
    buf_put_text(out, "],\"logprobs\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) buf_put_char(out, ',');
        put_json_number(out, (double)step_at(g, i).chosen.logprob);
    }
    buf_put_char(out, ']');
    if (tops) buf_put_text(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < count && tops; i++) {
        struct sample_result step = step_at(g, i);
        if (i) buf_put_char(out, ',');
        put_top(&step, t, out);
    }
    if (tops) buf_put_char(out, ']');
    buf_printf(out, ",\"finish_reason\":\"%s\"", finish_name(usage->finish));
    buf_printf(out, ",\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u}",
               usage->prompt_tokens, usage->completion_tokens);
}

static double per_second(uint32_t tokens, int64_t us) {
    return us > 0 ? (double)tokens * 1e6 / (double)us : 0.0;
}

void report_speed(const struct request_usage *usage) {
    uint32_t computed = usage->prompt_tokens - usage->cached_tokens;
    fprintf(stderr,
            "prompt %u tokens (%u from the cache) in %.0f ms, %.1f/s; answer %u tokens in %.0f ms, "
            "%.1f/s; %s\n",
            usage->prompt_tokens, usage->cached_tokens, (double)usage->prompt_us / 1e3,
            per_second(computed, usage->prompt_us), usage->completion_tokens,
            (double)usage->decode_us / 1e3, per_second(usage->completion_tokens, usage->decode_us),
            finish_name(usage->finish));
    if (usage->drafted > 0)
        fprintf(stderr, "drafts: %u verified, %u accepted\n", usage->drafted, usage->accepted);
}
