/* api/event.c - see api/event.h for the contract. */
#include "api/event.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { FIRST_EVENTS = 16 };

struct stored_event {
    uint32_t text_at, text_len;
    uint32_t choice, tool;
    uint32_t first_token, token_count;
    uint32_t next; /* of the same choice, or EVENT_NO */
    uint8_t kind, finish;
};

/* The first and last event of a choice. */
struct chain {
    uint32_t first, last;
};

struct event_log {
    uint64_t bytes_max;
    struct stored_event *events;
    uint32_t count, cap;
    struct chain *chains; /* [chain_count], by choice */
    uint32_t chain_count;
    struct buf text;
};

enum status event_log_create(struct event_log **out, uint64_t bytes_max) {
    struct event_log *log = mem_zalloc(sizeof(*log));
    if (!log) return ST_NOMEM;
    log->bytes_max = bytes_max < UINT32_MAX ? bytes_max : UINT32_MAX; /* offsets have 32 bits */
    buf_init(&log->text, (size_t)log->bytes_max);
    *out = log;
    return ST_OK;
}

void event_log_destroy(struct event_log *log) {
    if (!log) return;
    buf_deinit(&log->text);
    mem_free(log->events);
    mem_free(log->chains);
    mem_free(log);
}

static enum status make_room(struct event_log *log) {
    if (log->count < log->cap) return ST_OK;
    uint32_t cap = log->cap ? log->cap * 2 : FIRST_EVENTS;
    struct stored_event *grown = mem_realloc(log->events, cap * sizeof(*grown));
    if (!grown) return ST_NOMEM;
    log->events = grown;
    log->cap = cap;
    return ST_OK;
}

static enum status make_chain(struct event_log *log, uint32_t choice) {
    if (choice < log->chain_count) return ST_OK;
    struct chain *grown = mem_realloc(log->chains, (choice + 1) * sizeof(*grown));
    if (!grown) return ST_NOMEM;
    for (uint32_t i = log->chain_count; i <= choice; i++)
        grown[i] = (struct chain){EVENT_NO, EVENT_NO};
    log->chains = grown;
    log->chain_count = choice + 1;
    return ST_OK;
}

/* Make the newest event the last one of its choice. */
static void link_event(struct event_log *log) {
    const uint32_t i = log->count - 1;
    struct chain *t = &log->chains[log->events[i].choice];
    if (t->last == EVENT_NO)
        t->first = i;
    else
        log->events[t->last].next = i;
    t->last = i;
}

enum status event_log_add(struct event_log *log, const struct api_event *ev) {
    uint64_t bytes = event_log_bytes(log);
    if (bytes + sizeof(struct stored_event) > log->bytes_max) return ST_FULL;
    if (ev->text.len > log->bytes_max - bytes - sizeof(struct stored_event)) return ST_FULL;
    TRY(make_room(log));
    TRY(make_chain(log, ev->choice));
    size_t at = log->text.len;
    if (ev->text.len) buf_put_str(&log->text, ev->text);
    TRY(buf_status(&log->text));
    log->events[log->count++] = (struct stored_event){
        .text_at = (uint32_t)at,
        .text_len = (uint32_t)ev->text.len,
        .choice = ev->choice,
        .tool = ev->tool,
        .first_token = ev->first_token,
        .token_count = ev->token_count,
        .next = EVENT_NO,
        .kind = (uint8_t)ev->kind,
        .finish = (uint8_t)ev->finish,
    };
    link_event(log);
    return ST_OK;
}

uint32_t event_log_count(const struct event_log *log) { return log->count; }

struct api_event event_log_at(const struct event_log *log, uint32_t i) {
    CHECK(i < log->count);
    const struct stored_event *r = &log->events[i];
    return (struct api_event){
        .kind = (enum api_event_kind)r->kind,
        .choice = r->choice,
        .tool = r->tool,
        .first_token = r->first_token,
        .token_count = r->token_count,
        .finish = (enum finish_reason)r->finish,
        .text = {r->text_len ? log->text.ptr + r->text_at : "", r->text_len},
    };
}

uint32_t event_log_first(const struct event_log *log, uint32_t choice) {
    return choice < log->chain_count ? log->chains[choice].first : EVENT_NO;
}

uint32_t event_log_last(const struct event_log *log, uint32_t choice) {
    return choice < log->chain_count ? log->chains[choice].last : EVENT_NO;
}

uint32_t event_log_after(const struct event_log *log, uint32_t i) {
    CHECK(i < log->count);
    return log->events[i].next;
}

uint64_t event_log_bytes(const struct event_log *log) {
    return log->text.len + (uint64_t)log->count * sizeof(struct stored_event);
}

struct str event_cut_text(struct str text, size_t bytes) {
    if (bytes >= text.len) return text;
    size_t end = 0;
    while (end < text.len) {
        uint32_t code;
        size_t len = utf8_decode(str_skip(text, end), &code);
        if (end > 0 && end + len > bytes) break;
        end += len;
    }
    return str_take(text, end);
}
