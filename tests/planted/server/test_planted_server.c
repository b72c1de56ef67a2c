/* Goal:   the tests of drafts on the wire find bugs of the server.
 * Method: copies of the product's sources with the bugs of plants.cmake in them, each behind its
 *         number. Without any of them all tests pass; with each of them, by itself, one fails, or
 *         a CHECK of the product ends the program. Each run is a process of its own. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "plant_names.h"
#include "sim/planted/planted.h"

enum { PLANTS = sizeof(plant_names) / sizeof(plant_names[0]) };

int planted_bug;
int serving_tests(void); /* unit/server/test_serving_speculation.c */

/* Those that take long compare bytes; what is planted here shows in the others. */
static bool has_passed(int bug) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        const int sink = open("/dev/null", O_WRONLY);
        dup2(sink, STDOUT_FILENO);
        dup2(sink, STDERR_FILENO);
        planted_bug = bug;
        cmocka_set_skip_filter("test_the_bytes*");
        exit(serving_tests());
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv) {
    if (argc == 2) { /* one bug, by its number, with what the tests print */
        planted_bug = (int)strtol(argv[1], NULL, 10);
        return serving_tests() == 0;
    }
    int missed = 0;
    if (!has_passed(0)) {
        printf("the tests fail without a planted bug\n");
        return 1;
    }
    for (int bug = 1; bug <= PLANTS; bug++) {
        const bool is_missed = has_passed(bug);
        printf("%2d %-6s %s\n", bug, is_missed ? "MISSED" : "found", plant_names[bug - 1]);
        missed += is_missed;
    }
    printf("%d of %d found\n", PLANTS - missed, PLANTS);
    return missed > 0;
}
