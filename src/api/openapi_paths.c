/* api/openapi_paths.c - every operation, one row each. See api/openapi.h.
 *
 * The rows of one path stand together.
 */
#include "api/openapi.h"

#define SSE "text/event-stream"
#define LINES "application/x-ndjson"
#define OPENAI .fault = "Error"
#define ANTHROPIC .fault = "AnthropicError"
#define OLLAMA .fault = "OllamaError"
#define ASKS .params = PARAM_ASK, .accepted = "Generation"
#define ROW(m, p, i, ...)                                                                          \
    { .path = (p), .method = (m), .id = (i), .summary = __VA_ARGS__ }

/* clang-format off */
const struct openapi_operation openapi_operations[] = {
    ROW("get", "/", "page", "A page that says what is served here.", OPENAI,
        .media = "text/plain text/html", .is_open = true),
    ROW("post", "/v1/chat/completions", "createChatCompletion", "Answer a conversation.", OPENAI,
        .body = EP_CHAT, .answer = "ChatCompletion", .events = "ChatChunk", .media = SSE, ASKS),
    ROW("post", "/v1/completions", "createCompletion", "Go on from a text.", OPENAI,
        .body = EP_COMPLETIONS, .answer = "Completion", .events = "Completion", .media = SSE, ASKS),
    ROW("post", "/v1/responses", "createResponse", "Answer items, with events that are typed.",
        OPENAI, .body = EP_RESPONSES, .answer = "Response", .events = "ResponseEvent",
        .media = SSE, ASKS),
    ROW("post", "/v1/embeddings", "createEmbedding", "Vectors for texts.", OPENAI,
        .body = EP_EMBEDDINGS, .answer = "EmbeddingList"),
    ROW("get", "/v1/models", "listModels", "What is served here.", OPENAI, .answer = "ModelList"),
    ROW("get", "/v1/models/{id}", "retrieveModel", "One of them.", OPENAI, .answer = "Model",
        .params = PARAM_ID),
    ROW("get", "/v1/requests/{id}", "retrieveRequest",
        "What has happened to a request since, at once or when there is something.", OPENAI,
        .answer = "Generation", .media = SSE, .params = PARAM_ID | PARAM_POLL | PARAM_RESUME),
    ROW("delete", "/v1/requests/{id}", "cancelRequest", "Stop a request.", OPENAI,
        .answer = "Generation", .params = PARAM_ID),
    ROW("get", "/v1/stream", "stream", "A WebSocket: requests in, the events of streams out.",
        OPENAI, .is_upgrade = true),
    ROW("post", "/v1/messages", "createMessage", "Answer a conversation, as Anthropic does.",
        ANTHROPIC, .body = EP_MESSAGES, .answer = "Message", .events = "MessageEvent",
        .media = SSE, ASKS),
    ROW("post", "/v1/messages/count_tokens", "countTokens", "How long a conversation is.",
        ANTHROPIC, .body = EP_COUNT_TOKENS, .answer = "TokenCount"),
    ROW("post", "/api/chat", "ollamaChat", "Answer a conversation, as Ollama does.", OLLAMA,
        .body = EP_OLLAMA_CHAT, .answer = "OllamaChat", .events = "OllamaChat", .media = LINES,
        ASKS),
    ROW("post", "/api/generate", "ollamaGenerate", "Answer a text, as Ollama does.", OLLAMA,
        .body = EP_OLLAMA_GENERATE, .answer = "OllamaGenerate", .events = "OllamaGenerate",
        .media = LINES, ASKS),
    ROW("post", "/api/embed", "ollamaEmbed", "Vectors for texts, as Ollama gives them.", OLLAMA,
        .body = EP_OLLAMA_EMBED, .answer = "OllamaEmbed"),
    ROW("post", "/api/embeddings", "ollamaEmbedding", "A vector for a text, by the older way.",
        OLLAMA, .body = EP_OLLAMA_EMBED, .answer = "OllamaEmbedding"),
    ROW("get", "/api/tags", "ollamaTags", "What is served here.", OLLAMA, .answer = "OllamaModels"),
    ROW("get", "/api/ps", "ollamaPs", "What is loaded.", OLLAMA, .answer = "OllamaRunning"),
    ROW("post", "/api/show", "ollamaShow", "About a model.", OLLAMA, .body = EP_OLLAMA_SHOW,
        .answer = "OllamaShow"),
    ROW("get", "/api/version", "ollamaVersion", "The version of this program.", OLLAMA,
        .answer = "OllamaVersion"),
    ROW("post", "/tokenize", "tokenize", "A text or a conversation as tokens.", OPENAI,
        .body = EP_TOKENIZE, .answer = "Tokens"),
    ROW("post", "/detokenize", "detokenize", "Tokens as text.", OPENAI, .body = EP_DETOKENIZE,
        .answer = "Text"),
    ROW("post", "/apply-template", "applyTemplate", "A conversation as the model reads it.",
        OPENAI, .body = EP_TEMPLATE, .answer = "Prompt"),
    ROW("get", "/livez", "live", "Does the engine step?", OPENAI, .answer = "Health",
        .is_open = true, .may_be_unready = true),
    ROW("get", "/readyz", "ready", "May requests be sent here?", OPENAI, .answer = "Health",
        .is_open = true, .may_be_unready = true),
    ROW("get", "/health", "health", "The same, for charts of other servers.", OPENAI,
        .answer = "Health", .is_open = true),
    ROW("get", "/metrics", "metrics", "Numbers for Prometheus.", OPENAI, .media = "text/plain"),
    ROW("get", "/version", "version", "The version of this program.", OPENAI, .answer = "Version",
        .is_open = true),
    ROW("get", "/openapi.json", "openapi", "This document.", OPENAI, .answer = "Document",
        .is_open = true),
};
/* clang-format on */

const uint32_t openapi_operation_count = sizeof(openapi_operations) / sizeof(openapi_operations[0]);
