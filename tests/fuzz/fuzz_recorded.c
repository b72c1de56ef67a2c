/* tests/fuzz/fuzz_recorded.c - any bytes as a recording, which is a file or the body of a request.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "sim/recorded.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 100 };
static const struct recorded_limits limits = {.sequences = 64, .tokens = 1 << 16};

/* What is kept is in range and within the limits. */
static void check(const struct request_list *list) {
    uint64_t tokens = 0;
    if (list->count == 0 || request_list_choices(list) > limits.sequences) abort();
    for (uint32_t i = 0; i < list->count; i++) {
        const struct listed_request *r = &list->items[i];
        if (!r->id || r->prompt_tokens == 0 || r->max_tokens == 0 || r->n == 0) abort();
        if (r->at_us < 0 || r->cancel_after_us != -1) abort();
        for (uint32_t k = 0; k < r->n; k++)
            if (r->stops[k] == 0) abort();
        for (uint32_t k = 0; k < r->prompt_tokens; k++)
            if (r->prompt[k] < 0 || r->prompt[k] >= VOCAB) abort();
        tokens += (uint64_t)r->prompt_tokens + r->max_tokens;
    }
    if (tokens > limits.tokens) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct prompt_source source = {.vocab = VOCAB};
    struct str file = {(const char *)data, size}, text;
    struct recorded_fault fault;
    struct request_list list;
    struct json *doc = NULL;
    if (!recorded_find(file, &text)) text = file;
    if (json_parse(text, &json_limits_request, &doc, NULL) != ST_OK) return 0;
    enum status st = recorded_read(doc, &limits, &list, &fault);
    json_destroy(doc);
    if (st == ST_BAD && (!fault.path[0] || !fault.err.text[0])) abort();
    if (st != ST_OK) return 0;
    if (recorded_draw_prompts(&list, &source) == ST_OK) check(&list);
    request_list_deinit(&list);
    return 0;
}
