/* server/lifecycle.h - start, reload and failure of the server. */
#ifndef SERVER_LIFECYCLE_H
#define SERVER_LIFECYCLE_H

#include <stdint.h>

#include "base/status.h"

struct http_limits;
struct server;

/* ---- lifecycle.c ---- */
/* A failure that only a new process can repair, as a sentence; NULL: none. */
const char *lifecycle_failure(const struct server *s);
/* Accept no new work; when the work under way is done, the loop ends. */
void lifecycle_drain(struct server *s);

/* ---- listen.c ---- */
enum status lifecycle_listen(struct server *s, struct err *err);
void lifecycle_limits(const struct server *s, struct http_limits *out);
uint64_t lifecycle_keep_bytes(const struct server *s); /* of kept answers */
void lifecycle_share_memory(struct server *s);         /* settings or keys have changed */
void lifecycle_reload(struct server *s);               /* SIGHUP */
void lifecycle_print_examples(struct server *s);       /* examples of calls, on standard error */

#endif
