/* Goal:   opening a model survives the failure of any one allocation: a sentence that says so,
 *         nothing lost, nothing half open.
 * Method: open small models again and again, the first time with the first allocation failing,
 *         then the second, until an opening needs no more; leaks show in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fault/fail_alloc.h"
#include "format/model_file.h"
#include "unit/format/make_files.h"
#include "unit/format/make_quant.h"
#include "unit/format/use_model.h"

enum { ALLOCATIONS_MAX = 10000 };

/* Everything that allocates, in one go. */
static enum status open_and_read(const char *path, struct err *err) {
    struct model_file *f;
    const struct json *doc;
    struct str text;
    bool found;
    TRY(model_file_open(path, &f, err));
    enum status st = model_file_json(f, "tokenizer.json", &doc, err);
    if (st == ST_OK) st = model_file_text(f, "notes.txt", &found, &text, err);
    model_file_close(f);
    return st;
}

/* How many allocations opening `path` takes; sentences begin with `folder`. */
static long walk(const char *path, const char *folder) {
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = open_and_read(path, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            return n;
        }
        if (st != ST_NOMEM || !is_sentence(&err, folder))
            fail_msg("allocation %ld: status %d, \"%s\"", n, st, err.text);
    }
    fail_msg("more than %d allocations", ALLOCATIONS_MAX);
    return 0;
}

static void test_opening_a_gguf_survives_any_failed_allocation(void **state) {
    (void)state;
    char folder[256], path[4096];
    struct buf b;
    make_folder(folder, sizeof(folder));
    buf_init(&b, FILE_BYTES_MAX);
    put_small_gguf(&b);
    write_buf(folder, "m.gguf", &b);
    buf_deinit(&b);
    assert_true(path_join(path, sizeof(path), folder, "m.gguf"));
    assert_in_range(walk(path, folder), 15, ALLOCATIONS_MAX);
    remove_folder(folder);
}

static void test_opening_a_split_gguf_survives_any_failed_allocation(void **state) {
    (void)state;
    char folder[256], path[4096];
    make_folder(folder, sizeof(folder));
    for (uint32_t i = 0; i < 2; i++) {
        struct buf b;
        buf_init(&b, FILE_BYTES_MAX);
        put_head(&b, 3, 1, 2);
        put_key_u32(&b, "split.no", i);
        put_key_u32(&b, "split.count", 2);
        put_tensor(&b, i ? "b" : "a", 8, 0, T_F32, 0);
        put_pad(&b, 32);
        put_data(&b, 32);
        write_buf(folder, i ? "m-00002-of-00002.gguf" : "m-00001-of-00002.gguf", &b);
        buf_deinit(&b);
    }
    assert_true(path_join(path, sizeof(path), folder, "m-00001-of-00002.gguf"));
    assert_in_range(walk(path, folder), 15, ALLOCATIONS_MAX);
    remove_folder(folder);
}

static void write_folder(const char *folder, bool indexed) {
    struct buf b;
    buf_init(&b, FILE_BYTES_MAX);
    put_safetensors(&b, SMALL_SAFETENSORS, SMALL_SAFETENSORS_DATA);
    write_text(folder, "config.json", "{\"a\":1,\"b\":{\"c\":[1,2]},\"d\":\"x\"}");
    write_text(folder, "tokenizer.json", "{}");
    write_text(folder, "notes.txt", "text");
    write_buf(folder, "model-1.safetensors", &b);
    if (indexed)
        write_text(folder, "model.safetensors.index.json",
                   "{\"weight_map\":{\"w\":\"model-1.safetensors\"}}");
    buf_deinit(&b);
}

static void test_opening_a_folder_survives_any_failed_allocation(void **state) {
    (void)state;
    for (int indexed = 0; indexed < 2; indexed++) {
        char folder[256];
        make_folder(folder, sizeof(folder));
        write_folder(folder, indexed);
        assert_in_range(walk(folder, folder), 15, ALLOCATIONS_MAX);
        remove_folder(folder);
    }
}

static void test_opening_a_quantised_folder_survives_any_failed_allocation(void **state) {
    (void)state;
    char folder[256];
    make_folder(folder, sizeof(folder));
    write_text(folder, "config.json",
               "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
               "\"group_size\": 32, \"desc_act\": true}}");
    /* Groups in falling order, so that inputs are sorted. */
    write_quantised(folder, "m.qweight I32 8 16;m.qzeros I32 2 2;m.scales BF16 2 16;"
                            "m.g_idx I32 64 ^32;");
    assert_in_range(walk(folder, folder), 20, ALLOCATIONS_MAX);
    remove_folder(folder);
}

static void test_opening_an_fp8_folder_survives_any_failed_allocation(void **state) {
    (void)state;
    char folder[256];
    make_folder(folder, sizeof(folder));
    write_text(folder, "config.json",
               "{\"quantization_config\": {\"quant_method\": \"fp8\", "
               "\"weight_block_size\": [2, 128]}}");
    write_quantised(folder, "m.weight F8_E4M3 3 160;m.weight_scale_inv F32 2 2;n.weight F32 2;");
    assert_in_range(walk(folder, folder), 20, ALLOCATIONS_MAX);
    remove_folder(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening_a_gguf_survives_any_failed_allocation),
        cmocka_unit_test(test_opening_a_split_gguf_survives_any_failed_allocation),
        cmocka_unit_test(test_opening_a_folder_survives_any_failed_allocation),
        cmocka_unit_test(test_opening_a_quantised_folder_survives_any_failed_allocation),
        cmocka_unit_test(test_opening_an_fp8_folder_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
