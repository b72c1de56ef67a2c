/* tests/fuzz/fuzz_batch_partial.c - any bytes as the partial results of `jitney batch`. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "cli/batch_partial.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    struct str bytes;
    const struct batch_origin *origin;
    size_t count, end;
};

/* A result is a piece of the file, behind those before it, and of a line of the input. */
static void each(void *ctx, const struct batch_entry *e, size_t offset) {
    struct seen *s = ctx;
    if (e->number >= s->origin->line_count || e->status < 100 || e->status > 999) abort();
    if (e->output.len == 0 || e->output.ptr != s->bytes.ptr + offset) abort();
    if (offset < s->end || offset + e->output.len >= s->bytes.len) abort();
    s->end = offset + e->output.len + 1;
    s->count++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct batch_origin origin = {0}, again = {0};
    struct seen all = {.bytes = {(const char *)data, size}, .origin = &origin}, good;
    size_t used, used_again;
    if (batch_partial_read(all.bytes, &origin, each, &all, &used) != ST_OK) {
        if (used != 0 || all.count != 0) abort();
        return 0;
    }
    if (used == 0 || used > size || data[used - 1] != '\n') abort();
    /* What is left when the damaged end is cut off is all good. */
    good = (struct seen){.bytes = {(const char *)data, used}, .origin = &again};
    if (batch_partial_read(good.bytes, &again, each, &good, &used_again) != ST_OK) abort();
    if (used_again != used || good.count != all.count) abort();
    return 0;
}
