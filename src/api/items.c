/* api/items.c - see api/items.h for the contract. */
#include "api/items.h"

#include "base/check.h"
#include "base/json.h"

enum { ITEM_BYTES_MAX = 1 << 30 }; /* the log of events has a limit of its own */

void answer_items_init(struct answer_items *it, const struct answer *a, enum args_form form) {
    *it = (struct answer_items){.answer = a, .form = form};
    buf_init(&it->text, ITEM_BYTES_MAX);
}

static void add_tokens(struct answer_item *item, const struct api_event *ev) {
    if (ev->token_count == 0) return;
    if (item->token_count == 0) item->first_token = ev->first_token;
    item->token_count = ev->first_token + ev->token_count - item->first_token;
}

/* Whether the event belongs to the item; the first event begins it. */
static bool takes(const struct answer_item *item, bool has_item, const struct api_event *ev) {
    switch (ev->kind) {
    case EVENT_THOUGHT:
        return !has_item || item->kind == ITEM_THOUGHT || ev->text.len == 0;
    case EVENT_TEXT:
        return !has_item || item->kind == ITEM_TEXT || ev->text.len == 0;
    case EVENT_TOOL:
        return !has_item;
    default:
        return true;
    }
}

/* Out of memory: `text` gets that status. */
static bool is_object(struct str args, struct buf *text) {
    struct json *doc = NULL;
    enum status st = json_parse(args, &json_limits_request, &doc, NULL);
    bool is_map = json_kind(doc) == JS_MAP;
    if (st == ST_NOMEM) text->status = st;
    json_destroy(doc);
    return is_map;
}

/* The call is given as text if its arguments have no other form. */
static void check_call(struct answer_items *it, struct answer_item *item) {
    if (item->kind != ITEM_CALL || it->form == ARGS_AS_TEXT || is_object(item->text, &it->text))
        return;
    struct buf args = it->text;
    buf_init(&it->text, ITEM_BYTES_MAX);
    buf_put_str(&it->text, item->name);
    buf_put_char(&it->text, ' ');
    buf_put_str(&it->text, buf_str(&args));
    if (buf_status(&args) != ST_OK) it->text.status = buf_status(&args);
    buf_deinit(&args);
    item->kind = ITEM_TEXT;
    item->text = buf_str(&it->text);
}

bool answer_items_next(struct answer_items *it, struct answer_item *item) {
    const struct event_log *log = it->answer->log;
    bool has_item = false;
    *item = (struct answer_item){.idx = it->next_idx};
    it->text.len = 0;
    for (; it->next_event < event_log_count(log); it->next_event++) {
        struct api_event ev = event_log_at(log, it->next_event);
        if (ev.choice != 0 || ev.kind == EVENT_FINISH) continue;
        if (!takes(item, has_item, &ev)) break;
        if (ev.kind == EVENT_TOOL) {
            item->kind = ITEM_CALL;
            has_item = true;
            item->call = ev.tool;
            item->name = ev.text;
        } else if (ev.text.len) {
            if (!has_item && ev.kind == EVENT_THOUGHT) item->kind = ITEM_THOUGHT;
            has_item = true;
            buf_put_str(&it->text, ev.text);
        }
        add_tokens(item, &ev);
    }
    item->text = buf_str(&it->text);
    check_call(it, item);
    it->next_idx += has_item;
    return has_item;
}

void answer_items_deinit(struct answer_items *it, struct buf *out) {
    if (buf_status(&it->text) != ST_OK) out->status = buf_status(&it->text);
    buf_deinit(&it->text);
}

enum finish_reason answer_finish(const struct answer *a) {
    return a->choice_count ? a->choices[0].finish : FINISH_NONE;
}

struct str answer_stop_text(const struct answer *a) {
    return answer_last_event(a, 0).text;
}

bool put_args_object(struct str args, struct buf *out) {
    struct json *doc = NULL;
    enum status st = json_parse(args, &json_limits_request, &doc, NULL);
    bool is_map = json_kind(doc) == JS_MAP;
    if (st == ST_NOMEM) out->status = ST_NOMEM;
    if (is_map) json_put(doc, out);
    json_destroy(doc);
    return is_map;
}
