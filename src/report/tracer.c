/* report/tracer.c - see report/tracer.h.
 *
 * A ring of spans under a mutex, and a thread that takes batches out of it and sends them. The
 * ring has a fixed size: a span that does not fit is dropped and counted. A batch that the
 * collector does not accept is dropped, and the next one waits longer.
 */
#include "report/tracer.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/env.h"
#include "report/trace_text.h"

enum {
    RING_SPANS = 1024,
    BATCH_SPANS = 128,
    BODY_BYTES_MAX = 8 << 20,
    URL_BYTES = 1024,
    NAME_BYTES = 128,
    POLL_MS = 100,
};
static const int64_t BATCH_WAIT_US = 1000000;   /* the longest wait for a full batch */
static const int64_t SEND_LIMIT_US = 5000000;   /* one export */
static const int64_t FLUSH_AT_END_US = 2000000; /* for what is left at the end */
static const int64_t PAUSE_US_MAX = 30000000;   /* between tries to reach an absent collector */

/* Which traces are sent: all, none, or a share of them; with or without the parent's decision. */
struct sampler {
    double share;
    bool follows_parent;
};

struct tracer {
    char url[URL_BYTES], service_name[NAME_BYTES];
    struct sampler sampler;
    struct curl_slist *headers;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct span *ring; /* RING_SPANS, under the lock */
    uint32_t head, count;
    uint64_t lost;
    bool is_ending;
    int64_t end_by_us;

    /* Owned by the thread. */
    pthread_t thread;
    bool is_running;
    struct span *batch; /* BATCH_SPANS */
    struct buf body;
    CURLM *multi;
    CURL *easy;
};

/* --- settings ---------------------------------------------------------------------------- */

static bool ends_with_path(struct str url) { return str_ends(url, STR("/v1/traces")); }

static enum status set_url(struct tracer *t, const char *endpoint, bool is_whole, struct err *err) {
    struct str url = str_of(endpoint);
    if (!str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
        return err_set(err, ST_BAD, "traces go to http:// or https://, not to \"%.100s\"",
                       endpoint);
    while (url.len > 0 && url.ptr[url.len - 1] == '/' && !is_whole) url.len--;
    int len = snprintf(t->url, sizeof(t->url), "%.*s%s", STR_ARG(url),
                       is_whole || ends_with_path(url) ? "" : "/v1/traces");
    if (len > 0 && len < URL_BYTES) return ST_OK;
    return err_set(err, ST_BAD, "the address that traces go to is too long");
}

static enum status read_sampler(struct sampler *out, struct err *err) {
    const char *name = env_find("OTEL_TRACES_SAMPLER"), *arg = env_find("OTEL_TRACES_SAMPLER_ARG");
    struct str word = str_of(name ? name : "parentbased_always_on");
    *out = (struct sampler){.share = 1};
    if (str_starts(word, STR("parentbased_"))) {
        out->follows_parent = true;
        word = str_skip(word, sizeof("parentbased_") - 1);
    }
    if (str_is(word, "always_on")) return ST_OK;
    if (str_is(word, "always_off")) {
        out->share = 0;
        return ST_OK;
    }
    bool ok = str_is(word, "traceidratio") && (!arg || str_to_f64(str_of(arg), &out->share)) &&
              out->share >= 0 && out->share <= 1;
    if (ok) return ST_OK;
    return err_set(err, ST_BAD,
                   "OTEL_TRACES_SAMPLER is \"%.50s\"; it must be [parentbased_]always_on, "
                   "always_off or traceidratio with OTEL_TRACES_SAMPLER_ARG from 0 to 1",
                   name ? name : "");
}

static enum status add_header(struct tracer *t, const char *line, struct err *err) {
    struct curl_slist *longer = curl_slist_append(t->headers, line);
    if (!longer) return err_set(err, ST_NOMEM, "out of memory");
    t->headers = longer;
    return ST_OK;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Append with %XX decoded; characters that would end the header line are left out. */
static void put_decoded(struct buf *out, struct str s) {
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        int high = i + 2 < s.len ? hex_digit(s.ptr[i + 1]) : -1;
        int low = i + 2 < s.len ? hex_digit(s.ptr[i + 2]) : -1;
        if (c == '%' && high >= 0 && low >= 0) {
            c = (char)(16 * high + low);
            i += 2;
        }
        if ((unsigned char)c >= ' ' && c != 0x7F) buf_put_char(out, c);
    }
}

static enum status add_pair(struct tracer *t, struct str pair, struct err *err) {
    const char *equals = memchr(pair.ptr, '=', pair.len);
    if (!equals) return ST_OK;
    struct str name = str_take(pair, (size_t)(equals - pair.ptr));
    buf_clear(&t->body);
    put_decoded(&t->body, str_trim(name));
    buf_put_text(&t->body, ": ");
    put_decoded(&t->body, str_trim(str_skip(pair, name.len + 1)));
    if (buf_status(&t->body) != ST_OK) return err_set(err, ST_NOMEM, "out of memory");
    return add_header(t, buf_text(&t->body), err);
}

/* "name=value,name=value", with %XX for special characters, becomes headers. */
static enum status add_headers(struct tracer *t, struct err *err) {
    const char *text = env_find("OTEL_EXPORTER_OTLP_HEADERS");
    TRY(add_header(t, "Content-Type: application/json", err));
    for (struct str rest = str_of(text ? text : ""); rest.len > 0;) {
        const char *comma = memchr(rest.ptr, ',', rest.len);
        struct str pair = str_take(rest, comma ? (size_t)(comma - rest.ptr) : rest.len);
        TRY(add_pair(t, pair, err));
        rest = str_skip(rest, pair.len + (comma ? 1 : 0));
    }
    return ST_OK;
}

/* *is_on: an endpoint is configured. */
static enum status read_settings(struct tracer *t, const char *endpoint, const char *service_name,
                                 bool *is_on, struct err *err) {
    const char *own = env_find("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    const char *shared = env_find("OTEL_EXPORTER_OTLP_ENDPOINT");
    const char *name = env_find("OTEL_SERVICE_NAME"), *off = env_find("OTEL_SDK_DISABLED");
    bool is_whole = !endpoint && own;
    if (!endpoint) endpoint = own ? own : shared;
    *is_on = endpoint && !(off && strcmp(off, "true") == 0);
    if (!*is_on) return ST_OK;
    snprintf(t->service_name, sizeof(t->service_name), "%s", name ? name : service_name);
    TRY(set_url(t, endpoint, is_whole, err));
    TRY(read_sampler(&t->sampler, err));
    return add_headers(t, err);
}

/* --- sending ----------------------------------------------------------------------------- */

static size_t ignore_body(char *bytes, size_t size, size_t count, void *ctx) {
    (void)bytes;
    (void)ctx;
    return size * count;
}

static int64_t deadline_of(struct tracer *t, int64_t began_us) {
    pthread_mutex_lock(&t->lock);
    int64_t by_us = began_us + SEND_LIMIT_US;
    if (t->is_ending && t->end_by_us < by_us) by_us = t->end_by_us;
    pthread_mutex_unlock(&t->lock);
    return by_us;
}

/* Run the transfer that was added; false if it fails or takes too long. */
static bool run_transfer(struct tracer *t) {
    int64_t began_us = clock_now(&clock_real);
    int running = 1;
    while (running) {
        if (curl_multi_perform(t->multi, &running) != CURLM_OK) return false;
        if (!running) break;
        if (clock_now(&clock_real) >= deadline_of(t, began_us)) return false;
        if (curl_multi_poll(t->multi, NULL, 0, POLL_MS, NULL) != CURLM_OK) return false;
    }
    int left;
    CURLMsg *message = curl_multi_info_read(t->multi, &left);
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    return message && message->data.result == CURLE_OK && status >= 200 && status < 300;
}

static bool send_batch(struct tracer *t, uint32_t count) {
    buf_clear(&t->body);
    spans_put(t->batch, count, t->service_name, &t->body);
    if (buf_status(&t->body) != ST_OK) return false;
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body.len);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->body.ptr);
    if (curl_multi_add_handle(t->multi, t->easy) != CURLM_OK) return false;
    bool ok = run_transfer(t);
    curl_multi_remove_handle(t->multi, t->easy);
    return ok;
}

static void wait_until(struct tracer *t, int64_t at_us) {
    struct timespec at = {.tv_sec = (time_t)(at_us / 1000000),
                          .tv_nsec = (long)(at_us % 1000000 * 1000)};
    pthread_cond_timedwait(&t->wake, &t->lock, &at);
}

/* Is there a full batch? Is there anything at all? */
struct pace {
    int64_t full_us, any_us;
};

/* Wait for a batch, or for the end, and take it. 0: the end. */
static uint32_t take_batch(struct tracer *t, struct pace pace) {
    pthread_mutex_lock(&t->lock);
    int64_t now_us = clock_now(&clock_real);
    while (!t->is_ending) {
        int64_t due_us = t->count >= BATCH_SPANS ? pace.full_us : pace.any_us;
        if (t->count > 0 && now_us >= due_us) break;
        wait_until(t, now_us < due_us ? due_us : now_us + BATCH_WAIT_US);
        now_us = clock_now(&clock_real);
    }
    uint32_t count = t->count < BATCH_SPANS ? t->count : BATCH_SPANS;
    if (t->is_ending && now_us >= t->end_by_us) count = 0;
    for (uint32_t i = 0; i < count; i++)
        span_fill(&t->batch[i], &t->ring[(t->head + i) % RING_SPANS].r);
    t->head = (t->head + count) % RING_SPANS;
    t->count -= count;
    pthread_mutex_unlock(&t->lock);
    return count;
}

static void lose(struct tracer *t, uint32_t count) {
    pthread_mutex_lock(&t->lock);
    t->lost += count;
    pthread_mutex_unlock(&t->lock);
}

static void *run(void *ctx) {
    struct tracer *t = ctx;
    int64_t pause_us = BATCH_WAIT_US;
    struct pace pace = {.any_us = clock_now(&clock_real) + BATCH_WAIT_US};
    for (uint32_t count; (count = take_batch(t, pace)) > 0;) {
        bool ok = send_batch(t, count);
        if (!ok) lose(t, count);
        pause_us = ok ? BATCH_WAIT_US : pause_us * 2 > PAUSE_US_MAX ? PAUSE_US_MAX : pause_us * 2;
        int64_t now_us = clock_now(&clock_real);
        pace =
            (struct pace){.full_us = ok ? now_us : now_us + pause_us, .any_us = now_us + pause_us};
    }
    return NULL;
}

/* --- create and destroy ------------------------------------------------------------------ */

static void set_options(struct tracer *t) {
    curl_easy_setopt(t->easy, CURLOPT_URL, t->url);
    curl_easy_setopt(t->easy, CURLOPT_POST, 1L);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, ignore_body);
    curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(t->easy, CURLOPT_USERAGENT, "jitney/" JITNEY_VERSION);
}

/* The mutex, and the condition, which waits on the monotonic clock. */
static void init_lock(struct tracer *t) {
    pthread_condattr_t attr;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->wake, &attr);
    pthread_condattr_destroy(&attr);
    buf_init(&t->body, BODY_BYTES_MAX);
}

static enum status start(struct tracer *t, struct err *err) {
    t->ring = mem_zalloc_array(RING_SPANS, sizeof(t->ring[0]));
    t->batch = mem_zalloc_array(BATCH_SPANS, sizeof(t->batch[0]));
    t->multi = curl_multi_init();
    t->easy = curl_easy_init();
    if (!t->ring || !t->batch || !t->multi || !t->easy)
        return err_set(err, ST_NOMEM, "out of memory");
    set_options(t);
    int failed = pthread_create(&t->thread, NULL, run, t);
    if (failed) return err_set(err, ST_UNAVAILABLE, "no thread for traces: %s", strerror(failed));
    t->is_running = true;
    return ST_OK;
}

enum status tracer_create(const char *endpoint, const char *service_name, struct tracer **out,
                          struct err *err) {
    *out = NULL;
    struct tracer *t = mem_zalloc(sizeof(*t));
    if (!t) return err_set(err, ST_NOMEM, "out of memory");
    init_lock(t);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    bool is_on = false;
    enum status st = read_settings(t, endpoint, service_name, &is_on, err);
    if (st == ST_OK && is_on) st = start(t, err);
    if (st == ST_OK && is_on)
        *out = t;
    else
        tracer_destroy(t);
    return st;
}

static void stop(struct tracer *t) {
    pthread_mutex_lock(&t->lock);
    t->is_ending = true;
    t->end_by_us = clock_now(&clock_real) + FLUSH_AT_END_US;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    curl_multi_wakeup(t->multi);
    pthread_join(t->thread, NULL);
}

void tracer_destroy(struct tracer *t) {
    if (!t) return;
    if (t->is_running) stop(t);
    curl_easy_cleanup(t->easy);
    if (t->multi) curl_multi_cleanup(t->multi);
    curl_slist_free_all(t->headers);
    curl_global_cleanup();
    buf_deinit(&t->body);
    mem_free(t->ring);
    mem_free(t->batch);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

/* --- adding ------------------------------------------------------------------------------ */

/* All services choose the same traces: seven bytes of the id are compared with the share. */
static bool is_wanted(const struct sampler *s, const struct trace_id *id) {
    uint8_t has_parent = 0;
    for (uint32_t i = 0; i < sizeof(id->parent); i++) has_parent |= id->parent[i];
    if (s->follows_parent && has_parent) return id->is_sampled;
    uint64_t number = 0;
    for (uint32_t i = 9; i < sizeof(id->trace); i++) number = number << 8 | id->trace[i];
    return (double)number < s->share * (double)(1ull << 56);
}

void tracer_add(struct tracer *t, const struct trace_request *r) {
    if (!t || !is_wanted(&t->sampler, &r->id)) return;
    pthread_mutex_lock(&t->lock);
    if (t->count == RING_SPANS) {
        t->lost++;
    } else {
        span_fill(&t->ring[(t->head + t->count) % RING_SPANS], r);
        t->count++;
    }
    if (t->count == 1 || t->count == BATCH_SPANS) pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

uint64_t tracer_lost(const struct tracer *t) {
    if (!t) return 0;
    struct tracer *own = (struct tracer *)t; /* only the mutex changes */
    pthread_mutex_lock(&own->lock);
    uint64_t lost = own->lost;
    pthread_mutex_unlock(&own->lock);
    return lost;
}
