/* server/page.c - GET / and the files of the page (page/page.h).
 *
 * A browser gets the page; every other client gets a text that says what is served. The files are
 * open: they hold no secret, and the page asks for a key itself. The policy in the headers lets a
 * browser run and load what this server has sent, and nothing else.
 */
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "page/page.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/registry.h"

enum { TEXT_BYTES_MAX = 1 << 20 };

#define CSP                                                                                        \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "                    \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "            \
    "require-trusted-types-for 'script'; trusted-types 'none'"

/* ---- the text ---- */

static void put_models(const struct server *s, struct buf *out) {
    for (uint32_t i = 0; i < registry_count(s->registry); i++) {
        const struct served_model *m = registry_at(s->registry, i);
        buf_printf(out, "  %s  %s%s\n", m->name, load_state_name(m->state),
                   m->is_encoder ? ", embeddings" : "");
    }
}

static void put_call(const struct http_request *req, struct buf *out) {
    const struct server *s = req->server;
    struct str host = req->head->host.len > 0 ? req->head->host : STR("localhost");
    buf_printf(out, "curl -s %s://%.*s/v1/chat/completions", req->head->is_tls ? "https" : "http",
               STR_ARG(host));
    if (s->settings.api_key_file) buf_put_text(out, " -H 'authorization: Bearer KEY'");
    buf_printf(out,
               " -H 'content-type: application/json' -d "
               "'{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}]}'",
               registry_default(s->registry)->name);
}

static void respond_text(struct http_request *req) {
    static const struct http_header headers[] = {
        {{"content-security-policy", 23}, {"default-src 'none'", 18}},
        {{"cache-control", 13}, {"no-store", 8}},
        {{"vary", 4}, {"accept", 6}},
    };
    struct buf body;
    buf_init(&body, TEXT_BYTES_MAX);
    buf_put_text(&body, "jitney is running and serves\n");
    put_models(req->server, &body);
    buf_put_text(&body, "Call it as you would call OpenAI:\n  ");
    put_call(req, &body);
    buf_put_char(&body, '\n');
    respond(req, &(struct response){.status = 200,
                                    .type = "text/plain; charset=utf-8",
                                    .body = buf_str(&body),
                                    .headers = headers,
                                    .header_count = 3});
    buf_deinit(&body);
}

/* ---- the files ---- */

/* Whether the browser has these bytes: If-None-Match names their ETag. */
static bool has_same(const struct http_request *req, const struct page_file *file) {
    const struct str sent = http_find(req->head, "if-none-match"), etag = str_of(file->etag);
    for (size_t i = 0; i + etag.len <= sent.len; i++)
        if (str_starts(str_skip(sent, i), etag)) return true;
    return false;
}

/* no-cache: the browser asks each time whether the file is the same, so that a new version of the
 * server is never mixed with files of the old one. */
static void respond_file(struct http_request *req, const struct page_file *file) {
    const struct http_header headers[] = {
        {STR("etag"), str_of(file->etag)},
        {STR("cache-control"), STR("no-cache")},
        {STR("content-security-policy"), STR(CSP)},
        {STR("x-content-type-options"), STR("nosniff")},
        {STR("referrer-policy"), STR("no-referrer")},
        {STR("x-dns-prefetch-control"), STR("off")}, /* names in links are not looked up */
        {STR("cross-origin-opener-policy"), STR("same-origin")},
        {STR("cross-origin-resource-policy"), STR("same-origin")},
        {STR("vary"), STR("accept")},
    };
    struct response r = {.status = 200,
                         .type = file->type,
                         .headers = headers,
                         .header_count = sizeof(headers) / sizeof(headers[0])};
    if (has_same(req, file)) {
        r.status = 304;
    } else {
        for (uint32_t i = 0; i < page_count(); i++)
            if (page_at(i) == file) r.document = req->server->page[i];
        CHECK(r.document);
    }
    respond(req, &r);
}

static bool wants_html(const struct http_request *req) {
    struct str accept = http_find(req->head, "accept");
    for (size_t i = 0; i < accept.len; i++)
        if (str_starts(str_skip(accept, i), STR("text/html"))) return true;
    return false;
}

void handle_page(struct http_request *req) {
    if (req->server->settings.no_page || !wants_html(req))
        respond_text(req);
    else
        respond_file(req, page_find(STR("index.html")));
}

void handle_page_file(struct http_request *req) {
    const struct page_file *file = page_find(req->arg);
    struct api_error e = {0};
    if (file && !req->server->settings.no_page) {
        respond_file(req, file);
        return;
    }
    api_refuse(&e, 404, NULL, "unknown_url", "the page has no file \"%.*s\"%s", STR_ARG(req->arg),
               req->server->settings.no_page ? "; the server was started with --no-page" : "");
    respond_error(req, &e);
}
