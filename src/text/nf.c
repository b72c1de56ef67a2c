/* text/nf.c - Unicode normalisation forms in linear time.
 *
 * utf8proc decomposes single characters and composes a decomposed text, both in one pass. Its
 * own canonical ordering is an insertion sort, which a text of nothing but combining marks
 * turns quadratic; so the ordering is done here, by counting, run by run.
 */
#include <string.h>

#include <utf8proc.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/text_int.h"

enum { DECOMPOSED_MAX = 18 }; /* characters; U+FDFA is the longest */

struct codes {
    utf8proc_int32_t *at;
    size_t count, cap;
};

static bool grow(struct codes *c, size_t more) {
    if (c->count + more <= c->cap) return true;
    size_t cap = c->cap ? c->cap * 2 : 256;
    utf8proc_int32_t *at = mem_realloc(c->at, cap * sizeof(at[0]));
    if (!at) return false;
    c->at = at;
    c->cap = cap;
    return true;
}

static uint8_t class_of(utf8proc_int32_t c) {
    return c < 0x300 ? 0 : (uint8_t)utf8proc_get_property(c)->combining_class;
}

/* A short run of marks by insertion: the usual case is two. */
static void order_short(utf8proc_int32_t *at, size_t count) {
    for (size_t i = 1; i < count; i++) {
        utf8proc_int32_t c = at[i];
        size_t j = i;
        for (; j > 0 && class_of(at[j - 1]) > class_of(c); j--) at[j] = at[j - 1];
        at[j] = c;
    }
}

/* A long run by counting: stable, two passes. */
static bool order_long(utf8proc_int32_t *at, size_t count) {
    utf8proc_int32_t *copy = mem_alloc_array(count, sizeof(copy[0]));
    if (!copy) return false;
    size_t place[257] = {0};
    memcpy(copy, at, count * sizeof(copy[0]));
    for (size_t i = 0; i < count; i++) place[class_of(copy[i]) + 1]++;
    for (size_t k = 1; k < 257; k++) place[k] += place[k - 1];
    for (size_t i = 0; i < count; i++) at[place[class_of(copy[i])]++] = copy[i];
    mem_free(copy);
    return true;
}

static bool order_marks(struct codes *c) {
    enum { SHORT_RUN = 32 };
    for (size_t i = 0; i < c->count;) {
        if (class_of(c->at[i]) == 0) {
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < c->count && class_of(c->at[end]) != 0) end++;
        if (end - i <= SHORT_RUN)
            order_short(c->at + i, end - i);
        else if (!order_long(c->at + i, end - i))
            return false;
        i = end;
    }
    return true;
}

static bool decompose(struct str text, utf8proc_option_t options, struct codes *out) {
    for (size_t pos = 0; pos < text.len;) {
        utf8proc_int32_t c = (utf8proc_int32_t)uc_next(text, &pos);
        if (!grow(out, DECOMPOSED_MAX)) return false;
        if (c < 0x80) {
            out->at[out->count++] = c;
            continue;
        }
        int boundary = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(
            c, out->at + out->count, (utf8proc_ssize_t)(out->cap - out->count), options, &boundary);
        if (n <= 0 || (size_t)n > out->cap - out->count) { /* unassigned: as it is */
            out->at[out->count] = c;
            n = 1;
        }
        out->count += (size_t)n;
    }
    return order_marks(out);
}

static bool is_ascii(struct str text) {
    for (size_t i = 0; i < text.len; i++)
        if ((uint8_t)text.ptr[i] >= 0x80) return false;
    return true;
}

enum status nf_apply(enum nf_form form, struct str text, struct buf *out) {
    if (is_ascii(text)) {
        buf_put_str(out, text);
        return buf_status(out);
    }
    bool compat = form == NF_KC || form == NF_KD, compose = form == NF_C || form == NF_KC;
    struct codes codes = {0};
    int options = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    bool ok = decompose(text, (utf8proc_option_t)options, &codes);
    if (ok && compose) {
        options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
        utf8proc_ssize_t n = utf8proc_normalize_utf32(codes.at, (utf8proc_ssize_t)codes.count,
                                                      (utf8proc_option_t)options);
        CHECK(n >= 0);
        codes.count = (size_t)n;
    }
    for (size_t i = 0; ok && i < codes.count; i++) uc_put(out, (uint32_t)codes.at[i]);
    mem_free(codes.at);
    if (!ok) out->status = ST_NOMEM;
    return buf_status(out);
}
