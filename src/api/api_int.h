/* api/api_int.h - what the files of this folder share and nobody else needs. */
#ifndef API_API_INT_H
#define API_API_INT_H

#include "api/error.h"
#include "api/fields.h"
#include "api/request.h"
#include "base/status.h"

struct buf;
struct json;

/* fields_store.c: put a value that the table has judged where the row says. `param` spells the
 * path for a refusal of what a row cannot judge. */
enum status field_store(const struct api_field *f, const struct json *v, void *request,
                        const char *param, struct api_error *e);

/* A whole number, whether it was written with a fraction of zero or not. It is in int64_t's range
 * as fields.c has seen to. */
int64_t field_int(const struct json *v);
bool field_is_int(const struct json *v); /* a whole number that int64_t holds */

#endif
