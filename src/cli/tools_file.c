/* cli/tools_file.c - see cli/tools_file.h. */
#include "cli/tools_file.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cli_int.h"

enum { NAME_BYTES_MAX = 64, WIRE_BYTES_MAX = 4 << 20 };

struct tool_set {
    struct json *doc; /* the file; the texts of tools are in it */
    struct buf wire;
    uint32_t count;
    struct tool tools[TOOLS_MAX];
};

static const struct json_limits limits = {
    .bytes_max = TOOLS_FILE_BYTES_MAX, .depth_max = 64, .values_max = 100000, .unique_keys = true};

static const char *kind_name(const struct json *v) {
    static const char *const names[] = {
        [JS_NONE] = "nothing", [JS_NULL] = "null",     [JS_BOOL] = "true or false",
        [JS_INT] = "a number", [JS_REAL] = "a number", [JS_TEXT] = "a text",
        [JS_LIST] = "a list",  [JS_MAP] = "an object",
    };
    return names[json_kind(v)];
}

static enum status refuse_field(const struct json *tool, size_t i, struct str key,
                                struct err *err) {
    static const char *const known[] = {"name", "description", "parameters", "command"};
    const char *near = NULL;
    uint32_t best = UINT32_MAX;
    for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
        if (str_is(key, known[k])) return ST_OK;
        if (word_is_near(key, known[k], &best)) near = known[k];
    }
    if (near)
        return err_set(err, ST_BAD, "[%zu]: unknown field \"%.*s\"; did you mean \"%s\"?", i,
                       STR_ARG(key), near);
    return err_set(err, ST_BAD,
                   "[%zu]: unknown field \"%.*s\"; a tool has name, description, parameters and "
                   "command%s",
                   i, STR_ARG(key),
                   json_get(tool, "function") ? ", without \"type\" and \"function\" around them"
                                              : "");
}

static enum status check_fields(const struct json *tool, size_t i, struct err *err) {
    if (json_kind(tool) != JS_MAP)
        return err_set(err, ST_BAD,
                       "[%zu]: expected an object with name, description, parameters and command, "
                       "found %s",
                       i, kind_name(tool));
    for (struct json_iter it = json_iter_first(tool); json_iter_ok(&it); json_iter_next(&it))
        TRY(refuse_field(tool, i, it.key, err));
    const struct json *description = json_get(tool, "description");
    const struct json *parameters = json_get(tool, "parameters");
    if (description && json_kind(description) != JS_TEXT)
        return err_set(err, ST_BAD, "[%zu].description: expected a text, found %s", i,
                       kind_name(description));
    if (parameters && json_kind(parameters) != JS_MAP)
        return err_set(err, ST_BAD,
                       "[%zu].parameters: expected a JSON Schema, such as {\"type\": \"object\", "
                       "\"properties\": {}}, found %s",
                       i, kind_name(parameters));
    return ST_OK;
}

static bool is_name(struct str name) {
    if (name.len == 0 || name.len > NAME_BYTES_MAX) return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && c != '_' && c != '-') return false;
    }
    return true;
}

static enum status read_name(const struct tool_set *s, const struct json *tool, size_t i,
                             struct str *out, struct err *err) {
    const struct json *name = json_get(tool, "name");
    if (json_kind(name) != JS_TEXT)
        return err_set(err, ST_BAD, "[%zu].name: expected a text, found %s; add \"name\": \"...\"",
                       i, kind_name(name));
    *out = json_str(name);
    if (!is_name(*out))
        return err_set(err, ST_BAD,
                       "[%zu].name: invalid name \"%.*s\"; expected 1 to %d letters, digits, _ or "
                       "-",
                       i, STR_ARG(*out), NAME_BYTES_MAX);
    for (uint32_t k = 0; k < s->count; k++)
        if (str_eq(s->tools[k].name, *out))
            return err_set(err, ST_BAD,
                           "[%zu].name: duplicate name \"%.*s\"; [%u] has it already; rename or "
                           "remove one",
                           i, STR_ARG(*out), k);
    return ST_OK;
}

static enum status read_command(const struct json *tool, size_t i, struct tool *out,
                                struct err *err) {
    const struct json *command = json_get(tool, "command");
    size_t count = json_count(command);
    if (json_kind(command) != JS_LIST || count == 0)
        return err_set(err, ST_BAD,
                       "[%zu].command: expected the program and its arguments as a list of texts, "
                       "such as [\"date\", \"-u\"], found %s",
                       i, json_kind(command) == JS_LIST ? "an empty list" : kind_name(command));
    if (count > TOOL_WORDS_MAX)
        return err_set(err, ST_BAD, "[%zu].command: %zu words; expected at most %d", i, count,
                       TOOL_WORDS_MAX);
    out->command = mem_zalloc_array(count + 1, sizeof(out->command[0]));
    if (!out->command) return err_set(err, ST_NOMEM, "out of memory");
    for (size_t k = 0; k < count; k++) {
        const struct json *word = json_at(command, k);
        struct str text = json_str(word);
        if (json_kind(word) != JS_TEXT || (k == 0 && text.len == 0))
            return err_set(err, ST_BAD, "[%zu].command[%zu]: expected %s, found %s", i, k,
                           k ? "a text" : "the name of a program",
                           json_kind(word) == JS_TEXT ? "an empty text" : kind_name(word));
        if (memchr(text.ptr, 0, text.len))
            return err_set(err, ST_BAD,
                           "[%zu].command[%zu]: found a NUL character; a command cannot have one",
                           i, k);
        out->command[k] = mem_dup(text.ptr, text.len);
        if (!out->command[k]) return err_set(err, ST_NOMEM, "out of memory");
    }
    return ST_OK;
}

static void put_wire(struct tool_set *s, const struct json *tool) {
    static const char *const fields[] = {"description", "parameters"};
    buf_put_text(&s->wire, s->count ? "," : "[");
    buf_put_text(&s->wire, "{\"type\":\"function\",\"function\":{\"name\":");
    json_put(json_get(tool, "name"), &s->wire);
    for (size_t k = 0; k < sizeof(fields) / sizeof(fields[0]); k++) {
        const struct json *value = json_get(tool, fields[k]);
        if (!value) continue;
        buf_printf(&s->wire, ",\"%s\":", fields[k]);
        json_put(value, &s->wire);
    }
    buf_put_text(&s->wire, "}}");
}

static enum status read_tools(struct tool_set *s, struct err *err) {
    size_t count = json_count(s->doc);
    if (json_kind(s->doc) != JS_LIST)
        return err_set(err, ST_BAD, "expected a list of tools, [{\"name\": ...}], found %s",
                       kind_name(s->doc));
    if (count == 0 || count > TOOLS_MAX)
        return err_set(err, ST_BAD, "expected 1 to %d tools, found %zu", TOOLS_MAX, count);
    for (size_t i = 0; i < count; i++) {
        const struct json *tool = json_at(s->doc, i);
        struct tool *t = &s->tools[s->count];
        TRY(check_fields(tool, i, err));
        TRY(read_name(s, tool, i, &t->name, err));
        put_wire(s, tool);
        s->count++; /* so that a command that is read in part is freed */
        TRY(read_command(tool, i, t, err));
    }
    buf_put_char(&s->wire, ']');
    return buf_status(&s->wire) == ST_OK ? ST_OK : err_set(err, ST_NOMEM, "out of memory");
}

enum status tools_file_load(const char *path, struct tool_set **out, struct err *err) {
    struct tool_set *s = mem_zalloc(sizeof(*s));
    if (!s) return err_set(err, ST_NOMEM, "out of memory");
    struct buf text;
    buf_init(&text, TOOLS_FILE_BYTES_MAX);
    buf_init(&s->wire, WIRE_BYTES_MAX);
    enum status st = file_read(path, &text, err);
    if (st == ST_OK) {
        st = json_parse(buf_str(&text), &limits, &s->doc, err);
        if (st == ST_OK) st = read_tools(s, err);
        if (st != ST_OK) err_prefix(err, st, path);
    }
    buf_deinit(&text);
    if (st != ST_OK) {
        tool_set_destroy(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void tool_set_destroy(struct tool_set *s) {
    if (!s) return;
    for (uint32_t i = 0; i < s->count; i++) {
        char **command = s->tools[i].command;
        for (size_t k = 0; command && command[k]; k++) mem_free(command[k]);
        mem_free(command);
    }
    buf_deinit(&s->wire);
    json_destroy(s->doc);
    mem_free(s);
}

struct tool *tool_set_find(struct tool_set *s, struct str name) {
    for (uint32_t i = 0; i < s->count; i++)
        if (str_eq(s->tools[i].name, name)) return &s->tools[i];
    return NULL;
}

uint32_t tool_set_count(const struct tool_set *s) { return s->count; }

const struct tool *tool_set_at(const struct tool_set *s, uint32_t i) {
    return i < s->count ? &s->tools[i] : NULL;
}

struct str tool_set_json(const struct tool_set *s) {
    return buf_str(&s->wire);
}
