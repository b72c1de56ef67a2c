/* net/h1_int.h - HTTP/1.1 as bytes: where a head ends, what it says, chunks.
 *
 * A head is collected whole before it is understood. h1_scan finds its end and refuses what two
 * readers could take differently (a CR or LF alone, a folded line, control characters), before
 * llhttp, in strict mode and without its lenient flags, reads it. Chunked bodies have a reader of
 * their own, because the framing must be as strict as the heads are, and llhttp 8 lets a lone CR
 * or LF pass in places.
 *
 * Lifetime: the caller's storage; zeroed to begin. Thread: the loop's. Memory: takes none.
 */
#ifndef NET_H1_INT_H
#define NET_H1_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum h1_step {
    H1_MORE, /* all bytes are used up, and it goes on */
    H1_DATA, /* chunks: some of the body */
    H1_END,
    H1_BAD,
};

/* ---- the end of a head, or of trailers ---- */

struct h1_scan {
    uint32_t bytes;      /* taken so far */
    uint32_t lines;      /* complete ones that are not empty */
    uint32_t line_bytes; /* of the line under way */
    uint32_t blanks;     /* empty lines before the first */
    bool has_cr;
    bool is_trailer; /* set by the caller: an empty line ends it, also the first one */
};

/* *used: how many bytes belong to it. After H1_END it includes the empty line. */
enum h1_step h1_scan(struct h1_scan *s, struct str bytes, size_t *used);

/* ---- a head ---- */

struct h1_line {
    struct str method, target;
    uint32_t version; /* 10, 11 */
};

/* Called for each header in turn; a status other than 0 ends the reading with it. */
typedef uint32_t h1_header_fn(void *ctx, struct str name, struct str value);

/* The first line of a head that h1_scan has let pass. 0, or 400 or 505 with a sentence. */
uint32_t h1_parse_line(struct str head, struct h1_line *out, const char **sentence);
/* All of it, through llhttp; `head` as above. */
uint32_t h1_parse_headers(struct str head, h1_header_fn *on_header, void *ctx,
                          const char **sentence);

/* ---- a chunked body ---- */

struct h1_chunks {
    enum { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_TAIL, CHUNK_TRAILER } state;
    uint64_t left;        /* of this chunk's data */
    uint32_t digits;      /* of its size */
    uint32_t extra_bytes; /* of its extension */
    bool has_cr;
    struct h1_scan trailer;
};

/* Takes from the front of *bytes. H1_DATA: *data is borrowed from them; call again. */
enum h1_step h1_chunks_next(struct h1_chunks *c, struct str *bytes, struct str *data);

#endif
