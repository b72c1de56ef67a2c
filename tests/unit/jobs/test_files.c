/* Goal:   files: bytes come back as they were appended, files that are not ready are found by
 *         nobody, and those that a batch uses stay.
 * Method: each case is one operation or several, in a store of its own. */
#include "unit/jobs/store_lib.h"

static int set_up(void **state) {
    static struct test_store t;
    test_open(&t);
    *state = &t;
    return 0;
}
static int tear_down(void **state) {
    struct test_store *t = *state;
    test_check(t);
    test_close(t);
    return 0;
}

#define EXPECT(expression, expected)                                                               \
    do {                                                                                           \
        enum status got_ = (expression);                                                           \
        if (got_ != (expected))                                                                    \
            return err_set(err, ST_CANCELLED, "line %d: %s: %s: %s", __LINE__, #expression,        \
                           status_name(got_), err->text);                                          \
    } while (0)

static enum status add_file(struct store_db *db, struct str id, struct str bytes,
                            struct file_row row, struct err *err) {
    row.id = id;
    if (!row.owner.len) row.owner = STR("ann");
    if (!row.purpose.len) row.purpose = STR("batch");
    row.filename = STR("in.jsonl");
    TRY(files_create(db, &row, err));
    TRY(files_append(db, id, bytes, err));
    return files_set_ready(db, id, err);
}

/* ---- bytes ---- */

static char byte_at(uint64_t i) { return (char)(i * 31 + (i >> 13)); }

struct bytes {
    char *data;
    size_t len;
};

static enum status append_pieces(struct store_db *db, void *ctx, struct err *err) {
    struct bytes *b = ctx;
    const struct file_row row = {.id = STR("f1"), .owner = STR("ann"), .purpose = STR("batch")};
    const size_t sizes[] = {0, 1, FILE_CHUNK_BYTES, 17, 2 * FILE_CHUNK_BYTES + 5, 1000};
    EXPECT(files_create(db, &row, err), ST_OK);
    EXPECT(files_create(db, &row, err), ST_BAD);
    size_t at = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        EXPECT(files_append(db, STR("f1"), (struct str){b->data + at, sizes[i]}, err), ST_OK);
        at += sizes[i];
    }
    if (at != b->len) return err_set(err, ST_CANCELLED, "%zu bytes", at);
    size_t got = 0;
    EXPECT(files_read(db, STR("f1"), 0, b->data, 1, &got, err), ST_MISSING); /* not ready */
    struct file_row found;
    EXPECT(files_find(db, STR("ann"), STR("f1"), &found, err), ST_MISSING);
    EXPECT(files_set_ready(db, STR("f1"), err), ST_OK);
    EXPECT(files_append(db, STR("f1"), STR("x"), err), ST_BAD);
    EXPECT(files_append(db, STR("f2"), STR("x"), err), ST_MISSING);
    EXPECT(files_set_ready(db, STR("f2"), err), ST_MISSING);
    return ST_OK;
}

static enum status read_back(struct store_db *db, void *ctx, struct err *err) {
    struct bytes *b = ctx;
    const size_t caps[] = {1, 4096, FILE_CHUNK_BYTES, 3 * FILE_CHUNK_BYTES, 10 * FILE_CHUNK_BYTES};
    const uint64_t offsets[] = {0,
                                1,
                                2,
                                1000,
                                FILE_CHUNK_BYTES,
                                FILE_CHUNK_BYTES + 1,
                                FILE_CHUNK_BYTES + 18,
                                3 * FILE_CHUNK_BYTES,
                                b->len - 1,
                                b->len,
                                b->len + 1,
                                UINT64_MAX};
    char *out = mem_alloc(10 * FILE_CHUNK_BYTES);
    for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++) {
        for (size_t k = 0; k < sizeof(offsets) / sizeof(*offsets); k++) {
            size_t got = 7, left = offsets[k] < b->len ? b->len - (size_t)offsets[k] : 0;
            enum status st = files_read(db, STR("f1"), offsets[k], out, caps[i], &got, err);
            size_t expected = left < caps[i] ? left : caps[i];
            bool same = got == expected && (!got || !memcmp(out, b->data + offsets[k], got));
            if (st == ST_OK && !same)
                st = err_set(err, ST_CANCELLED, "%zu bytes from %llu: %zu", caps[i],
                             (unsigned long long)offsets[k], got);
            if (st != ST_OK) {
                mem_free(out);
                return st;
            }
        }
    }
    mem_free(out);
    struct file_row found;
    EXPECT(files_find(db, STR("bob"), STR("f1"), &found, err), ST_MISSING);
    EXPECT(files_find(db, STR(""), STR("f1"), &found, err), ST_OK);
    bool same = found.bytes == b->len && str_is(found.owner, "ann") && found.is_ready;
    file_row_deinit(&found);
    return same ? ST_OK : ST_CANCELLED;
}

static void test_bytes_come_back_as_they_were_appended(void **state) {
    struct test_store *t = *state;
    struct bytes b = {.len = 3 * FILE_CHUNK_BYTES + 1 + 17 + 5 + 1000};
    b.data = mem_alloc(b.len);
    for (size_t i = 0; i < b.len; i++) b.data[i] = byte_at(i);
    assert_st(test_run(t, append_pieces, &b), ST_OK);
    test_shut(t);
    assert_st(test_reopen(t), ST_OK);
    assert_st(test_read(t, read_back, &b), ST_OK);
    mem_free(b.data);
}

/* ---- files that are not ready ---- */

static enum status begin_file(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    const struct file_row row = {.id = STR("half"), .owner = STR("ann"), .purpose = STR("batch")};
    EXPECT(files_create(db, &row, err), ST_OK);
    return files_append(db, STR("half"), STR("abc"), err);
}
static enum status append_to_half(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    return files_append(db, STR("half"), STR("def"), err);
}
static enum status abandon_half(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    return files_abandon(db, STR("half"), err);
}

static void test_a_file_that_is_not_ready_is_gone_after_a_restart(void **state) {
    struct test_store *t = *state;
    assert_st(test_run(t, begin_file, NULL), ST_OK);
    assert_st(test_run(t, append_to_half, NULL), ST_OK);
    test_shut(t);
    assert_st(test_reopen(t), ST_OK);
    assert_st(test_run(t, append_to_half, NULL), ST_MISSING);
    assert_st(test_run(t, begin_file, NULL), ST_OK); /* the id is free */
    assert_st(test_run(t, abandon_half, NULL), ST_OK);
    assert_st(test_run(t, append_to_half, NULL), ST_MISSING);
    assert_st(test_run(t, abandon_half, NULL), ST_OK); /* without effect */
}

/* ---- pages, deletion, expiry ---- */

static bool note_file(void *ctx, const struct file_row *row) {
    char *seen = ctx;
    size_t len = strlen(seen);
    snprintf(seen + len, 64 - len, "%.*s ", STR_ARG(row->id));
    return true;
}
static enum status expect_page(struct store_db *db, const struct files_page *page,
                               const char *expected, struct err *err) {
    char seen[64] = "";
    TRY(files_list(db, page, note_file, seen, err));
    if (strcmp(seen, expected) == 0) return ST_OK;
    return err_set(err, ST_CANCELLED, "\"%s\", expected \"%s\"", seen, expected);
}

static enum status list_files(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    const struct file_row plain = {0}, bobs = {.owner = STR("bob")};
    const struct file_row output = {.purpose = STR("batch_output")};
    EXPECT(add_file(db, STR("f1"), STR("1"), plain, err), ST_OK);
    EXPECT(add_file(db, STR("f2"), STR("22"), bobs, err), ST_OK);
    EXPECT(add_file(db, STR("f3"), STR("333"), output, err), ST_OK);
    EXPECT(add_file(db, STR("f4"), STR(""), plain, err), ST_OK);
    struct files_page page = {.owner = STR("ann"), .limit = 2};
    EXPECT(expect_page(db, &page, "f4 f3 ", err), ST_OK);
    page.after = STR("f3");
    EXPECT(expect_page(db, &page, "f1 ", err), ST_OK);
    page.ascending = true;
    EXPECT(expect_page(db, &page, "f4 ", err), ST_OK);
    page = (struct files_page){.limit = 9, .purpose = STR("batch")};
    EXPECT(expect_page(db, &page, "f4 f2 f1 ", err), ST_OK);
    page.ascending = true;
    EXPECT(expect_page(db, &page, "f1 f2 f4 ", err), ST_OK);
    page.after = STR("f9");
    EXPECT(expect_page(db, &page, "", err), ST_MISSING);
    EXPECT(files_delete(db, STR("ann"), STR("f2"), err), ST_MISSING);
    EXPECT(files_delete(db, STR("bob"), STR("f2"), err), ST_OK);
    EXPECT(files_delete(db, STR("bob"), STR("f2"), err), ST_MISSING);
    page = (struct files_page){.limit = 9};
    return expect_page(db, &page, "f4 f3 f1 ", err);
}

static void test_a_page_begins_behind_its_cursor(void **state) {
    struct test_store *t = *state;
    assert_st(test_run(t, list_files, NULL), ST_OK);
}

static enum status use_file(struct store_db *db, void *ctx, struct err *err) {
    (void)ctx;
    const struct file_row plain = {.created_s = 50}, ends = {.created_s = 50, .expires_s = 70};
    EXPECT(add_file(db, STR("f1"), STR("1"), plain, err), ST_OK);
    EXPECT(add_file(db, STR("f2"), STR("2"), ends, err), ST_OK);
    EXPECT(add_file(db, STR("f3"), STR("3"), plain, err), ST_OK);
    const struct batch_row b = {.id = STR("b1"), .input_file = STR("f1"), .created_s = 50};
    EXPECT(batches_insert(db, &b, err), ST_OK);
    EXPECT(files_delete(db, STR(""), STR("f1"), err), ST_BAD);
    uint32_t count = 9;
    EXPECT(files_expire(db, 69, 50, 10, &count, err), ST_OK);
    if (count != 0) return err_set(err, ST_CANCELLED, "%u expired too early", count);
    EXPECT(files_expire(db, 70, 50, 10, &count, err), ST_OK);
    if (count != 1) return err_set(err, ST_CANCELLED, "%u of 1 expired", count);
    EXPECT(files_expire(db, 70, 51, 10, &count, err), ST_OK);
    if (count != 1) return err_set(err, ST_CANCELLED, "%u of 1 are old", count);
    EXPECT(batches_fail(db, STR("b1"), STR("[]"), 60, err), ST_OK);
    EXPECT(files_expire(db, 70, 51, 10, &count, err), ST_OK);
    if (count != 1) return err_set(err, ST_CANCELLED, "the input of a batch that ended stays");
    const struct files_page page = {.limit = 9};
    return expect_page(db, &page, "", err);
}

static void test_the_input_of_a_batch_stays_until_it_ends(void **state) {
    struct test_store *t = *state;
    assert_st(test_run(t, use_file, NULL), ST_OK);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest cases[] = {
        CASE(test_bytes_come_back_as_they_were_appended),
        CASE(test_a_file_that_is_not_ready_is_gone_after_a_restart),
        CASE(test_a_page_begins_behind_its_cursor),
        CASE(test_the_input_of_a_batch_stays_until_it_ends),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
