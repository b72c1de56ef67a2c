/* cli/cli.h - the frame of the program: commands, their flags, and how a run ends.
 *
 * A command is a const table: its name, its flags and one function. Parsing, --help, the
 * "did you mean", the exit code and the one line that a failure prints all follow from the
 * table; docs/jitney.1 and docs/cli.md are held against it by a test. To add a command: one
 * file cmd_NAME.c, one line in command_list.c.
 *
 *     main -> cli_main -> args parsed by the table -> command->run(args, err) -> exit code
 *
 * A run says what went wrong in `err` and returns a code; only cli_main prints it, as
 * "jitney: SENTENCE". A failure with an empty `err` is silent (the reader of a pipe is gone).
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

/* The codes of sysexits.h, which scripts rely on. */
enum exit_code {
    EXIT_FINE = 0,
    EXIT_USAGE = 64,       /* a flag or operand is wrong             */
    EXIT_BAD = 65,         /* the input data is damaged              */
    EXIT_MISSING = 66,     /* an input file or model is not there    */
    EXIT_UNAVAILABLE = 69, /* a device, a service, the memory        */
    EXIT_BUG = 70,         /* jitney's own fault                     */
    EXIT_CREATE = 73,      /* an output cannot be created            */
    EXIT_IO = 74,          /* reading or writing failed              */
    EXIT_LATER = 75,       /* something is full; try again later     */
    EXIT_CONFIG = 78,      /* a config file or environment is wrong */
    EXIT_SIGINT = 130,     /* stopped by Ctrl-C, as shells count it  */
};
enum exit_code exit_of(enum status st);

/* Fill `err` and give EXIT_USAGE; for what the table alone cannot refuse. */
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
    const char *value;    /* what help calls the value: "N"; NULL for BOOL     */
    const char *fallback; /* value if not given, as text; NULL: none           */
    double min, max;      /* INT and REAL only, both included                  */
    bool repeats;
    const char *help; /* one sentence                                      */
    /* WORD only, optional: whether this machine has what the word names. */
    enum status (*check)(const char *value, struct err *err);
};

struct args; /* opaque: what the user gave, checked against the table */

enum { FLAG_GROUPS_MAX = 5 };

struct command {
    const char *name;
    const char *summary;                        /* one line, no full stop                      */
    const char *operands;                       /* for the usage line: "[TEXT...]"; may be ""  */
    const char *about;                          /* a paragraph or two for --help and man page  */
    const struct flag *groups[FLAG_GROUPS_MAX]; /* tables of flags, own first; NULL-terminated */
    /* Optional: the title that help prints before the i-th flag; NULL: none. */
    const char *(*section)(uint32_t i);
    bool takes_model;      /* -m MODEL or the first operand, see args_model()               */
    bool model_optional;   /* run without one is fine; otherwise the frame refuses          */
    uint32_t operands_max; /* besides the model                                             */
    enum exit_code (*run)(const struct args *args, struct err *err);
};

/* NULL-terminated, in the order of --help; command_list.c holds it. */
extern const struct command *const commands[];
const struct command *command_find(const char *name); /* NULL if unknown */

/* The whole program. */
int cli_main(int argc, char **argv);

/* What the user gave. `name` is a flag of the command's table, of that kind (CHECKed). */
bool args_given(const struct args *a, const char *name); /* on the command line, not by default */
bool args_on(const struct args *a, const char *name);
int64_t args_int(const struct args *a, const char *name);
double args_real(const struct args *a, const char *name);
const char *args_text(const struct args *a, const char *name); /* NULL: not given, no fallback */
/* What was typed for a flag of any kind that takes a value; NULL: not given. */
const char *args_typed(const struct args *a, const char *name);
uint32_t args_count(const struct args *a, const char *name); /* of a flag that repeats */
const char *args_text_at(const struct args *a, const char *name, uint32_t i);

/* The operands without the model. */
uint32_t args_operands(const struct args *a);
const char *args_operand(const struct args *a, uint32_t i);

/* MODEL as given by -m or first operand: a name, a file or a folder; NULL only if
 * it is optional and neither was. */
const char *args_model(const struct args *a);

/* Parse what follows the command's name. On EXIT_USAGE `err` says what and what was meant. */
enum exit_code args_parse(const struct command *c, int argc, char **argv, struct args **out,
                          struct err *err);
void args_destroy(struct args *a); /* NULL is fine */

/* Standard output, checked. EPIPE gives ST_IO and leaves `err` empty. */
enum status out_write(struct str bytes, struct err *err);
enum status out_flush(struct err *err);

#endif
