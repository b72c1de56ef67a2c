/* tests/fuzz/fuzz_embeddings.c - any bytes as the body of a request for embeddings, tokens or a
 * rendered template. */
#include "api/embeddings.h"
#include "api/tokenize.h"
#include "fuzz/use_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DIMS = 5 };

static struct json *parse(const uint8_t *data, size_t size) {
    struct json *doc = NULL;
    struct str text = {(const char *)data, size};
    return json_parse(text, &json_limits_request, &doc, NULL) == ST_OK ? doc : NULL;
}

static void check_out(struct buf *out) {
    CHECK(buf_status(out) == ST_OK);
    use_check_json(buf_str(out));
    buf_clear(out);
}

static void embed(struct json *doc, struct buf *out) {
    static const float one[DIMS] = {1, -2, 3e38f, 1e-45f, 0};
    static const float *vectors[API_INPUTS_MAX];
    struct embed_request r;
    struct api_error e = {0};
    enum status st = embed_request_read(doc, &r, &e);
    if (st == ST_OK && embed_request_check(&r, DIMS, &e) == ST_OK) {
        CHECK(r.text.prompt_count >= 1 && r.text.prompt_count <= API_INPUTS_MAX);
        for (uint32_t i = 0; i < r.text.prompt_count; i++) vectors[i] = one;
        struct embed_answer a = {STR("m"), vectors, r.text.prompt_count, DIMS, 1};
        embed_answer_put(&r, &a, out);
        check_out(out);
    }
    embed_request_deinit(&r);
}

static void tokenize(struct json *doc, const struct tokenizer *t, struct buf *out) {
    static const int32_t ids[] = {'a', 0xff, T_END};
    struct tokenize_request r;
    struct api_error e = {0};
    if (tokenize_request_read(doc, &r, &e) == ST_OK) {
        CHECK(r.text.is_chat || r.text.prompt_count == 1);
        CHECK(tokenize_answer_put(&r, t, ids, 3, 9, out) == ST_OK);
        check_out(out);
    }
    tokenize_request_deinit(&r);
}

static void detokenize(struct json *doc, const struct tokenizer *t, struct buf *out) {
    struct tokenize_request r;
    struct api_error e = {0};
    if (detokenize_request_read(doc, &r, &e) == ST_OK &&
        detokenize_answer_put(&r, t, 0, out, &e) == ST_OK)
        check_out(out);
    tokenize_request_deinit(&r);
}

static void render(struct json *doc) {
    struct tokenize_request r;
    struct api_error e = {0};
    if (template_request_read(doc, &r, &e) == ST_OK) use_check_messages(r.text.messages);
    tokenize_request_deinit(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tokenizer *tokenizer;
    struct buf out;
    struct json *doc = parse(data, size);
    if (!tokenizer) tokenizer = lib_tokenizer();
    if (!doc) return 0;
    buf_init(&out, 1 << 26);
    embed(doc, &out); /* each takes the document over */
    tokenize(parse(data, size), tokenizer, &out);
    detokenize(parse(data, size), tokenizer, &out);
    render(parse(data, size));
    buf_deinit(&out);
    return 0;
}
