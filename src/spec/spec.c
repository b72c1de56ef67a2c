/* spec/spec.c - see spec/spec.h. */
#include "spec/spec.h"

#include <pthread.h>

#include "base/check.h"
#include "base/mem.h"
#include "spec/drafter.h"
#include "spec/suffix_pools.h"

struct spec_seq {
    const struct drafter *drafter; /* NULL: the draft model */
    void *self;                    /* the drafter's; owned */
};

struct spec {
    struct spec_options options;
    struct draft_model model; /* propose NULL: none */
    struct spec_seq **seqs;   /* [seq_max], borrowed; NULL: no drafts */
    uint32_t model_seqs;      /* of them, those of the draft model */
    struct draft_ask **asks;  /* [seq_max] scratch of one call */
    pthread_mutex_t lock;
    struct suffix_pools *pools; /* created for the first request that needs them, under the lock */
};

enum status spec_create(struct spec **out, const struct spec_options *options, struct err *err) {
    struct spec *s = mem_zalloc(sizeof(*s));
    if (s) {
        pthread_mutex_init(&s->lock, NULL);
        s->options = *options;
        const struct speculate_option usual = speculate_option_default();
        if (s->options.fallback.ngram_max == 0) {
            s->options.fallback.ngram_min = usual.ngram_min;
            s->options.fallback.ngram_max = usual.ngram_max;
        }
        s->seqs = mem_zalloc_array(options->seq_max, sizeof(struct spec_seq *));
        s->asks = mem_zalloc_array(options->seq_max, sizeof(struct draft_ask *));
    }
    if (s && s->seqs && s->asks) {
        *out = s;
        return ST_OK;
    }
    spec_destroy(s);
    return err_set(err, ST_NOMEM, "out of memory for the drafts of %u sequences", options->seq_max);
}

void spec_destroy(struct spec *s) {
    if (!s) return;
    if (s->model.close) s->model.close(s->model.self);
    suffix_pools_destroy(s->pools);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->seqs);
    mem_free(s->asks);
    mem_free(s);
}

void spec_plug_model(struct spec *s, const struct draft_model *model) {
    CHECK(!s->model.propose);
    s->model = *model;
}

/* ---- sequences ---- */

static struct speculate_option option_of(const struct spec *s, const struct speculation *wanted) {
    struct speculate_option option = wanted->is_chosen ? wanted->choice : s->options.fallback;
    if (wanted->prediction_tokens > 0 && !wanted->is_chosen) {
        option.kind = SPECULATE_TEXT;
        option.drafter = drafter_find("predicted");
    }
    if (option.ngram_max == 0) {
        option.ngram_min = s->options.fallback.ngram_min;
        option.ngram_max = s->options.fallback.ngram_max;
    }
    return option;
}

bool spec_has_model(const struct spec *s) { return s->model.propose != NULL; }

bool spec_follows_prediction(const struct spec *s, const struct speculation *wanted) {
    const struct speculate_option option = option_of(s, wanted);
    return wanted->prediction_tokens > 0 && option.drafter == drafter_find("predicted");
}

uint32_t spec_draft_max(const struct spec *s, const struct speculation *wanted) {
    if (option_of(s, wanted).kind == SPECULATE_OFF) return 0;
    return wanted->max > 0 && wanted->max < DRAFT_MAX ? wanted->max : DRAFT_MAX;
}

static enum status create_text_drafter(const struct drafter *drafter,
                                       const struct drafter_setup *setup, struct spec_seq **out,
                                       struct err *err) {
    struct spec_seq *seq = mem_zalloc(sizeof(*seq));
    if (!seq) return err_set(err, ST_NOMEM, "out of memory for a drafter");
    seq->drafter = drafter;
    enum status st = drafter->create(setup, &seq->self, err);
    if (st == ST_OK)
        *out = seq;
    else
        mem_free(seq);
    return st;
}

/* The recent answers of all tenants; NULL: there is no memory for them. */
static struct suffix_pools *find_pools(struct spec *s) {
    pthread_mutex_lock(&s->lock);
    if (!s->pools)
        (void)suffix_pools_create(&s->pools, SUFFIX_POOL_SALTS_DEFAULT, SUFFIX_POOL_TOKENS_DEFAULT);
    struct suffix_pools *pools = s->pools;
    pthread_mutex_unlock(&s->lock);
    return pools;
}

static struct drafter_setup setup_of(const struct spec *s, const struct speculation *wanted,
                                     uint32_t tokens_max) {
    const struct speculate_option option = option_of(s, wanted);
    return (struct drafter_setup){.tokens_max = tokens_max,
                                  .vocab = s->options.vocab,
                                  .ngram_min = option.ngram_min,
                                  .ngram_max = option.ngram_max,
                                  .prediction = wanted->prediction,
                                  .prediction_tokens = wanted->prediction_tokens};
}

size_t spec_seq_bytes_for(const struct spec *s, const struct speculation *wanted,
                          uint32_t tokens_max) {
    const struct speculate_option option = option_of(s, wanted);
    const struct drafter_setup setup = setup_of(s, wanted, tokens_max);
    if (option.kind == SPECULATE_OFF) return 0;
    return sizeof(struct spec_seq) + (option.drafter ? option.drafter->bytes_for(&setup) : 0);
}

enum status spec_seq_create(struct spec *s, const struct speculation *wanted,
                            const struct spec_text *text, struct spec_seq **out, struct err *err) {
    const struct speculate_option option = option_of(s, wanted);
    struct drafter_setup setup = setup_of(s, wanted, text->tokens_max);
    *out = NULL;
    setup.prompt = text->prompt;
    setup.prompt_tokens = text->prompt_tokens;
    setup.salt = text->salt;
    if (option.kind == SPECULATE_OFF) return ST_OK;
    if (option.drafter && option.drafter->reads_answers) setup.pools = find_pools(s);
    if (option.kind == SPECULATE_TEXT) return create_text_drafter(option.drafter, &setup, out, err);
    if (!s->model.propose)
        return err_set(err, ST_BAD,
                       "the drafter \"model\" is not available: the server was started without "
                       "--speculate model:PATH");
    *out = mem_zalloc(sizeof(**out));
    return *out ? ST_OK : err_set(err, ST_NOMEM, "out of memory for a drafter");
}

void spec_seq_destroy(struct spec_seq *seq) {
    if (!seq) return;
    if (seq->drafter) seq->drafter->destroy(seq->self);
    mem_free(seq);
}

size_t spec_seq_bytes(const struct spec_seq *seq) {
    return sizeof(*seq) + (seq->drafter ? seq->drafter->bytes(seq->self) : 0);
}

void spec_begin(struct spec *s, seq_idx i, struct spec_seq *seq, const struct sampling *draw) {
    CHECK(i < s->options.seq_max);
    CHECK(!s->seqs[i]);
    if (!seq) return;
    s->seqs[i] = seq;
    if (seq->drafter) return;
    s->model_seqs++;
    s->model.begin(s->model.self, i, draw);
}

void spec_end(struct spec *s, seq_idx i, const int32_t *tokens, uint32_t count,
              uint32_t prompt_tokens) {
    CHECK(i < s->options.seq_max);
    struct spec_seq *seq = s->seqs[i];
    if (!seq) return;
    s->seqs[i] = NULL;
    if (!seq->drafter) {
        s->model_seqs--;
        s->model.end(s->model.self, i);
    } else if (seq->drafter->end) {
        seq->drafter->end(seq->self, tokens, count, prompt_tokens);
    }
}

/* ---- drafts ---- */

/* A token that the model does not have would be read past the end of its table. */
static uint32_t count_valid(const struct spec *s, const int32_t *tokens, uint32_t count) {
    uint32_t valid = 0;
    while (valid < count && tokens[valid] >= 0 && (uint32_t)tokens[valid] < s->options.vocab)
        valid++;
    return valid;
}

static void propose(void *ctx, struct draft_ask *asks, uint32_t count) {
    struct spec *s = ctx;
    uint32_t model_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct draft_ask *ask = &asks[i];
        const struct spec_seq *seq = s->seqs[ask->seq];
        CHECK(seq);
        if (seq->drafter)
            ask->given = seq->drafter->propose(seq->self, ask->tokens, ask->known, ask->count,
                                               ask->max, ask->out);
        else
            s->asks[model_count++] = ask;
    }
    if (model_count > 0) s->model.propose(s->model.self, s->asks, model_count);
    for (uint32_t i = 0; i < count; i++) asks[i].given = count_valid(s, asks[i].out, asks[i].given);
}

static double cost_us(void *ctx, uint32_t seqs, uint32_t tokens) {
    const struct spec *s = ctx;
    return s->model_seqs > 0 ? s->model.cost_us(s->model.self, seqs, tokens) : 0;
}

struct draft_source spec_source(struct spec *s) {
    return (struct draft_source){.propose = propose, .cost_us = cost_us, .ctx = s};
}
