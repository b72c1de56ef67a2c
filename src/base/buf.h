/* base/buf.h - bytes that grow up to a stated maximum.
 *
 * Appending never fails at the call: a buffer that ran out of memory or reached its maximum
 * remembers that, ignores what follows, and reports it once through buf_status(). Write freely,
 * then ask.
 *
 * Lifetime: the caller's storage; init, use, deinit. Thread: its owner.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf {
    char *ptr; /* heap; a NUL always follows the last byte once anything was written */
    size_t len, cap, max;
    enum status status;
};

void buf_init(struct buf *b, size_t max_bytes);
void buf_deinit(struct buf *b);
void buf_clear(struct buf *b); /* empty and healthy again; keeps its memory */

void buf_put(struct buf *b, const void *bytes, size_t len);
void buf_put_char(struct buf *b, char c);
void buf_put_str(struct buf *b, struct str s);
void buf_put_text(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_put_plain(struct buf *b, struct str s); /* for a terminal: controls and bad UTF-8 -> '?' */
void buf_put_json_string(struct buf *b, struct str s); /* with the quotes; bad UTF-8 -> U+FFFD */
void buf_put_json_inner(struct buf *b, struct str s);  /* the same without the quotes */
void buf_put_uint(struct buf *b, uint64_t v);

enum status buf_status(const struct buf *b); /* ST_OK, ST_FULL (maximum) or ST_NOMEM */
struct str buf_str(const struct buf *b);     /* valid until the next change */
const char *buf_text(struct buf *b);         /* NUL-terminated, never NULL */

/* The caller owns the bytes (NUL-terminated; mem_free) and the buffer is empty again.
 * NULL if the buffer had failed. */
char *buf_take(struct buf *b, size_t *len);

#endif
