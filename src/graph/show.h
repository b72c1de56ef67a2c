/* graph/show.h - how an op is put into words, for the table and for the drawing. */
#ifndef GRAPH_SHOW_H
#define GRAPH_SHOW_H

#include <stdint.h>

struct buf;
struct op;

/* The weights and numbers of an op, each with a blank before it. */
void op_put_detail(const struct op *op, struct buf *out);

/* 1234567 as "1.23M". */
void count_put_short(uint64_t count, struct buf *out);

#endif
