/* kernels/cuda/weights.c - weights on the card.
 *
 * bf16 and f16 stay what they are, in rows of a multiple of 64 columns. f32 becomes bf16 where that
 * loses nothing, and stays f32 otherwise. Quantised weights become codes with float scales and
 * minima (kernels/cuda/layout.h): half a byte for each weight where a format has 16 numbers, else a
 * byte; and 4 or 8 for each group of 16 or 32.
 *
 * With fp8 weights, matrices of 16 bits go to the card as they are, into memory that serves them
 * one after the other, and become e4m3 there; not so experts, and what keeps its type. Matrices
 * that the file has in fp8 with a scale for each row go there as they are stored, with the same
 * exceptions; all others of the file's fp8 become bf16.
 *
 * The parts of one product (queries, keys and values; gate and up) are put behind each other when a
 * program is made.
 *
 * Entry points: cuda_weight_create, cuda_weights_join, cuda_weights_destroy.
 */
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/cuda_int.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/upload.h"

enum {
    PIECE_BYTES = 8 << 20,
    F8_BLOCK_ELEMS = 32,
    F8_BLOCK_BYTES = 36,
    BLOCK_ELEMS_MAX = 256,
    GROUPS_MAX = 16,
    PLACES = 16
};
/* Columns of fp8 weights: filled up to a multiple of FP8_COLS, and as many as product_fp8.cu has
 * room for. */
enum { FP8_COLS = 128, FP8_WIDTH_MAX = 16384 };
enum { CODES_PIECE_BYTES = 1 << 20 }; /* of codes, which are unpacked at once */

static uint32_t round_up(uint32_t n, uint32_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

/* ---- what a weight becomes ---- */

static bool is_bf16_exact(const struct weight *w) {
    for (uint32_t e = 0; e < w->experts; e++) {
        const uint8_t *data = weight_data(w, e);
        for (size_t i = 0; i < (size_t)w->rows * w->cols; i++)
            if (data[4 * i] | data[4 * i + 1]) return false;
    }
    return true;
}

static enum cuda_form form_of(const struct weight *w) {
    if (dtype_has_integers(w->type)) return CUDA_CODES;
    if (w->type == DTYPE_BF16 || w->type == DTYPE_F8) return CUDA_BF16;
    if (w->type == DTYPE_F16) return CUDA_F16;
    return w->use == WEIGHT_VECTOR || !is_bf16_exact(w) ? CUDA_F32 : CUDA_BF16;
}

/* By the numbers that a format has: 0 to 15, -8 to 7, any 16, or more. */
static enum cuda_code code_of(const struct cuda_device *dev, enum dtype type) {
    if (dev->switches.byte_codes) return CUDA_CODE_8;
    if (type == DTYPE_Q4_K || type == DTYPE_Q4_1 || type == DTYPE_INT4) return CUDA_CODE_4;
    if (type == DTYPE_Q4_0) return CUDA_CODE_4_SIGNED;
    bool has_table =
        type == DTYPE_IQ4_NL || type == DTYPE_IQ4_XS || type == DTYPE_NF4 || type == DTYPE_FP4;
    return has_table ? CUDA_CODE_4_PLACE : CUDA_CODE_8;
}

/* The file's own codes and scales serve as they are. */
static bool is_stored_fp8(const struct cuda_device *dev, const struct weight *w) {
    return w->type == DTYPE_F8 && w->source && w->source->has_row_scales &&
           dev->switches.stored_fp8 && dev->fp8.is_there;
}

static bool becomes_fp8(const struct cuda_device *dev, const struct weight *w,
                        enum cuda_form form) {
    if (!dev->fp8.is_wanted && !is_stored_fp8(dev, w)) return false;
    if (w->use != WEIGHT_MATRIX || w->keeps_type) return false;
    return (form == CUDA_BF16 || form == CUDA_F16) && w->experts == 1 && w->cols <= FP8_WIDTH_MAX;
}

static void describe_fp8(struct cuda_matrix *m, bool is_stored, size_t *bytes) {
    m->form = CUDA_FP8;
    m->free_scales = is_stored;
    m->row_elems = round_up(m->cols, FP8_COLS);
    m->expert_elems = (size_t)m->rows * m->row_elems;
    *bytes = m->expert_elems + m->rows * sizeof(float);
}

/* Bytes of the codes of one row. */
static size_t codes_bytes(const struct cuda_matrix *m) {
    return (size_t)m->cols * cuda_code_bits(m->code) / 8;
}

/* A matrix without its memory, and how many bytes that has. */
static struct cuda_matrix describe(const struct cuda_device *dev, const struct weight *w,
                                   size_t *bytes) {
    struct cuda_matrix m = {.form = form_of(w), .rows = w->rows, .cols = w->cols};
    if (m.form == CUDA_CODES) {
        size_t rows = round_up(w->rows, CUDA_TILE_ROWS);
        m.group = dtype_info(w->type)->group_elems;
        m.code = code_of(dev, w->type);
        if (m.code == CUDA_CODE_4_PLACE) memcpy(m.table, dtype_code_values(w->type), PLACES);
        m.expert_elems = rows * codes_bytes(&m);
        m.expert_scales = rows * (w->cols / m.group);
        size_t floats = m.expert_scales * (dtype_info(w->type)->has_min ? 2 : 1);
        *bytes = w->experts * (m.expert_elems + floats * sizeof(float));
        return m;
    }
    m.row_elems = m.form == CUDA_F32 ? w->cols : round_up(w->cols, CUDA_MMA_COLS);
    m.expert_elems = (size_t)w->rows * m.row_elems;
    *bytes = w->experts * m.expert_elems * (m.form == CUDA_F32 ? sizeof(float) : sizeof(uint16_t));
    return m;
}

/* ---- plain weights ---- */

/* From here on it pays to copy by several threads. */
enum { LARGE_BYTES = 16 << 20 };

/* NULL: less than `least` bytes, or there are no threads for it. */
static struct cuda_upload *upload_for(struct cuda_device *dev, size_t bytes, size_t least) {
    if (!dev->switches.upload || bytes < least) return NULL;
    if (!dev->upload) dev->upload = cuda_upload_create(dev->card);
    return dev->upload;
}

/* As the file has them, but for the columns that are filled up. */
static bool copy_plain(struct cuda_device *dev, const struct weight *w, const struct cuda_matrix *m,
                       uint8_t *to) {
    size_t width = m->form == CUDA_F32 ? sizeof(float) : sizeof(uint16_t);
    size_t bytes = m->expert_elems * width;
    struct cuda_upload *upload =
        m->row_elems == w->cols ? upload_for(dev, bytes, LARGE_BYTES) : NULL;
    for (uint32_t e = 0; e < w->experts; e++) {
        if (upload && !cuda_upload_copy(upload, to + e * bytes, weight_data(w, e), bytes))
            return false;
        if (upload) continue;
        cudaError_t rc =
            cudaMemcpy2D(to + e * m->expert_elems * width, m->row_elems * width, weight_data(w, e),
                         w->cols * width, w->cols * width, w->rows, cudaMemcpyHostToDevice);
        if (rc != cudaSuccess) return false;
    }
    return true;
}

/* f32 whose lower halves are zero: the upper halves are the bf16. */
static bool copy_halved(const struct weight *w, const struct cuda_matrix *m, uint8_t *to,
                        void *piece) {
    uint32_t at_once = PIECE_BYTES / (m->row_elems * (uint32_t)sizeof(uint16_t));
    uint16_t *out = piece;
    memset(piece, 0, PIECE_BYTES);
    if (at_once == 0) return false; /* a row of millions of columns */
    for (uint32_t i = 0, count; i < w->rows * w->experts; i += count) {
        uint32_t expert = i / w->rows, row = i % w->rows;
        count = w->rows - row < at_once ? w->rows - row : at_once;
        const uint8_t *from = weight_data(w, expert) + (size_t)row * w->cols * sizeof(float);
        for (uint32_t r = 0; r < count; r++)
            for (uint32_t k = 0; k < w->cols; k++)
                memcpy(&out[(size_t)r * m->row_elems + k],
                       from + ((size_t)r * w->cols + k) * sizeof(float) + 2, sizeof(uint16_t));
        size_t at = (expert * m->expert_elems + (size_t)row * m->row_elems) * sizeof(uint16_t);
        size_t bytes = (size_t)count * m->row_elems * sizeof(uint16_t);
        if (cudaMemcpy(to + at, piece, bytes, cudaMemcpyHostToDevice) != cudaSuccess) return false;
    }
    return true;
}

/* ---- weights that the file has in fp8 ---- */

/* Such a weight on its way to the card, perhaps by several threads. */
struct f8_job {
    const struct weight *w;
    const struct cuda_matrix *m; /* bf16, or fp8: `scale` is where its scales go */
    uint8_t *to;
    float *scale;
    uint32_t rows_at_once; /* in a piece */
    atomic_uint next;      /* the first piece that no thread has taken */
};

/* What a thread needs for it. */
struct f8_room {
    uint8_t *blocks; /* of a row */
    float *floats;   /* of a row, or the scales of a piece */
    uint8_t *rows;   /* of a piece; zeros behind the columns */
};

static void f8_room_deinit(struct f8_room *r) {
    mem_free(r->blocks);
    mem_free(r->floats);
    mem_free(r->rows);
}

static size_t width_of(const struct cuda_matrix *m) {
    return m->form == CUDA_FP8 ? 1 : sizeof(uint16_t);
}

static bool f8_room_init(const struct f8_job *job, struct f8_room *r) {
    uint32_t cols = job->w->cols, floats = cols > job->rows_at_once ? cols : job->rows_at_once;
    r->blocks = mem_alloc_array(cols / F8_BLOCK_ELEMS, F8_BLOCK_BYTES);
    r->floats = mem_alloc_array(floats, sizeof(float));
    r->rows = mem_zalloc_array(job->rows_at_once, job->m->row_elems * width_of(job->m));
    return r->blocks && r->floats && r->rows;
}

/* The blocks of a row: in the file, or in room->blocks. */
static const uint8_t *f8_row(const struct weight *w, uint32_t expert, uint32_t row,
                             const struct f8_room *room) {
    uint32_t blocks = w->cols / F8_BLOCK_ELEMS;
    const struct row_piece piece = {row, 1, 0, blocks};
    if (!w->source) return weight_data(w, expert) + (size_t)row * blocks * F8_BLOCK_BYTES;
    const struct row_source *source = weight_source(w, expert);
    source->read(source, &piece, room->blocks);
    return room->blocks;
}

static void f8_put_bf16(const struct weight *w, const uint8_t *blocks, const struct f8_room *room,
                        uint16_t *out) {
    dtype_dequant(DTYPE_F8, blocks, w->cols, room->floats);
    for (uint32_t k = 0; k < w->cols; k++) out[k] = bf16_from_f32(room->floats[k]);
}

/* Codes alone; a row has one scale. */
static float f8_put_codes(const struct weight *w, const uint8_t *blocks, uint8_t *out) {
    float scale;
    memcpy(&scale, blocks, sizeof(scale));
    for (uint32_t k = 0; k < w->cols; k += F8_BLOCK_ELEMS, blocks += F8_BLOCK_BYTES)
        memcpy(out + k, blocks + sizeof(float), F8_BLOCK_ELEMS);
    return scale;
}

static bool send_f8_rows(const struct f8_job *job, uint32_t expert, uint32_t first, uint32_t count,
                         const struct f8_room *room) {
    const struct cuda_matrix *m = job->m;
    size_t row_bytes = m->row_elems * width_of(m), at = expert * m->expert_elems * width_of(m);
    for (uint32_t r = 0; r < count; r++) {
        const uint8_t *blocks = f8_row(job->w, expert, first + r, room);
        uint8_t *out = room->rows + r * row_bytes;
        if (m->form == CUDA_FP8)
            room->floats[r] = f8_put_codes(job->w, blocks, out);
        else
            f8_put_bf16(job->w, blocks, room, (uint16_t *)(void *)out);
    }
    if (cudaMemcpy(job->to + at + first * row_bytes, room->rows, count * row_bytes,
                   cudaMemcpyHostToDevice) != cudaSuccess)
        return false;
    return m->form != CUDA_FP8 ||
           cudaMemcpy(job->scale + first, room->floats, count * sizeof(float),
                      cudaMemcpyHostToDevice) == cudaSuccess;
}

/* Makes and copies pieces until none are left. A piece lies within one expert. */
static bool send_f8(void *ctx) {
    struct f8_job *job = ctx;
    uint32_t rows = job->w->rows, pieces = (rows + job->rows_at_once - 1) / job->rows_at_once;
    struct f8_room room = {NULL, NULL, NULL};
    bool is_fine = f8_room_init(job, &room);
    while (is_fine) {
        uint32_t n = atomic_fetch_add(&job->next, 1);
        if (n >= pieces * job->w->experts) break;
        uint32_t first = n % pieces * job->rows_at_once, left = rows - first;
        uint32_t count = left < job->rows_at_once ? left : job->rows_at_once;
        is_fine = send_f8_rows(job, n / pieces, first, count, &room);
    }
    f8_room_deinit(&room);
    return is_fine;
}

/* `scale`: where the scales of m, in fp8, go; NULL of bf16. */
static bool copy_f8(struct cuda_device *dev, const struct weight *w, const struct cuda_matrix *m,
                    uint8_t *to, float *scale) {
    size_t row_bytes = m->row_elems * width_of(m);
    struct f8_job job = {.w = w,
                         .m = m,
                         .to = to,
                         .scale = scale,
                         .rows_at_once = (uint32_t)(CODES_PIECE_BYTES / row_bytes) + 1};
    struct cuda_upload *upload =
        upload_for(dev, w->experts * m->expert_elems * width_of(m), CODES_PIECE_BYTES * 2);
    return upload ? cuda_upload_run(upload, send_f8, &job) : send_f8(&job);
}

static bool copy_numbers(struct cuda_device *dev, const struct weight *w,
                         const struct cuda_matrix *m, uint8_t *to) {
    if (w->type == DTYPE_F8) return copy_f8(dev, w, m, to, NULL);
    if (w->type != DTYPE_F32 || m->form == CUDA_F32) return copy_plain(dev, w, m, to);
    void *piece = mem_alloc(PIECE_BYTES);
    bool is_done = piece && copy_halved(w, m, to, piece);
    mem_free(piece);
    return is_done;
}

/* ---- quantised weights ---- */

/* Codes, scales and minima of tiles of rows, on the host. */
struct codes_piece {
    int8_t *codes;
    float *scale, *min;
    uint32_t tiles;      /* that there is room for */
    uint8_t places[256]; /* of find_places */
};

/* 32 numbers, 0 to 15 or -8 to 7, as 16 bytes. */
static void pack_codes4(const int8_t q[32], int8_t *to) {
    for (uint32_t i = 0; i < CUDA_CODE_RUN; i++)
        to[i] = (int8_t)((q[i] & 15) | q[i + CUDA_CODE_RUN] << 4);
}

/* The same of numbers in a table; `places` are where each of them is, as a byte. */
static void pack_places(const int8_t q[32], const uint8_t places[256], int8_t *to) {
    for (uint32_t i = 0; i < CUDA_CODE_RUN; i++) {
        uint32_t word = i / 4, half = i % 4 / 2, k = half * CUDA_CODE_RUN + word * 4 + i % 2 * 2;
        to[i] = (int8_t)(places[(uint8_t)q[k]] | places[(uint8_t)q[k + 1]] << 4);
    }
}

/* Where each number of a matrix's table is. */
static void find_places(const struct cuda_matrix *m, uint8_t places[256]) {
    const uint8_t *numbers = (const uint8_t *)m->table;
    memset(places, 0, 256);
    for (uint32_t i = 0; i < PLACES; i++) places[numbers[i]] = (uint8_t)i;
}

/* A block's numbers, those of columns [k, k + count) of a row. */
static void pack_block(const struct cuda_matrix *m, const int8_t *q, uint32_t count, uint32_t row,
                       uint32_t k, struct codes_piece *p) {
    for (uint32_t i = 0; m->code == CUDA_CODE_8 && i < count; i += CUDA_CODE_RUN)
        memcpy(p->codes + cuda_code_index(row, k + i, m->cols), q + i, CUDA_CODE_RUN);
    for (uint32_t i = 0; m->code != CUDA_CODE_8 && i < count; i += 32) {
        int8_t *to = p->codes + cuda_code4_index(m->code, row, k + i, m->cols);
        if (m->code == CUDA_CODE_4_PLACE)
            pack_places(q + i, p->places, to);
        else
            pack_codes4(q + i, to);
    }
}

/* Columns [k, end) of a row, whose blocks lie at `from`. */
static void unpack_row(const struct weight *w, const struct cuda_matrix *m, const uint8_t *from,
                       uint32_t k, uint32_t end, uint32_t row, struct codes_piece *p) {
    const struct dtype_info *info = dtype_info(w->type);
    int8_t q[BLOCK_ELEMS_MAX];
    float scale[GROUPS_MAX], min[GROUPS_MAX];
    for (; k < end; k += info->block_elems, from += info->block_bytes) {
        dtype_unpack(w->type, from, q, scale, min);
        pack_block(m, q, info->block_elems, row, k, p);
        for (uint32_t g = 0; g < info->block_elems / m->group; g++) {
            size_t at = cuda_scale_index(row, k / m->group + g, w->cols / m->group);
            p->scale[at] = scale[g];
            if (p->min) p->min[at] = min[g];
        }
    }
}

/* Tiles of a weight whose rows a source makes, some columns at a time. */
static void unpack_made_tiles(const struct weight *w, const struct cuda_matrix *m, uint32_t expert,
                              uint32_t tile, struct codes_piece *p) {
    enum { SOME_ROWS = 16, SOME = 8, BLOCK_BYTES = 36 };
    uint8_t room[SOME_ROWS * SOME * BLOCK_BYTES];
    const struct row_source *source = weight_source(w, expert);
    const struct dtype_info *info = dtype_info(w->type);
    uint32_t first = tile * CUDA_TILE_ROWS, blocks = w->cols / info->block_elems;
    uint32_t end =
        first + p->tiles * CUDA_TILE_ROWS < w->rows ? first + p->tiles * CUDA_TILE_ROWS : w->rows;
    CHECK(info->block_bytes <= BLOCK_BYTES);
    for (struct row_piece piece = {.first_row = first}; piece.first_row < end;
         piece.first_row += piece.row_count) {
        uint32_t left = end - piece.first_row;
        piece.row_count = left < SOME_ROWS ? left : SOME_ROWS;
        for (piece.first_block = 0; piece.first_block < blocks; piece.first_block += SOME) {
            left = blocks - piece.first_block;
            piece.block_count = left < SOME ? left : SOME;
            source->read(source, &piece, room);
            for (uint32_t r = 0; r < piece.row_count; r++)
                unpack_row(w, m, room + (size_t)r * piece.block_count * info->block_bytes,
                           piece.first_block * info->block_elems,
                           (piece.first_block + piece.block_count) * info->block_elems,
                           piece.first_row - first + r, p);
        }
    }
}

static void unpack_tiles(const struct weight *w, const struct cuda_matrix *m, uint32_t expert,
                         uint32_t tile, struct codes_piece *p) {
    size_t row_bytes;
    uint32_t first = tile * CUDA_TILE_ROWS, count = p->tiles * CUDA_TILE_ROWS;
    size_t scales = (size_t)count * (w->cols / m->group);
    CHECK(dtype_bytes(w->type, w->cols, &row_bytes));
    memset(p->codes, 0, count * codes_bytes(m));
    memset(p->scale, 0, scales * sizeof(float));
    if (p->min) memset(p->min, 0, scales * sizeof(float));
    if (w->source) {
        unpack_made_tiles(w, m, expert, tile, p);
        return;
    }
    for (uint32_t r = 0; r < count && first + r < w->rows; r++)
        unpack_row(w, m, weight_data(w, expert) + (first + r) * row_bytes, 0, w->cols, r, p);
}

static bool copy_tiles(const struct weight *w, const struct cuda_matrix *m, uint32_t expert,
                       uint32_t tile, uint32_t count, const struct codes_piece *p) {
    size_t rows = (size_t)count * CUDA_TILE_ROWS, first = (size_t)tile * CUDA_TILE_ROWS;
    size_t groups = w->cols / m->group, scale_at = expert * m->expert_scales + first * groups;
    size_t row_bytes = codes_bytes(m);
    int8_t *codes = (int8_t *)(uintptr_t)m->data + expert * m->expert_elems + first * row_bytes;
    float *scale = (float *)(uintptr_t)m->scale + scale_at;
    size_t bytes = rows * groups * sizeof(float);
    if (cudaMemcpy(codes, p->codes, rows * row_bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        return false;
    if (cudaMemcpy(scale, p->scale, bytes, cudaMemcpyHostToDevice) != cudaSuccess) return false;
    if (!p->min) return true;
    float *min = (float *)(uintptr_t)m->min + scale_at;
    return cudaMemcpy(min, p->min, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
}

/* A quantised weight on its way to the card, perhaps by several threads. */
struct codes_job {
    const struct weight *w;
    const struct cuda_matrix *m;
    uint32_t tiles_at_once; /* in a piece */
    atomic_uint next;       /* the first piece that no thread has taken */
};

static void piece_deinit(struct codes_piece *p) {
    mem_free(p->codes);
    mem_free(p->scale);
    mem_free(p->min);
}

static bool piece_init(const struct codes_job *job, struct codes_piece *p) {
    size_t codes = (size_t)job->tiles_at_once * CUDA_TILE_ROWS * job->w->cols;
    size_t scales = codes / job->m->group;
    *p = (struct codes_piece){.tiles = job->tiles_at_once};
    find_places(job->m, p->places);
    p->codes = mem_alloc(codes);
    p->scale = mem_alloc_array(scales, sizeof(float));
    p->min = job->m->min ? mem_alloc_array(scales, sizeof(float)) : NULL;
    return p->codes && p->scale && (p->min || !job->m->min);
}

/* Unpacks and copies tiles until none are left. A piece lies within one expert. */
static bool send_codes(void *ctx) {
    struct codes_job *job = ctx;
    uint32_t each = round_up(job->w->rows, CUDA_TILE_ROWS) / CUDA_TILE_ROWS; /* of an expert */
    uint32_t pieces = (each + job->tiles_at_once - 1) / job->tiles_at_once;
    struct codes_piece p;
    bool is_fine = piece_init(job, &p);
    while (is_fine) {
        uint32_t n = atomic_fetch_add(&job->next, 1), tile = n % pieces * job->tiles_at_once;
        if (n >= pieces * job->w->experts) break;
        uint32_t count = each - tile < p.tiles ? each - tile : p.tiles;
        unpack_tiles(job->w, job->m, n / pieces, tile, &p);
        is_fine = copy_tiles(job->w, job->m, n / pieces, tile, count, &p);
    }
    piece_deinit(&p);
    return is_fine;
}

static bool copy_codes(struct cuda_device *dev, const struct weight *w,
                       const struct cuda_matrix *m) {
    size_t tile_bytes = (size_t)CUDA_TILE_ROWS * w->cols;
    struct codes_job job = {
        .w = w, .m = m, .tiles_at_once = (uint32_t)(CODES_PIECE_BYTES / tile_bytes) + 1};
    struct cuda_upload *upload =
        upload_for(dev, w->experts * m->expert_elems, CODES_PIECE_BYTES * 2);
    return upload ? cuda_upload_run(upload, send_codes, &job) : send_codes(&job);
}

/* ---- fp8 weights ---- */

/* Memory for a weight of 16 bits; NULL: no room. */
static void *staging_of(struct cuda_device *dev, size_t bytes) {
    if (bytes <= dev->staging_bytes) return dev->staging;
    cuda_weights_end(dev);
    dev->staging = cuda_take(dev, bytes);
    if (dev->staging) dev->staging_bytes = bytes;
    return dev->staging;
}

void cuda_weights_end(struct cuda_device *dev) {
    cuda_give(dev, dev->staging, dev->staging_bytes);
    dev->staging = NULL;
    dev->staging_bytes = 0;
}

/* `m`: what the weight becomes. Copies wait for nothing else, so the conversion is waited for. */
static bool make_fp8(struct cuda_device *dev, const struct weight *w, const struct cuda_matrix *m) {
    size_t bytes;
    const struct cuda_queue queue = {.stream = dev->stream};
    struct cuda_matrix from = describe(dev, w, &bytes);
    from.data = staging_of(dev, bytes);
    if (!from.data || !copy_numbers(dev, w, &from, dev->staging)) return false;
    if (cudaDeviceSynchronize() != cudaSuccess) return false;
    struct cuda_fp8_weights a = {.form = from.form,
                                 .from = from.data,
                                 .rows = w->rows,
                                 .cols = w->cols,
                                 .from_elems = from.row_elems,
                                 .row_elems = m->row_elems,
                                 .codes = (uint8_t *)(uintptr_t)m->data,
                                 .scale = (float *)(uintptr_t)m->scale};
    cuda_fp8_weights(&a, &queue);
    return cudaStreamSynchronize(dev->stream) == cudaSuccess;
}

/* ---- entry points ---- */

static bool fill(struct cuda_device *dev, const struct weight *w, struct cuda_weight *out) {
    struct cuda_matrix *m = &out->matrix;
    uint8_t *memory = out->memory;
    m->data = memory;
    if (m->form == CUDA_FP8) {
        m->scale = (const float *)(const void *)(memory + m->expert_elems);
        if (m->free_scales)
            return copy_f8(dev, w, m, memory, (float *)(void *)(memory + m->expert_elems));
        return make_fp8(dev, w, m);
    }
    if (m->form == CUDA_CODES) {
        m->scale = (const float *)(const void *)(memory + w->experts * m->expert_elems);
        if (dtype_info(w->type)->has_min) m->min = m->scale + w->experts * m->expert_scales;
        return copy_codes(dev, w, m);
    }
    return copy_numbers(dev, w, m, memory);
}

enum status cuda_weight_create(struct cuda_device *dev, struct weight *w, struct err *err) {
    struct cuda_weight *out = mem_zalloc(sizeof(*out));
    if (!out)
        return err_set(err, ST_NOMEM, "cuda: out of memory for weight %.*s", STR_ARG(w->name));
    out->matrix = describe(dev, w, &out->bytes);
    if (becomes_fp8(dev, w, out->matrix.form)) {
        cuda_fp8_open(dev);
        describe_fp8(&out->matrix, is_stored_fp8(dev, w), &out->bytes);
    }
    out->memory = cuda_take(dev, out->bytes);
    if (!out->memory) {
        enum status st = cuda_say_full(dev, "a weight", out->bytes, err);
        mem_free(out);
        return st;
    }
    dev->other_bytes -= out->bytes;
    dev->weight_bytes += out->bytes;
    out->next = dev->weights;
    dev->weights = out;
    bool is_filled = fill(dev, w, out);
    is_filled = cudaDeviceSynchronize() == cudaSuccess && is_filled; /* of other threads, too */
    if (!is_filled) {
        TRY(cuda_check("copying a weight", err));
        return err_set(err, ST_NOMEM, "cuda: out of memory while copying weight %.*s",
                       STR_ARG(w->name));
    }
    w->prepared = out;
    return ST_OK;
}

void cuda_weights_destroy(struct cuda_device *dev) {
    while (dev->weights) {
        struct cuda_weight *w = dev->weights;
        dev->weights = w->next;
        cudaFree(w->memory);
        mem_free(w->joint);
        mem_free(w);
    }
}

/* ---- joints ---- */

static struct cuda_weight *own_of(const struct weight *w) { return w->prepared; }

static bool fits(const struct matmul_part *a, const struct matmul_part *b) {
    const struct cuda_matrix *m = cuda_matrix_of(a->weight), *n = cuda_matrix_of(b->weight);
    if (own_of(b->weight)->is_placed || b->weight->experts != 1) return false;
    if (m->form != n->form || m->code != n->code || m->form == CUDA_F32 || !a->bias != !b->bias)
        return false;
    if (m->free_scales != n->free_scales) return false;
    if (memcmp(m->table, n->table, sizeof(m->table)) != 0) return false;
    if (m->form == CUDA_CODES && n->rows % CUDA_TILE_ROWS != 0) return false;
    return m->cols == n->cols && m->row_elems == n->row_elems && m->group == n->group &&
           !m->min == !n->min;
}

/* Bytes of one row's numbers. */
static size_t data_bytes(const struct cuda_matrix *m) {
    if (m->form == CUDA_FP8) return m->row_elems;
    if (m->form == CUDA_CODES) return codes_bytes(m);
    return m->row_elems * sizeof(uint16_t);
}

/* Scales of one row. */
static size_t scales_of(const struct cuda_matrix *m) {
    if (m->form == CUDA_FP8) return 1;
    return m->form == CUDA_CODES ? m->cols / m->group : 0;
}

/* Where each array of a joint begins, after one another, each a multiple of 256 bytes. */
struct joint_plan {
    size_t scale, min, bias, bytes;
};

static struct joint_plan plan_joint(const struct cuda_joint *j, bool has_bias) {
    const struct cuda_matrix *m = &j->matrix;
    size_t floats = m->rows * scales_of(m);
    size_t array = (floats * sizeof(float) + 255) / 256 * 256;
    struct joint_plan p = {.scale = (m->rows * data_bytes(m) + 255) / 256 * 256};
    p.min = p.scale + array;
    p.bias = p.min + (m->min ? array : 0);
    p.bytes = p.bias + (has_bias ? m->rows * sizeof(float) : 0);
    return p;
}

static void copy_array(uint8_t *to, const void *from, size_t bytes) {
    if (from) cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}

/* Part `i`, whose first row is `row` of the joint's, to its place; its own memory is given back. */
static void move_part(struct cuda_device *dev, const struct cuda_joint *j,
                      const struct matmul_part *part, uint32_t row, const struct joint_plan *p,
                      uint8_t *memory) {
    struct cuda_weight *w = own_of(part->weight);
    struct cuda_matrix *m = &w->matrix;
    size_t groups = scales_of(m), floats = m->rows * groups;
    uint8_t *data = memory + row * data_bytes(m);
    uint8_t *scale = memory + p->scale + row * groups * sizeof(float);
    uint8_t *min = memory + p->min + row * groups * sizeof(float);
    copy_array(data, m->data, m->rows * data_bytes(m));
    copy_array(scale, m->scale, floats * sizeof(float));
    copy_array(min, m->min, floats * sizeof(float));
    if (j->bias)
        copy_array(memory + p->bias + row * sizeof(float), cuda_vector_of(part->bias),
                   m->rows * sizeof(float));
    cudaDeviceSynchronize();
    m->data = data;
    if (m->scale) m->scale = (const float *)(const void *)scale;
    if (m->min) m->min = (const float *)(const void *)min;
    cudaFree(w->memory);
    dev->weight_bytes -= w->bytes;
    w->memory = NULL;
    w->bytes = 0;
}

static void place(const struct matmul_part *parts, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) own_of(parts[i].weight)->is_placed = true;
}

void cuda_weights_join(struct cuda_device *dev, const struct matmul_part *parts, uint32_t count) {
    bool can = count > 1;
    for (uint32_t i = 0; i < count; i++) can = can && fits(&parts[0], &parts[i]);
    struct cuda_joint *j = can ? mem_zalloc(sizeof(*j)) : NULL;
    place(parts, count);
    if (!j) return;
    j->matrix = *cuda_matrix_of(parts[0].weight);
    j->matrix.rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        j->parts[i] = parts[i].weight;
        j->matrix.rows += cuda_matrix_of(parts[i].weight)->rows;
    }
    j->part_count = count;
    struct joint_plan p = plan_joint(j, parts[0].bias);
    uint8_t *memory = cuda_take(dev, p.bytes);
    if (!memory) {
        mem_free(j);
        return;
    }
    dev->other_bytes -= p.bytes;
    dev->weight_bytes += p.bytes;
    if (parts[0].bias) j->bias = (const float *)(const void *)(memory + p.bias);
    for (uint32_t i = 0, row = 0; i < count; i++) {
        move_part(dev, j, &parts[i], row, &p, memory);
        row += cuda_matrix_of(parts[i].weight)->rows;
    }
    struct cuda_weight *first = own_of(parts[0].weight);
    j->matrix.data = first->matrix.data;
    j->matrix.scale = first->matrix.scale;
    j->matrix.min = first->matrix.min;
    first->memory = memory;
    first->bytes = p.bytes;
    first->joint = j;
}

const struct cuda_joint *cuda_joint_of(const struct matmul_part *parts, uint32_t count) {
    const struct cuda_joint *j = own_of(parts[0].weight)->joint;
    if (!j || j->part_count != count) return NULL;
    for (uint32_t i = 0; i < count; i++)
        if (j->parts[i] != parts[i].weight) return NULL;
    return j;
}
