/* config/settings.c - see config/settings.h. To add a setting: one row in config/settings.def.
 *
 * A row knows where in struct settings its value lies and of which kind it is; everything here
 * works on rows and knows no setting by name, except that a config file cannot name another.
 *
 * Entry points: settings_init, settings_deinit, settings_copy, settings_set, settings_read_text,
 * settings_read_file, settings_read_env, settings_reload, settings_origin, settings_print.
 */
#include "config/settings.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

enum { FILE_BYTES_MAX = 1 << 20, VALUE_BYTES_MAX = 4096, PLACE_BYTES = 256 };

const struct setting_row setting_rows[] = {
#define SECTION(title)
#define SETTING(field, kind, letter, flag, value, fallback, min, max, reloads, help)               \
    {#field, flag, value,  fallback, help, SETTING_##kind, offsetof(struct settings, field),       \
     min,    max,  reloads},
#include "config/settings.def"
#undef SETTING
#undef SECTION
};
enum { ROWS = sizeof(setting_rows) / sizeof(setting_rows[0]) };

/* The table's lines in order: a title, or NULL for a setting. */
static const char *const titles[] = {
#define SECTION(title) title,
#define SETTING(field, kind, letter, flag, value, fallback, min, max, reloads, help) NULL,
#include "config/settings.def"
#undef SETTING
#undef SECTION
};

uint32_t settings_count(void) { return ROWS; }

const char *settings_section(uint32_t i) {
    CHECK(i < ROWS);
    uint32_t line = 0;
    for (uint32_t row = 0;; line++) {
        if (titles[line]) continue;
        if (row++ == i) break;
    }
    return line > 0 ? titles[line - 1] : NULL;
}

/* --- values ------------------------------------------------------------------------------ */

static void *place_of(const struct settings *s, const struct setting_row *row) {
    return (char *)s + row->offset;
}

static bool is_text(const struct setting_row *row) {
    return row->kind == SETTING_TEXT || row->kind == SETTING_WORD;
}

static void list_clear(struct setting_list *list) {
    for (uint32_t i = 0; i < list->count; i++) mem_free(list->items[i]);
    *list = (struct setting_list){0};
}

static void value_clear(struct settings *s, const struct setting_row *row) {
    if (row->kind == SETTING_LIST) {
        list_clear(place_of(s, row));
    } else if (is_text(row)) {
        char **text = place_of(s, row);
        mem_free(*text);
        *text = NULL;
    }
}

/* Replaces what was there, or leaves it on ST_NOMEM. */
static enum status text_put(char **place, struct str value) {
    char *copy = mem_dup(value.ptr, value.len);
    if (!copy) return ST_NOMEM;
    mem_free(*place);
    *place = copy;
    return ST_OK;
}

static enum status list_add(struct setting_list *list, struct str item) {
    if (list->count == SETTING_LIST_MAX) return ST_FULL;
    TRY(text_put(&list->items[list->count], item));
    list->count++;
    return ST_OK;
}

static enum status value_copy(const struct setting_row *row, const struct settings *from,
                              struct settings *to) {
    const void *source = place_of(from, row);
    void *target = place_of(to, row);
    switch (row->kind) {
    case SETTING_BOOL:
        *(bool *)target = *(const bool *)source;
        return ST_OK;
    case SETTING_INT:
    case SETTING_SIZE:
    case SETTING_REAL:
        memcpy(target, source, sizeof(int64_t));
        return ST_OK;
    case SETTING_TEXT:
    case SETTING_WORD:
        value_clear(to, row);
        return *(char *const *)source ? text_put(target, str_of(*(char *const *)source)) : ST_OK;
    case SETTING_LIST:
        break;
    }
    const struct setting_list *list = source;
    list_clear(target);
    for (uint32_t i = 0; i < list->count; i++) TRY(list_add(target, str_of(list->items[i])));
    return ST_OK;
}

_Static_assert(sizeof(setting_INT) == sizeof(int64_t), "numbers are copied as 8 bytes");
_Static_assert(sizeof(setting_SIZE) == sizeof(int64_t), "numbers are copied as 8 bytes");
_Static_assert(sizeof(setting_REAL) == sizeof(int64_t), "numbers are copied as 8 bytes");

static bool lists_equal(const struct setting_list *a, const struct setting_list *b) {
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (strcmp(a->items[i], b->items[i]) != 0) return false;
    return true;
}

static bool values_equal(const struct setting_row *row, const struct settings *a,
                         const struct settings *b) {
    const void *left = place_of(a, row), *right = place_of(b, row);
    if (row->kind == SETTING_BOOL) return *(const bool *)left == *(const bool *)right;
    if (row->kind == SETTING_LIST) return lists_equal(left, right);
    if (!is_text(row)) return memcmp(left, right, sizeof(int64_t)) == 0;
    const char *l = *(char *const *)left, *r = *(char *const *)right;
    return l && r ? strcmp(l, r) == 0 : l == r;
}

/* --- reading a value --------------------------------------------------------------------- */

static const char UNITS[] = "KMGT";

static bool read_size(struct str text, uint64_t *out) {
    uint32_t shift = 0;
    if (text.len > 2 && str_ends(text, STR("iB"))) text.len -= 2;
    for (uint32_t i = 0; text.len > 1 && UNITS[i]; i++) {
        char last = text.ptr[text.len - 1];
        if (last == UNITS[i] || last == UNITS[i] + ('a' - 'A')) shift = 10 * (i + 1);
    }
    if (shift) text.len--;
    uint64_t whole;
    if (!str_to_u64(text, &whole) || whole > UINT64_MAX >> shift) return false;
    *out = whole << shift;
    return true;
}

static bool read_bool(struct str text, bool *out) {
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "1", "0"};
    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!str_is(text, words[i])) continue;
        *out = i % 2 == 0;
        return true;
    }
    return false;
}

/* Is `text` one of the words of "one|two|three"? */
static bool word_in(struct str words, struct str text) {
    while (words.len > 0) {
        const char *bar = memchr(words.ptr, '|', words.len);
        size_t len = bar ? (size_t)(bar - words.ptr) : words.len;
        if (str_eq(str_take(words, len), text)) return true;
        words = str_skip(words, bar ? len + 1 : len);
    }
    return false;
}

static void put_size(struct buf *out, uint64_t bytes) {
    uint32_t unit = 0;
    while (bytes && bytes % 1024 == 0 && unit < sizeof(UNITS) - 1) {
        bytes /= 1024;
        unit++;
    }
    buf_printf(out, "%llu", (unsigned long long)bytes);
    if (unit) buf_put_char(out, UNITS[unit - 1]);
}

/* The expected value of a row, for error messages. */
static void put_expected(struct buf *out, const struct setting_row *row) {
    switch (row->kind) {
    case SETTING_BOOL:
        buf_put_text(out, "true or false");
        break;
    case SETTING_INT:
        buf_printf(out, "a whole number from %.15g to %.15g", row->min, row->max);
        break;
    case SETTING_REAL:
        buf_printf(out, "a number from %.15g to %.15g", row->min, row->max);
        break;
    case SETTING_WORD:
        buf_printf(out, "one of %s", row->value);
        break;
    case SETTING_SIZE:
        buf_put_text(out, "a size such as 512, 64K or 2G, from ");
        put_size(out, (uint64_t)row->min);
        buf_put_text(out, " to ");
        put_size(out, (uint64_t)row->max);
        break;
    case SETTING_TEXT:
    case SETTING_LIST:
        buf_put_text(out, "text without control characters");
        break;
    }
}

void settings_env_name(const char *flag, char out[SETTING_ENV_BYTES]) {
    int len = snprintf(out, SETTING_ENV_BYTES, "JITNEY_%s", flag);
    CHECK(len > 0 && len < SETTING_ENV_BYTES);
    for (char *p = out; *p; p++) {
        if (*p == '-') *p = '_';
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    }
}

static enum status refuse(const struct setting_row *row, struct str value,
                          enum setting_origin origin, struct err *err) {
    char name[SETTING_ENV_BYTES];
    struct buf expected;
    buf_init(&expected, VALUE_BYTES_MAX);
    put_expected(&expected, row);
    if (origin == FROM_ENV)
        settings_env_name(row->flag, name);
    else
        snprintf(name, sizeof(name), "%s%s", origin == FROM_FLAG ? "--" : "", row->flag);
    value = str_take(value, 100);
    err_set(err, ST_BAD, "%s is \"%.*s\"; it must be %s", name, STR_ARG(value),
            buf_text(&expected));
    buf_deinit(&expected);
    return ST_BAD;
}

static bool text_ok(struct str value) {
    if (value.len == 0 || value.len > VALUE_BYTES_MAX) return false;
    for (size_t i = 0; i < value.len; i++)
        if ((unsigned char)value.ptr[i] < 0x20 || value.ptr[i] == 0x7F) return false;
    return true;
}

static bool in_range(const struct setting_row *row, double value) {
    return value >= row->min && value <= row->max;
}

/* ST_BAD: the row does not accept the value. */
static enum status value_read(const struct setting_row *row, struct str value, void *place) {
    int64_t whole;
    double real;
    uint64_t size;
    switch (row->kind) {
    case SETTING_BOOL:
        return read_bool(value, place) ? ST_OK : ST_BAD;
    case SETTING_INT:
        if (!str_to_i64(value, &whole) || !in_range(row, (double)whole)) return ST_BAD;
        *(int64_t *)place = whole;
        return ST_OK;
    case SETTING_REAL:
        if (!str_to_f64(value, &real) || !in_range(row, real)) return ST_BAD;
        *(double *)place = real;
        return ST_OK;
    case SETTING_SIZE:
        if (!read_size(value, &size) || !in_range(row, (double)size)) return ST_BAD;
        *(uint64_t *)place = size;
        return ST_OK;
    case SETTING_WORD:
        return word_in(str_of(row->value), value) ? text_put(place, value) : ST_BAD;
    case SETTING_TEXT:
        return text_ok(value) ? text_put(place, value) : ST_BAD;
    case SETTING_LIST:
        return text_ok(value) ? list_add(place, value) : ST_BAD;
    }
    return ST_BAD;
}

static const struct setting_row *row_find(struct str name) {
    for (uint32_t i = 0; i < ROWS; i++)
        if (str_is(name, setting_rows[i].flag)) return &setting_rows[i];
    return NULL;
}

static enum status unknown(struct str name, struct err *err) {
    const char *near = NULL;
    uint32_t best = name.len <= 3 ? 2 : 4;
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t distance = str_distance(name, str_of(setting_rows[i].flag));
        if (distance >= best) continue;
        best = distance;
        near = setting_rows[i].flag;
    }
    name = str_take(name, 100);
    if (near)
        return err_set(err, ST_BAD, "unknown setting \"%.*s\"; did you mean %s?", STR_ARG(name),
                       near);
    return err_set(err, ST_BAD, "unknown setting \"%.*s\"; \"jitney serve --help\" lists them",
                   STR_ARG(name));
}

static enum status row_set(struct settings *s, const struct setting_row *row, struct str value,
                           enum setting_origin origin, struct err *err) {
    uint8_t *held = &s->origins[row - setting_rows];
    if (origin < *held) return ST_OK;
    if (origin > *held && row->kind == SETTING_LIST) list_clear(place_of(s, row));
    *held = (uint8_t)origin;
    enum status st = value_read(row, value, place_of(s, row));
    if (st == ST_BAD) return refuse(row, value, origin, err);
    if (st == ST_FULL)
        return err_set(err, ST_BAD, "%s is given more than %d times, which is the maximum",
                       row->flag, SETTING_LIST_MAX);
    return st == ST_OK ? ST_OK : err_set(err, st, "out of memory");
}

enum status settings_set(struct settings *s, struct str name, struct str value,
                         enum setting_origin origin, struct err *err) {
    const struct setting_row *row = row_find(name);
    return row ? row_set(s, row, value, origin, err) : unknown(name, err);
}

enum setting_origin settings_origin(const struct settings *s, const char *flag) {
    const struct setting_row *row = row_find(str_of(flag));
    CHECK(row != NULL);
    return (enum setting_origin)s->origins[row - setting_rows];
}

/* --- lifecycle -------------------------------------------------------------------------------- */

enum status settings_init(struct settings *s) {
    *s = (struct settings){0};
    s->origins = mem_zalloc(ROWS);
    enum status st = s->origins ? ST_OK : ST_NOMEM;
    for (uint32_t i = 0; st == ST_OK && i < ROWS; i++) {
        const struct setting_row *row = &setting_rows[i];
        if (row->fallback) st = row_set(s, row, str_of(row->fallback), FROM_DEFAULT, NULL);
        CHECK(st != ST_BAD); /* the table's own defaults are in their ranges */
    }
    if (st != ST_OK) settings_deinit(s);
    return st;
}

void settings_deinit(struct settings *s) {
    for (uint32_t i = 0; i < ROWS; i++) value_clear(s, &setting_rows[i]);
    mem_free(s->origins);
    *s = (struct settings){0};
}

enum status settings_copy(const struct settings *s, struct settings *out) {
    TRY(settings_init(out));
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < ROWS; i++) {
        st = value_copy(&setting_rows[i], s, out);
        out->origins[i] = s->origins[i];
    }
    if (st != ST_OK) settings_deinit(out);
    return st;
}

/* --- file and environment ---------------------------------------------------------------- */

/* The text between the quotes at the start of `text`; only a comment may follow. */
static bool unquote(struct str text, struct buf *out) {
    size_t i = 1;
    for (; i < text.len && text.ptr[i] != '"'; i++) {
        if (text.ptr[i] == '\\' && ++i == text.len) return false;
        buf_put_char(out, text.ptr[i]);
    }
    if (i >= text.len) return false;
    struct str rest = str_trim(str_skip(text, i + 1));
    return rest.len == 0 || rest.ptr[0] == '#';
}

static struct str without_comment(struct str text) {
    for (size_t i = 0; i < text.len; i++) {
        bool starts = i == 0 || text.ptr[i - 1] == ' ' || text.ptr[i - 1] == '\t';
        if (starts && text.ptr[i] == '#') return str_trim(str_take(text, i));
    }
    return str_trim(text);
}

static enum status set_from_line(struct settings *s, struct str name, struct str raw,
                                 struct err *err) {
    if (str_is(name, "config"))
        return err_set(err, ST_BAD,
                       "a config file cannot name another config file; remove this line");
    if (raw.len == 0 || raw.ptr[0] != '"')
        return settings_set(s, name, without_comment(raw), FROM_FILE, err);
    struct buf value;
    buf_init(&value, VALUE_BYTES_MAX + 1);
    enum status st = ST_BAD;
    if (!unquote(raw, &value))
        err_set(err, ST_BAD, "the quoted value has no closing quote, or text follows it");
    else if (buf_status(&value) == ST_NOMEM)
        st = err_set(err, ST_NOMEM, "out of memory");
    else
        st = settings_set(s, name, buf_str(&value), FROM_FILE, err);
    buf_deinit(&value);
    return st;
}

static enum status read_line(struct settings *s, struct str line, struct err *err) {
    line = str_trim(line);
    if (line.len == 0 || line.ptr[0] == '#') return ST_OK;
    const char *equals = memchr(line.ptr, '=', line.len);
    if (!equals) return err_set(err, ST_BAD, "not a setting; expected \"name = value\"");
    size_t name_bytes = (size_t)(equals - line.ptr);
    return set_from_line(s, str_trim(str_take(line, name_bytes)),
                         str_trim(str_skip(line, name_bytes + 1)), err);
}

enum status settings_read_text(struct settings *s, struct str text, const char *name,
                               struct err *err) {
    for (uint32_t number = 1; text.len > 0; number++) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        enum status st = read_line(s, str_take(text, len), err);
        if (st != ST_OK) {
            char place[PLACE_BYTES];
            snprintf(place, sizeof(place), "%.200s:%u", name, number);
            return err_prefix(err, st, place);
        }
        text = str_skip(text, end ? len + 1 : len);
    }
    return ST_OK;
}

enum status settings_read_file(struct settings *s, const char *path, struct err *err) {
    struct buf text;
    buf_init(&text, FILE_BYTES_MAX);
    enum status st = file_read(path, &text, err);
    if (st == ST_OK) st = settings_read_text(s, buf_str(&text), path, err);
    buf_deinit(&text);
    return st;
}

static enum status set_from_env(struct settings *s, const struct setting_row *row, struct str value,
                                struct err *err) {
    if (row->kind != SETTING_LIST) return row_set(s, row, value, FROM_ENV, err);
    while (value.len > 0) {
        const char *comma = memchr(value.ptr, ',', value.len);
        size_t len = comma ? (size_t)(comma - value.ptr) : value.len;
        struct str item = str_trim(str_take(value, len));
        if (item.len > 0) TRY(row_set(s, row, item, FROM_ENV, err));
        value = str_skip(value, comma ? len + 1 : len);
    }
    return ST_OK;
}

enum status settings_read_env(struct settings *s, settings_look_up_fn *look_up, struct err *err) {
    char name[SETTING_ENV_BYTES];
    for (uint32_t i = 0; i < ROWS; i++) {
        settings_env_name(setting_rows[i].flag, name);
        const char *value = look_up(name);
        if (value) TRY(set_from_env(s, &setting_rows[i], str_of(value), err));
    }
    return ST_OK;
}

/* --- reload ------------------------------------------------------------------------------- */

/* `fresh` has the values of the file; restore those that a reload cannot change. */
static enum status settle(const struct settings *s, const struct setting_row *row,
                          struct settings *fresh, struct buf *restart) {
    uint32_t i = (uint32_t)(row - setting_rows);
    bool decided_above = s->origins[i] > FROM_FILE;
    if (!decided_above && row->reloads) return ST_OK;
    if (!decided_above && !values_equal(row, s, fresh))
        buf_printf(restart, "%s%s", restart->len ? ", " : "", row->flag);
    fresh->origins[i] = s->origins[i];
    return value_copy(row, s, fresh);
}

enum status settings_reload(const struct settings *s, struct settings *out, struct buf *restart,
                            struct err *err) {
    struct settings fresh;
    enum status st = settings_init(&fresh);
    if (st != ST_OK) return err_set(err, st, "out of memory");
    if (s->config) st = settings_read_file(&fresh, s->config, err);
    for (uint32_t i = 0; st == ST_OK && i < ROWS; i++) {
        st = settle(s, &setting_rows[i], &fresh, restart);
        if (st != ST_OK) err_set(err, st, "out of memory");
    }
    if (st == ST_OK)
        *out = fresh;
    else
        settings_deinit(&fresh);
    return st;
}

/* --- printing ---------------------------------------------------------------------------- */

static void put_text(struct buf *out, struct str text) {
    bool plain = text.len > 0 && text.ptr[0] != '"' && !memchr(text.ptr, '#', text.len) &&
                 str_trim(text).len == text.len;
    if (plain) {
        buf_put_str(out, text);
        return;
    }
    buf_put_char(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '"' || text.ptr[i] == '\\') buf_put_char(out, '\\');
        buf_put_char(out, text.ptr[i]);
    }
    buf_put_char(out, '"');
}

static void put_real(struct buf *out, double value) {
    char text[32];
    double back;
    snprintf(text, sizeof(text), "%.15g", value);
    if (!str_to_f64(str_of(text), &back) || back != value)
        snprintf(text, sizeof(text), "%.17g", value);
    buf_put_text(out, text);
}

/* Any kind but LIST; false: no value. */
static bool put_value(struct buf *out, const struct setting_row *row, const void *place) {
    const char *text;
    switch (row->kind) {
    case SETTING_BOOL:
        buf_put_text(out, *(const bool *)place ? "true" : "false");
        return true;
    case SETTING_INT:
        buf_printf(out, "%lld", (long long)*(const int64_t *)place);
        return true;
    case SETTING_REAL:
        put_real(out, *(const double *)place);
        return true;
    case SETTING_SIZE:
        put_size(out, *(const uint64_t *)place);
        return true;
    case SETTING_TEXT:
    case SETTING_WORD:
        text = *(char *const *)place;
        if (text) put_text(out, str_of(text));
        return text != NULL;
    case SETTING_LIST:
        break;
    }
    return false;
}

static void put_line(struct buf *out, const char *flag, struct str value, const char *origin) {
    size_t width = strlen(flag) + 3 + value.len;
    buf_printf(out, "%s = ", flag);
    buf_put_str(out, value);
    buf_printf(out, "%*s# %s\n", width < 38 ? (int)(40 - width) : 2, "", origin);
}

static void print_row(const struct settings *s, uint32_t i, struct buf *out) {
    static const char *const origins[] = {"default", "file", "environment", "flag"};
    const struct setting_row *row = &setting_rows[i];
    const char *origin = origins[s->origins[i]];
    const struct setting_list *list = row->kind == SETTING_LIST ? place_of(s, row) : NULL;
    struct buf value;
    buf_init(&value, 3 * VALUE_BYTES_MAX);
    bool has_value = !list && put_value(&value, row, place_of(s, row));
    /* A config file cannot name itself. */
    bool is_comment = strcmp(row->flag, "config") == 0 || !(has_value || (list && list->count));
    if (is_comment) buf_put_text(out, "# ");
    if (!list || list->count == 0) put_line(out, row->flag, buf_str(&value), origin);
    for (uint32_t k = 0; list && k < list->count; k++) {
        buf_clear(&value);
        put_text(&value, str_of(list->items[k]));
        put_line(out, row->flag, buf_str(&value), origin);
    }
    if (buf_status(&value) != ST_OK) out->status = ST_NOMEM;
    buf_deinit(&value);
}

void settings_print(const struct settings *s, struct buf *out) {
    for (uint32_t i = 0; i < ROWS; i++) {
        const char *title = settings_section(i);
        if (title) buf_printf(out, "%s# %s\n", i ? "\n" : "", title);
        print_row(s, i, out);
    }
}
