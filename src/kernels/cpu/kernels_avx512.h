/* kernels/cpu/kernels_avx512.h - what the files of the AVX-512 table share, and the AMX table
 * takes over. */
#ifndef KERNELS_CPU_KERNELS_AVX512_H
#define KERNELS_CPU_KERNELS_AVX512_H

#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/kernels_avx2.h"
#include "kernels/cpu/tiles.h"

extern mm_panel_fn *const avx512_panels[DTYPE_COUNT];
extern const struct mm_pairs avx512_pairs;

/* A panel of nibbles or codes as PACK_BYTES with f32 numbers, signed. */
void avx512_open(const struct packed *w, const uint8_t *panel, uint8_t *room);

void avx512_norm(const struct norm_args *n, const float *x, float *y);
void avx512_quantise(const float *x, uint32_t count, struct q8_out out);
void avx512_rope(const struct op_rope *r, const float *cosine, const float *sine, float *head);
void avx512_act(enum act_kind kind, const float *gate, const float *up, uint32_t count, float *y);
void avx512_softcap(float cap, uint32_t count, float *x);
void avx512_kv_hadamard(float *x, uint32_t head_dim);
float avx512_kv_smooth(const float *q, const float *scale, const float *mean, uint32_t head_dim,
                       float *out);
void avx512_kv_query(float *q, uint32_t head_dim, struct int4_query out);
void avx512_kv_store_int4(float *x, float *room, const float *feedback, uint32_t head_dim,
                          bool is_value, uint8_t *tile, uint32_t token);
void avx512_kv_store(enum kv_type type, const float *k, const float *v, uint32_t head_dim,
                     uint8_t *k_tile, uint8_t *v_tile, uint32_t token);
void avx512_attend(const struct attn_segment *s, struct attn_part *out);

/* What is AVX2's waits for memory or for its stores in either width. */
#define AVX512_KERNELS                                                                             \
    .norm = avx512_norm, .quantise = avx512_quantise, .rope = avx512_rope, .act = avx512_act,      \
    .add = avx2_add, .softcap = avx512_softcap, .kv_hadamard = avx512_kv_hadamard,                 \
    .kv_smooth = avx512_kv_smooth, .kv_query = avx512_kv_query,                                    \
    .kv_store_int4 = avx512_kv_store_int4, .kv_store = avx512_kv_store, .attend = avx512_attend,   \
    .attn_merge = avx2_attn_merge, .attn_finish = avx2_attn_finish, .panel = avx512_panels,        \
    .pairs = &avx512_pairs

#endif
