/* server/text_request.h - taking on a request for text, whoever asks: an exchange or a WebSocket.
 *
 * Thread: the io thread; text_decode, which touches nothing else, on any.
 */
#ifndef SERVER_TEXT_REQUEST_H
#define SERVER_TEXT_REQUEST_H

#include <stdint.h>

#include "api/error.h"
#include "base/status.h"
#include "base/str.h"

struct api_request;
struct codec;
struct http_head;
struct json;
struct key;
struct generation;
struct served_model;
struct server;

/* Who asks for text, and how. */
struct caller {
    struct server *server;
    const struct key *key;
    const char *route;
    const char *id, *request_id;
    const struct http_head *head; /* NULL: a message of a WebSocket */
    int64_t arrived_us;
    uint64_t body_bytes;
};
/* Take a decoded request on. On ST_OK the generation has its key's leave and can go. `q` is moved
 * out
 * of in any case. */
enum status text_admit(const struct caller *a, struct api_request *q, struct generation **out,
                       struct api_error *e);
/* Read a body, which becomes the request's; `q` is to be deinitialised in any case. */
enum status text_decode(const struct codec *codec, struct json *doc, struct api_request *q,
                        struct api_error *e);
/* May the key ask? If so keys_end is owed. ST_BAD: one of its limits says no. */
enum status text_begin_key(struct server *s, const struct key *key, int64_t arrived_us,
                           struct api_error *e);
void text_ended(struct server *s, struct generation *gen);
enum status text_find_model(struct server *s, struct str name, struct served_model **out,
                            struct api_error *e);

#endif
