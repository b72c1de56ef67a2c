/* Goal:   check the objects of stored work with the clients' own types, without a server.
 * Method: wire_driver prints a line for each object: the name of its type in the packages openai or
 *         anthropic, a tab, and the object as JSON. wire_driver --openapi prints the document of
 * the
 *         HTTP interface. tests/e2e/test_wire_objects.py reads both. */
#include <stdio.h>
#include <string.h>

#include "api/batch_objects.h"
#include "api/codec.h"
#include "api/conversation_items.h"
#include "api/file_objects.h"
#include "api/message_batches.h"
#include "api/object_page.h"
#include "api/openapi.h"
#include "api/stored_objects.h"
#include "base/check.h"
#include "base/json.h"
#include "jobs/answers.h"
#include "jobs/batches.h"
#include "jobs/files.h"

enum { OUT_MAX = 1 << 24 };

static void print_object(const char *type, struct buf *out) {
    CHECK(buf_status(out) == ST_OK);
    printf("%s\t%.*s\n", type, (int)str_trim(buf_str(out)).len, out->ptr);
    buf_clear(out);
}

static void print_files(struct buf *out) {
    struct object_page page;
    struct file_row row = {.id = STR("file-1"),
                           .filename = STR("a\"b.jsonl"),
                           .purpose = STR("batch"),
                           .bytes = 12,
                           .created_s = 1700000000,
                           .expires_s = 1700003600};
    file_object_put(&row, out);
    print_object("openai.types.FileObject", out);
    file_deleted_put(row.id, out);
    print_object("openai.types.FileDeleted", out);
    object_page_init(&page, 1);
    file_object_put(&row, object_page_add(&page, row.id));
    object_page_put(&page, PAGE_OPENAI, out);
    print_object("openai.pagination.SyncCursorPage[openai.types.FileObject]", out);
    object_page_deinit(&page);
}

static void print_batches(struct buf *out) {
    struct batch_row row = {
        .id = STR("batch_1"),
        .endpoint = STR("/v1/responses"),
        .input_file = STR("file-1"),
        .window = STR("24h"),
        .metadata = STR("{\"a\":\"b\"}"),
        .errors = STR("[{\"code\":\"c\",\"line\":1,\"message\":\"m\",\"param\":null}]"),
        .created_s = 1700000000,
        .expires_s = 1700086400};
    for (int state = BATCH_VALIDATING; state <= BATCH_CANCELLED; state++) {
        row.state = (enum batch_state)state;
        batch_object_put(&row, out);
        print_object("openai.types.Batch", out);
        message_batch_object_put(&row, STR("http://localhost"), out);
        print_object("anthropic.types.messages.MessageBatch", out);
    }
    message_batch_deleted_put(row.id, out);
    print_object("anthropic.types.messages.DeletedMessageBatch", out);
}

static void print_results(struct buf *out) {
    struct line_row row = {.line = {.custom_id = STR("a")},
                           .result = {.state = LINE_DONE,
                                      .status = 200,
                                      .body = STR("{\"id\":\"msg_1\",\"type\":\"message\",\"role\":"
                                                  "\"assistant\",\"model\":\"m\",\"content\":[],"
                                                  "\"stop_reason\":\"end_turn\",\"stop_sequence\":"
                                                  "null,\"usage\":{\"input_tokens\":1,"
                                                  "\"output_tokens\":1}}")}};
    message_batch_result_put(&row, out);
    print_object("anthropic.types.messages.MessageBatchIndividualResponse", out);
    row.result.state = LINE_FAILED;
    row.result.status = 400;
    row.result.body = STR("{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\","
                          "\"message\":\"m\"},\"request_id\":\"r\"}");
    for (int state = LINE_FAILED; state <= LINE_EXPIRED; state++) {
        row.result.state = (enum line_state)state;
        message_batch_result_put(&row, out);
        print_object("anthropic.types.messages.MessageBatchIndividualResponse", out);
    }
}

static void print_items(struct buf *out) {
    static const char body[] =
        "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
        "\"a\"},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"1\"},"
        "{\"type\":\"reasoning\",\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]}]}";
    struct json *doc = NULL;
    struct api_error e = {0};
    struct buf items;
    const struct page_choice choice = {.limit = 9, .ascending = true};
    buf_init(&items, OUT_MAX);
    CHECK(json_parse(str_of(body), &json_limits_request, &doc, NULL) == ST_OK);
    CHECK(responses_input_items(doc, STR("A"), &items, &e) == ST_OK);
    CHECK(items_page_put(buf_str(&items), &choice, STR(""), out, &e) == ST_OK);
    print_object("openai.types.responses.ResponseItemList", out);
    CHECK(items_page_put(buf_str(&items), &choice, STR(""), out, &e) == ST_OK);
    print_object("openai.types.conversations.ConversationItemList", out);
    buf_deinit(&items);
    json_destroy(doc);
}

static void print_stored(struct buf *out) {
    struct conversation_row row = {.id = STR("conv_1"), .created_s = 1700000000};
    conversation_object_put(&row, out);
    print_object("openai.types.conversations.Conversation", out);
    conversation_deleted_put(row.id, out);
    print_object("openai.types.conversations.ConversationDeletedResource", out);
    chat_deleted_put(STR("chatcmpl-1"), out);
    print_object("openai.types.chat.ChatCompletionDeleted", out);
}

static void print_states(struct buf *out) {
    static const char *const states[] = {"queued", "in_progress", "cancelled", "failed"};
    const struct codec *codec = codec_find("openai.responses");
    struct json *doc = NULL;
    struct api_request r;
    struct api_error e = {0};
    CHECK(json_parse(STR("{\"input\":\"x\",\"background\":true,\"conversation\":\"conv_1\","
                         "\"metadata\":{\"a\":\"b\"}}"),
                     &json_limits_request, &doc, NULL) == ST_OK);
    CHECK(codec_read_body(codec, doc, false, &r, &e) == ST_OK);
    struct answer a = {.request = &r, .id = "1", .model = STR("m"), .created_s = 1700000000};
    api_refuse(&a.failure, 500, NULL, NULL, "The engine was lost.");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        codec->state(&a, states[i], out);
        print_object("openai.types.responses.Response", out);
    }
    api_request_deinit(&r);
}

int main(int argc, char **argv) {
    struct buf out;
    buf_init(&out, OUT_MAX);
    if (argc == 2 && strcmp(argv[1], "--openapi") == 0) {
        openapi_put(&out);
        puts(buf_text(&out));
    } else {
        print_files(&out);
        print_batches(&out);
        print_results(&out);
        print_items(&out);
        print_stored(&out);
        print_states(&out);
    }
    buf_deinit(&out);
    return 0;
}
