/* kernels/cpu/kernels_ref.h - reference kernels that the portable table uses as they are:
 * plain loops over independent elements, which a compiler makes as fast as they get. */
#ifndef KERNELS_CPU_KERNELS_REF_H
#define KERNELS_CPU_KERNELS_REF_H

#include "kernels/cpu/cpu_int.h"

void ref_quantise(const float *x, uint32_t count, struct q8_out out);
void ref_rope(const struct op_rope *r, const float *cosine, const float *sine, float *head);
void ref_act(enum act_kind kind, const float *gate, const float *up, uint32_t count, float *y);
void ref_add(const float *src, uint32_t count, float *dst);
void ref_softcap(float cap, uint32_t count, float *x);
void ref_kv_hadamard(float *x, uint32_t head_dim);
float ref_kv_smooth(const float *q, const float *scale, const float *mean, uint32_t head_dim,
                    float *out);
void ref_kv_query(float *q, uint32_t head_dim, struct int4_query out);
void ref_kv_store_int4(float *x, float *t, const float *feedback, uint32_t head_dim, bool is_value,
                       uint8_t *tile, uint32_t token);
void ref_kv_store(enum kv_type type, const float *k, const float *v, uint32_t head_dim,
                  uint8_t *k_tile, uint8_t *v_tile, uint32_t token);

#endif
