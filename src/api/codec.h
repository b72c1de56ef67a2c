/* api/codec.h - a wire format: how requests are read and answers are written.
 *
 * A codec turns a JSON body into a struct api_request and an answer's events into JSON. It knows
 * nothing of framing: whether its pieces travel as server-sent events, WebSocket messages, lines
 * or a list for a poller is the server's business.
 *
 * To add one: write api/codec_NAME.c, add a line to api/codec_list.c.
 *
 * Thread: the io thread.
 */
#ifndef API_CODEC_H
#define API_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "api/answer.h"
#include "api/error.h"
#include "api/event.h"
#include "api/request.h"
#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct json;

enum stream_framing { FRAMING_SSE, FRAMING_LINES };

struct encoder;

struct codec {
    const char *name;      /* "openai.chat" */
    const char *id_prefix; /* "chatcmpl-" */
    enum stream_framing framing;
    bool streams_by_default; /* Ollama */

    /* Read the body. On ST_BAD `e` says which field and why. ST_NOMEM leaves `e` alone. The
     * document becomes the request's. */
    enum status (*decode)(struct json *body, struct api_request *r, struct api_error *e);

    /* A stream: what comes before any event, what an event becomes (often one piece, sometimes
     * none or several), what comes after the last event or after a failure. Each calls
     * encoder_put for each piece. */
    void (*begin)(struct encoder *e);
    void (*event)(struct encoder *e, const struct api_event *ev);
    void (*end)(struct encoder *e);

    /* The whole answer, which is done and has not failed. */
    void (*whole)(const struct answer *a, struct buf *out);

    /* An error as a response body; the same inside a stream is end()'s business. */
    void (*put_error)(const struct api_error *e, struct str request_id, struct buf *out);
};

/* NULL-terminated; codec_list.c holds it. */
extern const struct codec *const codecs[];
const struct codec *codec_find(const char *name); /* NULL if unknown */

/* A view of an answer's log in its codec, from the first event on. Pieces are numbered from 1,
 * the same for every view. Resuming after piece N is a new view that leaves out the first N. */
typedef void piece_fn(void *ctx, uint32_t number, struct str name, struct str data);

enum { ENCODER_NOTES = 8 };
struct encoder {
    const struct codec *codec;
    const struct answer *answer;
    uint32_t next_event; /* of the log */
    uint32_t pieces;     /* put so far */
    uint32_t after;      /* pieces up to this number are not passed on */
    bool has_begun, has_ended;
    enum status status;            /* not ST_OK: memory lacked, and the view is broken off */
    uint32_t notes[ENCODER_NOTES]; /* the codec's own: which blocks are open and the like */
    struct buf scratch;            /* the codec's, for the piece under construction */
    struct buf text;               /* the codec's: what must be said again at the end */
    piece_fn *put;
    void *ctx;
};
void encoder_init(struct encoder *e, const struct codec *codec, const struct answer *answer,
                  uint32_t after, piece_fn *put, void *ctx);
void encoder_deinit(struct encoder *e);

/* Tell what has happened since the last call; with the end once the answer is done. Nothing is
 * told before the first event, so that a first piece means a first token. At most `events_max`
 * events, so that a slow reader is not given more than it can take; true if there was nothing
 * left. */
bool encoder_run(struct encoder *e, uint32_t events_max);

/* Codecs: pass on a piece. `name` is the event's type on wires that have one; may be empty. A
 * piece made in a scratch buffer that has failed is not passed on: the view's status says so. */
void encoder_put(struct encoder *e, struct str name, struct str data);

#endif
