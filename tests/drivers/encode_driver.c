/* Goal:   encode numbers in a type from a script, without a model around them.
 * Method: encode_driver TYPE [WIDTH] < NUMBERS > BYTES; the numbers are float32. With WIDTH the
 *         first WIDTH numbers are the importance of the columns of the rows that follow. The
 *         seconds that encoding took, on one thread, are printed to standard error. */
#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "quant/quant.h"

static enum status encode(enum dtype type, struct str in, uint64_t width, struct buf *out) {
    const float *importance = width ? (const float *)(const void *)in.ptr : NULL;
    const float *x = (const float *)(const void *)in.ptr + width;
    size_t elems = in.len / sizeof(x[0]) - (size_t)width, bytes, row_bytes;
    size_t step = width ? (size_t)width : elems;
    if (!dtype_bytes(type, elems, &bytes) || !dtype_bytes(type, step, &row_bytes)) return ST_BAD;
    uint8_t *to = mem_alloc(bytes);
    if (!to) return ST_NOMEM;
    int64_t began_us = clock_now(&clock_real);
    for (size_t at = 0; at < elems; at += step)
        quant_encode(type, x + at, importance, step, to + at / step * row_bytes);
    fprintf(stderr, "%.6f\n", (double)(clock_now(&clock_real) - began_us) / 1e6);
    buf_put(out, to, bytes);
    mem_free(to);
    return buf_status(out);
}

int main(int argc, char **argv) {
    enum dtype type;
    uint64_t width = 0;
    struct err err = {0};
    struct buf in, out;
    buf_init(&in, (size_t)1 << 31);
    buf_init(&out, (size_t)1 << 31);
    bool ok = (argc == 2 || (argc == 3 && str_to_u64(str_of(argv[2]), &width))) &&
              dtype_find(str_of(argv[1]), &type) && quant_has_encoder(type) &&
              file_read("-", &in, &err) == ST_OK && width * sizeof(float) <= in.len &&
              encode(type, buf_str(&in), width, &out) == ST_OK;
    if (ok) ok = fwrite(out.ptr, 1, out.len, stdout) == out.len;
    if (!ok) fprintf(stderr, "encode_driver: %s\n", err.text);
    buf_deinit(&in);
    buf_deinit(&out);
    return ok ? 0 : 1;
}
