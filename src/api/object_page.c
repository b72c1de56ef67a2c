/* api/object_page.c - see api/object_page.h for the contract. */
#include "api/object_page.h"

#include <string.h>

#include "base/check.h"

const struct page_rules page_rules_files = {.limit = 10000, .limit_max = 10000};
const struct page_rules page_rules_batches = {.limit = 20, .limit_max = 100};
const struct page_rules page_rules_messages = {.limit = 20, .limit_max = 1000};
const struct page_rules page_rules_items = {.limit = 20, .limit_max = 100};
const struct page_rules page_rules_chats = {.limit = 20, .limit_max = 100, .ascending = true};

void object_page_init(struct object_page *p, uint32_t limit) {
    CHECK(limit > 0);
    *p = (struct object_page){.limit = limit};
    buf_init(&p->texts, OBJECT_PAGE_BYTES_MAX);
    buf_init(&p->begins, OBJECT_PAGE_BYTES_MAX);
}

void object_page_deinit(struct object_page *p) {
    buf_deinit(&p->texts);
    buf_deinit(&p->begins);
}

struct buf *object_page_add(struct object_page *p, struct str id) {
    if (p->count == p->limit) {
        p->has_more = true;
        return NULL;
    }
    if (p->count == 0) str_store(id, p->first, sizeof(p->first));
    str_store(id, p->last, sizeof(p->last));
    p->count++;
    buf_put(&p->begins, &p->texts.len, sizeof(p->texts.len));
    return &p->texts;
}

static struct str object_at(const struct object_page *p, uint32_t i) {
    size_t begin, end = p->texts.len;
    memcpy(&begin, p->begins.ptr + i * sizeof(begin), sizeof(begin));
    if (i + 1 < p->count) memcpy(&end, p->begins.ptr + (i + 1) * sizeof(end), sizeof(end));
    return (struct str){p->texts.ptr + begin, end - begin};
}

static void put_id(const char *key, const char *id, struct buf *out) {
    buf_put_text(out, key);
    if (id[0])
        buf_put_json_string(out, str_of(id));
    else
        buf_put_text(out, "null");
}

void object_page_put(const struct object_page *p, enum page_form form, struct buf *out) {
    const bool has_failed = buf_status(&p->texts) != ST_OK || buf_status(&p->begins) != ST_OK;
    if (has_failed) {
        out->status =
            buf_status(&p->texts) != ST_OK ? buf_status(&p->texts) : buf_status(&p->begins);
        return;
    }
    buf_put_text(out, form == PAGE_OPENAI ? "{\"object\":\"list\",\"data\":[" : "{\"data\":[");
    for (uint32_t i = 0; i < p->count; i++) {
        if (i) buf_put_char(out, ',');
        buf_put_str(out, object_at(p, p->is_reversed ? p->count - 1 - i : i));
    }
    put_id("],\"first_id\":", p->is_reversed ? p->last : p->first, out);
    put_id(",\"last_id\":", p->is_reversed ? p->first : p->last, out);
    buf_put_text(out, p->has_more ? ",\"has_more\":true}" : ",\"has_more\":false}");
}

enum status page_query_read(const struct page_query *q, const struct page_rules *rules,
                            struct page_choice *out, struct api_error *e) {
    uint64_t limit = rules->limit;
    *out = (struct page_choice){.ascending = rules->ascending};
    if (q->limit.len && (!str_to_u64(q->limit, &limit) || limit < 1 || limit > rules->limit_max))
        return api_refuse(e, 400, "limit", "invalid_value",
                          "Invalid 'limit': '%.*s' is not a number from 1 to %u.",
                          (int)(q->limit.len > 32 ? 32 : q->limit.len), q->limit.ptr,
                          rules->limit_max);
    if (q->order.len && !str_is(q->order, "asc") && !str_is(q->order, "desc"))
        return api_refuse(e, 400, "order", "invalid_value",
                          "Invalid 'order': '%.*s' is not supported; supported: asc, desc.",
                          (int)(q->order.len > 32 ? 32 : q->order.len), q->order.ptr);
    if (q->after.len && q->before.len)
        return api_refuse(e, 400, "before_id", "invalid_value",
                          "Only one of 'after_id' and 'before_id' may be given.");
    if (q->order.len) out->ascending = str_is(q->order, "asc");
    out->limit = (uint32_t)limit;
    return ST_OK;
}
