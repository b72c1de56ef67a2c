/* Goal:   the items of a conversation are stored, merged into a request and listed, so that a
 *         request with earlier items is the same as one that sends them all.
 * Method: items written by hand, results byte by byte; merged bodies are read by the codec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/codec.h"
#include "api/conversation_items.h"
#include "api/stored_objects.h"
#include "jobs/answers.h"
#include "unit/json_lib.h"

enum { OUT_MAX = 1 << 24 };

/* ---- storing ---- */

static void expect_stored(const char *body, const char *want) {
    struct json *doc = json_of(body);
    struct api_error e = {0};
    struct buf out, again;
    buf_init(&out, OUT_MAX);
    buf_init(&again, OUT_MAX);
    if (responses_input_items(doc, STR("A"), &out, &e) != ST_OK) fail_msg("%s", e.message.text);
    assert_string_equal(buf_text(&out), want);
    json_destroy(doc);
    doc = json_of(buf_text(&out)); /* stored items are stored as they are */
    assert_int_equal(items_store(doc, STR("B"), "items", &again, &e), ST_OK);
    assert_string_equal(buf_text(&again), want);
    json_destroy(doc);
    buf_deinit(&out);
    buf_deinit(&again);
}

static void test_items_are_stored_complete(void **state) {
    (void)state;
    expect_stored("{\"input\":\"h\\\"i\"}",
                  "[{\"id\":\"msg_A_0\",\"type\":\"message\",\"status\":\"completed\",\"role\":"
                  "\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"h\\\"i\"}]}]");
    expect_stored(
        "{\"input\":[{\"role\":\"assistant\",\"content\":\"a\"},{\"type\":\"item_reference\","
        "\"id\":"
        "\"x\"},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"1\",\"id\":\"mine\"},"
        "{\"type\":\"reasoning\",\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]},"
        "{\"type\":\"message\",\"role\":\"developer\",\"status\":\"incomplete\",\"content\":"
        "[{\"type\":\"input_text\",\"text\":\"d\"}]}]}",
        "[{\"id\":\"msg_A_0\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\","
        "\"content\":[{\"type\":\"output_text\",\"text\":\"a\",\"annotations\":[]}]},"
        "{\"id\":\"fc_A_2\",\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":\"c\","
        "\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"id\":\"mine\",\"type\":\"function_call_output\",\"status\":\"completed\",\"call_id\":"
        "\"c\",\"output\":\"1\"},"
        "{\"id\":\"rs_A_4\",\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],"
        "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]},"
        "{\"id\":\"msg_A_5\",\"type\":\"message\",\"status\":\"incomplete\",\"role\":\"developer\","
        "\"content\":[{\"type\":\"input_text\",\"text\":\"d\"}]}]");
    expect_stored("{\"input\":[]}", "[]");
}

static void expect_not_stored(const char *items, const char *param) {
    struct json *doc = json_of(items);
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, OUT_MAX);
    if (items_store(doc, STR("A"), "items", &out, &e) != ST_BAD) fail_msg("%s", items);
    assert_int_equal(e.status, 400);
    assert_string_equal(e.param, param);
    buf_deinit(&out);
    json_destroy(doc);
}

static void test_bad_items_are_refused_by_name(void **state) {
    (void)state;
    expect_not_stored("{}", "items");
    expect_not_stored("[1]", "items[0]");
    expect_not_stored("[{}]", "items[0].role");
    expect_not_stored("[{\"role\":1}]", "items[0].role");
    expect_not_stored("[{\"role\":\"tool\"}]", "items[0].role");
    expect_not_stored("[{\"role\":\"user\"}]", "items[0].content");
    expect_not_stored("[{\"role\":\"user\",\"content\":1}]", "items[0].content");
    expect_not_stored("[{\"role\":\"user\",\"content\":[1]}]", "items[0].content[0]");
    expect_not_stored("[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]",
                      "items[0].content[0].type");
    expect_not_stored("[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}]",
                      "items[0].content[0].text");
    expect_not_stored("[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\"}]}]",
                      "items[0].content[0].refusal");
    expect_not_stored("[{\"type\":\"item_reference\",\"id\":\"x\"}]", "items[0].type");
    expect_not_stored("[{\"type\":\"function_call\"}]", "items[0].call_id");
    expect_not_stored("[{\"type\":\"function_call\",\"call_id\":\"\"}]", "items[0].call_id");
    expect_not_stored("[{\"type\":\"function_call\",\"call_id\":\"c\"}]", "items[0].name");
    expect_not_stored("[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"}]",
                      "items[0].arguments");
    expect_not_stored("[{\"type\":\"function_call_output\",\"call_id\":\"c\"}]", "items[0].output");
    expect_not_stored("[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":"
                      "[{\"type\":\"input_file\"}]}]",
                      "items[0].output[0].type");
    expect_not_stored("[{\"type\":\"reasoning\",\"summary\":1}]", "items[0].summary");
    expect_not_stored("[{\"type\":\"reasoning\",\"content\":[{\"text\":\"a\"}]}]",
                      "items[0].content[0].type");
    expect_not_stored("[{\"type\":\"reasoning\",\"content\":[{\"type\":\"reasoning_text\"}]}]",
                      "items[0].content[0].text");
}

static enum status store_call_of(size_t id_bytes, size_t name_bytes) {
    struct buf text, out;
    struct api_error e = {0};
    buf_init(&text, OUT_MAX);
    buf_init(&out, OUT_MAX);
    buf_put_text(&text, "[{\"type\":\"function_call\",\"arguments\":\"\",\"call_id\":\"");
    for (size_t i = 0; i < id_bytes; i++) buf_put_char(&text, 'x');
    buf_put_text(&text, "\",\"name\":\"");
    for (size_t i = 0; i < name_bytes; i++) buf_put_char(&text, 'x');
    buf_put_text(&text, "\"}]");
    struct json *doc = json_of(buf_text(&text));
    enum status st = items_store(doc, STR("A"), "items", &out, &e);
    json_destroy(doc);
    buf_deinit(&text);
    buf_deinit(&out);
    return st;
}

static void test_names_and_ids_of_calls_have_limits(void **state) {
    (void)state;
    assert_int_equal(store_call_of(512, 256), ST_OK);
    assert_int_equal(store_call_of(513, 256), ST_BAD);
    assert_int_equal(store_call_of(512, 257), ST_BAD);
    assert_int_equal(store_call_of(1, 0), ST_BAD);
}

/* ---- merging ---- */

static void expect_merged(const char *body, const char *earlier, const char *want) {
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, OUT_MAX);
    if (responses_merge(str_of(body), str_of(earlier), &out, &e) != ST_OK)
        fail_msg("%s", e.message.text);
    assert_string_equal(buf_text(&out), want);
    buf_deinit(&out);
}

static void test_earlier_items_precede_the_request_s_own(void **state) {
    (void)state;
    expect_merged("{\"model\":\"m\",\"input\":\"x\",\"store\":true}", "",
                  "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":\"x\"}],\"store\":"
                  "true}");
    expect_merged(
        "{\"input\":[{\"role\":\"user\",\"content\":\"y\"}],\"previous_response_id\":"
        "\"resp_1\"}",
        "[{\"id\":\"a\"},{\"id\":\"b\"}]",
        "{\"input\":[{\"id\":\"a\"},{\"id\":\"b\"},{\"role\":\"user\",\"content\":\"y\"}],"
        "\"previous_response_id\":\"resp_1\"}");
    expect_merged("{\"input\":[{\"type\":\"item_reference\",\"id\":\"b\"},{\"type\":"
                  "\"item_reference\",\"id\":\"c\"}]}",
                  "[{\"id\":\"b\"}]",
                  "{\"input\":[{\"id\":\"b\"},{\"type\":\"item_reference\",\"id\":\"c\"}]}");
    expect_merged("{}", "[]", "{\"input\":[]}");
    expect_merged("{\"a\":1}", "[]", "{\"a\":1,\"input\":[]}");
}

static enum status merge_texts(const char *body, const char *earlier, struct api_error *e) {
    struct buf out;
    buf_init(&out, OUT_MAX);
    enum status st = responses_merge(str_of(body), str_of(earlier), &out, e);
    buf_deinit(&out);
    return st;
}

static void test_what_cannot_be_merged_is_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"{", ""},    {"[]", ""},  {"{\"input\":1}", ""},
                                           {"{}", "{}"}, {"{}", "["}, {"{}", "1"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_error e = {0};
        assert_int_equal(merge_texts(cases[i][0], cases[i][1], &e), ST_BAD);
        assert_int_equal(e.status, 400);
    }
}

static void put_items(struct buf *out, uint32_t count) {
    buf_clear(out);
    buf_put_char(out, '[');
    for (uint32_t i = 0; i < count; i++) buf_printf(out, "%s{\"id\":\"i%u\"}", i ? "," : "", i);
    buf_put_char(out, ']');
}

static void test_a_conversation_has_the_limits_of_one_body(void **state) {
    (void)state;
    struct buf items;
    struct api_error e = {0};
    buf_init(&items, OUT_MAX);
    put_items(&items, API_MESSAGES_MAX - 1);
    assert_int_equal(merge_texts("{\"input\":\"x\"}", buf_text(&items), &e), ST_OK);
    put_items(&items, API_MESSAGES_MAX);
    assert_int_equal(merge_texts("{\"input\":\"x\"}", buf_text(&items), &e), ST_BAD);
    assert_string_equal(e.param, "input");
    buf_clear(&items);
    buf_put_text(&items, "[{\"t\":\"");
    const size_t around = strlen("{\"input\":[{\"t\":\"\"}]}");
    while (items.len < strlen("[{\"t\":\"") + json_limits_request.bytes_max - around)
        buf_put_char(&items, 'x');
    const size_t len = items.len;
    buf_put_text(&items, "\"}]");
    assert_int_equal(merge_texts("{\"input\":[]}", buf_text(&items), &e), ST_OK);
    items.len = len;
    buf_put_text(&items, "x\"}]");
    assert_int_equal(merge_texts("{\"input\":[]}", buf_text(&items), &e), ST_BAD);
    assert_non_null(strstr(e.message.text, "too long"));
    buf_deinit(&items);
}

/* A stored call, and its result in the next request. */
static void test_a_merged_body_is_read_by_the_codec(void **state) {
    (void)state;
    static const char earlier[] =
        "[{\"id\":\"msg_1\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\","
        "\"content\":[{\"type\":\"input_text\",\"text\":\"q\"}]},"
        "{\"id\":\"rs_1\",\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],"
        "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]},"
        "{\"id\":\"fc_1\",\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":\"c\","
        "\"name\":\"f\",\"arguments\":\"{}\"}]";
    struct api_request r;
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, OUT_MAX);
    assert_int_equal(
        responses_merge(STR("{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\","
                            "\"output\":\"1\"}],\"previous_response_id\":\"resp_1\"}"),
                        str_of(earlier), &out, &e),
        ST_OK);
    enum status st =
        codec_read_body(codec_find("openai.responses"), json_of(buf_text(&out)), false, &r, &e);
    if (st != ST_OK) fail_msg("%s", e.message.text);
    assert_int_equal(json_count(r.messages), 3);
    assert_true(str_is(r.keeping.previous, "resp_1"));
    api_request_deinit(&r);
    buf_deinit(&out);
}

/* ---- pages ---- */

static void expect_page(uint32_t limit, bool ascending, const char *after, const char *want) {
    const struct page_choice choice = {limit, ascending};
    struct api_error e = {0};
    struct buf out;
    buf_init(&out, OUT_MAX);
    enum status st = items_page_put(STR("[{\"id\":\"a\"},{\"id\":\"b\"},{\"id\":\"c\"}]"), &choice,
                                    str_of(after), &out, &e);
    assert_int_equal(st, want ? ST_OK : ST_BAD);
    if (want)
        assert_string_equal(buf_text(&out), want);
    else
        assert_string_equal(e.param, "after");
    buf_deinit(&out);
}

#define PAGE(data, first, last, more)                                                              \
    "{\"object\":\"list\",\"data\":[" data "],\"first_id\":" first ",\"last_id\":" last            \
    ",\"has_more\":" more "}"
#define ID(x) "{\"id\":\"" x "\"}"

static void test_pages_of_items(void **state) {
    (void)state;
    expect_page(3, true, "", PAGE(ID("a") "," ID("b") "," ID("c"), "\"a\"", "\"c\"", "false"));
    expect_page(2, true, "", PAGE(ID("a") "," ID("b"), "\"a\"", "\"b\"", "true"));
    expect_page(2, true, "b", PAGE(ID("c"), "\"c\"", "\"c\"", "false"));
    expect_page(2, true, "c", PAGE("", "null", "null", "false"));
    expect_page(2, false, "", PAGE(ID("c") "," ID("b"), "\"c\"", "\"b\"", "true"));
    expect_page(2, false, "b", PAGE(ID("a"), "\"a\"", "\"a\"", "false"));
    expect_page(2, false, "a", PAGE("", "null", "null", "false"));
    expect_page(2, false, "x", NULL);
    struct buf out;
    buf_init(&out, OUT_MAX);
    assert_int_equal(items_find_put(STR("[" ID("a") "," ID("b") "]"), STR("b"), &out), ST_OK);
    assert_string_equal(buf_text(&out), ID("b"));
    assert_int_equal(items_find_put(STR("[" ID("a") "]"), STR("b"), &out), ST_MISSING);
    assert_int_equal(items_find_put(STR(""), STR("b"), &out), ST_MISSING);
    buf_deinit(&out);
}

/* ---- conversations and stored answers ---- */

static enum status create(const char *body, struct conversation_create *out, struct api_error *e) {
    struct json *doc = json_of(body);
    enum status st = conversation_create_read(doc, STR("S"), out, e);
    json_destroy(doc);
    return st;
}

static void test_bodies_of_conversations(void **state) {
    (void)state;
    struct conversation_create c;
    struct api_error e = {0};
    assert_int_equal(create("", &c, &e), ST_OK); /* without a body */
    assert_int_equal(c.items.len + c.metadata.len, 0);
    conversation_create_deinit(&c);
    assert_int_equal(create("{\"metadata\":{\"a\":\"b\"},\"items\":[{\"role\":\"user\",\"content\":"
                            "\"x\"}]}",
                            &c, &e),
                     ST_OK);
    assert_string_equal(buf_text(&c.metadata), "{\"a\":\"b\"}");
    assert_true(str_starts(buf_str(&c.items), STR("[{\"id\":\"msg_S_0\",")));
    conversation_create_deinit(&c);
    assert_int_equal(create("[]", &c, &e), ST_BAD);
    conversation_create_deinit(&c);
    assert_int_equal(create("{\"items\":1}", &c, &e), ST_BAD);
    assert_string_equal(e.param, "items");
    conversation_create_deinit(&c);
}

static enum status read_added(uint32_t count, struct buf *out, struct api_error *e) {
    struct buf text;
    buf_init(&text, OUT_MAX);
    buf_clear(out);
    buf_put_text(&text, "{\"items\":[");
    for (uint32_t i = 0; i < count; i++)
        buf_printf(&text, "%s{\"role\":\"user\",\"content\":\"\"}", i ? "," : "");
    buf_put_text(&text, "]}");
    struct json *doc = json_of(buf_text(&text));
    enum status st = conversation_items_read(doc, STR("S"), out, e);
    json_destroy(doc);
    buf_deinit(&text);
    return st;
}

static void test_a_request_adds_at_most_so_many_items(void **state) {
    (void)state;
    struct api_error e = {0};
    struct buf out, page;
    buf_init(&out, OUT_MAX);
    buf_init(&page, OUT_MAX);
    assert_int_equal(read_added(0, &out, &e), ST_BAD);
    assert_int_equal(read_added(1, &out, &e), ST_OK);
    assert_int_equal(read_added(CONVERSATION_ITEMS_MAX, &out, &e), ST_OK);
    assert_int_equal(conversation_added_put(buf_str(&out), &page), ST_OK);
    assert_non_null(strstr(buf_text(&page), "\"first_id\":\"msg_S_0\",\"last_id\":\"msg_S_19\","
                                            "\"has_more\":false}"));
    assert_int_equal(read_added(CONVERSATION_ITEMS_MAX + 1, &out, &e), ST_BAD);
    assert_string_equal(e.param, "items");
    struct json *doc = json_of("{}");
    assert_int_equal(conversation_items_read(doc, STR("S"), &out, &e), ST_BAD);
    json_destroy(doc);
    buf_deinit(&out);
    buf_deinit(&page);
}

static void test_stored_objects_byte_by_byte(void **state) {
    (void)state;
    struct conversation_row row = {.id = STR("conv_1"), .created_s = 1700000000};
    struct buf out;
    struct str id;
    buf_init(&out, OUT_MAX);
    conversation_object_put(&row, &out);
    row.metadata = STR("{\"a\":\"b\"}");
    conversation_object_put(&row, &out);
    conversation_deleted_put(row.id, &out);
    response_deleted_put(STR("resp_1"), &out);
    chat_deleted_put(STR("chatcmpl-1"), &out);
    assert_string_equal(
        buf_text(&out),
        "{\"id\":\"conv_1\",\"object\":\"conversation\",\"created_at\":1700000000,\"metadata\":{}}"
        "{\"id\":\"conv_1\",\"object\":\"conversation\",\"created_at\":1700000000,\"metadata\":"
        "{\"a\":\"b\"}}"
        "{\"id\":\"conv_1\",\"object\":\"conversation.deleted\",\"deleted\":true}"
        "{\"id\":\"resp_1\",\"object\":\"response\",\"deleted\":true}"
        "{\"object\":\"chat.completion.deleted\",\"id\":\"chatcmpl-1\",\"deleted\":true}");
    assert_true(stored_id_read(STR("resp_1"), "resp_", &id));
    assert_true(str_is(id, "1"));
    assert_false(stored_id_read(STR("resp_"), "resp_", &id));
    assert_false(stored_id_read(STR("chatcmpl-1"), "resp_", &id));
    buf_deinit(&out);
}

static void test_a_stored_chat_completion_gets_its_metadata(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, OUT_MAX);
    assert_int_equal(chat_stored_put(STR("{\"id\":\"a\"}"), STR("{\"k\":\"v\"}"), &out), ST_OK);
    assert_int_equal(chat_stored_put(STR("{\"metadata\":{},\"id\":\"a\"}"), STR(""), &out), ST_OK);
    assert_string_equal(
        buf_text(&out),
        "{\"id\":\"a\",\"metadata\":{\"k\":\"v\"}}{\"metadata\":null,\"id\":\"a\"}");
    assert_int_equal(chat_stored_put(STR("[]"), STR(""), &out), ST_BAD);
    assert_int_equal(chat_stored_put(STR("{}"), STR("{"), &out), ST_BAD);
    buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_are_stored_complete),
        cmocka_unit_test(test_bad_items_are_refused_by_name),
        cmocka_unit_test(test_names_and_ids_of_calls_have_limits),
        cmocka_unit_test(test_earlier_items_precede_the_request_s_own),
        cmocka_unit_test(test_what_cannot_be_merged_is_refused),
        cmocka_unit_test(test_a_conversation_has_the_limits_of_one_body),
        cmocka_unit_test(test_a_merged_body_is_read_by_the_codec),
        cmocka_unit_test(test_pages_of_items),
        cmocka_unit_test(test_bodies_of_conversations),
        cmocka_unit_test(test_a_request_adds_at_most_so_many_items),
        cmocka_unit_test(test_stored_objects_byte_by_byte),
        cmocka_unit_test(test_a_stored_chat_completion_gets_its_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
