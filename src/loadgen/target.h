/* loadgen/target.h - the server under test: its address, and requests to it.
 *
 *     http://127.0.0.1:8080        http://[::1]:8080/v1        https://host/prefix
 *
 * With https the load generator's own encryption is part of what is measured.
 *
 * Lifetime: a value. Thread: any.
 */
#ifndef LOADGEN_TARGET_H
#define LOADGEN_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct buf;
struct loadgen_tls;

enum { TARGET_HOST_BYTES = 256, TARGET_PATH_BYTES = 512, TARGET_ADDRESS_BYTES = 128 };

struct target {
    char host[TARGET_HOST_BYTES]; /* without brackets */
    uint16_t port;
    bool is_tls;                  /* https */
    struct loadgen_tls *tls;      /* borrowed; the caller sets it if is_tls */
    char base[TARGET_PATH_BYTES]; /* what comes before "/completions": "/v1" */
    char address[TARGET_ADDRESS_BYTES] __attribute__((aligned(8))); /* a socket address */
    uint32_t address_bytes;                                         /* 0: not resolved */
};

/* Parse `url`. ST_BAD: `err` says what is wrong with it. */
enum status target_parse(const char *url, struct target *out, struct err *err);

/* Look up the address of the host; may wait for a name server. */
enum status target_resolve(struct target *t, struct err *err);

/* A whole request: POST with `body`, GET if `body` is NULL. `path` follows the base; `key` may be
 * NULL. */
void target_put_request(const struct target *t, const char *path, const char *key,
                        const struct buf *body, struct buf *out);

#endif
