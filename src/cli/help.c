/* cli/help.c - what --help prints, made from the tables. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/cli_int.h"

enum { HELP_COLUMNS = 80, FLAG_COLUMN = 26 };

/* Limits beyond this mean "any number" and are not shown. */
static const double WHOLE_MAX = 1e15;

/* Append `text` broken at blanks, from column `at`, later lines indented by `indent`. */
static void put_wrapped(struct buf *out, const char *text, size_t at, size_t indent) {
    size_t column = at;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, " \n");
        if (column > indent && column + 1 + len > HELP_COLUMNS) {
            buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            buf_put_char(out, ' ');
            column++;
        }
        buf_put(out, p, len);
        column += len;
        p += len;
        if (*p == '\n') {
            buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
            p++;
        }
        while (*p == ' ') p++;
    }
    buf_put_char(out, '\n');
}

/* The help of a flag, followed by its default, its range and whether it may be repeated. */
static void put_flag_facts(struct buf *out, const struct flag *f) {
    buf_put_text(out, f->help);
    bool ranged = f->kind == FLAG_INT || f->kind == FLAG_REAL;
    if (f->fallback) buf_printf(out, " Default: %s.", f->fallback);
    if (ranged && f->max < WHOLE_MAX) buf_printf(out, " Range: %.15g to %.15g.", f->min, f->max);
    if (f->repeats) buf_put_text(out, " May be repeated.");
}

/* The value of a flag. A long list of words goes on in the next line, below its first word. Returns
 * the length of the last line, which begins at `line`. */
static size_t put_value(struct buf *out, size_t line, const char *value) {
    const size_t indent = out->len - line;
    while (value && *value) {
        size_t len = strcspn(value, "|");
        len += value[len] == '|';
        if (out->len - line + len > HELP_COLUMNS) {
            buf_put_char(out, '\n');
            line = out->len;
            buf_printf(out, "%*s", (int)indent, "");
        }
        buf_put(out, value, len);
        value += len;
    }
    return out->len - line;
}

static void put_flag(struct buf *out, const struct flag *f) {
    char letter[8] = "   ";
    size_t begin = out->len;
    if (f->letter) snprintf(letter, sizeof(letter), "-%c,", f->letter);
    buf_printf(out, "  %s --%s%s", letter, f->name, f->value ? " " : "");
    size_t len = put_value(out, begin, f->value);
    if (len + 2 > FLAG_COLUMN) {
        buf_put_char(out, '\n');
        len = 0;
    }
    buf_printf(out, "%*s", (int)(FLAG_COLUMN - len), "");
    struct buf facts;
    buf_init(&facts, 4096);
    put_flag_facts(&facts, f);
    put_wrapped(out, buf_text(&facts), FLAG_COLUMN, FLAG_COLUMN);
    buf_deinit(&facts);
}

static void put_usage(struct buf *out, const struct command *c) {
    buf_printf(out, "usage: jitney %s", c->name);
    if (c->takes_model) buf_put_text(out, c->model_optional ? " [-m MODEL]" : " -m MODEL");
    if (c->operands[0]) buf_printf(out, " %s", c->operands);
    buf_put_text(out, " [flags]\n\n");
}

void help_put_command(const struct command *c, struct buf *out) {
    put_usage(out, c);
    put_wrapped(out, c->about, 0, 0);
    buf_put_text(out, "\nflags:\n");
    const struct flag *f;
    for (uint32_t i = 0; (f = flag_at(c, i)); i++) {
        const char *title = c->section ? c->section(i) : NULL;
        if (title) buf_printf(out, "\n%s:\n", title);
        put_flag(out, f);
    }
}

void help_put_program(struct buf *out) {
    buf_put_text(out, "usage: jitney COMMAND [flags]\n\n"
                      "Runs and serves open-weight language models.\n\ncommands:\n");
    for (const struct command *const *c = commands; *c; c++)
        buf_printf(out, "  %-12s %s\n", (*c)->name, (*c)->summary);
    buf_put_text(out, "\nother flags:\n"
                      "  -h, --help    Show this help and exit.\n"
                      "  -V, --version Show the version and exit.\n"
                      "\n\"jitney COMMAND --help\" explains a command. To begin:\n\n"
                      "  jitney pull smollm2\n"
                      "  jitney chat smollm2\n");
}
