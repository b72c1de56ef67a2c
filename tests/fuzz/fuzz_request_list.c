/* tests/fuzz/fuzz_request_list.c - any bytes as the list of requests of a replay. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "sim/request_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 100 };

static void note(void *ctx, uint32_t line, bool is_bad, const char *reason) {
    uint32_t *bad = ctx;
    if (line == 0 || !reason[0]) abort();
    *bad += is_bad;
}

/* What is kept is in range; every other line was reported. */
static void check(const struct request_list *list, uint32_t bad) {
    if (list->bad_lines != bad) abort();
    for (uint32_t i = 0; i < list->count; i++) {
        const struct listed_request *r = &list->items[i];
        if (!r->id || r->prompt_tokens == 0 || r->max_tokens == 0 || r->n == 0) abort();
        if (r->at_us < 0 || r->cancel_after_us < -1) abort();
        for (uint32_t k = 0; k < r->prompt_tokens; k++)
            if (r->prompt[k] < 0 || r->prompt[k] >= VOCAB) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct prompt_source source = {.vocab = VOCAB};
    struct request_list list;
    uint32_t bad = 0;
    struct str text = {(const char *)data, size};
    if (request_list_read(&list, text, &source, note, &bad, NULL) != ST_OK) return 0;
    check(&list, bad);
    request_list_deinit(&list);
    return 0;
}
