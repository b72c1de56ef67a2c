/* server/idle_trim.c - see server/idle_trim.h. */
#include "server/idle_trim.h"

#include <uv.h>

#include "base/check.h"
#include "base/mem.h"

enum {
    IDLE_US = 2000000,
    WORK_BYTES = 64 << 10, /* less than this, such as a reading of /metrics, is no work */
};

struct idle_trim {
    uv_loop_t *loop;
    uv_work_t work;
    bool is_running;    /* in the pool */
    bool is_due;        /* there was work since the last time */
    int64_t idle_us;    /* since when there is none */
    uint64_t in_before; /* bytes received, as of the last work that they count as */
};

enum status idle_trim_create(struct uv_loop_s *loop, struct idle_trim **out) {
    *out = mem_zalloc(sizeof(**out));
    if (!*out) return ST_NOMEM;
    (*out)->loop = loop;
    (*out)->work.data = *out;
    return ST_OK;
}

void idle_trim_destroy(struct idle_trim *t) {
    CHECK(!t || !t->is_running);
    mem_free(t);
}

/* It takes 0.1 ms for a megabyte. Other threads wait only if they need memory that they do not have
 * at hand. */
static void run(uv_work_t *work) {
    (void)work;
    mem_trim();
}

static void done(uv_work_t *work, int status) {
    struct idle_trim *t = work->data;
    (void)status;
    t->is_running = false;
}

void idle_trim_tick(struct idle_trim *t, bool is_idle, uint64_t bytes_in, int64_t now_us) {
    const bool has_received = bytes_in - t->in_before >= WORK_BYTES;
    if (has_received) t->in_before = bytes_in;
    if (!is_idle || has_received) {
        t->is_due = true;
        t->idle_us = now_us;
        return;
    }
    if (!t->is_due || t->is_running || now_us - t->idle_us < IDLE_US) return;
    t->is_due = false;
    t->is_running = uv_queue_work(t->loop, &t->work, run, done) == 0;
}
