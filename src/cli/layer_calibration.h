/* cli/layer_calibration.h - runs a model over a text layer by layer, for procedures that round the
 * matrices of a layer by what they read there.
 *
 *     open
 *     for every layer, from 0 on:
 *         begin_layer     its matrices and vectors as float32, which the caller may change
 *         next_input ...  what matrices of the layer read, in the order of the forward pass: q, k
 *                         and v; o; gate and up; down
 *         end_layer       the layer's outputs, which are the inputs of the next one
 *     close
 *
 * Inputs and outputs are computed by the model's own ops, with matrices and vectors as they are at
 * the time of the call. So if the caller writes the rounded numbers back after each next_input,
 * whatever follows is calibrated with inputs that rounded matrices have made: the published order
 * of GPTQ. With `at_once` the inputs of a layer are all computed by begin_layer, as AWQ and
 * SmoothQuant have it. Matrices that are not float32 in the file are decoded first; activations are
 * not quantised.
 *
 * Lifetime: what a layer points to is valid until end_layer, moments likewise. After a failure only
 * close may follow. Thread: the main thread; the device has threads of its own. Memory: the hidden
 * states of all windows and what the next matrices read of them (at_once: of one window), one layer
 * in float32 twice, the moments of one input (at_once: of all inputs of a layer), keys and values
 * of one window. The same text gives the same numbers with any number of threads.
 */
#ifndef CLI_LAYER_CALIBRATION_H
#define CLI_LAYER_CALIBRATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "model/model.h"

struct args;
struct moments;
struct text_windows;

struct layer_matrix {
    enum mat kind;
    struct str name; /* of the tensor in the source */
    uint32_t rows, cols;
    float *w; /* [rows][cols], in the order of the source */
};

/* A norm's weights or a bias. */
struct layer_vector {
    enum vec kind;
    struct str name;
    uint32_t count;
    float *x;
};

enum { LAYER_INPUTS_MAX = 4, INPUT_MATRICES_MAX = 3 };

struct calibrated_layer {
    uint32_t index;
    struct layer_matrix matrices[MAT_COUNT];
    struct layer_vector vectors[VEC_COUNT];
    uint32_t matrix_count, vector_count;
};

struct layer_input {
    struct layer_matrix *matrices[INPUT_MATRICES_MAX]; /* all have as many columns */
    uint32_t count;
    const struct moments *moments;
    bool can_scale;    /* what makes the input is linear: a norm, the rows of v, the rows of up */
    bool is_from_norm; /* a norm makes it */
};

struct layer_calibration_options {
    bool at_once;
};

struct layer_calibration; /* opaque */

/* `path`: of the model; `text` is read during the call. The flags are flags_chunk and flags_engine;
 * the device is the CPU. Says on standard error what it needs before it begins. ST_BAD: the model
 * is one that cannot be calibrated by layers (an encoder, a draft head, or one with experts). */
enum status layer_calibration_open(const struct args *args, const char *path,
                                   const struct text_windows *text,
                                   const struct layer_calibration_options *options,
                                   struct layer_calibration **out, struct err *err);
void layer_calibration_close(struct layer_calibration *c); /* NULL is fine */

uint32_t layer_calibration_layers(const struct layer_calibration *c);
uint32_t layer_calibration_tokens(const struct layer_calibration *c); /* that are used */
const struct model *layer_calibration_model(const struct layer_calibration *c);

/* The next layer, which the caller may change. */
enum status layer_calibration_begin_layer(struct layer_calibration *c,
                                          struct calibrated_layer **layer, struct err *err);

/* *input is NULL after the last one of the layer. Its moments are valid until the next call, with
 * at_once until end_layer. */
enum status layer_calibration_next_input(struct layer_calibration *c,
                                         const struct layer_input **input, struct err *err);

/* Multiplies the columns of the input's matrices with `scales` and divides them out of what makes
 * the input, so that the layer computes the same as before. The input can_scale; its moments stay
 * those of the input before. */
void layer_input_scale(struct layer_calibration *c, const struct layer_input *input,
                       const float *scales);

enum status layer_calibration_end_layer(struct layer_calibration *c, struct err *err);

#endif
