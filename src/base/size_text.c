/* base/size_text.c - see base/size_text.h. */
#include "base/size_text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *size_text(uint64_t bytes, char out[SIZE_TEXT_BYTES]) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    if (bytes < 1000) {
        snprintf(out, SIZE_TEXT_BYTES, "%u B", (unsigned)bytes);
        return out;
    }
    double value = (double)bytes / 1000.0;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000.0;
        unit++;
    }
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, SIZE_TEXT_BYTES, "%.*f %s", digits, value, units[unit]);
    return out;
}

static bool is_same_word(struct str s, const char *word) {
    return s.len == strlen(word) && strncasecmp(s.ptr, word, s.len) == 0;
}

static bool find_unit(struct str s, double *bytes) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
                 {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (!is_same_word(s, units[i].name)) continue;
        *bytes = units[i].bytes;
        return true;
    }
    return false;
}

bool size_parse(struct str text, uint64_t *bytes) {
    struct str s = str_trim(text);
    size_t digits = 0;
    double number, unit;
    if (s.len == 0 || s.ptr[0] < '0' || s.ptr[0] > '9') return false;
    while (digits < s.len && strchr("0123456789.", s.ptr[digits])) digits++;
    struct str rest = {s.ptr + digits, s.len - digits};
    if (rest.len == 0 && str_to_u64(s, bytes)) return *bytes <= (uint64_t)1 << 63;
    if (!str_to_f64(str_take(s, digits), &number) || !find_unit(str_trim(rest), &unit))
        return false;
    if (!(number * unit <= 0x1p63)) return false;
    *bytes = (uint64_t)(number * unit);
    return true;
}
