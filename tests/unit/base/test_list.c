/* Goal: a list holds its items in the order in which they were pushed, and its links stay whole.
 *
 * Method: the ends and the middle by hand; then random calls from a seed beside an array that is
 * changed in the same way, compared after each call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/list.h"
#include "base/rng.h"

struct item {
    int number;
    struct list_link in_order, in_other; /* not the first member: an item is found by its offset */
};

static struct item *item_of(struct list_link *link) {
    return LIST_ITEM(link, struct item, in_order);
}

static void test_items_come_in_order_from_both_ends(void **state) {
    (void)state;
    struct item items[4] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}};
    struct list list = {0};
    list_push_last(&list, &items[2].in_order);
    list_push_first(&list, &items[1].in_order);
    list_push_last(&list, &items[3].in_order);
    list_push_first(&list, &items[0].in_order);
    list_verify(&list);
    int expected = 0;
    for (struct list_link *l = list.first; l; l = l->next)
        assert_int_equal(item_of(l)->number, expected++);
    assert_int_equal(expected, 4);
    for (struct list_link *l = list.last; l; l = l->prev)
        assert_int_equal(item_of(l)->number, --expected);
    assert_int_equal(list.count, 4);
}

static void test_an_item_is_removed_from_any_position(void **state) {
    (void)state;
    for (int removed = 0; removed < 3; removed++) {
        struct item items[3] = {{.number = 0}, {.number = 1}, {.number = 2}};
        struct list list = {0};
        for (int i = 0; i < 3; i++) list_push_last(&list, &items[i].in_order);
        list_remove(&list, &items[removed].in_order);
        list_verify(&list);
        assert_int_equal(list.count, 2);
        for (int i = 0; i < 3; i++)
            assert_int_equal(list_has(&list, &items[i].in_order), i != removed);
        list_push_last(&list, &items[removed].in_order);
        list_verify(&list);
        assert_ptr_equal(list.last, &items[removed].in_order);
    }
}

static void test_an_empty_list_has_no_first_item(void **state) {
    (void)state;
    struct item item = {.number = 7};
    struct list list = {0};
    assert_null(list_pop_first(&list));
    assert_null(item_of(list.first));
    list_push_first(&list, &item.in_order);
    assert_ptr_equal(item_of(list_pop_first(&list)), &item);
    assert_null(list_pop_first(&list));
    assert_null(list.last);
    list_verify(&list);
}

static void test_an_item_can_be_in_two_lists(void **state) {
    (void)state;
    struct item items[2] = {{.number = 0}, {.number = 1}};
    struct list order = {0}, other = {0};
    for (int i = 0; i < 2; i++) list_push_last(&order, &items[i].in_order);
    for (int i = 0; i < 2; i++) list_push_first(&other, &items[i].in_other);
    list_remove(&order, &items[0].in_order);
    assert_ptr_equal(LIST_ITEM(other.last, struct item, in_other), &items[0]);
    assert_ptr_equal(item_of(order.first), &items[1]);
    list_verify(&order);
    list_verify(&other);
}

static void test_all_items_are_taken_by_copying_the_list(void **state) {
    (void)state;
    struct item items[2] = {{.number = 0}, {.number = 1}};
    struct list list = {0};
    for (int i = 0; i < 2; i++) list_push_last(&list, &items[i].in_order);
    struct list taken = list;
    list = (struct list){0};
    list_verify(&list);
    list_verify(&taken);
    for (int i = 0; i < 2; i++) assert_ptr_equal(item_of(list_pop_first(&taken)), &items[i]);
    assert_int_equal(taken.count, 0);
}

enum { ITEMS = 13, STEPS = 20000 };

/* The model: item numbers in order. */
struct order {
    int numbers[ITEMS];
    uint32_t count;
};

static void order_insert(struct order *o, uint32_t at, int number) {
    memmove(o->numbers + at + 1, o->numbers + at, (o->count - at) * sizeof(int));
    o->numbers[at] = number;
    o->count++;
}

static void order_remove(struct order *o, int number) {
    uint32_t at = 0;
    while (o->numbers[at] != number) at++;
    memmove(o->numbers + at, o->numbers + at + 1, (o->count - at - 1) * sizeof(int));
    o->count--;
}

static void check_same(const struct list *list, const struct order *o) {
    uint32_t i = 0;
    list_verify(list);
    assert_int_equal(list->count, o->count);
    for (struct list_link *l = list->first; l; l = l->next)
        assert_int_equal(item_of(l)->number, o->numbers[i++]);
}

static void test_random_calls_agree_with_an_array(void **state) {
    (void)state;
    const uint64_t seed = 14;
    print_message("seed %d\n", (int)seed);
    struct item items[ITEMS] = {{0}};
    for (int i = 0; i < ITEMS; i++) items[i].number = i;
    struct list list = {0};
    struct order order = {.count = 0};
    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t draw = rng_at(seed, 0, step);
        struct item *item = &items[draw % ITEMS];
        bool is_in = list_has(&list, &item->in_order);
        if (draw >> 32 & 1u && draw >> 33 & 1u) {
            struct list_link *first = list_pop_first(&list);
            if (first) order_remove(&order, item_of(first)->number);
        } else if (is_in) {
            list_remove(&list, &item->in_order);
            order_remove(&order, item->number);
        } else if (draw >> 34 & 1u) {
            list_push_first(&list, &item->in_order);
            order_insert(&order, 0, item->number);
        } else {
            list_push_last(&list, &item->in_order);
            order_insert(&order, order.count, item->number);
        }
        check_same(&list, &order);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_come_in_order_from_both_ends),
        cmocka_unit_test(test_an_item_is_removed_from_any_position),
        cmocka_unit_test(test_an_empty_list_has_no_first_item),
        cmocka_unit_test(test_an_item_can_be_in_two_lists),
        cmocka_unit_test(test_all_items_are_taken_by_copying_the_list),
        cmocka_unit_test(test_random_calls_agree_with_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
