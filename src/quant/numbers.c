/* quant/numbers.c - see quant/numbers.h for the contract. */
#include "quant/numbers.h"

#include "base/check.h"
#include "base/mem.h"
#include "format/model_file.h"
#include "format/tensor_read.h"
#include "quant/quant.h"

enum { PIECE_ELEMS = 1 << 14 }; /* a multiple of every block */

enum status numbers_say_bad(const struct bad_number *bad, struct err *err) {
    uint64_t width = bad->width ? bad->width : 1;
    double most = bad->type == DTYPE_BF16 || bad->type == DTYPE_F32 ? 3.39e38 : (double)F16_MAX;
    return err_set(err, ST_BAD,
                   "%s: tensor %.*s: row %llu, column %llu is %g, expected a finite number up to "
                   "%g, which is the most that %s holds",
                   bad->path, STR_ARG(bad->tensor), (unsigned long long)(bad->at / width),
                   (unsigned long long)(bad->at % width), (double)bad->value, most,
                   dtype_info(bad->type)->name);
}

static enum status check_pieces(const struct model_file *f, const struct tensor_info *t,
                                enum dtype type, float *x, struct err *err) {
    uint64_t all = tensor_elems(t);
    for (uint64_t at = 0; at < all; at += PIECE_ELEMS) {
        size_t elems = all - at < PIECE_ELEMS ? (size_t)(all - at) : PIECE_ELEMS, first;
        tensor_read_f32(t, at, elems, x);
        if (quant_can_hold(type, x, elems, &first)) continue;
        const struct bad_number bad = {.path = model_file_path(f),
                                       .tensor = t->name,
                                       .width = t->dim_count ? t->dims[t->dim_count - 1] : 1,
                                       .at = at + first,
                                       .value = x[first],
                                       .type = type};
        return numbers_say_bad(&bad, err);
    }
    return ST_OK;
}

enum status numbers_check(const struct model_file *f, const struct tensor_info *t, enum dtype type,
                          struct err *err) {
    float *x = mem_alloc_array(PIECE_ELEMS, sizeof(x[0]));
    if (!x) return err_set(err, ST_NOMEM, "out of memory for a piece of a tensor");
    enum status st = check_pieces(f, t, type, x, err);
    mem_free(x);
    tensor_release(f, t);
    enum status whole = model_file_check(f, true, err); /* what was cut reads as zeros */
    return whole != ST_OK ? whole : st;
}
