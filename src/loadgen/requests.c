/* loadgen/requests.c - see loadgen/requests.h. */
#include "loadgen/requests.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/fmath.h"
#include "base/rng.h"

/* Streams of random numbers; from STREAM_PROMPTS on, one for each request. */
enum stream { STREAM_LENGTH, STREAM_GAP, STREAM_SHARED, STREAM_PROMPTS };

enum { FIRST_ID = 100 }; /* many vocabularies have control tokens below it */

static const double US_PER_S = 1e6, RATIO_NOISE = 0.02;

/* With a space before it, each is one token for GPT-2, Llama 2 and 3, Qwen and SmolLM. */
static const char *const WORDS[] = {
    "time",    "people",   "way",    "day",        "man",    "thing",   "woman",   "life",
    "child",   "world",    "school", "state",      "family", "student", "group",   "country",
    "problem", "hand",     "part",   "place",      "case",   "week",    "company", "system",
    "program", "question", "work",   "government", "number", "night",   "point",   "home",
    "water",   "room",     "mother", "area",       "money",  "story",   "fact",    "month",
    "lot",     "right",    "study",  "book",       "eye",    "job",     "word",    "business",
    "issue",   "side",     "kind",   "head",       "house",  "service", "friend",  "father",
    "power",   "hour",     "game",   "line",       "end",    "member",  "law",     "car",
};
enum { WORD_COUNT = sizeof(WORDS) / sizeof(WORDS[0]) };

const char *loadgen_path(const struct loadgen_requests *p) {
    return p->is_chat ? "/chat/completions" : "/completions";
}

struct loadgen_length loadgen_length_at(const struct loadgen_requests *p, uint64_t i) {
    CHECK(p->length_count > 0);
    uint64_t at = p->length_count == 1 ? 0 : rng_at(p->seed, STREAM_LENGTH, i) % p->length_count;
    CHECK(p->lengths[at].prompt_tokens > 0);
    CHECK(p->lengths[at].output_tokens > 0);
    return p->lengths[at];
}

/* The random number for word or id k of prompt i; the same for every prompt in the shared part. */
static uint64_t draw(const struct loadgen_requests *p, uint64_t i, uint32_t k) {
    return rng_at(p->seed, k < p->shared_tokens ? STREAM_SHARED : STREAM_PROMPTS + i, k);
}

static void put_words(const struct loadgen_requests *p, uint64_t i, uint32_t count,
                      struct buf *out) {
    for (uint32_t k = 0; k < count; k++) {
        if (k > 0) buf_put_char(out, ' ');
        buf_put_text(out, WORDS[draw(p, i, k) % WORD_COUNT]);
    }
}

static void put_ids(const struct loadgen_requests *p, uint64_t i, uint32_t count, struct buf *out) {
    CHECK(p->vocab > FIRST_ID);
    for (uint32_t k = 0; k < count; k++) {
        if (k > 0) buf_put_char(out, ',');
        buf_put_uint(out, FIRST_ID + draw(p, i, k) % (p->vocab - FIRST_ID));
    }
}

static void put_prompt(const struct loadgen_requests *p, uint64_t i, uint32_t units,
                       struct buf *out) {
    if (p->is_chat) {
        buf_put_text(out, "\"messages\":[{\"role\":\"user\",\"content\":\"");
        put_words(p, i, units, out);
        buf_put_text(out, "\"}]");
    } else if (p->form == PROMPT_IDS) {
        buf_put_text(out, "\"prompt\":[");
        put_ids(p, i, units, out);
        buf_put_char(out, ']');
    } else {
        buf_put_text(out, "\"prompt\":\"");
        put_words(p, i, units, out);
        buf_put_char(out, '"');
    }
}

static void put_body(const struct loadgen_requests *p, uint64_t i, uint32_t units,
                     uint32_t output_tokens, struct buf *out) {
    buf_put_text(out, "{\"model\":");
    buf_put_json_string(out, str_of(p->model));
    buf_printf(out, ",\"max_tokens\":%u,\"ignore_eos\":true,\"temperature\":0,", output_tokens);
    if (p->streams)
        buf_put_text(out, "\"stream\":true,\"stream_options\":{\"include_usage\":true},");
    if (p->fields.len > 0) {
        buf_put_str(out, p->fields);
        buf_put_char(out, ',');
    }
    put_prompt(p, i, units, out);
    buf_put_char(out, '}');
}

void loadgen_put_body(const struct loadgen_requests *p, uint64_t i, struct buf *out) {
    struct loadgen_length length = loadgen_length_at(p, i);
    double words = ((double)length.prompt_tokens - p->fixed_tokens) / p->tokens_per_word + 0.5;
    uint32_t units = length.prompt_tokens;
    if (p->form == PROMPT_WORDS) units = words < 1.0 ? 1 : (uint32_t)words;
    put_body(p, i, units, length.output_tokens, out);
}

void loadgen_put_probe(const struct loadgen_requests *p, uint64_t i, uint32_t words,
                       struct buf *out) {
    put_body(p, i, words, 1, out);
}

void loadgen_calibrate(struct loadgen_requests *p, struct loadgen_probe few,
                       struct loadgen_probe many) {
    CHECK(few.words < many.words);
    if (few.tokens == 0 || many.tokens <= few.tokens) return; /* the server does not count */
    double ratio = (double)(many.tokens - few.tokens) / (double)(many.words - few.words);
    if (ratio > 1.0 - RATIO_NOISE && ratio < 1.0 + RATIO_NOISE) ratio = 1.0;
    p->tokens_per_word = ratio;
    p->fixed_tokens = (double)few.tokens - ratio * (double)few.words;
}

int64_t loadgen_gap_us(const struct loadgen_requests *p, uint64_t i, double rate) {
    CHECK(rate > 0.0);
    return (int64_t)(-fm_log_d(1.0 - rng_unit_at(p->seed, STREAM_GAP, i)) / rate * US_PER_S);
}
