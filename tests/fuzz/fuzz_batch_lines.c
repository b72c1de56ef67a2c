/* tests/fuzz/fuzz_batch_lines.c - any bytes as the input file of a batch, in chunks of two sizes:
 * both find the same, errors are a JSON list, and lines have a body that is a JSON object. */
#include <string.h>

#include "api/batch_lines.h"
#include "base/check.h"
#include "base/json.h"
#include "jobs/batches.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_json(struct str text, enum json_kind kind) {
    struct json *doc = NULL;
    CHECK(json_parse(text, &json_limits_model_file, &doc, NULL) == ST_OK);
    CHECK(json_kind(doc) == kind);
    json_destroy(doc);
}

static void put_line(const struct batch_line *line, uint32_t number, struct buf *out) {
    CHECK(line->number == number);
    CHECK(line->order <= number);
    CHECK(line->custom_id.len >= 1 && line->custom_id.len <= BATCH_CUSTOM_ID_MAX);
    check_json(line->body, JS_MAP);
    struct line_row row = {.line = *line, .result = {.state = LINE_DONE, .status = 200}};
    batch_output_put(STR("batch_1"), &row, out);
}

static void run(struct str file, size_t step, struct buf *out) {
    struct line_splitter s;
    struct batch_check c;
    struct batch_line line;
    struct str text;
    line_splitter_init(&s);
    CHECK(batch_check_init(&c, STR("/v1/chat/completions")) == ST_OK);
    for (size_t at = 0; at < file.len; at += step) {
        line_splitter_push(&s, str_take(str_skip(file, at), step), at + step >= file.len);
        while (line_splitter_next(&s, &text)) {
            const uint32_t number = c.good_count;
            if (batch_check_line(&c, text, s.too_long, &line) == ST_OK)
                put_line(&line, number, out);
        }
    }
    enum status st = batch_check_end(&c);
    CHECK(st == (c.error_count ? ST_BAD : ST_OK));
    if (st == ST_BAD) check_json(buf_str(&c.errors), JS_LIST);
    buf_put_str(out, buf_str(&c.errors));
    CHECK(buf_status(out) == ST_OK);
    batch_check_deinit(&c);
    line_splitter_deinit(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str file = {(const char *)data, size};
    struct buf whole, cut;
    buf_init(&whole, 1 << 28);
    buf_init(&cut, 1 << 28);
    run(file, size + 1, &whole);
    run(file, 7, &cut);
    CHECK(str_eq(buf_str(&whole), buf_str(&cut)));
    buf_deinit(&whole);
    buf_deinit(&cut);
    return 0;
}
