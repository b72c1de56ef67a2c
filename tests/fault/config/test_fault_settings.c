/* Goal:   settings survive the failure of any one allocation and lose nothing.
 * Method: everything that is done with settings at a start and at a reload, with the first
 *         allocation failing, then the second, until none fails. Leaks show in the sanitizer
 *         build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "config/settings.h"
#include "fault/fail_alloc.h"

static const char *look_up(const char *name) {
    return strcmp(name, "JITNEY_MODEL") == 0 ? "a,b" : NULL;
}

static enum status use(struct settings *s, struct err *err) {
    struct settings other;
    const char text[] = "model = x\nmodel = \"y\"\nhost = h\nset = a=1\nlog-level = warn\n";
    TRY(settings_read_text(s, STR("ping-s = 3\nhost = z\n"), "f", err));
    TRY(settings_read_text(s, str_of(text), "f", err));
    TRY(settings_read_env(s, look_up, err));
    TRY(settings_set(s, STR("uds"), STR("/u"), FROM_FLAG, err));
    TRY(settings_copy(s, &other));
    settings_deinit(&other);
    struct buf restart;
    buf_init(&restart, 1000);
    enum status st = settings_reload(s, &other, &restart, err);
    if (st == ST_OK) {
        buf_clear(&restart);
        restart.max = 1 << 16;
        settings_print(&other, &restart);
        st = buf_status(&restart);
        settings_deinit(&other);
    }
    buf_deinit(&restart);
    return st;
}

static void test_any_one_allocation_may_fail(void **state) {
    (void)state;
    for (long n = 0;; n++) {
        struct settings s;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = settings_init(&s);
        if (st == ST_OK) {
            st = use(&s, &err);
            settings_deinit(&s);
        }
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            assert_true(n > 50);
            break;
        }
        /* The list of what needs a restart may be cut short; all else is an error. */
        assert_true(st == ST_NOMEM || st == ST_OK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_one_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
