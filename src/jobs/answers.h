/* jobs/answers.h - stored answers: requests that must be answered whatever happens, and their
 * answers.
 *
 * A row is inserted before the request is acknowledged, and finished once, when its answer is
 * complete. What lies between is not stored: a row that is still open after a crash has all that
 * the engine needs (body, seed, time, prompt) to compute the same answer again.
 *
 *     OPEN --finish--> DONE, FAILED, CANCELLED --delete, or retention--> gone
 *
 * Thread: the store's (inside store_op.run). Memory: strings that are returned are owned by the
 * `struct answer_row` and freed by answer_row_deinit.
 */
#ifndef JOBS_ANSWERS_H
#define JOBS_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct store_db;

enum answer_state { ANSWER_OPEN, ANSWER_DONE, ANSWER_FAILED, ANSWER_CANCELLED };

struct answer_row {
    struct str id;         /* without a codec's prefix */
    struct str request_id; /* x-request-id */
    struct str owner;      /* of the key */
    struct str codec;      /* "openai.responses" */
    struct str route;      /* "/v1/responses" */
    struct str model;      /* the name under which it was asked for */
    struct str fingerprint;
    struct str body;         /* JSON, complete: previous answers are part of its input */
    struct str prompt;       /* the rendered prompts: see server/prompt.h */
    struct str metadata;     /* JSON object or empty */
    struct str previous;     /* previous_response_id without prefix, or empty */
    struct str conversation; /* its id, or empty */
    struct str items;  /* JSON list: the input of this request alone, as items of a conversation */
    struct str output; /* JSON list: the answer as items; empty until it is done */
    struct str whole;  /* the response, JSON; empty until it has ended */
    struct str pieces; /* the events with numbers, as FRAMING_LIST writes them */
    uint64_t seed;
    int64_t created_s, finished_s; /* wall time */
    int32_t priority;
    bool is_stored; /* `store`: found under /v1/responses and /v1/chat/completions */
    bool is_background;
    uint32_t lost_count; /* how often the engine was lost while it ran */
    enum answer_state state;
    char *memory; /* what the strings point into, if it was read */
};
void answer_row_deinit(struct answer_row *row); /* frees `memory` */

/* ST_BAD: the id exists. */
enum status answers_insert(struct store_db *db, const struct answer_row *row, struct err *err);

struct answer_end {
    enum answer_state state; /* not OPEN */
    struct str output, whole, pieces;
    int64_t finished_s;
};
/* ST_MISSING: no such row. ST_OK without effect if it had ended before. Its conversation gets the
 * items of its input and output in the same transaction, if it is DONE. */
enum status answers_finish(struct store_db *db, struct str id, const struct answer_end *end,
                           struct err *err);
/* `owner` empty: any. By id, or by x-request-id (the newest). ST_MISSING. `with_texts`: also body,
 * prompt, items, output, whole and pieces. */
enum status answers_find(struct store_db *db, struct str owner, struct str id, bool with_texts,
                         struct answer_row *out, struct err *err);
/* The open rows of a model in the order of creation, after row `after` (0: from the first);
 * *rowid is its number. ST_MISSING: no more. */
enum status answers_next_open(struct store_db *db, struct str model, int64_t after, int64_t *rowid,
                              struct answer_row *out, struct err *err);
enum status answers_note_lost(struct store_db *db, struct str id, struct err *err);
enum status answers_delete(struct store_db *db, struct str owner, struct str id, struct err *err);
enum status answers_set_metadata(struct store_db *db, struct str owner, struct str id,
                                 struct str metadata, struct err *err);

/* A page of stored answers of a codec that have a `whole`, newest first unless `ascending`;
 * `after`: id or empty. `each` gets rows with `whole` and the short texts; it returns false to
 * stop. ST_MISSING: there is no answer `after`. */
struct answers_page {
    struct str owner, codec, model, after;
    uint32_t limit;
    bool ascending;
};
enum status answers_list(struct store_db *db, const struct answers_page *page,
                         bool (*each)(void *ctx, const struct answer_row *row), void *ctx,
                         struct err *err);

/* The items of a conversation so far that ends with answer `id`, oldest first, as one JSON list:
 * inputs and outputs along `previous`. ST_MISSING: `id` or one before it is gone; ST_BAD: it is not
 * DONE, or there are more than `bytes_max` bytes. `out` is to be freed with mem_free. */
enum status answers_items(struct store_db *db, struct str owner, struct str id, size_t bytes_max,
                          struct str *out, struct err *err);

/* Delete what has ended before `before_s`; at most `limit` rows. *count: how many. */
enum status answers_expire(struct store_db *db, int64_t before_s, uint32_t limit, uint32_t *count,
                           struct err *err);

/* ---- conversations ---- */

enum status conversations_insert(struct store_db *db, struct str owner, struct str id,
                                 struct str metadata, int64_t created_s, struct err *err);
struct conversation_row {
    struct str id, metadata;
    int64_t created_s;
    char *memory;
};
void conversation_row_deinit(struct conversation_row *row);
enum status conversations_find(struct store_db *db, struct str owner, struct str id,
                               struct conversation_row *out, struct err *err);
enum status conversations_set_metadata(struct store_db *db, struct str owner, struct str id,
                                       struct str metadata, struct err *err);
enum status conversations_delete(struct store_db *db, struct str owner, struct str id,
                                 struct err *err);
/* Append the items of a JSON list; each gets an id ("msg_..." and the like) if it has none. */
enum status conversations_append(struct store_db *db, struct str owner, struct str id,
                                 struct str items, struct err *err);
/* All items as one JSON list, as answers_items. */
enum status conversations_items(struct store_db *db, struct str owner, struct str id,
                                size_t bytes_max, struct str *out, struct err *err);
/* ST_MISSING; ST_BAD: an answer that will add to it is not complete. */
enum status conversations_check_complete(struct store_db *db, struct str owner, struct str id,
                                         struct err *err);
/* Which items it has. A number is not used twice, so two equal marks of a conversation mean that
 * its items are the same. */
struct conversation_mark {
    int64_t item_count, last_item; /* the highest number; 0: no items */
};
enum status conversations_mark(struct store_db *db, struct str owner, struct str id,
                               struct conversation_mark *out, struct err *err);
/* ST_MISSING; ST_BAD: an item was added or deleted since it had this mark. */
enum status conversations_check_unchanged(struct store_db *db, struct str owner, struct str id,
                                          struct conversation_mark mark, struct err *err);
/* A page: oldest first if `ascending`; `each` gets one item's id and its JSON. */
enum status conversations_list(struct store_db *db, const struct answers_page *page, struct str id,
                               bool (*each)(void *ctx, struct str item_id, struct str json),
                               void *ctx, struct err *err);
enum status conversations_delete_item(struct store_db *db, struct str owner, struct str id,
                                      struct str item_id, struct err *err);

#endif
