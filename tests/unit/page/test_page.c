/* Goal:   the page's files are in the program, complete and light, and a recording cannot break
 *         out of its element.
 * Method: read the table that the build has written, and compare it with the files of web/. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "page/page.h"

enum { FILE_BYTES_MAX = 1 << 22, PAGE_BYTES_MAX = 200 << 10 };

static bool has_text(struct str text, const char *part) {
    const struct str wanted = str_of(part);
    for (size_t i = 0; i + wanted.len <= text.len; i++)
        if (str_starts(str_skip(text, i), wanted)) return true;
    return false;
}

static void test_each_file_has_the_bytes_of_web(void **state) {
    (void)state;
    size_t total = 0;
    for (uint32_t i = 0; i < page_count(); i++) {
        const struct page_file *file = page_at(i);
        assert_ptr_equal(page_find(str_of(file->name)), file);
        if (strcmp(file->name, "recording.html") == 0) continue;
        char path[512];
        struct buf bytes;
        struct err err = {0};
        snprintf(path, sizeof(path), "%s/../web/%s", TEST_SOURCE_DIR, file->name);
        buf_init(&bytes, FILE_BYTES_MAX);
        assert_int_equal(file_read(path, &bytes, &err), ST_OK);
        assert_true(str_eq(buf_str(&bytes), file->bytes));
        total += file->bytes.len;
        buf_deinit(&bytes);
    }
    assert_true(total <= PAGE_BYTES_MAX);
}

static void test_unknown_names_are_not_found(void **state) {
    (void)state;
    static const char *const names[] = {"", "index", "index.html2", "../page.c", "INDEX.HTML"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_null(page_find(str_of(names[i])));
}

static void test_etags_are_quoted_and_differ(void **state) {
    (void)state;
    for (uint32_t i = 0; i < page_count(); i++) {
        const char *etag = page_at(i)->etag;
        assert_int_equal(strlen(etag), 18);
        assert_int_equal(etag[0], '"');
        assert_int_equal(etag[17], '"');
        for (uint32_t k = 0; k < i; k++) assert_string_not_equal(etag, page_at(k)->etag);
    }
}

static void test_a_recording_holds_its_data_and_no_way_out(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, FILE_BYTES_MAX);
    page_put_recording(STR("{\"model\":\"</script><b>\"}"), &out);
    assert_int_equal(buf_status(&out), ST_OK);
    const struct str page = buf_str(&out);
    assert_true(
        has_text(page, "id=\"recording\">{\"model\":\"\\u003c/script>\\u003cb>\"}</script>"));
    assert_false(has_text(page, "</script><b>"));
    assert_true(has_text(page, "script-src 'sha256-"));
    assert_false(has_text(page, "src=\""));
    assert_false(has_text(page, "\nimport "));
    buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_file_has_the_bytes_of_web),
        cmocka_unit_test(test_unknown_names_are_not_found),
        cmocka_unit_test(test_etags_are_quoted_and_differ),
        cmocka_unit_test(test_a_recording_holds_its_data_and_no_way_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
