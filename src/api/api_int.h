/* api/api_int.h - what only the files of this folder share. */
#ifndef API_API_INT_H
#define API_API_INT_H

#include "api/error.h"
#include "api/fields.h"
#include "api/request.h"
#include "base/status.h"

struct buf;
struct json;

/* fields_store.c: store a checked value in the member that the row names. `param` is the path of
 * the field, for refusing values that only the kind of storage can check. */
enum status field_store(const struct api_field *f, const struct json *v, void *request,
                        const char *param, struct api_error *e);

/* The whole number in `v`, also if it was written as 3.0. fields.c has checked that int64_t holds
 * it. */
int64_t field_int(const struct json *v);
bool field_is_int(const struct json *v); /* a whole number that int64_t holds */

#endif
