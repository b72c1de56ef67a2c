/* kernels/cpu/kernels_avx512.h - what the files of the AVX-512 table share, and the AMX table
 * takes over. */
#ifndef KERNELS_CPU_KERNELS_AVX512_H
#define KERNELS_CPU_KERNELS_AVX512_H

#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/kernels_avx2.h"
#include "kernels/cpu/tiles.h"

extern mm_panel_fn *const avx512_panels[DTYPE_COUNT];

/* A panel of nibbles or codes as PACK_BYTES with f32 numbers, signed. */
void avx512_open(const struct packed *w, const uint8_t *panel, uint8_t *room);

void avx512_attend(const struct attn_segment *s, struct attn_part *out);

/* The row kernels are AVX2's: they take a hundredth of a step, most of it waiting for memory. */
#define AVX512_KERNELS                                                                             \
    .norm = avx2_norm, .quantise = avx2_quantise, .rope = avx2_rope, .act = avx2_act,              \
    .add = avx2_add, .softcap = avx2_softcap, .kv_store = avx2_kv_store, .attend = avx512_attend,  \
    .attn_join = avx2_attn_join, .attn_finish = avx2_attn_finish, .panel = avx512_panels,          \
    .panel_rows = 4

#endif
