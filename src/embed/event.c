/* embed/event.c - see embed/event.h for the contract. */
#include "embed/event.h"

#include <jitney.h>
#include <stddef.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "embed/struct_give.h"
#include "engine/engine.h"

enum { TEXT_BYTES_MAX = 1 << 28 };

/* What stands behind the pointers of an event. */
struct event_memory {
    struct request *request; /* a reference: tokens and logprobs are its */
    struct buf text;
    struct jitney_logprob *tops; /* heap */
    size_t top_cap;
    struct err error;
};

/* The engine's arrays are handed out as they are. */
_Static_assert(sizeof(struct jitney_logprob) == sizeof(struct token_logprob), "same layout");
_Static_assert(offsetof(struct jitney_logprob, logprob) == offsetof(struct token_logprob, logprob),
               "same layout");
_Static_assert((int)JITNEY_STOP == (int)FINISH_STOP, "same reasons");
_Static_assert((int)JITNEY_ERROR == (int)FINISH_ERROR, "same reasons");
_Static_assert(JITNEY_TOP_MAX == (int)TOP_LOGPROBS_MAX, "same limit");

void jitney_event_init(struct jitney_event *ev, size_t size) {
    const struct jitney_event full = {.size = size, .text = ""};
    struct_give(ev, size, &full, sizeof(full));
}

void jitney_event_clear(struct jitney_event *ev) {
    if (!ev || !ev->memory) return;
    struct event_memory *m = ev->memory;
    request_unref(m->request);
    buf_deinit(&m->text);
    mem_free(m->tops);
    mem_free(m);
    jitney_event_init(ev, ev->size);
}

enum status event_prepare(struct jitney_event *ev) {
    if (ev->size < offsetof(struct jitney_event, memory) + sizeof(void *)) return ST_BAD;
    if (ev->memory) return ST_OK;
    struct event_memory *m = mem_zalloc(sizeof(*m));
    if (!m) return ST_NOMEM;
    buf_init(&m->text, TEXT_BYTES_MAX);
    ev->memory = m;
    return ST_OK;
}

/* What is being made of one answer. */
struct making {
    struct event_memory *memory;
    struct ticket *ticket;
    struct answer *answer;
    const struct choice *choice;
    const struct tokenizer *tokenizer;
    uint32_t first, end; /* the tokens that this event tells */
    enum finish_reason finish;
    struct buf piece;
};

/* Text without its stop strings. True if one was met. */
static bool push_text(struct making *m) {
    struct stops *stops = &m->answer->stops;
    if (stops->count == 0) return buf_put_str(&m->memory->text, buf_str(&m->piece)), false;
    bool met = stops_push(stops, buf_str(&m->piece), &m->memory->text);
    if (buf_status(&stops->held) != ST_OK) m->memory->text.status = stops->held.status;
    return met;
}

/* The tokens up to a stop string, or all. True if a stop string was met. */
static bool put_tokens(struct making *m) {
    struct ticket *t = m->ticket;
    for (uint32_t i = m->first; i < m->end; i++) {
        buf_clear(&m->piece);
        enum status st = detok_push(&m->answer->detok, m->tokenizer, m->choice->tokens[i],
                                    !t->keep_special, &m->piece);
        if (st != ST_OK) m->memory->text.status = st;
        if (!push_text(m)) continue;
        m->end = i + 1;
        return true;
    }
    return false;
}

/* The answer has ended by itself: what was held back is shown, unless it holds a stop string. */
static bool put_rest(struct making *m) {
    buf_clear(&m->piece);
    detok_finish(&m->answer->detok, &m->piece);
    if (push_text(m)) return true;
    stops_finish(&m->answer->stops, &m->memory->text);
    return false;
}

/* True if a stop string ended it. */
static bool put_text(struct making *m) {
    buf_init(&m->piece, TEXT_BYTES_MAX);
    bool met = put_tokens(m);
    if (!met && m->finish != FINISH_NONE) met = put_rest(m);
    if (buf_status(&m->piece) != ST_OK) m->memory->text.status = m->piece.status;
    buf_deinit(&m->piece);
    return met;
}

/* Rows of top_count; -1 where the vocabulary had no more. */
static bool put_tops(struct making *m) {
    uint32_t columns = m->ticket->top_count, rows = m->end - m->first;
    size_t need = (size_t)rows * columns;
    struct event_memory *memory = m->memory;
    if (!m->choice->tops || need == 0) return true;
    if (need > memory->top_cap) {
        struct jitney_logprob *tops = mem_alloc_array(need, sizeof(*tops));
        if (!tops) return false;
        mem_free(memory->tops);
        memory->tops = tops;
        memory->top_cap = need;
    }
    const struct sample_result *from = m->choice->tops + (m->first - m->choice->prompt_tokens);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < columns; c++) {
            struct token_logprob p = {.token = -1};
            if (c < from[r].top_count) p = from[r].top[c];
            memory->tops[(size_t)r * columns + c] = (struct jitney_logprob){p.token, p.logprob};
        }
    return true;
}

static const char *error_of(const struct making *m) {
    if (m->finish != FINISH_REFUSED && m->finish != FINISH_ERROR) return NULL;
    struct err *error = &m->memory->error;
    if (!error->text[0]) *error = m->ticket->request->refusal;
    if (!error->text[0]) err_set(error, ST_DEVICE, "the computation of this answer failed");
    return error->text;
}

static void put_fields(struct jitney_event *ev, const struct making *m, uint32_t cached_tokens) {
    const struct choice *c = m->choice;
    const struct ticket *t = m->ticket;
    uint32_t rows = m->end - m->first, before = m->first - c->prompt_tokens;
    bool has_tops = c->tops && t->top_count > 0;
    struct jitney_event full = {
        .size = ev->size,
        .memory = ev->memory,
        .id = t->id,
        .choice = c->index,
        .user = t->user,
        .finish = (enum jitney_finish)m->finish,
        .text = buf_text(&m->memory->text),
        .text_bytes = m->memory->text.len,
        .tokens = c->tokens + m->first,
        .token_count = rows,
        .prompt_tokens = c->prompt_tokens,
        .completion_tokens = m->end - c->prompt_tokens,
        .cached_tokens = cached_tokens,
        .error = error_of(m),
    };
    if (c->logprobs) full.logprobs = (const struct jitney_logprob *)(c->logprobs + before);
    if (has_tops) full.top_count = t->top_count;
    if (has_tops) full.top_logprobs = m->memory->tops;
    struct_give(ev, ev->size, &full, sizeof(full));
}

static struct making begin(struct event_memory *memory, const struct claim *claim,
                           const struct tokenizer *t) {
    struct ticket *ticket = claim->ticket;
    struct request *old = memory->request;
    memory->request = ticket->request;
    request_ref(memory->request);
    request_unref(old);
    buf_clear(&memory->text);
    memory->error.text[0] = 0;
    return (struct making){.memory = memory,
                           .ticket = ticket,
                           .answer = &ticket->answers[claim->answer],
                           .choice = &ticket->request->choices[claim->answer],
                           .tokenizer = t,
                           .first = ticket->answers[claim->answer].seen,
                           .end = claim->ready,
                           .finish = claim->finish};
}

bool event_fill(struct jitney_event *ev, const struct claim *claim, const struct tokenizer *t,
                struct engine *engine, bool *has_news) {
    struct making m = begin(ev->memory, claim, t);
    if (m.end < m.first) m.end = m.first; /* refused: the engine published no tokens */
    bool was_over = m.finish != FINISH_NONE;
    if (put_text(&m)) m.finish = FINISH_STOP;
    if (buf_status(&m.memory->text) != ST_OK || !put_tops(&m)) {
        m.finish = FINISH_ERROR;
        err_set(&m.memory->error, ST_NOMEM, "out of memory for the text of this answer");
        m.end = m.first;
    }
    /* Memory that lacks here is no failure of the computation, which shall not report one. */
    enum finish_reason why = m.finish == FINISH_STOP ? FINISH_STOP : FINISH_CANCELLED;
    if (m.finish != FINISH_NONE && !was_over)
        engine_cancel_choice(engine, m.ticket->request, claim->answer, why);
    *has_news = m.end > m.first || m.finish != FINISH_NONE;
    m.answer->seen = m.end;
    put_fields(ev, &m, claim->cached_tokens);
    return m.finish != FINISH_NONE;
}
