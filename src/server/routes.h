/* server/routes.h - the table of routes: paths, who may use them, and the functions that answer.
 *
 * Every row says who may use it; routes_check keeps the server from starting otherwise.
 * Thread: any; the table is constant.
 */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "access/access.h"
#include "base/status.h"
#include "base/str.h"
#include "net/http.h"

struct codec;
struct http_request;

enum route_class {
    ROUTE_INFO,
    ROUTE_WORK,  /* refused while the server is draining */
    ROUTE_PROBE, /* answered also where others are refused because too much is under way */
};
/* How many bytes the body of a request may have. */
enum {
    BODY_NONE = 0,
    BODY_SMALL = 64 << 10,
    BODY_ITEMS = 256 << 10,   /* items of a conversation: parsed on the I/O thread */
    BODY_MAX = INT32_MAX - 1, /* --body-max */
    BODY_FILE = INT32_MAX,    /* --file-max, and BODY_FORM_BYTES for the form around the file */
    BODY_FORM_BYTES = 64 << 10,
};

struct route {
    enum http_method method;
    /* A '*' stands for any text that is not empty; only one at the end of a pattern without another
     * stands for a text with a '/'. A request's argument is what the '*' stands for; with two of
     * them, what lies from the first to the end: "ID/items/ID". */
    const char *path;
    enum access_class access;
    const char *codec;                        /* reads its bodies, writes its answers and errors */
    void (*handle)(struct http_request *req); /* server/handlers.h */
    enum route_class class;
    uint32_t body_bytes; /* BODY_* */
};
uint32_t routes_count(void);
const struct route *routes_at(uint32_t i);
/* The route, or NULL: then *allowed has a bit (1 << enum http_method) for each method of the path,
 * and is 0 for an unknown path. HEAD is GET's. `arg` is what the '*' stands for. */
const struct route *routes_find(enum http_method method, struct str path, struct str *arg,
                                uint32_t *allowed);
/* Who may send it; `route` NULL: an unknown path, or a method that the path does not have. */
enum access_class routes_access(const struct route *route, enum http_method method);
/* Never NULL: an unknown path has the codec of the API that it looks like. */
const struct codec *routes_codec(const struct route *route, struct str path);
/* How many bytes the body may have; 0 for NULL. The server's limits: `body_max` of all but files,
 * `file_max` of a file. */
uint64_t routes_body_bytes(const struct route *route, uint64_t body_max, uint64_t file_max);
enum status routes_check(struct err *err);

#endif
