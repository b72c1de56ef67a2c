/* Goal:   uploads are read, and files, pages and metadata are written, as OpenAI's clients expect.
 * Method: forms and rows written by hand, results byte by byte, both sides of every limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/file_objects.h"
#include "api/metadata.h"
#include "api/object_page.h"
#include "jobs/files.h"
#include "unit/json_lib.h"

/* ---- uploads ---- */

static struct multipart form;

static void add_part(const char *name, const char *filename, const char *data) {
    struct multipart_part *p = &form.parts[form.count++];
    *p = (struct multipart_part){.data = str_of(data)};
    snprintf(p->name, sizeof(p->name), "%s", name);
    snprintf(p->filename, sizeof(p->filename), "%s", filename);
}

static enum status read_upload(const char *purpose, const char *anchor, const char *seconds,
                               struct file_upload *out, struct api_error *e) {
    form.count = 0;
    add_part("file", "in.jsonl", "{}");
    if (purpose) add_part("purpose", "", purpose);
    if (anchor) add_part("expires_after[anchor]", "", anchor);
    if (seconds) add_part("expires_after[seconds]", "", seconds);
    return file_upload_read(&form, out, e);
}

static void test_uploads_are_read(void **state) {
    (void)state;
    struct file_upload up;
    struct api_error e = {0};
    assert_int_equal(read_upload("batch", NULL, NULL, &up, &e), ST_OK);
    assert_true(str_is(up.purpose, "batch"));
    assert_true(str_is(up.filename, "in.jsonl"));
    assert_true(str_is(up.data, "{}"));
    assert_int_equal(up.expires_after_s, 0);
    assert_int_equal(read_upload("user_data", "created_at", "3600", &up, &e), ST_OK);
    assert_int_equal(up.expires_after_s, 3600);
    assert_int_equal(read_upload("evals", "created_at", "2592000", &up, &e), ST_OK);
    assert_int_equal(up.expires_after_s, 2592000);
    form.parts[0].filename[0] = 0;
    assert_int_equal(file_upload_read(&form, &up, &e), ST_OK);
    assert_true(str_is(up.filename, "upload"));
}

static void expect_bad_upload(const char *purpose, const char *anchor, const char *seconds,
                              const char *param) {
    struct file_upload up;
    struct api_error e = {0};
    assert_int_equal(read_upload(purpose, anchor, seconds, &up, &e), ST_BAD);
    assert_int_equal(e.status, 400);
    assert_string_equal(e.param, param);
}

static void test_bad_uploads_are_refused_by_name(void **state) {
    (void)state;
    expect_bad_upload(NULL, NULL, NULL, "purpose");
    expect_bad_upload("", NULL, NULL, "purpose");
    expect_bad_upload("batch_output", NULL, NULL, "purpose");
    expect_bad_upload("batch", "created_at", NULL, "expires_after[seconds]");
    expect_bad_upload("batch", NULL, "3600", "expires_after[anchor]");
    expect_bad_upload("batch", "now", "3600", "expires_after[anchor]");
    expect_bad_upload("batch", "created_at", "3599", "expires_after[seconds]");
    expect_bad_upload("batch", "created_at", "2592001", "expires_after[seconds]");
    expect_bad_upload("batch", "created_at", "1h", "expires_after[seconds]");
    struct file_upload up;
    struct api_error e = {0};
    form.count = 0;
    assert_int_equal(file_upload_read(&form, &up, &e), ST_BAD);
    assert_string_equal(e.param, "file");
}

/* ---- objects ---- */

static void test_file_objects_byte_by_byte(void **state) {
    (void)state;
    struct file_row row = {.id = STR("file-1"),
                           .filename = STR("a\"b"),
                           .purpose = STR("batch"),
                           .bytes = 12,
                           .created_s = 1700000000};
    struct buf out;
    buf_init(&out, 1 << 16);
    file_object_put(&row, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"id\":\"file-1\",\"object\":\"file\",\"bytes\":12,\"created_at\":1700000000,"
        "\"expires_at\":null,\"filename\":\"a\\\"b\",\"purpose\":\"batch\",\"status\":"
        "\"processed\",\"status_details\":null}");
    buf_clear(&out);
    row.expires_s = 1700003600;
    file_object_put(&row, &out);
    assert_non_null(strstr(buf_text(&out), "\"expires_at\":1700003600,"));
    buf_clear(&out);
    file_deleted_put(row.id, &out);
    assert_string_equal(buf_text(&out), "{\"id\":\"file-1\",\"object\":\"file\",\"deleted\":true}");
    buf_deinit(&out);
}

/* ---- pages ---- */

static void expect_page(uint32_t objects, uint32_t limit, bool is_reversed, enum page_form form_of,
                        const char *want) {
    struct object_page page;
    struct buf out;
    buf_init(&out, 1 << 16);
    object_page_init(&page, limit);
    page.is_reversed = is_reversed;
    for (uint32_t i = 0; i < objects; i++) {
        char id[16];
        snprintf(id, sizeof(id), "x%u", i);
        struct buf *at = object_page_add(&page, str_of(id));
        if (!at) break;
        buf_printf(at, "{\"id\":\"%s\"}", id);
    }
    object_page_put(&page, form_of, &out);
    assert_string_equal(buf_text(&out), want);
    object_page_deinit(&page);
    buf_deinit(&out);
}

static void test_pages_byte_by_byte(void **state) {
    (void)state;
    expect_page(0, 2, false, PAGE_OPENAI,
                "{\"object\":\"list\",\"data\":[],\"first_id\":null,\"last_id\":null,"
                "\"has_more\":false}");
    expect_page(2, 2, false, PAGE_OPENAI,
                "{\"object\":\"list\",\"data\":[{\"id\":\"x0\"},{\"id\":\"x1\"}],"
                "\"first_id\":\"x0\",\"last_id\":\"x1\",\"has_more\":false}");
    expect_page(3, 2, false, PAGE_ANTHROPIC,
                "{\"data\":[{\"id\":\"x0\"},{\"id\":\"x1\"}],\"first_id\":\"x0\","
                "\"last_id\":\"x1\",\"has_more\":true}");
    expect_page(3, 2, true, PAGE_ANTHROPIC,
                "{\"data\":[{\"id\":\"x1\"},{\"id\":\"x0\"}],\"first_id\":\"x1\","
                "\"last_id\":\"x0\",\"has_more\":true}");
}

static enum status read_query(const char *limit, const char *order, const char *before,
                              struct page_choice *out, struct api_error *e) {
    struct page_query q = {str_of(limit), str_of(order), STR("a"), str_of(before)};
    return page_query_read(&q, &page_rules_batches, out, e);
}

static void test_queries_of_pages_have_limits(void **state) {
    (void)state;
    struct page_choice c;
    struct api_error e = {0};
    assert_int_equal(read_query("", "", "", &c, &e), ST_OK);
    assert_int_equal(c.limit, 20);
    assert_false(c.ascending);
    assert_int_equal(read_query("1", "asc", "", &c, &e), ST_OK);
    assert_int_equal(c.limit, 1);
    assert_true(c.ascending);
    assert_int_equal(read_query("100", "desc", "", &c, &e), ST_OK);
    assert_int_equal(c.limit, 100);
    static const char *const limits[] = {"0", "101", "-1", "x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        assert_int_equal(read_query(limits[i], "", "", &c, &e), ST_BAD);
        assert_string_equal(e.param, "limit");
    }
    assert_int_equal(read_query("", "up", "", &c, &e), ST_BAD);
    assert_string_equal(e.param, "order");
    assert_int_equal(read_query("", "", "b", &c, &e), ST_BAD);
    assert_string_equal(e.param, "before_id");
}

/* ---- metadata ---- */

static enum status read_metadata(const char *json, struct buf *out, struct api_error *e) {
    struct json *v = json_of(json);
    buf_clear(out);
    enum status st = metadata_read(v, "metadata", out, e);
    json_destroy(v);
    return st;
}

/* A map with `pairs` pairs, the last with a key and a value of so many characters of two bytes. */
static void put_pairs(struct buf *out, uint32_t pairs, uint32_t key, uint32_t value) {
    buf_clear(out);
    buf_put_char(out, '{');
    for (uint32_t i = 0; i + 1 < pairs; i++) buf_printf(out, "\"k%u\":\"\",", i);
    buf_put_char(out, '"');
    for (uint32_t i = 0; i < key; i++) buf_put_text(out, "\xc3\xa9");
    buf_put_text(out, "\":\"");
    for (uint32_t i = 0; i < value; i++) buf_put_text(out, "\xc3\xa9");
    buf_put_text(out, "\"}");
}

static void test_metadata_have_limits(void **state) {
    (void)state;
    static const struct {
        uint32_t pairs, key, value;
        enum status st;
    } cases[] = {{1, 0, 0, ST_OK},   {16, 64, 512, ST_OK},  {17, 1, 1, ST_BAD},
                 {1, 65, 1, ST_BAD}, {16, 64, 513, ST_BAD}, {2, 64, 512, ST_OK}};
    struct buf text, out;
    struct api_error e = {0};
    buf_init(&text, 1 << 16);
    buf_init(&out, 1 << 16);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        put_pairs(&text, cases[i].pairs, cases[i].key, cases[i].value);
        assert_int_equal(read_metadata(buf_text(&text), &out, &e), cases[i].st);
        if (cases[i].st == ST_OK) assert_string_equal(buf_text(&out), buf_text(&text));
    }
    assert_int_equal(read_metadata("null", &out, &e), ST_OK);
    assert_int_equal(out.len, 0);
    assert_int_equal(read_metadata("{}", &out, &e), ST_OK);
    assert_string_equal(buf_text(&out), "{}");
    assert_int_equal(read_metadata("[]", &out, &e), ST_BAD);
    assert_int_equal(read_metadata("{\"a\":1}", &out, &e), ST_BAD);
    assert_string_equal(e.param, "metadata.a");
    buf_deinit(&text);
    buf_deinit(&out);
}

static enum status read_update(const char *json, struct buf *out, struct api_error *e) {
    struct json *v = json_of(json);
    buf_clear(out);
    enum status st = metadata_update_read(v, out, e);
    json_destroy(v);
    return st;
}

static void test_metadata_are_replaced_by_an_update(void **state) {
    (void)state;
    struct buf out;
    struct api_error e = {0};
    buf_init(&out, 1 << 16);
    assert_int_equal(read_update("{\"metadata\":{\"a\":\"b\"}}", &out, &e), ST_OK);
    assert_string_equal(buf_text(&out), "{\"a\":\"b\"}");
    assert_int_equal(read_update("{\"metadata\":null}", &out, &e), ST_OK);
    assert_string_equal(buf_text(&out), "{}");
    assert_int_equal(read_update("{}", &out, &e), ST_BAD);
    assert_string_equal(e.param, "metadata");
    assert_int_equal(read_update("[]", &out, &e), ST_BAD);
    buf_clear(&out);
    metadata_put(STR(""), "null", &out);
    metadata_put(STR("{\"a\":\"b\"}"), "null", &out);
    assert_string_equal(buf_text(&out), ",\"metadata\":null,\"metadata\":{\"a\":\"b\"}");
    buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uploads_are_read),
        cmocka_unit_test(test_bad_uploads_are_refused_by_name),
        cmocka_unit_test(test_file_objects_byte_by_byte),
        cmocka_unit_test(test_pages_byte_by_byte),
        cmocka_unit_test(test_queries_of_pages_have_limits),
        cmocka_unit_test(test_metadata_have_limits),
        cmocka_unit_test(test_metadata_are_replaced_by_an_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
