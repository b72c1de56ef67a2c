/* Goal:   the runs notice a broken rule.
 * Method: this program is linked with one file of planted/, which replaces functions by faulty
 *         ones. It runs batches on tiny models, on the CPU and on a device whose results are late,
 *         until an answer differs, and prints which one; a run to the end without a difference
 *         is the failure. A CHECK of the product that fires has noticed the fault, too: the runs
 *         are made by a child process. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "identity/models.h"
#include "identity/batch_run.h"

enum { RUNS_MAX = 20 };

/* True: a run noticed the fault. */
static bool run_until_caught(const char *name, const char *device) {
    struct test_model model;
    struct err err = {0};
    struct coverage seen = {0};
    char path[4096];
    if (!models_path(name, path, sizeof(path))) return false;
    if (test_model_open(&model, name, path, false, &err) != ST_OK) return false;
    bool caught = false;
    for (uint32_t i = 0; i < RUNS_MAX && !caught; i++) {
        struct batch_run r = batch_run_draw(&model, i);
        r.device = device;
        caught = batch_run_check(&model, &r, &seen, &err) != ST_OK;
    }
    if (caught) printf("caught after %u pairs: %s\n", seen.pairs, err.text);
    test_model_close(&model);
    return caught;
}

/* The exit status of the test. */
static int run_all(void) {
    static const char *const names[] = {"llama", "gemma3", "qwen3moe"};
    /* Some rules can only be broken where a step is planned while another runs. */
    static const char *const devices[] = {"cpu", "delayed:depth=1,jitter=0"};
    for (uint32_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++)
        for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (run_until_caught(names[i], devices[d])) return 0;
    printf("no run noticed the fault\n");
    return 1;
}

int main(void) {
    int status = 0;
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) return run_all();
    if (waitpid(child, &status, 0) != child) return 1;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
        printf("caught by a CHECK\n");
        return 0;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
