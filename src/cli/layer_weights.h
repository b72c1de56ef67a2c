/* cli/layer_weights.h - the matrices and vectors of one layer of a model as float32, in memory.
 *
 * `model` is a model of this layer alone: its tape reads the numbers here. Layers are loaded one
 * after the other into the same memory.
 *
 * Lifetime: init, load as often as needed, deinit; the source outlives it. Thread: its owner.
 * Memory: 4 bytes for each number of a layer. The device has as much again for what it prepares.
 */
#ifndef CLI_LAYER_WEIGHTS_H
#define CLI_LAYER_WEIGHTS_H

#include "base/status.h"
#include "cli/layer_calibration.h"
#include "graph/device.h"
#include "model/model.h"

struct layer_weights {
    const struct model *source;
    struct model model; /* layers[0] is `layer` */
    struct layer layer;
    struct weight vecs[VEC_COUNT];
    float *mat_room[MAT_COUNT], *vec_room[VEC_COUNT]; /* heap; NULL: no layer had one so far */
    float *sums[VEC_COUNT]; /* heap; a vector with what the architecture adds, as ops read it */
    struct calibrated_layer shown;
};

/* No layer yet. `w` must not move. */
void layer_weights_init(struct layer_weights *w, const struct model *source);
void layer_weights_deinit(struct layer_weights *w); /* a zeroed one is fine */

/* ST_IO: the model's file was cut while it was read. */
enum status layer_weights_load(struct layer_weights *w, uint32_t layer, struct err *err);

/* The numbers of the vectors have changed, or those of `mat`: bring them to where ops read them. */
void layer_weights_update_vectors(struct layer_weights *w);
enum status layer_weights_update(const struct device *device, struct weight *mat, struct err *err);

/* What the architecture adds to the numbers of such vectors. */
float layer_weights_shift(const struct layer_weights *w, enum vec kind);

/* How `w` is shown to the caller; NULL: it is not of the layer. */
struct layer_matrix *layer_weights_matrix(struct layer_weights *w, const struct weight *mat);
struct layer_vector *layer_weights_vector(struct layer_weights *w, const struct weight *vec);

/* All matrices of the largest layer, in numbers. */
uint64_t layer_weights_elems(const struct model *source);

#endif
