/* engine/stops.c - see engine/stops.h for the contract. */
#include "engine/stops.h"

#include <string.h>

enum { HELD_MAX = 1 << 20 };

void stops_init(struct stops *s, const struct str *strings, uint32_t count) {
    *s = (struct stops){.strings = strings, .count = count};
    buf_init(&s->held, HELD_MAX);
}

void stops_deinit(struct stops *s) { buf_deinit(&s->held); }

/* Where the earliest stop string begins in `text`, and which; text.len if there is none. */
static size_t find_stop(struct stops *s, struct str text) {
    for (size_t at = 0; at < text.len; at++)
        for (uint32_t i = 0; i < s->count; i++) {
            if (s->strings[i].len == 0 || !str_starts(str_skip(text, at), s->strings[i])) continue;
            s->met = s->strings[i];
            return at;
        }
    return text.len;
}

/* Where the longest ending of `text` begins that a stop string could continue. */
static size_t find_beginning(const struct stops *s, struct str text) {
    for (size_t at = 0; at < text.len; at++)
        for (uint32_t i = 0; i < s->count; i++)
            if (str_starts(s->strings[i], str_skip(text, at))) return at;
    return text.len;
}

bool stops_push(struct stops *s, struct str text, struct buf *out) {
    buf_put_str(&s->held, text);
    struct str all = buf_str(&s->held);
    size_t stop = find_stop(s, all);
    bool met = stop < all.len;
    size_t shown = met ? stop : find_beginning(s, all);
    buf_put(out, all.ptr, shown);
    size_t rest = met ? 0 : all.len - shown;
    if (rest) memmove(s->held.ptr, s->held.ptr + shown, rest);
    s->held.len = rest;
    return met;
}

void stops_finish(struct stops *s, struct buf *out) {
    buf_put_str(out, buf_str(&s->held));
    buf_clear(&s->held);
}
