/* api/models.h - the bodies of /v1/models and /v1/models/NAME. */
#ifndef API_MODELS_H
#define API_MODELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct buf;

struct model_info {
    struct str id;
    int64_t created_s;
    uint32_t ctx_tokens;
    bool writes, embeds;  /* it generates text, it embeds texts */
    bool has_chat;        /* a chat template */
    struct str tools;     /* the form of its tool calls; empty: none */
    uint32_t vocab, dims; /* 0: not known yet */
    uint64_t file_bytes;
    struct str state; /* "ready", "loading", ... */
};

/* {"id", "object", "created", "owned_by", "max_model_len", "meta"} */
void model_put(const struct model_info *m, struct buf *out);
/* {"object": "list", "data"} */
void models_put(const struct model_info *models, uint32_t count, struct buf *out);

#endif
