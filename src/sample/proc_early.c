/* sample/proc_early.c - forbids the tokens that would end an answer before it is long enough. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "sample/logit_proc.h"
#include "sample/sampler.h"

struct early {
    uint32_t min_tokens, answered;
    bool in_answer;
    uint32_t count;
    int32_t list[];
};

static struct early *create_with(const int32_t *list, uint32_t count) {
    struct early *e = mem_zalloc(sizeof(*e) + count * sizeof(e->list[0]));
    if (!e) return NULL;
    e->count = count;
    memcpy(e->list, list, count * sizeof(e->list[0]));
    return e;
}

static enum status create(const struct sample_params *p, const struct sample_bounds *bounds,
                          void **self, struct err *err) {
    if (p->min_tokens == 0 || p->end_count == 0) return ST_OK;
    for (uint32_t i = 0; i < p->end_count; i++)
        if (p->ends[i] < 0 || (uint32_t)p->ends[i] >= bounds->vocab)
            return err_set(err, ST_BAD, "stop token %d is not in the vocabulary (0 to %u)",
                           p->ends[i], bounds->vocab - 1);
    struct early *e = create_with(p->ends, p->end_count);
    if (!e) return err_set(err, ST_NOMEM, "sampler: out of memory");
    e->min_tokens = p->min_tokens;
    *self = e;
    return ST_OK;
}

static void edit(void *self, bool is_pending, struct logit_edits *out) {
    const struct early *e = self;
    uint32_t answered = e->answered + (is_pending && e->in_answer);
    if (answered >= e->min_tokens) return;
    for (uint32_t i = 0; i < e->count; i++)
        logit_edits_add(out, (struct logit_edit){e->list[i], 1.0f, -HUGE_VALF, -HUGE_VALF});
}

static uint32_t edits_max(const void *self) { return ((const struct early *)self)->count; }

static void accept(void *self, int32_t token) {
    struct early *e = self;
    (void)token;
    if (e->in_answer) e->answered++;
}

static void rollback(void *self, uint32_t count) {
    struct early *e = self;
    if (!e->in_answer) return;
    CHECK(count <= e->answered);
    e->answered -= count;
}

static void begin_answer(void *self) { ((struct early *)self)->in_answer = true; }

static enum status fork_early(const void *self, void **out) {
    const struct early *from = self;
    struct early *e = create_with(from->list, from->count);
    if (!e) return ST_NOMEM;
    e->min_tokens = from->min_tokens;
    e->answered = from->answered;
    e->in_answer = from->in_answer;
    *out = e;
    return ST_OK;
}

extern const struct logit_proc logit_proc_early;
const struct logit_proc logit_proc_early = {
    .name = "early",
    .create = create,
    .edit = edit,
    .edits_max = edits_max,
    .accept = accept,
    .rollback = rollback,
    .begin_answer = begin_answer,
    .fork = fork_early,
    .destroy = mem_free,
};
