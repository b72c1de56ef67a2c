/* grammar/grammar_int.h - the parts of a grammar, shared by its compilers and its matcher. */
#ifndef GRAMMAR_GRAMMAR_INT_H
#define GRAMMAR_GRAMMAR_INT_H

#include <pthread.h>

#include "grammar/budget.h"
#include "grammar/expr.h"
#include "grammar/grammar.h"
#include "grammar/grammar_memory.h"
#include "grammar/rules.h"

struct json;

/* One way to go on: the rest of an expression, then what the stack says. */
struct thread_at {
    expr_id expr;
    uint32_t stack; /* 0: the whole text ends behind the expression */
};

/* What follows when an expression or a called rule ends. Equal stacks have the same number. */
enum stack_kind {
    STACK_RULE,      /* go on with `rule` */
    STACK_ITEM,      /* the same behind an item of an array with uniqueItems */
    STACK_ARRAY,     /* the same behind such an array */
    STACK_ITEM_FEW,  /* an item of a finite set; value: its STACK_TEXT */
    STACK_ARRAY_FEW, /* the array of such items; value: the expression of the items so far */
    STACK_TEXT,      /* the text of an item so far: the byte `rule`, the bytes before it below */
};
struct stack_entry {
    rule_id rule;
    uint32_t below; /* 0: nothing */
    uint32_t value;
    uint8_t kind; /* enum stack_kind */
    bool tracks;  /* it is STACK_ITEM_FEW, or one is below: what is read belongs to its text */
    bool records; /* it is STACK_ARRAY, or one is below: matchers keep the text of the array */
};

/* A set of threads. State 0 is the dead one: nothing can follow, and the text is not whole. */
struct state {
    uint32_t start, count;    /* in `threads`, sorted; of a free one `start` is the next free one */
    bool complete;            /* the text may end here */
    bool is_free;             /* the number is not in use */
    bool has_room, has_words; /* `room` and `words` are known */
    uint8_t words;            /* 1 + the largest class of words that may follow; 0: none */
    bool records;             /* some thread does */
    uint16_t room;            /* every plain text of so many characters may follow */
    bool room_is_limit;       /* no longer plain text may follow */
    uint32_t pins;            /* matchers that are here; under pins_lock */
    bool is_needed;           /* while tables are collected */
    uint8_t found_phases;     /* bits; set by the search with the number `found_by` (room.c) */
    uint32_t found_by;
    struct state_row *row; /* the states after each byte; NULL: none was needed yet */
    uint64_t *mask;        /* of mask_vocabulary, or NULL */
};

/* The successor where an item of STACK_ITEM ends, by whether the array has an equal one. A row has
 * STATE_FORK | number of the fork. */
#define STATE_FORK UINT32_C(0x80000000)
struct fork {
    uint32_t if_new, if_equal;
};

/* A byte of an array that a matcher keeps, and the one before it. */
struct text_node {
    uint32_t before; /* 0: none; of a free one, the next free one */
    uint8_t byte;
    bool is_free, is_needed;
    uint32_t pins; /* matchers that have read this text and nothing behind it; under pins_lock */
};

/* A hash table of numbers that are stored elsewhere: 1 + number, 0 free. */
struct number_table {
    uint32_t *slots;
    uint32_t slot_count, used;
};

struct tables {
    struct stack_entry *stacks;
    uint32_t stack_count, stack_cap;
    struct number_table stack_table;
    struct state *states;
    uint32_t state_count, state_cap;
    uint32_t free_first; /* 0: none */
    struct number_table state_table;
    struct thread_at *threads;
    uint32_t thread_count, thread_cap;
    /* Scratch of one step: the set that is being built, and rules that have to be followed. */
    struct thread_at *building;
    uint32_t building_count, building_cap;
    struct stack_entry *pending, *followed;
    uint32_t pending_count, pending_cap, followed_count, followed_cap;
    uint32_t *path; /* of stacks that are written again, from the top */
    uint32_t path_cap;
    bool item_is_new, met_item; /* of a step: what to do where an item ends, and whether one did */
    struct fork *forks;
    uint32_t fork_count, fork_cap;
    struct text_node *texts; /* number 0 is the empty text */
    uint32_t text_count, text_cap, text_free;
    struct number_table followed_table;
    bool complete;
    uint32_t search_count; /* of room.c, which numbers its searches */
    const struct vocabulary *mask_vocabulary;
    size_t mask_bytes; /* of all remembered masks */
    size_t kept_bytes; /* of the budget, after the last time that states were forgotten */
    size_t collect_at; /* bytes of the budget from which states are forgotten */
};

/* Where the grammar is charged while requests use it (grammar/grammar_memory.h). */
struct grammar_account {
    struct grammar_memory *memory; /* NULL: nowhere */
    struct grammar_tenant *tenant;
    size_t charged;
    bool is_high; /* as struct grammar_pressure */
};

/* Units of work: of one use of a matcher, some tenths of a second; of a quick hold, about a
 * millisecond. */
enum { MATCH_TICKS_MAX = 1 << 20, QUICK_TICKS_MAX = 1 << 12 };

struct grammar {
    /* `lock` (recursive) protects everything that changes after compiling, except the pins.
     * `pins_lock` protects the pins, and must also be held while the arrays that contain them are
     * reallocated. It is held for a few instructions only, with or without `lock`. */
    pthread_mutex_t lock, pins_lock;
    bool is_quick, is_late; /* of the thread that has it; see grammar_hold */
    struct budget budget;
    size_t bytes_limit; /* its own; budget.bytes_max is less if little memory is left for all */
    struct grammar_account account;
    _Atomic size_t bytes_now; /* budget.bytes as of the last use, to be read without the lock */
    bool is_json;             /* its texts are JSON and nothing else */
    struct expr_pool *exprs;
    struct rules rules;
    rule_id root;
    uint32_t first;          /* the state before the first byte */
    uint32_t compiled_exprs; /* expressions that the rules may need */
    expr_id
        text_chars[2]; /* one character of a JSON string, by its two spellings; EXPR_NONE: none */
    /* Of GRAMMAR_PARTS: the place and the reason of the first schema that was relaxed. */
    char relaxed[GRAMMAR_PATH_BYTES + ERR_TEXT_BYTES];
    struct tables tables;
};

/* The number of a stack entry: a known one or a new one; 0 also where the budget has failed. */
uint32_t stack_push(struct grammar *g, struct stack_entry e);
/* schema_value.c. Whether two values are equal; 1 and 1.0 are. */
bool json_same(const struct json *a, const struct json *b);
/* unique.c. Whether the last item of the innermost array that `text` leaves open is new. */
bool unique_is_new(struct grammar *g, struct str text);
/* unique_few.c. The stack after one more byte was read. */
uint32_t unique_record(struct grammar *g, uint32_t stack, uint8_t byte);
/* The stack behind the item that ends at the entry `stack`; false: the array has an equal one. */
bool unique_end(struct grammar *g, uint32_t stack, uint32_t *below);
/* The expression of an item that begins, without the items that the array has. */
expr_id unique_rest(struct grammar *g, expr_id e, uint32_t stack);

/* Charge the account, and see how much the budget may take. */
void grammar_charge(struct grammar *g);
/* The status of the failed budget: ST_UNAVAILABLE if the memory of all grammars was the limit. */
enum status grammar_failure(const struct grammar *g);

/* Make the first state; afterwards the tables grow by themselves. */
void tables_start(struct grammar *g);
void tables_deinit(struct tables *t);
/* Forget rows, masks, and the states, stacks and expressions that no matcher can need. Numbers of
 * the states that are kept do not change. */
void tables_collect(struct grammar *g);
/* Fill an empty table again with the numbers that are in use. */
void tables_index(struct grammar *g);

#endif
