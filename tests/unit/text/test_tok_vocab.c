/* Goal:   the seven published vocabularies give the ids that their own tests expect.
 * Method: DATA/tokenizers/NAME.gguf.inp holds texts between "__ggml_vocab_test__" lines, .out a
 *         line of ids for each, made with specials as plain text and no BOS. Skipped where the
 *         data is absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "unit/text/tok_lib.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

static size_t find_text(struct str in, const char *what) {
    size_t len = strlen(what);
    for (size_t i = 0; i + len <= in.len; i++)
        if (memcmp(in.ptr + i, what, len) == 0) return i;
    return in.len;
}

static void read_file(const char *path, const char *suffix, struct buf *out) {
    char full[600];
    struct err err = {0};
    snprintf(full, sizeof(full), "%s%s", path, suffix);
    buf_init(out, 1 << 24);
    if (file_read(full, out, &err) != ST_OK) fail_msg("%s", err.text);
}

static void check_line(const struct tokenizer *t, struct str text, struct str line,
                       const char *path) {
    struct tokens ids = {0};
    struct buf got;
    buf_init(&got, 1 << 20);
    struct encode_options options = {.plain_special = true};
    assert_int_equal(tokenizer_encode(t, text, options, &ids), ST_OK);
    for (size_t i = 0; i < ids.count; i++) buf_printf(&got, i ? " %d" : "%d", ids.ids[i]);
    if (!str_eq(buf_str(&got), str_trim(line)))
        fail_msg("%s: \"%.*s\" gives %s, expected %.*s", path, STR_ARG(text), buf_text(&got),
                 STR_ARG(line));
    tokens_deinit(&ids);
    buf_deinit(&got);
}

static void check_vocabulary(const char *name) {
    char relative[128], path[512];
    snprintf(relative, sizeof(relative), "tokenizers/%s.gguf", name);
    if (!tok_data_path(path, sizeof(path), relative)) skip();
    struct tokenizer *t;
    struct err err = {0};
    struct buf in, out;
    if (tok_open(path, &t, &err) != ST_OK) fail_msg("%s", err.text);
    read_file(path, ".inp", &in);
    read_file(path, ".out", &out);
    struct str texts = buf_str(&in), lines = buf_str(&out);
    size_t count = 0;
    for (; lines.len; count++) {
        size_t line = find_text(lines, "\n"), text = find_text(texts, SEPARATOR);
        check_line(t, str_take(texts, text), str_take(lines, line), path);
        lines = str_skip(lines, line + 1);
        texts = str_skip(texts, text + strlen(SEPARATOR));
    }
    assert_true(count >= 46);
    assert_int_equal(texts.len, 0);
    buf_deinit(&in);
    buf_deinit(&out);
    tokenizer_destroy(t);
}

#define CASE(id, name)                                                                             \
    static void test_every_line_of_##id(void **state) {                                            \
        (void)state;                                                                               \
        check_vocabulary(name);                                                                    \
    }
CASE(llama_spm, "llama-spm")
CASE(llama_bpe, "llama-bpe")
CASE(gpt_2, "gpt-2")
CASE(phi_3, "phi-3")
CASE(deepseek_coder, "deepseek-coder")
CASE(starcoder, "starcoder")
CASE(qwen2, "qwen2")

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_line_of_llama_spm),
        cmocka_unit_test(test_every_line_of_llama_bpe),
        cmocka_unit_test(test_every_line_of_gpt_2),
        cmocka_unit_test(test_every_line_of_phi_3),
        cmocka_unit_test(test_every_line_of_deepseek_coder),
        cmocka_unit_test(test_every_line_of_starcoder),
        cmocka_unit_test(test_every_line_of_qwen2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
