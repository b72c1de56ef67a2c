/* cli/cli.c - from argv to an exit code. See cli/cli.h. */
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli_int.h"
#include "cli/terminal_text.h"

enum { HELP_BYTES_MAX = 1 << 16, TERMINAL_BYTES_MAX = 1 << 30, MESSAGE_BYTES = 1024 };

enum exit_code exit_of(enum status st) {
    switch (st) {
    case ST_OK:
        return EXIT_FINE;
    case ST_BAD:
        return EXIT_BAD;
    case ST_MISSING:
        return EXIT_MISSING;
    case ST_NOMEM:
    case ST_UNAVAILABLE:
    case ST_DEVICE:
        return EXIT_UNAVAILABLE;
    case ST_CREATE:
        return EXIT_CREATE;
    case ST_IO:
        return EXIT_IO;
    case ST_FULL:
        return EXIT_LATER;
    case ST_CANCELLED:
        return EXIT_SIGINT;
    }
    return EXIT_BUG;
}

enum exit_code usage_set(struct err *err, const char *fmt, ...) {
    char text[ERR_TEXT_BYTES];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof(text), fmt, list);
    va_end(list);
    err_set(err, ST_BAD, "%s", text);
    return EXIT_USAGE;
}

const struct command *command_find(const char *name) {
    for (const struct command *const *c = commands; *c; c++)
        if (strcmp((*c)->name, name) == 0) return *c;
    return NULL;
}

static enum status out_failed(struct err *err) {
    if (errno == EPIPE) return ST_IO; /* the reader of the pipe has closed it: no message */
    return err_set(err, ST_IO, "standard output: %s", strerror(errno));
}

static enum status write_bytes(struct str bytes, struct err *err) {
    if (bytes.len > 0 && fwrite(bytes.ptr, 1, bytes.len, stdout) != bytes.len)
        return out_failed(err);
    return ST_OK;
}

enum status out_write(struct str bytes, struct err *err) {
    if (!isatty(STDOUT_FILENO)) return write_bytes(bytes, err);
    struct buf shown;
    buf_init(&shown, TERMINAL_BYTES_MAX);
    terminal_text_put(&shown, bytes);
    enum status st = buf_status(&shown);
    st = st == ST_OK ? write_bytes(buf_str(&shown), err) : err_set(err, st, "out of memory");
    buf_deinit(&shown);
    return st;
}

/* Each piece ends the dimming that it began, so that the terminal is left as it was. */
enum status out_write_dim(struct str bytes, struct err *err) {
    TRY(write_bytes(STR("\033[2m"), err));
    TRY(out_write(bytes, err));
    return write_bytes(STR("\033[22m"), err);
}

void note_write(const char *text) {
    struct buf shown;
    buf_init(&shown, TERMINAL_BYTES_MAX);
    if (isatty(STDERR_FILENO))
        terminal_text_put(&shown, str_of(text));
    else
        buf_put_text(&shown, text);
    fprintf(stderr, "%s\n", buf_text(&shown));
    buf_deinit(&shown);
}

enum status out_flush(struct err *err) { return fflush(stdout) == 0 ? ST_OK : out_failed(err); }

static enum exit_code show(struct buf *text, struct err *err) {
    enum status st = buf_status(text);
    if (st == ST_OK) st = out_write(buf_str(text), err);
    buf_deinit(text);
    return exit_of(st);
}

static enum exit_code show_command_help(const struct command *c, struct err *err) {
    struct buf text;
    buf_init(&text, HELP_BYTES_MAX);
    help_put_command(c, &text);
    return show(&text, err);
}

static enum exit_code show_program_help(struct err *err) {
    struct buf text;
    buf_init(&text, HELP_BYTES_MAX);
    help_put_program(&text);
    return show(&text, err);
}

static enum exit_code unknown_command(const char *name, struct err *err) {
    const char *near = NULL;
    uint32_t best = UINT32_MAX;
    const char *flags[] = {"--help", "--version", "help", NULL};
    for (const struct command *const *c = commands; *c; c++)
        if (word_is_near(str_of(name), (*c)->name, &best)) near = (*c)->name;
    for (const char **f = flags; *f; f++)
        if (word_is_near(str_of(name), *f, &best)) near = *f;
    const char *what = name[0] == '-' ? "flag" : "command";
    if (near) return usage_set(err, "unknown %s \"%s\"; did you mean \"%s\"?", what, name, near);
    return usage_set(err, "unknown %s \"%s\"; \"jitney --help\" lists the commands", what, name);
}

static enum exit_code run_command(const struct command *c, int argc, char **argv, struct err *err) {
    struct args *args = NULL;
    enum exit_code code = args_parse(c, argc, argv, &args, err);
    if (code != EXIT_FINE) return code;
    code = args_want_help(args) ? show_command_help(c, err) : c->run(args, err);
    args_destroy(args);
    return code;
}

static bool is_one_of(const char *word, const char *a, const char *b) {
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

static enum exit_code dispatch(int argc, char **argv, struct err *err) {
    if (argc < 2)
        return usage_set(err, "no command; \"jitney --help\" lists them. To begin: \"jitney pull "
                              "smollm2\", then \"jitney chat smollm2\"");
    const char *word = argv[1];
    if (is_one_of(word, "--version", "-V"))
        return exit_of(out_write(STR("jitney " JITNEY_VERSION "\n"), err));
    if (is_one_of(word, "--help", "-h") || (strcmp(word, "help") == 0 && argc == 2))
        return show_program_help(err);
    bool wants_help = strcmp(word, "help") == 0;
    if (wants_help) word = argv[2];
    const struct command *c = command_find(word);
    if (!c) return unknown_command(word, err);
    return wants_help ? show_command_help(c, err) : run_command(c, argc - 2, argv + 2, err);
}

/* A failed CHECK has printed its message; the exit code then says "internal error". */
static void end_as_bug(int signal_number) {
    (void)signal_number;
    _exit(EXIT_BUG);
}

int cli_main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* write() reports a closed pipe instead */
    signal(SIGABRT, end_as_bug);
    struct err err = {0};
    enum exit_code code = dispatch(argc, argv, &err);
    struct err flush_err = {0};
    enum status flushed = out_flush(&flush_err);
    if (code == EXIT_FINE && flushed != ST_OK) {
        code = exit_of(flushed);
        err = flush_err;
    }
    if (code != EXIT_FINE && err.text[0]) {
        char message[MESSAGE_BYTES];
        snprintf(message, sizeof(message), "jitney: %s", err.text);
        note_write(message);
    }
    return (int)code;
}
