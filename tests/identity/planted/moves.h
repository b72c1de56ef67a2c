/* identity/planted/moves.h - a step without some of its KV moves. */
#ifndef IDENTITY_PLANTED_MOVES_H
#define IDENTITY_PLANTED_MOVES_H

#include "base/check.h"
#include "kernels/cpu/program.h"

enum { MOVES_MAX = 1 << 14 };

/* As `step`, but moves of `kind` are left out. Valid until the next call, which comes behind the
 * step's collect: the CPU has one step under way at most. */
static inline const struct step *step_without(const struct step *step, enum kv_move_kind kind) {
    static struct kv_move moves[MOVES_MAX];
    static struct step without;
    CHECK(step->move_count <= MOVES_MAX);
    without = *step;
    without.moves = moves;
    without.move_count = 0;
    for (uint32_t i = 0; i < step->move_count; i++)
        if (step->moves[i].kind != kind) moves[without.move_count++] = step->moves[i];
    return &without;
}

#endif
