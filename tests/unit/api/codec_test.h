/* unit/api/codec_test.h - what the tests of the peers' codecs do with their cases. */
#ifndef UNIT_API_CODEC_TEST_H
#define UNIT_API_CODEC_TEST_H

#include "base/file.h"
#include "unit/api/codec_case.h"

static inline void golden_path(const char *name, char *out, size_t bytes) {
    int n = snprintf(out, bytes, "%s/golden/api/%s.txt", TEST_SOURCE_DIR, name);
    assert_true(n > 0 && (size_t)n < bytes);
}

static inline void transcribe_cases(const struct codec *codec, const struct codec_case *cases,
                                    size_t count, struct buf *out) {
    for (size_t i = 0; i < count; i++)
        if (case_transcribe(codec, &cases[i], out) != ST_OK)
            fail_msg("%s: no transcript", cases[i].name);
}

/* Where two texts part, a line of each. */
static inline void expect_same_text(const char *what, struct str got, struct str want) {
    size_t line = 1;
    while (got.len || want.len) {
        struct str a = str_take(got, got.len), b = want;
        const char *a_end = memchr(a.ptr, '\n', a.len), *b_end = memchr(b.ptr, '\n', b.len);
        if (a_end) a.len = (size_t)(a_end - a.ptr);
        if (b_end) b.len = (size_t)(b_end - b.ptr);
        if (!str_eq(a, b))
            fail_msg("%s, line %zu:\n got  %.*s\n want %.*s", what, line, (int)a.len, a.ptr,
                     (int)b.len, b.ptr);
        got = str_skip(got, a.len + (a_end != NULL));
        want = str_skip(want, b.len + (b_end != NULL));
        line++;
    }
}

static inline void expect_golden(const char *name, struct str got) {
    char path[512];
    struct err err = {0};
    struct buf want;
    buf_init(&want, CASE_BYTES_MAX);
    golden_path(name, path, sizeof(path));
    if (file_read(path, &want, &err) != ST_OK) fail_msg("%s", err.text);
    expect_same_text(path, got, buf_str(&want));
    buf_deinit(&want);
}

/* However the events are portioned, and wherever a reader comes back, the pieces are the same. */
static inline void expect_same_pieces(const struct codec *codec, const struct codec_case *c) {
    struct case_run run = {.choice = {0}};
    struct api_error e = {0};
    struct buf all, some;
    buf_init(&all, CASE_BYTES_MAX);
    buf_init(&some, CASE_BYTES_MAX);
    assert_int_equal(case_read_body(codec, str_of(c->body), &run.request, &e), ST_OK);
    assert_int_equal(case_answer(&run, c), ST_OK);
    assert_int_equal(case_stream(&run, 0, UINT32_MAX, &all), ST_OK);
    assert_int_equal(case_stream(&run, 0, 1, &some), ST_OK);
    expect_same_text(c->name, buf_str(&some), buf_str(&all));

    struct str rest = buf_str(&all);
    for (uint32_t after = 1; rest.len; after++) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        assert_non_null(end);
        rest = str_skip(rest, (size_t)(end - rest.ptr) + 1);
        buf_clear(&some);
        assert_int_equal(case_stream(&run, after, 2, &some), ST_OK);
        expect_same_text(c->name, buf_str(&some), rest);
    }
    buf_deinit(&all);
    buf_deinit(&some);
    case_deinit(&run);
}

struct bad_body {
    const char *body, *param;
    const char *word; /* in the sentence; NULL: any */
};

static inline void expect_refused(const struct codec *codec, const struct bad_body *bad) {
    struct api_request r;
    struct api_error e = {0};
    enum status st = case_read_body(codec, str_of(bad->body), &r, &e);
    if (st != ST_BAD) fail_msg("%s: %s", bad->body, status_name(st));
    if (e.status != 400 || strcmp(e.param, bad->param) != 0)
        fail_msg("%s: %u '%s' %s", bad->body, e.status, e.param, e.message.text);
    if (bad->word && !strstr(e.message.text, bad->word))
        fail_msg("%s: %s", bad->body, e.message.text);
    api_request_deinit(&r);
}

static inline void expect_error(const struct codec *codec, uint32_t status, const char *want) {
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, CASE_BYTES_MAX);
    api_refuse(&e, status, "field", NULL, "a \"sentence\"");
    codec->put_error(&e, STR("req_1"), &out);
    assert_string_equal(buf_text(&out), want);
    buf_deinit(&out);
}

/* `test_X write` makes the golden file anew, to be read before it is committed. */
static inline int write_golden(const char *name, struct str text) {
    char path[512];
    struct err err = {0};
    int n = snprintf(path, sizeof(path), "%s/golden/api/%s.txt", TEST_SOURCE_DIR, name);
    if (n < 0 || file_write_atomic(path, text, &err) != ST_OK) return 1;
    return 0;
}

#endif
