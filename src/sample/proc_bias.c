/* sample/proc_bias.c - adds a constant to the logits of some tokens; minus infinity forbids. */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "sample/logit_proc.h"
#include "sample/sampler.h"

struct bias {
    uint32_t count;
    struct logit_bias list[];
};

static struct bias *copy_of(const struct logit_bias *list, uint32_t count) {
    struct bias *b = mem_alloc(sizeof(*b) + count * sizeof(b->list[0]));
    if (!b) return NULL;
    b->count = count;
    memcpy(b->list, list, count * sizeof(b->list[0]));
    return b;
}

static enum status create(const struct sample_params *p, const struct sample_bounds *bounds,
                          void **self, struct err *err) {
    uint32_t vocab = bounds->vocab;
    CHECK(p->bias_count <= LOGIT_BIAS_MAX);
    for (uint32_t i = 0; i < p->bias_count; i++) {
        int32_t token = p->bias[i].token;
        if (token < 0 || (uint32_t)token >= vocab)
            return err_set(err, ST_BAD, "logit_bias: token %d is not in the vocabulary (0 to %u)",
                           token, vocab - 1);
    }
    if (p->bias_count == 0) return ST_OK;
    *self = copy_of(p->bias, p->bias_count);
    return *self ? ST_OK : err_set(err, ST_NOMEM, "sampler: out of memory");
}

static void edit(void *self, bool is_pending, struct logit_edits *out) {
    const struct bias *b = self;
    (void)is_pending;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct logit_bias *one = &b->list[i];
        logit_edits_add(out, (struct logit_edit){one->token, 1.0f, one->bias, one->bias});
    }
}

static uint32_t edits_max(const void *self) { return ((const struct bias *)self)->count; }

static enum status fork_bias(const void *self, void **out) {
    const struct bias *b = self;
    *out = copy_of(b->list, b->count);
    return *out ? ST_OK : ST_NOMEM;
}

extern const struct logit_proc logit_proc_bias;
const struct logit_proc logit_proc_bias = {
    .name = "bias",
    .create = create,
    .edit = edit,
    .edits_max = edits_max,
    .fork = fork_bias,
    .destroy = mem_free,
};
