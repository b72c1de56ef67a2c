/* Goal:   results of tools reach the template with the id and the name of their call in every wire
 *         format; results without a call and calls without a result are refused with their place,
 *         and histories without ids are accepted.
 * Method: bodies are read by the codecs, and the messages compared byte by byte, or the error; the
 *         module alone against a plain search, on random calls and results; a large conversation
 *         against the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <time.h>

#include "api/call_ids.h"
#include "api/tokenize.h"
#include "base/rng.h"
#include "unit/api/api_lib.h"

/* --- bodies ----------------------------------------------------------------------------- */

struct result_case {
    const char *codec;
    const char *messages; /* the value of "messages" or "input", with ' for " */
    const char *want;     /* what the template gets, or the error's param */
    const char *word;     /* NULL: it is accepted; else in the error's sentence */
};

#define CHAT "openai.chat"
#define CALL(id, name) "{'id':'" id "','function':{'name':'" name "','arguments':{}}}"
#define GOT_CALL(id, name)                                                                         \
    "{'id':'" id "','type':'function','function':{'name':'" name "','arguments':{}}}"
#define GOT_BARE(name) "{'type':'function','function':{'name':'" name "','arguments':{}}}"
#define CALLS(calls) "{'role':'assistant','content':'','tool_calls':[" calls "]}"
#define TWO CALLS(CALL("a", "f") "," CALL("b", "g"))
#define GOT_TWO CALLS(GOT_CALL("a", "f") "," GOT_CALL("b", "g"))
#define RESULT(id, text) "{'role':'tool','tool_call_id':'" id "','content':'" text "'}"
#define GOT(name, id, text)                                                                        \
    "{'role':'tool','name':'" name "','tool_call_id':'" id "','content':'" text "'}"
#define ASK "{'role':'user','content':'q'}"
#define SAY "{'role':'assistant','content':'t'}"

#define RESPONSES "openai.responses"
#define FC(id, name)                                                                               \
    "{'type':'function_call','call_id':'" id "','name':'" name "','arguments':'{}'}"
#define OUT(id, text) "{'type':'function_call_output','call_id':'" id "','output':'" text "'}"

#define ANTHROPIC "anthropic.messages"
#define USE(id, name) "{'type':'tool_use','id':'" id "','name':'" name "','input':{}}"
#define RES(id, text) "{'type':'tool_result','tool_use_id':'" id "','content':'" text "'}"
#define BLOCKS(role, blocks) "{'role':'" role "','content':[" blocks "]}"
#define USES BLOCKS("assistant", USE("a", "f") "," USE("b", "g"))

#define OLLAMA "ollama.chat"
#define BARE(name) "{'function':{'name':'" name "','arguments':{}}}"
#define NAMED(name, text) "{'role':'tool','tool_name':'" name "','content':'" text "'}"
#define PLAIN(text) "{'role':'tool','content':'" text "'}"

static const struct result_case cases[] = {
    /* OpenAI's chat: in any order, several turns, an id that is used again */
    {CHAT, "[" ASK "," TWO "," RESULT("b", "2") "," RESULT("a", "1") "]",
     "[" ASK "," GOT_TWO "," GOT("g", "b", "2") "," GOT("f", "a", "1") "]", NULL},
    {CHAT,
     "[" CALLS(CALL("a", "f")) "," RESULT("a", "1") "," CALLS(CALL("a", "g")) "," RESULT(
         "a", "2") "," SAY "," ASK "]",
     "[" CALLS(GOT_CALL("a", "f")) "," GOT("f", "a", "1") "," CALLS(GOT_CALL("a", "g")) "," GOT(
         "g", "a", "2") "," SAY "," ASK "]",
     NULL},
    /* two messages of the assistant, then the results of both */
    {CHAT,
     "[" CALLS(CALL("a", "f")) "," CALLS(CALL("b", "g")) "," RESULT("a", "1") "," RESULT("b",
                                                                                         "2") "]",
     "[" CALLS(GOT_CALL("a", "f")) "," CALLS(GOT_CALL("b", "g")) "," GOT("f", "a", "1") "," GOT(
         "g", "b", "2") "]",
     NULL},
    {CHAT, "[" TWO "]", "[" GOT_TWO "]", NULL}, /* calls with which it ends */
    /* without ids */
    {CHAT, "[" TWO "," PLAIN("1") "," PLAIN("2") "]",
     "[" GOT_TWO "," GOT("f", "a", "1") "," GOT("g", "b", "2") "]", NULL},
    {CHAT, "[" CALLS(BARE("f")) "," RESULT("x", "1") "," ASK "]",
     "[" CALLS(GOT_BARE("f")) ",{'role':'tool','name':'f','tool_call_id':'x','content':'1'}," ASK
                              "]",
     NULL},
    {CHAT, "[" CALLS(BARE("f")) "," ASK "]", "[" CALLS(GOT_BARE("f")) "," ASK "]", NULL},
    {CHAT, "[{'role':'function','name':'f','content':'1'}," ASK "]",
     "[{'role':'tool','name':'f','content':'1'}," ASK "]", NULL},
    /* refused */
    {CHAT, "[" ASK "," TWO "," RESULT("a", "1") "," RESULT("x", "2") "]",
     "messages[3].tool_call_id",
     "Invalid 'messages[3].tool_call_id': no tool call that awaits a result has the id 'x'; "
     "expected one of: 'b'. Send each result with the id of its call."},
    {CHAT, "[" TWO "," RESULT("x", "2") "]", "messages[1].tool_call_id", "one of: 'a', 'b'. Send"},
    {CHAT,
     "[" CALLS(CALL("a", "f") "," CALL("b", "f") "," CALL("c", "f") "," CALL("d", "f") "," CALL(
         "e", "f") "," CALL("g", "f")) "," RESULT("x", "2") "]",
     "messages[1].tool_call_id", "one of: 'a', 'b', 'c', 'd' and 2 more. Send"},
    {CHAT, "[" ASK "," RESULT("a", "1") "]", "messages[1].tool_call_id",
     "Invalid 'messages[1].tool_call_id': there is no tool call before this result. Send the "
     "assistant's message with the call first, and its results directly after it."},
    {CHAT, "[" CALLS(CALL("a", "f")) "," RESULT("a", "1") "," ASK "," RESULT("a", "1") "]",
     "messages[3].tool_call_id", "no tool call before"},
    {CHAT, "[" CALLS(CALL("a", "f")) "," RESULT("a", "1") "," RESULT("a", "1") "]",
     "messages[2].tool_call_id",
     "the result 'a' already has a result. Send one result for each call."},
    {CHAT, "[" TWO "," RESULT("a", "1") "," ASK "]", "messages[0].tool_calls[1].id",
     "Invalid 'messages[0].tool_calls[1].id': the tool call 'b' has no result. Send a message of "
     "the role tool with this tool_call_id after it."},
    {CHAT, "[" TWO "," RESULT("b", "1") "]", "messages[0].tool_calls[0].id", "'a' has no result"},
    {CHAT, "[" TWO "," RESULT("b", "1") "," SAY "]", "messages[0].tool_calls[0].id", "'a'"},
    {CHAT, "[" TWO "," ASK "]", "messages[0].tool_calls[0].id", "'a' has no result"},

    /* OpenAI's responses */
    {RESPONSES, "[" FC("a", "f") "," FC("b", "g") "," OUT("b", "2") "," OUT("a", "1") "]",
     "[" GOT_TWO "," GOT("g", "b", "2") "," GOT("f", "a", "1") "]", NULL},
    {RESPONSES, "[" FC("a", "f") "," OUT("a", "1") "," FC("a", "g") "," OUT("a", "2") "]",
     "[" CALLS(GOT_CALL("a", "f")) "," GOT("f", "a", "1") "," CALLS(GOT_CALL("a", "g")) "," GOT(
         "g", "a", "2") "]",
     NULL},
    {RESPONSES, "[" ASK "," OUT("a", "1") "]", "input[1].call_id",
     "Send the function_call item first"},
    {RESPONSES, "[" FC("a", "f") "," OUT("x", "1") "]", "input[1].call_id", "has the id 'x';"},
    {RESPONSES, "[" FC("a", "f") "," ASK "]", "input[0].call_id",
     "the tool call 'a' has no result. Send a function_call_output item with this call_id after"},

    /* Anthropic: results as blocks, a text behind them, an error, users' messages in a row */
    {ANTHROPIC,
     "[" USES "," BLOCKS("user", RES("b", "2") "," RES("a", "1") ",{'type':'text','text':'q'}") "]",
     "[" GOT_TWO "," GOT("g", "b", "2") "," GOT("f", "a", "1") "," ASK "]", NULL},
    {ANTHROPIC, "[" USES "," BLOCKS("user", RES("a", "1")) "," BLOCKS("user", RES("b", "2")) "]",
     "[" GOT_TWO "," GOT("f", "a", "1") "," GOT("g", "b", "2") "]", NULL},
    {ANTHROPIC,
     "[" BLOCKS("assistant", USE("a", "f")) "," BLOCKS(
         "user", "{'type':'tool_result','tool_use_id':'a','is_error':true,'content':[{'type':"
                 "'text','text':'no '},{'type':'text','text':'net'}]}") "]",
     "[" CALLS(GOT_CALL("a", "f")) "," GOT("f", "a", "no net") "]", NULL},
    {ANTHROPIC,
     "[" BLOCKS("assistant",
                USE("a", "f")) "," BLOCKS("user", "{'type':'tool_result','tool_use_id':'a'}") "]",
     "[" CALLS(GOT_CALL("a", "f")) "," GOT("f", "a", "") "]", NULL},
    {ANTHROPIC,
     "[" BLOCKS("assistant", USE("a", "f")) "," BLOCKS(
         "user", "{'type':'tool_result','tool_use_id':'a','is_error':true}") "]",
     "messages[1].content[0].content", "missing"},
    {ANTHROPIC, "[" BLOCKS("user", RES("a", "1")) "]", "messages[0].content[0].tool_use_id",
     "Send the assistant's message with the tool_use block first"},
    {ANTHROPIC, "[" USES "," BLOCKS("user", RES("a", "1") "," RES("x", "2")) "]",
     "messages[1].content[1].tool_use_id", "expected one of: 'b'."},
    {ANTHROPIC, "[" USES "," BLOCKS("user", RES("a", "1")) "]", "messages[0].content[1].id",
     "'b' has no result. Send a tool_result block with this tool_use_id in the message after it."},
    {ANTHROPIC, "[" USES "," ASK "," SAY "," ASK "]", "messages[0].content[0].id", "'a' has no"},

    /* Ollama: by name, in order, by id; nothing is refused */
    {OLLAMA, "[" CALLS(BARE("f") "," BARE("g")) "," NAMED("g", "2") "," NAMED("f", "1") "]",
     "[" CALLS(GOT_CALL("call00000", "f") "," GOT_CALL("call00001", "g")) "," GOT(
         "g", "call00001", "2") "," GOT("f", "call00000", "1") "]",
     NULL},
    {OLLAMA, "[" TWO "," PLAIN("1") "," PLAIN("2") "," PLAIN("3") "]",
     "[" GOT_TWO "," GOT("f", "a", "1") "," GOT(
         "g", "b", "2") ",{'role':'tool','tool_call_id':'call00002','content':'3'}]",
     NULL},
    {OLLAMA, "[" TWO "," ASK "," CALLS(BARE("f")) "," NAMED("f", "1") "," RESULT("x", "2") "]",
     "[" GOT_TWO "," ASK
     "," CALLS(GOT_CALL("call00002", "f")) "," GOT("f", "call00002", "1") "," RESULT("x", "2") "]",
     NULL},
};

static void put_quoted(struct buf *out, const char *text) {
    for (; *text; text++) buf_put_char(out, *text == '\'' ? '"' : *text);
}

static void expect_case(const struct result_case *c) {
    struct api_request r;
    struct api_error e = {0};
    struct buf body, got, want;
    buf_init(&body, 1 << 16);
    buf_init(&got, 1 << 16);
    buf_init(&want, 1 << 16);
    put_quoted(&body, "{'model':'m','max_tokens':9,'");
    buf_put_text(&body, str_is(str_of(c->codec), RESPONSES) ? "input\":" : "messages\":");
    put_quoted(&body, c->messages);
    buf_put_char(&body, '}');
    enum status st = lib_read_body(codec_find(c->codec), buf_str(&body), &r, &e);
    if (c->word) {
        assert_int_equal(st, ST_BAD);
        assert_int_equal(e.status, 400);
        assert_string_equal(e.param, c->want);
        if (!strstr(e.message.text, c->word)) fail_msg("%s\n%s", c->messages, e.message.text);
    } else {
        if (st != ST_OK) fail_msg("%s\n%s", c->messages, e.message.text);
        json_put(r.messages, &got);
        put_quoted(&want, c->want);
        assert_string_equal(buf_text(&got), buf_text(&want));
    }
    api_request_deinit(&r);
    buf_deinit(&body);
    buf_deinit(&got);
    buf_deinit(&want);
}

static void test_results_have_the_ids_and_names_of_their_calls_or_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) expect_case(&cases[i]);
}

static void test_a_part_of_a_conversation_can_be_tokenized(void **state) {
    (void)state;
    static const char *const bodies[] = {"{'messages':[" RESULT("a", "1") "]}",
                                         "{'messages':[" TWO "," RESULT("a", "1") "," ASK "]}"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct tokenize_request r;
        struct api_error e = {0};
        struct json *doc = NULL;
        struct buf body;
        buf_init(&body, 1 << 16);
        put_quoted(&body, bodies[i]);
        assert_int_equal(json_parse(buf_str(&body), &json_limits_request, &doc, NULL), ST_OK);
        assert_int_equal(tokenize_request_read(doc, &r, &e), ST_OK);
        tokenize_request_deinit(&r);
        buf_deinit(&body);
    }
}

/* --- the module against a plain search --------------------------------------------------- */

enum { PLAIN_CALLS = 400, NAMES = 5 };

struct plain_call {
    struct str id, name;
    bool has_result;
};

static const struct str names[NAMES] = {{"", 0}, {"a", 1}, {"b", 1}, {"c", 1}, {"dd", 2}};

static int find_plain(const struct plain_call *calls, int from, int to, struct str id,
                      struct str name) {
    for (int round = 0; round < 2; round++)
        for (int i = from; i < to; i++) {
            const struct plain_call *call = &calls[i];
            bool is_it = id.len     ? str_eq(call->id, round ? STR("") : id)
                         : name.len ? round || str_eq(call->name, name)
                                    : true;
            if (is_it && !call->has_result) return i;
        }
    return -1;
}

static void check_random(uint64_t seed) {
    struct rng rng = {.seed = seed};
    struct call_ids ids;
    struct plain_call calls[PLAIN_CALLS];
    int count = 0, turn = 0;
    call_ids_init(&ids, NULL);
    while (count < PLAIN_CALLS) {
        struct str id = names[rng_below(&rng, NAMES)], name = names[rng_below(&rng, NAMES)];
        uint32_t what = (uint32_t)rng_below(&rng, 20);
        if (what == 0) {
            call_ids_begin_turn(&ids);
            turn = count;
        } else if (what < 11) {
            assert_int_equal(call_ids_add(&ids, &(struct call_place){.id = id, .name = name}),
                             ST_OK);
            calls[count++] = (struct plain_call){id, name, false};
        } else {
            const struct call_entry *got = call_ids_take(&ids, id, name);
            int want = find_plain(calls, turn, count, id, name);
            if (want >= 0) calls[want].has_result = true;
            int number = got ? (int)call_ids_number(&ids, got) : -1;
            if (number != want) fail_msg("seed %d: got %d, want %d", (int)seed, number, want);
        }
    }
    call_ids_deinit(&ids);
}

static void test_a_result_goes_to_the_call_that_a_plain_search_finds(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) check_random(seed);
}

/* --- size ------------------------------------------------------------------------------- */

static double cpu_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* 2,048 messages with 128 calls each and a result for each. `same`: all have one id. */
static double spend(bool same) {
    enum { CALLS_MAX = 2048 * 128 };
    static char texts[CALLS_MAX][8];
    struct call_ids ids;
    double start = cpu_s();
    call_ids_init(&ids, NULL);
    for (uint32_t i = 0; i < CALLS_MAX; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%x", same ? 0 : i);
        const struct call_place place = {.id = str_of(texts[i]), .name = STR("f")};
        assert_int_equal(call_ids_add(&ids, &place), ST_OK);
    }
    for (uint32_t i = CALLS_MAX; i-- > 0;) {
        const struct call_entry *call = call_ids_take(&ids, str_of(texts[i]), STR(""));
        assert_non_null(call);
        if (!same) assert_int_equal(call_ids_number(&ids, call), i);
        if (i % 2) assert_null(call_ids_take(&ids, STR("none"), STR("")));
    }
    assert_null(call_ids_take(&ids, str_of(texts[0]), STR("")));
    assert_null(call_ids_take(&ids, STR(""), STR("f")));
    call_ids_deinit(&ids);
    return cpu_s() - start;
}

/* A search through all calls would take minutes. */
static void test_many_calls_take_linear_time(void **state) {
    (void)state;
    double apart = spend(false), same = spend(true);
    print_message("262,144 calls and results: %.3f s, with one id %.3f s\n", apart, same);
    assert_true(apart < 10 && same < 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_have_the_ids_and_names_of_their_calls_or_are_refused),
        cmocka_unit_test(test_a_part_of_a_conversation_can_be_tokenized),
        cmocka_unit_test(test_a_result_goes_to_the_call_that_a_plain_search_finds),
        cmocka_unit_test(test_many_calls_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
