/* cli/batch_partial.h - the results of `jitney batch` until all lines are done: OUT.partial.
 *
 * A result is appended when its line is done, as one write. After a crash, a power loss or a full
 * disk its last lines may be damaged; opening it again cuts them off.
 * OUT is made of it once every line has a result.
 *
 *     {"jitney_batch":1,"input_bytes":..,"input_sha256":..,"lines":..,"model":..,"seed":..,
 *      "created":..}
 *     CHECK NUMBER STATUS PROMPT_TOKENS CACHED_TOKENS ANSWER_TOKENS {"id":"batch_req_..",..}
 *     ...
 *
 * The first line (here on two) says what the results belong to. CHECK is a hash of the rest of its
 * line, 16 hexadecimal digits; the object is the line of OUT. A line of the input has one result,
 * except that one with a status of 500 or more (the fault is not the line's) does not count when
 * the file is opened again: the line is run again, and its last result counts.
 *
 * Lifetime: open, begin, put, finish, close. Thread: its owner. Memory: 16 bytes for each line.
 */
#ifndef CLI_BATCH_PARTIAL_H
#define CLI_BATCH_PARTIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"
#include "base/str.h"

struct batch_partial; /* opaque */

enum { BATCH_PARTIAL_MODEL_BYTES = 64 };

/* What the results belong to. */
struct batch_origin {
    uint64_t input_bytes;
    char input_sha256[SHA256_HEX_BYTES];
    uint32_t line_count;
    char model[BATCH_PARTIAL_MODEL_BYTES]; /* its fingerprint; "": not known yet */
    uint64_t seed;                         /* of lines that have none */
    int64_t created_s;                     /* the time that answers show */
};

struct batch_entry {
    uint32_t number; /* of the line, from 0 */
    uint32_t status; /* of HTTP */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    struct str output; /* a JSON object without its line break */
};

/* What the results that are there add up to. */
struct batch_totals {
    uint32_t done, failed;
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
};

/* Open or create it, locked against other processes. `path` NULL: a temporary file that cannot be
 * continued. `origin` is what the caller has: if the file was begun earlier, its seed and time are
 * put there; with `is_seed_given`, its seed must be the same. `restarts`: drop what is there.
 * ST_BAD: it belongs to another input or seed, or is another kind of file; ST_FULL: another process
 * is writing it; ST_CREATE, ST_IO, ST_NOMEM. */
struct batch_partial_options {
    const char *path, *temp_dir;
    bool is_seed_given, restarts;
};
enum status batch_partial_open(const struct batch_partial_options *options,
                               struct batch_origin *origin, struct batch_partial **out,
                               struct err *err);
/* The results stay; a file without any is removed. NULL is fine. */
void batch_partial_close(struct batch_partial *p);

/* The model is known: write the first line, or ST_BAD if the results are of another model. */
enum status batch_partial_begin(struct batch_partial *p, const char *model, struct err *err);

bool batch_partial_has(const struct batch_partial *p, uint32_t number);
struct batch_totals batch_partial_totals(const struct batch_partial *p);

/* Append a result. After a failure the file is as before. */
enum status batch_partial_put(struct batch_partial *p, const struct batch_entry *e,
                              struct err *err);
enum status batch_partial_sync(struct batch_partial *p, struct err *err); /* to the disk */

/* Every line has a result. Give the lines of OUT in order to `write`, each with its line break. */
typedef enum status batch_write_fn(void *ctx, struct str line, struct err *err);
enum status batch_partial_copy(const struct batch_partial *p, batch_write_fn *write, void *ctx,
                               struct err *err);
/* The same to a file: under a temporary name, to the disk, renamed; then the partial file is
 * removed. */
enum status batch_partial_finish(struct batch_partial *p, const char *out_path, struct err *err);

/* ---- the format ---- */

/* `each` is called for each result. *used: how many bytes are good; what follows is damaged. ST_OK;
 * ST_MISSING: there is no whole first line; ST_BAD: it is another kind of file. */
enum status batch_partial_read(struct str bytes, struct batch_origin *origin,
                               void (*each)(void *ctx, const struct batch_entry *e, size_t offset),
                               void *ctx, size_t *used);

#endif
