/* format/quant.h - matrices of a folder that another tool quantised; no other folder includes it.
 *
 * Such a folder keeps a matrix as several tensors: codes packed into integers, scales, zero points.
 * quant_apply puts them together: for each matrix it adds one tensor, NAME.weight, whose rows a
 * row_source makes (tensor/row_source.h), and forgets the parts. What is read, and how it is
 * rewritten, is in docs/decisions/0020.
 *
 *     gptq                NAME.qweight, .qzeros, .scales, .g_idx          quant_gptq.c
 *     awq                 NAME.qweight, .qzeros, .scales                  quant_gptq.c
 *     compressed-tensors  NAME.weight_packed, .weight_scale, ...          quant_ct.c
 *     bitsandbytes        NAME.weight, .weight.absmax, ..., or .SCB       quant_bnb.c
 *     fp8, fbgemm_fp8,    NAME.weight of e4m3, .weight_scale or           quant_fp8.c
 *     modelopt            .weight_scale_inv
 *
 * Everything is checked before a row is made of it: reading a row cannot fail.
 */
#ifndef FORMAT_QUANT_H
#define FORMAT_QUANT_H

#include "base/json.h"
#include "format/format_int.h"
#include "format/limits.h"
#include "tensor/row_source.h"

/* One folder while its matrices are put together. */
struct quant {
    struct model_file *f;
    const struct json *config; /* quantization_config */
    struct err *err;
};

/* A folder whose config.json, `config`, may be NULL. What is wrong with a quantised folder does not
 * stop the opening: model_file_problem says it. ST_NOMEM does. */
enum status quant_apply(struct model_file *f, const struct json *config, struct err *err);

/* The methods: every matrix in the folder that has its tensors. */
enum status quant_gptq(struct quant *q);
enum status quant_awq(struct quant *q);
enum status quant_ct(struct quant *q);
enum status quant_bnb(struct quant *q);
enum status quant_fp8(struct quant *q);
enum status quant_fbgemm(struct quant *q);
enum status quant_modelopt(struct quant *q);

/* ---- what the methods share ---- */

/* If `name` ends in `suffix`, what is before it. */
bool quant_stem(struct str name, const char *suffix, struct str *stem);

/* Tensor STEM + suffix; NULL: there is none. A float tensor becomes a part, which is forgotten. */
const struct raw_tensor *quant_raw(const struct quant *q, struct str stem, const char *suffix);
const struct tensor_info *quant_part(const struct quant *q, struct str stem, const char *suffix);

/* Add STEM.weight. `t` lacks its name. */
enum status quant_add(struct quant *q, struct str stem, struct tensor_info t);

/* Sentences. The first: STEM + suffix is missing, and what needs it. */
enum status quant_say_missing(const struct quant *q, struct str stem, const char *suffix,
                              const char *needed_by);
enum status quant_say(const struct quant *q, const char *what, ...)
    __attribute__((format(printf, 2, 3)));
enum status quant_no_memory(const struct quant *q);

/* ST_BAD unless the tensor has this format and shape; `why`: what the shape follows from. */
enum status quant_check_raw(const struct quant *q, const struct raw_tensor *t, const char *format,
                            uint64_t rows, uint64_t cols, const char *why);
enum status quant_check_part(const struct quant *q, const struct tensor_info *t, uint64_t rows,
                             uint64_t cols, const char *why);

/* A number of the config: false if it is absent, null or no whole number. */
bool quant_int(const struct quant *q, const char *path, int64_t *out);

/* ---- rows of whole numbers with scales and zero points ---- */

enum int_layout {
    INT_DOWN,  /* words along the inputs, [K / codes of a word][N]: GPTQ */
    INT_AWQ,   /* words along the outputs, [K][N / 8], in AWQ's order */
    INT_ALONG, /* words along the inputs, [N][K / codes of a word]: compressed-tensors */
};

/* Element (n, k) is scale * (code - zero), of the group that input k is in. */
struct int_rows {
    struct row_source base;
    enum int_layout layout;
    enum dtype type, scale_type;
    uint32_t bits, rows, cols;
    uint32_t group_cols, groups;
    const uint8_t *codes, *scales;
    const uint8_t *zeros;        /* NULL: all are `zero` */
    uint32_t zero, zero_add;     /* zero_add: what a stored zero point is less than the real one */
    const uint32_t *order;       /* NULL, or the inputs in the order of their groups */
    const uint32_t *block_group; /* with an order: the group of each 32 of them */
};

/* Check a matrix, choose its type and add it. `r` is in the arena; its base is filled here. */
enum status int_rows_add(struct quant *q, struct str stem, struct int_rows *r,
                         const struct raw_tensor *g_idx);

/* ---- rows of int8 ---- */

/* Element (n, k) is scale * unit * code. */
struct byte_rows {
    struct row_source base;
    enum dtype scale_type;
    float unit;
    uint32_t rows, cols;
    uint32_t group_cols, groups; /* group_cols 0: a scale for each row */
    uint64_t scale_count;        /* 1: one for all */
    const uint8_t *codes, *scales;
};

/* Check a matrix and add it. `r`, in the arena, has its scales and parts[1]. */
enum status byte_rows_add(struct quant *q, struct str stem, struct byte_rows *r,
                          const struct raw_tensor *codes, struct str scales);

/* ---- rows of e4m3 ---- */

/* What one scale is for. */
enum f8_scope { F8_MATRIX, F8_ROW, F8_BLOCK };

struct f8_layout {
    const char *suffix;       /* of the scales' name */
    const char *other_suffix; /* NULL, or another name that they may have */
    enum f8_scope scope;
    uint32_t block_rows, block_cols; /* F8_BLOCK */
};

bool is_e4m3(const struct raw_tensor *t);

/* Scales for blocks of `size`, the list [rows, columns] of the config's `key`. */
enum status f8_read_block(const struct quant *q, const char *key, const struct json *size,
                          struct f8_layout *out);

/* Check a matrix and add it. */
enum status f8_rows_add(struct quant *q, struct str stem, const struct f8_layout *layout,
                        const struct raw_tensor *codes);

#endif
