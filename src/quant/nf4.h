/* quant/nf4.h - bitsandbytes' NF4 and the 8-bit codes of its double quantisation, with the same
 * bits as the functions that bitsandbytes 0.50 runs on a CPU.
 *
 * A block of 64 numbers has a scale, the largest of their absolute values, and codes of 4 bits that
 * stand for 16 numbers between -1 and 1 (Dettmers et al. 2023). Of the scales the mean is taken
 * away; what is left has blocks of 256 with codes of 8 bits, which stand for 256 numbers that are
 * denser near 0.
 *
 * Thread: any; there is no state.
 */
#ifndef QUANT_NF4_H
#define QUANT_NF4_H

#include <stddef.h>
#include <stdint.h>

enum { NF4_BLOCK = 64, NF4_TABLE = 16, NESTED_BLOCK = 256, NESTED_TABLE = 256 };

extern const float nf4_table[NF4_TABLE];
void nested_table(float table[NESTED_TABLE]);

/* One block of `count` finite numbers, 64 of them or an even number at the end of a matrix. The
 * first of two codes is in the high half of a byte. */
void nf4_encode(const float *x, size_t count, uint8_t *codes, float *absmax);

/* The mean of the scales, and the codes of what is left. `scales`: of each 256. */
float nested_encode(const float *absmax, size_t count, uint8_t *codes, float *scales);

#endif
