/* cli/cli.h - the command line: commands, their flags, their exit codes.
 *
 * A command is a const table: its name, its flags and one function. Parsing, --help, suggestions
 * for misspelt words, the exit code and the error message follow from the table;
 * tools/make_cli_docs.py makes docs/jitney.1 and docs/cli.md from it. To add a command: one file
 * cmd_NAME.c, one line in command_list.c.
 *
 *     main -> cli_main -> args parsed by the table -> command->run(args, err) -> exit code
 *
 * A command writes the error message to `err` and returns a code; only cli_main prints it, as
 * "jitney: MESSAGE". A failure with an empty `err` is silent (the reader has closed the pipe).
 *
 * Thread: the main thread. Memory: args are borrowed from argv and live until run returns.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

/* The codes of sysexits.h, which scripts rely on, and 1 as grep uses it. */
enum exit_code {
    EXIT_FINE = 0,
    EXIT_REJECTED = 1,     /* the answer to the question is no        */
    EXIT_USAGE = 64,       /* a flag or argument is wrong            */
    EXIT_BAD = 65,         /* the input data is damaged              */
    EXIT_MISSING = 66,     /* an input file or model does not exist  */
    EXIT_UNAVAILABLE = 69, /* no device, service or memory           */
    EXIT_BUG = 70,         /* an internal error of jitney            */
    EXIT_CREATE = 73,      /* an output cannot be created            */
    EXIT_IO = 74,          /* reading or writing failed              */
    EXIT_LATER = 75,       /* something is full; try again later     */
    EXIT_CONFIG = 78,      /* a config file or environment is wrong */
    EXIT_SIGINT = 130,     /* stopped by Ctrl-C, as shells count it  */
};
enum exit_code exit_of(enum status st);

/* Fill `err` and return EXIT_USAGE; for checks that the table cannot express. */
enum exit_code usage_set(struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

enum flag_kind {
    FLAG_BOOL, /* takes no value                           */
    FLAG_INT,  /* a whole number from min to max           */
    FLAG_REAL, /* a finite number from min to max          */
    FLAG_TEXT, /* any text                                 */
    FLAG_WORD, /* one of the words in `value`: "f16|f32"   */
};

/* One row of a command's table. Every --name may be written --name VALUE or --name=VALUE; a
 * letter -n VALUE or -nVALUE. A flag given twice keeps its last value unless `repeats`. */
struct flag {
    const char *name; /* long name without dashes; NULL ends a table       */
    char letter;      /* short name, 0 for none                            */
    enum flag_kind kind;
    const char *value;    /* name of the value in help: "N"; NULL for BOOL     */
    const char *fallback; /* default, as text; NULL: no default                */
    double min, max;      /* INT and REAL only, both included                  */
    bool repeats;
    const char *help; /* one sentence                                      */
    /* WORD only, may be NULL: whether this machine supports the value. */
    enum status (*check)(const char *value, struct err *err);
};

struct args; /* opaque: a parsed command line */

enum { FLAG_GROUPS_MAX = 6 };

struct command {
    const char *name;
    const char *summary;                        /* one line, no full stop                      */
    const char *operands;                       /* for the usage line: "[TEXT...]"; may be ""  */
    const char *about;                          /* a paragraph or two for --help and man page  */
    const struct flag *groups[FLAG_GROUPS_MAX]; /* tables of flags, own first; NULL-terminated */
    /* May be NULL: the title that help prints before flag i; NULL: no title. */
    const char *(*section)(uint32_t i);
    bool takes_model;      /* -m MODEL or the first operand, see args_model()               */
    bool model_optional;   /* the command runs without a model, too                         */
    bool model_by_flag;    /* the model is given with -m only                               */
    uint32_t operands_max; /* besides the model                                             */
    enum exit_code (*run)(const struct args *args, struct err *err);
};

/* NULL-terminated, in the order of --help; command_list.c holds it. */
extern const struct command *const commands[];
const struct command *command_find(const char *name); /* NULL if unknown */

/* The whole program. */
int cli_main(int argc, char **argv);

/* Values of flags. `name` is a flag of that kind in the command's table (CHECKed). */
bool args_given(const struct args *a, const char *name); /* on the command line */
bool args_on(const struct args *a, const char *name);
int64_t args_int(const struct args *a, const char *name);
double args_real(const struct args *a, const char *name);
const char *args_text(const struct args *a, const char *name); /* NULL: not given, no fallback */
/* The text of the value on the command line, for a flag of any kind but BOOL; NULL: not given. */
const char *args_typed(const struct args *a, const char *name);
uint32_t args_count(const struct args *a, const char *name); /* of a flag that repeats */
const char *args_text_at(const struct args *a, const char *name, uint32_t i);

/* The operands without the model. */
uint32_t args_operands(const struct args *a);
const char *args_operand(const struct args *a, uint32_t i);

/* MODEL from -m or the first operand: a name, a file or a folder; NULL: not given, and optional. */
const char *args_model(const struct args *a);

/* Parse the words after the command's name. EXIT_USAGE: `err` names the word at fault. */
enum exit_code args_parse(const struct command *c, int argc, char **argv, struct args **out,
                          struct err *err);
void args_destroy(struct args *a); /* NULL is fine */

/* Standard output, checked. EPIPE gives ST_IO and leaves `err` empty. Control characters of the
 * text do not reach a terminal, see cli/terminal_text.h. */
enum status out_write(struct str bytes, struct err *err);
/* The same in dimmed letters, for a terminal. */
enum status out_write_dim(struct str bytes, struct err *err);
enum status out_flush(struct err *err);

/* One line to standard error, where control characters do not reach a terminal either. */
void note_write(const char *text);

#endif
