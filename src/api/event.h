/* api/event.h - the log of an answer's events, in order, free of any wire format.
 *
 * The log is the only copy of an answer's text. Every way to receive the answer - whole, as a
 * stream, over a WebSocket, by polling, resumed after a broken connection - is a view of the log
 * through a codec's encoder, so all of them have the same content.
 *
 * Lifetime: created with its answer, destroyed with it. Thread: its owner's (the I/O thread).
 * Memory: about 40 bytes per event plus the text, up to bytes_max.
 */
#ifndef API_EVENT_H
#define API_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "sched/seq.h"

enum api_event_kind {
    EVENT_TEXT,    /* a piece of the answer; empty if it only carries tokens */
    EVENT_THOUGHT, /* a piece of the thought, before all other events; may be empty, too */
    EVENT_TOOL,    /* a tool call begins; text: the function's name */
    EVENT_ARGS,    /* a piece of that call's arguments, which are JSON text */
    EVENT_FINISH,  /* the last of its choice; text: the stop string that ended it, or empty */
};

struct api_event {
    enum api_event_kind kind;
    uint32_t choice;
    uint32_t tool; /* TOOL, ARGS: number of the call within its choice; FINISH: how many it had */
    uint32_t first_token, token_count; /* the answer's tokens that it carries */
    enum finish_reason finish;         /* FINISH only */
    struct str text;                   /* the log's */
};

struct event_log; /* opaque */

enum status event_log_create(struct event_log **out, uint64_t bytes_max);
void event_log_destroy(struct event_log *log); /* NULL is fine */

/* `ev->text` is copied. ST_FULL: over bytes_max; ST_NOMEM. */
enum status event_log_add(struct event_log *log, const struct api_event *ev);
uint32_t event_log_count(const struct event_log *log);
struct api_event event_log_at(const struct event_log *log,
                              uint32_t i); /* text until the next add */
uint64_t event_log_bytes(const struct event_log *log);

/* The events of one choice by their index in the log: the first, the last, and the one after `i`
 * in the choice of event `i`. EVENT_NO: there is none. Each costs O(1). */
#define EVENT_NO UINT32_MAX
uint32_t event_log_first(const struct event_log *log, uint32_t choice);
uint32_t event_log_last(const struct event_log *log, uint32_t choice);
uint32_t event_log_after(const struct event_log *log, uint32_t i);

/* The longest beginning of `text` of at most `bytes` bytes that ends between two characters, or
 * the first character if that is longer. For smoothing, which sends text in small pieces. */
struct str event_cut_text(struct str text, size_t bytes);

#endif
