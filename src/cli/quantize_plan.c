/* cli/quantize_plan.c - see cli/quantize_plan.h for the contract. */
#include "cli/quantize_plan.h"

#include <math.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "cli/calibrate_run.h"
#include "cli/generated.h"
#include "cli/model_args.h"
#include "cli/sensitivity_run.h"
#include "cli/text_windows.h"
#include "engine/loaded_model.h"
#include "format/model_file.h"
#include "format/tensor_read.h"
#include "quant/choose.h"
#include "quant/convert.h"
#include "quant/importance.h"
#include "quant/plan.h"
#include "quant/type_error.h"

enum { ALIGNMENT = 32, CURVE_POINTS = 12 };

const struct flag flags_plan[] = {
    {.name = "budget",
     .kind = FLAG_TEXT,
     .value = "SIZE",
     .help = "Choose a type for each matrix, so that the file has at most SIZE bytes and the "
             "predictions change least. SIZE is a number of bytes, or a number with a unit: kB, "
             "MB, GB (powers of 1000), KiB, MiB, GiB (powers of 1024). Replaces --type; needs "
             "--calibrate."},
    {.name = "bits",
     .kind = FLAG_REAL,
     .value = "X",
     .min = 1,
     .max = 32,
     .help = "As --budget, with at most X bits per weight over all tensors."},
    {.name = "plan",
     .kind = FLAG_BOOL,
     .help = "Only print the types that --budget or --bits chooses, and the expected KL of other "
             "sizes. Nothing is written, and OUT is not needed."},
    {0},
};

/* The types that are tried. The first whose blocks divide the rows is the one whose KL is measured:
 * its error stands out from rounding. */
static const enum dtype candidates[] = {DTYPE_Q4_0, DTYPE_IQ4_XS, DTYPE_IQ4_NL, DTYPE_Q4_K,
                                        DTYPE_Q4_1, DTYPE_Q5_0,   DTYPE_Q5_K,   DTYPE_Q5_1,
                                        DTYPE_Q6_K, DTYPE_Q8_0,   DTYPE_F16};
enum { CANDIDATES = sizeof(candidates) / sizeof(candidates[0]) };
_Static_assert((int)CANDIDATES <= (int)PLAN_CHOICES_MAX, "a plan takes all candidates");

/* A matrix that is converted. */
struct planned {
    size_t index; /* in the converter */
    enum dtype types[CANDIDATES];
    double errors[CANDIDATES];
    struct plan_choice choices[CANDIDATES];
    uint32_t count, chosen;
};

struct quantize_plan {
    struct convert *c;
    struct quantize_target target;
    struct planned *planned; /* heap */
    struct sensitivity *kl;  /* heap; of each planned */
    struct plan_item *items; /* heap; of each planned */
    size_t count;
    struct plan *plan;
    enum dtype *types;      /* heap; of all tensors */
    uint64_t rest_bytes;    /* of the file but the matrices, or of the other tensors (by_bits) */
    uint64_t head_bytes;    /* of the file, before its tensors; 0 (by_bits) */
    uint64_t elems;         /* of all tensors */
    uint64_t data_bytes;    /* of all tensors as chosen */
    uint64_t file_bytes;    /* as chosen */
    struct plan_point best; /* with rest_bytes */
};

enum exit_code quantize_target_read(const struct args *args, struct quantize_target *out,
                                    struct err *err) {
    const char *budget = args_text(args, "budget");
    bool has_bits = args_given(args, "bits");
    *out = (struct quantize_target){
        .is_set = budget || has_bits, .by_bits = has_bits, .writes_none = args_on(args, "plan")};
    if (budget && has_bits)
        return usage_set(err, "quantize: --budget and --bits were given; give one of them");
    if (out->writes_none && !out->is_set)
        return usage_set(err, "quantize: --plan needs a size; give --budget SIZE or --bits X");
    if (!out->is_set) return EXIT_FINE;
    const char *flag = budget ? "--budget" : "--bits";
    if (args_text(args, "type"))
        return usage_set(err,
                         "quantize: %s chooses a type for each matrix of a GGUF file; leave --type "
                         "out",
                         flag);
    if (!args_text(args, "calibrate"))
        return usage_set(err,
                         "quantize: %s measures on a text what each matrix matters; give "
                         "--calibrate TEXT",
                         flag);
    if (budget && !size_parse(str_of(budget), &out->bytes))
        return usage_set(err,
                         "quantize: --budget is \"%s\"; it must be a number of bytes, or one with "
                         "a unit: 70MB, 1.5GiB",
                         budget);
    if (has_bits) out->bits = args_real(args, "bits");
    return EXIT_FINE;
}

/* ---- measuring ---- */

static uint64_t bytes_of(enum dtype type, uint64_t elems) {
    size_t bytes;
    CHECK(dtype_bytes(type, elems, &bytes));
    return bytes;
}

/* What a tensor of so many bytes takes of what the target counts. */
static uint64_t counted(const struct quantize_plan *p, uint64_t bytes) {
    return p->target.by_bits ? bytes : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool is_planned(const struct convert_tensor *t) {
    return choose_converts(t->from->name, t->from->dims, t->from->dim_count);
}

static void list_types(const struct quantize_plan *p, const struct convert_tensor *t,
                       struct planned *out) {
    uint64_t width = t->from->dims[t->from->dim_count - 1], elems = tensor_elems(t->from);
    for (size_t i = 0; i < CANDIDATES; i++) {
        if (width % dtype_info(candidates[i])->block_elems != 0) continue;
        out->types[out->count] = candidates[i];
        out->choices[out->count++].bytes = counted(p, bytes_of(candidates[i], elems));
    }
}

/* The tensor of the model's own file, which the converter's may be a view of. */
static struct str source_name(const struct tensor_info *t) {
    return t->made_of.len > 0 ? t->made_of : t->name;
}

/* What the target counts beside the matrices. */
static void count_rest(struct quantize_plan *p) {
    p->head_bytes = p->rest_bytes = p->target.by_bits ? 0 : convert_bytes(p->c);
    for (size_t i = 0; i < convert_count(p->c); i++) {
        const struct convert_tensor *t = convert_at(p->c, i);
        uint64_t elems = tensor_elems(t->from), now = counted(p, bytes_of(t->to, elems));
        p->elems += elems;
        if (p->target.by_bits && !is_planned(t)) p->rest_bytes += now;
        if (!p->target.by_bits && is_planned(t)) p->rest_bytes -= now;
        if (!p->target.by_bits) p->head_bytes -= now;
    }
}

static enum status list_matrices(struct quantize_plan *p, const struct calibration *calibration,
                                 struct err *err) {
    size_t all = convert_count(p->c);
    p->planned = mem_zalloc_array(all, sizeof(p->planned[0]));
    p->kl = mem_zalloc_array(all, sizeof(p->kl[0]));
    p->items = mem_zalloc_array(all, sizeof(p->items[0]));
    p->types = mem_zalloc_array(all, sizeof(p->types[0]));
    if (!p->planned || !p->kl || !p->items || !p->types)
        return err_set(err, ST_NOMEM, "out of memory for the plan of %zu tensors", all);
    count_rest(p);
    for (size_t i = 0; i < all; i++) {
        const struct convert_tensor *t = convert_at(p->c, i);
        p->types[i] = t->to;
        if (!is_planned(t)) continue;
        struct planned *own = &p->planned[p->count];
        own->index = i;
        list_types(p, t, own);
        struct str name = source_name(t->from);
        p->kl[p->count++] = (struct sensitivity){
            .name = name,
            .importance = importance_find(calibration->importance, name,
                                          t->from->dims[t->from->dim_count - 1]),
            .probe = own->types[0],
        };
    }
    return ST_OK;
}

static enum status measure_errors(struct quantize_plan *p, const struct args *args,
                                  const struct model_file *f, struct err *err) {
    struct type_error *e;
    enum status st = ST_OK;
    TRY(type_error_create((uint32_t)args_int(args, "threads"), &e, err));
    for (size_t i = 0; i < p->count && st == ST_OK; i++) {
        struct planned *own = &p->planned[i];
        const struct type_error_job job = {.file = f,
                                           .tensor = convert_at(p->c, own->index)->from,
                                           .importance = p->kl[i].importance,
                                           .types = own->types,
                                           .type_count = own->count};
        st = type_error_measure(e, &job, own->errors, err);
    }
    type_error_destroy(e);
    return st;
}

/* The device keeps every matrix that it has prepared. */
static void say_needs(const struct quantize_plan *p, const struct model_file *f) {
    char size[SIZE_TEXT_BYTES], line[256];
    uint64_t bytes = 0;
    for (size_t i = 0; i < tensor_count(f); i++) bytes += tensor_at(f, i)->bytes;
    snprintf(line, sizeof(line),
             "jitney: measuring %zu matrices, each with %d windows of text; it needs twice %s of "
             "memory for the weights",
             p->count, SENSITIVITY_WINDOWS, size_text(bytes, size));
    note_write(line);
}

static enum status measure(struct quantize_plan *p, const struct args *args,
                           const struct calibration *calibration, struct err *err) {
    struct loaded_model loaded;
    const struct text_windows *text = calibration->text;
    const struct sensitivity_options options = {
        .threads = (uint32_t)args_int(args, "threads"),
        .text = {text->ids.ids, text->windows, text->window_tokens}};
    TRY(model_args_load(args, text->window_tokens, true, &loaded, err));
    say_needs(p, loaded.file);
    enum status st = sensitivity_run(&loaded, &options, p->kl, p->count, err);
    if (st == ST_OK) st = measure_errors(p, args, loaded.file, err);
    loaded_model_close(&loaded);
    return st;
}

/* KL for each unit of error, of all matrices that were measured together. */
static double mean_rate(const struct quantize_plan *p) {
    double kl = 0, error = 0;
    for (size_t i = 0; i < p->count; i++) {
        if (!p->kl[i].is_measured) continue;
        kl += p->kl[i].kl;
        error += p->planned[i].errors[0];
    }
    return error > 0 ? kl / error : 1;
}

/* A matrix that could not be measured alone is taken for an average one. */
static void set_costs(struct quantize_plan *p) {
    double mean = mean_rate(p);
    for (size_t i = 0; i < p->count; i++) {
        struct planned *own = &p->planned[i];
        const struct sensitivity *s = &p->kl[i];
        double rate = mean;
        if (s->is_measured && own->errors[0] > 0) rate = s->kl / own->errors[0];
        for (uint32_t c = 0; c < own->count; c++) {
            double cost = rate * own->errors[c];
            own->choices[c].cost = isfinite(cost) ? cost : 0;
        }
        p->items[i] = (struct plan_item){own->choices, own->count};
    }
}

/* ---- choosing ---- */

/* `counted_bytes`: with the head, if the target counts it. */
static double bits_of(const struct quantize_plan *p, uint64_t counted_bytes) {
    return 8.0 * (double)(counted_bytes - p->head_bytes) / (double)p->elems;
}

static double chosen_bits(const struct quantize_plan *p) {
    return 8.0 * (double)p->data_bytes / (double)p->elems;
}

static uint64_t target_bytes(const struct quantize_plan *p) {
    return p->target.by_bits ? (uint64_t)(p->target.bits * (double)p->elems / 8) : p->target.bytes;
}

/* `least` and `next`: the smallest sizes that are possible; the same if there is one only. */
static enum status say_impossible(const struct quantize_plan *p, uint64_t least, uint64_t next,
                                  struct err *err) {
    enum { SCALE = 10000 };
    char size[SIZE_TEXT_BYTES], larger[128] = "there is no other choice";
    if (p->target.by_bits) {
        if (next > least)
            snprintf(larger, sizeof(larger), "the next larger choice has %.4f",
                     (bits_of(p, next) * SCALE + 1) / SCALE);
        return err_set(err, ST_BAD,
                       "quantize: --bits %g cannot be met: with the smallest type for every matrix "
                       "all tensors together have %.4f bits a weight, %s",
                       p->target.bits, (bits_of(p, least) * SCALE + 1) / SCALE, larger);
    }
    if (next > least)
        snprintf(larger, sizeof(larger), "the next larger choice has %llu",
                 (unsigned long long)next);
    return err_set(err, ST_BAD,
                   "quantize: --budget %llu cannot be met: with the smallest type for every matrix "
                   "the file has %llu bytes (%s), %s",
                   (unsigned long long)p->target.bytes, (unsigned long long)least,
                   size_text(least, size), larger);
}

/* The fewest bytes of a matrix, and how many more its next type has; 0: it has no other. */
static uint64_t least_bytes(const struct planned *m, uint64_t *more) {
    uint64_t least = UINT64_MAX, second = UINT64_MAX;
    for (uint32_t c = 0; c < m->count; c++)
        if (m->choices[c].bytes < least) least = m->choices[c].bytes;
    for (uint32_t c = 0; c < m->count; c++)
        if (m->choices[c].bytes > least && m->choices[c].bytes < second)
            second = m->choices[c].bytes;
    *more = second == UINT64_MAX ? 0 : second - least;
    return least;
}

/* The converter has the largest type for every matrix. */
static uint64_t file_bytes_at_most(const struct quantize_plan *p) {
    uint64_t most = convert_bytes(p->c), target = target_bytes(p), data = 0;
    if (!p->target.by_bits) return target < most ? target : most;
    for (size_t i = 0; i < convert_count(p->c); i++) {
        const struct convert_tensor *t = convert_at(p->c, i);
        data += bytes_of(t->to, tensor_elems(t->from));
    }
    return target < data ? most - (data - target) : most;
}

enum status quantize_plan_check(struct convert *c, const struct quantize_target *target,
                                uint64_t *file_bytes, struct err *err) {
    struct quantize_plan p = {.c = c, .target = *target};
    uint64_t step = 0;
    count_rest(&p);
    uint64_t least = p.rest_bytes;
    for (size_t i = 0; i < convert_count(c); i++) {
        struct planned m = {.index = i};
        uint64_t more;
        if (!is_planned(convert_at(c, i))) continue;
        list_types(&p, convert_at(c, i), &m);
        least += least_bytes(&m, &more);
        if (more > 0 && (step == 0 || more < step)) step = more;
    }
    *file_bytes = file_bytes_at_most(&p);
    return least <= target_bytes(&p) ? ST_OK : say_impossible(&p, least, least + step, err);
}

static void take_choices(struct quantize_plan *p, const uint32_t *choices) {
    for (size_t i = 0; i < p->count; i++) {
        struct planned *own = &p->planned[i];
        own->chosen = choices[i];
        p->types[own->index] = own->types[choices[i]];
    }
    p->file_bytes = convert_bytes(p->c);
    for (size_t i = 0; i < convert_count(p->c); i++) {
        const struct convert_tensor *t = convert_at(p->c, i);
        uint64_t elems = tensor_elems(t->from);
        uint64_t own = bytes_of(p->types[i], elems), before = bytes_of(t->to, elems);
        p->data_bytes += own;
        p->file_bytes += (own + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        p->file_bytes -= (before + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}

static enum status choose(struct quantize_plan *p, struct err *err) {
    uint64_t most = target_bytes(p);
    TRY(plan_create(p->items, p->count, &p->plan, err));
    CHECK(plan_point_at(p->plan, 0).bytes + p->rest_bytes <= most);
    uint32_t *choices = mem_zalloc_array(p->count + 1, sizeof(choices[0]));
    if (!choices) return err_set(err, ST_NOMEM, "out of memory for the plan");
    size_t at = plan_find(p->plan, most - p->rest_bytes);
    plan_choices(p->plan, at, choices);
    take_choices(p, choices);
    p->best = plan_point_at(p->plan, at);
    mem_free(choices);
    return ST_OK;
}

enum status quantize_plan_create(const struct args *args, struct convert *c,
                                 const struct calibration *calibration,
                                 const struct quantize_target *target, struct quantize_plan **out,
                                 struct err *err) {
    struct quantize_plan *p = mem_zalloc(sizeof(*p));
    if (!p) return err_set(err, ST_NOMEM, "out of memory for the plan");
    p->c = c;
    p->target = *target;
    enum status st = list_matrices(p, calibration, err);
    if (st == ST_OK) st = measure(p, args, calibration, err);
    if (st == ST_OK) {
        set_costs(p);
        st = choose(p, err);
    }
    if (st == ST_OK)
        *out = p;
    else
        quantize_plan_destroy(p);
    return st;
}

void quantize_plan_destroy(struct quantize_plan *p) {
    if (!p) return;
    plan_destroy(p->plan);
    mem_free(p->planned);
    mem_free(p->kl);
    mem_free(p->items);
    mem_free(p->types);
    mem_free(p);
}

const enum dtype *quantize_plan_types(const struct quantize_plan *p) { return p->types; }

enum dtype quantize_plan_main_type(const struct quantize_plan *p) {
    uint64_t elems[DTYPE_COUNT] = {0};
    enum dtype most = DTYPE_F16;
    for (size_t i = 0; i < p->count; i++) {
        size_t index = p->planned[i].index;
        elems[p->types[index]] += tensor_elems(convert_at(p->c, index)->from);
    }
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (elems[t] > elems[most]) most = (enum dtype)t;
    return most;
}

/* ---- results ---- */

/* Sizes in equal steps, from the smallest to one where every matrix has 8 bits. */
static struct plan_point curve_at(const struct quantize_plan *p, uint32_t i) {
    struct plan_point first = plan_point_at(p->plan, 0);
    uint64_t last = 0;
    for (size_t m = 0; m < p->count; m++) {
        const struct planned *own = &p->planned[m];
        uint64_t most = 0;
        for (uint32_t c = 0; c < own->count; c++)
            if (own->choices[c].bytes > most && (own->types[c] != DTYPE_F16 || own->count == 1))
                most = own->choices[c].bytes;
        last += most;
    }
    uint64_t budget = first.bytes + (last - first.bytes) / (CURVE_POINTS - 1) * i;
    if (i + 1 == CURVE_POINTS) budget = last;
    struct plan_point point = plan_point_at(p->plan, plan_find(p->plan, budget));
    point.bytes += p->rest_bytes;
    return point;
}

static uint64_t elems_as(const struct quantize_plan *p, enum dtype type, size_t *matrices) {
    uint64_t elems = 0;
    *matrices = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct planned *own = &p->planned[i];
        if (own->types[own->chosen] != type) continue;
        elems += tensor_elems(convert_at(p->c, own->index)->from);
        ++*matrices;
    }
    return elems;
}

static void put_choice(const struct quantize_plan *p, struct buf *out) {
    char size[SIZE_TEXT_BYTES];
    buf_printf(out, "plan: %s, %.3f bits a weight, expected KL %.5f\n",
               size_text(p->file_bytes, size), chosen_bits(p), p->best.cost);
    for (size_t i = 0; i < CANDIDATES; i++) {
        size_t matrices;
        uint64_t elems = elems_as(p, candidates[i], &matrices);
        if (matrices == 0) continue;
        buf_printf(out, "  %-6s %5zu %-9s %5.1f %% of the weights\n",
                   dtype_info(candidates[i])->name, matrices,
                   matrices == 1 ? "matrix," : "matrices,", 100 * (double)elems / (double)p->elems);
    }
}

void quantize_plan_put_table(const struct quantize_plan *p, bool all, struct buf *out) {
    if (all) buf_printf(out, "%-32s %-6s %12s %12s\n", "tensor", "type", "bytes", "expected KL");
    for (size_t i = 0; all && i < p->count; i++) {
        const struct planned *own = &p->planned[i];
        const struct plan_choice *choice = &own->choices[own->chosen];
        struct str name = convert_at(p->c, own->index)->name;
        buf_printf(out, "%-32.*s %-6s %12llu %12.3g\n", STR_ARG(name),
                   dtype_info(own->types[own->chosen])->name, (unsigned long long)choice->bytes,
                   choice->cost);
    }
    put_choice(p, out);
    if (!all) return;
    buf_printf(out, "%12s %14s %12s\n", p->target.by_bits ? "tensors" : "file", "bits a weight",
               "expected KL");
    for (uint32_t i = 0; i < CURVE_POINTS; i++) {
        struct plan_point point = curve_at(p, i);
        char size[SIZE_TEXT_BYTES];
        buf_printf(out, "%12s %14.3f %12.5f\n", size_text(point.bytes, size),
                   bits_of(p, point.bytes), point.cost);
    }
}

static void put_number(struct buf *out, const char *key, double value) {
    buf_printf(out, ",\"%s\":", key);
    put_json_number(out, value);
}

void quantize_plan_put_json(const struct quantize_plan *p, struct buf *out) {
    buf_printf(out, "{\"file_bytes\":%llu", (unsigned long long)p->file_bytes);
    put_number(out, "bits_per_weight", chosen_bits(p));
    put_number(out, "expected_kl", p->best.cost);
    buf_put_text(out, ",\"tensors\":[");
    for (size_t i = 0; i < p->count; i++) {
        const struct planned *own = &p->planned[i];
        buf_put_text(out, i ? ",{\"name\":" : "{\"name\":");
        buf_put_json_string(out, convert_at(p->c, own->index)->name);
        buf_printf(out, ",\"type\":\"%s\",\"bytes\":%llu",
                   dtype_info(own->types[own->chosen])->name,
                   (unsigned long long)own->choices[own->chosen].bytes);
        put_number(out, "expected_kl", own->choices[own->chosen].cost);
        buf_put_char(out, '}');
    }
    buf_put_text(out, "],\"curve\":[");
    for (uint32_t i = 0; i < CURVE_POINTS; i++) {
        struct plan_point point = curve_at(p, i);
        buf_printf(out, "%s{\"bytes\":%llu", i ? "," : "", (unsigned long long)point.bytes);
        put_number(out, "bits_per_weight", bits_of(p, point.bytes));
        put_number(out, "expected_kl", point.cost);
        buf_put_char(out, '}');
    }
    buf_put_text(out, "]}");
}
