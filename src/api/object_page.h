/* api/object_page.h - a page of a list of objects, and the parameters that choose it.
 *
 * The caller asks its source for one object more than `limit`, so that the page knows whether more
 * follow:
 *
 *     object_page_init(&page, limit);
 *     for each row:  struct buf *out = object_page_add(&page, id);
 *                    if (!out) break;               the page is full: has_more
 *                    file_object_put(row, out);
 *     object_page_put(&page, PAGE_OPENAI, out);
 *     object_page_deinit(&page);
 *
 * A page that was asked for with before_id is read in the other direction and has `is_reversed`
 * set: its objects are written last first.
 *
 * Lifetime: init, add, put, deinit. Thread: its owner. Memory: the objects' JSON, at most
 * OBJECT_PAGE_BYTES_MAX; more makes object_page_put set ST_FULL in its buffer.
 */
#ifndef API_OBJECT_PAGE_H
#define API_OBJECT_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

enum { OBJECT_PAGE_BYTES_MAX = 1 << 28, OBJECT_ID_BYTES = 128 };

/* OPENAI     {"object":"list","data":[..],"first_id":..,"last_id":..,"has_more":..}
 * ANTHROPIC  the same without "object" */
enum page_form { PAGE_OPENAI, PAGE_ANTHROPIC };

struct object_page {
    uint32_t limit, count;
    bool has_more;
    bool is_reversed;            /* set after init */
    char first[OBJECT_ID_BYTES]; /* ids in the order of add */
    char last[OBJECT_ID_BYTES];
    struct buf texts;  /* the objects, one after the other */
    struct buf begins; /* size_t each: where an object begins in `texts` */
};

void object_page_init(struct object_page *p, uint32_t limit);
void object_page_deinit(struct object_page *p);
/* Where the next object is to be written, as JSON; NULL: the page is full, and has_more is set. */
struct buf *object_page_add(struct object_page *p, struct str id);
void object_page_put(const struct object_page *p, enum page_form form, struct buf *out);

/* Parameters of the query; an empty text means that it was not given. */
struct page_query {
    struct str limit, order, after, before;
};
struct page_rules {
    uint32_t limit; /* if it is not given */
    uint32_t limit_max;
    bool ascending; /* if `order` is not given */
};
struct page_choice {
    uint32_t limit;
    bool ascending;
};
/* ST_BAD: `limit` is not a number from 1 to limit_max, `order` is neither asc nor desc, or both
 * `after` and `before` are given. */
enum status page_query_read(const struct page_query *q, const struct page_rules *rules,
                            struct page_choice *out, struct api_error *e);

extern const struct page_rules page_rules_files;    /* 10,000, newest first */
extern const struct page_rules page_rules_batches;  /* 20, at most 100, newest first */
extern const struct page_rules page_rules_messages; /* Anthropic's: 20, at most 1,000 */
extern const struct page_rules page_rules_items;    /* 20, at most 100, newest first */
extern const struct page_rules page_rules_chats;    /* 20, at most 100, oldest first */

#endif
