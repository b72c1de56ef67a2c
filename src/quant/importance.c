/* quant/importance.c - see quant/importance.h for the contract. */
#include "quant/importance.h"

#include <math.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/map.h"
#include "base/mem.h"

struct matrix {
    struct str name; /* arena */
    uint32_t cols;
    uint64_t rows;
    double *sums; /* arena; [cols] of squares */
    float *means; /* arena; [cols] */
};

struct importance {
    struct arena *arena;
    struct map *names;       /* name -> index in matrices */
    struct matrix *matrices; /* heap */
    uint32_t count, cap;
    uint32_t last; /* the matrix that the last part was of */
    enum status status;
};

enum status importance_create(struct importance **out, struct err *err) {
    struct importance *m = mem_zalloc(sizeof(*m));
    if (m) m->arena = arena_create(IMPORTANCE_BYTES_MAX);
    if (m) m->names = map_create(0);
    if (m && m->arena && m->names) {
        *out = m;
        return ST_OK;
    }
    importance_destroy(m);
    return err_set(err, ST_NOMEM, "out of memory for the importance of columns");
}

void importance_destroy(struct importance *m) {
    if (!m) return;
    map_destroy(m->names);
    arena_destroy(m->arena);
    mem_free(m->matrices);
    mem_free(m);
}

static bool reserve_one(struct importance *m) {
    if (m->count < m->cap) return true;
    uint32_t cap = m->cap ? m->cap * 2 : 64;
    struct matrix *more = mem_realloc(m->matrices, cap * sizeof(*more));
    if (!more) return false;
    m->matrices = more;
    m->cap = cap;
    return true;
}

static bool add_matrix(struct importance *m, const struct importance_part *part) {
    if (!reserve_one(m)) return false;
    struct matrix *own = &m->matrices[m->count];
    *own = (struct matrix){.name = arena_dup(m->arena, part->name), .cols = part->cols};
    own->sums = arena_zalloc_array(m->arena, part->cols, sizeof(own->sums[0]));
    own->means = arena_zalloc_array(m->arena, part->cols, sizeof(own->means[0]));
    if (!own->name.ptr || !own->sums || !own->means) return false;
    if (map_put(m->names, own->name, m->count) != ST_OK) return false;
    m->last = m->count++;
    return true;
}

/* Parts of one matrix follow each other, so the last one is looked at first. */
static struct matrix *matrix_of(struct importance *m, const struct importance_part *part) {
    uint32_t idx;
    if (m->count > 0 && str_eq(m->matrices[m->last].name, part->name)) return &m->matrices[m->last];
    if (map_find(m->names, part->name, &idx)) {
        m->last = idx;
        return &m->matrices[idx];
    }
    return add_matrix(m, part) ? &m->matrices[m->last] : NULL;
}

void importance_add(struct importance *m, const struct importance_part *part) {
    if (m->status != ST_OK) return;
    struct matrix *own = matrix_of(m, part);
    if (!own) {
        m->status = ST_NOMEM;
        return;
    }
    CHECK(own->cols == part->cols);
    CHECK(part->col + part->count <= part->cols);
    own->rows += part->col == 0;
    for (uint32_t i = 0; i < part->count; i++) {
        double x = (double)part->x[i];
        if (isfinite(x)) own->sums[part->col + i] += x * x;
    }
}

enum status importance_status(const struct importance *m, struct err *err) {
    if (m->status == ST_OK) return ST_OK;
    return err_set(err, m->status, "out of memory for the importance of columns");
}

size_t importance_count(const struct importance *m) { return m->count; }

const float *importance_find(struct importance *m, struct str name, uint64_t cols) {
    uint32_t idx;
    if (!map_find(m->names, name, &idx) || m->matrices[idx].cols != cols) return NULL;
    struct matrix *own = &m->matrices[idx];
    if (own->rows == 0) return NULL;
    for (uint32_t i = 0; i < own->cols; i++)
        own->means[i] = (float)(own->sums[i] / (double)own->rows);
    return own->means;
}
