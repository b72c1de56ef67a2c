/* quant/numbers.h - checks that a type can hold all numbers of a tensor; if not, the error names
 * the first number that it cannot hold.
 *
 * Thread: any. Memory: 64 KiB during a call.
 */
#ifndef QUANT_NUMBERS_H
#define QUANT_NUMBERS_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/dtype.h"

struct model_file;
struct tensor_info;

/* Reads all of the tensor, and gives its pages back. ST_BAD: a number is not finite, or too large
 * for the type (quant_can_hold); `err` names the first one. ST_IO: the file was cut meanwhile. */
enum status numbers_check(const struct model_file *f, const struct tensor_info *t, enum dtype type,
                          struct err *err);

/* A number that a type cannot hold. */
struct bad_number {
    const char *path; /* of the model */
    struct str tensor;
    uint64_t width, at; /* elements of a row; which element of the tensor it is */
    float value;
    enum dtype type;
};
enum status numbers_say_bad(const struct bad_number *bad, struct err *err); /* ST_BAD */

#endif
