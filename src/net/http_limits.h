/* net/http_limits.h - what an HTTP server limits, and what it counts. Part of net/http.h.
 *
 * Lifetime: values. Thread: any. Memory: none.
 */
#ifndef NET_HTTP_LIMITS_H
#define NET_HTTP_LIMITS_H

#include <stdint.h>

/* Limits of sizes, counts and times. Zero selects the default, which is the first number of each
 * comment; the number after the arrow is the status that a client gets. */
struct http_limits {
    uint32_t head_bytes;       /* 16384: request line and headers together          -> 431, 414 */
    uint32_t headers;          /* 100                                               -> 431      */
    uint64_t body_bytes;       /* 8 MiB                                             -> 413      */
    uint64_t bodies_bytes;     /* 64 * body_bytes: all bodies and messages together -> 503      */
    uint64_t heads_bytes;      /* 64 MiB: heads of all requests under way           -> 503      */
    uint64_t replies_bytes;    /* 256 MiB: queued responses of all connections      -> 503      */
    uint32_t share;            /* 4: a peer or owner may hold one part in 4 of each -> 429      */
    uint64_t queue_bytes;      /* 4 MiB: queued responses of one HTTP/2 connection  -> 503      */
    uint32_t connections;      /* what the descriptor limit allows; the oldest idle is evicted  */
    uint32_t peer_connections; /* half of them, of one peer; UINT32_MAX: no limit             */
    uint32_t reserve; /* an eighth of them, 8 at most: http_is_reserved                       */
    uint32_t streams; /* 100: concurrent exchanges of one HTTP/2 connection            */
    uint64_t backlog_bytes; /* 256 KiB: with a larger http_backlog a writer should pause     */
    int64_t head_ms;        /* 10000: from the first byte of a request to its last header    */
    uint32_t rate;          /* 1024 bytes a second: a slower body, message or reader is refused,
                               averaged over body_ms or write_ms                             */
    int64_t body_ms;        /* 30000: `rate` of a body is measured over this time   -> 408   */
    int64_t body_total_ms;  /* 300000: for a whole body                             -> 408   */
    int64_t idle_ms;        /* 75000: between requests                                       */
    int64_t write_ms;       /* 60000: bytes wait and are read at less than `rate` over this
                               time: the connection or the stream is closed                  */
    int64_t handshake_ms;   /* 10000: TLS                                                    */
};

struct http_stats {
    uint32_t connections, exchanges; /* open now */
    uint64_t accepted, refused;      /* connections since the start */
    uint64_t peer_refused;           /* of them because of peer_connections */
    uint64_t evicted;                /* connections that were closed for new ones */
    uint64_t slow;            /* bodies, messages, streams and connections below the least rate */
    uint64_t protocol_errors; /* errors that the server sent by itself: responses, GOAWAY */
    uint64_t bytes_in, bytes_out, writes;
    uint64_t bodies_bytes;   /* of request bodies and WebSocket messages, held now */
    uint64_t bodies_refused; /* since the start: over the budget or a share of it */
    uint64_t replies_bytes;  /* of responses that wait to be sent, now */
    uint64_t shed;           /* connections closed because replies_bytes was over its limit */
};

#endif
