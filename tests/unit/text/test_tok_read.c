/* Goal:   a tokenizer.json that is damaged, or asks for what is not supported, is refused by one
 *         sentence that names the part; patterns mean what Oniguruma means by them.
 * Method: a small document with one part replaced at a time; a Split by the pattern under test,
 *         its pieces seen through a vocabulary of single letters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "text/text_int.h"
#include "unit/text/tok_lib.h"

#define MODEL "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

struct part {
    const char *key, *value; /* replaces or adds a top-level key */
    const char *expect;      /* in the sentence */
};

static void refuse(struct part p) {
    struct buf doc;
    struct tokenizer *t = NULL;
    struct err err = {0};
    buf_init(&doc, 1 << 20);
    if (strcmp(p.key, "model") == 0)
        buf_printf(&doc, "{\"model\":%s}", p.value);
    else
        buf_printf(&doc, "{\"model\":%s,\"%s\":%s}", MODEL, p.key, p.value);
    enum status st = tok_parse(buf_str(&doc), &t, &err);
    if (st != ST_BAD || !strstr(err.text, p.expect))
        fail_msg("%s = %s: status %d, \"%s\"", p.key, p.value, st, err.text);
    assert_int_equal(strncmp(err.text, "test: ", 6), 0);
    buf_deinit(&doc);
}

static void test_unsupported_and_damaged_parts_are_named(void **state) {
    (void)state;
    static const struct part parts[] = {
        {"model", "3", "no \"model\""},
        {"model", "{\"type\":\"WordLevel\"}", "WordLevel"},
        {"model", "{\"type\":\"BPE\"}", "vocab"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}", "\"a\""},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":4294967296},\"merges\":[]}", "\"a\""},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}", "entry 0"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}", "entry 0"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}",
         "dropout"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"x\"}",
         "unk_token"},
        {"model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.5]],\"unk_id\":7}", "unk_id"},
        {"model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\"]],\"unk_id\":0}", "entry 0"},
        {"model", "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}", "unk_token"},
        {"normalizer", "{\"type\":\"Rot13\"}", "normalizer \"Rot13\""},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}",
         "byte 1"},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":3,\"content\":\"\"}", "pattern"},
        {"normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/w==\"}", "charsmap"},
        {"normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"???\"}", "base64"},
        {"pre_tokenizer", "{\"type\":\"UnicodeScripts\"}", "UnicodeScripts"},
        {"pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"X\"}",
         "\"X\""},
        {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", "replacement"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"x\"}",
         "scheme"},
        {"pre_tokenizer",
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":\"Removed\"}", "&&"},
        {"post_processor", "{\"type\":\"Magic\"}", "Magic"},
        {"post_processor",
         "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"q\"}}]}",
         "\"q\""},
        {"post_processor", "{\"type\":\"BertProcessing\",\"cls\":[\"a\",99],\"sep\":[\"b\",1]}",
         "99"},
        {"decoder", "{\"type\":\"Morse\"}", "Morse"},
        {"decoder",
         "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteLevel\"}]}",
         "stage 2"},
        {"added_tokens", "{}", "added_tokens"},
        {"added_tokens", "[{\"content\":\"x\"}]", "entry 0"},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) refuse(parts[i]);
}

static void test_the_nesting_of_sequences_is_limited(void **state) {
    (void)state;
    struct buf deep;
    buf_init(&deep, 1 << 16);
    for (int i = 0; i < 12; i++) buf_put_text(&deep, "{\"type\":\"Sequence\",\"normalizers\":[");
    buf_put_text(&deep, "{\"type\":\"NFC\"}");
    for (int i = 0; i < 12; i++) buf_put_text(&deep, "]}");
    refuse((struct part){"normalizer", buf_text(&deep), "nested too deep"});
    buf_deinit(&deep);
}

/* The pieces that `pattern` cuts `text` into, with bars between them. */
static void expect_split(const char *pattern, const char *text, const char *want) {
    struct pretok_chain chain = {.count = 1};
    struct work work;
    struct buf got;
    struct err err = {0};
    chain.steps[0] = (struct pretok_step){.kind = PRETOK_SPLIT, .behavior = SPLIT_ISOLATED};
    if (regex_create(str_of(pattern), "test", &chain.steps[0].pattern.re, &err) != ST_OK)
        fail_msg("%s", err.text);
    assert_int_equal(work_init(&work), ST_OK);
    assert_int_equal(pretok_apply(&chain, str_of(text), true, &work), ST_OK);
    buf_init(&got, 1 << 16);
    for (size_t i = 0; i < work.pieces.count; i++) {
        if (i) buf_put_char(&got, '|');
        buf_put(&got, work.pieces.text.ptr + work.pieces.at[i].start, work.pieces.at[i].len);
    }
    assert_string_equal(buf_text(&got), want);
    buf_deinit(&got);
    work_deinit(&work);
    pretok_deinit(&chain);
}

static void test_patterns_mean_what_oniguruma_means(void **state) {
    (void)state;
    expect_split("\\s+",
                 "a \xC2\xA0\xE3\x80\x80"
                 "b",
                 "a| \xC2\xA0\xE3\x80\x80|b");
    expect_split("\\s",
                 "a\xE1\xA0\x8E"
                 "b",
                 "a\xE1\xA0\x8E"
                 "b"); /* U+180E is no blank */
    expect_split("\\h+", "xyzBEEFg", "xyz|BEEF|g");
    expect_split("[\\p{L}&&[^a-c]]+", "abcdefab", "abc|def|ab");
    expect_split("[a[bc]]+", "xabcx", "x|abc|x");
    expect_split("\\p{Han}+", "a\xE4\xB8\xAD\xE3\x83\xBC", "a|\xE4\xB8\xAD|\xE3\x83\xBC");
    expect_split("\\p{^L}", "a1b", "a|1|b");
    expect_split("\\u0062", "abc", "a|b|c");
    expect_split("b$", "ab\nab", "a|b|\na|b"); /* $ ends any line */
    expect_split("\\bw", "w xw w", "w| xw |w");
    expect_split("(?i:'S)", "a's'Sb", "a|'s|'S|b");
    expect_split("(?=b)", "abab", "a|ba|b"); /* an empty match cuts */
    expect_split("[^\\S\\n]+", "a \t\nb", "a| \t|\nb");
}

static void test_every_known_pre_tokenizer_compiles(void **state) {
    (void)state;
    static const char *const names[] = {
        "default",    "llama-bpe",  "deepseek-llm", "deepseek-coder", "deepseek-v3",
        "falcon",     "mpt",        "starcoder",    "gpt-2",          "refact",
        "command-r",  "qwen2",      "stablelm2",    "olmo",           "dbrx",
        "smaug-bpe",  "poro-chat",  "chatglm-bpe",  "viking",         "jais",
        "tekken",     "smollm",     "codeshell",    "bloom",          "exaone",
        "minerva-7b", "gpt-4o",     "llama4",       "superbpe",       "trillion",
        "bailingmoe", "seed-coder", "hunyuan",      "kimi-k2",        "hunyuan-dense",
        "youtu",      "afmoe",      "exaone-moe",   "chameleon",      "gpt3-finnish",
        "grok-2",     "lfm2",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct pretok_name *n = pretok_name_find(str_of(names[i]));
        if (!n) fail_msg("%s is not known", names[i]);
        for (size_t k = 0; k < 6 && n->splits[k]; k++) {
            struct regex *re;
            struct err err = {0};
            if (regex_create(str_of(n->splits[k]), names[i], &re, &err) != ST_OK)
                fail_msg("%s", err.text);
            regex_destroy(re);
        }
    }
    assert_null(pretok_name_find(STR("no-such-name")));
}

/* A match longer than any window, and many matches in a long text, come out whole. */
static void test_the_windows_of_a_search_do_not_change_the_matches(void **state) {
    (void)state;
    struct regex *re;
    struct err err = {0};
    struct buf text;
    assert_int_equal(regex_create(STR("a+b|x"), "test", &re, &err), ST_OK);
    struct regex_work *work = regex_work_create();
    buf_init(&text, 1 << 20);
    for (int i = 0; i < 5000; i++) buf_put_char(&text, i % 700 == 0 ? 'x' : '-');
    for (int i = 0; i < 50000; i++) buf_put_char(&text, 'a');
    buf_put_text(&text, "b\xC3\xA9x");
    struct regex_search s;
    size_t start, end, found = 0, longest = 0;
    regex_search_init(&s, re, work, buf_str(&text));
    while (regex_search_next(&s, &start, &end)) {
        found++;
        if (end - start > longest) longest = end - start;
    }
    assert_int_equal(found, 8 + 1 + 1);
    assert_int_equal(longest, 50001);
    regex_work_destroy(work);
    regex_destroy(re);
    buf_deinit(&text);
}

static void test_templates_and_tokens_come_from_tokenizer_config(void **state) {
    (void)state;
    struct json *doc, *config;
    struct tokenizer *t;
    struct err err = {0};
    struct str text =
        STR("{\"model\":" MODEL ",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\","
            "\"special\":true},{\"id\":4,\"content\":\"<|im_end|>\",\"special\":true}]}");
    struct str settings = STR(
        "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"b\",\"chat_template\":["
        "{\"name\":\"default\",\"template\":\"D\"},{\"name\":\"tool_use\",\"template\":\"T\"}]}");
    assert_int_equal(json_parse(text, &json_limits_request, &doc, &err), ST_OK);
    assert_int_equal(json_parse(settings, &json_limits_request, &config, &err), ST_OK);
    assert_int_equal(tokenizer_create_json(doc, config, "test", &t, &err), ST_OK);
    json_destroy(doc);
    json_destroy(config);
    assert_int_equal(tokenizer_bos(t), 3);
    assert_int_equal(tokenizer_eos(t), 1);
    assert_true(tokenizer_is_end(t, 1));
    assert_true(tokenizer_is_end(t, 4));
    assert_true(str_is(tokenizer_chat_template(t, false), "D"));
    assert_true(str_is(tokenizer_chat_template(t, true), "T"));
    assert_false(tokenizer_adds_bos(t));
    tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unsupported_and_damaged_parts_are_named),
        cmocka_unit_test(test_the_nesting_of_sequences_is_limited),
        cmocka_unit_test(test_patterns_mean_what_oniguruma_means),
        cmocka_unit_test(test_every_known_pre_tokenizer_compiles),
        cmocka_unit_test(test_the_windows_of_a_search_do_not_change_the_matches),
        cmocka_unit_test(test_templates_and_tokens_come_from_tokenizer_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
