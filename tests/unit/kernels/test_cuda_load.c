/* Goal:   the options behind a card's number turn on and off what they name, and nothing else; a
 *         name that is none is refused with the list of all.
 * Method: cuda_parse alone; no library is opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "kernels/cuda_load.h"

static struct cuda_choice parse(const char *args) {
    struct cuda_choice choice;
    struct err err = {{0}};
    assert_int_equal(cuda_parse(str_of(args), &choice, &err), ST_OK);
    return choice;
}

static void test_kernels_that_win_are_on_unless_they_are_turned_off(void **state) {
    (void)state;
    static const struct {
        const char *off;
        size_t offset;
    } names[] = {
        {"0,few=off", offsetof(struct cuda_switches, few_rows)},
        {"0,two=off", offsetof(struct cuda_switches, two_rows)},
        {"0,first=off", offsetof(struct cuda_switches, first)},
        {"0,dots=off", offsetof(struct cuda_switches, dots)},
        {"0,fill=off", offsetof(struct cuda_switches, fills)},
        {"0,bulk=off", offsetof(struct cuda_switches, bulk)},
        {"0,groups=off", offsetof(struct cuda_switches, groups)},
        {"0,whole=off", offsetof(struct cuda_switches, whole)},
        {"0,overlap=off", offsetof(struct cuda_switches, overlap)},
    };
    struct cuda_choice usual = parse("0");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct cuda_choice off = parse(names[i].off);
        bool *changed = (bool *)((char *)&off.switches + names[i].offset);
        assert_true(*(bool *)((char *)&usual.switches + names[i].offset));
        assert_false(*changed);
        *changed = true;
        assert_memory_equal(&off.switches, &usual.switches, sizeof(usual.switches));
    }
}

static void test_what_no_card_has_measured_is_off_unless_it_is_turned_on(void **state) {
    (void)state;
    static const struct {
        const char *on;
        size_t offset;
    } names[] = {
        {"0,two=first", offsetof(struct cuda_switches, two_first)},
        {"0,timed=early", offsetof(struct cuda_switches, timed_early)},
        {"0,dense=on", offsetof(struct cuda_switches, dense)},
        {"0,acts=clusters", offsetof(struct cuda_switches, act_clusters)},
        {"0,e4m3=card", offsetof(struct cuda_switches, e4m3_card)},
        {"0,step=resident", offsetof(struct cuda_switches, resident)},
    };
    struct cuda_choice usual = parse("0");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct cuda_choice on = parse(names[i].on);
        bool *changed = (bool *)((char *)&on.switches + names[i].offset);
        assert_false(*(bool *)((char *)&usual.switches + names[i].offset));
        assert_true(*changed);
        *changed = false;
        assert_memory_equal(&on.switches, &usual.switches, sizeof(usual.switches));
    }
}

static void test_options_follow_each_other_and_the_last_one_holds(void **state) {
    (void)state;
    struct cuda_choice choice = parse("3,two=off,bulk=off,two=on,whole=always");
    assert_int_equal(choice.card, 3);
    assert_true(choice.switches.two_rows);
    assert_false(choice.switches.two_always || parse("3").switches.two_always);
    assert_false(choice.switches.bulk);
    assert_true(choice.switches.whole_always);
    assert_false(parse("").switches.whole_always);
}

static void test_an_unknown_option_is_refused_with_the_list_of_all(void **state) {
    (void)state;
    static const char *const bad[] = {"0,two", "0,two=of", "0,,two=off", "0 ,two=off", "64", "x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct cuda_choice choice;
        struct err err = {{0}};
        assert_int_equal(cuda_parse(str_of(bad[i]), &choice, &err), ST_BAD);
        assert_non_null(strstr(err.text, bad[i]));
        assert_non_null(strstr(err.text, ",two=on|off"));
        assert_non_null(strstr(err.text, ",groups=on|off"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_that_win_are_on_unless_they_are_turned_off),
        cmocka_unit_test(test_what_no_card_has_measured_is_off_unless_it_is_turned_on),
        cmocka_unit_test(test_options_follow_each_other_and_the_last_one_holds),
        cmocka_unit_test(test_an_unknown_option_is_refused_with_the_list_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
