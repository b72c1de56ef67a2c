/* unit/json_lib.h - trees of JSON values from text and back, for tests. */
#ifndef UNIT_JSON_LIB_H
#define UNIT_JSON_LIB_H

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/str.h"

/* NULL or "": NULL. The caller destroys it. */
static inline struct json *json_of(const char *text) {
    struct json *v = NULL;
    if (text && text[0])
        CHECK(json_parse(str_of(text), &json_limits_model_file, &v, NULL) == ST_OK);
    return v;
}

/* Whether json_put writes `v` as `text`; NULL is written as "". */
static inline bool json_is(const struct json *v, const char *text) {
    struct buf out;
    buf_init(&out, 1 << 24);
    if (v) json_put(v, &out);
    bool is_equal = str_is(buf_str(&out), text);
    buf_deinit(&out);
    return is_equal;
}

#endif
