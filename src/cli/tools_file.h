/* cli/tools_file.h - the file of `jitney chat --tools`: the tools that a model may call, each with
 * the command that the program runs for a call.
 *
 *   [{"name": "now", "description": "The time.", "parameters": {JSON Schema}, "command": ["date"]}]
 *
 * "description" and "parameters" may be left out. A field with another name is an error.
 *
 * Lifetime: load, find, destroy. Thread: the main thread. Memory: about that of the file.
 */
#ifndef CLI_TOOLS_FILE_H
#define CLI_TOOLS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct tool_set; /* opaque */

enum { TOOLS_MAX = 128, TOOL_WORDS_MAX = 256, TOOLS_FILE_BYTES_MAX = 1 << 20 };

struct tool {
    struct str name;
    char **command;  /* ends with NULL; texts belong to the set */
    bool is_allowed; /* the user has allowed all calls of it */
};

/* ST_MISSING: there is no such file. ST_BAD: `err` names the file and the line or the field. */
enum status tools_file_load(const char *path, struct tool_set **out, struct err *err);
void tool_set_destroy(struct tool_set *s); /* NULL is fine */

/* NULL if unknown. */
struct tool *tool_set_find(struct tool_set *s, struct str name);
uint32_t tool_set_count(const struct tool_set *s);
const struct tool *tool_set_at(const struct tool_set *s, uint32_t i);
/* The tools as a JSON list, as in requests of OpenAI's API. */
struct str tool_set_json(const struct tool_set *s);

#endif
