/* cli/serve_check.h - checks of a server's settings before it starts.
 *
 * The table checks the range of each setting. These checks are about settings together, and about
 * the files, keys, certificates, kernels and models that they name. The code tells the origin of a
 * wrong value: EXIT_USAGE for a flag, EXIT_CONFIG for the file or the environment, EXIT_MISSING for
 * a model.
 *
 * Thread: the main thread.
 */
#ifndef CLI_SERVE_CHECK_H
#define CLI_SERVE_CHECK_H

#include "cli/cli.h"

struct settings;

/* All checks that need not open a model; the models must exist. */
enum exit_code serve_check(const struct settings *s, struct err *err);

/* Of these, the checks of settings that say how models are run (config/settings_engine.def). */
enum exit_code serve_check_engine(const struct settings *s, struct err *err);

/* Open every model's headers and tokenizer as well, and those of a draft model. */
enum exit_code serve_check_models(const struct settings *s, struct err *err);

#endif
