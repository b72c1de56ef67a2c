/* cli/cli_int.h - shared by args.c, help.c and cli.c. */
#ifndef CLI_CLI_INT_H
#define CLI_CLI_INT_H

#include "cli/cli.h"

struct buf;

/* The i-th flag of a command: the model's, those of its groups, --help; NULL past the end. */
const struct flag *flag_at(const struct command *c, uint32_t i);

bool args_want_help(const struct args *a);

/* Whether `word` is probably a misspelt `candidate`, with a smaller distance than *best; then *best
 * becomes that distance. Start with UINT32_MAX. */
bool word_is_near(struct str word, const char *candidate, uint32_t *best);

void help_put_program(struct buf *out);
void help_put_command(const struct command *c, struct buf *out);

#endif
