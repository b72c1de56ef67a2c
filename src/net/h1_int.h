/* net/h1_int.h - parsing HTTP/1.1: the end of a head, its headers, chunks.
 *
 * A head is collected completely before it is parsed. h1_scan finds its end and refuses what two
 * parsers could read differently (a CR or LF alone, a folded line, control characters). llhttp
 * parses it after that, in strict mode and without its lenient flags. Chunked bodies have a parser
 * of their own, which is as strict as the scan: llhttp 8 accepts a lone CR or LF in some places.
 *
 * Lifetime: the caller's storage, zeroed before use. Thread: the I/O thread. Memory: allocates
 * nothing.
 */
#ifndef NET_H1_INT_H
#define NET_H1_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum h1_step {
    H1_MORE, /* all bytes are used; more are needed */
    H1_DATA, /* chunks: a piece of the body */
    H1_END,
    H1_BAD,
};

/* ---- the end of a head, or of trailers ---- */

struct h1_scan {
    uint32_t bytes;      /* scanned so far */
    uint32_t lines;      /* complete lines that are not empty */
    uint32_t line_bytes; /* of the current line */
    uint32_t blanks;     /* empty lines before the first line */
    bool has_cr;
    bool is_trailer; /* set by the caller: an empty line ends it, also the first one */
};

/* *used: how many of `bytes` belong to the head. After H1_END that includes the empty line. */
enum h1_step h1_scan(struct h1_scan *s, struct str bytes, size_t *used);

/* ---- a head ---- */

struct h1_line {
    struct str method, target;
    uint32_t version; /* 10, 11 */
};

/* Called for each header in order; a status other than 0 stops the parser, which returns it. */
typedef uint32_t h1_header_fn(void *ctx, struct str name, struct str value);

/* The first line of a head that h1_scan has accepted. 0, or 400 or 505 with a sentence. */
uint32_t h1_parse_line(struct str head, struct h1_line *out, const char **sentence);
/* All headers of the same head, by llhttp. 0, or a status with a sentence. */
uint32_t h1_parse_headers(struct str head, h1_header_fn *on_header, void *ctx,
                          const char **sentence);

/* ---- a chunked body ---- */

struct h1_chunks {
    enum { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_TAIL, CHUNK_TRAILER } state;
    uint64_t left;            /* of this chunk's data */
    uint32_t digits;          /* of its size */
    uint32_t extension_bytes; /* of its extension */
    bool has_cr;
    struct h1_scan trailer;
};

/* Removes what it parses from the front of *bytes. H1_DATA: *data points into them; call again. */
enum h1_step h1_chunks_next(struct h1_chunks *c, struct str *bytes, struct str *data);

#endif
