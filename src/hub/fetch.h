/* hub/fetch.h - downloading files from http, https and file addresses, with libcurl.
 *
 * An interrupted download is resumed with a Range request. If-Range ties the request to the
 * version of the file that the part on disk belongs to; without a version, the checksum at the end
 * must be known. A server that cannot resume sends the whole file again. Temporary failures (no
 * connection, a broken one, a stall, 429, 5xx) are retried after growing pauses; the count of
 * retries starts again whenever bytes arrived.
 *
 *     404, 401, 403 ........................ ST_MISSING
 *     no connection, stall, 5xx, TLS ....... ST_UNAVAILABLE
 *     wrong size or checksum ............... ST_BAD, the part is deleted
 *     full disk ............................ ST_IO, the part is kept
 *
 * Lifetime: create, use as often as needed, destroy. Thread: its owner.
 */
#ifndef HUB_FETCH_H
#define HUB_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"

struct buf;
struct progress;
struct fetch; /* opaque */

enum { FETCH_URL_BYTES = 4096 };

struct fetch_settings {
    const char *bearer;  /* token, sent only to the host of the address; or NULL */
    const char *ca_file; /* certificates to trust; NULL for the system's */
    uint32_t stall_s;    /* end a connection that sends nothing for this long */
    uint32_t try_count;  /* at least 1 */
    uint32_t pause_ms;   /* before the second try; doubles from there */
};

struct fetch_item {
    const char *url;
    const char *path;   /* bytes go to PATH.part first, see hub/partial_file.h */
    uint64_t bytes;     /* UINT64_MAX: unknown */
    const char *sha256; /* NULL: unknown */
};

/* `settings` is copied; its texts are borrowed until destroy. */
enum status fetch_create(struct fetch **out, const struct fetch_settings *settings,
                         struct err *err);
void fetch_destroy(struct fetch *f); /* NULL is fine */

/* Download a whole file. `progress` has begun; its count starts at `base_bytes`. `sha256` gets the
 * checksum of the downloaded bytes. */
enum status fetch_file(struct fetch *f, const struct fetch_item *item, struct progress *progress,
                       uint64_t base_bytes, char sha256[SHA256_HEX_BYTES], struct err *err);

/* Download a small document into an empty `out`, up to its maximum. `next_url` (may be NULL) gets
 * the address of the next page if the server names one on the same host, else "". */
enum status fetch_text(struct fetch *f, const char *url, struct buf *out,
                       char next_url[FETCH_URL_BYTES], struct err *err);

/* http://, https:// or file:// and no blanks or control characters. */
bool fetch_url_ok(const char *url);

/* Whether the bytes travel without encryption: http to another machine. */
bool fetch_url_is_plain(const char *url);

/* The address without what may be secret: user, password, query and fragment. */
void fetch_public_url(const char *url, char *out, size_t out_bytes);

#endif
