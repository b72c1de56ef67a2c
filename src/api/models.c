/* api/models.c - see api/models.h for the contract. */
#include "api/models.h"

#include "api/openai.h"
#include "base/buf.h"

static void put_bool(bool v, struct buf *out) { buf_put_text(out, v ? "true" : "false"); }

static void put_meta(const struct model_info *m, struct buf *out) {
    PUT(out, "{\"state\":");
    buf_put_json_string(out, m->state);
    PUT(out, ",\"writes\":");
    put_bool(m->writes, out);
    PUT(out, ",\"embeds\":");
    put_bool(m->embeds, out);
    PUT(out, ",\"chat_template\":");
    put_bool(m->has_chat, out);
    PUT(out, ",\"tools\":");
    if (m->tools.len)
        buf_put_json_string(out, m->tools);
    else
        PUT(out, "null");
    PUT(out, ",\"n_vocab\":");
    buf_put_uint(out, m->vocab);
    PUT(out, ",\"n_ctx\":");
    buf_put_uint(out, m->ctx_tokens);
    PUT(out, ",\"n_embd\":");
    buf_put_uint(out, m->dims);
    PUT(out, ",\"size\":");
    buf_put_uint(out, m->file_bytes);
    PUT(out, "}");
}

void model_put(const struct model_info *m, struct buf *out) {
    PUT(out, "{\"id\":");
    buf_put_json_string(out, m->id);
    PUT(out, ",\"object\":\"model\",\"created\":");
    buf_put_uint(out, (uint64_t)m->created_s);
    PUT(out, ",\"owned_by\":\"jitney\",\"max_model_len\":");
    buf_put_uint(out, m->ctx_tokens);
    PUT(out, ",\"meta\":");
    put_meta(m, out);
    PUT(out, "}");
}

void models_put(const struct model_info *models, uint32_t count, struct buf *out) {
    PUT(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) PUT(out, ",");
        model_put(&models[i], out);
    }
    PUT(out, "]}");
}
