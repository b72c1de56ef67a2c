/* grammar/collect.c - forgetting what no matcher needs, so that a grammar in use stays within its
 * budget however many answers it serves.
 *
 * Rows and masks can be computed again and are always forgotten. A state is kept if a matcher is in
 * it; with it the stacks and expressions of its threads. States keep their numbers, because
 * matchers know them. Stacks and expressions move to the front in their order, so that sorted lists
 * of them stay sorted.
 */
#include <string.h>

#include "base/mem.h"
#include "grammar/states.h"

static void note_states(struct grammar *g) {
    struct tables *t = &g->tables;
    pthread_mutex_lock(&g->pins_lock);
    for (uint32_t i = 0; i < t->state_count; i++)
        t->states[i].is_needed = i == 0 || i == g->first || t->states[i].pins > 0;
    for (uint32_t i = 1; i < t->text_count; i++)
        t->texts[i].is_needed = !t->texts[i].is_free && t->texts[i].pins > 0;
    pthread_mutex_unlock(&g->pins_lock);
}

static void forget_row(struct grammar *g, struct state *s) {
    if (s->row) g->budget.bytes -= state_row_bytes(s->row);
    mem_free(s->row);
    mem_free(s->mask);
    s->row = NULL;
    s->mask = NULL;
}

/* Frees the states that are not needed; those behind the last one that is are gone altogether.
 * Returns how many threads the others have. */
static uint32_t forget_states(struct grammar *g) {
    struct tables *t = &g->tables;
    uint32_t threads = 0, end = 0;
    for (uint32_t i = 0; i < t->state_count; i++) {
        struct state *s = &t->states[i];
        forget_row(g, s);
        if (s->is_needed) {
            threads += s->count;
            end = i + 1;
        } else {
            *s = (struct state){.is_free = true};
        }
    }
    t->state_count = end;
    t->free_first = 0;
    for (uint32_t i = end; i-- > 0;) {
        if (!t->states[i].is_free) continue;
        t->states[i].start = t->free_first;
        t->free_first = i;
    }
    g->budget.bytes -= t->mask_bytes;
    t->mask_bytes = 0;
    return threads;
}

/* Copies the threads that are needed to `to` and notes their stacks and expressions. */
static void move_threads(struct grammar *g, struct thread_at *to, uint32_t *stacks,
                         uint32_t *exprs) {
    struct tables *t = &g->tables;
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->state_count; i++) {
        struct state *s = &t->states[i];
        if (s->is_free) continue;
        if (s->count) memcpy(to + count, t->threads + s->start, s->count * sizeof(*to));
        s->start = count;
        count += s->count;
    }
    for (uint32_t i = 0; i < count; i++) {
        stacks[to[i].stack] = 1;
        exprs[to[i].expr] = 1;
    }
}

/* Notes the stacks below those that are noted, and the expressions of arrays. What is below a
 * stack, and the text of an item, has a smaller number. */
static void note_stacks(const struct tables *t, uint32_t *stacks, uint32_t *exprs) {
    for (uint32_t i = t->stack_count - 1; i > 0; i--) {
        const struct stack_entry *e = &t->stacks[i];
        if (!stacks[i]) continue;
        stacks[e->below] = 1;
        if (e->kind == STACK_ITEM_FEW) stacks[e->value] = 1;
        if (e->kind == STACK_ARRAY_FEW) exprs[e->value] = 1;
    }
}

/* Moves the noted stacks to the front; stacks[old] becomes the new number. */
static void move_stacks(struct tables *t, uint32_t *stacks, const uint32_t *exprs) {
    uint32_t kept = 1;
    stacks[0] = 0;
    for (uint32_t i = 1; i < t->stack_count; i++) {
        if (!stacks[i]) continue;
        struct stack_entry e = t->stacks[i];
        e.below = stacks[e.below];
        if (e.kind == STACK_ITEM_FEW) e.value = stacks[e.value];
        if (e.kind == STACK_ARRAY_FEW) e.value = exprs[e.value];
        t->stacks[kept] = e;
        stacks[i] = kept++;
    }
    t->stack_count = kept;
}

/* Frees the texts that no matcher needs. A text needs those before it. */
static void forget_texts(struct grammar *g) {
    struct tables *t = &g->tables;
    for (uint32_t i = 1; i < t->text_count; i++) {
        uint32_t at = t->texts[i].is_needed ? t->texts[i].before : 0;
        for (; at && !t->texts[at].is_needed; at = t->texts[at].before)
            t->texts[at].is_needed = true;
    }
    uint32_t end = 1;
    for (uint32_t i = 1; i < t->text_count; i++) {
        struct text_node *x = &t->texts[i];
        if (x->is_needed) end = i + 1;
        if (!x->is_needed) *x = (struct text_node){.is_free = true};
        x->is_needed = false;
    }
    t->text_count = end;
    t->text_free = 0;
    for (uint32_t i = end; i-- > 1;) {
        if (!t->texts[i].is_free) continue;
        t->texts[i].before = t->text_free;
        t->text_free = i;
    }
}

static void free_scratch(struct budget *b, void **array, uint32_t *cap, size_t element_bytes) {
    b->bytes -= *cap * element_bytes;
    mem_free(*array);
    *array = NULL;
    *cap = 0;
}

/* What one answer has made large stays small for the others. */
static void shrink(struct grammar *g) {
    struct tables *t = &g->tables;
    struct budget *b = &g->budget;
    free_scratch(b, (void **)&t->building, &t->building_cap, sizeof(*t->building));
    free_scratch(b, (void **)&t->pending, &t->pending_cap, sizeof(*t->pending));
    free_scratch(b, (void **)&t->followed, &t->followed_cap, sizeof(*t->followed));
    free_scratch(b, (void **)&t->path, &t->path_cap, sizeof(*t->path));
    free_scratch(b, (void **)&t->forks, &t->fork_cap, sizeof(*t->forks));
    free_scratch(b, (void **)&t->followed_table.slots, &t->followed_table.slot_count,
                 sizeof(*t->followed_table.slots));
    budget_shrink(b, (void **)&t->threads, &t->thread_cap, t->thread_count, sizeof(*t->threads));
    budget_shrink(b, (void **)&t->stacks, &t->stack_cap, t->stack_count, sizeof(*t->stacks));
    budget_shrink_slots(b, &t->stack_table.slots, &t->stack_table.slot_count, t->stack_count);
    budget_shrink_slots(b, &t->state_table.slots, &t->state_table.slot_count, t->state_count);
    pthread_mutex_lock(&g->pins_lock);
    budget_shrink(b, (void **)&t->states, &t->state_cap, t->state_count, sizeof(*t->states));
    budget_shrink(b, (void **)&t->texts, &t->text_cap, t->text_count, sizeof(*t->texts));
    pthread_mutex_unlock(&g->pins_lock);
}

/* Without memory for the move everything stays as it is. */
void tables_collect(struct grammar *g) {
    struct tables *t = &g->tables;
    struct thread_at *threads = mem_alloc_array(t->thread_cap, sizeof(*threads));
    uint32_t *stacks = mem_zalloc_array(t->stack_count, sizeof(*stacks));
    uint32_t *exprs = mem_zalloc_array(expr_count(g->exprs), sizeof(*exprs));
    if (threads && stacks && exprs) {
        note_states(g);
        const uint32_t count = forget_states(g);
        forget_texts(g);
        t->fork_count = 0; /* all rows are gone */
        move_threads(g, threads, stacks, exprs);
        note_stacks(t, stacks, exprs);
        expr_pool_collect(g->exprs, g->compiled_exprs, exprs);
        move_stacks(t, stacks, exprs);
        for (uint32_t i = 0; i < count; i++)
            threads[i] = (struct thread_at){exprs[threads[i].expr], stacks[threads[i].stack]};
        struct thread_at *old = t->threads;
        t->threads = threads;
        threads = old;
        t->thread_count = count;
        shrink(g);
        tables_index(g);
    }
    mem_free(threads);
    mem_free(stacks);
    mem_free(exprs);
    t->kept_bytes = g->budget.bytes;
    const size_t most = g->budget.bytes_max, next = g->budget.bytes + most / 8;
    t->collect_at = next > most / 4 * 3 ? next : most / 4 * 3;
}
