/* Goal:   the tables of a step lie in one piece of the device's host memory, each on a line of its
 *         own, none in another's bytes, and large enough for the sizes that were asked for; sizes
 *         that memory cannot address are refused, and so is a device without room.
 * Method: a device that only has memory and counts it; seeded random sizes, every table marked to
 *         its last byte; sizes near the end of 32 bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "graph/device.h"
#include "graph/step.h"

enum { ALIGN = 64, TABLES = 10, ROUNDS = 300 };

/* What was asked of the device. */
struct host_memory {
    uint32_t alloc_count, free_count;
    size_t bytes, freed_bytes;
    bool is_full;
};

static void *host_alloc(void *self, size_t bytes, int fd) {
    struct host_memory *m = self;
    assert_int_equal(fd, -1);
    m->alloc_count++;
    m->bytes = bytes;
    size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (m->is_full || bytes > 1 << 30) return NULL;
    void *ptr = aligned_alloc(ALIGN, whole ? whole : ALIGN);
    if (ptr) memset(ptr, 0, whole);
    return ptr;
}

static void host_free(void *self, void *ptr, size_t bytes) {
    struct host_memory *m = self;
    m->free_count++;
    m->freed_bytes = bytes;
    free(ptr);
}

static struct device device_of(struct host_memory *m) {
    return (struct device){.host_alloc = host_alloc, .host_free = host_free, .self = m};
}

struct table {
    uint8_t *base;
    size_t bytes;
};

static void list_tables(const struct step *s, struct table out[TABLES]) {
    const struct step_sizes *n = &s->sizes;
    size_t blocks = (size_t)n->seqs_max * n->group_count * n->blocks_max;
    const struct table all[TABLES] = {
        {(uint8_t *)s->token, n->rows_max * sizeof(s->token[0])},
        {(uint8_t *)s->pos, n->rows_max * sizeof(s->pos[0])},
        {(uint8_t *)s->seq, n->rows_max * sizeof(s->seq[0])},
        {(uint8_t *)s->output_row, n->outputs_max * sizeof(s->output_row[0])},
        {(uint8_t *)s->seqs, n->seqs_max * sizeof(s->seqs[0])},
        {(uint8_t *)s->blocks, blocks * sizeof(s->blocks[0])},
        {(uint8_t *)s->samplings, n->outputs_max * sizeof(s->samplings[0])},
        {(uint8_t *)s->tables.edits, n->edits_max * sizeof(s->tables.edits[0])},
        {(uint8_t *)s->tables.deny, n->deny_words_max * sizeof(s->tables.deny[0])},
        {(uint8_t *)s->input, (size_t)n->rows_max * n->input_floats * sizeof(s->input[0])},
    };
    memcpy(out, all, sizeof(all));
}

/* Each table marks its bytes with its number; nobody's mark may be lost. */
static void check_tables(const struct step *s) {
    struct table all[TABLES];
    uint8_t *begin = s->memory, *end = begin + s->memory_bytes;
    list_tables(s, all);
    for (int i = 0; i < TABLES; i++) {
        assert_int_equal((uintptr_t)all[i].base % ALIGN, 0);
        assert_true(all[i].base >= begin);
        assert_true(all[i].base + all[i].bytes <= end);
        for (size_t at = 0; at < all[i].bytes; at++) assert_int_equal(all[i].base[at], 0);
        memset(all[i].base, i + 1, all[i].bytes);
    }
    for (int i = 0; i < TABLES; i++)
        for (size_t at = 0; at < all[i].bytes; at++) assert_int_equal(all[i].base[at], i + 1);
}

static struct step_sizes random_sizes(struct rng *rng) {
    return (struct step_sizes){.rows_max = 1 + (uint32_t)rng_below(rng, 100),
                               .outputs_max = (uint32_t)rng_below(rng, 20),
                               .seqs_max = 1 + (uint32_t)rng_below(rng, 20),
                               .group_count = (uint32_t)rng_below(rng, KV_GROUPS_MAX + 1),
                               .blocks_max = (uint32_t)rng_below(rng, 50),
                               .edits_max = (uint32_t)rng_below(rng, 100),
                               .deny_words_max = (uint32_t)rng_below(rng, 100),
                               .input_floats = (uint32_t)rng_below(rng, 100)};
}

static void test_tables_are_aligned_zeroed_and_never_overlap(void **state) {
    (void)state;
    struct rng rng = {.seed = 12};
    for (int round = 0; round < ROUNDS; round++) {
        struct host_memory m = {0};
        struct device dev = device_of(&m);
        struct step_sizes sizes = random_sizes(&rng);
        struct step *s;
        assert_int_equal(step_create(&s, &dev, &sizes, NULL), ST_OK);
        assert_memory_equal(&s->sizes, &sizes, sizeof(sizes));
        assert_int_equal(s->tables.edit_cap, sizes.edits_max);
        assert_int_equal(s->tables.deny_cap, sizes.deny_words_max);
        assert_int_equal(m.alloc_count, 1); /* one piece, which a device copies at once */
        assert_int_equal(m.bytes, s->memory_bytes);
        check_tables(s);
        step_destroy(s, &dev);
        assert_int_equal(m.free_count, 1);
        assert_int_equal(m.freed_bytes, m.bytes);
    }
}

static void test_every_sequence_and_group_has_blocks_of_its_own(void **state) {
    (void)state;
    struct host_memory m = {0};
    struct device dev = device_of(&m);
    struct step_sizes sizes = {.rows_max = 1, .seqs_max = 5, .group_count = 3, .blocks_max = 7};
    struct step *s;
    assert_int_equal(step_create(&s, &dev, &sizes, NULL), ST_OK);
    for (uint32_t seq = 0; seq < 5; seq++)
        for (uint32_t group = 0; group < 3; group++) {
            uint32_t *blocks = step_blocks(s, seq, group);
            assert_ptr_equal(blocks, s->blocks + (seq * 3 + group) * 7);
            for (uint32_t b = 0; b < 7; b++) {
                assert_int_equal(blocks[b], 0);
                blocks[b] = 1 + seq;
            }
        }
    step_destroy(s, &dev);
}

/* Each would fit if it were counted in 32 bits, or in 64 bits that run over. */
static void test_sizes_that_memory_cannot_address_are_refused(void **state) {
    (void)state;
    static const struct step_sizes sizes[] = {
        {.rows_max = 8, .seqs_max = UINT32_MAX, .group_count = 8, .blocks_max = UINT32_MAX},
        {.rows_max = 8, .seqs_max = 1u << 31, .group_count = 8, .blocks_max = 1u << 30},
        {.rows_max = 8, .seqs_max = 1u << 31, .group_count = 4, .blocks_max = 1u << 29},
        {.rows_max = 8, .seqs_max = 1u << 30, .group_count = 4, .blocks_max = 1u << 30},
        {.rows_max = 8, .seqs_max = UINT32_MAX, .group_count = 1, .blocks_max = UINT32_MAX},
        {.rows_max = UINT32_MAX, .input_floats = UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct host_memory m = {0};
        struct device dev = device_of(&m);
        struct step *s;
        struct err err = {{0}};
        assert_int_equal(step_create(&s, &dev, &sizes[i], &err), ST_NOMEM);
        assert_int_equal(m.alloc_count, 0);
        assert_non_null(strstr(err.text, sizes[i].rows_max == 8 ? "8 rows" : "4294967295 rows"));
    }
}

static void test_a_device_without_room_is_an_error(void **state) {
    (void)state;
    struct host_memory m = {.is_full = true};
    struct device dev = device_of(&m);
    struct step *s;
    struct err err = {{0}};
    assert_int_equal(step_create(&s, &dev, &(struct step_sizes){.rows_max = 33}, &err), ST_NOMEM);
    assert_non_null(strstr(err.text, "33 rows"));
    assert_int_equal(m.free_count, 0);
    step_destroy(NULL, &dev);
}

static void test_a_cleared_step_is_empty_and_keeps_its_tables(void **state) {
    (void)state;
    struct host_memory m = {0};
    struct device dev = device_of(&m);
    struct step_sizes sizes = {.rows_max = 4,
                               .outputs_max = 4,
                               .seqs_max = 2,
                               .group_count = 1,
                               .blocks_max = 3,
                               .edits_max = 5,
                               .deny_words_max = 6};
    struct kv_move move = {.kind = KV_MOVE_COPY};
    struct step *s;
    assert_int_equal(step_create(&s, &dev, &sizes, NULL), ST_OK);
    struct step fresh = *s;
    s->row_count = s->output_count = 4;
    s->seq_count = 2;
    s->hands_over = true;
    s->moves = &move;
    s->move_count = 1;
    s->tables.edit_count = 5;
    s->tables.deny_count = 6;
    step_clear(s);
    assert_int_equal(s->row_count + s->output_count + s->seq_count + s->move_count, 0);
    assert_int_equal(s->tables.edit_count + s->tables.deny_count, 0);
    assert_false(s->hands_over);
    assert_null(s->moves);
    assert_int_equal(s->tables.edit_cap, 5);
    assert_int_equal(s->tables.deny_cap, 6);
    struct table before[TABLES], after[TABLES];
    list_tables(&fresh, before);
    list_tables(s, after);
    assert_memory_equal(before, after, sizeof(before));
    step_destroy(s, &dev);
}

static void test_a_token_of_the_step_before_is_told_from_every_token(void **state) {
    (void)state;
    static const uint32_t slots[] = {0, 1, 77, 1u << 20, INT32_MAX};
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        assert_true(step_token_at(slots[i]) < 0);
        assert_int_equal(step_token_slot(step_token_at(slots[i])), slots[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_are_aligned_zeroed_and_never_overlap),
        cmocka_unit_test(test_every_sequence_and_group_has_blocks_of_its_own),
        cmocka_unit_test(test_sizes_that_memory_cannot_address_are_refused),
        cmocka_unit_test(test_a_device_without_room_is_an_error),
        cmocka_unit_test(test_a_cleared_step_is_empty_and_keeps_its_tables),
        cmocka_unit_test(test_a_token_of_the_step_before_is_told_from_every_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
