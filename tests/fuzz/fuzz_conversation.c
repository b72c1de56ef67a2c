/* tests/fuzz/fuzz_conversation.c - any bytes as the items of a conversation (the first line) and as
 * the body of a request that continues it (the rest). Stored items are stored the same a second
 * time, a merged body is JSON with the items of both, and what was stored is read by the codec. */
#include <string.h>

#include "api/codec.h"
#include "api/conversation_items.h"
#include "base/check.h"
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUT_MAX = 1 << 26 };

static struct json *parse(struct str text) {
    struct json *doc = NULL;
    return json_parse(text, &json_limits_model_file, &doc, NULL) == ST_OK ? doc : NULL;
}

static void check_refusal(enum status st, const struct api_error *e) {
    CHECK(st == ST_OK || st == ST_BAD);
    if (st == ST_BAD) CHECK(e->status == 400 && e->message.text[0]);
}

static enum status store(struct str items, struct buf *out) {
    struct api_error e = {0};
    struct json *doc = parse(items);
    if (!doc) return ST_BAD;
    enum status st = items_store(doc, STR("s"), "items", out, &e);
    check_refusal(st, &e);
    json_destroy(doc);
    return st;
}

static void merge(struct str body, struct str earlier) {
    struct api_error e = {0};
    struct api_request r;
    struct buf out;
    buf_init(&out, OUT_MAX);
    enum status st = responses_merge(body, earlier, &out, &e);
    check_refusal(st, &e);
    if (st == ST_OK) {
        struct json *old = parse(earlier), *doc = parse(buf_str(&out));
        CHECK(doc);
        CHECK(json_count(json_get(doc, "input")) >= json_count(old));
        json_destroy(old);
        st = codec_read_body(codec_find("openai.responses"), doc, false, &r, &e);
        check_refusal(st, &e);
        api_request_deinit(&r);
    }
    buf_deinit(&out);
}

static void list(struct str items) {
    struct api_error e = {0};
    struct buf out;
    const struct page_choice choice = {.limit = 2};
    buf_init(&out, OUT_MAX);
    if (items_page_put(items, &choice, STR("msg_s_1"), &out, &e) == ST_OK) {
        struct json *doc = parse(buf_str(&out));
        CHECK(json_kind(doc) == JS_MAP);
        json_destroy(doc);
    }
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str body = {(const char *)data, size}, items = STR("");
    const char *end = size ? memchr(data, '\n', size) : NULL;
    struct buf stored, again;
    if (end) items = str_take(body, (size_t)(end - body.ptr));
    body = str_skip(body, end ? items.len + 1 : 0);
    buf_init(&stored, OUT_MAX);
    buf_init(&again, OUT_MAX);
    if (store(items, &stored) == ST_OK) {
        CHECK(store(buf_str(&stored), &again) == ST_OK);
        CHECK(str_eq(buf_str(&stored), buf_str(&again)));
        merge(body, buf_str(&stored));
        list(buf_str(&stored));
    }
    merge(body, items);
    list(items);
    buf_deinit(&stored);
    buf_deinit(&again);
    return 0;
}
