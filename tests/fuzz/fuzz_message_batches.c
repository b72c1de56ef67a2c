/* tests/fuzz/fuzz_message_batches.c - any bytes as the body that creates a message batch. What is
 * read as a whole is JSON, and has as many requests as were read. */
#include "api/message_batches.h"
#include "base/check.h"
#include "base/json.h"
#include "jobs/batches.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct json *parse(struct str text) {
    struct json *doc = NULL;
    return json_parse(text, &json_limits_model_file, &doc, NULL) == ST_OK ? doc : NULL;
}

static void check_line(const struct batch_line *line, uint32_t number) {
    struct json *body = parse(line->body);
    CHECK(json_kind(body) == JS_MAP);
    CHECK(line->number == number && line->order <= number);
    CHECK(line->custom_id.len >= 1 && line->custom_id.len <= MESSAGE_BATCH_ID_MAX);
    json_destroy(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str text = {(const char *)data, size};
    struct message_batch b;
    struct batch_line line;
    struct api_error e = {0};
    enum status st = message_batch_init(&b, text, &e);
    while (st == ST_OK) {
        const uint32_t number = b.count;
        st = message_batch_next(&b, &line, &e);
        if (st == ST_OK) check_line(&line, number);
    }
    CHECK(st == ST_MISSING || st == ST_BAD);
    if (st == ST_BAD) CHECK(e.status == 400 && e.message.text[0]);
    if (st == ST_MISSING) {
        struct json *doc = parse(text);
        CHECK(doc);
        CHECK(json_count(json_get(doc, "requests")) == b.count);
        json_destroy(doc);
    }
    message_batch_deinit(&b);
    return 0;
}
