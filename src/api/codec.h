/* api/codec.h - a wire format: how requests are read and answers are written.
 *
 * A codec turns a JSON body into a struct api_request and an answer's events into JSON. It does
 * not know the framing: the encoder writes the codec's pieces as server-sent events, as lines or as
 * items of a list into its caller's buffer, and the server sends them.
 *
 * To add one: write api/codec_NAME.c, add a line to api/codec_list.c.
 *
 * Thread: the I/O thread.
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

/* How a piece with its number and, where the wire format has one, its event type is written:
 *     SSE    "id: 7\nevent: TYPE\ndata: DATA\n\n"
 *     LINES  "DATA\n"
 *     LIST   {"id":7,"event":"TYPE","data":DATA}, with commas between them */
enum stream_framing { FRAMING_SSE, FRAMING_LINES, FRAMING_LIST };

struct encoder;

struct codec {
    const char *name;      /* "openai.chat" */
    const char *id_prefix; /* "chatcmpl-" */
    enum stream_framing framing;
    bool streams_by_default; /* Ollama */
    const char *end_mark; /* the last piece of every stream; NULL: its last event shows the end */

    /* Fields of the body that the answer repeats, "a" or "a.b", NULL-terminated; NULL: none. */
    const char *const *repeated;

    /* Read the body, which the request owns from then on. ST_BAD: `e` says which field and why;
     * ST_NOMEM leaves `e` unchanged. */
    enum status (*read_body)(struct json *body, struct api_request *r, struct api_error *e);

    /* A stream: write what precedes the first event, one event (often one piece, sometimes none
     * or several), and what follows the last event or a failure. Each calls encoder_put once per
     * piece. */
    void (*begin)(struct encoder *e);
    void (*event)(struct encoder *e, const struct api_event *ev);
    void (*end)(struct encoder *e);

    /* Write the whole answer, which is complete and has not failed. */
    void (*whole)(const struct answer *a, struct buf *out);

    /* Optional. Write the answer as it is now, for a client that polls: `status` is "queued",
     * "in_progress", "cancelled" or "failed" (a->failure says why). The output of the first two is
     * empty, whatever the log has. NULL: the format has no object for an answer that is not
     * complete. */
    void (*state)(const struct answer *a, const char *status, struct buf *out);

    /* Write an error as a response body; inside a stream, end() writes it. */
    void (*put_error)(const struct api_error *e, struct str request_id, struct buf *out);
};

/* NULL-terminated; codec_list.c holds it. */
extern const struct codec *const codecs[];
const struct codec *codec_find(const char *name); /* NULL if unknown */
/* Initialise `r` and read `doc` into it, which is then freed unless `keeps_body`: see
 * api_request_drop_body. `doc` becomes the request's, also on failure; `r` is to be deinitialised
 * in any case. */
enum status codec_read_body(const struct codec *codec, struct json *doc, bool keeps_body,
                            struct api_request *r, struct api_error *e);

/* A view of an answer's log in its codec, from the first event on. It is written piece by piece: a
 * server-sent event, a line or an item of a list. Pieces are numbered from 1, the same for every
 * view. Resuming after piece N is a new view that leaves out the first N. */
enum { ENCODER_NOTES = 8 };
struct encoder {
    const struct codec *codec;
    const struct answer *answer;
    uint32_t next_event; /* of the log */
    uint32_t pieces;     /* put so far */
    uint32_t after;      /* pieces up to this number are not sent again */
    bool has_begun, has_ended;
    enum status status;            /* not ST_OK: out of memory, and the view ends early */
    uint32_t notes[ENCODER_NOTES]; /* the codec's own state: which item is open and the like */
    struct buf scratch;            /* the codec's, for the piece under construction */
    struct buf text;               /* the codec's: what it must repeat at the end */
    enum stream_framing framing;
    struct buf *out; /* the caller's, during encoder_run */
};
void encoder_init(struct encoder *e, const struct codec *codec, const struct answer *answer,
                  uint32_t after, enum stream_framing framing);
void encoder_deinit(struct encoder *e);

/* Append to `out` the events since the last call, and the end once the answer is complete. Nothing
 * is written before the first event, so that the first piece means the first token. Writes at most
 * `events_max` events, so that a slow client receives no more than it can take (back-pressure).
 * True: no event is left. */
bool encoder_run(struct encoder *e, uint32_t events_max, struct buf *out);

/* OpenAI's responses number the events of a stream from 0 (sequence_number), so the event N is
 * piece N + 1. The `after` of a view that continues behind event `sequence_number`, as
 * ?starting_after=N asks for it. */
uint32_t encoder_after_sequence(uint64_t sequence_number);

/* For codecs: write a piece. `name` is its event type, or empty. If a scratch buffer has failed,
 * nothing is written and e->status says so. */
void encoder_put(struct encoder *e, struct str name, struct str data);

#endif
