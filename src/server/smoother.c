/* server/smoother.c - see server/smoother.h. */
#include "server/smoother.h"

#include "api/event.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"

struct smoother {
    struct event_log *stage;
    int64_t window_us, last_us, due_us;
    uint32_t noted;   /* events of the stage whose characters are counted */
    uint32_t next;    /* the first that has not moved completely */
    size_t offset;    /* bytes of its text that have moved */
    uint64_t pending; /* characters counted and not moved */
};

enum status smoother_create(int64_t window_us, uint64_t bytes_max, struct smoother **out) {
    CHECK(window_us > 0);
    struct smoother *s = mem_zalloc(sizeof(*s));
    if (!s) return ST_NOMEM;
    s->window_us = window_us;
    if (event_log_create(&s->stage, bytes_max) != ST_OK) {
        mem_free(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

void smoother_destroy(struct smoother *s) {
    if (!s) return;
    event_log_destroy(s->stage);
    mem_free(s);
}

struct event_log *smoother_stage(struct smoother *s) {
    return s->stage;
}

bool smoother_is_empty(const struct smoother *s) { return s->next == event_log_count(s->stage); }

/* Names of tools and stop strings are not divided. */
static bool is_text(const struct api_event *ev) {
    return ev->kind == EVENT_TEXT || ev->kind == EVENT_THOUGHT || ev->kind == EVENT_ARGS;
}

void smoother_note(struct smoother *s, int64_t now_us) {
    uint32_t count = event_log_count(s->stage);
    if (s->noted == count) return;
    if (s->pending == 0) s->last_us = now_us;
    for (; s->noted < count; s->noted++) {
        struct api_event ev = event_log_at(s->stage, s->noted);
        if (is_text(&ev)) s->pending += utf8_count(ev.text);
    }
    s->due_us = now_us + s->window_us;
}

/* How many characters may move now; rounded down, and the rest of the time is kept. */
static uint64_t budget_of(struct smoother *s, int64_t now_us) {
    if (now_us >= s->due_us) return s->pending;
    if (now_us <= s->last_us) return 0;
    double share = (double)(now_us - s->last_us) / (double)(s->due_us - s->last_us);
    return (uint64_t)(share * (double)s->pending);
}

/* The first `chars` characters of a text, in bytes; *chars becomes how many there were. */
static size_t prefix_bytes(struct str text, uint64_t *chars) {
    size_t bytes = 0;
    uint64_t seen = 0;
    while (bytes < text.len && seen < *chars) {
        uint32_t code;
        bytes += utf8_decode(str_skip(text, bytes), &code);
        seen++;
    }
    *chars = seen;
    return bytes;
}

enum status smoother_release(struct smoother *s, int64_t now_us, struct event_log *to,
                             smoother_finish_fn *on_finish, void *ctx) {
    uint64_t budget = budget_of(s, now_us);
    if (budget > 0) s->last_us = now_us;
    while (!smoother_is_empty(s)) {
        struct api_event ev = event_log_at(s->stage, s->next);
        struct str left = str_skip(ev.text, s->offset);
        uint64_t chars = is_text(&ev) ? budget : 0;
        size_t bytes = is_text(&ev) ? prefix_bytes(left, &chars) : left.len;
        if (is_text(&ev) && left.len > 0 && bytes == 0) return ST_OK;
        if (s->offset > 0) {
            ev.first_token += ev.token_count;
            ev.token_count = 0;
        }
        ev.text = (struct str){left.ptr, bytes};
        TRY(event_log_add(to, &ev));
        budget -= chars;
        s->pending -= chars;
        s->offset += bytes;
        if (bytes < left.len) return ST_OK;
        s->next++;
        s->offset = 0;
        if (ev.kind == EVENT_FINISH) on_finish(ctx, ev.choice, ev.finish);
    }
    return ST_OK;
}
