/* embed/jitney.c - the functions of include/jitney.h.
 *
 * Entry points: jitney_open, jitney_stop, jitney_close, jitney_submit, jitney_next, jitney_next_of,
 * jitney_cancel, jitney_info, jitney_stats, jitney_tokenize, jitney_detokenize; those of structs
 * alone are in submit.c and event.c.
 */
#include <jitney.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "config/env.h"
#include "hub/model_cache.h"
#include "embed/event.h"
#include "embed/struct_copy.h"
#include "embed/submit.h"
#include "embed/tickets.h"
#include "engine/service.h"
#include "text/chat_prompt.h"

struct jitney {
    struct service service;
    struct chat_prompt *chat; /* NULL: the model has no template */
    struct tickets *tickets;
};

enum { DETOKENIZE_BYTES_MAX = 1 << 30 };
_Static_assert(JITNEY_ERROR_BYTES == (int)ERR_TEXT_BYTES,
               "an error message fits the caller's buffer");

static enum jitney_status status_of(enum status st) {
    switch (st) {
    case ST_OK:
        return JITNEY_OK;
    case ST_FULL:
        return JITNEY_FULL;
    case ST_NOMEM:
        return JITNEY_NOMEM;
    case ST_BAD:
        return JITNEY_BAD;
    case ST_MISSING:
        return JITNEY_MISSING;
    case ST_CREATE:
    case ST_IO:
    case ST_UNAVAILABLE:
    case ST_DEVICE:
        return JITNEY_IO;
    case ST_CANCELLED:
        return JITNEY_CLOSED;
    }
    return JITNEY_IO;
}

static enum jitney_status report(enum status st, const struct err *err, char *error) {
    if (error) memcpy(error, err->text, sizeof(err->text));
    return status_of(st);
}

static enum jitney_status report_closed(char *error) {
    struct err err = {0};
    return report(err_set(&err, ST_CANCELLED, "the model was closed"), &err, error);
}

const char *jitney_version(void) { return JITNEY_VERSION; }

void jitney_free(void *ptr) { mem_free(ptr); }

/* --- opening and closing ---------------------------------------------------------------- */

void jitney_options_init(struct jitney_options *options, size_t size) {
    const struct jitney_options full = {.size = size};
    struct_copy(options, size, &full, sizeof(full));
}

static enum status read_options(const struct jitney_options *in, struct jitney_options *out,
                                struct err *err) {
    *out = jitney_options_default();
    if (!in) return ST_OK;
    if (in->size < offsetof(struct jitney_options, progress_ctx) + sizeof(void *))
        return err_set(err, ST_BAD,
                       "the options have no size; they must begin as jitney_options_default() "
                       "gives them");
    struct_copy(out, sizeof(*out), in, in->size);
    return ST_OK;
}

static enum status find_policy(const char *name, const struct sched_policy **out, struct err *err) {
    if (!name || (*out = sched_policy_find(name))) return ST_OK;
    char names[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; sched_policies[i] && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                 sched_policies[i]->name);
    return err_set(err, ST_BAD, "unknown policy \"%s\"; known: %s", name, names);
}

/* A name in the cache or a path. Without a cache folder (no HOME) a path still works. */
static enum status find_model(const char *model, char path[MODEL_PATH_BYTES], struct err *err) {
    struct env_settings env;
    struct model_cache cache;
    env_read(&env);
    if (model_cache_init(&cache, &env, NULL) != ST_OK) cache.root[0] = 0;
    return model_cache_resolve(&cache, model, path, err);
}

static void on_progress(void *ctx, const char *stage, double share) {
    (void)stage;
    const struct jitney_options *o = ctx;
    o->on_progress(o->progress_ctx, share);
}

static enum status open_service(struct jitney *j, const char *model, struct jitney_options *o,
                                struct err *err) {
    char path[MODEL_PATH_BYTES];
    struct service_options options = {.knobs = knobs_default(),
                                      .kv_bytes = o->kv_bytes,
                                      .ctx_tokens = o->ctx_tokens,
                                      .is_sim = o->pretend,
                                      .sim_step_us = o->pretend_step_us,
                                      .progress_ctx = o};
    options.knobs.threads = o->threads;
    if (o->on_progress) options.on_progress = on_progress;
    for (uint32_t i = 0; o->set && o->set[i]; i++)
        TRY(knobs_set_pair(&options.knobs, str_of(o->set[i]), err));
    TRY(find_policy(o->policy, &options.policy, err));
    TRY(find_model(model, path, err));
    return service_open(&j->service, path, &options, err);
}

/* The engine's thread, after each step that gave a choice new tokens. */
static void note_output(void *ctx) {
    struct jitney *j = ctx;
    for (struct choice *c; (c = engine_next(j->service.engine, 0));) {
        /* The ticket, which holds the request, may be freed by another thread after note. */
        struct request *r = c->request;
        tickets_note(j->tickets, c);
        request_unref(r);
    }
}

static enum status open_parts(struct jitney *j, const char *model, struct jitney_options *o,
                              struct err *err) {
    if (tickets_create(&j->tickets) != ST_OK) return err_set(err, ST_NOMEM, "out of memory");
    TRY(open_service(j, model, o, err));
    enum status st = chat_prompt_create(j->service.loaded.tokenizer, &j->chat, err);
    if (st != ST_OK && st != ST_MISSING) return st;
    engine_set_hook(j->service.engine, note_output, j);
    return engine_start(j->service.engine, err);
}

static void destroy(struct jitney *j) {
    service_close(&j->service); /* ends what is under way; calls note_output a last time */
    tickets_destroy(j->tickets);
    chat_prompt_destroy(j->chat);
    mem_free(j);
}

enum jitney_status jitney_open(const char *model, const struct jitney_options *options,
                               struct jitney **out, char *error) {
    struct err err = {0};
    struct jitney_options o;
    *out = NULL;
    enum status st = read_options(options, &o, &err);
    if (st == ST_OK && !model) st = err_set(&err, ST_BAD, "no model was named");
    if (st != ST_OK) return report(st, &err, error);
    struct jitney *j = mem_zalloc(sizeof(*j));
    if (!j) return report(err_set(&err, ST_NOMEM, "out of memory"), &err, error);
    st = open_parts(j, model, &o, &err);
    if (st == ST_OK)
        *out = j;
    else
        destroy(j);
    return report(st, &err, error);
}

void jitney_stop(struct jitney *j) { tickets_stop(j->tickets); }

void jitney_close(struct jitney *j) {
    if (!j) return;
    tickets_stop(j->tickets);
    tickets_empty(j->tickets);
    destroy(j);
}

/* --- requests --------------------------------------------------------------------------- */

static enum status submit(struct jitney *j, const struct jitney_request *request, uint64_t *id,
                          struct err *err) {
    struct jitney_request in;
    struct tokens prompt = {0};
    struct request_spec spec = {.grammar = NULL};
    struct ticket *t = NULL;
    struct request *r;
    const struct submit_model m = {
        .tokenizer = j->service.loaded.tokenizer, .chat = j->chat, .grammars = j->service.grammars};
    enum status st = submit_read(request, &in, err);
    if (st == ST_OK) st = submit_ticket(&m, &in, &t, err);
    if (st == ST_OK) st = submit_spec(&m, &in, &prompt, &spec, err);
    if (st == ST_OK) {
        spec.user = t;
        for (uint32_t i = 0; i < in.n; i++) t->choices[i].seen = spec.prompt_tokens;
        st = engine_submit(j->service.engine, &spec, &r, err);
    }
    tokens_deinit(&prompt);
    answer_grammar_unref(spec.grammar);
    if (st != ST_OK) {
        ticket_destroy(t);
        return st;
    }
    *id = r->id;
    tickets_add(j->tickets, t, r);
    return ST_OK;
}

enum jitney_status jitney_submit(struct jitney *j, const struct jitney_request *request,
                                 uint64_t *id, char *error) {
    struct err err = {0};
    uint64_t given_id = 0;
    if (!tickets_enter(j->tickets)) return report_closed(error);
    enum status st = submit(j, request, &given_id, &err);
    tickets_leave(j->tickets);
    if (id) *id = given_id;
    return report(st, &err, error);
}

void jitney_cancel(struct jitney *j, uint64_t id) {
    if (!tickets_enter(j->tickets)) return;
    struct request *r = tickets_find(j->tickets, id);
    if (r) engine_cancel(j->service.engine, r);
    request_unref(r);
    tickets_leave(j->tickets);
}

/* --- events ----------------------------------------------------------------------------- */

static enum jitney_status next_inside(struct jitney *j, uint64_t id, int64_t until_us,
                                      struct jitney_event *ev) {
    static const enum jitney_status results[] = {[WAIT_CLAIMED] = JITNEY_OK,
                                                 [WAIT_TIMEOUT] = JITNEY_TIMEOUT,
                                                 [WAIT_IDLE] = JITNEY_IDLE,
                                                 [WAIT_CLOSED] = JITNEY_CLOSED};
    for (;;) {
        struct claim claim;
        bool is_empty;
        enum wait_result got = tickets_claim(j->tickets, id, until_us, &claim);
        if (got != WAIT_CLAIMED) return results[got];
        bool is_over = event_fill(ev, &claim, j->service.engine, &is_empty);
        tickets_unclaim(j->tickets, &claim, is_over);
        if (!is_empty) return JITNEY_OK;
    }
}

static int64_t time_after(int64_t timeout_ms) {
    static const int64_t WAIT_MS_MAX = 1000000000000; /* 30 years: no limit */
    if (timeout_ms < 0 || timeout_ms > WAIT_MS_MAX) return INT64_MAX;
    return clock_now(&clock_real) + timeout_ms * 1000;
}

static enum jitney_status next(struct jitney *j, uint64_t id, struct jitney_event *ev,
                               int64_t timeout_ms) {
    int64_t until_us = time_after(timeout_ms);
    enum status st = event_prepare(ev);
    if (st != ST_OK) return status_of(st);
    if (!tickets_enter(j->tickets)) return JITNEY_CLOSED;
    enum jitney_status result = next_inside(j, id, until_us, ev);
    tickets_leave(j->tickets);
    return result;
}

enum jitney_status jitney_next(struct jitney *j, struct jitney_event *ev, int64_t timeout_ms) {
    return next(j, 0, ev, timeout_ms);
}

enum jitney_status jitney_next_of(struct jitney *j, uint64_t id, struct jitney_event *ev,
                                  int64_t timeout_ms) {
    return id ? next(j, id, ev, timeout_ms) : JITNEY_IDLE;
}

/* --- facts ------------------------------------------------------------------------------ */

/* All zero after jitney_stop. */
void jitney_info(struct jitney *j, struct jitney_info *out) {
    struct jitney_info full = {.size = out->size};
    if (tickets_enter(j->tickets)) {
        full.ctx_tokens = j->service.loaded.ctx_tokens;
        full.vocab = j->service.loaded.model->hp.vocab;
        full.threads = j->service.loaded.threads;
        full.has_chat = j->chat != NULL;
        tickets_leave(j->tickets);
    }
    struct_copy(out, out->size, &full, sizeof(full));
}

static struct jitney_stats read_stats(struct jitney *j) {
    const struct engine_stats e = engine_stats(j->service.engine);
    const struct sched_stats *s = &e.sched;
    const struct kv_pool_stats *pool = &s->kv.groups[0];
    struct jitney_stats full = {.running = s->running,
                                .waiting = s->waiting,
                                .swapped = s->swapped,
                                .steps = s->steps,
                                .preempted = s->preempted,
                                .finished = s->finished,
                                .prompt_tokens_looked_up = s->kv.lookup_tokens,
                                .prompt_tokens_cached = s->kv.hit_tokens,
                                .kv_blocks = j->service.knobs.kv_blocks,
                                .kv_blocks_free = pool->free_count + pool->cached_count};
    if (s->held_positions > 0)
        full.kv_waste = 1 - (double)s->used_positions / (double)s->held_positions;
    return full;
}

void jitney_stats(struct jitney *j, struct jitney_stats *out) {
    struct jitney_stats full = {0};
    if (tickets_enter(j->tickets)) {
        full = read_stats(j);
        tickets_leave(j->tickets);
    }
    full.size = out->size;
    struct_copy(out, out->size, &full, sizeof(full));
}

/* --- text ------------------------------------------------------------------------------- */

enum jitney_status jitney_tokenize(struct jitney *j, const char *text, size_t bytes, bool special,
                                   int32_t **tokens, size_t *count, char *error) {
    struct err err = {0};
    struct tokens ids = {0};
    const struct encode_options options = {.add_special = special, .plain_special = !special};
    *tokens = NULL;
    *count = 0;
    if (!tickets_enter(j->tickets)) return report_closed(error);
    enum status st =
        tokenizer_encode(j->service.loaded.tokenizer, (struct str){text, bytes}, options, &ids);
    tickets_leave(j->tickets);
    if (st != ST_OK) {
        tokens_deinit(&ids);
        return report(err_set(&err, st, "out of memory for the tokens"), &err, error);
    }
    *tokens = ids.ids;
    *count = ids.count;
    return report(ST_OK, &err, error);
}

static enum status check_tokens(const struct tokenizer *t, const int32_t *tokens, size_t count,
                                struct err *err) {
    uint32_t vocab = tokenizer_vocab(t);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab)
            return err_set(err, ST_BAD, "token %zu is %d, the model's vocabulary has 0 to %u", i,
                           tokens[i], vocab - 1);
    return ST_OK;
}

enum jitney_status jitney_detokenize(struct jitney *j, const int32_t *tokens, size_t count,
                                     bool special, char **text, size_t *bytes, char *error) {
    struct err err = {0};
    struct buf out;
    *text = NULL;
    *bytes = 0;
    if (!tickets_enter(j->tickets)) return report_closed(error);
    const struct tokenizer *t = j->service.loaded.tokenizer;
    buf_init(&out, DETOKENIZE_BYTES_MAX);
    enum status st = check_tokens(t, tokens, count, &err);
    if (st == ST_OK) {
        st = tokenizer_decode(t, tokens, count, !special, &out);
        if (st == ST_OK) *text = buf_take(&out, bytes);
        if (!*text) st = err_set(&err, ST_NOMEM, "out of memory for the text");
    }
    buf_deinit(&out);
    tickets_leave(j->tickets);
    return report(st, &err, error);
}
