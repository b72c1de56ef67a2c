/* server/routes.c - the table of routes: what may be asked, by whom, and who answers.
 *
 * Every row declares who may ask; one that does not keeps the server from starting. OpenAI's
 * paths stand with and without their /v1, because clients are configured with both.
 */
#include <string.h>

#include "base/check.h"
#include "server/handlers.h"
#include "server/server_int.h"

#define CHAT "openai.chat"
#define COMPLETIONS "openai.completions"
#define RESPONSES "openai.responses"
#define MESSAGES "anthropic.messages"
#define COUNT "anthropic.count_tokens"
#define OLLAMA_CHAT "ollama.chat"
#define OLLAMA_GENERATE "ollama.generate"

static const struct route routes[] = {
    {HTTP_POST, "/v1/chat/completions", AUTH_KEY, CHAT, handle_text, true},
    {HTTP_POST, "/v1/completions", AUTH_KEY, COMPLETIONS, handle_text, true},
    {HTTP_POST, "/v1/responses", AUTH_KEY, RESPONSES, handle_text, true},
    {HTTP_POST, "/v1/messages", AUTH_KEY, MESSAGES, handle_text, true},
    {HTTP_POST, "/v1/messages/count_tokens", AUTH_KEY, COUNT, handle_count_tokens, true},
    {HTTP_POST, "/v1/embeddings", AUTH_KEY, CHAT, handle_embeddings, true},
    {HTTP_GET, "/v1/models", AUTH_KEY, CHAT, handle_models, false},
    {HTTP_GET, "/v1/models/*", AUTH_KEY, CHAT, handle_model, false},
    {HTTP_GET, "/v1/requests/*", AUTH_KEY, CHAT, handle_generation_get, false},
    {HTTP_DELETE, "/v1/requests/*", AUTH_KEY, CHAT, handle_generation_delete, false},
    {HTTP_GET, "/v1/stream", AUTH_KEY, CHAT, handle_stream, true},
    {HTTP_POST, "/chat/completions", AUTH_KEY, CHAT, handle_text, true},
    {HTTP_POST, "/completions", AUTH_KEY, COMPLETIONS, handle_text, true},
    {HTTP_POST, "/embeddings", AUTH_KEY, CHAT, handle_embeddings, true},
    {HTTP_GET, "/models", AUTH_KEY, CHAT, handle_models, false},
    {HTTP_GET, "/models/*", AUTH_KEY, CHAT, handle_model, false},

    {HTTP_POST, "/tokenize", AUTH_KEY, CHAT, handle_tokenize, true},
    {HTTP_POST, "/detokenize", AUTH_KEY, CHAT, handle_detokenize, true},
    {HTTP_POST, "/apply-template", AUTH_KEY, CHAT, handle_template, true},

    {HTTP_POST, "/api/chat", AUTH_KEY, OLLAMA_CHAT, handle_text, true},
    {HTTP_POST, "/api/generate", AUTH_KEY, OLLAMA_GENERATE, handle_text, true},
    {HTTP_POST, "/api/embed", AUTH_KEY, OLLAMA_CHAT, handle_ollama_embed, true},
    {HTTP_POST, "/api/embeddings", AUTH_KEY, OLLAMA_CHAT, handle_ollama_embedding, true},
    {HTTP_POST, "/api/show", AUTH_KEY, OLLAMA_CHAT, handle_ollama_show, false},
    {HTTP_GET, "/api/tags", AUTH_KEY, OLLAMA_CHAT, handle_ollama_tags, false},
    {HTTP_GET, "/api/ps", AUTH_KEY, OLLAMA_CHAT, handle_ollama_ps, false},
    {HTTP_GET, "/api/version", AUTH_KEY, OLLAMA_CHAT, handle_ollama_version, false},

    {HTTP_GET, "/metrics", AUTH_KEY, CHAT, handle_metrics, false},
    {HTTP_GET, "/openapi.json", AUTH_OPEN, CHAT, handle_openapi, false},
    {HTTP_GET, "/livez", AUTH_OPEN, CHAT, handle_live, false},
    {HTTP_GET, "/readyz", AUTH_OPEN, CHAT, handle_ready, false},
    {HTTP_GET, "/health", AUTH_OPEN, CHAT, handle_health, false},
    {HTTP_GET, "/v1/health", AUTH_OPEN, CHAT, handle_health, false},
    {HTTP_GET, "/version", AUTH_OPEN, CHAT, handle_version, false},
    {HTTP_GET, "/", AUTH_OPEN, CHAT, handle_page, false},
};
enum { ROUTES = sizeof(routes) / sizeof(routes[0]) };

uint32_t routes_count(void) { return ROUTES; }

const struct route *routes_at(uint32_t i) {
    CHECK(i < ROUTES);
    return &routes[i];
}

static bool is_match(const struct route *r, struct str path, struct str *arg) {
    struct str pattern = str_of(r->path);
    *arg = (struct str){0};
    if (!str_ends(pattern, STR("*"))) return str_eq(pattern, path);
    pattern.len--;
    if (!str_starts(path, pattern) || path.len == pattern.len) return false;
    *arg = str_skip(path, pattern.len);
    return true;
}

const struct route *routes_find(enum http_method method, struct str path, struct str *arg,
                                uint32_t *allowed) {
    if (method == HTTP_HEAD) method = HTTP_GET;
    *allowed = 0;
    for (uint32_t i = 0; i < ROUTES; i++) {
        if (!is_match(&routes[i], path, arg)) continue;
        if (routes[i].method == method) return &routes[i];
        *allowed |= 1u << routes[i].method;
    }
    *arg = (struct str){0};
    return NULL;
}

const struct codec *routes_codec(const struct route *route, struct str path) {
    const char *name = route ? route->codec : CHAT;
    if (!route && str_starts(path, STR("/api/"))) name = OLLAMA_CHAT;
    if (!route && str_starts(path, STR("/v1/messages"))) name = MESSAGES;
    const struct codec *codec = codec_find(name);
    CHECK(codec); /* routes_check has seen to it */
    return codec;
}

enum status routes_check(struct err *err) {
    for (uint32_t i = 0; i < ROUTES; i++) {
        const struct route *r = &routes[i];
        if (r->auth == AUTH_UNDECLARED)
            return err_set(err, ST_BAD, "route %s does not say who may ask", r->path);
        if (!r->handle || !r->codec || !codec_find(r->codec))
            return err_set(err, ST_BAD, "route %s has no codec or nobody who answers", r->path);
    }
    return ST_OK;
}
