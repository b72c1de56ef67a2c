/* Goal:   opening a draft model or a draft head survives the failure of any one allocation:
 *         ST_NOMEM with a sentence, nothing lost; and drafting allocates nothing.
 * Method: the whole way once with the first allocation failing, then the second, until no more
 *         are needed; leaks show under the address sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/draft_model.h"
#include "fault/fail_alloc.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { SEQS = 3, ALLOCATIONS_MAX = 100000, DRAFTS = 4, CALLS = 8 };

static void open_target(struct loaded_model *target) {
    struct err err = {0};
    const struct loaded_model_options o = {.threads = 1, .ctx_tokens = 64, .isa = "portable"};
    if (loaded_model_open(target, MODELS "llama", &o, &err) != ST_OK) fail_msg("%s", err.text);
}

static enum status open_draft(struct loaded_model *target, struct draft_model *out,
                              struct err *err) {
    const struct draft_model_options o = {
        .load = {.isa = "portable"}, .block_tokens = 16, .seq_max = SEQS};
    struct draft_model_memory memory;
    return draft_model_open(MODELS "qwen2", target, &o, out, &memory, err);
}

static enum status draft_there_and_back(struct loaded_model *target, struct err *err) {
    struct draft_model m;
    TRY(open_draft(target, &m, err));
    m.close(m.self);
    return ST_OK;
}

static enum status head_there_and_back(struct loaded_model *target, struct err *err) {
    struct loaded_model head;
    const struct loaded_model_options o = {.threads = 1,
                                           .ctx_tokens = 64,
                                           .isa = "portable",
                                           .tokens_only = true,
                                           .head_of = target->model};
    TRY(loaded_model_open(&head, MODELS "../heads/eagle", &o, err));
    loaded_model_close(&head);
    return ST_OK;
}

typedef enum status there_and_back_fn(struct loaded_model *target, struct err *err);

static void fail_each_allocation(there_and_back_fn *open) {
    struct loaded_model target;
    open_target(&target);
    long n = 0;
    for (bool has_failed = true; has_failed; n++) {
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = open(&target, &err);
        has_failed = fail_alloc_stop();
        if (st != ST_OK && (st != ST_NOMEM || !err.text[0]))
            fail_msg("allocation %ld failed and the answer is %s: %s", n, status_name(st),
                     err.text);
        assert_true(has_failed || st == ST_OK);
    }
    assert_in_range(n, 20, ALLOCATIONS_MAX);
    loaded_model_close(&target);
}

static void test_any_allocation_of_opening_may_fail(void **state) {
    (void)state;
    fail_each_allocation(draft_there_and_back);
}

static void test_any_allocation_of_opening_a_head_may_fail(void **state) {
    (void)state;
    fail_each_allocation(head_there_and_back);
}

static void test_drafting_allocates_nothing(void **state) {
    (void)state;
    struct loaded_model target;
    struct draft_model m;
    struct err err = {0};
    int32_t text[SEQS][64] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    const struct sampling draw = {
        .kind = SAMPLING_DRAW, .top_p = 1, .typical_p = 1, .deny_first = SAMPLING_NONE};
    open_target(&target);
    if (open_draft(&target, &m, &err) != ST_OK) fail_msg("%s", err.text);
    fail_alloc_at(0);
    for (seq_idx i = 0; i < SEQS; i++) m.begin(m.self, i, &draw);
    for (uint32_t call = 0; call < CALLS; call++) {
        struct draft_ask asks[SEQS], *list[SEQS];
        for (seq_idx i = 0; i < SEQS; i++) {
            uint32_t count = 3 + call * DRAFTS;
            asks[i] = (struct draft_ask){.seq = i,
                                         .tokens = text[i],
                                         .known = count,
                                         .count = count,
                                         .max = DRAFTS,
                                         .out = text[i] + count};
            list[i] = &asks[i];
        }
        m.propose(m.self, list, SEQS);
        for (seq_idx i = 0; i < SEQS; i++) assert_int_equal(asks[i].given, DRAFTS);
    }
    for (seq_idx i = 0; i < SEQS; i++) m.end(m.self, i);
    assert_false(fail_alloc_stop());
    m.close(m.self);
    loaded_model_close(&target);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_allocation_of_opening_may_fail),
        cmocka_unit_test(test_any_allocation_of_opening_a_head_may_fail),
        cmocka_unit_test(test_drafting_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
