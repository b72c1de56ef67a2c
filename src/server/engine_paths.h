/* server/engine_paths.h - what the handlers of the paths below /v1/engine share.
 *
 * Thread: the I/O thread.
 */
#ifndef SERVER_ENGINE_PATHS_H
#define SERVER_ENGINE_PATHS_H

#include <stdint.h>

struct buf;
struct control_rules;
struct http_request;
struct served_model;

/* The model of ?model=NAME, or the default, if it has an engine. NULL: the request was answered. */
struct served_model *engine_paths_model(struct http_request *req);
/* Wall time when the engines' clock was 0, in milliseconds. */
int64_t engine_epoch_ms(void);
/* "policy":..,"knobs":[..] */
void engine_put_rules(const struct control_rules *rules, struct buf *out);

#endif
