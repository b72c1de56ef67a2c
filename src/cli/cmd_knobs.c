/* cli/cmd_knobs.c - `jitney knobs`: everything about scheduling that can be set. */
#include "base/buf.h"
#include "cli/cli.h"
#include "sched/knobs.h"
#include "sched/policy.h"

enum { TABLE_BYTES_MAX = 1 << 18 };

static const struct flag flags[] = {
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object."},
    {0},
};

static void put_knobs(struct buf *out) {
    const struct knobs k = knobs_default();
    struct knob_row row;
    buf_printf(out, "%-21s %-9s %-20s %-10s %s\n", "KNOB", "DEFAULT", "RANGE", "UNIT", "WHAT");
    for (uint32_t i = 0; i < knobs_count(); i++) {
        knobs_show(&k, i, &row);
        buf_printf(out, "%-21s %-9s %-20s %-10s %s%s%s\n", row.name, row.fallback, row.range,
                   row.unit, row.policy ? row.policy : "", row.policy ? ": " : "", row.help);
    }
}

static void put_policies(struct buf *out) {
    buf_printf(out, "\n%-21s %s\n", "POLICY", "WHAT");
    for (const struct sched_policy *const *p = sched_policies; *p; p++)
        buf_printf(out, "%-21s %s\n", (*p)->name, (*p)->summary);
}

static void put_member(struct buf *out, const char *name, const char *text) {
    buf_printf(out, ",\"%s\":", name);
    buf_put_json_string(out, str_of(text));
}

static void put_json(struct buf *out) {
    const struct knobs k = knobs_default();
    struct knob_row row;
    buf_put_text(out, "{\"knobs\":[");
    for (uint32_t i = 0; i < knobs_count(); i++) {
        knobs_show(&k, i, &row);
        buf_printf(out, "%s{\"name\":\"%s\"", i ? "," : "", row.name);
        put_member(out, "default", row.fallback);
        put_member(out, "range", row.range);
        put_member(out, "unit", row.unit);
        if (row.policy)
            put_member(out, "policy", row.policy);
        else
            buf_put_text(out, ",\"policy\":null");
        put_member(out, "help", row.help);
        buf_put_char(out, '}');
    }
    buf_put_text(out, "],\"policies\":[");
    for (const struct sched_policy *const *p = sched_policies; *p; p++) {
        buf_printf(out, "%s{\"name\":\"%s\"", p == sched_policies ? "" : ",", (*p)->name);
        put_member(out, "help", (*p)->summary);
        buf_put_char(out, '}');
    }
    buf_put_text(out, "]}\n");
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct buf out;
    buf_init(&out, TABLE_BYTES_MAX);
    if (args_on(args, "json")) {
        put_json(&out);
    } else {
        put_knobs(&out);
        put_policies(&out);
    }
    enum status st = buf_status(&out);
    st = st == ST_OK ? out_write(buf_str(&out), err) : err_set(err, st, "out of memory");
    buf_deinit(&out);
    return exit_of(st);
}

extern const struct command cmd_knobs;
const struct command cmd_knobs = {
    .name = "knobs",
    .summary = "List the knobs of the scheduler and the scheduling policies",
    .operands = "",
    .about = "Prints every knob (--set NAME=VALUE) with its default, range and meaning, and every "
             "policy (--policy NAME). --json prints {\"knobs\": [{\"name\", "
             "\"default\", \"range\", \"unit\", \"policy\", \"help\"}], \"policies\": [{\"name\", "
             "\"help\"}]}; \"policy\" is the policy that a knob belongs to.",
    .groups = {flags},
    .run = run,
};
