/* api/embeddings.c - see api/embeddings.h for the contract. */
#include "api/embeddings.h"

#include <math.h>
#include <string.h>

#include "api/fields.h"
#include "api/openai.h"
#include "api/prompts.h"
#include "base/buf.h"
#include "base/json.h"

enum status embed_request_read(struct json *body, struct embed_request *r, struct api_error *e) {
    *r = (struct embed_request){0};
    api_request_init(&r->text, NULL);
    r->text.doc = body;
    TRY(api_fields_read(EP_EMBEDDINGS, body, r, e));
    const struct json *input = json_get(body, "input");
    TRY(prompts_read(input, "input", API_INPUTS_MAX, &r->text, e));
    for (uint32_t i = 0; i < r->text.prompt_count; i++)
        if (!r->text.prompts[i].ids && r->text.prompts[i].text.len == 0)
            return api_refuse(e, 400, "input", "string_below_min_length",
                              "Invalid 'input': text %u is empty.", i);
    return ST_OK;
}

void embed_request_deinit(struct embed_request *r) { api_request_deinit(&r->text); }

enum status embed_request_check(const struct embed_request *r, uint32_t dims, struct api_error *e) {
    if (r->dimensions <= dims) return ST_OK;
    return api_refuse(e, 400, "dimensions", "integer_above_max_value",
                      "Invalid 'dimensions': the model's vectors have %u, but %u were requested.",
                      dims, r->dimensions);
}

/* --- vectors ---------------------------------------------------------------------------- */

/* The length of the shortened vector, by which it is divided; 1 for a whole vector. */
static double length_of(const float *v, uint32_t dims, bool is_cut) {
    double sum = 0;
    for (uint32_t i = 0; i < dims && is_cut; i++) sum += (double)v[i] * (double)v[i];
    return sum > 0 ? sqrt(sum) : 1.0;
}

static void put_numbers(const float *v, uint32_t dims, double length, struct buf *out) {
    PUT(out, "[");
    for (uint32_t i = 0; i < dims; i++) {
        double number = (double)(float)((double)v[i] / length);
        if (i) PUT(out, ",");
        buf_printf(out, "%.9g", isfinite(number) ? number : 0.0);
    }
    PUT(out, "]");
}

struct base64 {
    struct buf *out;
    uint32_t held, bytes; /* up to three bytes that wait to become four letters */
};

static void put_letters(struct base64 *b) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char four[4] = {'=', '=', '=', '='};
    uint32_t word = b->held << (8 * (3 - b->bytes));
    for (uint32_t i = 0; i <= b->bytes; i++) four[i] = letters[word >> (18 - 6 * i) & 63];
    buf_put(b->out, four, sizeof(four));
    b->held = b->bytes = 0;
}

static void put_byte(struct base64 *b, uint8_t byte) {
    b->held = b->held << 8 | byte;
    if (++b->bytes == 3) put_letters(b);
}

static void put_base64(const float *v, uint32_t dims, double length, struct buf *out) {
    struct base64 b = {.out = out};
    PUT(out, "\"");
    for (uint32_t i = 0; i < dims; i++) {
        float number = (float)((double)v[i] / length);
        uint32_t bits;
        memcpy(&bits, &number, sizeof(bits));
        for (uint32_t k = 0; k < 4; k++) put_byte(&b, (uint8_t)(bits >> 8 * k));
    }
    if (b.bytes) put_letters(&b);
    PUT(out, "\"");
}

void embed_vector_put(const struct embed_request *r, const struct embed_answer *a, uint32_t input,
                      struct buf *out) {
    const uint32_t dims = r->dimensions && r->dimensions < a->dims ? r->dimensions : a->dims;
    const float *v = a->vectors[input];
    put_numbers(v, dims, length_of(v, dims, dims < a->dims), out);
}

void embed_answer_put(const struct embed_request *r, const struct embed_answer *a,
                      struct buf *out) {
    const uint32_t dims = r->dimensions && r->dimensions < a->dims ? r->dimensions : a->dims;
    PUT(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < a->count; i++) {
        double length = length_of(a->vectors[i], dims, dims < a->dims);
        if (i) PUT(out, ",");
        PUT(out, "{\"object\":\"embedding\",\"index\":");
        buf_put_uint(out, i);
        PUT(out, ",\"embedding\":");
        if (str_is(r->format, "base64"))
            put_base64(a->vectors[i], dims, length, out);
        else
            put_numbers(a->vectors[i], dims, length, out);
        PUT(out, "}");
    }
    PUT(out, "],\"model\":");
    buf_put_json_string(out, a->model);
    PUT(out, ",\"usage\":{\"prompt_tokens\":");
    buf_put_uint(out, a->prompt_tokens);
    PUT(out, ",\"total_tokens\":");
    buf_put_uint(out, a->prompt_tokens);
    PUT(out, "}}");
}
