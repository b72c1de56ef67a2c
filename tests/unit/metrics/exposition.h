/* tests/unit/metrics/exposition.h - reads Prometheus' text format strictly, for tests.
 *
 * exposition_check fails the test at the first line that is not exactly of the format: a family
 * has one HELP line, then one TYPE line, then all its samples, and comes once; names and labels
 * are made of the allowed characters, label values escaped; values are numbers; a histogram's
 * buckets rise in bound and in count, end with +Inf, and that equals _count.
 */
#ifndef UNIT_METRICS_EXPOSITION_H
#define UNIT_METRICS_EXPOSITION_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPOSITION_FAMILIES_MAX = 256, EXPOSITION_NAME_BYTES = 256 };

struct exposition {
    char seen[EXPOSITION_FAMILIES_MAX][EXPOSITION_NAME_BYTES];
    uint32_t seen_count;
    char name[EXPOSITION_NAME_BYTES], kind[16]; /* the family at hand */
    char row[1024];                             /* labels of the histogram's row at hand */
    double last_bound, last_count;
    bool ended; /* +Inf came */
};

static inline size_t name_length(const char *p) {
    size_t n = 0;
    while ((p[n] >= 'a' && p[n] <= 'z') || (p[n] >= 'A' && p[n] <= 'Z') || p[n] == '_' ||
           p[n] == ':' || (n > 0 && p[n] >= '0' && p[n] <= '9'))
        n++;
    return n;
}

/* Past the labels at `p`, which begins behind '{'; those but "le" go to `row`, "le" to `bound`. */
static inline const char *skip_labels(const char *p, char *row, size_t row_bytes, double *bound) {
    row[0] = 0;
    for (;;) {
        const char *label = p;
        size_t n = name_length(p);
        assert_true(n > 0);
        assert_null(memchr(p, ':', n));
        p += n;
        assert_memory_equal(p, "=\"", 2);
        const char *value = p += 2;
        for (; *p != '"'; p++) {
            assert_true(*p && *p != '\n');
            if (*p == '\\') assert_non_null(strchr("\\\"n", *++p));
        }
        p++;
        if (n == 2 && memcmp(label, "le", 2) == 0)
            *bound = strncmp(value, "+Inf", 4) == 0 ? INFINITY : strtod(value, NULL);
        else
            snprintf(row + strlen(row), row_bytes - strlen(row), "%.*s,", (int)(p - label), label);
        if (*p == '}') return p + 1;
        assert_int_equal(*p++, ',');
    }
}

static inline void check_bucket(struct exposition *e, const char *row, double bound, double count) {
    if (strcmp(row, e->row) != 0 || e->ended) {
        snprintf(e->row, sizeof(e->row), "%s", row);
        e->last_bound = -INFINITY;
        e->last_count = 0;
        e->ended = false;
    }
    assert_true(bound > e->last_bound);
    assert_true(count >= e->last_count);
    e->last_bound = bound;
    e->last_count = count;
    e->ended = isinf(bound);
}

static inline void check_sample(struct exposition *e, const char *line) {
    char row[1024] = "";
    double bound = NAN;
    size_t n = name_length(line), family = strlen(e->name);
    assert_true(n >= family);
    assert_memory_equal(line, e->name, family);
    const char *suffix = line + family, *p = line + n;
    if (*p == '{') p = skip_labels(p + 1, row, sizeof(row), &bound);
    assert_int_equal(*p++, ' ');
    char *end;
    double value = strtod(p, &end);
    assert_true(end > p);
    assert_int_equal(*end, '\n');
    size_t suffix_bytes = n - family;
    if (strcmp(e->kind, "histogram") != 0) {
        assert_int_equal(suffix_bytes, 0);
        return;
    }
    if (suffix_bytes == 7 && memcmp(suffix, "_bucket", 7) == 0) {
        assert_false(isnan(bound));
        check_bucket(e, row, bound, value);
    } else if (suffix_bytes == 6 && memcmp(suffix, "_count", 6) == 0) {
        assert_true(e->ended);
        assert_string_equal(row, e->row);
        assert_true(value == e->last_count);
    } else {
        assert_int_equal(suffix_bytes, 4);
        assert_memory_equal(suffix, "_sum", 4);
    }
}

/* "# HELP name text\n# TYPE name kind\n"; gives where the samples begin. */
static inline const char *check_family(struct exposition *e, const char *p) {
    assert_memory_equal(p, "# HELP ", 7);
    size_t n = name_length(p + 7);
    assert_true(n > 0 && n < EXPOSITION_NAME_BYTES);
    snprintf(e->name, sizeof(e->name), "%.*s", (int)n, p + 7);
    for (uint32_t i = 0; i < e->seen_count; i++) assert_string_not_equal(e->seen[i], e->name);
    assert_true(e->seen_count < EXPOSITION_FAMILIES_MAX);
    memcpy(e->seen[e->seen_count++], e->name, n + 1);
    p = strchr(p, '\n') + 1;
    assert_memory_equal(p, "# TYPE ", 7);
    assert_memory_equal(p + 7, e->name, n);
    assert_int_equal(p[7 + n], ' ');
    assert_int_equal(sscanf(p + 8 + n, "%15s", e->kind), 1);
    e->row[0] = 0;
    e->ended = true;
    return strchr(p, '\n') + 1;
}

static inline void exposition_check(const char *text) {
    struct exposition e = {0};
    const char *p = text;
    while (*p) {
        if (*p == '#') {
            p = check_family(&e, p);
            continue;
        }
        assert_true(e.name[0]);
        check_sample(&e, p);
        p = strchr(p, '\n') + 1;
    }
    assert_true(e.seen_count > 0);
}

/* Of the sample that is written exactly so; the test fails if there is none. */
static inline double exposition_value(const char *text, const char *sample) {
    size_t len = strlen(sample);
    for (const char *p = text; *p; p = strchr(p, '\n') + 1)
        if (strncmp(p, sample, len) == 0 && p[len] == ' ') return strtod(p + len, NULL);
    fail_msg("no sample %s", sample);
    return NAN;
}

#endif
