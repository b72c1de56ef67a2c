/* config/settings.h - the settings of `jitney serve`, from one table (config/settings.def).
 *
 * The value of a setting comes from the command line, else from the environment (JITNEY_PORT), else
 * from the config file, else from the table. Each setting records its origin, for --print-config
 * and for messages, so the origins may be read in any order. Names, ranges, help, the man page and
 * the documentation follow from the table.
 *
 * Lifetime: settings_init, fill, use, settings_deinit. Thread: its owner; read-only once filled.
 */
#ifndef CONFIG_SETTINGS_H
#define CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;

enum { SETTING_LIST_MAX = 64 };

enum setting_kind {
    SETTING_BOOL,
    SETTING_INT,
    SETTING_REAL,
    SETTING_TEXT,
    SETTING_WORD, /* one of a few words */
    SETTING_SIZE,
    SETTING_LIST
};
enum setting_origin { FROM_DEFAULT, FROM_FILE, FROM_ENV, FROM_FLAG };

struct setting_list {
    char *items[SETTING_LIST_MAX]; /* owned */
    uint32_t count;
};

typedef bool setting_BOOL;
typedef int64_t setting_INT;
typedef double setting_REAL;
typedef char *setting_TEXT; /* owned; NULL: not set */
typedef char *setting_WORD;
typedef uint64_t setting_SIZE;
typedef struct setting_list setting_LIST;

struct settings {
#define SECTION(title)
#define SETTING(field, kind, letter, flag, value, fallback, min, max, reloads, help)               \
    setting_##kind field;
#include "config/settings.def"
#undef SETTING
#undef SECTION
    uint8_t *origins; /* enum setting_origin of each, in the table's order */
};

struct setting_row {
    const char *field, *flag, *value, *fallback, *help;
    enum setting_kind kind;
    size_t offset; /* in struct settings */
    double min, max;
    bool reloads;
};
extern const struct setting_row setting_rows[];
uint32_t settings_count(void);
const char *settings_section(uint32_t i); /* the title before row i; NULL: no title */

enum status settings_init(struct settings *s); /* the defaults */
void settings_deinit(struct settings *s);
enum status settings_copy(const struct settings *s, struct settings *out);

/* By flag name ("kv-memory"). ST_BAD: unknown name (`err` suggests the nearest) or a value out of
 * range. A value from a weaker origin than the present one is ignored; one from a stronger origin
 * replaces it; a LIST grows if the origin is the same. */
enum status settings_set(struct settings *s, struct str name, struct str value,
                         enum setting_origin origin, struct err *err);

/* Lines "name = value"; '#' begins a comment, at the start of a line or after a blank; a value in
 * double quotes may hold both (\" and \\ inside). The message names file and line. */
enum status settings_read_file(struct settings *s, const char *path, struct err *err);
enum status settings_read_text(struct settings *s, struct str text, const char *name,
                               struct err *err);

/* Values from the environment; there the items of a LIST are separated by commas. */
typedef const char *settings_look_up_fn(const char *name); /* env_find */
enum status settings_read_env(struct settings *s, settings_look_up_fn *look_up, struct err *err);
/* JITNEY_KV_MEMORY for kv-memory. */
enum { SETTING_ENV_BYTES = 64 };
void settings_env_name(const char *flag, char out[SETTING_ENV_BYTES]);

/* Read the config file again: `out` gets a copy of `s` with the new values of the rows that reload,
 * unless the environment or a flag sets them. Other rows keep their value; if the file has a new
 * one, the row's name is added to `restart`, separated by commas. On failure `out` is untouched. */
enum status settings_reload(const struct settings *s, struct settings *out, struct buf *restart,
                            struct err *err);

enum setting_origin settings_origin(const struct settings *s, const char *flag);

/* Print every setting with its value and origin, as a config file with the same effect. */
void settings_print(const struct settings *s, struct buf *out);

#endif
