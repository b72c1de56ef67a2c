/* sched/seq.c - names of finish reasons. */
#include "sched/seq.h"

#include "base/check.h"

const char *finish_name(enum finish_reason r) {
    static const char *const names[] = {
        [FINISH_NONE] = "none",       [FINISH_STOP] = "stop",
        [FINISH_LENGTH] = "length",   [FINISH_CANCELLED] = "cancelled",
        [FINISH_EXPIRED] = "expired", [FINISH_REFUSED] = "refused",
        [FINISH_ERROR] = "error",
    };
    CHECK((uint32_t)r < sizeof(names) / sizeof(names[0]));
    return names[r];
}
