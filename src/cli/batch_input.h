/* cli/batch_input.h - the input of `jitney batch`: a file of requests, one on each line.
 *
 *     {"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{..}}
 *
 * All lines are checked when it is opened (api/batch_lines.h has the rules). Then a line is known
 * by its number, from 0, blank lines not counted; `run_order` has the numbers in the order in which
 * the lines should run: those that begin with the same prompt one after the other, so that the KV
 * cache has their common prefix.
 *
 * Lifetime: open, close. Thread: its owner. Memory: the file is mapped (standard input is read into
 * memory); 20 bytes for each line, and while it is opened 32 more.
 */
#ifndef CLI_BATCH_INPUT_H
#define CLI_BATCH_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/str.h"

struct json;

struct batch_input {
    struct file_map map;
    struct buf held; /* of standard input */
    struct str text;
    char sha256[SHA256_HEX_BYTES];
    struct batch_item {
        uint64_t offset;
        uint32_t bytes;
        uint32_t order; /* of api/batch_lines.h */
    } * items;
    uint32_t *run_order; /* [count] */
    uint32_t count, capacity;
};

/* `note` is called for each of the first BATCH_ERRORS_MAX problems with its sentence, "IN.jsonl:12:
 * ...". ST_BAD: there was one, or the file is empty. ST_MISSING, ST_IO, ST_NOMEM. */
typedef void batch_note_fn(void *ctx, const char *sentence);
enum status batch_input_open(struct batch_input *in, const char *path, batch_note_fn *note,
                             void *ctx, struct err *err);
void batch_input_close(struct batch_input *in); /* a zeroed one is fine */

/* A line; what it points to belongs to `doc`. */
struct batch_request {
    struct json *doc; /* json_destroy it */
    struct str custom_id;
    const char *url;   /* static: one of batch_endpoints */
    struct json *body; /* of `doc` */
};
/* ST_BAD: the line is not what it was when it was checked. */
enum status batch_input_read(const struct batch_input *in, uint32_t number,
                             struct batch_request *out, struct err *err);

#endif
