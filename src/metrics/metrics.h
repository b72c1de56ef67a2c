/* metrics/metrics.h - counters, gauges and histograms in the text format of Prometheus.
 *
 * All have fixed labels and are registered once at start. Values that another module counts (the
 * scheduler, for example) are copied with counter_set and histogram_set before printing.
 *
 * Lifetime: create, register, count, print, destroy. Thread: one (the I/O thread).
 * Memory: all allocated while registering; counting allocates nothing.
 */
#ifndef METRICS_METRICS_H
#define METRICS_METRICS_H

#include <stdint.h>

#include "base/status.h"

struct buf;
struct metrics;   /* opaque */
struct counter;   /* only rises */
struct gauge;     /* rises and falls */
struct histogram; /* counts observations in buckets */

enum status metrics_create(struct metrics **out);
void metrics_destroy(struct metrics *m); /* NULL is fine; frees everything that is registered */

/* `labels` as they are printed: "model_name=\"smollm2\"", may be ""; the caller has escaped them
 * (metrics_put_label). The same name may be registered with several labels; the first `help` is
 * printed. NULL: out of memory. */
struct counter *metrics_counter(struct metrics *m, const char *name, const char *labels,
                                const char *help);
struct gauge *metrics_gauge(struct metrics *m, const char *name, const char *labels,
                            const char *help);
/* Upper bounds, rising; +Inf is added. */
struct histogram *metrics_histogram(struct metrics *m, const char *name, const char *labels,
                                    const char *help, const double *bounds, uint32_t count);

void counter_add(struct counter *c, double by);
void counter_set(struct counter *c, double total); /* a total that another module counts */
void gauge_set(struct gauge *g, double value);
void histogram_observe(struct histogram *h, double value, uint64_t times);
/* Observations that another module counts: how many are in each bucket (one more than there are
 * bounds), and their sum. */
void histogram_set(struct histogram *h, const uint64_t *counts, double sum);

/* label="value" with Prometheus' escapes. */
void metrics_put_label(struct buf *out, const char *label, const char *value);

void metrics_print(const struct metrics *m, struct buf *out);

#endif
