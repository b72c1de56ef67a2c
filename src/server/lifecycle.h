/* server/lifecycle.h - parts of the server's life that stand in files of their own. */
#ifndef SERVER_LIFECYCLE_H
#define SERVER_LIFECYCLE_H

#include "base/status.h"

struct http_limits;
struct server;

/* ---- lifecycle.c ---- */
/* What is wrong with it that only a new process mends, in words; NULL: nothing. */
const char *lifecycle_failure(const struct server *s);

/* ---- listen.c ---- */
enum status lifecycle_listen(struct server *s, struct err *err);
void lifecycle_limits(const struct server *s, struct http_limits *out);
void lifecycle_reload(struct server *s);  /* SIGHUP */
void lifecycle_welcome(struct server *s); /* how to call it, for whoever started it */

#endif
