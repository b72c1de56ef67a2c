/* sim/recorded.c - see sim/recorded.h for the contract. */
#include "sim/recorded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/request.h"

enum { ID_BYTES = 24, COLUMNS_MAX = 6, TENANTS_MAX = 1 << 20 };
static const int64_t TIME_US_MAX = (int64_t)1 << 53; /* what a browser can count */

const struct recorded_limits recorded_limits_file = {.sequences = 1 << 20,
                                                     .tokens = (uint64_t)1 << 40};
static const struct json_limits file_limits = {
    .bytes_max = (size_t)1 << 30, .depth_max = 16, .values_max = (size_t)1 << 26};

struct sequence {
    uint64_t request;
    int64_t at_us;
    uint32_t choice, tenant;
    uint32_t prompt_tokens, max_tokens, generated;
    bool has_ended, is_batch;
};

/* A column that is read: its name, its range, and where hello says that it is. */
struct column {
    const char *name;
    int64_t least, most;
    size_t place;
};

/* In the order of enum arrived_column and of enum ended_column. */
enum arrived_column { A_REQUEST, A_CHOICE, A_TENANT, A_AT, A_PROMPT, A_MAX, A_COLUMNS };
enum ended_column { E_REQUEST, E_CHOICE, E_GENERATED, E_COLUMNS };

struct reading {
    const struct json *recording;
    const struct recorded_limits *limits;
    struct recorded_fault *fault;
    struct sequence *sequences; /* in the order of request and choice, once all are read */
    size_t count;
    uint64_t tokens;
    struct column arrived[A_COLUMNS], ended[E_COLUMNS];
    struct column batch; /* of arrived; an older recording has none */
    bool has_batch;
};

/* ---- where something is wrong ---- */

#define FAULT_AT(r, ...) snprintf((r)->fault->path, sizeof((r)->fault->path), __VA_ARGS__)

/* ---- columns ---- */

static bool has_column(const struct reading *r, const char *list, struct column *c) {
    const struct json *names = json_get(json_get(r->recording, "hello"), list);
    for (c->place = 0; c->place < json_count(names); c->place++)
        if (str_is(json_str(json_at(names, c->place)), c->name)) return true;
    return false;
}

static enum status find_column(struct reading *r, const char *list, struct column *c) {
    if (has_column(r, list, c)) return ST_OK;
    FAULT_AT(r, "hello.%s", list);
    return err_set(&r->fault->err, ST_BAD,
                   "must be a list of columns with \"%s\", as GET /v1/engine/steps sends it",
                   c->name);
}

static enum status find_columns(struct reading *r) {
    const struct column arrived[A_COLUMNS] = {
        [A_REQUEST] = {"request", 1, INT64_MAX, 0},
        [A_CHOICE] = {"choice", 0, CHOICES_MAX - 1, 0},
        [A_TENANT] = {"tenant", 0, TENANTS_MAX, 0},
        [A_AT] = {"at_us", -TIME_US_MAX, TIME_US_MAX, 0},
        [A_PROMPT] = {"prompt", 1, 1 << 24, 0},
        [A_MAX] = {"max", 1, SAMPLE_MAX_TOKENS(SAMPLE_MOST_OF), 0}};
    const struct column ended[E_COLUMNS] = {[E_REQUEST] = {"request", 1, INT64_MAX, 0},
                                            [E_CHOICE] = {"choice", 0, CHOICES_MAX - 1, 0},
                                            [E_GENERATED] = {"generated", 0, UINT32_MAX, 0}};
    memcpy(r->arrived, arrived, sizeof(arrived));
    memcpy(r->ended, ended, sizeof(ended));
    for (uint32_t i = 0; i < A_COLUMNS; i++) TRY(find_column(r, "arrived", &r->arrived[i]));
    for (uint32_t i = 0; i < E_COLUMNS; i++) TRY(find_column(r, "ended", &r->ended[i]));
    r->batch = (struct column){"batch", 0, 1, 0};
    r->has_batch = has_column(r, "arrived", &r->batch);
    return ST_OK;
}

/* Where an entry of a list is. */
struct place {
    const char *list;
    size_t step, entry;
};

static enum status read_entry(struct reading *r, const struct json *entry,
                              const struct column *columns, uint32_t count, const struct place *at,
                              int64_t *out) {
    for (uint32_t i = 0; i < count; i++) {
        const struct column *c = &columns[i];
        const struct json *v = json_at(entry, c->place);
        out[i] = json_int(v, INT64_MIN);
        bool is_number = json_kind(v) == JS_INT || json_kind(v) == JS_REAL;
        if (is_number && out[i] >= c->least && out[i] <= c->most) continue;
        FAULT_AT(r, "steps[%zu].%s[%zu][%zu]", at->step, at->list, at->entry, c->place);
        return err_set(&r->fault->err, ST_BAD, "\"%s\" must be a whole number from %lld to %lld",
                       c->name, (long long)c->least, (long long)c->most);
    }
    return ST_OK;
}

/* ---- the lists of all steps ---- */

typedef enum status entry_fn(struct reading *r, const struct json *entry, const struct place *at);

static enum status read_list(struct reading *r, const struct json *step, struct place at,
                             entry_fn *read) {
    const struct json *list = json_get(step, at.list);
    if (list && json_kind(list) != JS_LIST) {
        FAULT_AT(r, "steps[%zu].%s", at.step, at.list);
        return err_set(&r->fault->err, ST_BAD, "must be an array");
    }
    for (at.entry = 0; at.entry < json_count(list); at.entry++)
        TRY(read(r, json_at(list, at.entry), &at));
    return ST_OK;
}

static enum status read_lists(struct reading *r, const char *name, entry_fn *read) {
    const struct json *steps = json_get(r->recording, "steps");
    for (size_t i = 0; i < json_count(steps); i++) {
        const struct json *step = json_at(steps, i);
        if (json_kind(step) != JS_MAP) {
            FAULT_AT(r, "steps[%zu]", i);
            return err_set(&r->fault->err, ST_BAD, "must be an object");
        }
        TRY(read_list(r, step, (struct place){.list = name, .step = i}, read));
    }
    return ST_OK;
}

static enum status count_entry(struct reading *r, const struct json *entry,
                               const struct place *at) {
    (void)entry;
    if (r->count++ < r->limits->sequences) return ST_OK;
    FAULT_AT(r, "steps[%zu].arrived[%zu]", at->step, at->entry);
    return err_set(&r->fault->err, ST_BAD, "more than %u sequences have arrived; cut the recording",
                   r->limits->sequences);
}

static enum status read_arrived(struct reading *r, const struct json *entry,
                                const struct place *at) {
    int64_t v[A_COLUMNS], is_batch = 0;
    TRY(read_entry(r, entry, r->arrived, A_COLUMNS, at, v));
    if (r->has_batch) TRY(read_entry(r, entry, &r->batch, 1, at, &is_batch));
    r->sequences[r->count++] = (struct sequence){.request = (uint64_t)v[A_REQUEST],
                                                 .at_us = v[A_AT],
                                                 .choice = (uint32_t)v[A_CHOICE],
                                                 .tenant = (uint32_t)v[A_TENANT],
                                                 .prompt_tokens = (uint32_t)v[A_PROMPT],
                                                 .max_tokens = (uint32_t)v[A_MAX],
                                                 .is_batch = is_batch == 1};
    r->tokens += (uint64_t)v[A_PROMPT] + (uint64_t)v[A_MAX];
    if (r->tokens <= r->limits->tokens) return ST_OK;
    FAULT_AT(r, "steps[%zu].arrived[%zu]", at->step, at->entry);
    return err_set(
        &r->fault->err, ST_BAD,
        "prompts and max_tokens up to here have more than %llu tokens; cut the recording",
        (unsigned long long)r->limits->tokens);
}

static int by_number(const void *a, const void *b) {
    const struct sequence *x = a, *y = b;
    if (x->request != y->request) return x->request < y->request ? -1 : 1;
    return x->choice < y->choice ? -1 : x->choice > y->choice;
}

static enum status read_ended(struct reading *r, const struct json *entry, const struct place *at) {
    int64_t v[E_COLUMNS];
    TRY(read_entry(r, entry, r->ended, E_COLUMNS, at, v));
    const struct sequence key = {.request = (uint64_t)v[E_REQUEST],
                                 .choice = (uint32_t)v[E_CHOICE]};
    struct sequence *s = bsearch(&key, r->sequences, r->count, sizeof(key), by_number);
    if (!s) return ST_OK; /* it arrived before the recording began */
    s->has_ended = true;
    s->generated = v[E_GENERATED] < s->max_tokens ? (uint32_t)v[E_GENERATED] : s->max_tokens;
    return ST_OK;
}

static enum status check_unique(struct reading *r) {
    for (size_t i = 1; i < r->count; i++) {
        const struct sequence *s = &r->sequences[i];
        if (by_number(s - 1, s) != 0) continue;
        FAULT_AT(r, "steps");
        return err_set(&r->fault->err, ST_BAD, "choice %u of request %llu arrives twice", s->choice,
                       (unsigned long long)s->request);
    }
    return ST_OK;
}

static enum status read_sequences(struct reading *r) {
    if (json_kind(json_get(r->recording, "steps")) != JS_LIST) {
        FAULT_AT(r, "steps");
        return err_set(&r->fault->err, ST_BAD, "must be an array of steps");
    }
    TRY(find_columns(r));
    TRY(read_lists(r, "arrived", count_entry));
    r->sequences = mem_alloc_array(r->count + 1, sizeof(r->sequences[0]));
    if (!r->sequences) return ST_NOMEM;
    r->count = 0;
    TRY(read_lists(r, "arrived", read_arrived));
    qsort(r->sequences, r->count, sizeof(r->sequences[0]), by_number);
    TRY(check_unique(r));
    return read_lists(r, "ended", read_ended);
}

/* ---- from sequences to requests ---- */

/* Those that ended without a token are removed; the others know their length. */
static void settle_lengths(struct reading *r) {
    uint64_t tokens = 0, ended = 0;
    size_t kept = 0;
    for (size_t i = 0; i < r->count; i++) {
        tokens += r->sequences[i].generated;
        ended += r->sequences[i].generated > 0;
    }
    uint64_t mean = ended > 0 ? (tokens + ended / 2) / ended : UINT32_MAX;
    for (size_t i = 0; i < r->count; i++) {
        struct sequence s = r->sequences[i];
        if (s.has_ended && s.generated == 0) continue;
        if (!s.has_ended) s.generated = mean < s.max_tokens ? (uint32_t)mean : s.max_tokens;
        r->sequences[kept++] = s;
    }
    r->count = kept;
}

static int64_t first_arrival(const struct reading *r) {
    int64_t first_us = INT64_MAX;
    for (size_t i = 0; i < r->count; i++)
        if (r->sequences[i].at_us < first_us) first_us = r->sequences[i].at_us;
    return first_us;
}

static enum status fill_request(const struct sequence *choices, uint32_t n, int64_t first_us,
                                struct listed_request *out) {
    char id[ID_BYTES];
    int len = snprintf(id, sizeof(id), "%llu", (unsigned long long)choices->request);
    *out = (struct listed_request){.id = mem_dup(id, (size_t)len),
                                   .at_us = choices->at_us - first_us,
                                   .cancel_after_us = -1,
                                   .prompt_tokens = choices->prompt_tokens,
                                   .max_tokens = choices->max_tokens,
                                   .n = n,
                                   .seed = choices->request & INT64_MAX,
                                   .ignore_eos = true,
                                   .is_batch = choices->is_batch,
                                   .tenant = choices->tenant};
    if (!out->id) return ST_NOMEM;
    TRY(listed_request_make_stops(out));
    for (uint32_t i = 0; i < n; i++) out->stops[i] = choices[i].generated;
    return ST_OK;
}

/* The sequences [from, to) of one request. */
static enum status push_request(const struct reading *r, size_t from, size_t to, int64_t first_us,
                                struct request_list *list) {
    struct listed_request item;
    enum status st = fill_request(&r->sequences[from], (uint32_t)(to - from), first_us, &item);
    if (st == ST_OK) {
        item.line = list->count + 1;
        st = request_list_push(list, &item);
    }
    if (st != ST_OK) listed_request_deinit(&item);
    return st;
}

static enum status push_requests(const struct reading *r, struct request_list *list) {
    const int64_t first_us = first_arrival(r);
    for (size_t from = 0, to; from < r->count; from = to) {
        for (to = from + 1; to < r->count; to++)
            if (r->sequences[to].request != r->sequences[from].request) break;
        TRY(push_request(r, from, to, first_us, list));
    }
    return ST_OK;
}

static enum status read_all(struct reading *r, struct request_list *list) {
    TRY(read_sequences(r));
    settle_lengths(r);
    if (r->count > 0) return push_requests(r, list);
    FAULT_AT(r, "steps");
    return err_set(&r->fault->err, ST_BAD, "no request arrives and gets a token");
}

enum status recorded_read(const struct json *recording, const struct recorded_limits *limits,
                          struct request_list *list, struct recorded_fault *fault) {
    struct reading r = {.recording = recording, .limits = limits, .fault = fault};
    *list = (struct request_list){.items = NULL};
    fault->path[0] = 0;
    enum status st = read_all(&r, list);
    mem_free(r.sequences);
    if (st != ST_OK) request_list_deinit(list);
    return st;
}

enum status recorded_draw_prompts(struct request_list *list, const struct prompt_source *source) {
    for (uint32_t i = 0; i < list->count; i++) {
        struct listed_request *item = &list->items[i];
        TRY(listed_request_draw_prompt(item, item->prompt_tokens, source));
    }
    return ST_OK;
}

/* ---- files ---- */

/* The text of the first element with the id "recording"; its data have no "<" (page, P3). */
static bool find_in_page(struct str page, struct str *json) {
    const struct str tag = STR("<script type=\"application/json\" id=\"recording\">");
    for (const char *at; (at = memchr(page.ptr, '<', page.len));) {
        page = str_skip(page, (size_t)(at - page.ptr));
        if (str_starts(page, tag)) {
            page = str_skip(page, tag.len);
            const char *end = memchr(page.ptr, '<', page.len);
            *json = str_trim(str_take(page, end ? (size_t)(end - page.ptr) : page.len));
            return true;
        }
        page = str_skip(page, 1);
    }
    return false;
}

bool recorded_find(struct str file, struct str *json) {
    *json = str_trim(file);
    if (str_starts(*json, STR("<"))) return find_in_page(*json, json);
    return str_starts(*json, STR("{\"jitney_recording\""));
}

enum status recorded_read_file(struct str json, const struct prompt_source *source,
                               struct request_list *list, struct err *err) {
    struct json *doc = NULL;
    struct recorded_fault fault = {.path = ""};
    TRY(json_parse(json, &file_limits, &doc, err));
    enum status st = recorded_read(doc, &recorded_limits_file, list, &fault);
    json_destroy(doc);
    if (st == ST_BAD) return err_set(err, st, "%s: %s", fault.path, fault.err.text);
    if (st == ST_OK) st = recorded_draw_prompts(list, source);
    if (st == ST_OK) return ST_OK;
    request_list_deinit(list);
    return err_set(err, st, "out of memory for the requests of the recording");
}
