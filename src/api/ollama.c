/* api/ollama.c - see api/ollama.h for the contract. */
#include "api/ollama.h"

#include <time.h>

#include "api/fields.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

/* A number after a prefix. Every line of a stream has a date, so this does without printf. */
static void put_digits(char before, int value, int count, struct buf *out) {
    char digits[5] = {before};
    for (int i = count; i > 0; i--, value /= 10) digits[i] = (char)('0' + value % 10);
    buf_put(out, digits, (size_t)count + 1);
}

void ollama_time_put(int64_t wall_s, struct buf *out) {
    struct tm parts = {.tm_year = 70, .tm_mday = 1};
    time_t seconds = (time_t)wall_s;
    gmtime_r(&seconds, &parts);
    put_digits('"', parts.tm_year + 1900, 4, out);
    put_digits('-', parts.tm_mon + 1, 2, out);
    put_digits('-', parts.tm_mday, 2, out);
    put_digits('T', parts.tm_hour, 2, out);
    put_digits(':', parts.tm_min, 2, out);
    put_digits(':', parts.tm_sec, 2, out);
    buf_put_text(out, "Z\"");
}

/* The header x-request-id has the request's id. */
void ollama_error_put(const struct api_error *e, struct str request_id, struct buf *out) {
    (void)request_id;
    buf_put_text(out, "{\"error\":");
    buf_put_json_string(out, str_of(e->message.text));
    buf_put_char(out, '}');
}

void ollama_version_put(const char *version, struct buf *out) {
    buf_put_text(out, "{\"version\":");
    buf_put_json_string(out, str_of(version));
    buf_put_char(out, '}');
}

/* --- models ------------------------------------------------------------------------------- */

/* "135M", "7.6B": three digits, as in names of models. */
static void put_parameters(uint64_t count, struct buf *out) {
    if (count >= 1000000000)
        buf_printf(out, "\"%.1fB\"", (double)count / 1e9);
    else
        buf_printf(out, "\"%.2fM\"", (double)count / 1e6);
}

static void put_details(const struct ollama_model *m, struct buf *out) {
    buf_put_text(out, "\"details\":{\"parent_model\":\"\",\"format\":");
    buf_put_json_string(out, m->format);
    buf_put_text(out, ",\"family\":");
    buf_put_json_string(out, m->family);
    buf_put_text(out, ",\"families\":[");
    buf_put_json_string(out, m->family);
    buf_put_text(out, "],\"parameter_size\":");
    put_parameters(m->parameter_count, out);
    buf_put_text(out, ",\"quantization_level\":");
    buf_put_json_string(out, m->quantization);
    buf_put_char(out, '}');
}

/* The members that /api/tags and /api/ps share; the object stays open. */
static void put_model(const struct ollama_model *m, struct buf *out) {
    buf_put_text(out, "{\"name\":");
    buf_put_json_string(out, m->name);
    buf_put_text(out, ",\"model\":");
    buf_put_json_string(out, m->name);
    buf_printf(out, ",\"size\":%llu,\"digest\":", (unsigned long long)m->bytes);
    buf_put_json_string(out, m->digest);
    buf_put_char(out, ',');
    put_details(m, out);
}

void ollama_tags_put(const struct ollama_model *models, uint32_t count, struct buf *out) {
    buf_put_text(out, "{\"models\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) buf_put_char(out, ',');
        put_model(&models[i], out);
        buf_put_text(out, ",\"modified_at\":");
        ollama_time_put(models[i].modified_s, out);
        buf_put_char(out, '}');
    }
    buf_put_text(out, "]}");
}

/* Models stay loaded as long as the server runs; Ollama writes this date for "never". */
void ollama_ps_put(const struct ollama_model *models, uint32_t count, struct buf *out) {
    buf_put_text(out, "{\"models\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i) buf_put_char(out, ',');
        put_model(&models[i], out);
        buf_printf(
            out, ",\"expires_at\":\"2318-01-01T00:00:00Z\",\"size_vram\":0,\"context_length\":%u}",
            models[i].ctx_tokens);
    }
    buf_put_text(out, "]}");
}

/* Keys of model_info begin with the architecture's name. */
static void put_info(const struct ollama_model *m, struct buf *out) {
    buf_put_text(out, "\"model_info\":{\"general.architecture\":");
    buf_put_json_string(out, m->family);
    buf_printf(out, ",\"general.parameter_count\":%llu,\"", (unsigned long long)m->parameter_count);
    buf_put_json_inner(out, m->family);
    buf_printf(out, ".context_length\":%u,\"", m->ctx_tokens);
    buf_put_json_inner(out, m->family);
    buf_printf(out, ".embedding_length\":%u}", m->dims);
}

void ollama_show_put(const struct ollama_model *m, struct buf *out) {
    buf_put_text(out, "{\"modelfile\":");
    buf_put_text(out, "\"FROM ");
    buf_put_json_inner(out, m->name);
    buf_put_text(out, "\\n\",\"parameters\":\"\",\"template\":");
    buf_put_json_string(out, m->chat_template);
    buf_put_char(out, ',');
    put_details(m, out);
    buf_put_char(out, ',');
    put_info(m, out);
    buf_put_text(out, ",\"capabilities\":[");
    buf_put_text(out, m->is_embedder ? "\"embedding\"" : "\"completion\"");
    if (m->has_tools) buf_put_text(out, ",\"tools\"");
    if (m->has_thoughts) buf_put_text(out, ",\"thinking\"");
    buf_put_text(out, "],\"modified_at\":");
    ollama_time_put(m->modified_s, out);
    buf_put_char(out, '}');
}

enum status ollama_show_read(const struct json *body, struct str *model, struct api_error *e) {
    struct api_request r;
    api_request_init(&r, NULL);
    enum status st = api_fields_read(EP_OLLAMA_SHOW, body, &r, e);
    *model = r.model;
    api_request_deinit(&r);
    return st;
}

/* --- embeddings ----------------------------------------------------------------------------- */

/* The table of fields has checked that it is a text or a list. */
static enum status read_inputs(const struct json *input, struct api_request *r,
                               struct api_error *e) {
    size_t count = json_kind(input) == JS_LIST ? json_count(input) : 1;
    r->prompts = mem_zalloc_array(count + 1, sizeof(r->prompts[0]));
    if (!r->prompts) return ST_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct json *text = json_kind(input) == JS_LIST ? json_at(input, i) : input;
        if (json_kind(text) != JS_TEXT)
            return api_refuse_kind(e, text, FIELD_TEXT, "input[%zu]", i);
        r->prompts[r->prompt_count++].text = json_str(text);
    }
    return ST_OK;
}

static enum status read_embed(struct json *body, const char *key, struct embed_request *r,
                              struct api_error *e) {
    *r = (struct embed_request){.dimensions = 0};
    api_request_init(&r->text, NULL);
    r->text.doc = body;
    TRY(api_fields_read(EP_OLLAMA_EMBED, body, r, e));
    const struct json *input = json_get(body, key);
    if (json_kind(input) != JS_TEXT && json_kind(input) != JS_LIST)
        return api_refuse_missing(e, "%s", key);
    return read_inputs(input, &r->text, e);
}

enum status ollama_embed_read(struct json *body, struct embed_request *r, struct api_error *e) {
    return read_embed(body, "input", r, e);
}

enum status ollama_embeddings_read(struct json *body, struct embed_request *r,
                                   struct api_error *e) {
    return read_embed(body, "prompt", r, e);
}

void ollama_embed_put(const struct embed_request *r, const struct embed_answer *a, int64_t total_us,
                      struct buf *out) {
    buf_put_text(out, "{\"model\":");
    buf_put_json_string(out, a->model);
    buf_put_text(out, ",\"embeddings\":[");
    for (uint32_t i = 0; i < a->count; i++) {
        if (i) buf_put_char(out, ',');
        embed_vector_put(r, a, i, out);
    }
    buf_printf(out, "],\"total_duration\":%lld,\"load_duration\":0,\"prompt_eval_count\":%llu}",
               (long long)total_us * 1000, (unsigned long long)a->prompt_tokens);
}

void ollama_embeddings_put(const struct embed_request *r, const struct embed_answer *a,
                           struct buf *out) {
    buf_put_text(out, "{\"embedding\":");
    if (a->count)
        embed_vector_put(r, a, 0, out);
    else
        buf_put_text(out, "[]");
    buf_put_char(out, '}');
}
