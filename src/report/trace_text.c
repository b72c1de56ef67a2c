/* report/trace_text.c - see report/trace_text.h. */
#include "report/trace_text.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/str.h"

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2, ID_BYTES = 8 };

/* --- traceparent ------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* `count` bytes from twice as many hexadecimal digits, which the standard has in lower case. */
static bool read_hex(const char *text, uint32_t count, uint8_t *out) {
    for (uint32_t i = 0; i < count; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(16 * high + low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, uint32_t count) {
    uint8_t any = 0;
    for (uint32_t i = 0; i < count; i++) any |= bytes[i];
    return any == 0;
}

/* Random bytes. The system never refuses so few of them. */
static void draw(uint8_t *out, uint32_t count) {
    ssize_t got = getrandom(out, count, 0);
    CHECK(got == (ssize_t)count);
}

/* 00-TRACE-PARENT-FLAGS; a later version may have more fields after another dash. */
static bool read_parent(struct str s, struct trace_id *out) {
    enum { BYTES = 55, TRACE_AT = 3, PARENT_AT = 36, FLAGS_AT = 53 };
    uint8_t version, flags;
    if (s.len < BYTES || s.ptr[2] != '-' || s.ptr[35] != '-' || s.ptr[52] != '-') return false;
    if (!read_hex(s.ptr, 1, &version) || version == 0xFF) return false;
    if (version == 0 ? s.len != BYTES : s.len > BYTES && s.ptr[BYTES] != '-') return false;
    if (!read_hex(s.ptr + TRACE_AT, sizeof(out->trace), out->trace)) return false;
    if (!read_hex(s.ptr + PARENT_AT, sizeof(out->parent), out->parent)) return false;
    if (!read_hex(s.ptr + FLAGS_AT, 1, &flags)) return false;
    out->is_sampled = flags & 1;
    return !is_zero(out->trace, sizeof(out->trace)) && !is_zero(out->parent, sizeof(out->parent));
}

bool trace_id_read(struct str traceparent, struct trace_id *out) {
    *out = (struct trace_id){0};
    if (read_parent(str_trim(traceparent), out)) return true;
    *out = (struct trace_id){.is_sampled = true};
    draw(out->trace, sizeof(out->trace));
    return false;
}

/* --- spans ------------------------------------------------------------------------------- */

static const char *keep(char *out, size_t bytes, const char *text) {
    snprintf(out, bytes, "%s", text ? text : "");
    return out;
}

void span_fill(struct span *s, const struct trace_request *r) {
    s->r = *r;
    s->r.request_id = keep(s->request_id, sizeof(s->request_id), r->request_id);
    s->r.model = keep(s->model, sizeof(s->model), r->model);
    s->r.route = keep(s->route, sizeof(s->route), r->route);
    s->r.finish = keep(s->finish, sizeof(s->finish), r->finish);
}

static void put_hex(struct buf *out, const uint8_t *bytes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) buf_printf(out, "%02x", bytes[i]);
}

/* `count` attributes were written; a comma precedes each but the first. */
struct attributes {
    struct buf *out;
    uint32_t count;
};

static void begin_attribute(struct attributes *a, const char *key) {
    buf_printf(a->out, "%s{\"key\":\"%s\",\"value\":", a->count++ ? "," : "", key);
}

static void put_text(struct attributes *a, const char *key, const char *value) {
    if (!value[0]) return;
    begin_attribute(a, key);
    buf_put_text(a->out, "{\"stringValue\":");
    buf_put_json_string(a->out, str_of(value));
    buf_put_text(a->out, "}}");
}

/* OTLP writes 64-bit integers as strings. */
static void put_int(struct attributes *a, const char *key, int64_t value) {
    begin_attribute(a, key);
    buf_printf(a->out, "{\"intValue\":\"%lld\"}}", (long long)value);
}

static void put_real(struct attributes *a, const char *key, double value) {
    begin_attribute(a, key);
    buf_printf(a->out, "{\"doubleValue\":%.9g}}", value);
}

/* Seconds between two moments, if both are known. */
static void put_time(struct attributes *a, const char *key, int64_t from_us, int64_t to_us) {
    if (from_us > 0 && to_us >= from_us) put_real(a, key, (double)(to_us - from_us) / 1e6);
}

static void put_attributes(struct buf *out, const struct trace_request *r) {
    struct attributes a = {out, 0};
    put_text(&a, "gen_ai.request.id", r->request_id);
    put_text(&a, "gen_ai.request.model", r->model);
    put_text(&a, "gen_ai.response.model", r->model);
    put_text(&a, "http.route", r->route);
    put_int(&a, "http.response.status_code", r->status);
    if (r->max_tokens) put_int(&a, "gen_ai.request.max_tokens", r->max_tokens);
    put_int(&a, "gen_ai.request.n", r->n ? r->n : 1);
    put_real(&a, "gen_ai.request.temperature", r->temperature);
    put_real(&a, "gen_ai.request.top_p", r->top_p);
    put_int(&a, "gen_ai.usage.prompt_tokens", r->prompt_tokens);
    put_int(&a, "gen_ai.usage.completion_tokens", r->completion_tokens);
    put_int(&a, "gen_ai.usage.cached_tokens", r->cached_tokens);
    put_text(&a, "gen_ai.response.finish_reason", r->finish);
    put_time(&a, "gen_ai.latency.time_in_queue", r->arrived_us, r->started_us);
    put_time(&a, "gen_ai.latency.time_to_first_token", r->arrived_us, r->first_token_us);
    put_time(&a, "gen_ai.latency.time_in_model_prefill", r->started_us, r->first_token_us);
    put_time(&a, "gen_ai.latency.time_in_model_decode", r->first_token_us, r->finished_us);
    put_time(&a, "gen_ai.latency.e2e", r->arrived_us, r->finished_us);
}

/* The fields from the name to the times; `own` is the id of the span. */
static void begin_span(struct buf *out, const struct trace_request *r, const char *name, int kind,
                       const uint8_t *parent, uint8_t own[ID_BYTES]) {
    draw(own, ID_BYTES);
    buf_put_text(out, "{\"traceId\":\"");
    put_hex(out, r->id.trace, sizeof(r->id.trace));
    buf_put_text(out, "\",\"spanId\":\"");
    put_hex(out, own, ID_BYTES);
    if (!is_zero(parent, ID_BYTES)) {
        buf_put_text(out, "\",\"parentSpanId\":\"");
        put_hex(out, parent, ID_BYTES);
    }
    buf_printf(out, "\",\"name\":\"%s\",\"kind\":%d", name, kind);
}

static void put_times(struct buf *out, int64_t from_us, int64_t to_us) {
    buf_printf(out, ",\"startTimeUnixNano\":\"%lld000\",\"endTimeUnixNano\":\"%lld000\"",
               (long long)from_us, (long long)to_us);
}

static void put_child(struct buf *out, const struct trace_request *r, const char *name,
                      const uint8_t *parent, int64_t from_us, int64_t to_us) {
    uint8_t own[ID_BYTES];
    if (from_us <= 0 || to_us < from_us) return;
    buf_put_char(out, ',');
    begin_span(out, r, name, KIND_INTERNAL, parent, own);
    put_times(out, from_us, to_us);
    buf_put_char(out, '}');
}

/* A request that ended while it queued or before its first token ends that child, too. */
static int64_t end_of(int64_t at_us, const struct trace_request *r) {
    return at_us > 0 ? at_us : r->finished_us;
}

static void put_request(struct buf *out, const struct trace_request *r) {
    uint8_t own[ID_BYTES];
    begin_span(out, r, "llm_request", KIND_SERVER, r->id.parent, own);
    put_times(out, r->arrived_us, r->finished_us);
    buf_put_text(out, ",\"attributes\":[");
    put_attributes(out, r);
    buf_put_char(out, ']');
    if (r->status >= 500) buf_printf(out, ",\"status\":{\"code\":%d}", STATUS_ERROR);
    buf_put_char(out, '}');
    put_child(out, r, "queue", own, r->arrived_us, end_of(r->started_us, r));
    put_child(out, r, "prefill", own, r->started_us, end_of(r->first_token_us, r));
    put_child(out, r, "decode", own, r->first_token_us, r->finished_us);
}

void spans_put(const struct span *spans, uint32_t count, const char *service_name,
               struct buf *out) {
    struct attributes resource = {out, 0};
    buf_put_text(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    put_text(&resource, "service.name", service_name);
    put_text(&resource, "service.version", JITNEY_VERSION);
    buf_put_text(out,
                 "]},\"scopeSpans\":[{\"scope\":{\"name\":\"jitney\",\"version\":\"" JITNEY_VERSION
                 "\"},\"spans\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) buf_put_char(out, ',');
        put_request(out, &spans[i].r);
    }
    buf_put_text(out, "]}]}]}");
}
