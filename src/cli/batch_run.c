/* cli/batch_run.c - see cli/batch_run.h. */
#include "cli/batch_run.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/batch_lines.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "cli/batch_input.h"
#include "cli/progress_bar.h"
#include "config/env.h"
#include "jobs/batches.h"
#include "sample/random_seed.h"
#include "server/offline.h"

enum { SYNC_US = 1000000, MODEL_BYTES = 256 };
static const size_t LINE_BYTES_MAX = (size_t)1 << 30;

/* The random numbers of a line, made of the seed and its number: rng_at's stream is the number. */
enum { DRAW_SEED, DRAW_ID_HIGH, DRAW_ID_LOW };

struct run {
    const struct batch_run_options *options;
    struct progress_bar bar;
    struct buf output; /* a line of OUT */
    char model[MODEL_BYTES];
    uint32_t next; /* index in run_order */
    uint32_t resumed_lines;
    uint64_t resumed_tokens;
    int64_t began_us, ended_us, synced_us; /* began_us 0: the model is not loaded */
};

static uint64_t draw(const struct run *r, uint64_t number, uint64_t index) {
    return rng_at(r->options->origin->seed, number, index);
}

/* ---- progress ---- */

static double seconds_of(const struct run *r) {
    int64_t until_us = r->ended_us ? r->ended_us : clock_now(&clock_real);
    return r->began_us ? (double)(until_us - r->began_us) / 1e6 : 0;
}

static double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

static void put_time_left(double seconds, char *out, size_t bytes) {
    uint64_t s = (uint64_t)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, bytes, "  %" PRIu64 " h %02u min left", s / 3600, (unsigned)(s / 60 % 60));
    else if (s >= 60)
        snprintf(out, bytes, "  %u min %02u s left", (unsigned)(s / 60), (unsigned)(s % 60));
    else
        snprintf(out, bytes, "  %u s left", (unsigned)s);
}

static void show_progress(struct run *r) {
    struct batch_totals t = batch_partial_totals(r->options->partial);
    uint32_t count = r->options->origin->line_count;
    double seconds = seconds_of(r), lines_per_s = rate(t.done - r->resumed_lines, seconds);
    double tokens_per_s = rate((double)(t.answer_tokens - r->resumed_tokens), seconds);
    char left[48] = "", failed[32] = "", text[PROGRESS_BAR_TEXT_BYTES];
    if (lines_per_s > 0) put_time_left((count - t.done) / lines_per_s, left, sizeof(left));
    if (t.failed > 0) snprintf(failed, sizeof(failed), "  %u failed", t.failed);
    snprintf(text, sizeof(text), "%u of %u lines  %.1f lines/s  %.0f tokens/s%s%s", t.done, count,
             lines_per_s, tokens_per_s, left, failed);
    progress_bar_update_text(&r->bar, t.done, text);
}

static void on_loading(void *ctx, const char *stage, double share) {
    struct run *r = ctx;
    progress_bar_on_load(&r->bar, stage, share);
}

static enum status on_ready(void *ctx, const char *name, const char *fingerprint, struct err *err) {
    struct run *r = ctx;
    progress_bar_end(&r->bar);
    snprintf(r->model, sizeof(r->model), "%s", name);
    TRY(batch_partial_begin(r->options->partial, fingerprint, err));
    struct env_settings env;
    env_read(&env);
    progress_bar_init(&r->bar, &env, PROGRESS_BAR_LINES);
    progress_bar_begin(&r->bar, "batch", r->options->origin->line_count, r->resumed_lines);
    r->began_us = r->synced_us = clock_now(&clock_real);
    return ST_OK;
}

/* ---- lines ---- */

/* The model of the command line answers every line, whatever the line calls it. */
static enum status fill_line(const struct run *r, const struct batch_request *q,
                             struct offline_line *line, struct err *err) {
    uint64_t number = line->number;
    if (json_set(q->body, STR("model"), json_text_create(str_of(r->model))) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for a line");
    json_put(q->body, &line->body);
    buf_put_str(&line->tag, q->custom_id);
    line->url = q->url;
    line->created_s = r->options->origin->created_s;
    line->seed = random_seed_of(draw(r, number, DRAW_SEED));
    snprintf(line->id, sizeof(line->id), "%016" PRIx64 "%08" PRIx32, draw(r, number, DRAW_ID_HIGH),
             (uint32_t)draw(r, number, DRAW_ID_LOW));
    return ST_OK;
}

static enum status next_line(void *ctx, struct offline_line *line, struct err *err) {
    struct run *r = ctx;
    const struct batch_input *in = r->options->input;
    while (r->next < in->count && batch_partial_has(r->options->partial, in->run_order[r->next]))
        r->next++;
    if (r->next == in->count) return ST_MISSING;
    struct batch_request q;
    line->number = in->run_order[r->next++];
    if (batch_input_read(in, (uint32_t)line->number, &q, err) != ST_OK)
        return err_set(err, ST_IO,
                       "the input was changed during the run; put it back to continue, or "
                       "give --restart to begin again");
    enum status st = fill_line(r, &q, line, err);
    json_destroy(q.doc);
    return st;
}

static void put_output(const struct run *r, const struct offline_result *a, struct buf *out) {
    const struct line_row row = {.line = {.number = (uint32_t)a->number, .custom_id = a->tag},
                                 .result = {.state = a->status < 400 ? LINE_DONE : LINE_FAILED,
                                            .status = a->status,
                                            .request_id = str_of(a->request_id),
                                            .body = str_trim(a->body)}};
    char id[32];
    snprintf(id, sizeof(id), "batch_%016" PRIx64, r->options->origin->seed);
    batch_output_put(str_of(id), &row, out);
}

static enum status on_done(void *ctx, const struct offline_result *a, struct err *err) {
    struct run *r = ctx;
    buf_clear(&r->output);
    put_output(r, a, &r->output);
    if (buf_status(&r->output) != ST_OK)
        return err_set(err, ST_NOMEM, "out of memory for the result of a line");
    const struct batch_entry entry = {.number = (uint32_t)a->number,
                                      .status = a->status,
                                      .prompt_tokens = a->prompt_tokens,
                                      .cached_tokens = a->cached_tokens,
                                      .answer_tokens = a->answer_tokens,
                                      .output = str_trim(buf_str(&r->output))};
    TRY(batch_partial_put(r->options->partial, &entry, err));
    r->ended_us = clock_now(&clock_real);
    return ST_OK;
}

static enum status on_tick(void *ctx, struct err *err) {
    struct run *r = ctx;
    int64_t now_us = clock_now(&clock_real);
    show_progress(r);
    if (now_us - r->synced_us < SYNC_US) return ST_OK;
    r->synced_us = now_us;
    return batch_partial_sync(r->options->partial, err);
}

/* ---- the run ---- */

static struct batch_summary summary_of(const struct run *r) {
    struct batch_totals totals = batch_partial_totals(r->options->partial);
    double seconds = seconds_of(r);
    return (struct batch_summary){
        .totals = totals,
        .line_count = r->options->origin->line_count,
        .resumed_lines = r->resumed_lines,
        .seconds = seconds,
        .tokens_per_s = rate((double)(totals.answer_tokens - r->resumed_tokens), seconds)};
}

static enum status run_lines(struct run *r, struct err *err) {
    const struct offline_hooks hooks = {.loading = on_loading,
                                        .is_ready = on_ready,
                                        .next = next_line,
                                        .done = on_done,
                                        .tick = on_tick,
                                        .ctx = r};
    struct env_settings env;
    env_read(&env);
    progress_bar_init(&r->bar, &env, PROGRESS_BAR_SILENT);
    progress_bar_begin_share(&r->bar, "loading");
    enum status st = offline_run(r->options->settings, &hooks, err);
    progress_bar_end(&r->bar);
    return st;
}

enum status batch_run(const struct batch_run_options *options, struct batch_summary *out,
                      struct err *err) {
    struct batch_totals before = batch_partial_totals(options->partial);
    struct run r = {
        .options = options, .resumed_lines = before.done, .resumed_tokens = before.answer_tokens};
    buf_init(&r.output, LINE_BYTES_MAX);
    enum status st = before.done == options->origin->line_count ? ST_OK : run_lines(&r, err);
    *out = summary_of(&r);
    struct err sync_err = {0};
    enum status synced = batch_partial_sync(options->partial, &sync_err);
    if (st == ST_OK && synced != ST_OK) {
        st = synced;
        *err = sync_err;
    }
    buf_deinit(&r.output);
    return st;
}
