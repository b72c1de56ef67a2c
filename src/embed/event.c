/* embed/event.c - see embed/event.h for the contract. */
#include "embed/event.h"

#include <jitney.h>
#include <stddef.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "embed/struct_copy.h"
#include "engine/engine.h"

enum { TEXT_BYTES_MAX = 1 << 28 };

/* The memory that the pointers of an event point to. */
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
    struct_copy(ev, size, &full, sizeof(full));
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

/* One event of one choice while it is being filled. */
struct filling {
    struct event_memory *memory;
    struct ticket *ticket;
    struct ticket_choice *progress;
    const struct choice *choice;
    uint32_t first, end; /* the tokens of this event */
    enum finish_reason finish;
};

/* The text of the event's tokens, which end at a stop string if one is met. */
static void put_text(struct filling *f) {
    struct text_output *output = &f->progress->output;
    for (uint32_t i = f->first; i < f->end; i++)
        if (text_output_push(output, f->choice->tokens[i], &f->memory->text)) f->end = i + 1;
    if (output->has_stopped || f->finish != FINISH_NONE)
        f->finish = text_output_finish(output, f->finish, &f->memory->text);
}

/* Rows of top_count; -1 where the vocabulary had no more. */
static bool put_tops(struct filling *f) {
    uint32_t columns = f->ticket->top_count, rows = f->end - f->first;
    size_t need = (size_t)rows * columns;
    struct event_memory *memory = f->memory;
    if (!f->choice->tops || need == 0) return true;
    if (need > memory->top_cap) {
        struct jitney_logprob *tops = mem_alloc_array(need, sizeof(*tops));
        if (!tops) return false;
        mem_free(memory->tops);
        memory->tops = tops;
        memory->top_cap = need;
    }
    const struct sample_result *from = f->choice->tops + (f->first - f->choice->prompt_tokens);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < columns; c++) {
            struct token_logprob p = {.token = -1};
            if (c < from[r].top_count) p = from[r].top[c];
            memory->tops[(size_t)r * columns + c] = (struct jitney_logprob){p.token, p.logprob};
        }
    return true;
}

static const char *error_of(const struct filling *f) {
    if (f->finish != FINISH_REFUSED && f->finish != FINISH_ERROR) return NULL;
    struct err *error = &f->memory->error;
    if (!error->text[0]) *error = f->ticket->request->refusal;
    if (!error->text[0]) err_set(error, ST_DEVICE, "the computation of this answer failed");
    return error->text;
}

static void put_fields(struct jitney_event *ev, const struct filling *f, uint32_t cached_tokens) {
    const struct choice *c = f->choice;
    const struct ticket *t = f->ticket;
    uint32_t rows = f->end - f->first, before = f->first - c->prompt_tokens;
    bool has_tops = c->tops && t->top_count > 0;
    struct jitney_event full = {
        .size = ev->size,
        .memory = ev->memory,
        .id = t->id,
        .choice = c->index,
        .user = t->user,
        .finish = (enum jitney_finish)f->finish,
        .text = buf_text(&f->memory->text),
        .text_bytes = f->memory->text.len,
        .tokens = c->tokens + f->first,
        .token_count = rows,
        .prompt_tokens = c->prompt_tokens,
        .completion_tokens = f->end - c->prompt_tokens,
        .cached_tokens = cached_tokens,
        .error = error_of(f),
    };
    if (c->logprobs) full.logprobs = (const struct jitney_logprob *)(c->logprobs + before);
    if (has_tops) full.top_count = t->top_count;
    if (has_tops) full.top_logprobs = f->memory->tops;
    struct_copy(ev, ev->size, &full, sizeof(full));
}

static struct filling begin(struct event_memory *memory, const struct claim *claim) {
    struct ticket *ticket = claim->ticket;
    struct ticket_choice *progress = &ticket->choices[claim->choice];
    struct request *old = memory->request;
    memory->request = ticket->request;
    request_ref(memory->request);
    request_unref(old);
    buf_clear(&memory->text);
    memory->error.text[0] = 0;
    return (struct filling){.memory = memory,
                            .ticket = ticket,
                            .progress = progress,
                            .choice = &ticket->request->choices[claim->choice],
                            .first = progress->seen,
                            /* The engine publishes no tokens of a refused request. */
                            .end = claim->ready > progress->seen ? claim->ready : progress->seen,
                            .finish = claim->finish};
}

bool event_fill(struct jitney_event *ev, const struct claim *claim, struct engine *engine,
                bool *is_empty) {
    struct filling f = begin(ev->memory, claim);
    bool engine_has_finished = f.finish != FINISH_NONE;
    put_text(&f);
    if (buf_status(&f.memory->text) != ST_OK || !put_tops(&f)) {
        f.finish = FINISH_ERROR;
        err_set(&f.memory->error, ST_NOMEM, "out of memory for the text of this answer");
        f.end = f.first;
    }
    /* Lack of memory here is not a failure of the computation, so the engine sees a cancellation
     * and does not count an error. */
    enum finish_reason why = f.finish == FINISH_STOP ? FINISH_STOP : FINISH_CANCELLED;
    if (f.finish != FINISH_NONE && !engine_has_finished)
        engine_cancel_choice(engine, f.ticket->request, claim->choice, why);
    *is_empty = f.end == f.first && f.finish == FINISH_NONE;
    f.progress->seen = f.end;
    put_fields(ev, &f, claim->cached_tokens);
    return f.finish != FINISH_NONE;
}
