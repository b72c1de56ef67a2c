/* base/check.c - see base/check.h for the contract. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *file, int line, const char *condition) {
    fprintf(stderr,
            "jitney: bug: %s:%d: %s does not hold. Please report this line and what you did.\n",
            file, line, condition);
    abort();
}
