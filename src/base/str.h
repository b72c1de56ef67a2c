/* base/str.h - a borrowed run of bytes: text with another owner.
 *
 * Not NUL-terminated and may contain NUL bytes. Valid as long as its owner says.
 * Print one with "%.*s" and STR_ARG(s).
 */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str {
    const char *ptr;
    size_t len;
};

#define STR(literal) ((struct str){"" literal, sizeof(literal) - 1})
#define STR_ARG(s) (int)((s).len > 1000 ? 1000 : (s).len), (s).ptr

struct str str_of(const char *text); /* NULL gives an empty one */
bool str_eq(struct str a, struct str b);
bool str_is(struct str a, const char *text);
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
int str_cmp(struct str a, struct str b); /* by bytes, shorter first; for sorting */
struct str str_skip(struct str s, size_t bytes);
struct str str_take(struct str s, size_t bytes); /* the first `bytes`, or all */
struct str str_trim(struct str s);               /* ASCII white space off both ends */

/* Copy into an array of `bytes` bytes, with a NUL at the end; what does not fit is left out. */
void str_store(struct str s, char *out, size_t bytes);

/* Whole string as a number, strictly: no blanks, no sign for u64, no wrap. false if not. */
bool str_to_u64(struct str s, uint64_t *out);
bool str_to_i64(struct str s, int64_t *out);
bool str_to_f64(struct str s, double *out);

/* How many single-character edits apart two words are, for "did you mean". Words over 63
 * bytes count as far apart. */
uint32_t str_distance(struct str a, struct str b);

#endif
