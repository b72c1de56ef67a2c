/* Goal:   a cancellation is never lost, at whatever moment request and cancellation arrive while
 *         the engine looks into its inbox.
 * Method: the two functions with which the engine looks are replaced by ones that let a client
 *         submit and cancel just before or just after each look.
 * wrap: mailbox_take_submitted mailbox_take_cancelled */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/engine/rig.h"

struct request *__real_mailbox_take_submitted(struct mailbox *m);
struct request *__wrap_mailbox_take_submitted(struct mailbox *m);
struct request *__real_mailbox_take_cancelled(struct mailbox *m, uint32_t *choices,
                                              enum finish_reason *why);
struct request *__wrap_mailbox_take_cancelled(struct mailbox *m, uint32_t *choices,
                                              enum finish_reason *why);

/* The client acts at these moments, counted over looks: two each, before and after. */
static struct {
    struct rig *rig;
    uint32_t moment, submit_at, cancel_at;
    struct request *request;
} client;

static void pass_moment(void) {
    if (!client.rig) return;
    uint32_t moment = client.moment++;
    if (moment == client.submit_at) client.request = rig_submit(client.rig, 1, 10, 100, 2);
    if (moment == client.cancel_at) engine_cancel(client.rig->engine, client.request);
}

struct request *__wrap_mailbox_take_submitted(struct mailbox *m) {
    pass_moment();
    struct request *r = __real_mailbox_take_submitted(m);
    pass_moment();
    return r;
}

struct request *__wrap_mailbox_take_cancelled(struct mailbox *m, uint32_t *choices,
                                              enum finish_reason *why) {
    pass_moment();
    struct request *r = __real_mailbox_take_cancelled(m, choices, why);
    pass_moment();
    return r;
}

static void test_a_cancellation_at_any_moment_takes_effect(void **state) {
    (void)state;
    for (uint32_t submit_at = 0; submit_at < 10; submit_at++)
        for (uint32_t cancel_at = submit_at; cancel_at < 16; cancel_at++) {
            struct rig rig;
            struct knobs k = rig_knobs();
            bool did_work;
            rig_open(&rig, &k, NULL, false, 0);
            client.rig = &rig;
            client.moment = 0;
            client.submit_at = submit_at;
            client.cancel_at = cancel_at;
            for (uint32_t i = 0; i < 20; i++) engine_step(rig.engine, &did_work);
            client.rig = NULL;
            assert_int_equal(rig_finish(client.request, 0), FINISH_CANCELLED);
            assert_int_equal(rig_finish(client.request, 1), FINISH_CANCELLED);
            assert_true(sched_is_idle(engine_sched(rig.engine)));
            request_unref(client.request);
            engine_destroy(rig.engine);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cancellation_at_any_moment_takes_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
