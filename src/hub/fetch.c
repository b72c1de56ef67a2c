/* hub/fetch.c - see hub/fetch.h for the contract.
 *
 * One curl handle is used for all transfers, so that connections stay open. Headers are collected
 * for each response (a redirect gives several); when the first byte of the body arrives, the
 * partial file on disk is made to fit the response.
 */
#define _DEFAULT_SOURCE
#include "hub/fetch.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "hub/partial_file.h"
#include "hub/progress.h"

enum {
    REDIRECTS_MAX = 8,
    CONNECT_TIMEOUT_S = 30,
    PAUSE_MS_MAX = 30 * 1000,
    PROGRESS_BYTES_MIN = 1 << 16, /* a try that receives less counts as failed */
    HTTP_OK = 200,
    HTTP_PARTIAL = 206,
    HTTP_RANGE_REFUSED = 416,
};

struct fetch {
    struct fetch_settings settings;
    CURL *curl;
    char why[CURL_ERROR_SIZE]; /* curl's error message */
};

/* The headers of the latest response. */
struct response {
    char etag[PARTIAL_FILE_TAG_BYTES], modified[PARTIAL_FILE_TAG_BYTES];
    char next_url[FETCH_URL_BYTES];
    uint64_t range_start; /* of a Content-Range; UINT64_MAX without one */
};

struct transfer {
    struct fetch *fetch;
    const char *url;
    struct response response;
    struct partial_file *file; /* or NULL: into text */
    struct buf *text;
    const struct fetch_item *item;
    struct progress *progress;
    uint64_t base_bytes;
    bool started;           /* start_body has run for this response */
    bool stalled;           /* ended because nothing arrived for stall_s */
    curl_off_t moved_bytes; /* of this request's body, when bytes last arrived ... */
    int64_t moved_us;       /* ... and when that was */
    enum status status;     /* why a callback stopped the transfer */
    struct err *err;
};

/* --- addresses -------------------------------------------------------------------------- */

bool fetch_url_ok(const char *url) {
    struct str s = str_of(url);
    for (const char *p = url; *p; p++)
        if ((unsigned char)*p <= 0x20 || *p == 0x7F) return false;
    if (s.len >= FETCH_URL_BYTES) return false;
    return str_starts(s, STR("http://")) || str_starts(s, STR("https://")) ||
           str_starts(s, STR("file:///"));
}

bool fetch_url_is_plain(const char *url) {
    static const char *const own[] = {"localhost", "127.", "[::1]"};
    char shown[FETCH_URL_BYTES];
    fetch_public_url(url, shown, sizeof(shown)); /* without user and password */
    struct str s = str_of(shown);
    if (!str_starts(s, STR("http://"))) return false;
    struct str host = str_skip(s, 7);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (!str_starts(host, str_of(own[i]))) continue;
        size_t len = strlen(own[i]);
        size_t name_len = strcspn(host.ptr, "/:");
        bool digits = strspn(host.ptr, "0123456789.") == name_len; /* not 127.example.org */
        if (i == 1 ? digits : len == host.len || strchr("/:", host.ptr[len])) return false;
    }
    return true;
}

static bool is_file_url(const char *url) { return str_starts(str_of(url), STR("file:")); }

void fetch_public_url(const char *url, char *out, size_t out_bytes) {
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    size_t end = strcspn(url, "?#");
    const char *slash = host + strcspn(host, "/?#");
    const char *rest = host;
    for (const char *p = host; p < slash; p++)
        if (*p == '@') rest = p + 1;
    int rest_bytes = url + end > rest ? (int)(url + end - rest) : 0;
    snprintf(out, out_bytes, "%.*s%.*s", (int)(host - url), url, rest_bytes, rest);
}

static enum status fail(const struct transfer *t, enum status st, const char *what) {
    char url[256];
    fetch_public_url(t->url, url, sizeof(url));
    return err_set(t->err, st, "%s: %s", url, what);
}

/* --- headers ---------------------------------------------------------------------------- */

/* The value of header `name` in `line`, or false. */
static bool header_value(struct str line, const char *name, struct str *value) {
    size_t len = strlen(name);
    if (line.len <= len || line.ptr[len] != ':' || strncasecmp(line.ptr, name, len) != 0)
        return false;
    *value = str_trim(str_skip(line, len + 1));
    return true;
}

static void keep(struct str value, char *out, size_t out_bytes) {
    if (value.len < out_bytes) snprintf(out, out_bytes, "%.*s", STR_ARG(value));
}

/* Content-Range: bytes 100-199/200 */
static void read_range(struct str value, struct response *r) {
    if (!str_starts(value, STR("bytes "))) return;
    value = str_skip(value, 6);
    size_t digits = 0;
    while (digits < value.len && value.ptr[digits] >= '0' && value.ptr[digits] <= '9') digits++;
    uint64_t start;
    if (str_to_u64(str_take(value, digits), &start)) r->range_start = start;
}

/* Link: <https://host/next>; rel="next" */
static void read_link(struct str value, struct response *r) {
    const char *open = memchr(value.ptr, '<', value.len);
    const char *close = memchr(value.ptr, '>', value.len);
    if (!open || !close || close < open) return;
    struct str rest = str_skip(value, (size_t)(close - value.ptr));
    for (size_t i = 0; i + 10 <= rest.len; i++)
        if (strncasecmp(rest.ptr + i, "rel=\"next\"", 10) == 0) {
            struct str url = {open + 1, (size_t)(close - open - 1)};
            if (url.len < sizeof(r->next_url)) {
                memcpy(r->next_url, url.ptr, url.len);
                r->next_url[url.len] = 0;
            }
            return;
        }
}

static size_t on_header(char *bytes, size_t size, size_t count, void *ctx) {
    struct transfer *t = ctx;
    struct str line = {bytes, size * count}, value;
    if (str_starts(line, STR("HTTP/")))
        t->response = (struct response){.range_start = UINT64_MAX}; /* a new response */
    if (header_value(line, "ETag", &value)) keep(value, t->response.etag, PARTIAL_FILE_TAG_BYTES);
    if (header_value(line, "Last-Modified", &value))
        keep(value, t->response.modified, PARTIAL_FILE_TAG_BYTES);
    if (header_value(line, "Content-Range", &value)) read_range(value, &t->response);
    if (header_value(line, "Link", &value)) read_link(value, &t->response);
    return line.len;
}

/* The value for If-Range, which names this version of the file; a weak ETag is not allowed. */
static const char *response_tag(const struct response *r) {
    return r->etag[0] == '"' ? r->etag : r->modified;
}

/* --- body ------------------------------------------------------------------------------- */

static long http_code(const struct transfer *t) {
    long code = 0;
    curl_easy_getinfo(t->fetch->curl, CURLINFO_RESPONSE_CODE, &code);
    return is_file_url(t->url) ? HTTP_OK : code;
}

static bool is_success(long code) { return code == HTTP_OK || code == HTTP_PARTIAL; }

/* The size the whole file will have according to this response; false if it does not say. */
static bool stated_bytes(const struct transfer *t, uint64_t *total) {
    curl_off_t length = -1;
    curl_easy_getinfo(t->fetch->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length < 0) return false;
    *total = partial_file_bytes(t->file) + (uint64_t)length;
    return true;
}

static enum status check_length(const struct transfer *t) {
    uint64_t total;
    if (!stated_bytes(t, &total)) return ST_OK;
    if (t->item->bytes == UINT64_MAX) progress_set_total(t->progress, t->base_bytes + total);
    if (t->item->bytes == UINT64_MAX || total == t->item->bytes) return ST_OK;
    char what[128];
    snprintf(what, sizeof(what), "the server announces %llu bytes, expected %llu",
             (unsigned long long)total, (unsigned long long)t->item->bytes);
    return fail(t, ST_BAD, what);
}

/* All headers are known: make the partial file on disk fit the response. */
static enum status start_body(struct transfer *t) {
    t->started = true;
    if (!t->file) return ST_OK;
    uint64_t have = partial_file_bytes(t->file);
    if (http_code(t) == HTTP_PARTIAL && t->response.range_start != have)
        return fail(t, ST_BAD, "the server sent another range than the one requested");
    if (http_code(t) == HTTP_OK && have > 0) TRY(partial_file_restart(t->file, t->err));
    TRY(check_length(t));
    return partial_file_set_tag(t->file, response_tag(&t->response), t->err);
}

static enum status take_body(struct transfer *t, const char *bytes, size_t len) {
    if (!is_success(http_code(t))) return ST_OK; /* an error page */
    if (!t->started) TRY(start_body(t));
    if (!t->file) {
        buf_put(t->text, bytes, len);
        return buf_status(t->text) == ST_OK
                   ? ST_OK
                   : fail(t, ST_BAD, "the response is longer than allowed");
    }
    if (t->item->bytes != UINT64_MAX && len > t->item->bytes - partial_file_bytes(t->file))
        return fail(t, ST_BAD, "the server sent more bytes than expected");
    TRY(partial_file_write(t->file, bytes, len, t->err));
    progress_update(t->progress, t->base_bytes + partial_file_bytes(t->file));
    return ST_OK;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *ctx) {
    struct transfer *t = ctx;
    t->status = take_body(t, bytes, size * count);
    return t->status == ST_OK ? size * count : 0;
}

/* curl calls it about once a second, even if nothing arrives; nonzero ends the transfer.
 * curl's own low-speed limit averages over several seconds, which is too coarse. */
static int on_tick(void *ctx, curl_off_t total, curl_off_t now, curl_off_t up_total,
                   curl_off_t up_now) {
    (void)total;
    (void)up_total;
    (void)up_now;
    struct transfer *t = ctx;
    int64_t now_us = clock_now(&clock_real);
    if (now != t->moved_bytes) {
        t->moved_bytes = now;
        t->moved_us = now_us;
    }
    if (t->file) progress_update(t->progress, t->base_bytes + partial_file_bytes(t->file));
    t->stalled = now_us - t->moved_us > (int64_t)t->fetch->settings.stall_s * 1000000;
    return t->stalled;
}

/* --- one request ------------------------------------------------------------------------ */

static void set_common(struct fetch *f, struct transfer *t) {
    CURL *c = f->curl;
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, t->url);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "jitney/" JITNEY_VERSION);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https,file");
    /* A redirect may not lead back to this machine's files, nor out of encryption. */
    bool secure = str_starts(str_of(t->url), STR("https:"));
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    uint32_t stall_s = f->settings.stall_s;
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT,
                     (long)(stall_s < CONNECT_TIMEOUT_S ? stall_s : CONNECT_TIMEOUT_S));
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_tick);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, f->why);
    if (f->settings.ca_file) curl_easy_setopt(c, CURLOPT_CAINFO, f->settings.ca_file);
    if (f->settings.bearer && !is_file_url(t->url)) {
        /* curl keeps this from other hosts when it follows a redirect. */
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, f->settings.bearer);
    }
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    f->why[0] = 0;
}

/* Request the rest of a partial file. Without a tag or a checksum nothing proves that the rest
 * belongs to it, so the download starts again. */
static enum status request_rest(struct transfer *t, struct curl_slist **headers) {
    uint64_t have = partial_file_bytes(t->file);
    const char *tag = partial_file_tag(t->file);
    if (have == 0) return ST_OK;
    bool too_much = t->item->bytes != UINT64_MAX && have > t->item->bytes;
    if (is_file_url(t->url) || too_much || (!tag[0] && !t->item->sha256))
        return partial_file_restart(t->file, t->err);
    char range[32], line[PARTIAL_FILE_TAG_BYTES + 16];
    snprintf(range, sizeof(range), "%llu-", (unsigned long long)have);
    curl_easy_setopt(t->fetch->curl, CURLOPT_RANGE, range);
    if (!tag[0]) return ST_OK;
    snprintf(line, sizeof(line), "If-Range: %s", tag);
    *headers = curl_slist_append(NULL, line);
    if (!*headers) return fail(t, ST_NOMEM, "out of memory");
    curl_easy_setopt(t->fetch->curl, CURLOPT_HTTPHEADER, *headers);
    return ST_OK;
}

static bool is_temporary_error(CURLcode rc) {
    switch (rc) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return true;
    default:
        return false;
    }
}

static enum status check_curl(const struct transfer *t, CURLcode rc, bool *again) {
    const char *why = t->fetch->why[0] ? t->fetch->why : curl_easy_strerror(rc);
    *again = t->stalled || is_temporary_error(rc);
    if (rc == CURLE_FILE_COULDNT_READ_FILE) return fail(t, ST_MISSING, "no such file");
    if (rc == CURLE_OUT_OF_MEMORY) return fail(t, ST_NOMEM, "out of memory");
    if (t->stalled) return fail(t, ST_UNAVAILABLE, "the connection stalled");
    return fail(t, ST_UNAVAILABLE, why);
}

static enum status check_code(const struct transfer *t, long code, bool *again) {
    char what[160];
    *again = code == 408 || code == 425 || code == 429 || code >= 500;
    const char *token = t->fetch->settings.bearer
                            ? "not found, or the token in HF_TOKEN has no access to it"
                            : "not found, or it needs a token (set HF_TOKEN)";
    if (code == 401 || code == 403) {
        snprintf(what, sizeof(what), "%s (HTTP %ld)", token, code);
        return fail(t, ST_MISSING, what);
    }
    if (code == 404 || code == 410) {
        snprintf(what, sizeof(what), "not found (HTTP %ld)", code);
        return fail(t, ST_MISSING, what);
    }
    snprintf(what, sizeof(what), "the server answered HTTP %ld", code);
    return fail(t, ST_UNAVAILABLE, what);
}

/* One request. *again: the failure is temporary, so another try may succeed. */
static enum status request_once(struct transfer *t, bool *again) {
    struct curl_slist *headers = NULL;
    *again = false;
    t->started = t->stalled = false;
    t->moved_bytes = 0;
    t->moved_us = clock_now(&clock_real);
    t->status = ST_OK;
    t->response = (struct response){.range_start = UINT64_MAX};
    set_common(t->fetch, t);
    enum status st = t->file ? request_rest(t, &headers) : ST_OK;
    if (st != ST_OK) return st;
    CURLcode rc = curl_easy_perform(t->fetch->curl);
    curl_slist_free_all(headers);

    if (t->status != ST_OK) return t->status;
    if (rc != CURLE_OK) return check_curl(t, rc, again);
    long code = http_code(t);
    if (code == HTTP_RANGE_REFUSED && t->file && partial_file_bytes(t->file) > 0) {
        *again = true; /* from byte 0, so this cannot happen twice */
        TRY(partial_file_restart(t->file, t->err));
        return fail(t, ST_UNAVAILABLE, "the server cannot resume the download");
    }
    if (!is_success(code)) return check_code(t, code, again);
    return t->started ? ST_OK : start_body(t); /* an empty file has no first byte */
}

static uint32_t pause_for(const struct fetch *f, uint32_t tries) {
    curl_off_t asked_s = 0;
    curl_easy_getinfo(f->curl, CURLINFO_RETRY_AFTER, &asked_s);
    uint64_t ms = (uint64_t)f->settings.pause_ms << (tries < 8 ? tries : 8);
    if (asked_s > 0 && (uint64_t)asked_s < PAUSE_MS_MAX / 1000 && ms < (uint64_t)asked_s * 1000)
        ms = (uint64_t)asked_s * 1000;
    return ms > PAUSE_MS_MAX ? PAUSE_MS_MAX : (uint32_t)ms;
}

static void wait_ms(uint32_t ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&left, NULL);
}

/* Requests until one succeeds, one fails permanently, or `try_count` in a row received nothing. */
static enum status request(struct transfer *t) {
    uint32_t tries = 0;
    for (;;) {
        uint64_t had = t->file ? partial_file_bytes(t->file) : 0;
        bool again;
        enum status st = request_once(t, &again);
        if (st == ST_OK || !again) return st;
        if (t->text) buf_clear(t->text);
        bool moved = t->file && partial_file_bytes(t->file) >= had + PROGRESS_BYTES_MIN;
        tries = moved ? 1 : tries + 1;
        if (tries >= t->fetch->settings.try_count) return st;
        wait_ms(pause_for(t->fetch, tries - 1));
    }
}

/* --- entry points ----------------------------------------------------------------------- */

enum status fetch_create(struct fetch **out, const struct fetch_settings *settings,
                         struct err *err) {
    CHECK(settings->try_count > 0);
    CHECK(settings->stall_s > 0);
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, ST_UNAVAILABLE, "cannot initialise libcurl");
    struct fetch *f = mem_zalloc(sizeof(*f));
    if (f) f->curl = curl_easy_init();
    if (!f || !f->curl) {
        mem_free(f);
        curl_global_cleanup();
        return err_set(err, ST_NOMEM, "out of memory starting libcurl");
    }
    f->settings = *settings;
    *out = f;
    return ST_OK;
}

void fetch_destroy(struct fetch *f) {
    if (!f) return;
    curl_easy_cleanup(f->curl);
    mem_free(f);
    curl_global_cleanup();
}

/* If the downloaded part was kept, say that a second try resumes it. */
static void add_resume_hint(enum status st, uint64_t kept_bytes, struct err *err) {
    if ((st != ST_UNAVAILABLE && st != ST_IO) || kept_bytes == 0 || !err) return;
    char size[SIZE_TEXT_BYTES];
    struct err said = *err;
    err_set(err, st, "%.380s; %s are kept, and the same command resumes the download", said.text,
            size_text(kept_bytes, size));
}

enum status fetch_file(struct fetch *f, const struct fetch_item *item, struct progress *progress,
                       uint64_t base_bytes, char sha256[SHA256_HEX_BYTES], struct err *err) {
    CHECK(fetch_url_ok(item->url));
    struct transfer t = {.fetch = f, .url = item->url, .item = item, .progress = progress};
    t.base_bytes = base_bytes;
    t.err = err;
    TRY(partial_file_open(item->path, &t.file, err));
    bool whole =
        item->bytes != UINT64_MAX && item->sha256 && partial_file_bytes(t.file) == item->bytes;
    enum status st = whole ? ST_OK : request(&t);
    if (st == ST_OK) st = partial_file_finish(t.file, item->bytes, item->sha256, sha256, err);
    add_resume_hint(st, partial_file_bytes(t.file), err);
    if (st == ST_BAD) partial_file_discard(t.file);
    partial_file_close(t.file);
    return st;
}

/* The token must not be sent to another host. */
static bool is_same_host(const char *a, const char *b) {
    const char *host = strstr(a, "://");
    if (!host) return false;
    size_t len = (size_t)(host - a) + 3 + strcspn(host + 3, "/");
    return strncmp(a, b, len) == 0 && (b[len] == '/' || b[len] == '?');
}

enum status fetch_text(struct fetch *f, const char *url, struct buf *out,
                       char next_url[FETCH_URL_BYTES], struct err *err) {
    CHECK(fetch_url_ok(url));
    struct transfer t = {.fetch = f, .url = url, .text = out, .err = err};
    TRY(request(&t));
    if (!next_url) return ST_OK;
    next_url[0] = 0;
    if (fetch_url_ok(t.response.next_url) && is_same_host(url, t.response.next_url))
        snprintf(next_url, FETCH_URL_BYTES, "%s", t.response.next_url);
    return ST_OK;
}
