/* sim/recorded.h - the requests of a recording (docs/page.md), as a list that can be replayed.
 *
 * A recording says of each request when it arrived, how long its prompt and its answers were, and
 * how long the answers could have become; not what they said. So prompts are random tokens, whose
 * seed is the request's number, and an answer stops at its recorded length. The scheduler knows
 * max_tokens only, as it did.
 *
 * - A sequence that arrived before the recording began is left out, and so is one that ended
 *   without a token.
 * - A sequence that had not ended gets the mean length of those that had.
 * - The first arrival is at 0.
 *
 * Lifetime: none of its own. Thread: any.
 */
#ifndef SIM_RECORDED_H
#define SIM_RECORDED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "sim/request_list.h"

struct json;

enum { RECORDED_PATH_BYTES = 96 };

struct recorded_limits {
    uint32_t sequences; /* that have arrived */
    uint64_t tokens;    /* prompts and max_tokens of all of them */
};
extern const struct recorded_limits recorded_limits_file;

/* Where a recording is wrong: "steps[3].arrived[0][4]". */
struct recorded_fault {
    char path[RECORDED_PATH_BYTES];
    struct err err; /* the sentence, without the path */
};

/* Fills `list`; prompts are not drawn (prompt NULL, prompt_tokens set). ST_BAD: `fault` says
 * where and why; a recording without requests is one. */
enum status recorded_read(const struct json *recording, const struct recorded_limits *limits,
                          struct request_list *list, struct recorded_fault *fault);
enum status recorded_draw_prompts(struct request_list *list, const struct prompt_source *source);

/* Is a file a recording: JSON, or the page with one in it? Then *json is its JSON. */
bool recorded_find(struct str file, struct str *json);
/* Such a file: recorded_read and recorded_draw_prompts. */
enum status recorded_read_file(struct str json, const struct prompt_source *source,
                               struct request_list *list, struct err *err);

#endif
