/* loadgen/response.h - an HTTP/1.1 response, parsed as its bytes arrive.
 *
 *     STATUS -> HEADERS -> LENGTH ------------------------------> DONE
 *        ^         |  \--> TO_CLOSE --connection closed--------------> DONE
 *        +- 1xx ---+  \--> CHUNK_SIZE -> CHUNK_DATA -> CHUNK_END
 *                             |   ^---------------------+
 *                             +--> TRAILERS -----------------> DONE
 *
 * The body is passed on in the pieces in which it arrives; nothing of it is stored. Of the head,
 * only the fields that decide where the body ends are read. The result does not depend on how the
 * bytes are cut into pieces.
 *
 * Lifetime: the caller's storage; reset before each response. Thread: its owner.
 * Memory:   none of its own; a line of the head has at most RESPONSE_LINE_BYTES.
 */
#ifndef LOADGEN_RESPONSE_H
#define LOADGEN_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

enum { RESPONSE_LINE_BYTES = 8192, RESPONSE_HEAD_BYTES = 1 << 16 };

enum response_state {
    RESPONSE_STATUS,
    RESPONSE_HEADERS,
    RESPONSE_LENGTH,
    RESPONSE_TO_CLOSE,
    RESPONSE_CHUNK_SIZE,
    RESPONSE_CHUNK_DATA,
    RESPONSE_CHUNK_END,
    RESPONSE_TRAILERS,
    RESPONSE_DONE,
};

struct loadgen_response {
    enum response_state state;
    uint32_t status;  /* 200; 0 until known */
    bool keeps_alive; /* the connection may carry another request */
    bool is_chunked, has_length;
    uint64_t left;       /* of the body, or of the chunk */
    uint32_t head_bytes; /* of head and trailers so far */
    uint32_t line_bytes;
    char line[RESPONSE_LINE_BYTES];
};

/* A piece of the body, borrowed. Any status but ST_OK ends loadgen_response_feed. */
typedef enum status loadgen_body_fn(void *ctx, struct str bytes);

void loadgen_response_reset(struct loadgen_response *r);

/* Take bytes up to the end of the response; *used says how many those were. ST_BAD: not an
 * HTTP/1.1 response. */
enum status loadgen_response_feed(struct loadgen_response *r, struct str bytes, size_t *used,
                                  struct err *err, loadgen_body_fn *on_body, void *ctx);

/* The connection was closed. ST_BAD: the response is not complete. */
enum status loadgen_response_close(struct loadgen_response *r, struct err *err);

#endif
