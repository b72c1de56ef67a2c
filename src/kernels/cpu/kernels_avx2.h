/* kernels/cpu/kernels_avx2.h - what the files of the AVX2 table share, and the AVX-512 table
 * takes over. */
#ifndef KERNELS_CPU_KERNELS_AVX2_H
#define KERNELS_CPU_KERNELS_AVX2_H

#include "kernels/cpu/cpu_int.h"

extern mm_panel_fn *const avx2_panels[DTYPE_COUNT];
extern const struct mm_pairs avx2_pairs;
extern const struct mm_opener avx2_opener;

void avx2_norm(const struct norm_args *n, const float *x, float *y);
void avx2_quantise(const float *x, uint32_t count, struct q8_out out);
void avx2_rope(const struct op_rope *r, const float *cosine, const float *sine, float *head);
void avx2_act(enum act_kind kind, const float *gate, const float *up, uint32_t count, float *y);
void avx2_add(const float *src, uint32_t count, float *dst);
void avx2_softcap(float cap, uint32_t count, float *x);
void avx2_kv_hadamard(float *x, uint32_t head_dim);
float avx2_kv_smooth(const float *q, const float *scale, const float *mean, uint32_t head_dim,
                     float *out);
void avx2_kv_query(float *q, uint32_t head_dim, struct int4_query out);
void avx2_kv_store_int4(float *x, float *room, const float *feedback, uint32_t head_dim,
                        bool is_value, uint8_t *tile, uint32_t token);
void avx2_kv_store(enum kv_type type, const float *k, const float *v, uint32_t head_dim,
                   uint8_t *k_tile, uint8_t *v_tile, uint32_t token);

void avx2_attend(const struct attn_segment *s, struct attn_part *out);
void avx2_attn_merge(struct attn_part *into, const struct attn_part *part, uint32_t head_dim);
void avx2_attn_finish(struct attn_part *part, uint32_t head_dim);

#endif
