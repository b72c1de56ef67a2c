/* cli/cmd_list.c - `jitney list`: the models in the cache, and the known ones that are not. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "config/env.h"
#include "hub/model_cache.h"

enum { LIST_BYTES_MAX = 64 << 20, COLUMN_COUNT = 5, CELL_BYTES = MODEL_PATH_BYTES };

static const struct flag flags[] = {
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON list instead of a table."},
    {.name = "names",
     .kind = FLAG_BOOL,
     .help = "Print only the names of the models in the cache, one on each line."},
    {0},
};

static const char *const titles[COLUMN_COUNT] = {"NAME", "SIZE", "FORMAT", "SOURCE", "PATH"};

static void cell_text(const struct model_row *row, size_t column, char out[CELL_BYTES]) {
    char size[SIZE_TEXT_BYTES];
    switch (column) {
    case 0:
        snprintf(out, CELL_BYTES, "%s", row->name);
        break;
    case 1:
        snprintf(out, CELL_BYTES, "%s", size_text(row->bytes, size));
        break;
    case 2:
        snprintf(out, CELL_BYTES, "%s%s%s", row->format[0] ? row->format : "-",
                 row->arch[0] ? "/" : "", row->arch);
        break;
    case 3:
        snprintf(out, CELL_BYTES, "%s", row->source[0] ? row->source : "-");
        break;
    default:
        if (row->state == MODEL_CACHED)
            snprintf(out, CELL_BYTES, "%s", row->path);
        else
            snprintf(out, CELL_BYTES, "(%s; jitney pull %s)", model_state_name(row->state),
                     row->name);
    }
}

/* As wide as the widest cell, except the last column, which nothing follows. */
static void put_table(const struct model_list *list, struct buf *out) {
    int widths[COLUMN_COUNT];
    char cell[CELL_BYTES];
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        widths[c] = (int)strlen(titles[c]);
        for (uint32_t i = 0; i < list->count; i++) {
            cell_text(&list->rows[i], c, cell);
            int width = (int)strlen(cell);
            if (width > widths[c]) widths[c] = width;
        }
    }
    widths[COLUMN_COUNT - 1] = 0;
    for (size_t c = 0; c < COLUMN_COUNT; c++)
        buf_printf(out, "%s%-*s", c ? "  " : "", widths[c], titles[c]);
    buf_put_char(out, '\n');
    for (uint32_t i = 0; i < list->count; i++) {
        for (size_t c = 0; c < COLUMN_COUNT; c++) {
            cell_text(&list->rows[i], c, cell);
            buf_printf(out, "%s%-*s", c ? "  " : "", widths[c], cell);
        }
        buf_put_char(out, '\n');
    }
}

static void put_names(const struct model_list *list, struct buf *out) {
    for (uint32_t i = 0; i < list->count; i++)
        if (list->rows[i].state == MODEL_CACHED) buf_printf(out, "%s\n", list->rows[i].name);
}

static void put_key(struct buf *out, const char *key, const char *value) {
    buf_printf(out, ", \"%s\": ", key);
    buf_put_json_string(out, str_of(value));
}

static void put_json(const struct model_list *list, struct buf *out) {
    buf_put_char(out, '[');
    for (uint32_t i = 0; i < list->count; i++) {
        const struct model_row *row = &list->rows[i];
        buf_put_text(out, i ? ",\n {\"name\": " : "{\"name\": ");
        buf_put_json_string(out, str_of(row->name));
        put_key(out, "state", model_state_name(row->state));
        buf_printf(out, ", \"bytes\": %llu", (unsigned long long)row->bytes);
        put_key(out, "format", row->format);
        put_key(out, "arch", row->arch);
        put_key(out, "source", row->source);
        put_key(out, "path", row->path);
        buf_put_char(out, '}');
    }
    buf_put_text(out, "]\n");
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct env_settings env;
    struct model_cache cache;
    struct model_list list;
    if (args_on(args, "json") && args_on(args, "names"))
        return usage_set(err, "list: give --json or --names, not both");
    env_read(&env);
    enum status st = model_cache_init(&cache, &env, err);
    if (st == ST_OK) st = model_list_create(&cache, &list, err);
    if (st != ST_OK) return exit_of(st);
    struct buf out;
    buf_init(&out, LIST_BYTES_MAX);
    if (args_on(args, "json"))
        put_json(&list, &out);
    else if (args_on(args, "names"))
        put_names(&list, &out);
    else
        put_table(&list, &out);
    st = buf_status(&out);
    if (st != ST_OK)
        err_set(err, st, "out of memory listing the cache");
    else
        st = out_write(buf_str(&out), err);
    if (st == ST_OK) st = out_flush(err);
    buf_deinit(&out);
    model_list_destroy(&list);
    return exit_of(st);
}

const struct command cmd_list = {
    .name = "list",
    .summary = "Show the models in the cache",
    .operands = "",
    .about = "Prints one line for each model: name, size, format and architecture, source and "
             "path. Known models that are not in the cache yet are listed, too.",
    .groups = {flags},
    .run = run,
};
