/* graph/weight.h - a tensor of a model, as the tape names it.
 *
 * `data` is what the file holds, row by row, or `source` makes rows of what it holds; `prepared` is
 * what a device made of it (another layout, another memory) and belongs to that device.
 */
#ifndef GRAPH_WEIGHT_H
#define GRAPH_WEIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "tensor/dtype.h"
#include "tensor/row_source.h"

/* What ops do with it, so that a device prepares it for that. */
enum weight_use {
    WEIGHT_MATRIX, /* products; rows of it may be looked up, too */
    WEIGHT_TABLE,  /* only rows are looked up: embeddings */
    WEIGHT_VECTOR, /* one row of float32: norm weights, biases, rope frequencies */
};

struct weight {
    struct str name; /* borrowed from the model file */
    enum weight_use use;
    enum dtype type;
    uint32_t rows, cols;            /* N outputs, K inputs */
    uint32_t experts;               /* 1, or how many such matrices lie one after the other */
    const void *data;               /* borrowed from the model file; NULL: the model has none */
    size_t bytes;                   /* of all experts together */
    const void *const *expert_data; /* NULL: the experts lie one after the other in data; else
                                       where each one lies; model memory */
    const struct row_source
        *source;          /* NULL: the rows lie in data. Else data is the source, too, and
                                        expert_data lists sources */
    struct weight *order; /* NULL, or a vector: column i is multiplied by column order[i]
                                        of the input */
    bool keeps_type;      /* a device does not make it less exact: embeddings, the head, routers */
    void *prepared;       /* the device's; NULL until it is prepared, or if it needs nothing */
};

/* The file's bytes of one expert's matrix; expert 0 is the whole of an ordinary weight. */
static inline const uint8_t *weight_data(const struct weight *w, uint32_t expert) {
    if (w->expert_data) return w->expert_data[expert];
    return (const uint8_t *)w->data + (w->bytes / w->experts) * expert;
}

/* Of a weight with a source: that of one expert's matrix. */
static inline const struct row_source *weight_source(const struct weight *w, uint32_t expert) {
    return w->expert_data ? w->expert_data[expert] : w->source;
}

/* A vector of `count` floats, which it borrows. */
static inline struct weight weight_vector(struct str name, const float *floats, uint32_t count) {
    return (struct weight){.name = name,
                           .use = WEIGHT_VECTOR,
                           .type = DTYPE_F32,
                           .rows = 1,
                           .cols = count,
                           .experts = 1,
                           .data = floats,
                           .bytes = count * sizeof(float)};
}

#endif
