/* engine/record.c - see engine/record.h for the contract.
 *
 * The records lie one behind the other in `bytes`, each in one piece: where the rest up to the end
 * is too short for the next one, `end` is set there and it begins at 0.
 *
 *     not wrapped:  0 ...  [first ... write)  ... capacity
 *     wrapped:      [0 ... write) ... [first ... end)
 *
 * A record is its head and then its lists, in the order of struct record_lists. All of them have
 * sizes that are multiples of 8. The writer fills its next record in place, behind `write`, where
 * no reader looks. `marks` has the place of every MARK_EVERYth record, so that a
 * reader finds any record with a few steps.
 */
#include "engine/record.h"

#include <pthread.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"

enum { MARK_EVERY = 64, ENTRY_BYTES_MAX = 48 };
enum { ROOM_PART = 32 }; /* of the ring that is made free at a time */

_Static_assert(sizeof(struct record_head) % 8 == 0, "records are aligned");
_Static_assert(sizeof(struct record_row) == 24, "it is what most bytes of the ring are");
_Static_assert(sizeof(struct plan_wait) % 8 == 0, "lists are aligned");
_Static_assert(sizeof(struct record_arrived) % 8 == 0, "lists are aligned");
_Static_assert(sizeof(struct plan_admitted) % 8 == 0, "lists are aligned");
_Static_assert(sizeof(struct plan_preempted) <= ENTRY_BYTES_MAX, "the longest entry");
_Static_assert(sizeof(struct plan_preempted) % 8 == 0, "lists are aligned");
_Static_assert(sizeof(struct record_ended) % 8 == 0, "lists are aligned");

struct record_ring {
    pthread_mutex_t lock;
    size_t capacity, record_max;
    size_t first, write, end; /* offsets; `end` only if it is wrapped */
    bool is_wrapped;
    struct record_span span;
    size_t room, room_wanted; /* the writer's: free bytes behind `write`, in one piece */
    uint64_t *marks;          /* of record n * MARK_EVERY, at n % mark_count */
    size_t mark_count;
    struct record_seat *seats;
    uint32_t seat_count;
    uint64_t *bytes;
};

enum status record_ring_create(struct record_ring **out, size_t bytes, uint32_t entries,
                               uint32_t seats) {
    CHECK(seats > 0);
    CHECK(seats <= UINT16_MAX);
    struct record_ring *ring = mem_zalloc(sizeof(*ring));
    if (!ring) return ST_NOMEM;
    pthread_mutex_init(&ring->lock, NULL);
    ring->record_max = sizeof(struct record_head) + (size_t)entries * ENTRY_BYTES_MAX;
    /* Of two, and of what is left free where a third one does not fit before the end. */
    size_t least = 3 * ring->record_max;
    ring->capacity = (bytes < least ? least : bytes) / 8 * 8;
    ring->room_wanted = ring->capacity / ROOM_PART;
    if (ring->room_wanted < ring->record_max) ring->room_wanted = ring->record_max;
    ring->mark_count = ring->capacity / sizeof(struct record_head) / MARK_EVERY + 2;
    ring->span = (struct record_span){1, 1};
    ring->seat_count = seats;
    ring->marks = mem_zalloc_array(ring->mark_count, sizeof(ring->marks[0]));
    ring->seats = mem_zalloc_array(seats, sizeof(ring->seats[0]));
    ring->bytes = mem_zalloc(ring->capacity);
    if (ring->marks && ring->seats && ring->bytes) {
        *out = ring;
        return ST_OK;
    }
    record_ring_destroy(ring);
    return ST_NOMEM;
}

void record_ring_destroy(struct record_ring *ring) {
    if (!ring) return;
    pthread_mutex_destroy(&ring->lock);
    mem_free(ring->marks);
    mem_free(ring->seats);
    mem_free(ring->bytes);
    mem_free(ring);
}

/* ---- writing ---- */

static const struct record_head *head_at(const struct record_ring *ring, size_t at) {
    return (const struct record_head *)(const void *)(ring->bytes + at / 8);
}

static void drop_first(struct record_ring *ring) {
    ring->first += head_at(ring, ring->first)->bytes;
    ring->span.first++;
    if (ring->is_wrapped && ring->first == ring->end) {
        ring->first = 0;
        ring->is_wrapped = false;
    }
}

/* Room for more records at ring->write: the oldest are dropped. */
static void make_room(struct record_ring *ring) {
    if (ring->write + ring->record_max > ring->capacity) {
        while (ring->is_wrapped) drop_first(ring); /* those behind `write` would be cut off */
        ring->end = ring->write;
        ring->write = 0;
        ring->is_wrapped = true;
    }
    size_t left = ring->capacity - ring->write;
    ring->room = ring->room_wanted < left ? ring->room_wanted : left;
    while (ring->is_wrapped && ring->first < ring->write + ring->room) drop_first(ring);
}

static void *put_list(void *to, const void *from, uint32_t count, size_t entry_bytes) {
    if (count > 0) memcpy(to, from, count * entry_bytes);
    return (char *)to + count * entry_bytes;
}

/* Returns the end of the record. */
static void *put_lists(struct record_head *h, void *to, const struct record_lists *l) {
    h->wait_count = l->wait_count;
    h->arrived_count = l->arrived_count;
    h->admitted_count = l->admitted_count;
    h->preempted_count = l->preempted_count;
    h->ended_count = l->ended_count;
    to = put_list(to, l->waits, l->wait_count, sizeof(l->waits[0]));
    to = put_list(to, l->arrived, l->arrived_count, sizeof(l->arrived[0]));
    to = put_list(to, l->admitted, l->admitted_count, sizeof(l->admitted[0]));
    to = put_list(to, l->preempted, l->preempted_count, sizeof(l->preempted[0]));
    return put_list(to, l->ended, l->ended_count, sizeof(l->ended[0]));
}

static void leave_seat(struct record_ring *ring, uint32_t seat, uint64_t request, uint32_t choice) {
    if (seat >= ring->seat_count) return;
    struct record_seat *s = &ring->seats[seat];
    if (s->request == request && s->choice == choice) *s = (struct record_seat){0};
}

/* A seat may be left and taken again in one record, and a sequence may be admitted and end in
 * one. So those leave last whose seat is still theirs. */
static void change_seats(struct record_ring *ring, const struct record_lists *l) {
    for (uint32_t i = 0; i < l->preempted_count; i++)
        leave_seat(ring, l->preempted[i].seat, l->preempted[i].request, l->preempted[i].choice);
    for (uint32_t i = 0; i < l->admitted_count; i++) {
        const struct plan_admitted *a = &l->admitted[i];
        CHECK(a->seat < ring->seat_count);
        ring->seats[a->seat] = (struct record_seat){a->request, a->choice, a->tenant};
    }
    for (uint32_t i = 0; i < l->ended_count; i++)
        leave_seat(ring, l->ended[i].seat, l->ended[i].request, l->ended[i].choice);
}

struct record_head *record_begin(struct record_ring *ring) {
    if (ring->room < ring->record_max) {
        pthread_mutex_lock(&ring->lock);
        make_room(ring);
        pthread_mutex_unlock(&ring->lock);
    }
    return (struct record_head *)(void *)(ring->bytes + ring->write / 8);
}

void record_end(struct record_ring *ring, struct record_head *head,
                const struct record_lists *others) {
    void *end = record_rows(head) + head->row_count;
    head->wait_count = head->arrived_count = head->admitted_count = 0;
    head->preempted_count = head->ended_count = 0;
    if (others) end = put_lists(head, end, others);
    size_t bytes = (size_t)((char *)end - (char *)head);
    CHECK(bytes <= ring->room);
    head->bytes = (uint32_t)bytes;
    pthread_mutex_lock(&ring->lock);
    head->number = ring->span.next++;
    if (head->number % MARK_EVERY == 0)
        ring->marks[head->number / MARK_EVERY % ring->mark_count] = ring->write;
    ring->write += bytes;
    if (others) change_seats(ring, others);
    pthread_mutex_unlock(&ring->lock);
    ring->room -= bytes;
}

/* ---- reading ---- */

struct record_span record_span(struct record_ring *ring) {
    pthread_mutex_lock(&ring->lock);
    struct record_span span = ring->span;
    pthread_mutex_unlock(&ring->lock);
    return span;
}

size_t record_bytes_max(const struct record_ring *ring) { return ring->record_max; }

/* The place behind a record that is not the newest. */
static size_t next_place(const struct record_ring *ring, size_t at) {
    at += head_at(ring, at)->bytes;
    return ring->is_wrapped && at == ring->end ? 0 : at;
}

/* The place of record `number`, which is kept. A record does not move while it is kept. */
static size_t find(const struct record_ring *ring, const struct record_cursor *c) {
    uint64_t number = ring->span.first, mark = c->next - c->next % MARK_EVERY;
    size_t at = ring->first;
    if (c->at_number >= number && c->at_number <= c->next) {
        number = c->at_number;
        at = c->at;
    }
    if (mark > number) {
        number = mark;
        at = ring->marks[mark / MARK_EVERY % ring->mark_count];
    }
    for (; number < c->next; number++) at = next_place(ring, at);
    DCHECK(head_at(ring, at)->number == number);
    return at;
}

size_t record_read(struct record_ring *ring, struct record_cursor *c, void *out, size_t out_bytes) {
    size_t used = 0;
    pthread_mutex_lock(&ring->lock);
    if (c->next < ring->span.first) c->next = ring->span.first;
    if (c->next < ring->span.next) {
        size_t at = find(ring, c);
        for (;;) {
            size_t bytes = head_at(ring, at)->bytes;
            c->at = at;
            c->at_number = c->next;
            if (bytes > out_bytes - used) break;
            memcpy((char *)out + used, head_at(ring, at), bytes);
            used += bytes;
            if (++c->next == ring->span.next) break;
            at = next_place(ring, at);
        }
    }
    pthread_mutex_unlock(&ring->lock);
    return used;
}

bool record_next(const void **at, const void *end, struct record *out) {
    const char *here = *at;
    if (*at == end) return false;
    const struct record_head *h = *at;
    struct record_lists *l = &out->lists;
    out->head = h;
    *l = (struct record_lists){.row_count = h->row_count,
                               .wait_count = h->wait_count,
                               .arrived_count = h->arrived_count,
                               .admitted_count = h->admitted_count,
                               .preempted_count = h->preempted_count,
                               .ended_count = h->ended_count};
    l->rows = (const void *)(h + 1);
    l->waits = (const void *)(l->rows + h->row_count);
    l->arrived = (const void *)(l->waits + h->wait_count);
    l->admitted = (const void *)(l->arrived + h->arrived_count);
    l->preempted = (const void *)(l->admitted + h->admitted_count);
    l->ended = (const void *)(l->preempted + h->preempted_count);
    *at = here + h->bytes;
    return true;
}

void record_seats(struct record_ring *ring, struct record_seat *out) {
    pthread_mutex_lock(&ring->lock);
    memcpy(out, ring->seats, ring->seat_count * sizeof(out[0]));
    pthread_mutex_unlock(&ring->lock);
}

/* ---- names and the trace ---- */

const char *preempt_why_name(enum preempt_why why) {
    static const char *const names[] = {"memory", "policy", "failed", "batch"};
    return names[why];
}

const char *wait_why_name(enum wait_why why) {
    static const char *const names[] = {"seat", "blocks", "policy", "prefix", "budget", "swapped"};
    return names[why];
}

static void put_step(const struct record *r, struct buf *out) {
    const struct record_head *h = r->head;
    uint32_t drafts = 0, accepted = 0;
    for (uint32_t i = 0; i < r->lists.row_count; i++) {
        drafts += r->lists.rows[i].drafts;
        accepted += r->lists.rows[i].accepted;
    }
    buf_printf(out,
               "{\"name\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%lld,\"dur\":%lld,"
               "\"args\":{\"step\":%llu,\"rows\":%u,\"tokens\":%u,\"samples\":%u,\"prompts\":%u,"
               "\"drafts\":%u,\"accepted\":%u,"
               "\"running\":%u,\"waiting\":%u,\"free_blocks\":%u,\"moves\":%u,\"sched_us\":%lld,"
               "\"submit_us\":%lld,"
               "\"preempted\":[",
               (long long)h->times.at_us, (long long)h->times.elapsed_us,
               (unsigned long long)h->times.step, h->row_count, h->tokens, h->samples, h->prompts,
               drafts, accepted, h->running, h->waiting, h->available_blocks,
               h->moves_in + h->moves_out + h->moves_copy, (long long)h->times.sched_us,
               (long long)h->times.submit_us);
    for (uint32_t i = 0; i < r->lists.preempted_count; i++) {
        const struct plan_preempted *p = &r->lists.preempted[i];
        buf_printf(out, "%s{\"request\":%llu,\"choice\":%u,\"why\":\"%s\",\"by\":\"%s\"}",
                   i ? "," : "", (unsigned long long)p->request, p->choice,
                   preempt_why_name(p->why), p->swapped ? "swap" : "recompute");
    }
    buf_put_text(out, "]}}");
}

/* Some at a time, so that the engine never waits for text to be written; those that it overwrites
 * meanwhile, and those that it adds, are left out. */
void record_put_json(struct record_ring *ring, struct buf *out) {
    struct record_cursor c = {0};
    const uint64_t end = record_span(ring).next;
    size_t room = 2 * ring->record_max;
    uint64_t *piece = mem_alloc(room);
    if (!piece) out->status = ST_NOMEM;
    bool is_first = true;
    buf_put_char(out, '[');
    while (piece && c.next < end) {
        const void *at = piece;
        const void *piece_end = (char *)piece + record_read(ring, &c, piece, room);
        for (struct record r; record_next(&at, piece_end, &r);) {
            if (!r.head->has_step || r.head->number >= end) continue;
            if (!is_first) buf_put_text(out, ",\n");
            is_first = false;
            put_step(&r, out);
        }
    }
    buf_put_text(out, "]\n");
    mem_free(piece);
}

/* ---- invariants ---- */

void record_verify(struct record_ring *ring) {
    pthread_mutex_lock(&ring->lock);
    size_t at = ring->first;
    for (uint64_t n = ring->span.first; n < ring->span.next; n++) {
        const struct record_head *h = head_at(ring, at);
        CHECK(h->number == n);
        CHECK(h->bytes % 8 == 0);
        CHECK(h->bytes >= sizeof(*h));
        CHECK(h->bytes <= ring->record_max);
        CHECK(at + h->bytes <= ring->capacity);
        if (n % MARK_EVERY == 0) CHECK(ring->marks[n / MARK_EVERY % ring->mark_count] == at);
        at = n + 1 < ring->span.next ? next_place(ring, at) : at + h->bytes;
    }
    CHECK(at == ring->write);
    CHECK(!ring->is_wrapped || ring->write <= ring->first);
    CHECK(ring->write + ring->room <= (ring->is_wrapped ? ring->first : ring->capacity));
    pthread_mutex_unlock(&ring->lock);
}
