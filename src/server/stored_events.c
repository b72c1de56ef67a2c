/* server/stored_events.c - see server/stored_events.h. */
#include "server/stored_events.h"

#include <string.h>

struct event {
    uint32_t number;
    struct str type, data;
};

/* The first line of *rest without its prefix, if it has that prefix. */
static bool take_line(struct str *rest, struct str prefix, struct str *out) {
    if (!str_starts(*rest, prefix)) return false;
    const char *end = memchr(rest->ptr, '\n', rest->len);
    if (!end) return false;
    struct str line = str_take(*rest, (size_t)(end - rest->ptr));
    *rest = str_skip(*rest, line.len + 1);
    *out = str_skip(line, prefix.len);
    return true;
}

/* Remove the first event from *rest. False: there is none, or the text is not what we write. */
static bool take_event(struct str *rest, struct event *out) {
    struct str number, empty;
    uint64_t value;
    *out = (struct event){0};
    if (!take_line(rest, STR("id: "), &number) || !str_to_u64(number, &value)) return false;
    if (value > UINT32_MAX) return false;
    out->number = (uint32_t)value;
    (void)take_line(rest, STR("event: "), &out->type);
    return take_line(rest, STR("data: "), &out->data) && take_line(rest, STR(""), &empty);
}

struct str stored_events_after(struct str events, uint32_t after, bool has_failed) {
    struct str rest = events, from = events, found = {0}, error = {0};
    uint32_t error_number = 0;
    struct event ev;
    while (!(found.ptr && !has_failed) && take_event(&rest, &ev)) {
        if (!found.ptr && ev.number > after) found = from;
        if (!str_is(ev.data, "[DONE]")) {
            error = from;
            error_number = ev.number;
        }
        from = rest;
    }
    if (!found.ptr) found = str_skip(events, events.len);
    if (!has_failed || !error.ptr || found.len >= error.len) return found;
    /* An answer that was given up at its beginning has no other event than its error. */
    return found.len == 0 || error_number == 1 ? error : found;
}

static void put_item(const struct event *ev, struct buf *out) {
    buf_printf(out, "%s{\"id\":%u,\"event\":", out->len ? "," : "", ev->number);
    if (ev->type.len)
        buf_put_json_string(out, ev->type);
    else
        buf_put_text(out, "null");
    buf_put_text(out, ",\"data\":");
    if (str_starts(ev->data, STR("{")))
        buf_put_str(out, ev->data);
    else
        buf_put_json_string(out, ev->data); /* "[DONE]" */
    buf_put_char(out, '}');
}

uint32_t stored_events_put_list(struct str events, uint32_t after, uint32_t limit, bool *is_all,
                                struct buf *out) {
    struct event ev;
    uint32_t last = after;
    for (uint32_t i = 0; i < limit && take_event(&events, &ev); i++) {
        put_item(&ev, out);
        last = ev.number > after ? ev.number : after;
    }
    *is_all = events.len == 0;
    return last;
}

void stored_events_put_lines(struct str events, struct buf *out) {
    struct event ev;
    while (take_event(&events, &ev)) {
        buf_put_str(out, ev.data);
        buf_put_char(out, '\n');
    }
}
