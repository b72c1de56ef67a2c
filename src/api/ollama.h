/* api/ollama.h - Ollama's bodies about version, models and embeddings.
 *
 * /api/chat and /api/generate are codecs (codec_ollama.c).
 *
 * Thread: the I/O thread.
 */
#ifndef API_OLLAMA_H
#define API_OLLAMA_H

#include <stdbool.h>
#include <stdint.h>

#include "api/embeddings.h"
#include "api/error.h"
#include "base/status.h"
#include "base/str.h"

struct buf;
struct json;

/* A model as Ollama describes it. Empty texts and zeros: not known. */
struct ollama_model {
    struct str name;          /* under which it is served */
    int64_t modified_s;       /* wall time */
    uint64_t bytes;           /* of its file */
    struct str digest;        /* SHA-256 in hex */
    struct str format;        /* "gguf", "safetensors" */
    struct str family;        /* the architecture */
    struct str quantization;  /* "Q4_1" */
    struct str chat_template; /* its source */
    uint64_t parameter_count;
    uint32_t ctx_tokens, dims;
    bool has_tools, has_thoughts, is_embedder;
};

void ollama_version_put(const char *version, struct buf *out); /* /api/version */
void ollama_tags_put(const struct ollama_model *models, uint32_t count,
                     struct buf *out); /* /api/tags */
void ollama_ps_put(const struct ollama_model *models, uint32_t count,
                   struct buf *out);                                 /* /api/ps */
void ollama_show_put(const struct ollama_model *m, struct buf *out); /* /api/show */

/* The model that the body of /api/show names; valid as long as `body`. */
enum status ollama_show_read(const struct json *body, struct str *model, struct api_error *e);

/* /api/embed and the older /api/embeddings, which has one `prompt`. As for
 * embed_request_read, the request owns the body from then on, also on failure. */
enum status ollama_embed_read(struct json *body, struct embed_request *r, struct api_error *e);
enum status ollama_embeddings_read(struct json *body, struct embed_request *r, struct api_error *e);
void ollama_embed_put(const struct embed_request *r, const struct embed_answer *a, int64_t total_us,
                      struct buf *out);
void ollama_embeddings_put(const struct embed_request *r, const struct embed_answer *a,
                           struct buf *out);

/* Wall time in UTC as RFC 3339 defines it. */
void ollama_time_put(int64_t wall_s, struct buf *out);

/* {"error": "..."} */
void ollama_error_put(const struct api_error *e, struct str request_id, struct buf *out);

#endif
