/* Goal:   a form is read as RFC 7578 says, and whatever is not one is refused with a sentence that
 *         says what was found and what is expected.
 * Method: forms written by hand, each of their cuts, and both sides of every limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/multipart.h"
#include "base/buf.h"
#include "base/mem.h"

#define TYPE "multipart/form-data; boundary=XYZ"
#define NAMED(name) "Content-Disposition: form-data; name=\"" name "\"\r\n"

static struct multipart form; /* too large for the stack of a small thread */

/* The body has no NUL behind it, so that the sanitizer sees a read past its end. */
static enum status read_bytes(const char *type, struct str body, struct api_error *e) {
    char *exact = mem_alloc(body.len + (body.len == 0));
    assert_non_null(exact);
    memcpy(exact, body.ptr, body.len);
    enum status st = multipart_read(str_of(type), (struct str){exact, body.len}, &form, e);
    for (uint32_t i = 0; i < form.count && st == ST_OK; i++) /* slices of the caller's bytes */
        form.parts[i].data.ptr = body.ptr + (form.parts[i].data.ptr - exact);
    mem_free(exact);
    return st;
}

static void expect_ok(const char *type, const char *body) {
    struct api_error e = {0};
    if (read_bytes(type, str_of(body), &e) != ST_OK) fail_msg("%s: %s", body, e.message.text);
}

static void expect_refused(const char *type, const char *body, const char *word) {
    struct api_error e = {0};
    enum status st = read_bytes(type, str_of(body), &e);
    if (st != ST_BAD) fail_msg("%s, %s: %s", type, body, status_name(st));
    assert_int_equal(e.status, 400);
    assert_string_equal(e.code, "invalid_multipart");
    if (!strstr(e.message.text, word)) fail_msg("no '%s' in: %s", word, e.message.text);
}

static void expect_part(uint32_t i, const char *name, const char *filename, const char *data) {
    assert_true(i < form.count);
    assert_string_equal(form.parts[i].name, name);
    assert_string_equal(form.parts[i].filename, filename);
    if (!str_is(form.parts[i].data, data))
        fail_msg("'%.*s', not '%s'", STR_ARG(form.parts[i].data), data);
}

static const char upload[] =
    "--XYZ\r\n" NAMED("purpose") "\r\nbatch\r\n"
                                 "--XYZ\r\nContent-Disposition: form-data; name=\"file\"; "
                                 "filename=\"in.jsonl\"\r\nContent-Type: application/jsonl\r\n"
                                 "X-Other: 1\r\n\r\n{\"a\":1}\r\n{\"b\":2}\r\n\r\n--XYZ--\r\n";

static void test_parts_have_names_types_and_data(void **state) {
    (void)state;
    expect_ok(TYPE, upload);
    assert_int_equal(form.count, 2);
    expect_part(0, "purpose", "", "batch");
    expect_part(1, "file", "in.jsonl", "{\"a\":1}\r\n{\"b\":2}\r\n");
    assert_int_equal(form.parts[0].type.len, 0);
    assert_ptr_equal(multipart_find(&form, "file"), &form.parts[1]);
    assert_null(multipart_find(&form, "fil"));
}

static void test_every_cut_of_a_form_is_refused(void **state) {
    (void)state;
    const size_t closed = sizeof(upload) - 1 - 2; /* the last CR LF is not needed */
    for (size_t len = 0; len < closed; len++) {
        struct api_error e = {0};
        if (read_bytes(TYPE, (struct str){upload, len}, &e) != ST_BAD) fail_msg("cut at %zu", len);
        assert_true(e.message.text[0]);
    }
    struct api_error e = {0};
    assert_int_equal(read_bytes(TYPE, (struct str){upload, closed}, &e), ST_OK);
    assert_int_equal(read_bytes(TYPE, (struct str){upload, closed + 2}, &e), ST_OK);
}

static void test_text_around_the_form_is_ignored(void **state) {
    (void)state;
    expect_ok(TYPE,
              "a preamble\r\n--XYZ\r\n" NAMED("a") "\r\n1\r\n--XYZ--\r\nan epilogue\r\n--XYZ\r\n");
    assert_int_equal(form.count, 1);
    expect_part(0, "a", "", "1");
    expect_ok(TYPE, "\r\n--XYZ \t\r\n" NAMED("a") "\r\n1\r\n--XYZ-- \t\r\n");
    expect_part(0, "a", "", "1");
    expect_ok(TYPE, "--XYZ--");
    assert_int_equal(form.count, 0);
}

static void test_a_line_that_begins_like_a_boundary_is_data(void **state) {
    (void)state;
    expect_ok(TYPE,
              "--XYZ\r\n" NAMED("a") "\r\n--XYZA\r\n--XYZ-\r\n --XYZ\r\n--XYZ--x\r\n\n--XYZ\r\n"
                                     "x--XYZ\r\n\r--XYZ\r\n\r\n--XYZ--\r\n");
    assert_int_equal(form.count, 1);
    expect_part(0, "a", "",
                "--XYZA\r\n--XYZ-\r\n --XYZ\r\n--XYZ--x\r\n\n--XYZ\r\nx--XYZ\r\n\r--XYZ\r\n");
}

static void test_data_may_be_empty_or_any_bytes(void **state) {
    (void)state;
    expect_ok(TYPE, "--XYZ\r\n" NAMED("a") "\r\n\r\n--XYZ\r\n" NAMED("b") "\r\n--XYZ--");
    assert_int_equal(form.count, 2);
    expect_part(0, "a", "", "");
    expect_part(1, "b", "", "");
    static const char bytes[] = "--XYZ\r\n" NAMED("a") "\r\n\0\xff\r\n\r\n\0\r\n--XYZ--";
    struct api_error e = {0};
    assert_int_equal(read_bytes(TYPE, (struct str){bytes, sizeof(bytes) - 1}, &e), ST_OK);
    assert_int_equal(form.parts[0].data.len, 7);
    assert_memory_equal(form.parts[0].data.ptr, "\0\xff\r\n\r\n\0", 7);
}

static void test_lines_that_end_with_lf_are_refused(void **state) {
    (void)state;
    expect_refused(TYPE, "--XYZ\nContent-Disposition: form-data; name=\"a\"\n\n1\n--XYZ--\n",
                   "end with LF alone; expected CR LF");
}

static void test_boundaries(void **state) {
    (void)state;
    static const char seventy[] =
        "0123456789012345678901234567890123456789012345678901234567890123456789";
    char type[200], body[400];
    expect_ok("Multipart/Form-Data ; charset=utf-8; Boundary=\"X Y\"; ",
              "--X Y\r\n" NAMED("a") "\r\n1\r\n--X Y--");
    snprintf(type, sizeof(type), "multipart/form-data;boundary=%s", seventy);
    snprintf(body, sizeof(body), "--%s\r\n" NAMED("a") "\r\n1\r\n--%s--", seventy, seventy);
    expect_ok(type, body);
    snprintf(type, sizeof(type), "multipart/form-data;boundary=%s0", seventy);
    expect_refused(type, body, "malformed boundary");
    expect_refused("multipart/form-data", upload, "no boundary");
    expect_refused("multipart/form-data; boundary=", upload, "no boundary");
    expect_refused("multipart/form-data; boundary=\"X", upload, "no boundary");
    expect_refused("multipart/form-data; boundary=\"X \"", upload, "malformed boundary");
    expect_refused("multipart/form-data; boundary=X*", upload, "malformed boundary");
    expect_refused("application/json", upload, "'application/json'; expected multipart/form-data");
    expect_refused("", upload, "expected multipart/form-data");
    expect_refused("multipart/form-data; boundary=other", upload, "no line '--other'");
    assert_true(multipart_is_form(STR("multipart/form-data; boundary=a")));
    assert_false(multipart_is_form(STR("multipart/mixed")));
    assert_false(multipart_is_form((struct str){0}));
}

static void expect_filename(const char *params, const char *want) {
    char body[1024];
    snprintf(body, sizeof(body),
             "--XYZ\r\ncontent-disposition:form-data;name=f;%s\r\n\r\n1\r\n--XYZ--", params);
    expect_ok(TYPE, body);
    expect_part(0, "f", want, "1");
}

static void test_file_names_are_decoded(void **state) {
    (void)state;
    expect_filename("filename=plain.txt", "plain.txt");
    expect_filename("filename=\"a;b=c.txt\"", "a;b=c.txt");
    expect_filename("filename=\"a\\\"b\\\\c\"", "c"); /* a backslash ends a folder */
    expect_filename("filename=\"a\\\"b\"", "a\"b");
    expect_filename("filename=\"a%22b%20c%.txt\"", "a\"b%20c%.txt");
    expect_filename("filename=\"C:\\dir\\x.txt\"", "x.txt");
    expect_filename("filename=\"/tmp/x.txt\"", "x.txt");
    expect_filename("filename=\"caf\xc3\xa9\"", "caf\xc3\xa9");
    expect_filename("filename*=UTF-8''caf%C3%A9%20a", "caf\xc3\xa9 a");
    expect_filename("filename*=utf-8'en'b; filename=\"a\"", "b");
    expect_filename("filename=\"a\"; filename*=utf-8''b", "b");
    expect_filename("filename=\"\"", "");
}

static void expect_bad_header(const char *header, const char *word) {
    char body[16384];
    snprintf(body, sizeof(body), "--XYZ\r\n%s\r\n\r\n1\r\n--XYZ--", header);
    expect_refused(TYPE, body, word);
}

static void test_malformed_headers_are_refused(void **state) {
    (void)state;
    expect_bad_header("Content-Type: text/plain", "has no Content-Disposition");
    expect_bad_header("", "has no Content-Disposition");
    expect_bad_header("Content-Disposition: attachment; name=a", "expected form-data");
    expect_bad_header("Content-Disposition: form-data", "has no name");
    expect_bad_header("Content-Disposition: form-data; name", "is malformed");
    expect_bad_header("Content-Disposition: form-data; name=\"a", "is malformed");
    expect_bad_header("Content-Disposition: form-data; name=\"a\" b", "is malformed");
    expect_bad_header("Content-Disposition: form-data; name=\"a\tb\"", "control character");
    expect_bad_header("Content-Disposition: form-data; name=a; filename*=b", "expected UTF-8''");
    expect_bad_header("Content-Disposition: form-data; name=a; filename*=latin1''b",
                      "expected UTF-8''");
    expect_bad_header("Content-Disposition: form-data; name=a; filename*=utf-8''%4",
                      "malformed percent");
    expect_bad_header("Content-Disposition: form-data; name=a; filename*=utf-8''a%00",
                      "control character");
    expect_bad_header("no colon", "expected NAME: VALUE");
    expect_bad_header("Content-Disposition: form-data; name=a\r\n folded", "expected NAME: VALUE");
    expect_bad_header(NAMED("a") "Content-Transfer-Encoding: base64", "'base64' is not supported");
    expect_ok(TYPE, "--XYZ\r\n" NAMED("a") "Content-Transfer-Encoding: Binary\r\n\r\n1\r\n--XYZ--");
}

static void put_many(struct buf *out, char c, size_t count) {
    for (size_t i = 0; i < count; i++) buf_put_char(out, c);
}

static enum status read_with(const char *begin, size_t count, const char *end) {
    struct buf body;
    struct api_error e = {0};
    buf_init(&body, 1 << 20);
    buf_put_text(&body, begin);
    put_many(&body, 'x', count);
    buf_put_text(&body, end);
    enum status st = multipart_read(STR(TYPE), buf_str(&body), &form, &e);
    buf_deinit(&body);
    return st;
}

static void test_names_and_headers_have_limits(void **state) {
    (void)state;
    const char *name = "--XYZ\r\nContent-Disposition: form-data; name=\"";
    const char *file = "--XYZ\r\nContent-Disposition: form-data; name=a; filename=\"";
    const char *rest = "\"\r\n\r\n1\r\n--XYZ--";
    assert_int_equal(read_with(name, MULTIPART_NAME_BYTES - 1, rest), ST_OK);
    assert_int_equal(read_with(name, MULTIPART_NAME_BYTES, rest), ST_BAD);
    assert_int_equal(read_with(file, MULTIPART_FILENAME_BYTES - 1, rest), ST_OK);
    assert_int_equal(read_with(file, MULTIPART_FILENAME_BYTES, rest), ST_BAD);
    const char *more = "--XYZ\r\n" NAMED("a") "X:";
    const size_t left = MULTIPART_HEADER_BYTES_MAX - strlen(NAMED("a") "X:");
    assert_int_equal(read_with(more, left, "\r\n\r\n1\r\n--XYZ--"), ST_BAD);
    assert_int_equal(read_with(more, left - 2, "\r\n\r\n1\r\n--XYZ--"), ST_OK);
}

static void test_a_form_has_at_most_so_many_parts(void **state) {
    (void)state;
    struct buf body;
    struct api_error e = {0};
    buf_init(&body, 1 << 20);
    for (int i = 0; i < MULTIPART_PARTS_MAX; i++)
        buf_put_text(&body, "--XYZ\r\n" NAMED("a") "\r\n1\r\n");
    const size_t len = body.len;
    buf_put_text(&body, "--XYZ--");
    assert_int_equal(multipart_read(STR(TYPE), buf_str(&body), &form, &e), ST_OK);
    assert_int_equal(form.count, MULTIPART_PARTS_MAX);
    body.len = len;
    buf_put_text(&body, "--XYZ\r\n" NAMED("a") "\r\n1\r\n--XYZ--");
    assert_int_equal(multipart_read(STR(TYPE), buf_str(&body), &form, &e), ST_BAD);
    assert_non_null(strstr(e.message.text, "more than 32 parts"));
    buf_deinit(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_have_names_types_and_data),
        cmocka_unit_test(test_every_cut_of_a_form_is_refused),
        cmocka_unit_test(test_text_around_the_form_is_ignored),
        cmocka_unit_test(test_a_line_that_begins_like_a_boundary_is_data),
        cmocka_unit_test(test_data_may_be_empty_or_any_bytes),
        cmocka_unit_test(test_lines_that_end_with_lf_are_refused),
        cmocka_unit_test(test_boundaries),
        cmocka_unit_test(test_file_names_are_decoded),
        cmocka_unit_test(test_malformed_headers_are_refused),
        cmocka_unit_test(test_names_and_headers_have_limits),
        cmocka_unit_test(test_a_form_has_at_most_so_many_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
