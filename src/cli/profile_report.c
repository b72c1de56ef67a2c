/* cli/profile_report.c - see cli/profile_report.h. */
#include "cli/profile_report.h"

#include "base/buf.h"
#include "cli/generated.h"
#include "engine/profile.h"
#include "graph/work.h"

/* Share of a step for interruptions and waiting above which the figures are not reliable. */
static const double BUSY_SHARE = 1.0 / 3;

/* Sums over a step: ops run one after another, so their least times add up. */
struct total {
    uint32_t calls;
    double wait_us, least_us;
    struct work work;
};

static struct total total_of(const struct profile *p, const struct peaks *peaks) {
    struct total t = {0};
    for (uint32_t i = 0; i < p->part_count; i++) {
        const struct profile_part *part = &p->parts[i];
        t.calls += part->calls;
        t.wait_us += part->wait_us;
        t.least_us += work_least(&part->work, peaks).us;
        work_add(&t.work, &part->work);
    }
    return t;
}

static double tokens_per_second(const struct profile *p, double step_us) {
    return step_us > 0 ? 1e6 * p->shape.seqs * p->shape.rows / step_us : 0;
}

/* ---- tables ---- */

static void put_rate(struct buf *out, double amount, double us) {
    if (amount > 0 && us > 0)
        buf_printf(out, " %8.1f", amount / us / 1e3);
    else
        buf_printf(out, " %8s", "-");
}

/* GB/s from memory, or from the caches if the op reads no memory; then Gop/s. */
static void put_rates(struct buf *out, const struct work *w, double us) {
    put_rate(out, w->memory_bytes > 0 ? w->memory_bytes : w->cache_bytes, us);
    put_rate(out, w->int8_ops + w->f32_ops, us);
}

static void put_part(struct buf *out, const struct profile_part *part, double step_us,
                     const struct peaks *peaks) {
    struct least_time least = work_least(&part->work, peaks);
    buf_printf(out, "%-44s %5u %10.1f %6.1f %9.1f", part->label, part->calls, part->us,
               100 * part->us / step_us, part->wait_us);
    put_rates(out, &part->work, part->us);
    buf_printf(out, "  %-6s", bound_name(least.bound));
    if (least.us > 0 && part->us > 0) buf_printf(out, " %5.0f%%", 100 * least.us / part->us);
    buf_put_char(out, '\n');
}

static void put_rest(struct buf *out, const char *label, double us, double step_us) {
    buf_printf(out, "%-44s %5s %10.1f %6.1f\n", label, "", us, 100 * us / step_us);
}

static void put_shape(struct buf *out, const char *kind, const struct profile *p) {
    const struct profile_shape *s = &p->shape;
    buf_printf(
        out, "%s: %u sequence%s, %u token%s each, context %u; %.3f ms a step (median %.3f of %u)\n",
        kind, s->seqs, s->seqs == 1 ? "" : "s", s->rows, s->rows == 1 ? "" : "s", s->ctx,
        p->step_us / 1e3, p->median_us / 1e3, p->steps);
}

static void put_remark(struct buf *out, const struct profile *p, double wait_us) {
    double share = (p->interrupted_us + wait_us) / p->step_us;
    if (share <= BUSY_SHARE) return;
    buf_printf(
        out,
        "%.0f %% of the time is interruptions and waiting: either the machine is busy, and the "
        "figures are not reliable, or the model is too small for so many threads\n",
        100 * share);
}

static void put_step(struct buf *out, const char *kind, const struct profile *p,
                     const struct peaks *peaks) {
    struct total t = total_of(p, peaks);
    put_shape(out, kind, p);
    buf_printf(out, "%-44s %5s %10s %6s %9s %8s %8s  %-6s %6s\n", "op", "calls", "us", "%",
               "waiting", "GB/s", "Gop/s", "bound", "share");
    for (uint32_t i = 0; i < p->part_count; i++) put_part(out, &p->parts[i], p->step_us, peaks);
    put_rest(out, "around the ops", p->around_us, p->step_us);
    put_rest(out, "step tables and sampling", p->sampling_us, p->step_us);
    put_rest(out, "interrupted", p->interrupted_us, p->step_us);
    buf_printf(out, "%-44s %5u %10.1f %6.1f %9.1f", "total", t.calls, p->step_us, 100.0, t.wait_us);
    put_rates(out, &t.work, p->step_us);
    buf_printf(out, "  %-6s %5.0f%%\n", "", 100 * t.least_us / p->step_us);
    buf_printf(out, "%.1f tokens/s, %.1f without interruptions; limit of the machine %.1f\n",
               tokens_per_second(p, p->step_us),
               tokens_per_second(p, p->step_us - p->interrupted_us),
               tokens_per_second(p, t.least_us));
    put_remark(out, p, t.wait_us);
}

static void put_instruction(struct buf *out, const char *what, double gops, const char *name) {
    if (gops > 0) buf_printf(out, ", %s %.1f Gop/s (%s)", what, gops, name);
}

void profile_put_tables(const struct profile_report *r, struct buf *out) {
    const struct peaks *peaks = r->peaks;
    buf_printf(out, "%s on %s, %u thread%s, KV %s\n", r->model, r->device, r->threads,
               r->threads == 1 ? "" : "s", r->kv_type);
    buf_printf(out, "ceilings: memory %.1f GB/s, caches %.1f GB/s", peaks->read_gbs,
               peaks->cache_gbs);
    put_instruction(out, "int8", peaks->int8_gops, peaks->int8_name);
    put_instruction(out, "f32", peaks->f32_gops, peaks->f32_name);
    buf_put_char(out, '\n');
    for (uint32_t i = 0; i < r->step_count; i++) {
        buf_put_char(out, '\n');
        put_step(out, r->kinds[i], &r->steps[i], peaks);
    }
}

/* ---- JSON ---- */

static void put_number(struct buf *out, const char *key, double value) {
    buf_printf(out, ",\"%s\":", key);
    put_json_number(out, value);
}

static void put_json_part(struct buf *out, const struct profile_part *part,
                          const struct peaks *peaks) {
    struct least_time least = work_least(&part->work, peaks);
    buf_put_text(out, "{\"op\":");
    buf_put_json_string(out, str_of(part->label));
    buf_printf(out, ",\"calls\":%u", part->calls);
    put_number(out, "us", part->us);
    put_number(out, "wait_us", part->wait_us);
    put_number(out, "memory_bytes", part->work.memory_bytes);
    put_number(out, "cache_bytes", part->work.cache_bytes);
    put_number(out, "int8_ops", part->work.int8_ops);
    put_number(out, "f32_ops", part->work.f32_ops);
    buf_printf(out, ",\"bound\":\"%s\"", bound_name(least.bound));
    put_number(out, "least_us", least.us);
    put_number(out, "share", part->us > 0 ? least.us / part->us : 0);
    buf_put_char(out, '}');
}

static void put_json_step(struct buf *out, const char *kind, const struct profile *p,
                          const struct peaks *peaks) {
    struct total t = total_of(p, peaks);
    buf_printf(out, "{\"kind\":\"%s\",\"sequences\":%u,\"rows\":%u,\"context\":%u,\"steps\":%u",
               kind, p->shape.seqs, p->shape.rows, p->shape.ctx, p->steps);
    put_number(out, "step_us", p->step_us);
    put_number(out, "median_us", p->median_us);
    put_number(out, "wait_us", t.wait_us);
    put_number(out, "around_us", p->around_us);
    put_number(out, "sampling_us", p->sampling_us);
    put_number(out, "interrupted_us", p->interrupted_us);
    put_number(out, "least_us", t.least_us);
    put_number(out, "share", t.least_us / p->step_us);
    put_number(out, "tokens_per_second", tokens_per_second(p, p->step_us));
    put_number(out, "ceiling_tokens_per_second", tokens_per_second(p, t.least_us));
    buf_put_text(out, ",\"parts\":[");
    for (uint32_t i = 0; i < p->part_count; i++) {
        buf_put_text(out, i ? ",\n" : "\n");
        put_json_part(out, &p->parts[i], peaks);
    }
    buf_put_text(out, "]}");
}

void profile_put_json(const struct profile_report *r, struct buf *out) {
    buf_put_text(out, "{\"model\":");
    buf_put_json_string(out, str_of(r->model));
    buf_printf(out, ",\"device\":\"%s\",\"threads\":%u,\"kv_type\":\"%s\"", r->device, r->threads,
               r->kv_type);
    buf_put_text(out, ",\"ceilings\":{\"int8_instruction\":");
    buf_put_json_string(out, str_of(r->peaks->int8_name));
    buf_put_text(out, ",\"f32_instruction\":");
    buf_put_json_string(out, str_of(r->peaks->f32_name));
    put_number(out, "memory_gbs", r->peaks->read_gbs);
    put_number(out, "cache_gbs", r->peaks->cache_gbs);
    put_number(out, "int8_gops", r->peaks->int8_gops);
    put_number(out, "f32_gops", r->peaks->f32_gops);
    buf_put_text(out, "},\"steps\":[");
    for (uint32_t i = 0; i < r->step_count; i++) {
        buf_put_text(out, i ? ",\n" : "\n");
        put_json_step(out, r->kinds[i], &r->steps[i], r->peaks);
    }
    buf_put_text(out, "]}\n");
}
