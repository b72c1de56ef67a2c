/* loadgen/reply.h - an HTTP/1.1 response, taken apart as its bytes arrive.
 *
 *     STATUS -> HEADERS -> LENGTH ------------------------------> DONE
 *        ^         |  \--> TO_CLOSE --reply_close--------------> DONE
 *        +- 1xx ---+  \--> CHUNK_SIZE -> CHUNK_DATA -> CHUNK_END
 *                             |   ^---------------------+
 *                             +--> TRAILERS -----------------> DONE
 *
 * The body is handed on in the pieces in which it comes; nothing of it is kept. Of the head only
 * what decides where the body ends is read. Any cut of the bytes into pieces gives the same.
 *
 * Lifetime: the caller's storage; reset before each response. Thread: its owner.
 * Memory:   none of its own; a line of the head has at most REPLY_LINE_BYTES.
 */
#ifndef LOADGEN_REPLY_H
#define LOADGEN_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

enum { REPLY_LINE_BYTES = 8192, REPLY_HEAD_BYTES = 1 << 16 };

enum reply_state {
    REPLY_STATUS,
    REPLY_HEADERS,
    REPLY_LENGTH,
    REPLY_TO_CLOSE,
    REPLY_CHUNK_SIZE,
    REPLY_CHUNK_DATA,
    REPLY_CHUNK_END,
    REPLY_TRAILERS,
    REPLY_DONE,
};

struct reply {
    enum reply_state state;
    uint32_t status;  /* 200; 0 until known */
    bool keeps_alive; /* the connection may carry another request */
    bool is_chunked, has_length;
    uint64_t left;       /* of the body, or of the chunk */
    uint32_t head_bytes; /* of head and trailers so far */
    uint32_t line_bytes;
    char line[REPLY_LINE_BYTES];
};

/* A piece of the body, borrowed. What it returns other than ST_OK ends the feeding. */
typedef enum status reply_body_fn(void *ctx, struct str bytes);

void reply_reset(struct reply *r);

/* Take bytes up to the end of the response; *used says how many those were. ST_BAD: this is no
 * HTTP/1.1 response. */
enum status reply_feed(struct reply *r, struct str bytes, size_t *used, struct err *err,
                       reply_body_fn *on_body, void *ctx);

/* The connection has ended: fine only if the response has, too. */
enum status reply_close(struct reply *r, struct err *err);

#endif
