/* api/openapi_paths.c - every operation, one row each. See api/openapi.h.
 *
 * The rows of one path are next to each other.
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
    ROW("get", "/", "page", "The page for browsers; for others a text that says what is served.",
        OPENAI, .media = "text/plain text/html", .is_open = true),
    ROW("get", "/page/{id}", "pageFile", "A file of the page.", OPENAI,
        .media = "text/html text/css text/javascript image/svg+xml", .is_open = true,
        .params = PARAM_ID),
    ROW("post", "/v1/chat/completions", "createChatCompletion", "Answer a conversation.", OPENAI,
        .body = EP_CHAT, .answer = "ChatCompletion", .events = "ChatChunk", .media = SSE, ASKS),
    ROW("post", "/v1/completions", "createCompletion", "Continue a text.", OPENAI,
        .body = EP_COMPLETIONS, .answer = "Completion", .events = "Completion", .media = SSE, ASKS),
    ROW("post", "/v1/responses", "createResponse",
        "Answer a list of items; a stream has typed events.",
        OPENAI, .body = EP_RESPONSES, .answer = "Response", .events = "ResponseEvent",
        .media = SSE, ASKS),
    ROW("post", "/v1/embeddings", "createEmbedding", "Turn texts into vectors.", OPENAI,
        .body = EP_EMBEDDINGS, .answer = "EmbeddingList"),
    ROW("get", "/v1/models", "listModels", "List the models.", OPENAI, .answer = "ModelList"),
    ROW("get", "/v1/models/{id}", "retrieveModel", "Describe a model.", OPENAI, .answer = "Model",
        .params = PARAM_ID),
    ROW("get", "/v1/requests/{id}", "retrieveRequest",
        "Get the new events of a request, at once or as soon as there is one.", OPENAI,
        .answer = "Generation", .media = SSE, .params = PARAM_ID | PARAM_POLL | PARAM_RESUME),
    ROW("delete", "/v1/requests/{id}", "cancelRequest", "Stop a request.", OPENAI,
        .answer = "Generation", .params = PARAM_ID),
    ROW("get", "/v1/stream", "stream", "Open a WebSocket: requests in, the events of streams out.",
        OPENAI, .is_upgrade = true),
    ROW("post", "/v1/engine/policy", "changePolicy",
        "Change the policy or knobs of an engine while requests run. For administrators.", OPENAI,
        .body = EP_ENGINE_POLICY, .answer = "EngineRules", .params = PARAM_MODEL),
    ROW("get", "/v1/engine/state", "engineState",
        "Get what an engine has in force, and who is in its batch. For administrators.", OPENAI,
        .answer = "EngineState", .params = PARAM_MODEL),
    ROW("get", "/v1/engine/steps", "watchSteps",
        "Watch the steps of an engine as server-sent events. For administrators.", OPENAI,
        .events = "EngineEvent", .media = SSE,
        .params = PARAM_RESUME | PARAM_MODEL | PARAM_FROM),
    ROW("post", "/v1/engine/whatif", "whatIf",
        "Simulate the requests of a recording with other policies. For administrators.", OPENAI,
        .body = EP_ENGINE_WHATIF, .answer = "WhatIf", .params = PARAM_MODEL),
    ROW("post", "/v1/messages", "createMessage", "Answer a conversation, as Anthropic does.",
        ANTHROPIC, .body = EP_MESSAGES, .answer = "Message", .events = "MessageEvent",
        .media = SSE, ASKS),
    ROW("post", "/v1/messages/count_tokens", "countTokens", "Count the tokens of a conversation.",
        ANTHROPIC, .body = EP_COUNT_TOKENS, .answer = "TokenCount"),
    ROW("post", "/api/chat", "ollamaChat", "Answer a conversation, as Ollama does.", OLLAMA,
        .body = EP_OLLAMA_CHAT, .answer = "OllamaChat", .events = "OllamaChat", .media = LINES,
        ASKS),
    ROW("post", "/api/generate", "ollamaGenerate",
        "Continue or answer a text, as Ollama does.", OLLAMA,
        .body = EP_OLLAMA_GENERATE, .answer = "OllamaGenerate", .events = "OllamaGenerate",
        .media = LINES, ASKS),
    ROW("post", "/api/embed", "ollamaEmbed", "Turn texts into vectors, as Ollama does.", OLLAMA,
        .body = EP_OLLAMA_EMBED, .answer = "OllamaEmbed"),
    ROW("post", "/api/embeddings", "ollamaEmbedding",
        "Turn one text into a vector, as older Ollama does.",
        OLLAMA, .body = EP_OLLAMA_EMBED, .answer = "OllamaEmbedding"),
    ROW("get", "/api/tags", "ollamaTags", "List the models.", OLLAMA, .answer = "OllamaModels"),
    ROW("get", "/api/ps", "ollamaPs", "List the loaded models.", OLLAMA, .answer = "OllamaRunning"),
    ROW("post", "/api/show", "ollamaShow", "Describe a model.", OLLAMA, .body = EP_OLLAMA_SHOW,
        .answer = "OllamaShow"),
    ROW("get", "/api/version", "ollamaVersion", "Get the version of this program.", OLLAMA,
        .answer = "OllamaVersion"),
    ROW("post", "/tokenize", "tokenize", "Turn a text or a conversation into tokens.", OPENAI,
        .body = EP_TOKENIZE, .answer = "Tokens"),
    ROW("post", "/detokenize", "detokenize",
        "Turn tokens into text.", OPENAI, .body = EP_DETOKENIZE,
        .answer = "Text"),
    ROW("post", "/apply-template", "applyTemplate",
        "Render a conversation with the model's chat template.",
        OPENAI, .body = EP_TEMPLATE, .answer = "Prompt"),
    ROW("get", "/livez", "live", "Whether the engine makes progress.", OPENAI, .answer = "Health",
        .is_open = true, .may_be_unready = true),
    ROW("get", "/readyz", "ready",
        "Whether the server accepts requests.", OPENAI, .answer = "Health",
        .is_open = true, .may_be_unready = true),
    ROW("get", "/health", "health",
        "The same as /readyz, under the path that other servers use.", OPENAI,
        .answer = "Health", .is_open = true),
    ROW("get", "/metrics", "metrics",
        "Get the metrics for Prometheus.", OPENAI, .media = "text/plain"),
    ROW("get", "/version", "version",
        "Get the version of this program.", OPENAI, .answer = "Version",
        .is_open = true),
    ROW("get", "/openapi.json", "openapi", "Get this document.", OPENAI, .answer = "Document",
        .is_open = true),
};
/* clang-format on */

const uint32_t openapi_operation_count = sizeof(openapi_operations) / sizeof(openapi_operations[0]);
