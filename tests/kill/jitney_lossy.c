/* kill/jitney_lossy.c - the program jitney, whose database is on a disk that loses what was not
 * synced (lossy_vfs.h). JITNEY_LOSSY_SEED is the seed of the disk. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "kill/lossy_vfs.h"

int main(int argc, char **argv) {
    const char *text = getenv("JITNEY_LOSSY_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 0;
    int rc = lossy_vfs_register(seed);
    if (rc != SQLITE_OK) {
        fprintf(stderr, "jitney_lossy: %s\n", sqlite3_errstr(rc));
        return 70;
    }
    return cli_main(argc, argv);
}
