/* server/front.h - what the network calls; `ctx` is the struct server. */
#ifndef SERVER_FRONT_H
#define SERVER_FRONT_H

#include "net/http.h"

extern const struct http_handler front_handler;

#endif
