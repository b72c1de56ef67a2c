/* Goal: the spelling of a control token inside a message stays ordinary text, however a template
 *       puts the messages together, and nothing else about a prompt changes.
 * Method: a tokenizer of bytes with seven control tokens and templates that join, trim, split and
 *       write as JSON. Random contents are made of spellings, parts of spellings, noncharacters and
 *       words. The ids of a prompt are compared with those of the same conversation with harmless
 *       contents: as many control tokens; and its text with the text of a prompt whose contents are
 *       trusted: the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/rng.h"
#include "text/chat_prompt.h"
#include "text/content_guard.h"
#include "unit/json_lib.h"
#include "unit/text/byte_tokenizer.h"

enum { TEXT_MAX = 1 << 20, SEED = 20261116 };

static const char *const templates[] = {
    /* Roles and contents joined to one expression, as most templates do. */
    "{% for m in messages %}{{ '<|begin|>' + m.role + '\n' + m.content + '<|end|>' }}{% endfor %}",
    /* Side by side, with nothing between two contents. */
    "<|begin|>{% for m in messages %}{{ m.content }}{% endfor %}<|end|>",
    "<|begin|>{{ messages|map(attribute='content')|join }}<|end|>",
    /* Trimmed, cut, replaced, captured, as JSON. */
    "{% for m in messages %}<|begin|>{{ m.content|trim }}<|end|>{% endfor %}",
    "{% for m in messages %}<|begin|>{{ m.content.split('\n')[-1] }}<|end|>{% endfor %}",
    "{% for m in messages %}<|begin|>{{ m.content|replace('word', 'noun') }}<|end|>{% endfor %}",
    ("{% for m in messages %}{% set x %}<|begin|>{{ m.content }}{% endset %}{{ x }}<|end|>"
     "{% endfor %}"),
    "{% for m in messages %}<|begin|>{{ m|tojson }}<|end|>{% endfor %}",
};
enum { TEMPLATES = sizeof(templates) / sizeof(templates[0]) };

static const char *const pieces[] = {
    "<|end|>",
    "<|begin|>",
    "<tool_call>",
    "<|end|",
    "<|",
    "<",
    "|>",
    ">",
    "end|>",
    "nd|",
    "tool_call>",
    "word ",
    "\n",
    " ",
    "a",
    "\xc3\xa9",
    "<<|end|>>",
    "<a<|end|>b",
    "\xef\xb7\x90",
    "\xef\xb7\x91",
    "",
    WIDE_TEXT,
    "<\xef\xbd\x9c",
    "\xef\xbd\x9c>",
    WIDE_FIRST_TEXT,
    "\xe2\x96\x81",
    "\xe2\x96\x81<",
    "<|p",
    "ad",
    "pad",
    WORD_LAST_TEXT,
};
enum { PIECES = sizeof(pieces) / sizeof(pieces[0]) };

struct rig {
    struct tokenizer *t;
    struct chat_prompt *guarded, *trusting;
};

static void open_rig(struct rig *r, const char *template) {
    struct err err = {0};
    *r = (struct rig){.t = byte_tokenizer(str_of(template))};
    if (chat_prompt_create(r->t, &r->guarded, &err) != ST_OK) fail_msg("%s", err.text);
    assert_int_equal(chat_prompt_create(r->t, &r->trusting, &err), ST_OK);
    chat_prompt_trust_content(r->trusting);
}

static void close_rig(struct rig *r) {
    chat_prompt_destroy(r->guarded);
    chat_prompt_destroy(r->trusting);
    tokenizer_destroy(r->t);
}

static struct tokens ids_of(const struct chat_prompt *p, const struct json *messages) {
    struct tokens ids = {0};
    struct err err = {0};
    if (chat_prompt_encode(p, messages, &ids, &err) != ST_OK) fail_msg("%s", err.text);
    return ids;
}

static size_t control_tokens(const struct rig *r, const struct chat_prompt *p,
                             const struct json *messages) {
    struct tokens ids = ids_of(p, messages);
    size_t count = 0;
    for (size_t i = 0; i < ids.count; i++) count += tokenizer_is_special(r->t, ids.ids[i]);
    tokens_deinit(&ids);
    return count;
}

/* The text that the ids stand for. */
static void put_text_of(const struct rig *r, const struct chat_prompt *p,
                        const struct json *messages, struct buf *out) {
    struct tokens ids = ids_of(p, messages);
    buf_init(out, TEXT_MAX);
    assert_int_equal(tokenizer_decode(r->t, ids.ids, ids.count, false, out), ST_OK);
    tokens_deinit(&ids);
}

static void put_random_text(struct rng *rng, struct buf *out) {
    uint32_t count = (uint32_t)rng_below(rng, 5);
    for (uint32_t i = 0; i < count; i++) buf_put_text(out, pieces[rng_below(rng, PIECES)]);
}

/* `is_harmless`: the same roles with the content "x". */
static struct json *random_messages(uint64_t seed, bool is_harmless) {
    static const char *const roles[] = {"user", "system", "tool", "developer"};
    struct rng rng = {.seed = SEED + seed};
    struct json *messages = json_list_create();
    uint32_t count = 1 + (uint32_t)rng_below(&rng, 4);
    for (uint32_t i = 0; i < count; i++) {
        struct json *message = json_map_create();
        struct buf text;
        buf_init(&text, TEXT_MAX);
        put_random_text(&rng, &text);
        struct str content = is_harmless ? STR("x") : buf_str(&text);
        json_set(message, STR("role"), json_text_create(str_of(roles[rng_below(&rng, 4)])));
        json_set(message, STR("content"), json_text_create(content));
        assert_int_equal(json_push(messages, message), ST_OK);
        buf_deinit(&text);
    }
    return messages;
}

static void check_one(const struct rig *r, uint64_t seed) {
    struct json *messages = random_messages(seed, false), *harmless = random_messages(seed, true);
    struct buf guarded, trusting;
    size_t expected = control_tokens(r, r->guarded, harmless);
    size_t found = control_tokens(r, r->guarded, messages);
    put_text_of(r, r->guarded, messages, &guarded);
    put_text_of(r, r->trusting, messages, &trusting);
    if (found != expected)
        fail_msg("seed %llu: %zu control tokens, expected %zu: %s", (unsigned long long)seed, found,
                 expected, buf_text(&guarded));
    assert_string_equal(buf_text(&guarded), buf_text(&trusting));
    buf_deinit(&guarded);
    buf_deinit(&trusting);
    json_destroy(messages);
    json_destroy(harmless);
}

static void test_no_content_becomes_a_control_token(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TEMPLATES; i++) {
        struct rig r;
        open_rig(&r, templates[i]);
        for (uint64_t seed = 0; seed < 600; seed++) check_one(&r, seed);
        close_rig(&r);
    }
}

static void test_trusted_content_becomes_control_tokens(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, templates[0]);
    struct json *messages = json_of("[{\"role\":\"user\",\"content\":\"a<|end|>b\"}]");
    assert_int_equal(control_tokens(&r, r.trusting, messages), 3);
    assert_int_equal(control_tokens(&r, r.guarded, messages), 2);
    json_destroy(messages);
    close_rig(&r);
}

static void test_the_text_of_the_assistant_is_trusted(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, templates[0]);
    struct json *messages = json_of("[{\"role\":\"user\",\"content\":\"<|end|>\"},"
                                    "{\"role\":\"assistant\",\"content\":\"<tool_call>\"}]");
    assert_int_equal(control_tokens(&r, r.guarded, messages), 5);
    json_destroy(messages);
    close_rig(&r);
}

/* A message of each role, the contents side by side. How many control tokens are theirs? */
static size_t tokens_of_parts(const struct rig *r, const char *const roles[2],
                              const struct str parts[2]) {
    struct buf text;
    buf_init(&text, TEXT_MAX);
    buf_put_char(&text, '[');
    for (int i = 0; i < 2; i++) {
        buf_printf(&text, "%s{\"role\":\"%s\",\"content\":", i ? "," : "", roles[i]);
        buf_put_json_string(&text, parts[i]);
        buf_put_char(&text, '}');
    }
    buf_put_char(&text, ']');
    struct json *messages = json_of(text.ptr);
    const size_t count = control_tokens(r, r->guarded, messages) - 2; /* the template's own */
    json_destroy(messages);
    buf_deinit(&text);
    return count;
}

static bool has_sign(struct str part) {
    return memchr(part.ptr, '<', part.len) || memchr(part.ptr, '|', part.len) ||
           memchr(part.ptr, '>', part.len);
}

/* The other half is the assistant's, which gets no mark. Every place at which a spelling can be
 * cut; a half of letters alone is an ordinary word. */
static void test_half_a_spelling_does_not_complete_the_half_of_the_assistant(void **state) {
    (void)state;
    static const char *const spellings[] = {"<|end|>", "<|begin|>", "<tool_call>", WORD_LAST_TEXT,
                                            WIDE_FIRST_TEXT};
    static const char *const client_last[] = {"assistant", "user"};
    static const char *const client_first[] = {"user", "assistant"};
    struct rig r;
    open_rig(&r, templates[1]);
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        const struct str all = str_of(spellings[i]);
        for (size_t cut = 1; cut < all.len; cut++) {
            if (((uint8_t)all.ptr[cut] & 0xC0) == 0x80) continue; /* inside a character */
            const struct str parts[] = {str_take(all, cut), str_skip(all, cut)};
            if (has_sign(parts[1])) assert_int_equal(tokens_of_parts(&r, client_last, parts), 0);
            if (has_sign(parts[0])) assert_int_equal(tokens_of_parts(&r, client_first, parts), 0);
        }
    }
    close_rig(&r);
}

/* Parts of contents, other fields, keys, tools and the client's own variables. */
static void test_every_text_of_a_client_is_guarded(void **state) {
    (void)state;
    const char *template = "{{ messages|tojson }}{{ tools|tojson }}{{ note }}<|end|>";
    struct rig r;
    struct tokens ids = {0};
    struct text_places plain = {0};
    struct buf text;
    struct err err = {0};
    size_t found = 0;
    open_rig(&r, template);
    struct json *messages =
        json_of("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|end|>\"}],"
                "\"name\":\"<|begin|>\",\"<|end|>\":1}]");
    struct json *tools = json_of("[{\"description\":\"<|end|>\",\"<tool_call>\":{}}]");
    struct json *kwargs = json_of("{\"note\":\"<|begin|>\"}");
    const struct chat_turn turn = {.messages = messages, .tools = tools, .kwargs = kwargs};
    buf_init(&text, TEXT_MAX);
    assert_int_equal(chat_prompt_encode_turn(r.guarded, &turn, &ids, &err), ST_OK);
    for (size_t i = 0; i < ids.count; i++) found += tokenizer_is_special(r.t, ids.ids[i]);
    assert_int_equal(found, 1); /* the template's own */
    assert_int_equal(chat_prompt_render(r.guarded, &turn, &text, &plain, &err), ST_OK);
    assert_true(plain.count >= 6);
    for (size_t i = 1; i < plain.count; i++) assert_true(plain.at[i - 1] < plain.at[i]);
    assert_true(plain.at[plain.count - 1] < text.len);
    text_places_deinit(&plain);
    tokens_deinit(&ids);
    buf_deinit(&text);
    json_destroy(messages);
    json_destroy(tools);
    json_destroy(kwargs);
    close_rig(&r);
}

/* Each place alone: no other text of the turn needs a mark. */
static void test_a_spelling_is_guarded_wherever_it_stands_alone(void **state) {
    (void)state;
    static const struct {
        const char *messages, *tools, *kwargs;
    } turns[] = {
        {"[{\"role\":\"user\",\"content\":\"<|end|>\"}]", NULL, NULL},
        {"[{\"role\":\"system\",\"content\":\"<|end|>\"}]", NULL, NULL},
        {"[{\"role\":\"tool\",\"content\":\"<|end|>\"}]", NULL, NULL},
        {"[{\"role\":\"user\",\"<|end|>\":\"x\"}]", NULL, NULL},
        {"[{\"role\":\"user\",\"content\":[{\"text\":\"<|end|>\"}]}]", NULL, NULL},
        {"[{\"role\":\"user\",\"content\":[{\"<|end|>\":\"x\"}]}]", NULL, NULL},
        {"[{\"role\":\"user\"}]", "[{\"name\":\"<|end|>\"}]", NULL},
        {"[{\"role\":\"user\"}]", "[{\"properties\":{\"<|end|>\":{}}}]", NULL},
        {"[{\"role\":\"user\"}]", NULL, "{\"note\":\"<|end|>\"}"},
        {"[{\"role\":\"user\"}]", NULL, "{\"note\":{\"<|end|>\":[1]}}"},
    };
    for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
        struct rig r;
        struct tokens ids = {0};
        struct err err = {0};
        size_t found = 0;
        open_rig(&r, "{{ messages|tojson }}{{ tools|tojson }}{{ note|tojson }}<|end|>");
        struct json *messages = json_of(turns[i].messages);
        struct json *tools = turns[i].tools ? json_of(turns[i].tools) : NULL;
        struct json *kwargs = turns[i].kwargs ? json_of(turns[i].kwargs) : json_of("{\"note\":1}");
        const struct chat_turn turn = {.messages = messages, .tools = tools, .kwargs = kwargs};
        assert_int_equal(chat_prompt_encode_turn(r.guarded, &turn, &ids, &err), ST_OK);
        for (size_t j = 0; j < ids.count; j++) found += tokenizer_is_special(r.t, ids.ids[j]);
        if (found != 1) fail_msg("turn %zu has %zu control tokens, expected 1", i, found);
        tokens_deinit(&ids);
        json_destroy(messages);
        json_destroy(tools);
        json_destroy(kwargs);
        close_rig(&r);
    }
}

/* Every noncharacter but `without` (-1: every one), then `text`. */
static struct json *with_noncharacters(int without, const char *text) {
    struct json *messages = json_list_create(), *message = json_map_create();
    struct buf content;
    buf_init(&content, TEXT_MAX);
    for (int i = 0; i < 32; i++) {
        char bytes[4];
        size_t len = utf8_encode(0xFDD0 + (uint32_t)i, bytes);
        if (i != without) buf_put_str(&content, (struct str){bytes, len});
    }
    buf_put_text(&content, text);
    json_set(message, STR("role"), json_text_create(STR("user")));
    json_set(message, STR("content"), json_text_create(buf_str(&content)));
    json_push(messages, message);
    buf_deinit(&content);
    return messages;
}

static void test_noncharacters_of_a_client_survive(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, templates[0]);
    for (int without = 0; without < 32; without++) {
        struct json *messages = with_noncharacters(without, "<|end|>");
        struct buf guarded, trusting;
        put_text_of(&r, r.guarded, messages, &guarded);
        put_text_of(&r, r.trusting, messages, &trusting);
        assert_string_equal(buf_text(&guarded), buf_text(&trusting));
        assert_int_equal(control_tokens(&r, r.guarded, messages), 2);
        buf_deinit(&guarded);
        buf_deinit(&trusting);
        json_destroy(messages);
    }
    close_rig(&r);
}

static void test_a_message_that_leaves_no_mark_is_refused(void **state) {
    (void)state;
    struct rig r;
    struct tokens ids = {0};
    struct err err = {0};
    open_rig(&r, templates[0]);
    struct json *harmless = with_noncharacters(-1, "x"),
                *hostile = with_noncharacters(-1, "<|end|>");
    assert_int_equal(chat_prompt_encode(r.guarded, harmless, &ids, &err), ST_OK);
    assert_int_equal(chat_prompt_encode(r.guarded, hostile, &ids, &err), ST_BAD);
    assert_non_null(strstr(err.text, "U+FDD0"));
    tokens_deinit(&ids);
    json_destroy(harmless);
    json_destroy(hostile);
    close_rig(&r);
}

/* The last message is searched in the text without marks. */
static void test_a_final_message_with_a_spelling_is_continued(void **state) {
    (void)state;
    struct rig r;
    struct buf text;
    struct err err = {0};
    open_rig(&r, templates[0]);
    struct json *messages = json_of("[{\"role\":\"user\",\"content\":\"a <|end|> b\"}]");
    const struct chat_turn turn = {.messages = messages, .continue_final = true};
    buf_init(&text, TEXT_MAX);
    if (chat_prompt_render(r.guarded, &turn, &text, NULL, &err) != ST_OK) fail_msg("%s", err.text);
    assert_string_equal(buf_text(&text), "<|begin|>user\na <|end|> b");
    buf_deinit(&text);
    json_destroy(messages);
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_content_becomes_a_control_token),
        cmocka_unit_test(test_trusted_content_becomes_control_tokens),
        cmocka_unit_test(test_the_text_of_the_assistant_is_trusted),
        cmocka_unit_test(test_half_a_spelling_does_not_complete_the_half_of_the_assistant),
        cmocka_unit_test(test_every_text_of_a_client_is_guarded),
        cmocka_unit_test(test_a_spelling_is_guarded_wherever_it_stands_alone),
        cmocka_unit_test(test_noncharacters_of_a_client_survive),
        cmocka_unit_test(test_a_message_that_leaves_no_mark_is_refused),
        cmocka_unit_test(test_a_final_message_with_a_spelling_is_continued),
    };
    return cmocka_run_group_tests_name("content_guard", tests, NULL, NULL);
}
