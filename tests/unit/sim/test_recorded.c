/* Goal:   a recording gives the requests that arrived in it, with the lengths that they had; an
 *         invalid one is refused with the path of what is wrong; a simulation of them gives figures
 *         and steps, the same each time, and ends when it is asked to.
 * Method: small recordings written here; whatif_run with a policy and without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "sched/policy.h"
#include "sim/recorded.h"
#include "sim/replay_list.h"
#include "sim/whatif.h"

#define HELLO                                                                                      \
    "{\"jitney_recording\":1,\"hello\":{\"arrived\":[\"request\",\"choice\",\"tenant\",\"at_us\"," \
    "\"prompt\",\"max\"],\"ended\":[\"request\",\"choice\",\"why\",\"generated\",\"at_us\"]},"     \
    "\"state\":{},\"steps\":["

static const struct recorded_limits limits = {.sequences = 100, .tokens = 100000};

static enum status read_text(const char *text, struct request_list *list,
                             struct recorded_fault *fault) {
    struct json *doc = NULL;
    assert_int_equal(json_parse(str_of(text), &json_limits_request, &doc, NULL), ST_OK);
    enum status st = recorded_read(doc, &limits, list, fault);
    json_destroy(doc);
    return st;
}

static void test_requests_have_the_times_and_lengths_of_the_recording(void **state) {
    (void)state;
    struct request_list list;
    struct recorded_fault fault;
    /* 3 came before the recording; 6 ended without a token; 8 had not ended: mean of 4, 8, 9. */
    const char *text = HELLO "{\"arrived\":[[5,0,2,1000,20,40],[5,1,2,1000,20,40]]},"
                             "{\"ended\":[[3,0,\"stop\",30,1100],[5,1,\"stop\",8,1200]]},"
                             "{\"arrived\":[[8,0,0,1600,7,40],[6,0,0,1500,9,40],"
                             "[7,0,1,900,11,9]]},"
                             "{\"ended\":[[5,0,\"stop\",4,1700],[6,0,\"cancelled\",0,1700],"
                             "[7,0,\"length\",9,1800]]}]}";
    assert_int_equal(read_text(text, &list, &fault), ST_OK);
    assert_int_equal(list.count, 3);
    const struct listed_request *five = &list.items[0], *seven = &list.items[1],
                                *eight = &list.items[2];
    assert_string_equal(five->id, "5");
    assert_int_equal(five->n, 2);
    assert_int_equal(five->at_us, 100); /* the first arrival is at 0 */
    assert_int_equal(five->tenant, 2);
    assert_int_equal(five->prompt_tokens, 20);
    assert_int_equal(five->max_tokens, 40);
    assert_int_equal(five->stops[0], 4);
    assert_int_equal(five->stops[1], 8);
    assert_int_equal(seven->at_us, 0);
    assert_int_equal(seven->stops[0], 9);
    assert_string_equal(eight->id, "8");
    assert_int_equal(eight->stops[0], 7);
    request_list_deinit(&list);
}

struct wrong {
    const char *text, *path;
};

static void test_a_wrong_recording_is_refused_with_the_path(void **state) {
    (void)state;
    const struct wrong wrongs[] = {
        {"{}", "steps"},
        {"{\"steps\":{}}", "steps"},
        {"{\"steps\":[]}", "hello.arrived"},
        {"{\"steps\":[],\"hello\":{\"arrived\":[\"request\",\"choice\",\"tenant\",\"at_us\","
         "\"prompt\",\"max\"]}}",
         "hello.ended"},
        {HELLO "]}", "steps"},
        {HELLO "{},5]}", "steps[1]"},
        {HELLO "{\"arrived\":{}}]}", "steps[0].arrived"},
        {HELLO "{\"arrived\":[5]}]}", "steps[0].arrived[0][0]"},
        {HELLO "{\"arrived\":[[1,0,0,0,0,9]]}]}", "steps[0].arrived[0][4]"},
        {HELLO "{},{\"arrived\":[[1,0,0,0,9,9],[2,0,0,0,9,0]]}]}", "steps[1].arrived[1][5]"},
        {HELLO "{\"arrived\":[[1,900,0,0,9,9]]}]}", "steps[0].arrived[0][1]"},
        {HELLO "{\"arrived\":[[1,0,-1,0,9,9]]}]}", "steps[0].arrived[0][2]"},
        {HELLO "{\"arrived\":[[1,0,0,1e40,9,9]]}]}", "steps[0].arrived[0][3]"},
        {HELLO "{\"arrived\":[[1,0,0,true,9,9]]}]}", "steps[0].arrived[0][3]"},
        {HELLO "{\"arrived\":[[1.5,0,0,0,9,9]]}]}", "steps[0].arrived[0][0]"},
        {HELLO "{\"arrived\":[[1,0,0,0,9,9]],\"ended\":[[1,0,\"stop\",-1,0]]}]}",
         "steps[0].ended[0][3]"},
        {HELLO "{\"arrived\":[[1,0,0,0,9,9],[1,0,0,0,9,9]]}]}", "steps"},
        {HELLO "{\"arrived\":[[1,0,0,0,9,90000],[2,0,0,0,9,90000]]}]}", "steps[0].arrived[1]"},
    };
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        struct request_list list;
        struct recorded_fault fault = {.path = "none"};
        assert_int_equal(read_text(wrongs[i].text, &list, &fault), ST_BAD);
        assert_string_equal(fault.path, wrongs[i].path);
        assert_true(fault.err.text[0] != 0);
        assert_null(list.items);
    }
}

static void test_a_recording_is_found_in_json_and_in_a_page(void **state) {
    (void)state;
    struct str json;
    assert_true(recorded_find(STR(" {\"jitney_recording\":1}\n"), &json));
    assert_true(str_is(json, "{\"jitney_recording\":1}"));
    assert_true(recorded_find(STR("<!doctype html><script type=\"application/json\" "
                                  "id=\"recording\"> {} </script><p>"),
                              &json));
    assert_true(str_is(json, "{}"));
    assert_false(recorded_find(STR("{\"id\":1}\n"), &json));
    assert_false(recorded_find(STR("<p>"), &json));
    assert_false(recorded_find(STR(""), &json));
}

static void test_a_file_that_is_wrong_is_refused_with_the_path(void **state) {
    (void)state;
    const struct prompt_source source = {.vocab = 100};
    struct request_list list;
    struct err err = {0};
    assert_int_equal(recorded_read_file(STR(HELLO "{},3]}"), &source, &list, &err), ST_BAD);
    assert_string_equal(err.text, "steps[1]: must be an object");
    assert_int_equal(recorded_read_file(STR("{"), &source, &list, &err), ST_BAD);
}

/* ---- whatif ---- */

static const char LOAD[] = HELLO
    "{\"arrived\":[[1,0,0,0,300,64],[2,0,0,0,20,64],[3,0,0,10,20,64],[4,0,0,20,20,64]],"
    "\"ended\":[[1,0,\"stop\",9,0],[2,0,\"stop\",12,0],[3,0,\"stop\",3,0],[4,0,\"stop\",30,0]]}]}";

static struct whatif_options options_of(const char *policy) {
    struct whatif_options o = {.policy = sched_policy_find(policy),
                               .knobs = knobs_default(),
                               .ctx_tokens = 512,
                               .profile = *cost_profile_find("this-cpu"),
                               .record_bytes = 1 << 18};
    o.knobs.kv_blocks = 128;
    o.knobs.max_seqs = 2;
    return o;
}

static void load(struct request_list *list) {
    const struct prompt_source source = {.vocab = SIM_VOCAB};
    struct recorded_fault fault;
    assert_int_equal(read_text(LOAD, list, &fault), ST_OK);
    assert_int_equal(recorded_draw_prompts(list, &source), ST_OK);
}

static enum status run(struct whatif_options *o, struct buf *out) {
    struct request_list list;
    struct err err = {0};
    load(&list);
    buf_init(out, 1 << 20);
    enum status st = whatif_run(&list, o, out, &err);
    assert_true(whatif_bytes(&list, o) > o->record_bytes);
    request_list_deinit(&list);
    return st;
}

/* A result as JSON; the caller destroys it. */
static struct json *result_of(const char *policy) {
    struct whatif_options o = options_of(policy);
    struct json *doc = NULL;
    struct buf out;
    assert_int_equal(run(&o, &out), ST_OK);
    assert_int_equal(json_parse(buf_str(&out), &json_limits_request, &doc, NULL), ST_OK);
    buf_deinit(&out);
    return doc;
}

static void test_answers_end_where_they_ended_and_the_scheduler_knows_max_tokens(void **state) {
    (void)state;
    struct json *chunked = result_of("chunked"), *stat = result_of("static");
    const struct json *figures = json_get(chunked, "figures");
    assert_int_equal(json_int(json_get(figures, "output_tokens"), 0), 9 + 12 + 3 + 30);
    assert_int_equal(json_int(json_path(figures, "finish_reasons.stop"), 0), 4);
    /* One more where sequences end and no step follows. */
    assert_true(json_count(json_get(chunked, "steps")) >=
                (size_t)json_int(json_get(figures, "steps"), 0));
    assert_true(
        str_is(json_str(json_get(json_at(json_get(stat, "steps"), 0), "policy")), "static"));
    /* static reserves max_tokens for each answer, most of which is not used. */
    assert_true(json_num(json_path(stat, "figures.kv_waste"), 0) >
                json_num(json_path(chunked, "figures.kv_waste"), 1));
    json_destroy(chunked);
    json_destroy(stat);
}

static void test_the_same_requests_give_the_same_result(void **state) {
    (void)state;
    struct json *docs[2] = {result_of("fair"), result_of("fair")};
    const char *const names[] = {"ttft_ms", "tpot_ms", "elapsed_s", "kv_waste", "steps"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct buf texts[2];
        for (int k = 0; k < 2; k++) {
            buf_init(&texts[k], 1 << 16);
            json_put(json_get(json_get(docs[k], "figures"), names[i]), &texts[k]);
        }
        assert_true(texts[0].len > 0);
        assert_true(str_eq(buf_str(&texts[0]), buf_str(&texts[1])));
        buf_deinit(&texts[0]);
        buf_deinit(&texts[1]);
    }
    json_destroy(docs[0]);
    json_destroy(docs[1]);
}

static bool count_down(void *ctx) { return --*(int *)ctx > 0; }

static void test_a_simulation_ends_when_it_is_asked_to(void **state) {
    (void)state;
    int turns = 10;
    struct whatif_options o = options_of("chunked");
    struct buf out;
    o.goes_on = count_down;
    o.ctx = &turns;
    assert_int_equal(run(&o, &out), ST_CANCELLED);
    assert_int_equal(turns, 0);
    buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_have_the_times_and_lengths_of_the_recording),
        cmocka_unit_test(test_a_wrong_recording_is_refused_with_the_path),
        cmocka_unit_test(test_a_recording_is_found_in_json_and_in_a_page),
        cmocka_unit_test(test_a_file_that_is_wrong_is_refused_with_the_path),
        cmocka_unit_test(test_answers_end_where_they_ended_and_the_scheduler_knows_max_tokens),
        cmocka_unit_test(test_the_same_requests_give_the_same_result),
        cmocka_unit_test(test_a_simulation_ends_when_it_is_asked_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
