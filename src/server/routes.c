/* server/routes.c - see server/routes.h.
 *
 * OpenAI's paths are listed with and without their /v1, because clients are configured with both.
 */
#include "server/routes.h"

#include <string.h>

#include "api/codec.h"
#include "base/check.h"
#include "server/handlers.h"

#define CHAT "openai.chat"
#define COMPLETIONS "openai.completions"
#define RESPONSES "openai.responses"
#define MESSAGES "anthropic.messages"
#define COUNT "anthropic.count_tokens"
#define OLLAMA_CHAT "ollama.chat"
#define OLLAMA_GENERATE "ollama.generate"

static const struct route routes[] = {
    {HTTP_POST, "/v1/chat/completions", ACCESS_KEY, CHAT, handle_text, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/v1/completions", ACCESS_KEY, COMPLETIONS, handle_text, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/v1/responses", ACCESS_KEY, RESPONSES, handle_text, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/v1/messages", ACCESS_KEY, MESSAGES, handle_text, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/v1/messages/count_tokens", ACCESS_KEY, COUNT, handle_count_tokens, ROUTE_WORK,
     BODY_MAX},
    {HTTP_POST, "/v1/embeddings", ACCESS_KEY, CHAT, handle_embeddings, ROUTE_WORK, BODY_MAX},
    {HTTP_GET, "/v1/models", ACCESS_KEY, CHAT, handle_models, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/v1/models/*", ACCESS_KEY, CHAT, handle_model, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/v1/requests/*", ACCESS_KEY, CHAT, handle_generation_get, ROUTE_INFO, BODY_NONE},
    {HTTP_DELETE, "/v1/requests/*", ACCESS_KEY, CHAT, handle_generation_delete, ROUTE_INFO,
     BODY_NONE},
    {HTTP_POST, "/v1/files", ACCESS_KEY, CHAT, handle_file_upload, ROUTE_WORK, BODY_FILE},
    {HTTP_GET, "/v1/files", ACCESS_KEY, CHAT, handle_files, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/v1/files/*/content", ACCESS_KEY, CHAT, handle_file_content, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/v1/files/*", ACCESS_KEY, CHAT, handle_file, ROUTE_INFO, BODY_NONE},
    {HTTP_DELETE, "/v1/files/*", ACCESS_KEY, CHAT, handle_file_delete, ROUTE_INFO, BODY_NONE},
    {HTTP_POST, "/v1/batches", ACCESS_KEY, CHAT, handle_batch_create, ROUTE_WORK, BODY_MAX},
    {HTTP_GET, "/v1/batches", ACCESS_KEY, CHAT, handle_batches, ROUTE_INFO, BODY_NONE},
    {HTTP_POST, "/v1/batches/*/cancel", ACCESS_KEY, CHAT, handle_batch_cancel, ROUTE_INFO,
     BODY_SMALL},
    {HTTP_GET, "/v1/batches/*", ACCESS_KEY, CHAT, handle_batch, ROUTE_INFO, BODY_NONE},
    {HTTP_POST, "/v1/messages/batches", ACCESS_KEY, MESSAGES, handle_message_batch_create,
     ROUTE_WORK, BODY_FILE},
    {HTTP_GET, "/v1/messages/batches", ACCESS_KEY, MESSAGES, handle_message_batches, ROUTE_INFO,
     BODY_NONE},
    {HTTP_POST, "/v1/messages/batches/*/cancel", ACCESS_KEY, MESSAGES, handle_message_batch_cancel,
     ROUTE_INFO, BODY_SMALL},
    {HTTP_GET, "/v1/messages/batches/*/results", ACCESS_KEY, MESSAGES, handle_message_batch_results,
     ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/v1/messages/batches/*", ACCESS_KEY, MESSAGES, handle_message_batch, ROUTE_INFO,
     BODY_NONE},
    {HTTP_DELETE, "/v1/messages/batches/*", ACCESS_KEY, MESSAGES, handle_message_batch_delete,
     ROUTE_INFO, BODY_NONE},
    {HTTP_POST, "/v1/responses/*/cancel", ACCESS_KEY, RESPONSES, handle_response_cancel, ROUTE_INFO,
     BODY_SMALL},
    {HTTP_GET, "/v1/responses/*/input_items", ACCESS_KEY, RESPONSES, handle_response_items,
     ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/v1/responses/*", ACCESS_KEY, RESPONSES, handle_response_get, ROUTE_INFO,
     BODY_NONE},
    {HTTP_DELETE, "/v1/responses/*", ACCESS_KEY, RESPONSES, handle_response_delete, ROUTE_INFO,
     BODY_NONE},
    {HTTP_GET, "/v1/chat/completions", ACCESS_KEY, CHAT, handle_chats, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/v1/chat/completions/*/messages", ACCESS_KEY, CHAT, handle_chat_messages,
     ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/v1/chat/completions/*", ACCESS_KEY, CHAT, handle_chat_get, ROUTE_INFO, BODY_NONE},
    {HTTP_POST, "/v1/chat/completions/*", ACCESS_KEY, CHAT, handle_chat_update, ROUTE_INFO,
     BODY_SMALL},
    {HTTP_DELETE, "/v1/chat/completions/*", ACCESS_KEY, CHAT, handle_chat_delete, ROUTE_INFO,
     BODY_NONE},
    {HTTP_POST, "/v1/conversations", ACCESS_KEY, CHAT, handle_conversation_create, ROUTE_INFO,
     BODY_ITEMS},
    {HTTP_POST, "/v1/conversations/*/items", ACCESS_KEY, CHAT, handle_conversation_add, ROUTE_INFO,
     BODY_ITEMS},
    {HTTP_GET, "/v1/conversations/*/items", ACCESS_KEY, CHAT, handle_conversation_items, ROUTE_INFO,
     BODY_NONE},
    {HTTP_GET, "/v1/conversations/*/items/*", ACCESS_KEY, CHAT, handle_conversation_item,
     ROUTE_INFO, BODY_NONE},
    {HTTP_DELETE, "/v1/conversations/*/items/*", ACCESS_KEY, CHAT, handle_conversation_item_delete,
     ROUTE_INFO, BODY_NONE},
    {HTTP_POST, "/v1/conversations/*", ACCESS_KEY, CHAT, handle_conversation_update, ROUTE_INFO,
     BODY_SMALL},
    {HTTP_GET, "/v1/conversations/*", ACCESS_KEY, CHAT, handle_conversation_get, ROUTE_INFO,
     BODY_NONE},
    {HTTP_DELETE, "/v1/conversations/*", ACCESS_KEY, CHAT, handle_conversation_delete, ROUTE_INFO,
     BODY_NONE},
    {HTTP_GET, "/v1/stream", ACCESS_KEY, CHAT, handle_stream, ROUTE_WORK, BODY_NONE},
    {HTTP_POST, "/v1/engine/policy", ACCESS_ADMIN, CHAT, handle_engine_policy, ROUTE_INFO,
     BODY_SMALL},
    {HTTP_GET, "/v1/engine/state", ACCESS_ADMIN, CHAT, handle_engine_state, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/v1/engine/steps", ACCESS_ADMIN, CHAT, handle_engine_steps, ROUTE_WORK, BODY_NONE},
    {HTTP_POST, "/v1/engine/whatif", ACCESS_ADMIN, CHAT, handle_engine_whatif, ROUTE_WORK,
     BODY_MAX},
    {HTTP_POST, "/chat/completions", ACCESS_KEY, CHAT, handle_text, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/completions", ACCESS_KEY, COMPLETIONS, handle_text, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/embeddings", ACCESS_KEY, CHAT, handle_embeddings, ROUTE_WORK, BODY_MAX},
    {HTTP_GET, "/models", ACCESS_KEY, CHAT, handle_models, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/models/*", ACCESS_KEY, CHAT, handle_model, ROUTE_INFO, BODY_NONE},

    {HTTP_POST, "/tokenize", ACCESS_KEY, CHAT, handle_tokenize, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/detokenize", ACCESS_KEY, CHAT, handle_detokenize, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/apply-template", ACCESS_KEY, CHAT, handle_template, ROUTE_WORK, BODY_MAX},

    {HTTP_POST, "/api/chat", ACCESS_KEY, OLLAMA_CHAT, handle_text, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/api/generate", ACCESS_KEY, OLLAMA_GENERATE, handle_text, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/api/embed", ACCESS_KEY, OLLAMA_CHAT, handle_ollama_embed, ROUTE_WORK, BODY_MAX},
    {HTTP_POST, "/api/embeddings", ACCESS_KEY, OLLAMA_CHAT, handle_ollama_embedding, ROUTE_WORK,
     BODY_MAX},
    {HTTP_POST, "/api/show", ACCESS_KEY, OLLAMA_CHAT, handle_ollama_show, ROUTE_INFO, BODY_SMALL},
    {HTTP_GET, "/api/tags", ACCESS_KEY, OLLAMA_CHAT, handle_ollama_tags, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/api/ps", ACCESS_KEY, OLLAMA_CHAT, handle_ollama_ps, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/api/version", ACCESS_KEY, OLLAMA_CHAT, handle_ollama_version, ROUTE_INFO,
     BODY_NONE},

    {HTTP_GET, "/metrics", ACCESS_KEY, CHAT, handle_metrics, ROUTE_PROBE, BODY_NONE},
    {HTTP_GET, "/openapi.json", ACCESS_OPEN, CHAT, handle_openapi, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/livez", ACCESS_OPEN, CHAT, handle_live, ROUTE_PROBE, BODY_NONE},
    {HTTP_GET, "/readyz", ACCESS_OPEN, CHAT, handle_ready, ROUTE_PROBE, BODY_NONE},
    {HTTP_GET, "/health", ACCESS_OPEN, CHAT, handle_health, ROUTE_PROBE, BODY_NONE},
    {HTTP_GET, "/v1/health", ACCESS_OPEN, CHAT, handle_health, ROUTE_PROBE, BODY_NONE},
    {HTTP_GET, "/version", ACCESS_OPEN, CHAT, handle_version, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/", ACCESS_OPEN, CHAT, handle_page, ROUTE_INFO, BODY_NONE},
    {HTTP_GET, "/page/*", ACCESS_OPEN, CHAT, handle_page_file, ROUTE_INFO, BODY_NONE},
};
enum { ROUTES = sizeof(routes) / sizeof(routes[0]) };

uint32_t routes_count(void) { return ROUTES; }

const struct route *routes_at(uint32_t i) {
    CHECK(i < ROUTES);
    return &routes[i];
}

/* A pattern with two '*', "BEFORE*MIDDLE*": neither stands for a text with a '/'. */
static bool is_pair(struct str before, struct str after, struct str path, struct str *arg) {
    const struct str middle = str_take(after, after.len - 1);
    if (!str_starts(path, before)) return false;
    const struct str rest = str_skip(path, before.len);
    const char *slash = memchr(rest.ptr, '/', rest.len);
    if (!slash || slash == rest.ptr) return false;
    const struct str second = str_skip(rest, (size_t)(slash - rest.ptr));
    if (!str_starts(second, middle) || second.len == middle.len) return false;
    const struct str last = str_skip(second, middle.len);
    if (memchr(last.ptr, '/', last.len)) return false;
    *arg = rest;
    return true;
}

static bool is_match(const struct route *r, struct str path, struct str *arg) {
    struct str pattern = str_of(r->path);
    const char *star = memchr(pattern.ptr, '*', pattern.len);
    *arg = (struct str){0};
    if (!star) return str_eq(pattern, path);
    const struct str before = str_take(pattern, (size_t)(star - pattern.ptr));
    const struct str after = str_skip(pattern, before.len + 1);
    if (memchr(after.ptr, '*', after.len)) return is_pair(before, after, path, arg);
    if (path.len <= before.len + after.len) return false;
    if (!str_starts(path, before) || !str_ends(path, after)) return false;
    const struct str found =
        str_take(str_skip(path, before.len), path.len - before.len - after.len);
    if (after.len > 0 && memchr(found.ptr, '/', found.len)) return false;
    *arg = found;
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

enum access_class routes_access(const struct route *route, enum http_method method) {
    if (route) return route->access;
    return method == HTTP_OPTIONS ? ACCESS_OPEN : ACCESS_KEY; /* browsers send it without a key */
}

const struct codec *routes_codec(const struct route *route, struct str path) {
    const char *name = route ? route->codec : CHAT;
    if (!route && str_starts(path, STR("/api/"))) name = OLLAMA_CHAT;
    if (!route && str_starts(path, STR("/v1/messages"))) name = MESSAGES;
    const struct codec *codec = codec_find(name);
    CHECK(codec); /* routes_check has checked it */
    return codec;
}

uint64_t routes_body_bytes(const struct route *route, uint64_t body_max, uint64_t file_max) {
    if (!route) return 0;
    if (route->body_bytes == BODY_FILE) return file_max + BODY_FORM_BYTES;
    return route->body_bytes < body_max ? route->body_bytes : body_max;
}

enum status routes_check(struct err *err) {
    for (uint32_t i = 0; i < ROUTES; i++) {
        const struct route *r = &routes[i];
        if (r->access == ACCESS_UNDECLARED)
            return err_set(err, ST_BAD, "route %s does not say who may use it", r->path);
        if (r->method != HTTP_POST && r->body_bytes > 0)
            return err_set(err, ST_BAD, "route %s takes a body, which only POST may have", r->path);
        if (!r->handle || !r->codec || !codec_find(r->codec))
            return err_set(err, ST_BAD, "route %s has no codec or no handler", r->path);
    }
    return ST_OK;
}
