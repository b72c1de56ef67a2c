/* Goal:   stored answers and conversations: a row ends once, is found by its owner alone, and its
 *         items come back in the order in which they were said.
 * Method: one store in a new folder for each case; each verb in an operation of its own. */
#include "unit/jobs/store_lib.h"

/* ---- verbs as operations ---- */

struct args {
    struct answer_row row;
    struct answer_end end;
    struct answers_page page;
    struct str owner, id, text;
    struct str out;
    struct conversation_row conversation;
    struct conversation_mark mark;
    int64_t number;
    uint32_t count;
    bool with_texts;
    size_t bytes_max;
    char seen[512];
};

static enum status do_insert(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return answers_insert(db, &a->row, err);
}
static enum status do_finish(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return answers_finish(db, a->id, &a->end, err);
}
static enum status do_find(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    answer_row_deinit(&a->row);
    return answers_find(db, a->owner, a->id, a->with_texts, &a->row, err);
}
static enum status do_next_open(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    answer_row_deinit(&a->row);
    return answers_next_open(db, a->text, a->number, &a->number, &a->row, err);
}
static enum status do_delete(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return answers_delete(db, a->owner, a->id, err);
}
static enum status do_items(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return answers_items(db, a->owner, a->id, a->bytes_max, &a->out, err);
}
static enum status do_expire(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return answers_expire(db, a->number, 2, &a->count, err);
}
static enum status do_lost(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return answers_note_lost(db, a->id, err);
}
static enum status do_metadata(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return answers_set_metadata(db, a->owner, a->id, a->text, err);
}
static bool note_row(void *ctx, const struct answer_row *row) {
    struct args *a = ctx;
    size_t len = strlen(a->seen);
    snprintf(a->seen + len, sizeof(a->seen) - len, "%.*s=%.*s ", STR_ARG(row->id),
             STR_ARG(row->whole));
    return true;
}
static enum status do_list(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    a->seen[0] = 0;
    return answers_list(db, &a->page, note_row, a, err);
}
static enum status do_conversation(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return conversations_insert(db, a->owner, a->id, a->text, 7, err);
}
static enum status do_conversation_find(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    conversation_row_deinit(&a->conversation);
    return conversations_find(db, a->owner, a->id, &a->conversation, err);
}
static enum status do_conversation_metadata(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return conversations_set_metadata(db, a->owner, a->id, a->text, err);
}
static enum status do_conversation_delete(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return conversations_delete(db, a->owner, a->id, err);
}
static enum status do_append(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return conversations_append(db, a->owner, a->id, a->text, err);
}
static enum status do_conversation_items(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return conversations_items(db, a->owner, a->id, a->bytes_max, &a->out, err);
}
static enum status do_mark(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return conversations_mark(db, a->owner, a->id, &a->mark, err);
}
static enum status do_check_unchanged(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return conversations_check_unchanged(db, a->owner, a->id, a->mark, err);
}
static bool note_item(void *ctx, struct str item_id, struct str json) {
    struct args *a = ctx;
    size_t len = strlen(a->seen);
    snprintf(a->seen + len, sizeof(a->seen) - len, "%.*s:%zu ", STR_ARG(item_id), json.len);
    return true;
}
static enum status do_conversation_list(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    a->seen[0] = 0;
    return conversations_list(db, &a->page, a->id, note_item, a, err);
}
static enum status do_delete_item(struct store_db *db, void *ctx, struct err *err) {
    struct args *a = ctx;
    return conversations_delete_item(db, a->owner, a->id, a->text, err);
}

/* ---- cases ---- */

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

static struct answer_row plain_row(struct str id) {
    return (struct answer_row){
        .id = id,
        .request_id = STR("req-1"),
        .owner = STR("ann"),
        .codec = STR("openai.responses"),
        .route = STR("/v1/responses"),
        .model = STR("smollm2"),
        .fingerprint = STR("fp"),
        .body = STR("{\"input\":\"hi\"}"),
        .prompt = STR("<s>hi"),
        .items = STR("[{\"type\":\"message\",\"role\":\"user\"}]"),
        .seed = UINT64_MAX - 5,
        .created_s = 1000,
        .priority = -3,
        .is_stored = true,
        .is_background = true,
    };
}

static void insert(struct test_store *t, struct str id, struct str previous) {
    struct args a = {.row = plain_row(id)};
    a.row.previous = previous;
    assert_st(test_run(t, do_insert, &a), ST_OK);
}

static void finish(struct test_store *t, struct str id, enum answer_state state, struct str output,
                   int64_t now_s) {
    struct args a = {.id = id,
                     .end = {.state = state,
                             .output = output,
                             .whole = STR("{\"whole\":1}"),
                             .pieces = STR("pieces"),
                             .finished_s = now_s}};
    assert_st(test_run(t, do_finish, &a), ST_OK);
}

static void test_a_row_comes_back_as_it_was_inserted(void **state) {
    struct test_store *t = *state;
    insert(t, STR("a1"), STR(""));
    test_shut(t);
    assert_st(test_reopen(t), ST_OK);
    struct args a = {.owner = STR("ann"), .id = STR("a1"), .with_texts = true};
    assert_st(test_read(t, do_find, &a), ST_OK);
    assert_str(a.row.id, "a1");
    assert_str(a.row.request_id, "req-1");
    assert_str(a.row.codec, "openai.responses");
    assert_str(a.row.route, "/v1/responses");
    assert_str(a.row.body, "{\"input\":\"hi\"}");
    assert_str(a.row.prompt, "<s>hi");
    assert_str(a.row.output, "");
    assert_true(a.row.seed == UINT64_MAX - 5);
    assert_int_equal(a.row.priority, -3);
    assert_int_equal(a.row.state, ANSWER_OPEN);
    assert_true(a.row.is_stored && a.row.is_background);
    assert_int_equal(a.row.created_s, 1000);
    answer_row_deinit(&a.row);
}

static void test_an_id_is_used_once(void **state) {
    struct test_store *t = *state;
    insert(t, STR("a1"), STR(""));
    struct args a = {.row = plain_row(STR("a1"))};
    assert_st(test_run(t, do_insert, &a), ST_BAD);
    assert_non_null(strstr(t->err.text, "a1"));
}

static void test_an_answer_is_found_by_its_owner_alone(void **state) {
    struct test_store *t = *state;
    insert(t, STR("a1"), STR(""));
    struct args a = {.owner = STR("bob"), .id = STR("a1")};
    assert_st(test_read(t, do_find, &a), ST_MISSING);
    assert_st(test_run(t, do_delete, &a), ST_MISSING);
    a.text = STR("{}");
    assert_st(test_run(t, do_metadata, &a), ST_MISSING);
    a.owner = STR("");
    assert_st(test_read(t, do_find, &a), ST_OK);
    answer_row_deinit(&a.row);
}

static void test_a_request_id_finds_the_newest(void **state) {
    struct test_store *t = *state;
    insert(t, STR("a1"), STR(""));
    insert(t, STR("a2"), STR(""));
    struct args a = {.owner = STR("ann"), .id = STR("req-1")};
    assert_st(test_read(t, do_find, &a), ST_OK);
    assert_str(a.row.id, "a2");
    assert_null(a.row.body.ptr);
    answer_row_deinit(&a.row);
}

static void test_an_answer_ends_once(void **state) {
    struct test_store *t = *state;
    insert(t, STR("a1"), STR(""));
    finish(t, STR("a1"), ANSWER_DONE, STR("[1]"), 2000);
    finish(t, STR("a1"), ANSWER_FAILED, STR("[2]"), 3000);
    struct args a = {.id = STR("a1"), .with_texts = true};
    assert_st(test_read(t, do_find, &a), ST_OK);
    assert_int_equal(a.row.state, ANSWER_DONE);
    assert_str(a.row.output, "[1]");
    assert_str(a.row.pieces, "pieces");
    assert_int_equal(a.row.finished_s, 2000);
    answer_row_deinit(&a.row);
    a.id = STR("a2");
    a.end.state = ANSWER_DONE;
    assert_st(test_run(t, do_finish, &a), ST_MISSING);
}

static void test_open_answers_come_in_the_order_of_creation(void **state) {
    struct test_store *t = *state;
    insert(t, STR("a1"), STR(""));
    insert(t, STR("a2"), STR(""));
    insert(t, STR("a3"), STR(""));
    finish(t, STR("a2"), ANSWER_CANCELLED, STR(""), 5);
    struct args a = {.text = STR("smollm2")};
    assert_st(test_read(t, do_next_open, &a), ST_OK);
    assert_str(a.row.id, "a1");
    assert_st(test_read(t, do_next_open, &a), ST_OK);
    assert_str(a.row.id, "a3");
    assert_st(test_read(t, do_next_open, &a), ST_MISSING);
    answer_row_deinit(&a.row);
    struct args other = {.text = STR("other")};
    assert_st(test_read(t, do_next_open, &other), ST_MISSING);
    struct args any = {.text = STR("")};
    assert_st(test_read(t, do_next_open, &any), ST_OK);
    answer_row_deinit(&any.row);
}

static void test_losses_and_metadata_are_kept(void **state) {
    struct test_store *t = *state;
    insert(t, STR("a1"), STR(""));
    struct args a = {.owner = STR("ann"), .id = STR("a1"), .text = STR("{\"k\":\"v\"}")};
    assert_st(test_run(t, do_lost, &a), ST_OK);
    assert_st(test_run(t, do_lost, &a), ST_OK);
    assert_st(test_run(t, do_metadata, &a), ST_OK);
    assert_st(test_read(t, do_find, &a), ST_OK);
    assert_int_equal(a.row.lost_count, 2);
    assert_str(a.row.metadata, "{\"k\":\"v\"}");
    answer_row_deinit(&a.row);
}

static void test_a_page_begins_behind_its_cursor(void **state) {
    struct test_store *t = *state;
    const struct str ids[] = {STR("a1"), STR("a2"), STR("a3"), STR("a4"), STR("a5")};
    for (int i = 0; i < 5; i++) insert(t, ids[i], STR(""));
    for (int i = 0; i < 4; i++) finish(t, ids[i], ANSWER_DONE, STR("[]"), 5); /* a5 is open */
    struct args a = {.page = {.owner = STR("ann"), .codec = STR("openai.responses"), .limit = 2}};
    assert_st(test_read(t, do_list, &a), ST_OK);
    assert_string_equal(a.seen, "a4={\"whole\":1} a3={\"whole\":1} ");
    a.page.after = STR("a3");
    assert_st(test_read(t, do_list, &a), ST_OK);
    assert_string_equal(a.seen, "a2={\"whole\":1} a1={\"whole\":1} ");
    a.page.ascending = true;
    assert_st(test_read(t, do_list, &a), ST_OK);
    assert_string_equal(a.seen, "a4={\"whole\":1} ");
    a.page = (struct answers_page){.codec = STR("openai.responses"), .limit = 3, .ascending = true};
    assert_st(test_read(t, do_list, &a), ST_OK);
    assert_string_equal(a.seen, "a1={\"whole\":1} a2={\"whole\":1} a3={\"whole\":1} ");
    a.page.model = STR("other");
    assert_st(test_read(t, do_list, &a), ST_OK);
    assert_string_equal(a.seen, "");
    a.page.after = STR("gone");
    assert_st(test_read(t, do_list, &a), ST_MISSING);
    a.page =
        (struct answers_page){.owner = STR("bob"), .codec = STR("openai.responses"), .limit = 9};
    assert_st(test_read(t, do_list, &a), ST_OK);
    assert_string_equal(a.seen, "");
    a.page.ascending = true;
    assert_st(test_read(t, do_list, &a), ST_OK);
    assert_string_equal(a.seen, "");
    a.page.after = STR("a1"); /* another's cursor */
    assert_st(test_read(t, do_list, &a), ST_MISSING);
}

static void test_items_follow_the_chain_oldest_first(void **state) {
    struct test_store *t = *state;
    insert(t, STR("a1"), STR(""));
    finish(t, STR("a1"), ANSWER_DONE, STR("[{\"n\":1}]"), 5);
    insert(t, STR("a2"), STR("a1"));
    struct args a = {.owner = STR("ann"), .id = STR("a2"), .bytes_max = 1000};
    assert_st(test_read(t, do_items, &a), ST_BAD); /* not DONE */
    finish(t, STR("a2"), ANSWER_DONE, STR(" [ {\"n\":2},{\"n\":3} ] "), 5);
    assert_st(test_read(t, do_items, &a), ST_OK);
    const char *user = "{\"type\":\"message\",\"role\":\"user\"}";
    char expected[256];
    snprintf(expected, sizeof(expected), "[%s,{\"n\":1},%s,{\"n\":2},{\"n\":3}]", user, user);
    assert_str(a.out, expected);
    mem_free((void *)(uintptr_t)a.out.ptr);
    a.bytes_max = strlen(expected) - 1;
    assert_st(test_read(t, do_items, &a), ST_BAD);
    a.owner = STR("bob");
    assert_st(test_read(t, do_items, &a), ST_MISSING);
    a = (struct args){.owner = STR("ann"), .id = STR("a1")};
    assert_st(test_run(t, do_delete, &a), ST_OK);
    a = (struct args){.owner = STR("ann"), .id = STR("a2"), .bytes_max = 1000};
    assert_st(test_read(t, do_items, &a), ST_MISSING);
}

static void test_a_circle_of_answers_ends(void **state) {
    struct test_store *t = *state;
    insert(t, STR("a1"), STR("a2"));
    insert(t, STR("a2"), STR("a1"));
    finish(t, STR("a1"), ANSWER_DONE, STR("[]"), 5);
    finish(t, STR("a2"), ANSWER_DONE, STR("[]"), 5);
    struct args a = {.id = STR("a2"), .bytes_max = 1000};
    assert_st(test_read(t, do_items, &a), ST_BAD);
}

static void test_answers_that_ended_expire(void **state) {
    struct test_store *t = *state;
    const struct str ids[] = {STR("a1"), STR("a2"), STR("a3"), STR("a4"), STR("a5")};
    for (int i = 0; i < 5; i++) insert(t, ids[i], STR(""));
    for (int i = 0; i < 4; i++) finish(t, ids[i], ANSWER_DONE, STR("[]"), 10 + i);
    struct args a = {.number = 13}; /* a4 has ended at 13; a5 is open */
    assert_st(test_run(t, do_expire, &a), ST_OK);
    assert_int_equal(a.count, 2);
    assert_st(test_run(t, do_expire, &a), ST_OK);
    assert_int_equal(a.count, 1);
    assert_st(test_run(t, do_expire, &a), ST_OK);
    assert_int_equal(a.count, 0);
    struct args list = {.page = {.codec = STR("openai.responses"), .limit = 9}};
    assert_st(test_read(t, do_list, &list), ST_OK);
    assert_string_equal(list.seen, "a4={\"whole\":1} ");
    struct args open = {.id = STR("a5")};
    assert_st(test_read(t, do_find, &open), ST_OK);
    answer_row_deinit(&open.row);
}

static void test_a_conversation_gets_input_and_output_once(void **state) {
    struct test_store *t = *state;
    struct args c = {.owner = STR("ann"), .id = STR("c1"), .text = STR("{}"), .bytes_max = 1000};
    assert_st(test_run(t, do_conversation, &c), ST_OK);
    assert_st(test_run(t, do_conversation, &c), ST_BAD);
    struct args a = {.row = plain_row(STR("a1"))};
    a.row.conversation = STR("c1");
    assert_st(test_run(t, do_insert, &a), ST_OK);
    finish(t, STR("a1"), ANSWER_DONE, STR("[{\"id\":\"msg_x\",\"type\":\"message\"}]"), 5);
    finish(t, STR("a1"), ANSWER_DONE, STR("[{\"id\":\"msg_y\",\"type\":\"message\"}]"), 5);
    assert_st(test_read(t, do_conversation_items, &c), ST_OK);
    assert_true(str_starts(c.out, STR("[{\"type\":\"message\",\"role\":\"user\",\"id\":\"msg_")));
    assert_true(str_ends(c.out, STR("{\"id\":\"msg_x\",\"type\":\"message\"}]")));
    const size_t bytes = c.out.len;
    mem_free((void *)(uintptr_t)c.out.ptr);
    a = (struct args){.row = plain_row(STR("a2"))};
    a.row.conversation = STR("c1");
    assert_st(test_run(t, do_insert, &a), ST_OK);
    finish(t, STR("a2"), ANSWER_FAILED, STR("[{\"id\":\"msg_z\",\"type\":\"message\"}]"), 6);
    assert_st(test_read(t, do_conversation_items, &c), ST_OK);
    assert_int_equal(c.out.len, bytes); /* a failed answer adds nothing */
    mem_free((void *)(uintptr_t)c.out.ptr);
    c.bytes_max = 10;
    assert_st(test_read(t, do_conversation_items, &c), ST_BAD);
}

static void test_items_of_a_conversation_have_ids_of_their_own(void **state) {
    struct test_store *t = *state;
    struct args c = {.owner = STR("ann"), .id = STR("c1"), .text = STR("{\"a\":1}")};
    assert_st(test_run(t, do_conversation, &c), ST_OK);
    c.text = STR("[{\"id\":\"x\"},{\"id\":\"x\"},{\"type\":\"function_call\"},{\"id\":\"y\"}]");
    assert_st(test_run(t, do_append, &c), ST_OK);
    c.page = (struct answers_page){.owner = STR("ann"), .limit = 9, .ascending = true};
    assert_st(test_read(t, do_conversation_list, &c), ST_OK);
    assert_true(strncmp(c.seen, "x:10 msg_", 9) == 0);
    assert_non_null(strstr(c.seen, " fc_"));
    c.page = (struct answers_page){.owner = STR("ann"), .limit = 1};
    assert_st(test_read(t, do_conversation_list, &c), ST_OK);
    assert_string_equal(c.seen, "y:10 ");
    c.page.after = STR("none");
    assert_st(test_read(t, do_conversation_list, &c), ST_MISSING);
    c.text = STR("y");
    assert_st(test_run(t, do_delete_item, &c), ST_OK);
    assert_st(test_run(t, do_delete_item, &c), ST_MISSING);
    c.text = STR("{}");
    assert_st(test_run(t, do_append, &c), ST_BAD);
    c.text = STR("[1]");
    assert_st(test_run(t, do_append, &c), ST_BAD);
}

static void test_a_mark_of_a_conversation_ends_with_each_change_of_its_items(void **state) {
    struct test_store *t = *state;
    struct args other = {.owner = STR("ann"), .id = STR("c2"), .text = STR("{}")};
    struct args c = {.owner = STR("ann"), .id = STR("c1"), .text = STR("{}")};
    assert_st(test_read(t, do_mark, &c), ST_MISSING);
    assert_st(test_run(t, do_conversation, &c), ST_OK);
    assert_st(test_run(t, do_conversation, &other), ST_OK);
    const struct {
        test_fn *run;
        const char *text;
    } changes[] = {{do_append, "[{\"id\":\"x\"}]"},
                   {do_append, "[{\"id\":\"y\"}]"},
                   {do_delete_item, "x"},
                   {do_delete_item, "y"}};
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        assert_st(test_read(t, do_mark, &c), ST_OK);
        other.text = STR("[{}]");
        assert_st(test_run(t, do_append, &other), ST_OK);
        assert_st(test_read(t, do_check_unchanged, &c), ST_OK);
        c.text = str_of(changes[i].text);
        assert_st(test_run(t, changes[i].run, &c), ST_OK);
        assert_st(test_read(t, do_check_unchanged, &c), ST_BAD);
    }
    assert_st(test_read(t, do_mark, &c), ST_OK);
    c.text = STR("[{\"id\":\"x\"}]");
    assert_st(test_run(t, do_append, &c), ST_OK);
    c.text = STR("x");
    assert_st(test_run(t, do_delete_item, &c), ST_OK);
    assert_st(test_read(t, do_check_unchanged, &c), ST_OK); /* without items, as before */
    assert_st(test_run(t, do_conversation_delete, &c), ST_OK);
    assert_st(test_read(t, do_check_unchanged, &c), ST_MISSING);
}

static void test_a_deleted_conversation_is_gone_at_once(void **state) {
    struct test_store *t = *state;
    struct args c = {.owner = STR("ann"), .id = STR("c1"), .text = STR("{\"a\":1}")};
    assert_st(test_run(t, do_conversation, &c), ST_OK);
    assert_st(test_read(t, do_conversation_find, &c), ST_OK);
    assert_str(c.conversation.metadata, "{\"a\":1}");
    assert_int_equal(c.conversation.created_s, 7);
    c.text = STR("{}");
    assert_st(test_run(t, do_conversation_metadata, &c), ST_OK);
    assert_st(test_read(t, do_conversation_find, &c), ST_OK);
    assert_str(c.conversation.metadata, "{}");
    conversation_row_deinit(&c.conversation);
    c.owner = STR("bob");
    assert_st(test_run(t, do_conversation_delete, &c), ST_MISSING);
    c.owner = STR("ann");
    assert_st(test_run(t, do_conversation_delete, &c), ST_OK);
    assert_st(test_read(t, do_conversation_find, &c), ST_MISSING);
    assert_st(test_run(t, do_conversation, &c), ST_OK); /* the id is free again */
    struct args a = {.row = plain_row(STR("a1"))};
    a.row.conversation = STR("gone");
    assert_st(test_run(t, do_insert, &a), ST_OK);
    finish(t, STR("a1"), ANSWER_DONE, STR("[]"), 5); /* without its conversation */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest cases[] = {
        CASE(test_a_row_comes_back_as_it_was_inserted),
        CASE(test_an_id_is_used_once),
        CASE(test_an_answer_is_found_by_its_owner_alone),
        CASE(test_a_request_id_finds_the_newest),
        CASE(test_an_answer_ends_once),
        CASE(test_open_answers_come_in_the_order_of_creation),
        CASE(test_losses_and_metadata_are_kept),
        CASE(test_a_page_begins_behind_its_cursor),
        CASE(test_items_follow_the_chain_oldest_first),
        CASE(test_a_circle_of_answers_ends),
        CASE(test_answers_that_ended_expire),
        CASE(test_a_conversation_gets_input_and_output_once),
        CASE(test_items_of_a_conversation_have_ids_of_their_own),
        CASE(test_a_mark_of_a_conversation_ends_with_each_change_of_its_items),
        CASE(test_a_deleted_conversation_is_gone_at_once),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
