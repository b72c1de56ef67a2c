/* server/memory_plan.c - see server/memory_plan.h. */
#include "server/memory_plan.h"

#include <uv.h>

#include "config/settings.h"
#include "server/routes.h"

enum {
    MACHINE_PARTS = 8,    /* the default is one of them */
    BODIES_IN_PLAN = 8,   /* the smallest budget must hold the largest body */
    BODIES_PARTS = 4,     /* `bodies` is one of them */
    TOTAL_MIN = 16 << 20, /* in bytes */
};

uint64_t memory_plan_machine_bytes(void) {
    uint64_t machine = uv_get_total_memory(), container = uv_get_constrained_memory();
    return container > 0 && container < machine ? container : machine;
}

/* Of the body of an upload. */
static uint64_t file_bytes(uint64_t file_max) { return file_max + BODY_FORM_BYTES; }

static uint64_t default_total(const struct settings *s, uint64_t machine_bytes) {
    uint64_t total = machine_bytes / MACHINE_PARTS, least = s->body_max * BODIES_IN_PLAN;
    if (total < least) total = least;
    if (s->data_dir && total < BODIES_PARTS * file_bytes(s->file_max))
        total = BODIES_PARTS * file_bytes(s->file_max);
    if (settings_origin(s, "keep-memory") != FROM_DEFAULT && total < 4 * s->keep_memory)
        total = 4 * s->keep_memory;
    return total < TOTAL_MIN ? TOTAL_MIN : total;
}

static enum status check(const struct settings *s, const struct memory_plan *p, struct err *err) {
    if (p->total < TOTAL_MIN)
        return err_set(err, ST_BAD, "--memory-max is %llu bytes; it must be at least %u (16M)",
                       (unsigned long long)p->total, (unsigned)TOTAL_MIN);
    if (p->work < s->body_max)
        return err_set(err, ST_BAD,
                       "--memory-max is %llu bytes, of which one eighth (%llu) must hold the "
                       "largest request body; --body-max is %llu: give --memory-max at least %llu "
                       "bytes, or lower --body-max",
                       (unsigned long long)p->total, (unsigned long long)p->work,
                       (unsigned long long)s->body_max,
                       (unsigned long long)s->body_max * BODIES_IN_PLAN);
    if (s->keep_memory > p->answers && settings_origin(s, "keep-memory") != FROM_DEFAULT)
        return err_set(err, ST_BAD,
                       "--keep-memory is %llu bytes; it must be at most %llu, which is a quarter "
                       "of --memory-max (%llu)",
                       (unsigned long long)s->keep_memory, (unsigned long long)p->answers,
                       (unsigned long long)p->total);
    if (s->data_dir && p->file_max < s->file_max && settings_origin(s, "file-max") != FROM_DEFAULT)
        return err_set(err, ST_BAD,
                       "--file-max is %llu bytes; an upload must fit into a quarter of "
                       "--memory-max (%llu): give --memory-max at least %llu bytes, or lower "
                       "--file-max",
                       (unsigned long long)s->file_max, (unsigned long long)p->bodies,
                       (unsigned long long)file_bytes(s->file_max) * BODIES_PARTS);
    return ST_OK;
}

enum status memory_plan_make(const struct settings *settings, uint64_t machine_bytes,
                             struct memory_plan *out, struct err *err) {
    uint64_t total =
        settings->memory_max ? settings->memory_max : default_total(settings, machine_bytes);
    *out = (struct memory_plan){.total = total,
                                .bodies = total / BODIES_PARTS,
                                .replies = total / 4,
                                .answers = total / 4,
                                .work = total / 8,
                                .embeddings = total / 8,
                                .grammars = total / 8};
    if (settings->grammar_memory) out->grammars = settings->grammar_memory;
    out->file_max = settings->file_max;
    if (file_bytes(out->file_max) > out->bodies) out->file_max = out->bodies - BODY_FORM_BYTES;
    return check(settings, out, err);
}
