/* api/call_ids.c - see api/call_ids.h for the contract. */
#include "api/call_ids.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"

enum { BY_ID, BY_NAME, CHAINS };
enum { FIRST_ENTRIES = 8, IDS_SHOWN = 4, ID_SHOWN_BYTES = 64, SHOWN_BYTES_MAX = 1024 };

static const uint32_t NO_ENTRY = UINT32_MAX;

void call_ids_init(struct call_ids *c, const struct call_words *words) {
    *c = (struct call_ids){.words = words};
}

void call_ids_deinit(struct call_ids *c) {
    mem_free(c->entries);
    for (int i = 0; i < CHAINS; i++) map_destroy(c->chain[i]);
}

void call_ids_begin_turn(struct call_ids *c) {
    c->turn_first = c->first_open = c->count;
    c->open = 0;
}

uint32_t call_ids_number(const struct call_ids *c, const struct call_entry *call) {
    return (uint32_t)(call - c->entries);
}

static struct str key_of(const struct call_entry *e, int by) {
    return by == BY_ID ? e->place.id : e->place.name;
}

static enum status make_room(struct call_ids *c) {
    for (int i = 0; i < CHAINS; i++) {
        if (!c->chain[i]) c->chain[i] = map_create(FIRST_ENTRIES);
        if (!c->chain[i]) return ST_NOMEM;
    }
    if (c->count < c->cap) return ST_OK;
    uint32_t cap = c->cap ? c->cap * 2 : FIRST_ENTRIES;
    struct call_entry *grown = mem_realloc(c->entries, cap * sizeof(*grown));
    if (!grown) return ST_NOMEM;
    c->entries = grown;
    c->cap = cap;
    return ST_OK;
}

/* The first entry of a chain, if it is one of this turn. */
static uint32_t chain_first(const struct call_ids *c, int by, struct str key) {
    uint32_t first = NO_ENTRY;
    if (!c->chain[by] || !map_find(c->chain[by], key, &first)) return NO_ENTRY;
    return first == NO_ENTRY || first < c->turn_first ? NO_ENTRY : first;
}

static enum status chain_add(struct call_ids *c, int by, uint32_t added) {
    const struct str key = key_of(&c->entries[added], by);
    uint32_t first = chain_first(c, by, key);
    if (first == NO_ENTRY) return map_put(c->chain[by], key, added);
    c->entries[c->entries[first].last[by]].next[by] = added;
    c->entries[first].last[by] = added;
    return ST_OK;
}

enum status call_ids_add(struct call_ids *c, const struct call_place *place) {
    TRY(make_room(c));
    const uint32_t added = c->count++;
    c->entries[added] =
        (struct call_entry){.place = *place, .next = {NO_ENTRY, NO_ENTRY}, .last = {added, added}};
    c->open++;
    for (int i = 0; i < CHAINS; i++) TRY(chain_add(c, i, added));
    return ST_OK;
}

/* The first entry of the chain without a result. The first entry of the chain then points to it, or
 * to the last one, so that all look-ups together pass each entry once. */
static struct call_entry *chain_find_open(struct call_ids *c, int by, struct str key) {
    const uint32_t first = chain_first(c, by, key);
    if (first == NO_ENTRY) return NULL;
    if (!c->entries[first].has_result) return &c->entries[first];
    const uint32_t last = c->entries[first].last[by];
    uint32_t at = c->entries[first].next[by];
    while (at != NO_ENTRY && c->entries[at].has_result) at = c->entries[at].next[by];
    if (last != first) c->entries[first].next[by] = at == NO_ENTRY ? last : at;
    return at == NO_ENTRY ? NULL : &c->entries[at];
}

static struct call_entry *find_first_open(struct call_ids *c) {
    while (c->first_open < c->count && c->entries[c->first_open].has_result) c->first_open++;
    return c->first_open < c->count ? &c->entries[c->first_open] : NULL;
}

static struct call_entry *find_call(struct call_ids *c, struct str id, struct str name) {
    if (id.len) {
        struct call_entry *own = chain_find_open(c, BY_ID, id);
        return own ? own : chain_find_open(c, BY_ID, STR(""));
    }
    struct call_entry *named = name.len ? chain_find_open(c, BY_NAME, name) : NULL;
    return named ? named : find_first_open(c);
}

const struct call_entry *call_ids_take(struct call_ids *c, struct str id, struct str name) {
    struct call_entry *call = find_call(c, id, name);
    if (!call) return NULL;
    call->has_result = true;
    c->open--;
    return call;
}

/* --- errors ----------------------------------------------------------------------------- */

static struct str shown(struct str text) { return str_take(text, ID_SHOWN_BYTES); }

/* 'a', 'b' and 3 more */
static void put_open_ids(const struct call_ids *c, struct buf *out) {
    uint32_t listed = 0;
    for (uint32_t i = c->first_open; i < c->count && listed < IDS_SHOWN; i++) {
        const struct call_entry *e = &c->entries[i];
        if (e->has_result) continue;
        const struct str id = shown(e->place.id);
        buf_printf(out, "%s'%.*s'", listed++ ? ", " : "", STR_ARG(id));
    }
    if (c->open > listed) buf_printf(out, " and %u more", c->open - listed);
}

enum status call_ids_refuse(const struct call_ids *c, struct str id, const char *param,
                            struct api_error *e) {
    const struct str own = shown(id);
    if (c->count == c->turn_first)
        return api_refuse(e, 400, param, "invalid_value",
                          "Invalid '%s': there is no tool call before this result. Send %s first, "
                          "and its results directly after it.",
                          param, c->words->call);
    if (c->open == 0)
        return api_refuse(e, 400, param, "invalid_value",
                          "Invalid '%s': every tool call before the result '%.*s' already has a "
                          "result. Send one result for each call.",
                          param, STR_ARG(own));
    struct buf ids;
    buf_init(&ids, SHOWN_BYTES_MAX);
    put_open_ids(c, &ids);
    enum status st = api_refuse(e, 400, param, "invalid_value",
                                "Invalid '%s': no tool call that awaits a result has the id "
                                "'%.*s'; expected one of: %s. Send each result with the id of its "
                                "call.",
                                param, STR_ARG(own), buf_text(&ids));
    buf_deinit(&ids);
    return st;
}

static enum status refuse_missing(const struct call_ids *c, const struct call_place *p,
                                  struct api_error *e) {
    char param[API_PARAM_BYTES];
    const struct str id = shown(p->id);
    snprintf(param, sizeof(param), c->words->call_param, p->message, p->part);
    return api_refuse(e, 400, param, "invalid_value",
                      "Invalid '%s': the tool call '%.*s' has no result. Send %s after it.", param,
                      STR_ARG(id), c->words->result);
}

enum status call_ids_check_results(const struct call_ids *c, struct api_error *e) {
    if (c->open == 0) return ST_OK;
    for (uint32_t i = c->first_open; i < c->count; i++) {
        const struct call_entry *call = &c->entries[i];
        if (!call->has_result && call->place.id.len) return refuse_missing(c, &call->place, e);
    }
    return ST_OK;
}
