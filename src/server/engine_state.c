/* server/engine_state.c - GET /v1/engine/state: what is in force and who is where, as JSON. */
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/control.h"
#include "engine/engine.h"
#include "engine/record.h"
#include "sched/policy.h"
#include "server/engine_ask.h"
#include "server/engine_paths.h"
#include "server/generation_int.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/registry.h"

enum { TENANTS_MAX = 4096, REQUESTS_MAX = 4096 };
static const size_t STATE_BYTES_MAX = (size_t)64 << 20;

static void put_member(struct buf *out, const char *name, struct str value) {
    buf_printf(out, "\"%s\":", name);
    buf_put_json_string(out, value);
}

/* ---- rules ---- */

/* Numbers as numbers, words as text. */
static void put_knob(struct buf *out, const struct knobs *k, uint32_t i) {
    struct knob_row row;
    double number;
    knobs_show(k, i, &row);
    buf_put_char(out, '{');
    put_member(out, "name", str_of(row.name));
    buf_put_text(out, ",\"value\":");
    if (str_to_f64(str_of(row.value), &number))
        buf_put_text(out, row.value);
    else
        buf_put_json_string(out, str_of(row.value));
    buf_put_char(out, ',');
    put_member(out, "summary", str_of(row.help));
    if (row.policy) {
        buf_put_char(out, ',');
        put_member(out, "policy", str_of(row.policy));
    }
    buf_printf(out, ",\"live\":%s}", knobs_is_live(i) ? "true" : "false");
}

void engine_put_rules(const struct control_rules *rules, struct buf *out) {
    put_member(out, "policy", str_of(rules->policy->name));
    buf_put_text(out, ",\"knobs\":[");
    for (uint32_t i = 0; i < knobs_count(); i++) {
        if (i > 0) buf_put_char(out, ',');
        put_knob(out, &rules->knobs, i);
    }
    buf_put_char(out, ']');
}

static void put_policies(struct buf *out) {
    buf_put_text(out, ",\"policies\":[");
    for (uint32_t i = 0; sched_policies[i]; i++) {
        buf_put_text(out, i > 0 ? ",{" : "{");
        put_member(out, "name", str_of(sched_policies[i]->name));
        buf_put_char(out, ',');
        put_member(out, "summary", str_of(sched_policies[i]->summary));
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

/* ---- seats and blocks ---- */

static void put_seats(const struct served_model *m, struct buf *out) {
    uint32_t count = m->knobs.max_seqs;
    struct record_seat *seats = mem_zalloc_array(count, sizeof(seats[0]));
    if (!seats) out->status = ST_NOMEM;
    if (seats) record_seats(engine_records(m->engine), seats);
    buf_put_text(out, ",\"seats\":[");
    for (uint32_t i = 0; seats && i < count; i++) {
        if (i > 0) buf_put_char(out, ',');
        if (seats[i].request == 0)
            buf_put_text(out, "null");
        else
            buf_printf(out, "{\"request\":%llu,\"choice\":%u,\"tenant\":%u}",
                       (unsigned long long)seats[i].request, seats[i].choice, seats[i].tenant);
    }
    buf_put_char(out, ']');
    mem_free(seats);
}

/* Runs of blocks in the same state. */
static void put_map(const uint8_t *map, uint32_t count, struct buf *out) {
    for (uint32_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && map[i + run] == map[i];) run++;
        buf_printf(out, "%s[%u,%u]", i > 0 ? "," : "", map[i], run);
    }
}

/* `is_known` false: the engine has not answered; the map is empty. */
static void put_blocks(const struct served_model *m, bool is_known, struct buf *out) {
    uint32_t count = m->knobs.kv_blocks;
    uint8_t *map = is_known ? mem_alloc(count) : NULL;
    if (is_known && !map) out->status = ST_NOMEM;
    if (map) control_map(engine_control(m->engine), map);
    buf_printf(out, ",\"blocks\":{\"total\":%u,\"block_tokens\":%u,\"map\":[", count,
               m->knobs.block_size);
    if (map) put_map(map, count, out);
    buf_put_text(out, "]}");
    mem_free(map);
}

/* ---- who ---- */

static void put_tenants(const struct keys *keys, struct buf *out) {
    uint32_t count = keys_tenant_count(keys);
    buf_put_text(out, ",\"tenants\":[\"\"");
    for (uint32_t i = 1; i <= count && i < TENANTS_MAX; i++) {
        buf_put_char(out, ',');
        buf_put_json_string(out, keys_tenant_name(keys, i));
    }
    buf_put_char(out, ']');
}

static void put_request(const struct generation_part *part, bool is_first, struct buf *out) {
    const struct request *r = part->request;
    const struct generation *gen = part->generation;
    buf_printf(out, "%s{\"request\":%llu,\"id\":\"", is_first ? "" : ",",
               (unsigned long long)r->id);
    buf_put_text(out, gen->request.codec->id_prefix);
    buf_put_json_inner(out, str_of(gen->answer.id));
    buf_printf(out, "\",\"tenant\":%u}", r->tenant);
}

/* Which answers the engine's requests belong to. */
static void put_requests(const struct generations *all, const struct served_model *m,
                         struct buf *out) {
    uint32_t count = 0;
    buf_put_text(out, ",\"requests\":[");
    for (struct list_link *l = all->items.first; l; l = l->next) {
        const struct generation *gen = LIST_ITEM(l, struct generation, in_all);
        if (gen->model != m || gen->stage != GENERATION_RUNNING) continue;
        for (uint32_t i = 0; i < gen->part_count && count < REQUESTS_MAX; i++)
            if (gen->parts[i].request) put_request(&gen->parts[i], count++ == 0, out);
    }
    buf_put_char(out, ']');
}

static void put_model(const struct served_model *m, struct buf *out) {
    buf_put_char(out, '{');
    put_member(out, "id", str_of(m->name));
    buf_put_char(out, ',');
    put_member(out, "state", str_of(load_state_name(m->state)));
    buf_put_text(out, ",\"start_ms\":{");
    for (uint32_t i = 0; m->state == LOAD_READY && i < m->start_part_count; i++) {
        if (i > 0) buf_put_char(out, ',');
        buf_put_json_string(out, str_of(m->start_parts[i].name));
        buf_printf(out, ":%.1f", (double)m->start_parts[i].us / 1e3);
    }
    buf_put_text(out, "}}");
}

static void put_models(const struct registry *r, struct buf *out) {
    buf_put_text(out, ",\"models\":[");
    for (uint32_t i = 0; i < registry_count(r); i++) {
        if (i > 0) buf_put_char(out, ',');
        put_model(registry_at(r, i), out);
    }
    buf_put_char(out, ']');
}

/* ---- the answer ---- */

static void respond_state(struct http_request *req, struct served_model *m, bool is_done) {
    struct control_rules rules = control_rules(engine_control(m->engine));
    struct buf out;
    buf_init(&out, STATE_BYTES_MAX);
    buf_put_text(&out, "{\"jitney\":\"" JITNEY_VERSION "\",");
    put_member(&out, "model", str_of(m->name));
    buf_printf(&out, ",\"now_us\":%lld,\"epoch_ms\":%lld,", (long long)clock_now(&clock_real),
               (long long)engine_epoch_ms());
    engine_put_rules(&rules, &out);
    put_policies(&out);
    put_seats(m, &out);
    put_blocks(m, is_done, &out);
    put_tenants(req->server->keys, &out);
    put_models(req->server->registry, &out);
    put_requests(req->server->generations, m, &out);
    buf_printf(&out, ",\"step\":%llu}",
               (unsigned long long)record_span(engine_records(m->engine)).next - 1);
    respond_json(req, &out);
    buf_deinit(&out);
}

void handle_engine_state(struct http_request *req) {
    struct served_model *m = engine_paths_model(req);
    if (!m) return;
    engine_asks_wait(req->server->asks, req, m, engine_ask_map(m->engine), respond_state);
}
