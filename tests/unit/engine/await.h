/* unit/engine/await.h - the end of an answer, on an engine that runs by itself. */
#ifndef UNIT_ENGINE_AWAIT_H
#define UNIT_ENGINE_AWAIT_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/request.h"

enum { AWAIT_US = 30000000 };

/* Take events until all choices of `r` have ended. */
static inline void await_answer(struct engine *e, const struct request *r) {
    for (uint32_t i = 0; i < r->n; i++)
        while (atomic_load(&r->choices[i].finish) == FINISH_NONE) {
            struct choice *c = engine_next(e, AWAIT_US);
            if (!c) fail_msg("nothing came for %d s", AWAIT_US / 1000000);
            request_unref(c->request);
        }
}

#endif
