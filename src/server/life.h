/* server/life.h - parts of the server's life that stand in files of their own. */
#ifndef SERVER_LIFE_H
#define SERVER_LIFE_H

#include "base/status.h"

struct http_limits;
struct server;

/* ---- life.c ---- */
/* What is wrong with it that only a new process mends, in words; NULL: nothing. */
const char *life_illness(const struct server *s);

/* ---- life_listen.c ---- */
enum status life_listen(struct server *s, struct err *err);
void life_limits(const struct server *s, struct http_limits *out);
void life_reload(struct server *s);  /* SIGHUP */
void life_welcome(struct server *s); /* how to call it, for whoever started it */

#endif
