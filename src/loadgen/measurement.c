/* loadgen/measurement.c - see loadgen/measurement.h. */
#include "loadgen/measurement.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"

static const double US_PER_S = 1e6;

void measurement_add(struct measurement *m, const struct request_result *t) {
    CHECK(t->first_us > 0);
    uint32_t tokens = t->has_usage ? t->output_tokens : t->text_events;
    m->completed++;
    m->uncounted += !t->has_usage;
    m->input_tokens += t->prompt_tokens;
    m->cached_tokens += t->cached_tokens;
    m->output_tokens += tokens;
    hist_add(&m->ttft, t->first_us - t->begun_us);
    hist_add(&m->e2e, t->last_us - t->begun_us);
    if (tokens > 1) hist_add(&m->tpot, (t->last_us - t->first_us) / (tokens - 1));
}

void measurement_add_failure(struct measurement *m, const struct request_result *t,
                             const char *why) {
    uint32_t i = 0;
    m->failed++;
    while (i < m->reasons && m->failures[i].status != t->status) i++;
    if (i == MEASUREMENT_REASONS) i--;
    struct failure *f = &m->failures[i];
    if (i == m->reasons) {
        m->reasons++;
        f->status = t->status;
        snprintf(f->why, sizeof(f->why), "%s", why);
    }
    f->count++;
}

double measurement_s(const struct measurement *m) {
    return (double)(m->ended_us - m->begun_us) / US_PER_S;
}

static double per_s(const struct measurement *m, double count) {
    double s = measurement_s(m);
    return s > 0.0 ? count / s : 0.0;
}

double measurement_cpu_share(const struct measurement *m) { return per_s(m, m->cpu_s); }

/* ---- the table ---- */

enum { TABLE_COLUMNS = 50, LABEL_COLUMNS = 40 };

static void put_rule(struct buf *out, const char *title, char c) {
    int len = (int)str_of(title).len, left = (TABLE_COLUMNS - len) / 2;
    for (int i = 0; i < left; i++) buf_put_char(out, c);
    buf_put_text(out, title);
    for (int i = left + len; i < TABLE_COLUMNS; i++) buf_put_char(out, c);
    buf_put_char(out, '\n');
}

static void put_count(struct buf *out, const char *label, uint64_t n) {
    buf_printf(out, "%-*s %-10llu\n", LABEL_COLUMNS, label, (unsigned long long)n);
}

static void put_real(struct buf *out, const char *label, double v) {
    buf_printf(out, "%-*s %-10.2f\n", LABEL_COLUMNS, label, v);
}

/* Names of the percentiles in the table and in JSON. */
static const struct percentile {
    const char *label, *key;
    double share;
} percentiles[] = {{"Median", "median", 0.5}, {"P90", "p90", 0.9}, {"P99", "p99", 0.99}};
enum { PERCENTILES = sizeof(percentiles) / sizeof(percentiles[0]) };

static void put_times(struct buf *out, const char *title, const char *name, const struct hist *h) {
    char label[64];
    put_rule(out, title, '-');
    snprintf(label, sizeof(label), "Mean %s (ms):", name);
    put_real(out, label, hist_mean_ms(h));
    for (uint32_t i = 0; i < PERCENTILES; i++) {
        snprintf(label, sizeof(label), "%s %s (ms):", percentiles[i].label, name);
        put_real(out, label, hist_at_ms(h, percentiles[i].share));
    }
}

static void put_all_times(const struct measurement *m, struct buf *out) {
    put_times(out, "Time to First Token", "TTFT", &m->ttft);
    put_times(out, "Time per Output Token (excl. 1st token)", "TPOT", &m->tpot);
    put_times(out, "Inter-token Latency", "ITL", &m->itl);
    put_times(out, "End-to-end Latency", "E2EL", &m->e2e);
}

static void put_failures(const struct measurement *m, struct buf *out) {
    for (uint32_t i = 0; i < m->reasons; i++) {
        const struct failure *f = &m->failures[i];
        buf_printf(out, "  %llu x status %u: ", (unsigned long long)f->count, f->status);
        buf_put_plain(out, str_of(f->why));
        buf_put_char(out, '\n');
    }
}

void measurement_put_table(const struct measurement *m, struct buf *out) {
    put_rule(out, " Serving Benchmark Result ", '=');
    put_count(out, "Successful requests:", m->completed);
    put_count(out, "Failed requests:", m->failed);
    put_failures(m, out);
    put_count(out, m->rate > 0.0 ? "Maximum request concurrency:" : "Clients:", m->clients);
    if (m->rate > 0.0) put_real(out, "Request rate configured (req/s):", m->rate);
    put_real(out, "Benchmark duration (s):", measurement_s(m));
    put_count(out, "Total input tokens:", m->input_tokens);
    if (m->cached_tokens > 0) put_count(out, "  of which cached:", m->cached_tokens);
    put_count(out, "Total generated tokens:", m->output_tokens);
    if (m->uncounted > 0) put_count(out, "  requests counted by events:", m->uncounted);
    put_real(out, "Request throughput (req/s):", per_s(m, (double)m->completed));
    put_real(out, "Output token throughput (tok/s):", per_s(m, (double)m->output_tokens));
    put_real(out, "Total token throughput (tok/s):",
             per_s(m, (double)(m->input_tokens + m->output_tokens)));
    put_real(out, "CPU of this client (% of a core):", 100.0 * measurement_cpu_share(m));
    if (m->completed > 0)
        put_all_times(m, out); /* without one, zeros would look like measured times */
    put_rule(out, "", '=');
}

/* ---- JSON ---- */

static void put_json_times(struct buf *out, const char *name, const struct hist *h) {
    buf_printf(out, ",\"mean_%s_ms\":%.4f", name, hist_mean_ms(h));
    for (uint32_t i = 0; i < PERCENTILES; i++)
        buf_printf(out, ",\"%s_%s_ms\":%.4f", percentiles[i].key, name,
                   hist_at_ms(h, percentiles[i].share));
}

static void put_json_count(struct buf *out, const char *name, uint64_t n) {
    buf_printf(out, ",\"%s\":%llu", name, (unsigned long long)n);
}

static void put_json_failures(const struct measurement *m, struct buf *out) {
    buf_put_text(out, ",\"failures\":[");
    for (uint32_t i = 0; i < m->reasons; i++) {
        const struct failure *f = &m->failures[i];
        buf_printf(out, "%s{\"status\":%u,\"count\":%llu,\"why\":", i ? "," : "", f->status,
                   (unsigned long long)f->count);
        buf_put_json_string(out, str_of(f->why));
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

void measurement_put_json(const struct measurement *m, struct buf *out) {
    buf_printf(out, "{\"max_concurrency\":%u,\"request_rate\":", m->clients);
    if (m->rate > 0.0)
        buf_printf(out, "%.6g", m->rate);
    else
        buf_put_text(out, "null");
    buf_printf(out, ",\"duration\":%.6f", measurement_s(m));
    put_json_count(out, "completed", m->completed);
    put_json_count(out, "failed", m->failed);
    put_json_failures(m, out);
    put_json_count(out, "total_input_tokens", m->input_tokens);
    put_json_count(out, "cached_input_tokens", m->cached_tokens);
    put_json_count(out, "total_output_tokens", m->output_tokens);
    put_json_count(out, "counted_by_events", m->uncounted);
    buf_printf(out, ",\"request_throughput\":%.4f", per_s(m, (double)m->completed));
    buf_printf(out, ",\"output_throughput\":%.4f", per_s(m, (double)m->output_tokens));
    buf_printf(out, ",\"total_token_throughput\":%.4f",
               per_s(m, (double)(m->input_tokens + m->output_tokens)));
    buf_printf(out, ",\"client_cpu_share\":%.5f", measurement_cpu_share(m));
    put_json_times(out, "ttft", &m->ttft);
    put_json_times(out, "tpot", &m->tpot);
    put_json_times(out, "itl", &m->itl);
    put_json_times(out, "e2el", &m->e2e);
    buf_put_char(out, '}');
}
