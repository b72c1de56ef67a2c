/* cli/setting_args.h - flags that are rows of config/settings.def, and their values as settings.
 *
 * Lifetime: the tables are static. Thread: the main thread.
 */
#ifndef CLI_SETTING_ARGS_H
#define CLI_SETTING_ARGS_H

#include "base/status.h"
#include "cli/cli.h"
#include "config/settings.h"

/* The kind of a row as that of a flag. The command line passes a size on as text, which
 * config/settings.c parses. */
enum {
    FLAG_OF_BOOL = FLAG_BOOL,
    FLAG_OF_INT = FLAG_INT,
    FLAG_OF_REAL = FLAG_REAL,
    FLAG_OF_TEXT = FLAG_TEXT,
    FLAG_OF_WORD = FLAG_WORD,
    FLAG_OF_SIZE = FLAG_TEXT,
    FLAG_OF_LIST = FLAG_TEXT,
};

/* A row of the table as a struct flag: #define SETTING SETTING_FLAG. */
#define SETTING_FLAG(field, kind, letter, flag, value, fallback, min, max, reloads, help)          \
    {flag, letter, (enum flag_kind)FLAG_OF_##kind, value, fallback,                                \
     min,  max,    SETTING_##kind == SETTING_LIST, help,  NULL},

extern const struct flag flags_settings_engine[]; /* config/settings_engine.def */

/* Put the flags that are on the command line into the settings. ST_BAD: a value is out of
 * range. */
enum status setting_args_read(const struct args *args, const struct flag *flags, struct settings *s,
                              struct err *err);

#endif
