/* api/call_ids.h - finds the tool call that a result of a conversation belongs to.
 *
 * The reader of the messages adds calls and takes results in the order of the conversation:
 *
 *     call_ids_init(&ids, &words);
 *     call_ids_begin_turn(&ids);                   earlier calls take no more results
 *     st = call_ids_add(&ids, &(struct call_place){..});
 *     call = call_ids_take(&ids, id, name);        NULL: no call awaits this result
 *     st = call_ids_check_results(&ids, e);        every call with an id has a result
 *     call_ids_deinit(&ids);
 *
 * Only calls that have no result yet count. A result with an id belongs to the first call with that
 * id, or else to the first call without an id. A result without an id belongs to the first call of
 * its tool's name, or else to the first call. Each call takes one result, and its id may then be
 * used again.
 *
 * Lifetime: init, use, deinit. Texts are borrowed from the request's body. Thread: its owner.
 * Memory: a few words for each call. Time: constant for a call and for a result, on average.
 */
#ifndef API_CALL_IDS_H
#define API_CALL_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "base/status.h"
#include "base/str.h"

struct map;

struct call_place {
    struct str id, name;    /* id: empty if the call has none */
    uint32_t message, part; /* where it is, for errors */
};

struct call_entry {
    struct call_place place;
    bool has_result;
    /* Chains of the calls with the same id [0] and with the same name [1], in their order. */
    uint32_t next[2];
    uint32_t last[2]; /* of the first entry of a chain: its last one */
};

/* The words of a wire format, for errors. */
struct call_words {
    const char *call_param; /* a printf format for call_place.message and .part */
    const char *call;       /* "the assistant's message with the call" */
    const char *result;     /* "a message of the role tool with this tool_call_id" */
};

struct call_ids {
    const struct call_words *words;
    struct call_entry *entries; /* owned; of all turns */
    uint32_t count, cap;
    uint32_t turn_first;  /* the first entry of the turn */
    uint32_t first_open;  /* no entry before it awaits a result */
    uint32_t open;        /* entries of the turn that await a result */
    struct map *chain[2]; /* by id and by name: the first entry of the chain; owned */
};

void call_ids_init(struct call_ids *c, const struct call_words *words);
void call_ids_deinit(struct call_ids *c);

void call_ids_begin_turn(struct call_ids *c);
enum status call_ids_add(struct call_ids *c, const struct call_place *place); /* ST_NOMEM */
/* Find the call of a result and note that it has one. NULL: no call awaits this result. Valid until
 * the next call_ids_add. */
const struct call_entry *call_ids_take(struct call_ids *c, struct str id, struct str name);
uint32_t call_ids_number(const struct call_ids *c, const struct call_entry *call); /* from 0 on */

/* Refuse a result that call_ids_take found no call for. `param` is the place of its id. */
enum status call_ids_refuse(const struct call_ids *c, struct str id, const char *param,
                            struct api_error *e);
/* ST_BAD: a call of this turn that has an id has no result, and `e` says which. */
enum status call_ids_check_results(const struct call_ids *c, struct api_error *e);

#endif
