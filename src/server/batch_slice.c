/* server/batch_slice.c - see server/batch_slice.h. */
#include "server/batch_slice.h"

#include <string.h>

#include "base/mem.h"
#include "jobs/batches.h"

struct slice_line {
    struct list_link in_lines;
    struct batch_line line; /* its strings are in `text` */
    char text[];
};

static char *copy_to(char *at, struct str *s) {
    if (s->len > 0) memcpy(at, s->ptr, s->len);
    s->ptr = at;
    return at + s->len;
}

enum status batch_slice_keep(struct batch_slice *s, const struct batch_line *line) {
    const size_t bytes = line->custom_id.len + line->body.len + line->url.len;
    struct slice_line *l = mem_alloc(sizeof(*l) + bytes);
    if (!l) return ST_NOMEM;
    *l = (struct slice_line){.line = *line};
    char *at = copy_to(l->text, &l->line.custom_id);
    at = copy_to(at, &l->line.body);
    copy_to(at, &l->line.url);
    list_push_last(&s->lines, &l->in_lines);
    s->bytes += bytes;
    return ST_OK;
}

enum status batch_slice_store(const struct batch_slice *s, struct store_db *db, struct str batch,
                              struct err *err) {
    for (struct list_link *l = s->lines.first; l; l = l->next)
        TRY(batches_add_line(db, batch, &LIST_ITEM(l, struct slice_line, in_lines)->line, err));
    return ST_OK;
}

void batch_slice_clear(struct batch_slice *s) {
    for (struct list_link *l; (l = list_pop_first(&s->lines));)
        mem_free(LIST_ITEM(l, struct slice_line, in_lines));
    s->bytes = 0;
}
