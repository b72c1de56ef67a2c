/* Goal:   the head of an image says what was put into it; one that is cut, flipped, made for
 *         something else or hostile is refused with a reason.
 * Method: a head of three entries; every prefix of it, every byte of it changed, every field set to
 *         what it must not be, with the checksum made right again so that the check behind it is
 *         the one that speaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "kernels/cpu/image.h"
#include "kernels/cpu/pack.h"
#include "unit/kernels/cpu/seal.h"

enum { HEAD_MAX = 4096, ENTRIES = 3 };

static const struct image_ident ident = {.table = {"portable", 8}, .key = {"the key\n", 8}};

struct made {
    uint8_t head[HEAD_MAX];
    size_t len;
    uint64_t file_bytes;
    struct image_entry entries[ENTRIES];
};

static struct made make(void) {
    struct made m = {.entries = {{.name = STR("first"),
                                  .type = DTYPE_Q4_0,
                                  .rows = 17,
                                  .cols = 64,
                                  .experts = 1,
                                  .bytes = 1000,
                                  .checksum = 0x1122334455667788},
                                 {.name = STR("second"),
                                  .type = DTYPE_Q6_K,
                                  .rows = 1,
                                  .cols = 256,
                                  .experts = 4,
                                  .bytes = 4096,
                                  .checksum = 2},
                                 {.name = STR("third"),
                                  .type = DTYPE_F32,
                                  .rows = 3,
                                  .cols = 5,
                                  .experts = 1,
                                  .bytes = 1,
                                  .checksum = UINT64_MAX}}};
    struct buf head;
    m.file_bytes = image_lay_out(m.entries, ENTRIES, &ident);
    buf_init(&head, HEAD_MAX);
    image_put_head(&head, m.entries, ENTRIES, &ident, m.file_bytes);
    assert_int_equal(buf_status(&head), ST_OK);
    memcpy(m.head, head.ptr, head.len);
    m.len = head.len;
    buf_deinit(&head);
    return m;
}

static enum status parse(const struct made *m, struct err *err) {
    struct image *image = NULL;
    /* On the heap and no byte longer, so that a sanitizer sees a step beyond it. */
    char *copy = malloc(m->len ? m->len : 1);
    assert_non_null(copy);
    memcpy(copy, m->head, m->len);
    *err = (struct err){{0}};
    enum status st = image_parse((struct str){copy, m->len}, m->file_bytes, &ident, &image, err);
    image_destroy(image);
    free(copy);
    return st;
}

static void refuses(const struct made *m, const char *reason) {
    struct err err;
    assert_int_equal(parse(m, &err), ST_BAD);
    if (!strstr(err.text, reason)) fail_msg("\"%s\", expected \"%s\" in it", err.text, reason);
}

static void test_what_was_put_in_comes_out(void **state) {
    (void)state;
    struct made m = make();
    struct image *image;
    struct err err = {{0}};
    struct str head = {(const char *)m.head, m.len};
    size_t head_bytes;
    assert_int_equal(
        image_head_bytes(str_take(head, IMAGE_FIXED_BYTES), m.file_bytes, &head_bytes, &err),
        ST_OK);
    assert_int_equal(head_bytes, m.len);
    assert_int_equal(image_parse(head, m.file_bytes, &ident, &image, &err), ST_OK);
    assert_int_equal(image_count(image), ENTRIES);
    uint64_t end = IMAGE_DATA_ALIGN;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        const struct image_entry *want = &m.entries[i], *e = image_find(image, want->name);
        assert_non_null(e);
        assert_int_equal(e->type, want->type);
        assert_int_equal(e->rows, want->rows);
        assert_int_equal(e->cols, want->cols);
        assert_int_equal(e->experts, want->experts);
        assert_int_equal(e->bytes, want->bytes);
        assert_true(e->checksum == want->checksum);
        assert_int_equal(e->offset % IMAGE_ENTRY_ALIGN, 0);
        assert_true(e->offset >= end);
        end = e->offset + e->bytes;
    }
    assert_true(end == m.file_bytes);
    assert_null(image_find(image, STR("fourth")));
    image_destroy(image);
}

static void test_an_image_of_nothing_is_one(void **state) {
    (void)state;
    struct buf head;
    struct image *image;
    buf_init(&head, HEAD_MAX);
    uint64_t bytes = image_lay_out(NULL, 0, &ident);
    image_put_head(&head, NULL, 0, &ident, bytes);
    assert_int_equal(image_parse(buf_str(&head), bytes, &ident, &image, NULL), ST_OK);
    assert_int_equal(image_count(image), 0);
    image_destroy(image);
    buf_deinit(&head);
}

static void test_a_head_that_is_cut_anywhere_is_refused(void **state) {
    (void)state;
    struct err err;
    const struct made whole = make();
    for (size_t len = 0; len < whole.len; len++) {
        struct made m = whole;
        m.len = len;
        assert_int_equal(parse(&m, &err), ST_BAD);
        assert_true(err.text[0]);
    }
}

static void test_a_head_with_any_bit_flipped_is_refused(void **state) {
    (void)state;
    struct err err;
    for (size_t bit = 0; bit < 8 * make().len; bit++) {
        struct made m = make();
        m.head[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(parse(&m, &err), ST_BAD);
        assert_true(err.text[0]);
    }
}

/* A field of `bytes` bytes at `at` set to `value`, everything else right. */
static struct made with(size_t at, uint32_t bytes, uint64_t value) {
    struct made m = make();
    for (uint32_t i = 0; i < bytes; i++) m.head[at + i] = (uint8_t)(value >> 8 * i);
    seal(m.head, m.len);
    return m;
}

static void test_every_field_is_looked_at(void **state) {
    (void)state;
    static const struct {
        size_t at;
        uint32_t bytes;
        uint64_t value;
        const char *reason;
    } cases[] = {
        {0, 1, 'j', "no image"},
        {8, 4, IMAGE_VERSION + 1, "format"},
        {12, 4, PACK_LAYOUT_VERSION + 1, "layout"},
        {12, 4, PACK_LAYOUT_VERSION - 1, "layout"},
        {16, 4, PANEL_ROWS * 2, "panels"},
        {20, 4, 2, "byte order"},
        {20, 4, 0, "byte order"},
        {24, 1, 'P', "instruction set"},
        {39, 1, 'x', "instruction set"},
        {40, 4, ENTRIES + 1, "sizes"},
        {40, 4, ENTRIES - 1, "more in its head"},
        {40, 4, UINT32_MAX, "sizes"},
        {44, 4, 7, "ends within"}, /* a byte more than it says */
        {44, 4, UINT32_MAX, "sizes"},
        {48, 8, UINT64_MAX, "sizes"},
        {48, 8, 0, "sizes"},
        {56, 8, 0, "sizes"},
        {56, 8, IMAGE_DATA_ALIGN + 1, "sizes"},
        {56, 8, UINT64_MAX - IMAGE_DATA_ALIGN + 1, "sizes"},
        {64, 8, 0, "its head says"},
        {64, 8, UINT64_MAX, "its head says"},
        {80, 1, 'T', "other files"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct made m = with(cases[i].at, cases[i].bytes, cases[i].value);
        refuses(&m, cases[i].reason);
    }
}

static void test_every_field_of_an_entry_is_looked_at(void **state) {
    (void)state;
    const size_t first = IMAGE_FIXED_BYTES + ident.key.len;
    const size_t type = first + 2 + 5, numbers = type + 1 + 4;
    const size_t offset = numbers + 12, bytes = offset + 8;
    const uint64_t place = make().entries[0].offset;
    struct made m = with(first, 2, 0);
    refuses(&m, ""); /* what follows is then read in another place */
    m = with(first, 2, UINT16_MAX);
    refuses(&m, "cut off");
    m = with(type + 1, 4, 0);
    refuses(&m, "number format");
    m = with(offset, 8, place + 1);
    refuses(&m, "elsewhere");
    m = with(offset, 8, 0);
    refuses(&m, "elsewhere");
    m = with(offset, 8, place - IMAGE_ENTRY_ALIGN);
    refuses(&m, "elsewhere");
    m = with(offset, 8, UINT64_MAX - IMAGE_ENTRY_ALIGN + 1);
    refuses(&m, "elsewhere");
    m = with(bytes, 8, UINT64_MAX);
    refuses(&m, "elsewhere");
    m = with(bytes, 8, IMAGE_ENTRY_ALIGN + 1); /* into the second */
    refuses(&m, "elsewhere");
    m = with(bytes, 8, m.file_bytes);
    refuses(&m, "elsewhere");
}

static void test_a_name_that_is_there_twice_is_refused(void **state) {
    (void)state;
    struct made m = make();
    struct buf head;
    m.entries[1].name = STR("first");
    uint64_t bytes = image_lay_out(m.entries, ENTRIES, &ident);
    buf_init(&head, HEAD_MAX);
    image_put_head(&head, m.entries, ENTRIES, &ident, bytes);
    struct image *image;
    struct err err = {{0}};
    assert_int_equal(image_parse(buf_str(&head), bytes, &ident, &image, &err), ST_BAD);
    assert_non_null(strstr(err.text, "twice"));
    buf_deinit(&head);
}

static void test_an_image_for_something_else_is_refused(void **state) {
    (void)state;
    struct made m = make();
    struct image *image;
    struct err err = {{0}};
    struct str head = {(const char *)m.head, m.len};
    struct image_ident other = ident;
    other.table = STR("avx2");
    assert_int_equal(image_parse(head, m.file_bytes, &other, &image, &err), ST_BAD);
    assert_non_null(strstr(err.text, "instruction set portable"));
    other = ident;
    other.key = STR("the key");
    assert_int_equal(image_parse(head, m.file_bytes, &other, &image, &err), ST_BAD);
    assert_non_null(strstr(err.text, "other files"));
    assert_int_equal(image_parse(head, m.file_bytes - 1, &ident, &image, &err), ST_BAD);
    assert_int_equal(image_parse(head, m.file_bytes + 1, &ident, &image, &err), ST_BAD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_put_in_comes_out),
        cmocka_unit_test(test_an_image_of_nothing_is_one),
        cmocka_unit_test(test_a_head_that_is_cut_anywhere_is_refused),
        cmocka_unit_test(test_a_head_with_any_bit_flipped_is_refused),
        cmocka_unit_test(test_every_field_is_looked_at),
        cmocka_unit_test(test_every_field_of_an_entry_is_looked_at),
        cmocka_unit_test(test_a_name_that_is_there_twice_is_refused),
        cmocka_unit_test(test_an_image_for_something_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
