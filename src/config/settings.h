/* config/settings.h - the settings of `jitney serve`, from one table (config/settings.def).
 *
 * A setting comes, in rising order of weight, from its default, the config file, the environment
 * (JITNEY_PORT), the command line. Each remembers where it came from, for --print-config and for
 * messages, so they may be set in any order. Names, ranges, help, the man page and the
 * documentation follow from the table.
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
    SETTING_WORD, /* a text that is one of a few */
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
const char *settings_section(uint32_t i); /* the title that row i begins; NULL: it begins none */

enum status settings_init(struct settings *s); /* the defaults */
void settings_deinit(struct settings *s);
enum status settings_copy(const struct settings *s, struct settings *out);

/* By flag name ("kv-memory"). ST_BAD: unknown (with the nearest) or out of its range, in words.
 * A LIST grows, unless what it holds comes from a lighter origin: then that is replaced. A
 * lighter origin than the value has is passed over. */
enum status settings_set(struct settings *s, struct str name, struct str value,
                         enum setting_origin origin, struct err *err);

/* Lines "name = value"; '#' begins a comment, at the start of a line or after a blank; a value in
 * double quotes may hold both (\" and \\ inside). The message names file and line. */
enum status settings_read_file(struct settings *s, const char *path, struct err *err);
enum status settings_read_text(struct settings *s, struct str text, const char *name,
                               struct err *err);

/* What the environment says; the items of a LIST stand between commas there. */
typedef const char *settings_look_up_fn(const char *name); /* env_find */
enum status settings_read_env(struct settings *s, settings_look_up_fn *look_up, struct err *err);
/* JITNEY_KV_MEMORY for kv-memory. */
enum { SETTING_ENV_BYTES = 64 };
void settings_env_name(const char *flag, char out[SETTING_ENV_BYTES]);

/* Make in `out` what `s` becomes when its file is read again: rows that reload take their new
 * value, unless the environment or a flag decides them; the others keep theirs, and those whose
 * value in the file is another one are named in `restart`, with commas between them. `out` is
 * untouched on failure. */
enum status settings_reload(const struct settings *s, struct settings *out, struct buf *restart,
                            struct err *err);

enum setting_origin settings_origin(const struct settings *s, const char *flag);

/* Every setting with its value and origin, as a config file that would give the same. */
void settings_print(const struct settings *s, struct buf *out);

#endif
