/* base/str.c - see base/str.h for the contract. */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct str str_of(const char *text) {
    return (struct str){text, text ? strlen(text) : 0};
}

bool str_eq(struct str a, struct str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool str_is(struct str a, const char *text) { return str_eq(a, str_of(text)); }

bool str_starts(struct str s, struct str prefix) {
    return s.len >= prefix.len && str_eq(str_take(s, prefix.len), prefix);
}

bool str_ends(struct str s, struct str suffix) {
    return s.len >= suffix.len && str_eq(str_skip(s, s.len - suffix.len), suffix);
}

int str_cmp(struct str a, struct str b) {
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common ? memcmp(a.ptr, b.ptr, common) : 0;
    if (order) return order;
    return (a.len > b.len) - (a.len < b.len);
}

struct str str_skip(struct str s, size_t bytes) {
    if (bytes > s.len) bytes = s.len;
    return (struct str){s.len ? s.ptr + bytes : s.ptr, s.len - bytes};
}

struct str str_take(struct str s, size_t bytes) {
    return (struct str){s.ptr, bytes < s.len ? bytes : s.len};
}

void str_store(struct str s, char *out, size_t bytes) {
    s = str_take(s, bytes - 1);
    if (s.len > 0) memcpy(out, s.ptr, s.len);
    out[s.len] = 0;
}

struct str str_trim(struct str s) {
    while (s.len && isspace((unsigned char)s.ptr[0])) s = str_skip(s, 1);
    while (s.len && isspace((unsigned char)s.ptr[s.len - 1])) s.len--;
    return s;
}

bool str_to_u64(struct str s, uint64_t *out) {
    uint64_t value = 0;
    if (s.len == 0) return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return false;
        uint64_t digit = (uint64_t)(s.ptr[i] - '0');
        if (__builtin_mul_overflow(value, 10u, &value)) return false;
        if (__builtin_add_overflow(value, digit, &value)) return false;
    }
    *out = value;
    return true;
}

bool str_to_i64(struct str s, int64_t *out) {
    bool negative = s.len && s.ptr[0] == '-';
    uint64_t magnitude;
    if (!str_to_u64(str_skip(s, negative), &magnitude)) return false;
    if (magnitude > (uint64_t)INT64_MAX + negative) return false;
    *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

bool str_to_f64(struct str s, double *out) {
    char text[64];
    if (s.len == 0 || s.len >= sizeof(text)) return false;
    if (isspace((unsigned char)s.ptr[0])) return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end != text + s.len) return false;
    if (errno == ERANGE && (value > 1 || value < -1)) return false;
    *out = value;
    return true;
}

static uint32_t least3(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t least = a < b ? a : b;
    return least < c ? least : c;
}

uint32_t str_distance(struct str a, struct str b) {
    enum { WORD_MAX = 64 };
    if (a.len >= WORD_MAX || b.len >= WORD_MAX) return UINT32_MAX;
    uint32_t row[WORD_MAX]; /* row[j]: edits from a[0..i) to b[0..j) */
    for (uint32_t j = 0; j <= b.len; j++) row[j] = j;
    for (uint32_t i = 1; i <= a.len; i++) {
        uint32_t diagonal = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= b.len; j++) {
            uint32_t above = row[j];
            uint32_t change = a.ptr[i - 1] == b.ptr[j - 1] ? 0 : 1;
            row[j] = least3(row[j - 1] + 1, above + 1, diagonal + change);
            diagonal = above;
        }
    }
    return row[b.len];
}
