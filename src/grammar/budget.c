/* grammar/budget.c - the account of a grammar's memory, states and time. */
#include "grammar/budget.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"

enum { CAP_FIRST = 16, SLOTS_LEAST = 256, TICKS_PER_LOOK = 256 };

static bool fail(struct budget *b, enum status st) {
    if (b->status == ST_OK) b->status = st;
    return false;
}

bool budget_spend_out(struct budget *b, const char *what) {
    if (b->status == ST_OK) b->limit = what;
    return fail(b, ST_FULL);
}

bool budget_grow(struct budget *b, void **array, uint32_t *cap, size_t count,
                 size_t element_bytes) {
    if (b->status != ST_OK) return false;
    if (count <= *cap) return true;
    size_t wanted = *cap ? (size_t)*cap * 2 : CAP_FIRST;
    if (wanted < count) wanted = count;
    if (wanted > UINT32_MAX / 2) return budget_spend_out(b, "bytes");
    size_t more = (wanted - *cap) * element_bytes;
    if (more > b->bytes_max - b->bytes) return budget_spend_out(b, "bytes");
    void *grown = mem_realloc(*array, wanted * element_bytes);
    if (!grown) return fail(b, ST_NOMEM);
    memset((char *)grown + (size_t)*cap * element_bytes, 0, more);
    b->bytes += more;
    *array = grown;
    *cap = (uint32_t)wanted;
    return true;
}

void budget_shrink(struct budget *b, void **array, uint32_t *cap, size_t count,
                   size_t element_bytes) {
    const size_t wanted = count * 2 > CAP_FIRST ? count * 2 : CAP_FIRST;
    if (wanted >= *cap) return;
    void *less = mem_realloc(*array, wanted * element_bytes);
    if (!less) return;
    b->bytes -= (*cap - wanted) * element_bytes;
    *array = less;
    *cap = (uint32_t)wanted;
}

void budget_shrink_slots(struct budget *b, uint32_t **slots, uint32_t *slot_count, size_t count) {
    uint32_t wanted = SLOTS_LEAST;
    while (wanted < count * 4) wanted *= 2;
    if (wanted >= *slot_count) return;
    uint32_t *less = mem_realloc(*slots, wanted * sizeof(*less));
    if (!less) return;
    b->bytes -= (*slot_count - wanted) * sizeof(*less);
    *slots = less;
    *slot_count = wanted;
}

void *budget_zalloc(struct budget *b, size_t count, size_t element_bytes) {
    size_t bytes = 0;
    if (b->status != ST_OK) return NULL;
    if (!size_mul(count, element_bytes, &bytes) || bytes > b->bytes_max - b->bytes) {
        budget_spend_out(b, "bytes");
        return NULL;
    }
    void *block = mem_zalloc(bytes ? bytes : 1);
    if (!block)
        fail(b, ST_NOMEM);
    else
        b->bytes += bytes;
    return block;
}

bool budget_tick(struct budget *b) { return budget_ticks(b, 1); }

bool budget_ticks(struct budget *b, uint32_t count) {
    if (b->status != ST_OK) return false;
    const uint32_t before = b->ticks;
    b->ticks = count < UINT32_MAX - before ? before + count : UINT32_MAX;
    if (before / TICKS_PER_LOOK == b->ticks / TICKS_PER_LOOK) return true;
    if (b->ticks_max && b->ticks > b->ticks_max) return budget_spend_out(b, "work");
    if (b->cancelled && b->cancelled(b->cancelled_ctx)) return fail(b, ST_CANCELLED);
    if (b->clock && clock_now(b->clock) > b->deadline_us) return budget_spend_out(b, "time");
    return true;
}
