/* Goal:   the crowds notice a broken rule.
 * Method: this program is linked with one file of planted/, which replaces functions by faulty
 *         ones. It runs crowds on tiny models, on the CPU and on a device that is late, until an
 *         answer differs, and says which one; to get to the end without a difference is the
 *         failure. */
#include <stdio.h>

#include "identity/lines.h"
#include "identity/crowd.h"

enum { RIDES_MAX = 20 };

/* True: a crowd noticed. */
static bool crowd_until_caught(const char *name, const char *device) {
    struct line line;
    struct err err = {0};
    struct coverage seen = {0};
    char path[4096];
    if (!lines_path(name, path, sizeof(path))) return false;
    if (line_open(&line, name, path, false, &err) != ST_OK) return false;
    bool caught = false;
    for (uint32_t i = 0; i < RIDES_MAX && !caught; i++) {
        struct crowd r = crowd_draw(&line, i);
        r.device = device;
        caught = crowd_check(&line, &r, &seen, &err) != ST_OK;
    }
    if (caught) printf("caught after %u pairs: %s\n", seen.pairs, err.text);
    line_close(&line);
    return caught;
}

int main(void) {
    static const char *const names[] = {"llama", "gemma3", "qwen3moe"};
    /* Some rules can only be broken where a step is planned while another runs. */
    static const char *const devices[] = {"cpu", "delayed:depth=1,jitter=0"};
    for (uint32_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++)
        for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (crowd_until_caught(names[i], devices[d])) return 0;
    printf("no crowd noticed the fault\n");
    return 1;
}
