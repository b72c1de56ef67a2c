/* cli/main.c - where the program begins. */
#include "base/mem.h"
#include "cli/cli.h"

int main(int argc, char **argv) {
    mem_bound_unused();
    return cli_main(argc, argv);
}
