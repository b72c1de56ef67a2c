/* metrics/metrics.c - see metrics/metrics.h.
 *
 * Families are printed in the order of their registration. Each holds its series; a series is what
 * the caller gets as counter, gauge or histogram.
 */
#include "metrics/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"

enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

/* One set of labels of a family, with its numbers. */
struct series {
    struct list_link in_family;
    char *labels;
    double value; /* of a histogram: the sum */
    const double *bounds;
    uint64_t *counts; /* one more than bounds: the last counts values above all of them */
    uint32_t bound_count;
};

struct counter {
    struct series s;
};
struct gauge {
    struct series s;
};
struct histogram {
    struct series s;
};

struct family {
    struct list_link in_metrics;
    char *name, *help;
    enum kind kind;
    struct list series;
};

struct metrics {
    struct list families;
};

enum status metrics_create(struct metrics **out) {
    *out = mem_zalloc(sizeof(**out));
    return *out ? ST_OK : ST_NOMEM;
}

static void series_destroy(struct series *s) {
    if (!s) return;
    mem_free(s->labels);
    mem_free(s->counts); /* the bounds are in the same allocation */
    mem_free(s);
}

static void family_destroy(struct family *f) {
    if (!f) return;
    for (struct list_link *l; (l = list_pop_first(&f->series));)
        series_destroy(LIST_ITEM(l, struct series, in_family));
    mem_free(f->name);
    mem_free(f->help);
    mem_free(f);
}

void metrics_destroy(struct metrics *m) {
    if (!m) return;
    for (struct list_link *l; (l = list_pop_first(&m->families));)
        family_destroy(LIST_ITEM(l, struct family, in_metrics));
    mem_free(m);
}

static struct family *family_add(struct metrics *m, const char *name, const char *help,
                                 enum kind kind) {
    struct family *f = mem_zalloc(sizeof(*f));
    if (!f) return NULL;
    f->name = mem_dup(name, strlen(name));
    f->help = mem_dup(help, strlen(help));
    f->kind = kind;
    if (!f->name || !f->help) {
        family_destroy(f);
        return NULL;
    }
    list_push_last(&m->families, &f->in_metrics);
    return f;
}

static struct family *family_get(struct metrics *m, const char *name, const char *help,
                                 enum kind kind) {
    for (struct list_link *l = m->families.first; l; l = l->next) {
        struct family *f = LIST_ITEM(l, struct family, in_metrics);
        if (strcmp(f->name, name) != 0) continue;
        CHECK(f->kind == kind);
        return f;
    }
    return family_add(m, name, help, kind);
}

/* Counts and bounds in one allocation. */
static bool take_bounds(struct series *s, const double *bounds, uint32_t count) {
    for (uint32_t i = 1; i < count; i++) CHECK(bounds[i] > bounds[i - 1]);
    size_t counts_bytes = (count + 1) * sizeof(s->counts[0]);
    s->counts = mem_zalloc(counts_bytes + count * sizeof(bounds[0]));
    if (!s->counts) return false;
    double *own = (double *)(void *)((char *)s->counts + counts_bytes);
    memcpy(own, bounds, count * sizeof(bounds[0]));
    s->bounds = own;
    s->bound_count = count;
    return true;
}

/* Linked to its family last, so that a failure leaves no incomplete series there. */
static struct series *series_add(struct family *f, const char *labels, const double *bounds,
                                 uint32_t count) {
    struct series *s = f ? mem_zalloc(sizeof(*s)) : NULL;
    if (!s) return NULL;
    s->labels = mem_dup(labels, strlen(labels));
    if (!s->labels || (bounds && !take_bounds(s, bounds, count))) {
        series_destroy(s);
        return NULL;
    }
    list_push_last(&f->series, &s->in_family);
    return s;
}

struct counter *metrics_counter(struct metrics *m, const char *name, const char *labels,
                                const char *help) {
    return (struct counter *)series_add(family_get(m, name, help, KIND_COUNTER), labels, NULL, 0);
}

struct gauge *metrics_gauge(struct metrics *m, const char *name, const char *labels,
                            const char *help) {
    return (struct gauge *)series_add(family_get(m, name, help, KIND_GAUGE), labels, NULL, 0);
}

struct histogram *metrics_histogram(struct metrics *m, const char *name, const char *labels,
                                    const char *help, const double *bounds, uint32_t count) {
    return (struct histogram *)series_add(family_get(m, name, help, KIND_HISTOGRAM), labels, bounds,
                                          count);
}

void counter_add(struct counter *c, double by) {
    DCHECK(by >= 0);
    c->s.value += by;
}

void counter_set(struct counter *c, double total) { c->s.value = total; }

void gauge_set(struct gauge *g, double value) { g->s.value = value; }

void histogram_observe(struct histogram *h, double value, uint64_t times) {
    uint32_t i = 0;
    while (i < h->s.bound_count && value > h->s.bounds[i]) i++;
    h->s.counts[i] += times;
    h->s.value += value * (double)times;
}

void histogram_set(struct histogram *h, const uint64_t *counts, double sum) {
    memcpy(h->s.counts, counts, (h->s.bound_count + 1) * sizeof(counts[0]));
    h->s.value = sum;
}

/* --- printing ---------------------------------------------------------------------------- */

static void put_escaped(struct buf *out, const char *text, bool quotes_too) {
    for (struct str s = str_of(text); s.len > 0;) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        if (code == '\\' || (quotes_too && code == '"'))
            buf_printf(out, "\\%c", (char)code);
        else if (code == '\n')
            buf_put_text(out, "\\n");
        else
            utf8_put_lossy(out, str_take(s, len));
        s = str_skip(s, len);
    }
}

void metrics_put_label(struct buf *out, const char *label, const char *value) {
    buf_printf(out, "%s=\"", label);
    put_escaped(out, value, true);
    buf_put_char(out, '"');
}

static void put_number(struct buf *out, double value) {
    char text[32];
    double back;
    if (isnan(value)) {
        buf_put_text(out, "NaN");
    } else if (isinf(value)) {
        buf_put_text(out, value > 0 ? "+Inf" : "-Inf");
    } else {
        snprintf(text, sizeof(text), "%.15g", value);
        if (!str_to_f64(str_of(text), &back) || back != value)
            snprintf(text, sizeof(text), "%.17g", value);
        buf_put_text(out, text);
    }
}

/* One sample. `bound`: the value of a bucket's "le" label, or NULL. */
static void put_sample(struct buf *out, const char *name, const char *suffix,
                       const struct series *s, const double *bound, double value) {
    buf_printf(out, "%s%s", name, suffix);
    if (s->labels[0] || bound) buf_put_char(out, '{');
    buf_put_text(out, s->labels);
    if (bound) {
        buf_put_text(out, s->labels[0] ? ",le=\"" : "le=\"");
        put_number(out, *bound);
        buf_put_char(out, '"');
    }
    if (s->labels[0] || bound) buf_put_char(out, '}');
    buf_put_char(out, ' ');
    put_number(out, value);
    buf_put_char(out, '\n');
}

static void put_histogram(struct buf *out, const char *name, const struct series *s) {
    const double infinite = INFINITY;
    uint64_t below = 0;
    for (uint32_t i = 0; i <= s->bound_count; i++) {
        below += s->counts[i];
        put_sample(out, name, "_bucket", s, i < s->bound_count ? &s->bounds[i] : &infinite,
                   (double)below);
    }
    put_sample(out, name, "_sum", s, NULL, s->value);
    put_sample(out, name, "_count", s, NULL, (double)below);
}

void metrics_print(const struct metrics *m, struct buf *out) {
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    for (struct list_link *i = m->families.first; i; i = i->next) {
        const struct family *f = LIST_ITEM(i, struct family, in_metrics);
        buf_printf(out, "# HELP %s ", f->name);
        put_escaped(out, f->help, false);
        buf_printf(out, "\n# TYPE %s %s\n", f->name, kinds[f->kind]);
        for (struct list_link *j = f->series.first; j; j = j->next) {
            const struct series *s = LIST_ITEM(j, struct series, in_family);
            if (f->kind == KIND_HISTOGRAM)
                put_histogram(out, f->name, s);
            else
                put_sample(out, f->name, "", s, NULL, s->value);
        }
    }
}
