/* kernels/cuda/ops.h - ops as kernels take them, and which of them stand together: what ops.c and
 * fuse.c give to files that launch several ops at once.
 */
#ifndef KERNELS_CUDA_OPS_H
#define KERNELS_CUDA_OPS_H

#include "kernels/cuda/cuda_int.h"

/* ---- ops.c ---- */

/* The most segments that a row of the step attends to; perhaps a few more. */
uint32_t cuda_segments_needed(const struct cuda_run *x, uint32_t window);
/* Operands and ops as kernels take them. Of attention: in one part, without dst and half. */
struct cuda_mat cuda_mat_of(const struct cuda_run *x, struct operand o);
struct cuda_qkv cuda_qkv_of(const struct cuda_run *x, const struct op *first);
struct cuda_attention cuda_attention_of(const struct cuda_run *x, const struct op *op);
enum cuda_act_kind cuda_act_kind_of(enum act_kind kind);

/* ---- fuse.c ---- */

/* How many ops from `i` on are [norm q] [norm k] rope q, rope k, kv_write; 0: they are others. */
uint32_t cuda_match_qkv(const struct tape *t, uint32_t i);
/* Attention follows these `count` ops at `i`, and no op behind it reads what they leave beside the
 * cache. */
bool cuda_is_attended(const struct tape *t, uint32_t i, uint32_t count);
/* Product `i` makes gates and ups, side by side, for the act behind it, and only for it. */
bool cuda_feeds_act(const struct tape *t, uint32_t i);
/* Does an op from `i` on read the value before an op overwrites it whole? A write of only some of
 * its columns does not count. */
bool cuda_is_read_from(const struct tape *t, uint32_t i, struct operand o);

#endif
