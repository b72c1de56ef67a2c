/* cli/chat_remote.c - see cli/chat_remote.h. */
#include "cli/chat_remote.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/chat_answer.h"
#include "cli/generated.h"
#include "cli/interrupt.h"
#include "engine/request_run.h"
#include "sample/sampler.h"

enum {
    URL_BYTES = 4096,
    NAME_BYTES = 512,
    BODY_BYTES_MAX = 1 << 25,
    LINE_BYTES_MAX = 1 << 22,
    CONNECT_TIMEOUT_S = 10,
    POLL_MS = 1000,
    HTTP_OK = 200,
};

struct remote {
    CURLM *multi;
    CURL *curl;
    struct curl_slist *headers;
    struct interrupt *interrupt;
    const char *ca_file;
    char url[URL_BYTES]; /* without a slash at its end, without /v1 */
    char model[NAME_BYTES];
    char why[CURL_ERROR_SIZE]; /* the error message of libcurl */
};

/* One request and its response. */
struct transfer {
    struct remote *remote;
    struct chat_answer *answer; /* NULL: the body is wanted whole */
    struct request_usage *usage;
    struct buf line; /* of the stream */
    struct buf body; /* whole, or of an error */
    int64_t sent_us, first_us;
    bool stopped; /* by Ctrl-C */
    enum status status;
    struct err *err;
};

/* ---- the response ---- */

static void take_usage(struct transfer *t, const struct json *usage) {
    if (json_kind(usage) != JS_MAP) return;
    t->usage->prompt_tokens = (uint32_t)json_int(json_get(usage, "prompt_tokens"), 0);
    t->usage->completion_tokens = (uint32_t)json_int(json_get(usage, "completion_tokens"), 0);
    t->usage->cached_tokens =
        (uint32_t)json_int(json_path(usage, "prompt_tokens_details.cached_tokens"), 0);
}

/* `delta` is {"index", "id", "function": {"name", "arguments"}}. */
static enum status take_call(struct transfer *t, const struct json *delta) {
    const struct json *function = json_get(delta, "function");
    const struct call_piece piece = {
        .index = json_int(json_get(delta, "index"), (int64_t)t->answer->call_count),
        .id = json_str(json_get(delta, "id")),
        .name = json_str(json_get(function, "name")),
        .args = json_str(json_get(function, "arguments"))};
    return chat_answer_take_call(t->answer, &piece, t->err);
}

static enum status take_delta(struct transfer *t, const struct json *delta) {
    struct str thought = json_str(json_get(delta, "reasoning_content"));
    struct str text = json_str(json_get(delta, "content"));
    const struct json *calls = json_get(delta, "tool_calls");
    if (thought.len == 0 && text.len == 0 && json_count(calls) == 0) return ST_OK;
    if (t->first_us == 0) t->first_us = clock_now(&clock_real);
    if (!chat_answer_take_thought(t->answer, thought)) return ST_CANCELLED;
    if (!chat_answer_take_text(t->answer, text)) return ST_CANCELLED;
    for (size_t i = 0; i < json_count(calls); i++) TRY(take_call(t, json_at(calls, i)));
    return ST_OK;
}

static enum status take_chunk(struct transfer *t, const struct json *chunk) {
    const struct json *fault = json_get(chunk, "error");
    if (json_kind(fault) == JS_MAP)
        return err_set(t->err, ST_UNAVAILABLE, "the server ended the answer: %.*s",
                       STR_ARG(json_str(json_get(fault, "message"))));
    const struct json *choice = json_at(json_get(chunk, "choices"), 0);
    TRY(take_delta(t, json_get(choice, "delta")));
    if (str_is(json_str(json_get(choice, "finish_reason")), "length"))
        t->usage->finish = FINISH_LENGTH;
    take_usage(t, json_get(chunk, "usage"));
    return ST_OK;
}

/* A line of the stream. Only lines that begin with "data:" matter here. */
static enum status take_line(struct transfer *t, struct str line) {
    struct json *chunk = NULL;
    struct err why = {0};
    if (!str_starts(line, STR("data:"))) return ST_OK;
    struct str data = str_trim(str_skip(line, 5));
    if (str_is(data, "[DONE]")) return ST_OK;
    if (json_parse(data, &json_limits_request, &chunk, &why) != ST_OK)
        return err_set(t->err, ST_BAD, "the server's stream is damaged: %s", why.text);
    enum status st = take_chunk(t, chunk);
    json_destroy(chunk);
    return st;
}

static enum status take_stream(struct transfer *t, struct str bytes) {
    while (bytes.len > 0) {
        const char *newline = memchr(bytes.ptr, '\n', bytes.len);
        size_t some = newline ? (size_t)(newline - bytes.ptr) : bytes.len;
        buf_put_str(&t->line, str_take(bytes, some));
        if (buf_status(&t->line) != ST_OK)
            return err_set(t->err, ST_BAD, "the server's stream has too long a line");
        bytes = str_skip(bytes, newline ? some + 1 : some);
        if (!newline) break;
        TRY(take_line(t, buf_str(&t->line)));
        buf_clear(&t->line);
    }
    return ST_OK;
}

static long response_code(const struct remote *r) {
    long code = 0;
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *ctx) {
    struct transfer *t = ctx;
    struct str more = {bytes, size * count};
    if (t->answer && response_code(t->remote) == HTTP_OK) {
        t->status = take_stream(t, more);
        return t->status == ST_OK ? more.len : 0;
    }
    buf_put_str(&t->body, more);
    return buf_status(&t->body) == ST_OK ? more.len : 0;
}

/* ---- a request ---- */

static enum status status_of_code(struct transfer *t, long code) {
    struct json *doc = NULL;
    struct str said = {0};
    if (json_parse(buf_str(&t->body), &json_limits_request, &doc, NULL) == ST_OK)
        said = json_str(json_path(doc, "error.message"));
    enum status st = ST_BAD;
    if (code == 429 || code >= 500) st = ST_UNAVAILABLE;
    if (code == 401 || code == 403 || code == 404) st = ST_MISSING;
    if (said.len > 0)
        err_set(t->err, st, "%s: %.*s%s", t->remote->url, STR_ARG(said),
                code == 401 ? "; set JITNEY_API_KEY to your key" : "");
    else
        err_set(t->err, st, "%s answered HTTP %ld", t->remote->url, code);
    json_destroy(doc);
    return st;
}

static const char *advice(CURLcode rc) {
    if (rc == CURLE_COULDNT_CONNECT) return "; \"jitney serve MODEL\" starts a server";
    if (rc == CURLE_PEER_FAILED_VERIFICATION)
        return "; SSL_CERT_FILE names a file of certificates to trust";
    return "";
}

static enum status status_of_transfer(struct transfer *t, CURLcode rc) {
    const struct remote *r = t->remote;
    if (t->stopped || t->status == ST_CANCELLED) return ST_OK;
    if (t->status != ST_OK) return t->status;
    if (rc != CURLE_OK)
        return err_set(t->err, ST_UNAVAILABLE, "%s: %s%s", r->url,
                       r->why[0] ? r->why : curl_easy_strerror(rc), advice(rc));
    long code = response_code(r);
    return code == HTTP_OK ? ST_OK : status_of_code(t, code);
}

/* Wait until the response has ended or Ctrl-C is pressed. */
static CURLcode wait_for_end(struct transfer *t) {
    struct remote *r = t->remote;
    struct curl_waitfd also = {.fd = interrupt_fd(r->interrupt), .events = CURL_WAIT_POLLIN};
    int running = 1, left;
    while (!t->stopped) {
        if (curl_multi_perform(r->multi, &running) != CURLM_OK) return CURLE_FAILED_INIT;
        if (!running) break;
        curl_multi_poll(r->multi, &also, 1, POLL_MS, NULL);
        t->stopped = interrupt_take(r->interrupt);
    }
    const CURLMsg *m = curl_multi_info_read(r->multi, &left);
    return m && m->msg == CURLMSG_DONE ? m->data.result : CURLE_OK;
}

static enum status transfer(struct transfer *t, const char *path, const struct buf *post) {
    struct remote *r = t->remote;
    char url[URL_BYTES + 64];
    snprintf(url, sizeof(url), "%s%s", r->url, path);
    curl_easy_reset(r->curl);
    curl_easy_setopt(r->curl, CURLOPT_URL, url);
    curl_easy_setopt(r->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(r->curl, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    curl_easy_setopt(r->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(r->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(r->curl, CURLOPT_ERRORBUFFER, r->why);
    curl_easy_setopt(r->curl, CURLOPT_USERAGENT, "jitney/" JITNEY_VERSION);
    curl_easy_setopt(r->curl, CURLOPT_HTTPHEADER, r->headers);
    if (r->ca_file) curl_easy_setopt(r->curl, CURLOPT_CAINFO, r->ca_file);
    if (post) {
        curl_easy_setopt(r->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)post->len);
        curl_easy_setopt(r->curl, CURLOPT_POSTFIELDS, post->ptr);
    }
    curl_easy_setopt(r->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(r->curl, CURLOPT_WRITEDATA, t);
    r->why[0] = 0;
    buf_init(&t->line, LINE_BYTES_MAX);
    buf_init(&t->body, LINE_BYTES_MAX);
    t->sent_us = clock_now(&clock_real);
    if (curl_multi_add_handle(r->multi, r->curl) != CURLM_OK)
        return err_set(t->err, ST_NOMEM, "libcurl refused the request");
    CURLcode rc = wait_for_end(t);
    enum status st = status_of_transfer(t, rc);
    curl_multi_remove_handle(r->multi, r->curl);
    return st;
}

static void transfer_deinit(struct transfer *t) {
    buf_deinit(&t->line);
    buf_deinit(&t->body);
}

/* ---- opening ---- */

static enum status choose_model(struct remote *r, struct str list, struct err *err) {
    struct json *doc = NULL;
    struct err why = {0};
    if (json_parse(list, &json_limits_request, &doc, &why) != ST_OK)
        return err_set(err, ST_BAD, "%s: GET /v1/models did not return a list of models: %s",
                       r->url, why.text);
    struct str id = json_str(json_get(json_at(json_get(doc, "data"), 0), "id"));
    bool fits = id.len > 0 && id.len < sizeof(r->model);
    if (fits) memcpy(r->model, id.ptr, id.len);
    json_destroy(doc);
    return fits ? ST_OK : err_set(err, ST_MISSING, "%s serves no model", r->url);
}

static enum status list_models(struct remote *r, struct err *err) {
    struct transfer t = {.remote = r, .err = err};
    enum status st = transfer(&t, "/v1/models", NULL);
    if (st == ST_OK && t.stopped) st = err_set(err, ST_CANCELLED, "stopped");
    if (st == ST_OK && !r->model[0]) st = choose_model(r, buf_str(&t.body), err);
    transfer_deinit(&t);
    return st;
}

static enum status add_header(struct remote *r, const char *line, struct err *err) {
    struct curl_slist *more = curl_slist_append(r->headers, line);
    if (!more) return err_set(err, ST_NOMEM, "out of memory");
    r->headers = more;
    return ST_OK;
}

static enum status prepare(struct remote *r, const struct remote_options *o, struct err *err) {
    struct str url = str_of(o->url);
    if (!str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
        return err_set(err, ST_BAD, "invalid server address \"%s\"; expected for example %s",
                       o->url, "http://127.0.0.1:8080");
    while (str_ends(url, STR("/"))) url.len--;
    if (str_ends(url, STR("/v1"))) url.len -= 3;
    if (url.len >= sizeof(r->url)) return err_set(err, ST_BAD, "the address is too long");
    memcpy(r->url, url.ptr, url.len);
    if (o->model) snprintf(r->model, sizeof(r->model), "%s", o->model);
    r->curl = curl_easy_init();
    r->multi = curl_multi_init();
    if (!r->curl || !r->multi) return err_set(err, ST_NOMEM, "out of memory starting libcurl");
    TRY(add_header(r, "content-type: application/json", err));
    /* A body is small and the server is near: waiting for "100 Continue" only costs time. */
    TRY(add_header(r, "expect:", err));
    char line[URL_BYTES];
    if (o->key &&
        (size_t)snprintf(line, sizeof(line), "authorization: Bearer %s", o->key) < sizeof(line))
        TRY(add_header(r, line, err));
    return ST_OK;
}

enum status remote_open(const struct remote_options *options, struct remote **out,
                        struct err *err) {
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, ST_UNAVAILABLE, "libcurl cannot be started");
    struct remote *r = mem_zalloc(sizeof(*r));
    if (!r) {
        curl_global_cleanup();
        return err_set(err, ST_NOMEM, "out of memory");
    }
    r->interrupt = options->interrupt;
    r->ca_file = options->ca_file;
    enum status st = prepare(r, options, err);
    if (st == ST_OK) st = list_models(r, err);
    if (st != ST_OK) {
        remote_close(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

void remote_close(struct remote *r) {
    if (!r) return;
    curl_easy_cleanup(r->curl);
    curl_multi_cleanup(r->multi);
    curl_slist_free_all(r->headers);
    mem_free(r);
    curl_global_cleanup();
}

const char *remote_model(const struct remote *r) { return r->model; }

/* ---- sending a request ---- */

static void put_real(struct buf *out, const char *name, float value) {
    buf_printf(out, ",\"%s\":", name);
    put_json_number(out, (double)value);
}

static void put_biases(struct buf *out, const struct sample_params *p) {
    if (p->bias_count == 0) return;
    buf_put_text(out, ",\"logit_bias\":{");
    for (uint32_t i = 0; i < p->bias_count; i++) {
        /* The wire knows no infinity; its -100 means never, too. */
        double bias = p->bias[i].bias > -100.0f ? (double)p->bias[i].bias : -100.0;
        buf_printf(out, "%s\"%d\":%.9g", i ? "," : "", p->bias[i].token, bias);
    }
    buf_put_char(out, '}');
}

/* Only settings that are not "off", so that any OpenAI-compatible server accepts them. */
static void put_sampling(struct buf *out, const struct sample_params *p) {
    put_real(out, "temperature", p->temperature);
    if (p->top_p < 1.0f) put_real(out, "top_p", p->top_p);
    if (p->top_k > 0) buf_printf(out, ",\"top_k\":%u", p->top_k);
    if (p->min_p > 0.0f) put_real(out, "min_p", p->min_p);
    if (p->repetition_penalty != 1.0f) put_real(out, "repetition_penalty", p->repetition_penalty);
    if (p->presence_penalty != 0.0f) put_real(out, "presence_penalty", p->presence_penalty);
    if (p->frequency_penalty != 0.0f) put_real(out, "frequency_penalty", p->frequency_penalty);
    buf_printf(out, ",\"seed\":%llu", (unsigned long long)p->seed);
    put_biases(out, p);
}

static void put_request(const struct remote *r, const struct remote_request *q, struct buf *out) {
    buf_put_text(out, "{\"model\":");
    buf_put_json_string(out, str_of(r->model));
    buf_put_text(out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    put_sampling(out, q->sample);
    if (q->tools.len > 0) {
        buf_put_text(out, ",\"tools\":");
        buf_put_str(out, q->tools);
    }
    if (q->max_tokens > 0) buf_printf(out, ",\"max_completion_tokens\":%u", q->max_tokens);
    buf_put_text(out, ",\"messages\":");
    buf_put_str(out, q->messages);
    buf_put_char(out, '}');
}

static void note_times(const struct transfer *t) {
    int64_t end_us = clock_now(&clock_real);
    int64_t first_us = t->first_us ? t->first_us : end_us;
    t->usage->prompt_us = first_us - t->sent_us;
    t->usage->decode_us = end_us - first_us;
    if (t->stopped) t->usage->finish = FINISH_CANCELLED;
}

enum status remote_generate(struct remote *r, const struct remote_request *request,
                            struct chat_answer *answer, struct request_usage *usage,
                            struct err *err) {
    struct transfer t = {.remote = r, .answer = answer, .usage = usage, .err = err};
    struct buf body;
    *usage = (struct request_usage){.finish = FINISH_STOP};
    buf_init(&body, BODY_BYTES_MAX);
    put_request(r, request, &body);
    enum status st = buf_status(&body);
    if (st == ST_OK)
        st = transfer(&t, "/v1/chat/completions", &body);
    else
        err_set(err, st, "the conversation is too long to send");
    note_times(&t);
    transfer_deinit(&t);
    buf_deinit(&body);
    return st;
}
