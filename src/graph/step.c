/* graph/step.c - see graph/step.h for the contract. */
#include "graph/step.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/size.h"
#include "graph/device.h"

enum { TABLE_ALIGN = 64 };

/* Tables one behind the other: first their sizes are added up, then the same walk sets pointers. */
struct layout {
    uint8_t *base; /* NULL: only count */
    size_t bytes;
    bool is_too_large;
};

static void *add_table(struct layout *l, size_t count, size_t elem_bytes) {
    size_t bytes, rounded;
    void *table = l->base ? l->base + l->bytes : NULL;
    if (!size_mul(count, elem_bytes, &bytes) || !size_round_up(bytes, TABLE_ALIGN, &rounded) ||
        !size_add(l->bytes, rounded, &l->bytes))
        l->is_too_large = true;
    return table;
}

static void add_tables(struct layout *l, struct step *s) {
    const struct step_sizes *n = &s->sizes;
    size_t tables = 0, inputs = 0;
    if (!size_mul((size_t)n->seqs_max * n->group_count, n->blocks_max, &tables))
        l->is_too_large = true;
    if (!size_mul(n->rows_max, n->input_floats, &inputs)) l->is_too_large = true;
    s->token = add_table(l, n->rows_max, sizeof(s->token[0]));
    s->pos = add_table(l, n->rows_max, sizeof(s->pos[0]));
    s->seq = add_table(l, n->rows_max, sizeof(s->seq[0]));
    s->output_row = add_table(l, n->outputs_max, sizeof(s->output_row[0]));
    s->seqs = add_table(l, n->seqs_max, sizeof(s->seqs[0]));
    s->samplings = add_table(l, n->outputs_max, sizeof(s->samplings[0]));
    s->blocks = add_table(l, l->is_too_large ? 0 : tables, sizeof(s->blocks[0]));
    s->tables.edits = add_table(l, n->edits_max, sizeof(s->tables.edits[0]));
    s->tables.deny = add_table(l, n->deny_words_max, sizeof(s->tables.deny[0]));
    s->input = add_table(l, inputs, sizeof(s->input[0]));
}

enum status step_create(struct step **out, const struct device *dev, const struct step_sizes *sizes,
                        struct err *err) {
    struct step *s = mem_zalloc(sizeof(*s));
    struct layout count = {.base = NULL};
    if (!s) return err_set(err, ST_NOMEM, "out of memory for step tables");
    s->sizes = *sizes;
    add_tables(&count, s);
    if (!count.is_too_large) s->memory = dev->host_alloc(dev->self, count.bytes, -1);
    if (!s->memory) {
        mem_free(s);
        return err_set(err, ST_NOMEM, "out of memory for the tables of steps of %u rows",
                       sizes->rows_max);
    }
    struct layout place = {.base = s->memory};
    s->memory_bytes = count.bytes;
    add_tables(&place, s);
    CHECK(place.bytes == count.bytes);
    s->tables.edit_cap = sizes->edits_max;
    s->tables.deny_cap = sizes->deny_words_max;
    *out = s;
    return ST_OK;
}

void step_destroy(struct step *s, const struct device *dev) {
    if (!s) return;
    dev->host_free(dev->self, s->memory, s->memory_bytes);
    mem_free(s);
}

void step_clear(struct step *s) {
    s->row_count = s->output_count = s->seq_count = s->move_count = 0;
    s->hands_over = false;
    s->moves = NULL;
    s->tables.edit_count = s->tables.deny_count = 0;
}
