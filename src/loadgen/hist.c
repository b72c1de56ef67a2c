/* loadgen/hist.c - see loadgen/hist.h.
 *
 * Values below one octave have a slot each. Above, a slot is the position of the highest bit and
 * the seven bits below it.
 */
#include "loadgen/hist.h"

#include "base/check.h"

enum { OCTAVE_BITS = 7, SLOTS = HIST_OCTAVE_SLOTS * HIST_OCTAVES };
static const double US_PER_MS = 1000.0;

_Static_assert(1 << OCTAVE_BITS == HIST_OCTAVE_SLOTS, "slots of an octave are its bits");

static uint32_t slot_of(uint64_t us) {
    if (us < HIST_OCTAVE_SLOTS) return (uint32_t)us;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(us) - OCTAVE_BITS;
    uint32_t slot =
        (shift + 1) * HIST_OCTAVE_SLOTS + (uint32_t)((us >> shift) & (HIST_OCTAVE_SLOTS - 1));
    return slot < SLOTS ? slot : SLOTS - 1;
}

/* The greatest value that falls into the slot. */
static uint64_t slot_end_us(uint32_t slot) {
    if (slot < HIST_OCTAVE_SLOTS) return slot;
    uint32_t shift = slot / HIST_OCTAVE_SLOTS - 1;
    return ((uint64_t)(HIST_OCTAVE_SLOTS + slot % HIST_OCTAVE_SLOTS + 1) << shift) - 1;
}

void hist_add(struct hist *h, int64_t us) {
    uint64_t v = us < 0 ? 0 : (uint64_t)us;
    if (h->count == 0 || v < h->min_us) h->min_us = v;
    if (v > h->max_us) h->max_us = v;
    h->count++;
    h->sum_us += v;
    h->slots[slot_of(v)]++;
}

double hist_mean_ms(const struct hist *h) {
    return h->count ? (double)h->sum_us / (double)h->count / US_PER_MS : 0.0;
}

double hist_at_ms(const struct hist *h, double share) {
    CHECK(share >= 0.0);
    CHECK(share <= 1.0);
    double wanted = share * (double)h->count;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        seen += h->slots[i];
        if (seen == 0 || (double)seen < wanted) continue;
        uint64_t end_us = slot_end_us(i);
        return (double)(end_us < h->max_us ? end_us : h->max_us) / US_PER_MS;
    }
    return 0.0;
}
