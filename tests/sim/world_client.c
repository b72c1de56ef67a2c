/* sim/world_client.c - what a client sees, and whether it is right; see sim/world_int.h.
 *
 * Every token is compared with what the runner's hash gives for the client's own text, so an
 * answer is right or wrong whatever else runs.
 */
#include <stdatomic.h>
#include <string.h>

#include "sim/world_int.h"

struct client *world_client_of(const struct world *w, uint64_t request) {
    if (request == 0 || request > w->client_count) return NULL;
    struct client *c = &w->clients[request - 1];
    return c->request ? c : NULL;
}

void world_identify(void *ctx, seq_idx seq, uint64_t *owner, uint64_t *seed) {
    struct world *w = ctx;
    const struct sched_seq *s = sched_seq_at(w->sched, seq);
    const struct client *c = world_client_of(w, s->request);
    if (!c || s->choice >= c->n) {
        world_wrong(w, "sequence %u begins and belongs to no request", seq);
        return;
    }
    *owner = c->owner;
    *seed = c->seed + s->choice;
}

/* ---- tokens ---- */

static void check_logprob(struct world *w, const struct choice *choice, uint64_t seed,
                          uint64_t text, uint32_t i) {
    if (!choice->logprobs) return;
    float expected = sim_logprob(&w->runner_options, seed, text);
    const struct token_logprob *got = &choice->logprobs[i];
    if (got->token != choice->tokens[choice->prompt_tokens + i] || got->logprob < expected ||
        got->logprob > expected)
        world_wrong(w, "request %lu choice %u: the logprob of token %u is not its own",
                    (unsigned long)choice->request->id, choice->index, i);
}

/* What was said of its prompt, once it is computed; all of it was. */
static void check_prompt(struct world *w, const struct client *c, const struct choice *choice) {
    const struct token_logprob *got = choice->request->prompt_logprobs;
    if (!got || choice->index > 0) return;
    uint64_t text = sim_text_begin(c->owner);
    for (uint32_t p = 0; p < c->prompt_tokens; p++) {
        float expected = sim_logprob(&w->runner_options, c->seed, text);
        bool is_own = got[p].token == choice->tokens[p] && !(got[p].logprob < expected) &&
                      !(got[p].logprob > expected);
        if (p > 0 && !is_own)
            world_wrong(w, "request %lu: the logprob of token %u of its prompt is not its own",
                        (unsigned long)choice->request->id, p);
        text = sim_text_add(text, choice->tokens[p]);
    }
    if (choice->cached_tokens > 0)
        world_wrong(w, "request %lu: %u tokens of a prompt to be computed came from the cache",
                    (unsigned long)choice->request->id, choice->cached_tokens);
}

/* Tokens [seen, ready) are those of the text, and none before the last ends it. */
static void read_tokens(struct world *w, struct client *c, const struct choice *choice,
                        uint32_t ready) {
    struct client_choice *mine = &c->choices[choice->index];
    uint64_t seed = c->seed + choice->index;
    if (mine->seen == c->prompt_tokens && ready > mine->seen) check_prompt(w, c, choice);
    for (uint32_t p = mine->seen; p < ready; p++) {
        int32_t expected = sim_token(&w->runner_options, seed, mine->text);
        if (choice->tokens[p] != expected) {
            world_wrong(w, "request %lu choice %u: token %u is %d, alone it would be %d",
                        (unsigned long)choice->request->id, choice->index, p, choice->tokens[p],
                        expected);
            return;
        }
        bool is_end = !c->ignore_end && sim_token_ends(&w->runner_options, seed, mine->text);
        if (is_end && p + 1 != atomic_load(&choice->ready))
            world_wrong(w, "request %lu choice %u goes on after its end token",
                        (unsigned long)choice->request->id, choice->index);
        check_logprob(w, choice, seed, mine->text, p - choice->prompt_tokens);
        mine->text = sim_text_add(mine->text, expected);
        w->out->counts[COUNT_TOKENS]++;
    }
    mine->seen = ready;
}

/* ---- ends ---- */

/* Did the token before the last position end the answer? */
static bool ends_by_token(const struct world *w, const struct client *c,
                          const struct choice *choice, uint32_t ready) {
    if (c->ignore_end || ready == c->prompt_tokens) return false;
    uint64_t text = sim_text_begin(c->owner);
    for (uint32_t p = 0; p + 1 < ready; p++) text = sim_text_add(text, choice->tokens[p]);
    return sim_token_ends(&w->runner_options, c->seed + choice->index, text);
}

static bool may_be_refused(const struct world *w, const struct client *c) {
    uint32_t blocks = (c->total_max + w->knobs->block_size - 1) / w->knobs->block_size;
    uint32_t places = w->knobs->max_seqs + (c->is_batch ? w->knobs->max_seqs : w->knobs->queue_max);
    return blocks > w->knobs->kv_blocks || w->queue_bound[c->is_batch] > places;
}

static bool is_legal_end(const struct world *w, const struct client *c, const struct choice *choice,
                         enum finish_reason finish, uint32_t ready) {
    const struct client_choice *mine = &c->choices[choice->index];
    bool is_end = ends_by_token(w, c, choice, ready);
    switch (finish) {
    case FINISH_STOP:
        return is_end || (mine->is_asked && c->call_one);
    case FINISH_LENGTH:
        return !is_end && ready == c->total_max;
    case FINISH_CANCELLED:
        return mine->is_asked && !is_end;
    case FINISH_EXPIRED:
        if (is_end) return false;
        if (c->expires_us > 0 && c->expires_us <= w->clock.now_us) return true;
        return w->policy->sheds && c->has_ttft_target;
    case FINISH_REFUSED:
        return ready == c->prompt_tokens && c->request->refusal.text[0] && may_be_refused(w, c);
    case FINISH_ERROR:
        return mine->is_faulted;
    default:
        return false;
    }
}

static void tally_end(struct world *w, enum finish_reason finish) {
    static const enum world_count counts[] = {
        [FINISH_STOP] = COUNT_ENDS_STOP,           [FINISH_LENGTH] = COUNT_ENDS_LENGTH,
        [FINISH_CANCELLED] = COUNT_ENDS_CANCELLED, [FINISH_EXPIRED] = COUNT_ENDS_EXPIRED,
        [FINISH_REFUSED] = COUNT_ENDS_REFUSED,     [FINISH_ERROR] = COUNT_ENDS_ERROR,
    };
    world_tally(w, counts[finish]);
    world_tally(w, COUNT_CHOICES);
}

/* Its whole text may be the beginning of a later prompt. */
static void remember(struct world *w, const struct client *c, const struct choice *choice,
                     uint32_t ready) {
    if (ready >= TOKENS_MAX) return;
    bool is_room = w->history_count < HISTORY_MAX;
    uint32_t i = is_room ? w->history_count++ : world_between(w, 0, HISTORY_MAX - 1);
    w->history[i].count = ready;
    w->history[i].tenant = c->tenant;
    w->history[i].salt = (uint32_t)c->owner;
    memcpy(w->history[i].tokens, choice->tokens, ready * sizeof(choice->tokens[0]));
}

static void note_end(struct world *w, struct client *c, struct choice *choice,
                     enum finish_reason finish, uint32_t ready) {
    if (!is_legal_end(w, c, choice, finish, ready))
        world_wrong(w, "request %lu choice %u ends as %s after %u of %u tokens, without cause",
                    (unsigned long)choice->request->id, choice->index, finish_name(finish), ready,
                    c->total_max);
    c->choices[choice->index].has_ended = true;
    c->ended++;
    tally_end(w, finish);
    if (finish == FINISH_STOP || finish == FINISH_LENGTH) remember(w, c, choice, ready);
}

/* ---- the event ---- */

static void check_order(struct world *w, const struct client *c, const struct choice *choice,
                        uint32_t ready) {
    const struct client_choice *mine = &c->choices[choice->index];
    if (mine->has_ended)
        world_wrong(w, "request %lu choice %u moves after its end",
                    (unsigned long)choice->request->id, choice->index);
    if (ready < mine->reported || ready > c->total_max)
        world_wrong(w, "request %lu choice %u: %u tokens are ready after %u, of at most %u",
                    (unsigned long)choice->request->id, choice->index, ready, mine->reported,
                    c->total_max);
}

void world_on_output(void *ctx, struct choice *choice, int64_t now_us) {
    struct world *w = ctx;
    uint32_t ready;
    enum finish_reason finish = choice_poll(choice, &ready);
    struct client *c = world_client_of(w, choice->request->id);
    CHECK(c);
    world_hash(w, choice->request->id << 20 ^ (uint64_t)ready << 8 ^ finish);
    world_trace(w, "  output: request %lu choice %u, %u tokens, %s",
                (unsigned long)choice->request->id, choice->index, ready, finish_name(finish));
    check_order(w, c, choice, ready);
    if (w->out->is_wrong) return;
    struct client_choice *mine = &c->choices[choice->index];
    w->reported_tokens += ready - mine->reported;
    mine->reported = ready;
    if (finish == FINISH_NONE && ready == mine->seen && !c->is_slow)
        world_wrong(w, "request %lu choice %u moves without a new token",
                    (unsigned long)choice->request->id, choice->index);
    if (finish == FINISH_NONE && c->is_slow && ++mine->moves % 4 != 0) return;
    read_tokens(w, c, choice, ready);
    if (finish == FINISH_NONE) return;
    note_end(w, c, choice, finish, ready);
    if (choice->finished_us != now_us && finish != FINISH_REFUSED)
        world_wrong(w, "request %lu choice %u ended at another time than reported",
                    (unsigned long)choice->request->id, choice->index);
}
