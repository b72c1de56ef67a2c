/* Goal:   the verbs do what a simple model in memory does, whatever their order, also across
 *         restarts.
 * Method: a random walk over a few answers, files, batches and conversations. Each step's status
 *         and what it returns is compared with the model; now and then the store is opened again
 *         and store_check is run. JITNEY_SEED repeats a walk, JITNEY_STEPS is its length. */
#include "unit/jobs/store_lib.h"

#include "base/clock.h"
#include "base/rng.h"

enum { STEPS = 4000, THINGS = 5, LINES_MAX = 6, REOPEN_EVERY = 150, FILE_MAX = 5000 };

static const char *const names[THINGS] = {"n0", "n1", "n2", "n3", "n4"};

struct model_answer {
    bool exists;
    enum answer_state state;
    uint32_t lost;
};
struct model_file {
    bool exists, is_ready;
    size_t len;
    char bytes[FILE_MAX];
};
struct model_batch {
    bool exists, is_finalized;
    enum batch_state state;
    enum line_state lines[LINES_MAX];
    uint32_t total;
};
struct model_conversation {
    bool exists;
    uint32_t items;
};
struct walk {
    struct rng rng;
    struct model_answer answers[THINGS];
    struct model_file files[THINGS];
    struct model_batch batches[THINGS];
    struct model_conversation conversations[THINGS];
    uint32_t at; /* the thing of this step */
    uint64_t choice;
};

#define EXPECT(expression, expected)                                                               \
    do {                                                                                           \
        enum status got_ = (expression), expected_ = (expected);                                   \
        if (got_ != expected_)                                                                     \
            return err_set(err, ST_CANCELLED, "line %d: %s, expected %s: %s", __LINE__,            \
                           status_name(got_), status_name(expected_), err->text);                  \
    } while (0)
#define EXPECT_TRUE(expression)                                                                    \
    do {                                                                                           \
        if (!(expression))                                                                         \
            return err_set(err, ST_CANCELLED, "line %d: not %s", __LINE__, #expression);           \
    } while (0)

/* An operation changes the model only after its verb has worked; it is run once, because nothing
 * fails here. */

static enum status step_answer(struct store_db *db, void *ctx, struct err *err) {
    struct walk *w = ctx;
    struct model_answer *m = &w->answers[w->at];
    const struct str id = str_of(names[w->at]);
    if (w->choice == 0) {
        const struct answer_row row = {.id = id, .model = STR("m"), .items = STR("[1]")};
        EXPECT(answers_insert(db, &row, err), m->exists ? ST_BAD : ST_OK);
        if (!m->exists) *m = (struct model_answer){.exists = true};
    } else if (w->choice == 1) {
        const enum answer_state states[] = {ANSWER_DONE, ANSWER_FAILED, ANSWER_CANCELLED};
        const struct answer_end end = {.state = states[rng_below(&w->rng, 3)],
                                       .output = STR("[2]")};
        EXPECT(answers_finish(db, id, &end, err), m->exists ? ST_OK : ST_MISSING);
        if (m->exists && m->state == ANSWER_OPEN) m->state = end.state;
    } else if (w->choice == 2) {
        EXPECT(answers_note_lost(db, id, err), m->exists ? ST_OK : ST_MISSING);
        m->lost += m->exists;
    } else if (w->choice == 3) {
        EXPECT(answers_delete(db, STR(""), id, err), m->exists ? ST_OK : ST_MISSING);
        *m = (struct model_answer){0};
    } else {
        struct str items = {0};
        enum status expected = m->state == ANSWER_DONE ? ST_OK : m->exists ? ST_BAD : ST_MISSING;
        EXPECT(answers_items(db, STR(""), id, 100, &items, err), expected);
        if (expected == ST_OK) EXPECT_TRUE(str_is(items, "[1,2]"));
        mem_free((void *)(uintptr_t)items.ptr);
    }
    return ST_OK;
}

static enum status check_answer(struct store_db *db, void *ctx, struct err *err) {
    struct walk *w = ctx;
    const struct model_answer *m = &w->answers[w->at];
    struct answer_row row;
    EXPECT(answers_find(db, STR(""), str_of(names[w->at]), true, &row, err),
           m->exists ? ST_OK : ST_MISSING);
    if (!m->exists) return ST_OK;
    bool same = row.state == m->state && row.lost_count == m->lost &&
                str_is(row.output, m->state == ANSWER_OPEN ? "" : "[2]");
    answer_row_deinit(&row);
    EXPECT_TRUE(same);
    return ST_OK;
}

static enum status append(struct store_db *db, struct walk *w, struct model_file *m,
                          struct err *err) {
    size_t len = (size_t)rng_below(&w->rng, 1000);
    if (m->len + len > FILE_MAX) len = 0;
    for (size_t i = 0; i < len; i++) m->bytes[m->len + i] = (char)rng_next(&w->rng);
    enum status expected = !m->exists ? ST_MISSING : m->is_ready ? ST_BAD : ST_OK;
    EXPECT(files_append(db, str_of(names[w->at]), (struct str){m->bytes + m->len, len}, err),
           expected);
    if (expected == ST_OK) m->len += len;
    return ST_OK;
}

static enum status step_file(struct store_db *db, void *ctx, struct err *err) {
    struct walk *w = ctx;
    struct model_file *m = &w->files[w->at];
    const struct str id = str_of(names[w->at]);
    if (w->choice == 0) {
        const struct file_row row = {.id = id, .purpose = STR("batch")};
        EXPECT(files_create(db, &row, err), m->exists ? ST_BAD : ST_OK);
        if (!m->exists) *m = (struct model_file){.exists = true};
    } else if (w->choice == 1) {
        return append(db, w, m, err);
    } else if (w->choice == 2) {
        EXPECT(files_set_ready(db, id, err), m->exists ? ST_OK : ST_MISSING);
        m->is_ready = m->exists;
    } else if (w->choice == 3) {
        EXPECT(files_delete(db, STR(""), id, err), m->is_ready ? ST_OK : ST_MISSING);
        if (m->is_ready) *m = (struct model_file){0};
    } else {
        EXPECT(files_abandon(db, id, err), ST_OK);
        if (!m->is_ready) *m = (struct model_file){0};
    }
    return ST_OK;
}

static enum status check_file(struct store_db *db, void *ctx, struct err *err) {
    struct walk *w = ctx;
    const struct model_file *m = &w->files[w->at];
    char out[FILE_MAX];
    size_t got = 0, from = m->len ? m->len / 3 : 0;
    EXPECT(files_read(db, str_of(names[w->at]), from, out, sizeof(out), &got, err),
           m->is_ready ? ST_OK : ST_MISSING);
    if (!m->is_ready) return ST_OK;
    EXPECT_TRUE(got == m->len - from);
    EXPECT_TRUE(memcmp(out, m->bytes + from, got) == 0);
    return ST_OK;
}

static enum status begin_batch(struct store_db *db, struct walk *w, struct model_batch *m,
                               struct err *err) {
    const struct str id = str_of(names[w->at]);
    const struct batch_row row = {.id = id};
    EXPECT(batches_insert(db, &row, err), m->exists ? ST_BAD : ST_OK);
    if (m->exists) return ST_OK;
    *m = (struct model_batch){.exists = true, .state = BATCH_IN_PROGRESS};
    m->total = 1 + (uint32_t)rng_below(&w->rng, LINES_MAX);
    for (uint32_t i = 0; i < m->total; i++) {
        const struct batch_line line = {.number = i, .custom_id = str_of(names[i % THINGS])};
        EXPECT(batches_add_line(db, id, &line, err), i < THINGS ? ST_OK : ST_BAD);
    }
    if (m->total > THINGS) m->total = THINGS;
    return batches_start(db, id, m->total, STR("m"), 1, err);
}

static enum status put_line(struct store_db *db, struct walk *w, struct model_batch *m,
                            struct err *err) {
    const struct line_result r = {
        .number = (uint32_t)rng_below(&w->rng, LINES_MAX),
        .state = rng_below(&w->rng, 2) ? LINE_DONE : LINE_FAILED,
    };
    enum status expected = ST_OK;
    if (!m->exists || (!m->is_finalized && r.number >= m->total)) expected = ST_MISSING;
    EXPECT(batches_put_result(db, str_of(names[w->at]), &r, err), expected);
    bool counts = expected == ST_OK && !m->is_finalized && m->lines[r.number] == LINE_WAITING;
    if (counts) m->lines[r.number] = r.state;
    return ST_OK;
}

static enum status step_batch(struct store_db *db, void *ctx, struct err *err) {
    struct walk *w = ctx;
    struct model_batch *m = &w->batches[w->at];
    const struct str id = str_of(names[w->at]);
    const bool is_final = m->exists && batch_state_is_final(m->state);
    const enum status found = m->exists ? ST_OK : ST_MISSING;
    if (w->choice == 0) return begin_batch(db, w, m, err);
    if (w->choice < 3) return put_line(db, w, m, err);
    if (w->choice == 3) {
        EXPECT(batches_cancel(db, STR(""), id, 2, err), is_final ? ST_BAD : found);
        if (m->state == BATCH_IN_PROGRESS) m->state = BATCH_CANCELLING;
    } else if (w->choice == 4) {
        EXPECT(batches_finalize(db, id, LINE_EXPIRED, 3, err), found);
        if (m->state == BATCH_IN_PROGRESS) m->state = BATCH_FINALIZING;
        for (uint32_t i = 0; i < m->total && !m->is_finalized; i++)
            if (m->lines[i] == LINE_WAITING) m->lines[i] = LINE_EXPIRED;
        m->is_finalized = m->exists;
    } else {
        const struct batch_end end = {.state = BATCH_COMPLETED, .now_s = 4};
        enum status expected = m->exists && !m->is_finalized ? ST_BAD : found;
        EXPECT(batches_finish(db, id, &end, err), expected);
        if (m->is_finalized) m->state = BATCH_COMPLETED;
        EXPECT(batches_delete(db, STR(""), id, err), m->is_finalized ? ST_OK : expected);
        if (m->is_finalized) *m = (struct model_batch){0};
    }
    return ST_OK;
}

static enum status check_batch(struct store_db *db, void *ctx, struct err *err) {
    struct walk *w = ctx;
    const struct model_batch *m = &w->batches[w->at];
    struct batch_row row;
    EXPECT(batches_find(db, STR(""), str_of(names[w->at]), &row, err),
           m->exists ? ST_OK : ST_MISSING);
    if (!m->exists) return ST_OK;
    uint32_t counts[LINE_EXPIRED + 1] = {0};
    for (uint32_t i = 0; i < m->total; i++) counts[m->lines[i]]++;
    bool same = row.state == m->state && row.total == m->total &&
                row.completed == counts[LINE_DONE] && row.failed == counts[LINE_FAILED] &&
                row.expired == counts[LINE_EXPIRED] && row.cancelled == 0;
    batch_row_deinit(&row);
    EXPECT_TRUE(same);
    return ST_OK;
}

static enum status step_conversation(struct store_db *db, void *ctx, struct err *err) {
    struct walk *w = ctx;
    struct model_conversation *m = &w->conversations[w->at];
    const struct str id = str_of(names[w->at]);
    if (w->choice == 0) {
        EXPECT(conversations_insert(db, STR("o"), id, STR(""), 1, err), m->exists ? ST_BAD : ST_OK);
        if (!m->exists) *m = (struct model_conversation){.exists = true};
    } else if (w->choice < 5) {
        EXPECT(conversations_append(db, STR("o"), id, STR("[{},{\"id\":\"x\"}]"), err),
               m->exists ? ST_OK : ST_MISSING);
        m->items += m->exists ? 2 : 0;
    } else {
        EXPECT(conversations_delete(db, STR("o"), id, err), m->exists ? ST_OK : ST_MISSING);
        *m = (struct model_conversation){0};
    }
    return ST_OK;
}

static bool count_item(void *ctx, struct str id, struct str json) {
    (void)id;
    (void)json;
    ++*(uint32_t *)ctx;
    return true;
}
static enum status check_conversation(struct store_db *db, void *ctx, struct err *err) {
    struct walk *w = ctx;
    const struct model_conversation *m = &w->conversations[w->at];
    uint32_t count = 0;
    const struct answers_page page = {.owner = STR("o"), .limit = 1000000};
    EXPECT(conversations_list(db, &page, str_of(names[w->at]), count_item, &count, err),
           m->exists ? ST_OK : ST_MISSING);
    EXPECT_TRUE(count == m->items);
    return ST_OK;
}

static void restart(struct test_store *t, struct walk *w) {
    test_check(t);
    test_shut(t);
    assert_st(test_reopen(t), ST_OK);
    for (int i = 0; i < THINGS; i++)
        if (!w->files[i].is_ready) w->files[i] = (struct model_file){0};
}

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void test_the_store_does_what_a_model_in_memory_does(void **state) {
    (void)state;
    static test_fn *const steps[] = {step_answer, step_file, step_batch, step_conversation};
    static test_fn *const checks[] = {check_answer, check_file, check_batch, check_conversation};
    static struct walk w;
    struct test_store store, *t = &store;
    w.rng.seed = number_of("JITNEY_SEED", (uint64_t)clock_wall_us());
    const uint64_t count = number_of("JITNEY_STEPS", STEPS);
    printf("JITNEY_SEED=%llu JITNEY_STEPS=%llu\n", (unsigned long long)w.rng.seed,
           (unsigned long long)count);
    test_make_dir_in(t, test_quick_parent());
    assert_st(test_reopen(t), ST_OK);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t kind = rng_below(&w.rng, 4);
        w.at = (uint32_t)rng_below(&w.rng, THINGS);
        w.choice = rng_below(&w.rng, 6);
        if (kind == 1 && w.choice == 5) w.choice = 1;
        assert_st(test_run(t, steps[kind], &w), ST_OK);
        assert_st(test_read(t, checks[kind], &w), ST_OK);
        if (rng_below(&w.rng, REOPEN_EVERY) == 0) restart(t, &w);
    }
    test_check(t);
    test_close(t);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_the_store_does_what_a_model_in_memory_does),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
