/* engine/record_json.c - see engine/record_json.h. Numbers are written without printf: a step of
 * 64 sequences has 600 of them. */
#include "engine/record_json.h"

#include "base/buf.h"
#include "base/mem.h"
#include "engine/record.h"
#include "sched/policy.h"

void record_put_hello(const struct record_hello *hello, struct buf *out) {
    buf_put_text(out, "{\"jitney\":\"" JITNEY_VERSION "\",\"model\":");
    buf_put_json_string(out, hello->model);
    buf_printf(out, ",\"epoch_ms\":%lld,\"seats\":%u,\"blocks\":%u,\"block_tokens\":%u",
               (long long)hello->epoch_ms, hello->seats, hello->blocks, hello->block_tokens);
    buf_put_text(out,
                 ",\"rows\":[\"seat\",\"request\",\"choice\",\"tenant\",\"first\",\"count\","
                 "\"cached\",\"sampled\",\"drafts\",\"batch\",\"accepted\"]"
                 ",\"waiting\":[\"request\",\"choice\",\"tenant\",\"why\"]"
                 ",\"arrived\":[\"request\",\"choice\",\"tenant\",\"at_us\",\"prompt\",\"max\","
                 "\"batch\"]"
                 ",\"admitted\":[\"request\",\"choice\",\"tenant\",\"seat\",\"waited_us\","
                 "\"cached\"]"
                 ",\"preempted\":[\"request\",\"choice\",\"why\",\"how\",\"for_request\","
                 "\"for_choice\"]"
                 ",\"ended\":[\"request\",\"choice\",\"why\",\"generated\",\"at_us\"]}");
}

/* ---- parts of a step ---- */

static void put_int(struct buf *out, int64_t v) {
    if (v < 0) buf_put_char(out, '-');
    buf_put_uint(out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

static void put_member(struct buf *out, const char *name, int64_t v) {
    buf_put_text(out, name); /* with its comma, quotes and colon */
    put_int(out, v);
}

/* A number and what comes before it. */
static void put_next(struct buf *out, char before, uint64_t v) {
    buf_put_char(out, before);
    buf_put_uint(out, v);
}

static void put_word(struct buf *out, const char *word) {
    buf_put_text(out, ",\"");
    buf_put_text(out, word);
    buf_put_char(out, '"');
}

static void begin_list(struct buf *out, const char *name) {
    buf_put_text(out, ",\"");
    buf_put_text(out, name);
    buf_put_text(out, "\":[");
}

static void begin_entry(struct buf *out, uint32_t i) {
    if (i > 0) buf_put_char(out, ',');
}

/* Tokens before its first that it did not compute; 0 unless it was admitted in this record. */
static uint32_t cached_of(const struct record_lists *l, const struct record_row *row) {
    for (uint32_t i = 0; i < l->admitted_count; i++)
        if (l->admitted[i].request == row->request && l->admitted[i].choice == row->choice)
            return l->admitted[i].cached;
    return 0;
}

static void put_rows(struct buf *out, const struct record_lists *l) {
    if (l->row_count == 0) return;
    begin_list(out, "rows");
    for (uint32_t i = 0; i < l->row_count; i++) {
        const struct record_row *row = &l->rows[i];
        begin_entry(out, i);
        put_next(out, '[', row->seat);
        put_next(out, ',', row->request);
        put_next(out, ',', row->choice);
        put_next(out, ',', row->tenant);
        put_next(out, ',', row->first);
        put_next(out, ',', row->count);
        put_next(out, ',', cached_of(l, row));
        put_next(out, ',', row->samples);
        put_next(out, ',', row->drafts);
        put_next(out, ',', row->is_batch);
        put_next(out, ',', row->accepted);
        buf_put_char(out, ']');
    }
    buf_put_char(out, ']');
}

static void put_waits(struct buf *out, const struct record_lists *l) {
    if (l->wait_count == 0) return;
    begin_list(out, "waiting");
    for (uint32_t i = 0; i < l->wait_count; i++) {
        const struct plan_wait *w = &l->waits[i];
        begin_entry(out, i);
        put_next(out, '[', w->request);
        put_next(out, ',', w->choice);
        put_next(out, ',', w->tenant);
        put_word(out, wait_why_name(w->why));
        buf_put_char(out, ']');
    }
    buf_put_char(out, ']');
}

static void put_arrived(struct buf *out, const struct record_lists *l) {
    if (l->arrived_count == 0) return;
    begin_list(out, "arrived");
    for (uint32_t i = 0; i < l->arrived_count; i++) {
        const struct record_arrived *a = &l->arrived[i];
        begin_entry(out, i);
        put_next(out, '[', a->request);
        put_next(out, ',', a->choice);
        put_next(out, ',', a->tenant);
        buf_put_char(out, ',');
        put_int(out, a->at_us);
        put_next(out, ',', a->prompt_tokens);
        put_next(out, ',', a->max_tokens);
        put_next(out, ',', a->is_batch);
        buf_put_char(out, ']');
    }
    buf_put_char(out, ']');
}

static void put_admitted(struct buf *out, const struct record_lists *l) {
    if (l->admitted_count == 0) return;
    begin_list(out, "admitted");
    for (uint32_t i = 0; i < l->admitted_count; i++) {
        const struct plan_admitted *a = &l->admitted[i];
        begin_entry(out, i);
        put_next(out, '[', a->request);
        put_next(out, ',', a->choice);
        put_next(out, ',', a->tenant);
        put_next(out, ',', a->seat);
        buf_put_char(out, ',');
        put_int(out, a->waited_us);
        put_next(out, ',', a->cached);
        buf_put_char(out, ']');
    }
    buf_put_char(out, ']');
}

static void put_preempted(struct buf *out, const struct record_lists *l) {
    if (l->preempted_count == 0) return;
    begin_list(out, "preempted");
    for (uint32_t i = 0; i < l->preempted_count; i++) {
        const struct plan_preempted *p = &l->preempted[i];
        begin_entry(out, i);
        put_next(out, '[', p->request);
        put_next(out, ',', p->choice);
        put_word(out, preempt_why_name(p->why));
        put_word(out, p->swapped ? "swap" : "recompute");
        put_next(out, ',', p->for_request);
        put_next(out, ',', p->for_choice);
        buf_put_char(out, ']');
    }
    buf_put_char(out, ']');
}

static void put_ended(struct buf *out, const struct record_lists *l) {
    if (l->ended_count == 0) return;
    begin_list(out, "ended");
    for (uint32_t i = 0; i < l->ended_count; i++) {
        const struct record_ended *e = &l->ended[i];
        begin_entry(out, i);
        put_next(out, '[', e->request);
        put_next(out, ',', e->choice);
        put_word(out, finish_name(e->why));
        put_next(out, ',', e->generated);
        buf_put_char(out, ',');
        put_int(out, e->at_us);
        buf_put_char(out, ']');
    }
    buf_put_char(out, ']');
}

/* ---- a step ---- */

static void put_numbers(struct buf *out, const struct record_head *h) {
    put_member(out, "{\"step\":", (int64_t)h->number);
    put_member(out, ",\"at_us\":", h->times.at_us);
    put_member(out, ",\"us\":", h->times.elapsed_us);
    put_member(out, ",\"predicted_us\":", h->times.predicted_us);
    put_member(out, ",\"target_us\":", h->times.target_us);
    put_member(out, ",\"sched_us\":", h->times.sched_us);
    buf_put_text(out, ",\"policy\":\"");
    buf_put_text(out, sched_policies[h->policy]->name);
    buf_put_char(out, '"');
}

static void put_counts(struct buf *out, const struct record_head *h) {
    put_member(out, ",\"waiting_count\":", h->waiting);
    put_member(out, ",\"running\":", h->running);
    put_member(out, ",\"swapped\":", h->swapped);
    put_member(out, ",\"batch_running\":", h->batch_running);
    put_member(out, ",\"batch_waiting\":", h->batch_waiting);
    put_member(out, ",\"moves\":{\"in\":", h->moves_in);
    put_member(out, ",\"out\":", h->moves_out);
    put_member(out, ",\"copy\":", h->moves_copy);
    put_member(out, "},\"blocks\":{\"used\":", h->used_blocks);
    put_member(out, ",\"shared\":", h->shared_blocks);
    put_member(out, ",\"cached\":", h->cached_blocks);
    put_member(out, ",\"free\":", h->free_blocks);
    buf_put_text(out, "}}");
}

void record_put_step(const struct record *r, struct buf *out) {
    put_numbers(out, r->head);
    put_rows(out, &r->lists);
    put_waits(out, &r->lists);
    put_arrived(out, &r->lists);
    put_admitted(out, &r->lists);
    put_preempted(out, &r->lists);
    put_ended(out, &r->lists);
    put_counts(out, r->head);
}

enum status record_put_steps(struct record_ring *ring, uint64_t count, struct buf *out) {
    const struct record_span span = record_span(ring);
    struct record_cursor c = {.next = span.first};
    if (span.next - span.first > count) c.next = span.next - count;
    const size_t bytes = record_bytes_max(ring);
    uint64_t *piece = mem_alloc(bytes);
    if (!piece) return ST_NOMEM;
    bool is_first = true;
    for (size_t used; (used = record_read(ring, &c, piece, bytes)) > 0;) {
        const void *at = piece, *end = (const char *)piece + used;
        for (struct record r; record_next(&at, end, &r); is_first = false) {
            buf_put_text(out, is_first ? "\n" : ",\n");
            record_put_step(&r, out);
        }
    }
    mem_free(piece);
    return ST_OK;
}
