/* kernels/cuda/ops.h - converts ops to the arguments of kernels (ops.c), and finds ops that one
 * launch can compute (fuse.c): for files that launch several ops at once.
 */
#ifndef KERNELS_CUDA_OPS_H
#define KERNELS_CUDA_OPS_H

#include "kernels/cuda/cuda_int.h"

/* ---- ops.c ---- */

/* At least as many segments as any row of the step attends to. */
uint32_t cuda_segments_needed(const struct cuda_run *x, uint32_t window);
/* Operands and ops as kernels take them. Of attention: in one part, without dst and half. */
struct cuda_mat cuda_mat_of(const struct cuda_run *x, struct operand o);
struct cuda_qkv cuda_qkv_of(const struct cuda_run *x, const struct op *first);
struct cuda_attention cuda_attention_of(const struct cuda_run *x, const struct op *op);
enum cuda_act_kind cuda_act_kind_of(enum act_kind kind);

/* ---- fuse.c ---- */

/* How many ops from `i` on are [norm q] [norm k] rope q, rope k, kv_write; 0: other ops follow. */
uint32_t cuda_match_qkv(const struct tape *t, uint32_t i);
/* Is the op after these `count` ops at `i` attention, and does no later op read their results? The
 * cache does not count. */
bool cuda_is_attended(const struct tape *t, uint32_t i, uint32_t count);
/* Does product `i` compute gates and ups, side by side, which only the act after it reads? */
bool cuda_feeds_act(const struct tape *t, uint32_t i);
/* Does an op from `i` on read the value before an op overwrites it whole? A write of only some of
 * its columns does not count. */
bool cuda_is_read_from(const struct tape *t, uint32_t i, struct operand o);

#endif
