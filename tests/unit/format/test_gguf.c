/* Goal:   a sound GGUF gives exactly what was written into it; any other gives one sentence that
 *         names the file, the key or tensor, and what is wrong.
 * Method: small files written field by field, each wrong in one place; each is read from a block
 *         of exactly its size, so that the address sanitizer sees a read past the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/format_int.h"
#include "format/limits.h"
#include "unit/format/make_files.h"
#include "unit/format/use_model.h"

static const char name[] = "small.gguf";

/* The written bytes in a block of their own size. The model borrows it. */
static char *exact(struct buf *b) {
    assert_int_equal(buf_status(b), ST_OK);
    char *bytes = mem_alloc(b->len);
    assert_non_null(bytes);
    if (b->len) memcpy(bytes, b->ptr, b->len);
    return bytes;
}

struct opened {
    struct model_file *f;
    char *bytes;
};

static struct opened open_small(void) {
    struct buf b;
    struct opened o;
    struct err err = {0};
    buf_init(&b, FILE_BYTES_MAX);
    put_small_gguf(&b);
    o.bytes = exact(&b);
    if (gguf_open_memory((struct str){o.bytes, b.len}, name, &o.f, &err) != ST_OK)
        fail_msg("%s", err.text);
    buf_deinit(&b);
    return o;
}

static void close_small(struct opened *o) {
    model_file_close(o->f);
    mem_free(o->bytes);
}

static void test_facts_of_every_type_come_back(void **state) {
    (void)state;
    struct opened o = open_small();
    struct err err = {0};
    bool found, truth;
    uint64_t u;
    double d;
    struct str s;
    assert_int_equal(meta_count(o.f), 18);
    assert_true(str_is(meta_key(o.f, 1), "t.u8"));
    assert_int_equal(meta_u64(o.f, "t.u8", &found, &u, &err), ST_OK);
    assert_true(found && u == 200);
    assert_int_equal(meta_u64(o.f, "t.u16", &found, &u, &err), ST_OK);
    assert_true(found && u == 60000);
    assert_int_equal(meta_u64(o.f, "t.u32", &found, &u, &err), ST_OK);
    assert_true(found && u == 4000000000u);
    assert_int_equal(meta_u64(o.f, "t.u64", &found, &u, &err), ST_OK);
    assert_true(found && u == UINT64_MAX);
    assert_int_equal(meta_f64(o.f, "t.i8", &found, &d, &err), ST_OK);
    assert_true(found && d == -2);
    assert_int_equal(meta_f64(o.f, "t.i16", &found, &d, &err), ST_OK);
    assert_true(found && d == -32768);
    assert_int_equal(meta_f64(o.f, "t.i32", &found, &d, &err), ST_OK);
    assert_true(found && d == -1);
    assert_int_equal(meta_f64(o.f, "t.i64", &found, &d, &err), ST_OK);
    assert_true(found && d == -0x1p63);
    assert_int_equal(meta_f64(o.f, "t.f32", &found, &d, &err), ST_OK);
    assert_true(found && d == 1.5);
    assert_int_equal(meta_f64(o.f, "t.f64", &found, &d, &err), ST_OK);
    assert_true(found && d == -2.5);
    assert_int_equal(meta_bool(o.f, "t.yes", &found, &truth, &err), ST_OK);
    assert_true(found && truth);
    assert_int_equal(meta_bool(o.f, "t.no", &found, &truth, &err), ST_OK);
    assert_true(found && !truth);
    assert_int_equal(meta_str(o.f, "general.architecture", &found, &s, &err), ST_OK);
    assert_true(found && str_is(s, "llama"));
    close_small(&o);
}

static void test_an_absent_key_is_no_error_and_leaves_the_value_alone(void **state) {
    (void)state;
    struct opened o = open_small();
    struct err err = {0};
    bool found = true;
    uint64_t u = 42, count = 9;
    assert_int_equal(meta_u64(o.f, "t.u9", &found, &u, &err), ST_OK);
    assert_false(found);
    assert_int_equal(u, 42);
    assert_int_equal(meta_kind(o.f, "t.u9"), META_NONE);
    assert_int_equal(meta_list(o.f, "t.u8", &count), META_NONE);
    assert_int_equal(count, 0);
    assert_null(tensor_find(o.f, "t.u8"));
    close_small(&o);
}

static void test_another_type_is_refused_with_the_key(void **state) {
    (void)state;
    struct opened o = open_small();
    bool found, truth;
    uint64_t u;
    double d;
    struct str s;
    struct err err = {0};
    assert_int_equal(meta_u64(o.f, "t.i8", &found, &u, &err), ST_BAD);
    assert_string_equal(err.text,
                        "small.gguf: key t.i8: is -2, expected a number that is not negative");
    assert_int_equal(meta_u64(o.f, "t.f32", &found, &u, &err), ST_BAD);
    assert_non_null(strstr(err.text, "key t.f32: is a number with a fraction, expected a whole"));
    assert_int_equal(meta_u64(o.f, "t.yes", &found, &u, &err), ST_BAD);
    assert_int_equal(meta_f64(o.f, "general.architecture", &found, &d, &err), ST_BAD);
    assert_non_null(strstr(err.text, "is text, expected a number"));
    assert_int_equal(meta_bool(o.f, "t.u8", &found, &truth, &err), ST_BAD);
    assert_non_null(strstr(err.text, "is a whole number, expected true or false"));
    assert_int_equal(meta_str(o.f, "l.str", &found, &s, &err), ST_BAD);
    assert_non_null(strstr(err.text, "is a list, expected text"));
    int64_t i;
    assert_int_equal(meta_list_i64(o.f, "l.str", 2, &i, &err), ST_BAD);
    assert_string_equal(err.text, "small.gguf: key l.str: item 2 is text, expected a whole number");
    assert_int_equal(meta_list_str(o.f, "l.i32", 0, &s, &err), ST_BAD);
    close_small(&o);
}

static void test_lists_give_any_item(void **state) {
    (void)state;
    struct opened o = open_small();
    struct err err = {0};
    uint64_t count;
    struct str s;
    int64_t i;
    double d;
    assert_int_equal(meta_list(o.f, "l.str", &count), META_STR);
    assert_int_equal(count, 3);
    assert_int_equal(meta_list_str(o.f, "l.str", 2, &s, &err), ST_OK);
    assert_true(str_is(s, "ccc"));
    assert_int_equal(meta_list_str(o.f, "l.str", 1, &s, &err), ST_OK);
    assert_int_equal(s.len, 0);
    assert_int_equal(meta_list(o.f, "l.i32", &count), META_INT);
    assert_int_equal(meta_list_i64(o.f, "l.i32", 1, &i, &err), ST_OK);
    assert_int_equal(i, -8);
    assert_int_equal(meta_list_f64(o.f, "l.i32", 0, &d, &err), ST_OK);
    assert_true(d == 7);
    assert_int_equal(meta_list(o.f, "l.f32", &count), META_REAL);
    assert_int_equal(meta_list_f64(o.f, "l.f32", 1, &d, &err), ST_OK);
    assert_true(d == -2);
    assert_int_equal(meta_list(o.f, "l.bool", &count), META_BOOL);
    assert_int_equal(meta_list(o.f, "l.empty", &count), META_STR);
    assert_int_equal(count, 0);
    close_small(&o);
}

static void test_tensors_are_row_major_and_point_into_the_file(void **state) {
    (void)state;
    struct opened o = open_small();
    assert_int_equal(tensor_count(o.f), 3);
    const struct tensor_info *t = tensor_find(o.f, "embd");
    assert_ptr_equal(t, tensor_at(o.f, 0));
    assert_int_equal(t->dim_count, 2);
    assert_int_equal(t->dims[0], 3);
    assert_int_equal(t->dims[1], 4);
    assert_int_equal(t->dims[2], 1);
    assert_int_equal(t->bytes, 48);
    const struct tensor_info *norm = tensor_find(o.f, "norm");
    assert_int_equal(norm->type, DTYPE_F16);
    assert_int_equal((const char *)norm->data - (const char *)t->data, 160);
    assert_int_equal(((const uint8_t *)t->data)[0], 1);
    assert_null(tensor_skipped(o.f, "embd"));
    use_model(o.f);
    tensor_release(o.f, t); /* memory that is no map is left alone */
    close_small(&o);
}

static void test_values_are_shown_as_short_text(void **state) {
    (void)state;
    struct opened o = open_small();
    struct buf out;
    buf_init(&out, 4096);
    for (size_t i = 0; i < meta_count(o.f); i++) {
        meta_put_value(o.f, i, &out);
        buf_put_char(&out, ' ');
    }
    assert_string_equal(buf_text(&out),
                        "\"llama\" 200 -2 60000 -32768 4000000000 -1 1.5 true false "
                        "18446744073709551615 -9223372036854775808 -2.5 [\"a\", \"\", \"ccc\"] "
                        "[7, -8] [1, -2] [true, false] [] ");
    buf_deinit(&out);
    close_small(&o);
}

/* ---- Refusals: each writes a file that is wrong in one place ---- */

static void w_empty(struct buf *b) { (void)b; }
static void w_magic(struct buf *b) { buf_put_text(b, "GGUX\3\0\0\0"); }
static void w_head_cut(struct buf *b) { buf_put(b, "GGUF\3\0\0\0\1", 9); }
static void w_version_1(struct buf *b) { put_head(b, 1, 0, 0); }
static void w_version_4(struct buf *b) { put_head(b, 4, 0, 0); }
static void w_big_endian(struct buf *b) { put_head(b, 0x03000000, 0, 0); }
static void w_keys_over_limit(struct buf *b) { put_head(b, 3, 0, LIMIT_GGUF_KEYS + 1); }
static void w_keys_wrap(struct buf *b) { put_head(b, 3, 0, UINT64_MAX / 8); }
static void w_keys_absent(struct buf *b) { put_head(b, 3, 0, LIMIT_GGUF_KEYS); }
static void w_tensors_over_limit(struct buf *b) { put_head(b, 3, LIMIT_GGUF_TENSORS + 1, 0); }
static void w_tensors_absent(struct buf *b) { put_head(b, 3, LIMIT_GGUF_TENSORS, 0); }

static void w_key_name_huge(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_u64(b, UINT64_MAX - 3);
    put_data(b, 100);
}

static void w_key_name_cut(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_u64(b, 1000);
    put_data(b, 100);
}

static void w_key_name_empty(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_u32(b, "", 1);
    put_data(b, 8);
}

static void w_key_name_control(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_u32(b, "a\nb", 1);
}

static void w_key_name_not_utf8(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_u32(b, "a\xFF", 1);
}

static void w_key_twice(struct buf *b) {
    put_head(b, 3, 0, 2);
    put_key_u32(b, "twin", 1);
    put_key_u32(b, "twin", 2);
}

static void w_value_type(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key(b, "odd", 13);
    put_u64(b, 0);
}

static void w_value_cut(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key(b, "cut", G_U64);
    put_u32(b, 1);
}

static void w_bool_two(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key(b, "maybe", G_BOOL);
    put_le(b, 2, 1);
}

static void w_string_huge(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key(b, "long", G_STR);
    put_u64(b, (16u << 20) + 1);
}

static void w_string_past_end(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key(b, "long", G_STR);
    put_u64(b, 100);
    put_data(b, 99);
}

static void w_list_of_lists(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_list(b, "deep", G_LIST, 1);
    put_data(b, 20);
}

static void w_list_item_type(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_list(b, "deep", 99, 1);
}

static void w_list_over_limit(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_list(b, "many", G_U8, LIMIT_GGUF_LIST_ITEMS + 1);
}

static void w_list_wraps(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_list(b, "many", G_U64, UINT64_MAX / 8 + 1);
}

static void w_list_past_end(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_list(b, "many", G_U32, 3);
    put_data(b, 11);
}

static void w_list_bool_two(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_list(b, "many", G_BOOL, 2);
    put_le(b, 0x0201, 2);
}

static void w_list_strings_absent(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_list(b, "many", G_STR, LIMIT_GGUF_LIST_ITEMS);
    put_data(b, 100);
}

static void w_list_string_past_end(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_list(b, "many", G_STR, 2);
    put_string(b, "ok");
    put_u64(b, 9);
    put_data(b, 8);
}

static void alignment(struct buf *b, uint32_t align) {
    put_head(b, 3, 0, 1);
    put_key_u32(b, "general.alignment", align);
}

static void w_align_0(struct buf *b) { alignment(b, 0); }
static void w_align_odd(struct buf *b) { alignment(b, 48); }
static void w_align_huge(struct buf *b) { alignment(b, 8192); }

static void w_align_text(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_str(b, "general.alignment", "32");
}

/* One tensor, then 64 bytes of data. */
static void one_tensor(struct buf *b, uint64_t inner, uint64_t outer, uint32_t type,
                       uint64_t offset) {
    put_head(b, 3, 1, 0);
    put_tensor(b, "w", inner, outer, type, offset);
    put_pad(b, 32);
    put_data(b, 64);
}

static void w_tensor_past_end(struct buf *b) { one_tensor(b, 17, 0, T_F32, 0); }
static void w_tensor_offset_past_end(struct buf *b) { one_tensor(b, 16, 0, T_F32, 32); }
static void w_tensor_offset_wraps(struct buf *b) { one_tensor(b, 16, 0, T_F32, UINT64_MAX - 31); }
static void w_tensor_unaligned(struct buf *b) { one_tensor(b, 4, 0, T_F32, 8); }
static void w_tensor_row(struct buf *b) { one_tensor(b, 24, 4, T_Q4_0, 0); }
static void w_tensor_zero(struct buf *b) { one_tensor(b, 0, 0, T_F32, 0); }
static void w_tensor_wraps(struct buf *b) { one_tensor(b, 1ull << 33, 1ull << 33, T_F32, 0); }
static void w_tensor_bytes_wrap(struct buf *b) { one_tensor(b, 1ull << 62, 0, T_F32, 0); }
static void w_tensor_negative(struct buf *b) { one_tensor(b, UINT64_MAX, 0, T_F32, 0); }
static void w_tensor_type_known(struct buf *b) { one_tensor(b, 16, 0, 39, 0); }
static void w_tensor_type_unknown(struct buf *b) { one_tensor(b, 16, 0, 4000000000u, 0); }

static void w_tensor_dims_5(struct buf *b) {
    put_head(b, 3, 1, 0);
    put_string(b, "w");
    put_u32(b, 5);
    for (int i = 0; i < 5; i++) put_u64(b, 1);
    put_data(b, 12);
}

static void w_tensor_dims_0(struct buf *b) {
    put_head(b, 3, 1, 0);
    put_string(b, "w");
    put_u32(b, 0);
    put_data(b, 32);
}

static void w_tensor_twice(struct buf *b) {
    put_head(b, 3, 2, 0);
    put_tensor(b, "w", 8, 0, T_F32, 0);
    put_tensor(b, "w", 8, 0, T_F32, 32);
    put_pad(b, 32);
    put_data(b, 64);
}

static void w_tensor_overlap(struct buf *b) {
    put_head(b, 3, 2, 0);
    put_tensor(b, "late", 8, 0, T_F32, 32);
    put_tensor(b, "early", 9, 0, T_F32, 0);
    put_pad(b, 32);
    put_data(b, 96);
}

static void w_tensor_name_long(struct buf *b) {
    put_head(b, 3, 1, 0);
    put_u64(b, LIMIT_TENSOR_NAME_BYTES + 1);
    put_data(b, 1000);
}

static void w_tensor_record_cut(struct buf *b) {
    put_head(b, 3, 1, 0);
    put_string(b, "a-name-of-some-length");
    put_u32(b, 2);
    put_u64(b, 4);
}

static void w_no_data(struct buf *b) {
    put_head(b, 3, 1, 0);
    put_tensor(b, "w", 16, 0, T_F32, 0);
}

static void w_split_part(struct buf *b) {
    put_head(b, 3, 0, 2);
    put_key_u32(b, "split.no", 1);
    put_key_u32(b, "split.count", 3);
}

static void w_split_in_memory(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_u32(b, "split.count", 3);
}

static void w_split_many(struct buf *b) {
    put_head(b, 3, 0, 1);
    put_key_u32(b, "split.count", LIMIT_PARTS + 1);
}

static const struct {
    void (*write)(struct buf *b);
    const char *says;
} refusals[] = {
    {w_empty, "does not begin with GGUF"},
    {w_magic, "does not begin with GGUF"},
    {w_head_cut, "9 bytes long, cut short inside the GGUF head"},
    {w_version_1, "GGUF version 1, expected 2 or 3"},
    {w_version_4, "GGUF version 4, expected 2 or 3"},
    {w_big_endian, "a big-endian GGUF, expected a little-endian one"},
    {w_keys_over_limit, "65537 keys, at most 65536 are read"},
    {w_keys_wrap, "keys, at most 65536 are read"},
    {w_keys_absent, "65536 keys do not fit in the 0 bytes that are left"},
    {w_tensors_over_limit, "65537 tensors, at most 65536 are read"},
    {w_tensors_absent, "65536 tensors do not fit in the 0 bytes"},
    {w_key_name_huge, "key 0 of 1: its name is too long or not text"},
    {w_key_name_cut, "key 0 of 1: its name is cut short"},
    {w_key_name_empty, "key 0 of 1: its name is too long or not text, expected 1 to 65535 bytes"},
    {w_key_name_control, "key 0 of 1: its name is too long or not text"},
    {w_key_name_not_utf8, "key 0 of 1: its name is too long or not text"},
    {w_key_twice, "key twin: is there twice"},
    {w_value_type, "key odd: value type 13, expected 0 to 12"},
    {w_value_cut, "key cut: the file ends inside its value"},
    {w_bool_two, "key maybe: a boolean that is neither 0 nor 1"},
    {w_string_huge, "key long: a string of more than 16777216 bytes"},
    {w_string_past_end, "key long: the file ends inside its value"},
    {w_list_of_lists, "key deep: a list of lists is not read"},
    {w_list_item_type, "key deep: list item type 99, expected 0 to 12"},
    {w_list_over_limit, "key many: a list of 16777217 items, at most 16777216 are read"},
    {w_list_wraps, "key many: a list of 2305843009213693952 items"},
    {w_list_past_end, "key many: the file ends inside its value"},
    {w_list_bool_two, "key many: a boolean that is neither 0 nor 1"},
    {w_list_strings_absent, "key many: the file ends inside its value"},
    {w_list_string_past_end, "key many: the file ends inside its value"},
    {w_align_0, "key general.alignment: expected a power of two up to 4096"},
    {w_align_odd, "key general.alignment: expected a power of two"},
    {w_align_huge, "key general.alignment: expected a power of two"},
    {w_align_text, "key general.alignment: expected a power of two"},
    {w_tensor_past_end, "tensor w: needs bytes 0 to 68 of the data, the file has 64"},
    {w_tensor_offset_past_end, "tensor w: needs bytes 32 to 96 of the data, the file has 64"},
    {w_tensor_offset_wraps, "tensor w: its end is past the end of any file"},
    {w_tensor_unaligned, "tensor w: offset 8, expected a multiple of 32"},
    {w_tensor_row, "tensor w: rows of 24 elements, expected a multiple of 32 for Q4_0"},
    {w_tensor_zero, "tensor w: a dim is 0"},
    {w_tensor_wraps, "tensor w: more elements than can be counted"},
    {w_tensor_bytes_wrap, "tensor w: more bytes than can be counted"},
    {w_tensor_negative, "tensor w: more bytes than can be counted"},
    {w_tensor_type_known, "tensor w: type MXFP4 (number 39), which is not read; expected one of "
                          "F32, F16, BF16, Q4_0"},
    {w_tensor_type_unknown, "tensor w: type unknown (number 4000000000)"},
    {w_tensor_dims_5, "tensor w: 5 dims, expected 1 to 4"},
    {w_tensor_dims_0, "tensor w: 0 dims, expected 1 to 4"},
    {w_tensor_twice, "tensor w: is there twice"},
    {w_tensor_overlap, "tensor late: its bytes overlap those of early"},
    {w_tensor_name_long, "tensor 0 of 1: its name is too long"},
    {w_tensor_record_cut, "tensor a-name-of-some-length: the file ends inside its record"},
    {w_no_data, "the file ends before the data of its tensors"},
    {w_split_part, "part 2 of 3 of a split model, expected the first"},
    {w_split_in_memory, "one of 3 parts, expected a whole model"},
    {w_split_many, "key split.count: 1025 parts, at most 1024 are read"},
};

static void test_every_wrong_file_is_refused_with_one_sentence(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct buf b;
        struct err err = {0};
        struct model_file *f = NULL;
        buf_init(&b, FILE_BYTES_MAX);
        refusals[i].write(&b);
        char *bytes = exact(&b);
        enum status st = gguf_open_memory((struct str){bytes, b.len}, name, &f, &err);
        if (st != ST_BAD || !is_sentence(&err, name) || !strstr(err.text, refusals[i].says))
            fail_msg("case %zu: status %d, \"%s\", expected \"%s\"", i, st, err.text,
                     refusals[i].says);
        mem_free(bytes);
        buf_deinit(&b);
    }
}

static void test_limits_themselves_are_allowed(void **state) {
    (void)state;
    struct buf b;
    struct err err = {0};
    struct model_file *f;
    buf_init(&b, FILE_BYTES_MAX);
    put_head(&b, 2, 1, 2);
    put_key_u32(&b, "general.alignment", LIMIT_GGUF_ALIGNMENT);
    put_key_list(&b, "many", G_U8, LIMIT_GGUF_LIST_ITEMS);
    put_data(&b, LIMIT_GGUF_LIST_ITEMS);
    put_u64(&b, LIMIT_TENSOR_NAME_BYTES);
    for (int i = 0; i < LIMIT_TENSOR_NAME_BYTES; i++) buf_put_char(&b, 'w');
    put_u32(&b, 4);
    for (int i = 0; i < 4; i++) put_u64(&b, 2);
    put_u32(&b, T_F32);
    put_u64(&b, 0);
    put_pad(&b, LIMIT_GGUF_ALIGNMENT);
    put_data(&b, 64);
    if (gguf_open_memory(buf_str(&b), name, &f, &err) != ST_OK) fail_msg("%s", err.text);
    use_model(f);
    assert_int_equal(tensor_at(f, 0)->dim_count, 4);
    model_file_close(f);
    buf_deinit(&b);
}

static void test_many_lists_of_strings_together_have_a_limit(void **state) {
    (void)state;
    struct buf b;
    struct err err = {0};
    struct model_file *f;
    enum { ITEMS = LIMIT_GGUF_LIST_STRINGS / 16 };
    buf_init(&b, 256 << 20);
    put_head(&b, 3, 0, 17);
    for (int i = 0; i < 17; i++) {
        char key[2] = {(char)('a' + i), 0};
        put_key_list(&b, key, G_STR, i < 16 ? ITEMS : 1);
        for (int k = 0; k < (i < 16 ? ITEMS : 1); k++) buf_put(&b, "\0\0\0\0\0\0\0", 8);
    }
    assert_int_equal(buf_status(&b), ST_OK);
    assert_int_equal(gguf_open_memory(buf_str(&b), name, &f, &err), ST_BAD);
    assert_non_null(strstr(err.text, "key q: the lists up to it have 16777217 strings"));
    b.ptr[16] = 16; /* one key fewer is just at the limit */
    if (gguf_open_memory(buf_str(&b), name, &f, &err) != ST_OK) fail_msg("%s", err.text);
    model_file_close(f);
    buf_deinit(&b);
}

static void test_a_vocabulary_alone_needs_no_padding(void **state) {
    (void)state;
    struct buf b;
    struct err err = {0};
    struct model_file *f;
    buf_init(&b, FILE_BYTES_MAX);
    put_head(&b, 3, 0, 1);
    put_key_str(&b, "general.architecture", "x");
    if (gguf_open_memory(buf_str(&b), name, &f, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(tensor_count(f), 0);
    model_file_close(f);
    buf_deinit(&b);
}

static void test_numbers_that_are_not_finite_are_refused_where_they_are_asked_for(void **state) {
    (void)state;
    struct buf b;
    struct err err = {0};
    struct model_file *f;
    bool found;
    double d;
    buf_init(&b, FILE_BYTES_MAX);
    put_head(&b, 3, 0, 3);
    put_key(&b, "inf", G_F32), put_u32(&b, 0x7F800000);
    put_key_list(&b, "nans", G_F32, 1), put_u32(&b, 0x7FC00000);
    put_key_list(&b, "big", G_U64, 1), put_u64(&b, 1ull << 63);
    if (gguf_open_memory(buf_str(&b), name, &f, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(meta_f64(f, "inf", &found, &d, &err), ST_BAD);
    assert_string_equal(err.text, "small.gguf: key inf: is inf, expected a finite number");
    assert_int_equal(meta_list_f64(f, "nans", 0, &d, &err), ST_BAD);
    int64_t i;
    assert_int_equal(meta_list_i64(f, "big", 0, &i, &err), ST_BAD);
    assert_non_null(strstr(err.text, "item 0 is 9223372036854775808, expected less than 2^63"));
    model_file_close(f);
    buf_deinit(&b);
}

/* ---- Files ---- */

static void write_part(const char *folder, const char *file, uint32_t number, uint32_t count,
                       const char *tensor) {
    struct buf b;
    buf_init(&b, FILE_BYTES_MAX);
    put_head(&b, 3, 1, 3);
    put_key_u32(&b, "split.no", number);
    put_key_u32(&b, "split.count", count);
    put_key_u32(&b, "split.tensors.count", 2);
    put_tensor(&b, tensor, 8, 0, T_F32, 0);
    put_pad(&b, 32);
    put_data(&b, 32);
    write_buf(folder, file, &b);
    buf_deinit(&b);
}

static enum status open_in(const char *folder, const char *file, struct model_file **f,
                           struct err *err) {
    char path[4096];
    assert_true(path_join(path, sizeof(path), folder, file));
    *err = (struct err){0};
    enum status st = model_file_open(path, f, err);
    if (st != ST_OK && !strstr(err->text, folder))
        fail_msg("does not name the file: %s", err->text);
    return st;
}

static void test_a_split_set_opens_as_one_model(void **state) {
    (void)state;
    char folder[256];
    struct err err;
    struct model_file *f;
    make_folder(folder, sizeof(folder));
    write_part(folder, "m-00001-of-00002.gguf", 0, 2, "a");
    assert_int_equal(open_in(folder, "m-00001-of-00002.gguf", &f, &err), ST_MISSING);
    assert_non_null(strstr(err.text, "m-00002-of-00002.gguf"));
    write_part(folder, "m-00002-of-00002.gguf", 1, 2, "b");
    assert_int_equal(open_in(folder, "m-00001-of-00002.gguf", &f, &err), ST_OK);
    assert_int_equal(tensor_count(f), 2);
    assert_non_null(tensor_find(f, "a"));
    assert_non_null(tensor_find(f, "b"));
    tensor_release(f, tensor_find(f, "b"));
    use_model(f);
    model_file_close(f);
    remove_folder(folder);
}

static void test_a_split_set_whose_parts_disagree_is_refused(void **state) {
    (void)state;
    char folder[256];
    struct err err;
    struct model_file *f;
    make_folder(folder, sizeof(folder));
    write_part(folder, "m-00001-of-00002.gguf", 0, 2, "a");
    write_part(folder, "m-00002-of-00002.gguf", 1, 2, "a");
    assert_int_equal(open_in(folder, "m-00001-of-00002.gguf", &f, &err), ST_BAD);
    assert_non_null(strstr(err.text, "tensor a: is there twice"));
    write_part(folder, "m-00002-of-00002.gguf", 1, 3, "b");
    assert_int_equal(open_in(folder, "m-00001-of-00002.gguf", &f, &err), ST_BAD);
    assert_non_null(strstr(err.text, "says that it is part 2 of 3, expected part 2 of 2"));
    write_part(folder, "other.gguf", 0, 2, "a");
    assert_int_equal(open_in(folder, "other.gguf", &f, &err), ST_BAD);
    assert_non_null(strstr(err.text, "expected a name that ends in -00001-of-00002.gguf"));
    write_part(folder, "m-00001-of-00003.gguf", 0, 3, "a");
    write_part(folder, "m-00002-of-00003.gguf", 1, 3, "b");
    write_part(folder, "m-00003-of-00003.gguf", 2, 3, "c");
    assert_int_equal(open_in(folder, "m-00001-of-00003.gguf", &f, &err), ST_BAD);
    assert_non_null(strstr(err.text, "3 tensors in all parts, expected 2"));
    remove_folder(folder);
}

static void test_a_file_is_known_by_its_first_bytes(void **state) {
    (void)state;
    char folder[256];
    struct err err;
    struct model_file *f;
    struct buf b;
    buf_init(&b, FILE_BYTES_MAX);
    put_small_gguf(&b);
    make_folder(folder, sizeof(folder));
    write_buf(folder, "model.bin", &b);
    assert_int_equal(open_in(folder, "model.bin", &f, &err), ST_OK);
    assert_int_equal(model_file_kind(f), MODEL_GGUF);
    assert_non_null(strstr(model_file_path(f), "model.bin"));
    const struct json *none = (const struct json *)&b;
    bool found = true;
    struct str text;
    assert_int_equal(model_file_json(f, "tokenizer.json", &none, &err), ST_OK);
    assert_null(none);
    assert_int_equal(model_file_text(f, "x.jinja", &found, &text, &err), ST_OK);
    assert_false(found);
    model_file_close(f);
    buf_deinit(&b);
    assert_int_equal(open_in(folder, "no.gguf", &f, &err), ST_MISSING);
    write_text(folder, "empty.gguf", "");
    assert_int_equal(open_in(folder, "empty.gguf", &f, &err), ST_BAD);
    assert_non_null(strstr(err.text, "does not begin with GGUF"));
    write_text(folder, "text.txt", "hello");
    assert_int_equal(open_in(folder, "text.txt", &f, &err), ST_BAD);
    assert_non_null(strstr(err.text, "not a model: expected a GGUF file"));
    remove_folder(folder);
}

/* The file has holes, so that it takes no room; only what is touched is read. */
static void test_a_tensor_of_six_gigabytes_is_mapped(void **state) {
    (void)state;
    const uint64_t data_bytes = 6ull << 30;
    char folder[256], path[4096];
    struct err err = {0};
    struct model_file *f;
    struct buf b;
    buf_init(&b, FILE_BYTES_MAX);
    put_head(&b, 3, 2, 0);
    put_tensor(&b, "big", 1 << 20, data_bytes / 4 >> 20, T_F32, 0);
    put_tensor(&b, "last", 8, 0, T_F32, data_bytes);
    put_pad(&b, 32);
    make_folder(folder, sizeof(folder));
    write_buf(folder, "big.gguf", &b);
    assert_true(path_join(path, sizeof(path), folder, "big.gguf"));
    bool grown = truncate(path, (off_t)(b.len + data_bytes + 32)) == 0;
    if (grown && model_file_open(path, &f, &err) == ST_OK) {
        assert_int_equal(tensor_find(f, "big")->bytes, data_bytes);
        use_model(f);
        model_file_close(f);
    }
    buf_deinit(&b);
    remove_folder(folder);
    if (!grown) skip(); /* a file system without room for holes */
    assert_string_equal(err.text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts_of_every_type_come_back),
        cmocka_unit_test(test_an_absent_key_is_no_error_and_leaves_the_value_alone),
        cmocka_unit_test(test_another_type_is_refused_with_the_key),
        cmocka_unit_test(test_lists_give_any_item),
        cmocka_unit_test(test_tensors_are_row_major_and_point_into_the_file),
        cmocka_unit_test(test_values_are_shown_as_short_text),
        cmocka_unit_test(test_every_wrong_file_is_refused_with_one_sentence),
        cmocka_unit_test(test_limits_themselves_are_allowed),
        cmocka_unit_test(test_many_lists_of_strings_together_have_a_limit),
        cmocka_unit_test(test_a_vocabulary_alone_needs_no_padding),
        cmocka_unit_test(test_numbers_that_are_not_finite_are_refused_where_they_are_asked_for),
        cmocka_unit_test(test_a_split_set_opens_as_one_model),
        cmocka_unit_test(test_a_split_set_whose_parts_disagree_is_refused),
        cmocka_unit_test(test_a_file_is_known_by_its_first_bytes),
        cmocka_unit_test(test_a_tensor_of_six_gigabytes_is_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
