/* server/generation_report.c - a generation has ended: metrics, the key's usage, log, trace. */
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "report/log.h"
#include "server/registry.h"
#include "server/server_int.h"

/* From our clock to the time since 1970. Taken once for all moments of a request, so that their
 * differences stay as they were. */
static int64_t wall_offset_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 - clock_now(&clock_real);
}

static int64_t wall_us(int64_t at_us, int64_t offset_us) { return at_us ? at_us + offset_us : 0; }

static enum finish_reason finish_of(const struct generation *gen) {
    switch (gen->answer.failure.status) {
    case 0:
        return gen->answer.choices[0].finish;
    case 499:
        return FINISH_CANCELLED;
    case 504:
        return FINISH_EXPIRED;
    case 400:
    case 429:
        return FINISH_REFUSED;
    default:
        return FINISH_ERROR;
    }
}

static void log_generation(struct server *s, const struct generation *gen) {
    const struct answer *a = &gen->answer;
    uint32_t status = a->failure.status ? a->failure.status : 200;
    /* A batch has one line in the log, not one for each of its requests. */
    enum log_level level = status >= 500 ? LOG_WARN : gen->is_batch ? LOG_DEBUG : LOG_INFO;
    if (!log_wants(s->log, level)) return;
    double ttft_ms = a->first_token_us ? (double)(a->first_token_us - a->arrived_us) / 1e3 : 0;
    struct log_field fields[] = {
        log_text("id", str_of(gen->request_id)),
        log_text("answer", str_of(a->id)),
        log_text("route", str_of(gen->route)),
        log_text("model", a->model),
        log_text("key", str_of(gen->key ? gen->key->name : "")),
        log_int("status", status),
        log_text("finish", str_of(finish_name(finish_of(gen)))),
        log_int("prompt_tokens", a->prompt_tokens),
        log_int("cached_tokens", a->cached_tokens),
        log_int("completion_tokens", answer_completion_tokens(a)),
        log_real("ttft_ms", ttft_ms),
        log_real("total_ms", (double)(a->finished_us - a->arrived_us) / 1e3),
        log_text("error", str_of(a->failure.message.text)),
    };
    uint32_t count = sizeof(fields) / sizeof(fields[0]);
    log_line(s->log, level, "request", fields, a->failure.status ? count : count - 1);
}

static void log_prompt(struct server *s, const struct generation *gen) {
    struct buf text;
    if (!s->settings.log_prompts || !log_wants(s->log, LOG_INFO)) return;
    buf_init(&text, 1 << 16);
    json_put(gen->request.doc, &text);
    struct log_field fields[] = {log_text("id", str_of(gen->request_id)),
                                 log_text("body", buf_str(&text))};
    log_line(s->log, LOG_INFO, "prompt", fields, 2);
    buf_clear(&text);
    for (uint32_t i = 0; i < event_log_count(gen->answer.log); i++)
        buf_put_str(&text, event_log_at(gen->answer.log, i).text);
    fields[1] = log_text("text", buf_str(&text));
    log_line(s->log, LOG_INFO, "answer", fields, 2);
    buf_deinit(&text);
}

static void trace_generation(struct server *s, const struct generation *gen) {
    const struct answer *a = &gen->answer;
    if (!s->tracer) return;
    int64_t offset_us = wall_offset_us();
    struct trace_request t = {.id = gen->trace,
                              .request_id = gen->request_id,
                              .model = gen->model->name,
                              .route = gen->route,
                              .finish = finish_name(finish_of(gen)),
                              .status = a->failure.status ? a->failure.status : 200,
                              .prompt_tokens = a->prompt_tokens,
                              .completion_tokens = answer_completion_tokens(a),
                              .cached_tokens = a->cached_tokens,
                              .max_tokens = gen->request.max_tokens,
                              .n = gen->request.n,
                              .temperature = (double)gen->request.sample.temperature,
                              .top_p = (double)gen->request.sample.top_p,
                              .arrived_us = wall_us(a->arrived_us, offset_us),
                              .started_us = wall_us(gen->started_us, offset_us),
                              .first_token_us = wall_us(a->first_token_us, offset_us),
                              .finished_us = wall_us(a->finished_us, offset_us)};
    tracer_add(s->tracer, &t);
}

static uint32_t longest_of(const struct answer *a) {
    uint32_t longest = 0;
    for (uint32_t i = 0; i < a->choice_count; i++)
        if (a->choices[i].answer_tokens > longest) longest = a->choices[i].answer_tokens;
    return longest;
}

void generation_report(void *ctx, struct generation *gen) {
    struct server *s = ctx;
    const struct answer *a = &gen->answer;
    uint32_t tokens = answer_completion_tokens(a);
    struct metrics_generation m = {.model = gen->model->metrics_idx,
                                   .finish = finish_of(gen),
                                   .prompt_tokens = a->prompt_tokens,
                                   .completion_tokens = tokens,
                                   .max_tokens =
                                       gen->request.has_max_tokens ? gen->request.max_tokens : 0,
                                   .n = gen->request.n,
                                   .choices = a->choice_count,
                                   .longest_tokens = longest_of(a),
                                   .arrived_us = a->arrived_us,
                                   .started_us = gen->started_us,
                                   .first_token_us = a->first_token_us,
                                   .finished_us = a->finished_us,
                                   .is_batch = gen->is_batch};
    server_metrics_generation(s->metrics, &m);
    if (gen->is_recovered) s->recovered_live--;
    if (!gen->is_unlimited) {
        keys_end(s->keys, gen->key, gen->reserved, (uint64_t)tokens + a->prompt_tokens,
                 clock_now(&clock_real));
        keys_drop(s->keys, gen->key, gen->model->metrics_idx, a->choice_count);
    }
    log_generation(s, gen);
    log_prompt(s, gen);
    trace_generation(s, gen);
}
