/* spec/drafter_predicted.c - the text that the client expects: OpenAI's predicted outputs.
 *
 * The drafter keeps the place in the prediction that the answer has reached, and guesses what
 * follows there. Answers differ from predictions by edits, so it looks for the place again:
 *
 *     a token differs                 it may replace one: go on behind the one that was expected
 *     it is the second one expected   one was left out
 *     the next is the one expected    one was inserted
 *     otherwise                       look for the last tokens of the answer in the prediction:
 *                                     the longest match of MATCH_MAX to MATCH_MIN tokens; of equal
 *                                     ones the nearest behind the place, else the nearest before
 *
 * After a single difference only a match of MATCH_SURE tokens moves the place. While no place is
 * found there are no guesses.
 *
 * An index has the places behind all pairs of tokens in the prediction, sorted by hash, then by
 * place. CANDIDATES_MAX of them are tried in each direction.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "spec/drafter.h"

enum { MATCH_MIN = 2, MATCH_SURE = 3, MATCH_MAX = 4, CANDIDATES_MAX = 64 };

_Static_assert(MATCH_MIN == 2, "the index has pairs");

/* Where the answer is in the prediction. */
struct place {
    uint32_t expected; /* the next token, if no token has differed since; at most token_count */
    uint32_t differed; /* tokens that differed since: 0, 1, or 2 for more: the place is lost */
};

struct predicted {
    uint32_t token_count;
    uint32_t answer_first; /* where the answer begins in the text, if has_answer_first */
    bool has_answer_first;
    uint32_t seen; /* so many tokens of the text are followed */
    struct place place;
    uint32_t bucket_bits;
    int32_t *tokens;  /* [token_count] the prediction */
    uint32_t *starts; /* [buckets + 1] where the places of each bucket begin */
    uint32_t *places; /* [token_count - 1] */
};

static uint32_t bucket_of(const struct predicted *p, const int32_t *end) {
    uint64_t pair = (uint64_t)(uint32_t)end[-2] << 32 | (uint32_t)end[-1];
    uint64_t hash = (pair ^ pair >> 29) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 32) * UINT64_C(0xBF58476D1CE4E5B9);
    return (uint32_t)(hash >> (64 - p->bucket_bits));
}

/* ---- finding the place ---- */

/* How many tokens before the place equal those before `end`: MATCH_MAX and `count` at most. */
static uint32_t match_at(const struct predicted *p, uint32_t place, const int32_t *end,
                         uint32_t count) {
    uint32_t most = count < MATCH_MAX ? count : MATCH_MAX, length = 0;
    if (most > place) most = place;
    while (length < most && p->tokens[place - 1 - length] == *(end - 1 - length)) length++;
    return length;
}

/* The index in `places` of the first place at or behind `from`, between `first` and `last`. */
static uint32_t first_behind(const struct predicted *p, uint32_t first, uint32_t last,
                             uint32_t from) {
    while (first < last) {
        uint32_t middle = first + (last - first) / 2;
        if (p->places[middle] < from)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

/* The place of the longest match of the tokens before `end`, of which there are `count`; 0 if it is
 * shorter than `length_min`. */
static uint32_t find_place(const struct predicted *p, const int32_t *end, uint32_t count,
                           uint32_t from, uint32_t length_min) {
    if (count < MATCH_MIN || p->token_count < MATCH_MIN) return 0;
    uint32_t bucket = bucket_of(p, end), first = p->starts[bucket], last = p->starts[bucket + 1];
    uint32_t middle = first_behind(p, first, last, from), best = 0, best_length = length_min - 1;
    for (uint32_t i = middle; i < last && i - middle < CANDIDATES_MAX; i++) {
        uint32_t length = match_at(p, p->places[i], end, count);
        if (length <= best_length) continue;
        best_length = length;
        best = p->places[i];
    }
    for (uint32_t i = middle; i > first && middle - i < CANDIDATES_MAX; i--) {
        uint32_t length = match_at(p, p->places[i - 1], end, count);
        if (length <= best_length) continue;
        best_length = length;
        best = p->places[i - 1];
    }
    return best;
}

static bool is_at(const struct predicted *p, uint32_t place, int32_t token) {
    return place < p->token_count && p->tokens[place] == token;
}

/* The place after one more token of the answer. `end` is behind that token; `count` tokens of the
 * answer are before `end`. */
static struct place follow(const struct predicted *p, struct place at, const int32_t *end,
                           uint32_t count) {
    int32_t token = end[-1];
    if (at.differed == 0 && is_at(p, at.expected, token)) return (struct place){at.expected + 1, 0};
    /* One was replaced and the next is as expected, or one was left out. */
    if (at.differed < 2 && is_at(p, at.expected + 1, token))
        return (struct place){at.expected + 2, 0};
    if (at.differed == 1 && is_at(p, at.expected, token)) return (struct place){at.expected + 1, 0};
    uint32_t length_min = at.differed == 0 ? MATCH_SURE : MATCH_MIN;
    uint32_t found = find_place(p, end, count, at.expected, length_min);
    if (found) return (struct place){found, 0};
    return (struct place){at.expected, at.differed == 0 ? 1 : 2};
}

static uint32_t propose(void *self, const int32_t *tokens, uint32_t known, uint32_t count,
                        uint32_t max, int32_t *out) {
    struct predicted *p = self;
    CHECK(known <= count);
    if (!p->has_answer_first) { /* the answer begins about here */
        p->answer_first = p->seen = known;
        p->has_answer_first = true;
    }
    if (count < p->answer_first) return 0;
    for (; p->seen < known; p->seen++)
        p->place = follow(p, p->place, tokens + p->seen + 1, p->seen + 1 - p->answer_first);
    struct place at = p->place;
    for (uint32_t i = p->seen; i < count; i++)
        at = follow(p, at, tokens + i + 1, i + 1 - p->answer_first);
    if (at.differed == 2) return 0;
    uint32_t next = at.expected + at.differed;
    uint32_t left = next < p->token_count ? p->token_count - next : 0;
    uint32_t given = left < max ? left : max;
    if (given > 0) memcpy(out, p->tokens + next, given * sizeof(*out));
    return given;
}

/* ---- life ---- */

static void destroy(void *self) {
    struct predicted *p = self;
    if (!p) return;
    mem_free(p->tokens);
    mem_free(p->starts);
    mem_free(p->places);
    mem_free(p);
}

/* Sort the places behind all pairs by bucket: count, add up, and put them in from the last on. */
static void fill_index(struct predicted *p) {
    uint32_t buckets = UINT32_C(1) << p->bucket_bits;
    for (uint32_t i = MATCH_MIN; i <= p->token_count; i++) p->starts[bucket_of(p, p->tokens + i)]++;
    for (uint32_t i = 1; i <= buckets; i++) p->starts[i] += p->starts[i - 1];
    for (uint32_t i = p->token_count; i >= MATCH_MIN; i--)
        p->places[--p->starts[bucket_of(p, p->tokens + i)]] = i;
}

/* How much of the prediction is used: the answer is no longer than the text. */
static uint32_t used_of(const struct drafter_setup *setup) {
    uint32_t count = setup->prediction_tokens;
    return count < setup->tokens_max ? count : setup->tokens_max;
}

static uint32_t bucket_bits_of(uint32_t count) {
    return count > 2 ? 32 - (uint32_t)__builtin_clz(count - 1) : 1;
}

static size_t bytes_of(uint32_t count) {
    size_t starts = ((size_t)1 << bucket_bits_of(count)) + 1;
    return sizeof(struct predicted) + count * (sizeof(int32_t) + sizeof(uint32_t)) +
           starts * sizeof(uint32_t);
}

static enum status create(const struct drafter_setup *setup, void **self, struct err *err) {
    uint32_t count = used_of(setup);
    CHECK(count <= INT32_MAX);
    struct predicted *p = mem_zalloc(sizeof(*p));
    if (p) {
        p->token_count = count;
        p->bucket_bits = bucket_bits_of(count);
        p->tokens = mem_alloc_array(count, sizeof(*p->tokens));
        p->starts = mem_zalloc_array(((size_t)1 << p->bucket_bits) + 1, sizeof(*p->starts));
        p->places = mem_alloc_array(count, sizeof(*p->places));
    }
    if (!p || !p->tokens || !p->starts || !p->places) {
        destroy(p);
        return err_set(err, ST_NOMEM, "out of memory for a prediction of %u tokens", count);
    }
    p->answer_first = p->seen = setup->prompt_tokens;
    p->has_answer_first = setup->prompt_tokens > 0;
    if (count > 0) memcpy(p->tokens, setup->prediction, count * sizeof(*p->tokens));
    fill_index(p);
    *self = p;
    return ST_OK;
}

static size_t bytes_for(const struct drafter_setup *setup) { return bytes_of(used_of(setup)); }

static size_t bytes_held(const void *self) {
    return bytes_of(((const struct predicted *)self)->token_count);
}

static void verify(const void *self) {
    const struct predicted *p = self;
    uint32_t buckets = UINT32_C(1) << p->bucket_bits;
    CHECK(p->place.expected <= p->token_count);
    CHECK(p->place.differed <= 2);
    CHECK(p->starts[0] == 0);
    CHECK(p->starts[buckets] == (p->token_count ? p->token_count - 1 : 0));
    for (uint32_t b = 0; b < buckets; b++)
        for (uint32_t i = p->starts[b]; i < p->starts[b + 1]; i++) {
            CHECK(p->places[i] >= MATCH_MIN);
            CHECK(bucket_of(p, p->tokens + p->places[i]) == b);
            CHECK(i == p->starts[b] || p->places[i - 1] < p->places[i]);
        }
}

const struct drafter drafter_predicted = {
    .name = "predicted",
    .summary = "the text that the client expects, given with the request",
    .create = create,
    .destroy = destroy,
    .propose = propose,
    .bytes_for = bytes_for,
    .bytes = bytes_held,
    .verify = verify,
};
