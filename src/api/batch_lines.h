/* api/batch_lines.h - the lines of OpenAI's batch files: checking the input, writing the output.
 *
 * A file is read in chunks of any size. line_splitter cuts them into lines, batch_check reads each
 * line into a struct batch_line for jobs/batches.h and collects the errors of those that cannot be
 * read:
 *
 *     {"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{..}}
 *
 * `order`: lines that begin with the same prompt should run one after the other, because the KV
 * cache then has their common prefix. It is the number of the first line with the same prefix, so
 * groups run in the order in which they first appear. The prefix of a line is its tools and its
 * system message (or `instructions`); without a system message, the first BATCH_PREFIX_BYTES bytes
 * of its prompt. Lines of /v1/embeddings are one group.
 *
 * Codes of errors: invalid_json_line, missing_required_parameter, invalid_type, invalid_method,
 * url_mismatch, model_mismatch, duplicate_custom_id, unsupported_parameter (stream),
 * string_above_max_length, line_too_long, too_many_tasks, empty_file.
 *
 * Lifetime: init, one call for each line, end, deinit. Thread: its owner, any. Memory: a line at a
 * time, and 32 bytes for each line's custom_id and prefix.
 */
#ifndef API_BATCH_LINES_H
#define API_BATCH_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct batch_line; /* jobs/batches.h */
struct json;
struct line_row;
struct map64;

enum {
    BATCH_LINES_MAX = 50000,
    BATCH_LINE_BYTES_MAX = 8 << 20, /* as the body of one request */
    BATCH_CUSTOM_ID_MAX = 512,      /* bytes */
    BATCH_MODEL_BYTES = 257,
    BATCH_PREFIX_BYTES = 256,
    BATCH_ERRORS_MAX = 100, /* further ones are counted, not listed */
};

/* ---- lines of a file that comes in chunks ---- */

struct line_splitter {
    struct buf held; /* the beginning of a line whose end has not come */
    struct str chunk;
    bool is_last;
    bool gave_held; /* `held` was given out and is to be cleared */
    bool too_long;  /* the line is over BATCH_LINE_BYTES_MAX: its beginning is given, the rest is
                       left out */
};
void line_splitter_init(struct line_splitter *s);
void line_splitter_deinit(struct line_splitter *s);
/* The next chunk; all lines of the one before have been taken. `is_last`: the file ends with it. */
void line_splitter_push(struct line_splitter *s, struct str chunk, bool is_last);
/* The next line without its line break (LF or CR LF); valid until the next call. False: there is
 * none in this chunk. Out of memory: s->held.status says so, and false. */
bool line_splitter_next(struct line_splitter *s, struct str *line);

/* ---- input ---- */

struct batch_check {
    struct str endpoint; /* borrowed; empty: as batch_check_init says */
    uint32_t line_count; /* lines that were read, blank ones included: the number in errors */
    uint32_t good_count; /* lines without an error */
    uint32_t error_count;
    bool is_over;                  /* too many lines: nothing more is read */
    char model[BATCH_MODEL_BYTES]; /* that all lines name; "": they name none */
    struct buf errors; /* a JSON list once batch_check_end was called: batches_fail takes it */
    struct map64 *ids, *prefixes; /* hashes of custom_ids and prefixes */
    struct json *doc;             /* the line under way; its strings point into it */
    struct buf body;
};

/* An empty `endpoint`: a line may have any of batch_endpoints and name any model, and there may be
 * any number of lines. ST_NOMEM; it is to be deinitialised in any case. */
enum status batch_check_init(struct batch_check *c, struct str endpoint);
void batch_check_deinit(struct batch_check *c);
/* The first line of a file without the byte order mark that some editors put before it. */
struct str batch_skip_mark(struct str line);
/* ST_OK: `out` has the line (its number counts lines without an error, from 0); its strings are
 * valid until the next call. ST_MISSING: a blank line, which is left out. ST_BAD: an error was
 * added. ST_NOMEM. */
enum status batch_check_line(struct batch_check *c, struct str text, bool is_too_long,
                             struct batch_line *out);
/* The file has ended: an empty one is an error. ST_BAD: there are errors, and `errors` has the
 * list; ST_NOMEM. */
enum status batch_check_end(struct batch_check *c);

/* Add an error: {"code","line","message","param"}. `line` 0 and `param` NULL: null. For errors that
 * only the caller can find, such as a model that is not served. Before batch_check_end. */
struct batch_fault {
    const char *code, *param;
    uint32_t line;
    const char *message;
};
void batch_check_add(struct batch_check *c, const struct batch_fault *fault);

/* ---- output ---- */

/* Whether the line belongs in the error file: all but those with a response below 400. */
bool batch_output_is_error(const struct line_row *row);
/* One line with its line break:
 *     {"id":"batch_req_..","custom_id":..,"response":{"status_code":200,"request_id":..,"body":..},
 *      "error":null}
 * A line that was not run has "response":null and "error":{"code":"batch_expired","message":..} or
 * "batch_cancelled". The id follows from the batch's id and the line's number. */
void batch_output_put(struct str batch_id, const struct line_row *row, struct buf *out);

#endif
