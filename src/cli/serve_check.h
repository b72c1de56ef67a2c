/* cli/serve_check.h - what is wrong with the settings of a server, said before it starts.
 *
 * The table knows each setting's range; this knows what they mean together and what they name:
 * files, keys, certificates, kernels, models. The code says whose fault it is: EXIT_USAGE if a flag
 * gave it, EXIT_CONFIG if the file or the environment did, EXIT_MISSING for a model.
 *
 * Thread: the main thread.
 */
#ifndef CLI_SERVE_CHECK_H
#define CLI_SERVE_CHECK_H

#include "cli/cli.h"

struct settings;

/* Everything that can be seen without opening a model; models must be there. */
enum exit_code serve_check(const struct settings *s, struct err *err);

/* Open every model's headers and tokenizer as well. */
enum exit_code serve_check_models(const struct settings *s, struct err *err);

#endif
