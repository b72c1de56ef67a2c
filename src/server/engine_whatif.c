/* server/engine_whatif.c - POST /v1/engine/whatif: the requests of a recording with other policies.
 *
 * The body is read and the simulations run in libuv's pool. What they take is counted in the
 * account of the key's tenant (server/work_queue.h), and they are bounded in requests, tokens,
 * turns and time. They end when the client disconnects or the server is shut down. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "api/fields.h"
#include "api/request.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/control.h"
#include "engine/engine.h"
#include "report/log.h"
#include "sched/policy.h"
#include "server/engine_paths.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/registry.h"
#include "server/task_int.h"
#include "sim/recorded.h"
#include "sim/replay.h"
#include "sim/replay_list.h"
#include "sim/whatif.h"

enum {
    POLICIES_MAX = 4, /* as the table of fields says */
    NAME_BYTES = 64,
    TURNS_MAX = 10000000, /* of an engine, in all simulations of a request */
    HEAD_BYTES = 16 << 10,
    OUT_FACTOR = 3,        /* bytes of JSON for one of a record, at most */
    TRIM_BYTES = 32 << 20, /* a larger simulation gives its memory back to the system */
    WORK_PARTS = 32,       /* records get at most such a part of what the pool may hold */
};
static const int64_t RUN_US_MAX = 20000000; /* of all simulations of a request */
static const size_t RECORD_BYTES_MAX = 4 << 20, RECORD_BYTES_MIN = 64 << 10;
static const struct recorded_limits limits = {.sequences = 8192, .tokens = 32 << 20};

struct whatif_task {
    struct task base;
    struct request_list list;
    const struct sched_policy *policies[POLICIES_MAX];
    uint32_t policy_count;
    bool has_profile;
    struct whatif_options options;
    struct buf out;
    int64_t until_us;
    uint32_t turns;
};

/* ---- the body, on any thread ---- */

/* A name that is too long or has a NUL is cut, and then unknown or empty. */
static void copy_name(struct str name, char out[NAME_BYTES]) {
    name = str_take(name, NAME_BYTES - 1);
    if (name.len > 0 && memchr(name.ptr, 0, name.len)) name.len = 0;
    if (name.len > 0) memcpy(out, name.ptr, name.len);
    out[name.len] = 0;
}

static enum status read_policies(struct whatif_task *t, const struct json *names,
                                 struct api_error *e) {
    for (size_t i = 0; i < json_count(names); i++) {
        char name[NAME_BYTES], param[NAME_BYTES];
        copy_name(json_str(json_at(names, i)), name);
        t->policies[i] = sched_policy_find(name);
        if (t->policies[i]) continue;
        snprintf(param, sizeof(param), "policies[%zu]", i);
        return api_refuse(e, 400, param, NULL,
                          "unknown policy \"%s\"; GET /v1/engine/state lists the policies", name);
    }
    t->policy_count = (uint32_t)json_count(names);
    return ST_OK;
}

/* By name or as numbers, never as a file. */
static enum status read_profile(struct whatif_task *t, const struct json *profile,
                                struct api_error *e) {
    struct err err = {0};
    char name[NAME_BYTES];
    t->has_profile = profile != NULL;
    if (json_kind(profile) == JS_MAP) {
        enum status st = sim_profile_read(profile, &t->options.profile, &err);
        return st == ST_OK ? st : api_refuse(e, 400, "profile", NULL, "profile: %s", err.text);
    }
    if (!profile) return ST_OK;
    copy_name(json_str(profile), name);
    const struct cost_profile *found = cost_profile_find(name);
    if (!found)
        return api_refuse(e, 400, "profile", NULL,
                          "unknown cost profile \"%s\"; give \"h200-8b\", \"this-cpu\", or an "
                          "object with fixed_us, per_token_us, per_attended_us and per_move_us",
                          name);
    t->options.profile = *found;
    return ST_OK;
}

static enum status read_recording(struct whatif_task *t, const struct json *recording,
                                  struct api_error *e) {
    struct recorded_fault fault;
    char param[API_PARAM_BYTES];
    enum status st = recorded_read(recording, &limits, &t->list, &fault);
    if (st != ST_BAD) return st;
    snprintf(param, sizeof(param), "recording.%.80s", fault.path);
    return api_refuse(e, 400, param, NULL, "%s: %s", param, fault.err.text);
}

static enum status read_fields(struct whatif_task *t, const struct json *doc, struct api_error *e) {
    struct api_request r;
    api_request_init(&r, NULL);
    enum status st = api_fields_read(EP_ENGINE_WHATIF, doc, &r, e);
    api_request_deinit(&r);
    TRY(st);
    TRY(read_policies(t, json_get(doc, "policies"), e));
    TRY(read_profile(t, json_get(doc, "profile"), e));
    return read_recording(t, json_get(doc, "recording"), e);
}

static enum status read_body(struct task *task, struct json *doc) {
    enum status st = read_fields((struct whatif_task *)task, doc, &task->error);
    json_destroy(doc);
    return st;
}

/* ---- the simulations, in the pool ---- */

static bool goes_on(void *ctx) {
    struct whatif_task *t = ctx;
    return !atomic_load(&t->base.is_left) && !t->base.server->is_draining &&
           ++t->turns <= TURNS_MAX && clock_now(&clock_real) < t->until_us;
}

static enum status refuse_run(struct whatif_task *t, enum status st, const struct err *err) {
    struct api_error *e = &t->base.error;
    if (st == ST_CANCELLED) TRY(server_check_draining(t->base.server, e));
    if (st == ST_CANCELLED)
        return api_refuse(e, 400, "recording", "simulation_too_long",
                          "simulating the recording takes more than %d turns of the engine or %d "
                          "seconds; send fewer requests",
                          TURNS_MAX, (int)(RUN_US_MAX / 1000000));
    if (st == ST_NOMEM || st == ST_FULL) return api_fail(e, st, "no memory for the simulation");
    return api_fail(e, st, err->text);
}

static void put_knobs(const struct knobs *knobs, struct buf *out) {
    for (uint32_t i = 0; i < knobs_count(); i++) {
        struct knob_row row;
        double number;
        knobs_show(knobs, i, &row);
        buf_printf(out, "%s\"%s\":", i > 0 ? "," : "", row.name);
        if (str_to_f64(str_of(row.value), &number))
            buf_put_text(out, row.value);
        else
            buf_put_json_string(out, str_of(row.value));
    }
}

/* What the simulations begin with, so that `jitney replay --sim` can repeat them. */
static void put_head(struct whatif_task *t) {
    const struct cost_profile *p = &t->options.profile;
    buf_printf(&t->out,
               ",\"ctx_tokens\":%u,\"profile\":{\"fixed_us\":%.17g,\"per_token_us\":%.17g,"
               "\"per_attended_us\":%.17g,\"per_move_us\":%.17g},\"knobs\":{",
               t->options.ctx_tokens, p->fixed_us, p->per_token_us, p->per_attended_us,
               p->per_move_us);
    put_knobs(&t->options.knobs, &t->out);
    buf_put_text(&t->out, "},\"results\":[");
}

static void simulate(struct task *task) {
    struct whatif_task *t = (struct whatif_task *)task;
    const struct prompt_source source = {.vocab = SIM_VOCAB};
    struct err err = {0};
    t->until_us = clock_now(&clock_real) + RUN_US_MAX;
    enum status st = recorded_draw_prompts(&t->list, &source);
    put_head(t);
    for (uint32_t i = 0; i < t->policy_count && st == ST_OK; i++) {
        if (i > 0) buf_put_char(&t->out, ',');
        t->options.policy = t->policies[i];
        st = whatif_run(&t->list, &t->options, &t->out, &err);
    }
    buf_put_text(&t->out, "]}");
    if (task->bytes >= TRIM_BYTES) mem_trim(); /* engines of this size are not made again soon */
    task->status = st == ST_OK ? st : refuse_run(t, st, &err);
}

/* ---- on the I/O thread ---- */

static void log_end(const struct whatif_task *t) {
    const struct task *task = &t->base;
    const char *outcome = !task->http ? "client_gone" : task->status != ST_OK ? "refused" : "done";
    struct log_field fields[] = {log_int("policies", t->policy_count),
                                 log_int("requests", t->list.count), log_int("turns", t->turns),
                                 log_text("outcome", str_of(outcome))};
    log_line(task->server->log, LOG_INFO, "whatif", fields, sizeof(fields) / sizeof(fields[0]));
}

static void finish(struct task *task) {
    struct whatif_task *t = (struct whatif_task *)task;
    log_end(t);
    if (task->http && task->status != ST_OK)
        respond_error(task->http, &task->error);
    else if (task->http)
        respond_json(task->http, &t->out);
    request_list_deinit(&t->list);
    buf_deinit(&t->out);
    mem_free(t);
}

/* The server's own engine, but for the policy. */
static void choose_options(struct whatif_task *t, const struct served_model *m,
                           const struct server *s) {
    size_t bytes = work_queue_stats(s->work).bytes_max / WORK_PARTS / t->policy_count;
    if (bytes > RECORD_BYTES_MAX) bytes = RECORD_BYTES_MAX;
    if (bytes < RECORD_BYTES_MIN) bytes = RECORD_BYTES_MIN;
    t->options.knobs = control_rules(engine_control(m->engine)).knobs;
    t->options.ctx_tokens = m->ctx_tokens;
    t->options.record_bytes = bytes;
    t->options.goes_on = goes_on;
    t->options.ctx = t;
    if (!t->has_profile) t->options.profile = engine_stats(m->engine).cost;
    size_t out_bytes = HEAD_BYTES + t->policy_count * OUT_FACTOR * bytes;
    t->base.bytes = whatif_bytes(&t->list, &t->options) + out_bytes;
    buf_init(&t->out, out_bytes);
    buf_put_text(&t->out, "{\"model\":");
    buf_put_json_string(&t->out, str_of(m->name));
}

static void on_body_read(struct task *task) {
    struct whatif_task *t = (struct whatif_task *)task;
    struct http_request *req = task->http;
    const struct served_model *m = NULL;
    if (req && task->status == ST_OK) m = engine_paths_model(req);
    if (m) {
        choose_options(t, m, req->server);
        task->item.is_continuing = false; /* it takes much more than the body did */
        task->item.is_slow = true;
        task->work = simulate;
        task->done = finish;
        task_run(task, req, true);
        return;
    }
    if (req && task->status != ST_OK) respond_error(req, &task->error);
    request_list_deinit(&t->list);
    mem_free(t);
}

void handle_engine_whatif(struct http_request *req) {
    struct whatif_task *t = task_create(req, sizeof(*t), read_body, on_body_read);
    if (t) task_read_body(&t->base);
}
