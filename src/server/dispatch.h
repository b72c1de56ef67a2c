/* server/dispatch.h - what the network calls; `ctx` is the struct server. */
#ifndef SERVER_DISPATCH_H
#define SERVER_DISPATCH_H

#include "net/http.h"

extern const struct http_handler dispatch_handler;

#endif
