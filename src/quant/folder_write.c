/* quant/folder_write.c - the tensors of a quantised folder. See quant/folder.h for the contract. */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "format/model_file.h"
#include "format/safetensors_writer.h"
#include "format/tensor_read.h"
#include "quant/folder_files.h"
#include "quant/folder_int.h"
#include "quant/numbers.h"
#include "quant/quant.h"
#include "quant/round.h"

enum { BAND_ELEMS = 1 << 20, NAME_BYTES = 640 };

/* ---- files ---- */

static uint32_t parts_of(const struct folder_writer *w, const struct folder_tensor *t,
                         struct packed_part parts[PACKED_PARTS_MAX]) {
    return pack_parts(&w->format, (uint32_t)t->from->dims[0], (uint32_t)t->from->dims[1], parts);
}

static size_t bytes_of(enum dtype type, uint64_t elems) {
    size_t bytes = 0;
    bool fits = dtype_bytes(type, elems, &bytes);
    CHECK(fits);
    return bytes;
}

uint64_t folder_writer_bytes(const struct folder_writer *w, size_t i) {
    struct packed_part parts[PACKED_PARTS_MAX];
    const struct folder_tensor *t = folder_writer_at(w, i);
    if (!t->is_packed) return bytes_of(t->to, tensor_elems(t->from));
    uint32_t count = parts_of(w, t, parts);
    return parts[count - 1].at + parts[count - 1].bytes;
}

static void add_packed(struct folder_writer *w, const struct folder_tensor *t) {
    struct packed_part parts[PACKED_PARTS_MAX];
    uint32_t count = parts_of(w, t, parts);
    size_t stem = t->from->name.len - strlen(".weight");
    for (uint32_t i = 0; i < count; i++) {
        char name[NAME_BYTES];
        CHECK(stem + strlen(parts[i].suffix) < sizeof(name));
        memcpy(name, t->from->name.ptr, stem);
        memcpy(name + stem, parts[i].suffix, strlen(parts[i].suffix) + 1);
        const struct safetensors_entry entry = {.name = str_of(name),
                                                .format = parts[i].format,
                                                .dim_count = parts[i].dim_count,
                                                .dims = {parts[i].dims[0], parts[i].dims[1]},
                                                .bytes = parts[i].bytes};
        safetensors_writer_add(w->writer, &entry);
    }
}

static void add_kept(struct folder_writer *w, const struct folder_tensor *t) {
    struct safetensors_entry entry = {.name = t->from->name,
                                      .format = dtype_info(t->to)->name,
                                      .dim_count = t->from->dim_count,
                                      .bytes = bytes_of(t->to, tensor_elems(t->from))};
    for (uint32_t i = 0; i < t->from->dim_count; i++) entry.dims[i] = t->from->dims[i];
    safetensors_writer_add(w->writer, &entry);
}

enum status folder_writer_begin(struct folder_writer *w, struct folder_out *out,
                                uint64_t file_bytes_max, struct err *err) {
    CHECK(!w->writer);
    w->out = out;
    TRY(safetensors_writer_create(file_bytes_max, &w->writer, err));
    for (size_t i = 0; i < w->count; i++)
        if (w->tensors[i].is_packed)
            add_packed(w, &w->tensors[i]);
        else
            add_kept(w, &w->tensors[i]);
    return safetensors_writer_begin(w->writer, out, err);
}

uint64_t folder_writer_file_bytes(const struct folder_writer *w) {
    return w->writer ? safetensors_writer_bytes(w->writer) : 0;
}

size_t folder_writer_next(const struct folder_writer *w) { return w->next; }

static struct folder_tensor *next_tensor(struct folder_writer *w) {
    CHECK(w->writer);
    CHECK(w->next < w->count);
    return &w->tensors[w->next];
}

/* The tensor is written. Was it whole when it was read? */
static enum status end_tensor(struct folder_writer *w, struct err *err) {
    tensor_release(w->f, w->tensors[w->next].from);
    w->next++;
    return model_file_check(w->f, true, err);
}

/* ---- numbers ---- */

static enum status say_bad(const struct folder_writer *w, const struct tensor_info *t, uint64_t at,
                           float value, enum dtype type, struct err *err) {
    const struct bad_number bad = {.path = model_file_path(w->f),
                                   .tensor = t->name,
                                   .width = t->dim_count ? t->dims[t->dim_count - 1] : 1,
                                   .at = at,
                                   .value = value,
                                   .type = type};
    return numbers_say_bad(&bad, err);
}

struct band {
    const struct tensor_info *t;
    uint64_t first;
    size_t elems;
    enum dtype holds; /* a type that must be able to hold the numbers */
};

static enum status read_band(struct folder_writer *w, const struct band *b, float *x,
                             struct err *err) {
    size_t bad;
    const struct tensor_info *t = b->t;
    tensor_read_f32(t, b->first, b->elems, x);
    if (!quant_can_hold(b->holds, x, b->elems, &bad))
        return say_bad(w, t, b->first + bad, x[bad], b->holds, err);
    if (t->data)
        model_file_release(w->f, (const uint8_t *)t->data + bytes_of(t->type, b->first),
                           bytes_of(t->type, b->elems));
    return ST_OK;
}

static enum status put_plain(struct folder_writer *w, enum dtype to, const float *x, size_t elems,
                             uint8_t *out, struct err *err) {
    quant_encode(to, x, NULL, elems, out);
    return safetensors_writer_put(w->writer, out, bytes_of(to, elems), err);
}

/* A kept tensor, piece by piece: as it is, or as another type. Pieces are whole blocks. */
static enum status put_pieces(struct folder_writer *w, const struct folder_tensor *t, float *x,
                              uint8_t *out, struct err *err) {
    uint64_t all = tensor_elems(t->from);
    for (uint64_t first = 0; first < all; first += BAND_ELEMS) {
        size_t elems = all - first < BAND_ELEMS ? (size_t)(all - first) : BAND_ELEMS;
        if (t->from->type == t->to) {
            tensor_read(t->from, first, elems, out);
            TRY(safetensors_writer_put(w->writer, out, bytes_of(t->to, elems), err));
            continue;
        }
        const struct band b = {t->from, first, elems, t->to};
        TRY(read_band(w, &b, x, err));
        TRY(put_plain(w, t->to, x, elems, out, err));
    }
    return ST_OK;
}

static enum status no_memory(struct err *err) {
    return err_set(err, ST_NOMEM, "out of memory for rows of a matrix");
}

static enum status put_kept(struct folder_writer *w, const struct folder_tensor *t,
                            struct err *err) {
    float *x = mem_alloc_array(BAND_ELEMS, sizeof(x[0]));
    uint8_t *out = mem_alloc_array(BAND_ELEMS, sizeof(float));
    enum status st = x && out ? put_pieces(w, t, x, out, err) : no_memory(err);
    mem_free(x);
    mem_free(out);
    return st;
}

static enum status round_band(struct packed_matrix *m, const float *x, uint32_t first_row,
                              uint32_t rows, struct err *err) {
    struct int_matrix ints;
    if (m->format.method == PACK_NF4) {
        packed_put_floats(m, x, first_row, rows);
        return ST_OK;
    }
    TRY(int_matrix_init(&ints, &m->format.ints, rows, m->cols, err));
    round_nearest(x, &ints);
    packed_put_ints(m, &ints, first_row);
    int_matrix_deinit(&ints);
    return ST_OK;
}

static enum status round_bands(struct folder_writer *w, const struct folder_tensor *t,
                               struct packed_matrix *m, struct err *err) {
    enum dtype holds = m->format.method == PACK_NF4 ? DTYPE_F32 : DTYPE_F16;
    uint32_t band = BAND_ELEMS / m->cols / PACK_BAND_ROWS * PACK_BAND_ROWS;
    if (band == 0) band = PACK_BAND_ROWS;
    if (band > m->rows) band = m->rows;
    float *x = mem_alloc_array((size_t)band * m->cols, sizeof(x[0]));
    if (!x) return no_memory(err);
    enum status st = ST_OK;
    for (uint32_t row = 0; row < m->rows && st == ST_OK; row += band) {
        uint32_t rows = m->rows - row < band ? m->rows - row : band;
        const struct band b = {t->from, (uint64_t)row * m->cols, (size_t)rows * m->cols, holds};
        st = read_band(w, &b, x, err);
        if (st == ST_OK) st = round_band(m, x, row, rows, err);
    }
    if (st == ST_OK) packed_finish(m);
    mem_free(x);
    return st;
}

static enum status put_parts(struct folder_writer *w, const struct packed_matrix *m,
                             struct err *err) {
    for (uint32_t i = 0; i < m->part_count; i++)
        TRY(safetensors_writer_put(w->writer, m->data + m->parts[i].at, m->parts[i].bytes, err));
    return ST_OK;
}

static enum status put_rounded(struct folder_writer *w, const struct folder_tensor *t,
                               struct err *err) {
    struct packed_matrix m;
    TRY(packed_init(&m, &w->format, (uint32_t)t->from->dims[0], (uint32_t)t->from->dims[1], err));
    enum status st = round_bands(w, t, &m, err);
    if (st == ST_OK) st = put_parts(w, &m, err);
    packed_deinit(&m);
    return st;
}

enum status folder_writer_put(struct folder_writer *w, struct err *err) {
    const struct folder_tensor *t = next_tensor(w);
    TRY(t->is_packed ? put_rounded(w, t, err) : put_kept(w, t, err));
    return end_tensor(w, err);
}

enum status folder_writer_put_packed(struct folder_writer *w, const struct packed_matrix *m,
                                     struct err *err) {
    const struct folder_tensor *t = next_tensor(w);
    CHECK(t->is_packed);
    CHECK(m->rows == t->from->dims[0]);
    CHECK(m->cols == t->from->dims[1]);
    TRY(put_parts(w, m, err));
    return end_tensor(w, err);
}

enum status folder_writer_put_numbers(struct folder_writer *w, const float *x, struct err *err) {
    const struct folder_tensor *t = next_tensor(w);
    size_t elems = (size_t)tensor_elems(t->from), bad;
    CHECK(!t->is_packed);
    if (!quant_can_hold(t->to, x, elems, &bad)) return say_bad(w, t->from, bad, x[bad], t->to, err);
    uint8_t *out = mem_alloc_array(elems, sizeof(float));
    enum status st = out ? put_plain(w, t->to, x, elems, out, err) : no_memory(err);
    mem_free(out);
    return st == ST_OK ? end_tensor(w, err) : st;
}

enum status folder_writer_finish(struct folder_writer *w, struct err *err) {
    CHECK(w->next == w->count);
    TRY(safetensors_writer_finish(w->writer, err));
    return folder_files_write(w->f, w, w->out, err);
}
