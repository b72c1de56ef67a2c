/* base/json.h - reading JSON behind limits, and building trees of JSON values. Writing is done by
 * appending to a struct buf; json_put does so for a value of a tree.
 *
 * Jansson does the parsing; this module sees to it that no input can nest, weigh or count
 * more than the limits say, before jansson sees it. Values are borrowed from their document
 * and live as long as it does. Object keys keep the order of the text. A whole number past
 * int64_t becomes a JS_REAL.
 *
 * Lifetime: json_parse or json_*_create, read, json_destroy. Thread: one at a time per document;
 * json_pin and json_destroy change the counts of references of what they are given.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct json; /* a value; jansson's json_t in disguise */

struct json_limits {
    size_t bytes_max;
    uint32_t depth_max;
    size_t values_max; /* numbers, strings, keys, arrays, objects: everything */
    bool unique_keys;  /* refuse a map that has a key twice; otherwise the last one counts */
};

/* For files that come with a model (tokenizer.json reaches 35 MB), and for small documents. */
extern const struct json_limits json_limits_model_file;
extern const struct json_limits json_limits_request;

enum json_kind { JS_NONE, JS_NULL, JS_BOOL, JS_INT, JS_REAL, JS_TEXT, JS_LIST, JS_MAP };

/* On ST_BAD `err` says the line and column; it does not name a file: the caller prefixes it. */
enum status json_parse(struct str text, const struct json_limits *limits, struct json **out,
                       struct err *err);
/* How many values the text has, as values_max counts them. */
size_t json_count_values(struct str text);
void json_destroy(struct json *doc); /* what was parsed, created or pinned; NULL is fine */

/* All accept NULL, which is JS_NONE, so that look-ups can be chained. */
enum json_kind json_kind(const struct json *v);
struct str json_str(const struct json *v);                /* empty unless JS_TEXT */
int64_t json_int(const struct json *v, int64_t fallback); /* JS_INT, or a whole JS_REAL */
double json_num(const struct json *v, double fallback);   /* JS_INT or JS_REAL */
bool json_bool(const struct json *v, bool fallback);

size_t json_count(const struct json *v);                      /* of a list or a map, else 0 */
struct json *json_at(const struct json *v, size_t i);         /* of a list; NULL outside */
struct json *json_get(const struct json *v, const char *key); /* of a map; NULL if absent */

/* "a.b.c" through nested maps; NULL if any is absent. A literal key "a.b.c" wins. */
struct json *json_path(const struct json *v, const char *path);

/* Walk a map in the order of its text:
 *     for (struct json_iter it = json_iter_first(v); json_iter_ok(&it); json_iter_next(&it)) */
struct json_iter {
    const struct json *map;
    void *pos;
    struct str key;
    struct json *value;
};
struct json_iter json_iter_first(const struct json *v);
bool json_iter_ok(const struct json_iter *it);
void json_iter_next(struct json_iter *it);

/* Bytes of all texts and keys, and one for each value: about the length of what json_put writes. */
size_t json_weight(const struct json *v);

/* Memory that the tree takes, about. A value that several trees hold is counted in each. */
size_t json_memory(const struct json *v);

/* Values for a new tree; NULL when out of memory. Bad UTF-8 in a text becomes U+FFFD. */
struct json *json_map_create(void);
struct json *json_list_create(void);
struct json *json_text_create(struct str text);
struct json *json_bool_create(bool truth);
struct json *json_null_create(void);

/* One more reference to a value, so that a second tree can hold it without a copy; json_destroy
 * gives it back. NULL gives NULL. */
struct json *json_pin(const struct json *v);

/* Put `value` into a map, in place of what the key had, or at the end of a list. The tree owns it
 * from then on; a failure destroys it. ST_NOMEM also if one of the two is NULL, so that creating
 * need not be checked. */
enum status json_set(struct json *map, struct str key, struct json *value);
enum status json_push(struct json *list, struct json *value);

/* Append the value as JSON without blanks; reading that again gives the same value. NULL: null. */
void json_put(const struct json *v, struct buf *out);

#endif
