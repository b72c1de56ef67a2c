/* engine/draft_lanes.c - see engine/draft_lanes.h for the contract. */
#include "engine/draft_lanes.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

static const uint32_t LANE_NONE = UINT32_MAX;

/* A sequence. */
struct draft_who {
    bool is_begun;
    bool is_foreign; /* its text has a token that the draft model does not have */
    uint32_t lane;   /* LANE_NONE: none */
    struct sampling draw;
};

enum status draft_lanes_init(struct draft_lanes *s, const struct draft_lanes_options *options,
                             struct err *err) {
    *s = (struct draft_lanes){.count = options->count,
                              .seq_max = options->seq_max,
                              .tokens_max = options->tokens_max,
                              .vocab = options->vocab};
    s->lanes = mem_zalloc_array(s->count, sizeof(s->lanes[0]));
    s->who = mem_zalloc_array(s->seq_max, sizeof(s->who[0]));
    bool has_room = s->lanes && s->who;
    for (uint32_t i = 0; i < s->count && has_room; i++) {
        struct draft_lane *lane = &s->lanes[i];
        *lane = (struct draft_lane){.index = i, .seq = SEQ_NONE};
        lane->tokens = mem_alloc_array(s->tokens_max, sizeof(lane->tokens[0]));
        has_room = lane->tokens != NULL;
    }
    for (uint32_t i = 0; i < s->seq_max && has_room; i++) s->who[i].lane = LANE_NONE;
    if (has_room) return ST_OK;
    draft_lanes_deinit(s);
    return err_set(err, ST_NOMEM, "out of memory for the texts of %u drafted sequences",
                   options->count);
}

void draft_lanes_deinit(struct draft_lanes *s) {
    for (uint32_t i = 0; s->lanes && i < s->count; i++) mem_free(s->lanes[i].tokens);
    mem_free(s->lanes);
    mem_free(s->who);
    *s = (struct draft_lanes){.count = 0};
}

void draft_lanes_begin(struct draft_lanes *s, seq_idx seq, const struct sampling *draw) {
    CHECK(seq < s->seq_max);
    CHECK(!s->who[seq].is_begun);
    s->who[seq] = (struct draft_who){.is_begun = true, .lane = LANE_NONE, .draw = *draw};
}

static void give_back(struct draft_lanes *s, struct draft_lane *lane) {
    s->who[lane->seq].lane = LANE_NONE;
    lane->seq = SEQ_NONE;
    lane->computed = lane->final = 0;
}

void draft_lanes_end(struct draft_lanes *s, seq_idx seq) {
    CHECK(seq < s->seq_max);
    struct draft_who *who = &s->who[seq];
    CHECK(who->is_begun);
    if (who->lane != LANE_NONE) give_back(s, &s->lanes[who->lane]);
    who->is_begun = false;
}

const struct sampling *draft_lanes_draw(const struct draft_lanes *s, seq_idx seq) {
    CHECK(s->who[seq].is_begun);
    return &s->who[seq].draw;
}

void draft_lanes_next_call(struct draft_lanes *s) { s->call++; }

/* A free lane, or that of the sequence whose last ask is the oldest; NULL: all of them have asked
 * lately. */
static struct draft_lane *take_lane(struct draft_lanes *s, seq_idx seq) {
    struct draft_lane *best = NULL;
    for (uint32_t i = 0; i < s->count; i++) {
        struct draft_lane *lane = &s->lanes[i];
        if (lane->seq == SEQ_NONE) {
            best = lane;
            break;
        }
        if (!best || lane->asked_in < best->asked_in) best = lane;
    }
    if (!best) return NULL;
    if (best->seq != SEQ_NONE) {
        if (s->call - best->asked_in < DRAFT_LANE_IDLE_CALLS) return NULL;
        give_back(s, best);
    }
    best->seq = seq;
    s->who[seq].lane = best->index;
    return best;
}

/* The first `count` tokens from `first` on are tokens of the draft model. */
static bool are_known(const struct draft_lanes *s, const int32_t *tokens, uint32_t first,
                      uint32_t count) {
    for (uint32_t i = first; i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= s->vocab) return false;
    return true;
}

struct draft_lane *draft_lanes_find(struct draft_lanes *s, const struct draft_ask *ask) {
    CHECK(ask->seq < s->seq_max);
    CHECK(ask->known <= ask->count);
    struct draft_who *who = &s->who[ask->seq];
    CHECK(who->is_begun);
    if (who->is_foreign || ask->count == 0 || ask->count >= s->tokens_max) return NULL;
    struct draft_lane *lane =
        who->lane == LANE_NONE ? take_lane(s, ask->seq) : &s->lanes[who->lane];
    if (!lane) return NULL;
    uint32_t same = lane->final < ask->count ? lane->final : ask->count;
    while (same < lane->computed && same < ask->count && lane->tokens[same] == ask->tokens[same])
        same++;
    if (same == ask->count) same--;
    lane->computed = same;
    lane->final = ask->known < same ? ask->known : same;
    lane->asked_in = s->call;
    if (are_known(s, ask->tokens, same, ask->count)) return lane;
    who->is_foreign = !are_known(s, ask->tokens, same < ask->known ? same : ask->known, ask->known);
    give_back(s, lane);
    return NULL;
}

void draft_lane_extend(const struct draft_lanes *s, struct draft_lane *lane, const int32_t *tokens,
                       uint32_t count) {
    CHECK(lane->seq != SEQ_NONE);
    CHECK(count <= s->tokens_max - lane->computed);
    memcpy(lane->tokens + lane->computed, tokens, count * sizeof(tokens[0]));
    lane->computed += count;
}

void draft_lanes_verify(const struct draft_lanes *s) {
    uint32_t used = 0, held = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct draft_lane *lane = &s->lanes[i];
        CHECK(lane->index == i);
        CHECK(lane->final <= lane->computed);
        CHECK(lane->computed <= s->tokens_max);
        CHECK(lane->asked_in <= s->call);
        CHECK(are_known(s, lane->tokens, 0, lane->computed));
        if (lane->seq == SEQ_NONE) {
            CHECK(lane->computed == 0);
            continue;
        }
        used++;
        CHECK(lane->seq < s->seq_max);
        CHECK(s->who[lane->seq].is_begun);
        CHECK(s->who[lane->seq].lane == i);
    }
    for (uint32_t i = 0; i < s->seq_max; i++)
        held += s->who[i].is_begun && s->who[i].lane != LANE_NONE;
    CHECK(used == held);
}
