/* text/postproc.c - the tokens that are added around a text. See text/text_int.h. */
#include <string.h>

#include "base/json.h"
#include "text/text_int.h"

bool post_nest(struct post *p, const struct post *outer) {
    struct post r = {.count = 0};
    for (uint32_t i = 0; i < outer->count; i++) {
        bool sequence = outer->items[i] == POST_SEQUENCE;
        const token_id *from = sequence ? p->items : &outer->items[i];
        uint32_t count = sequence ? p->count : 1;
        if (r.count + count > POST_ITEMS_MAX) return false;
        memcpy(r.items + r.count, from, count * sizeof(from[0]));
        r.count += count;
    }
    *p = r;
    return true;
}

static enum status put_item(struct post *p, int64_t id, const struct vocab *v, struct err *err) {
    if (p->count == POST_ITEMS_MAX)
        return err_set(err, ST_BAD, "post_processor: more than %d tokens", POST_ITEMS_MAX);
    if (id != POST_SEQUENCE && (id < 0 || id >= v->count))
        return err_set(err, ST_BAD, "post_processor: token id %lld is not in the vocabulary",
                       (long long)id);
    p->items[p->count++] = (token_id)id;
    return ST_OK;
}

/* {"SpecialToken": {"id": "[CLS]"}} names an entry of special_tokens, which lists ids. */
static enum status read_special(const struct json *doc, struct str name, const struct vocab *v,
                                struct post *p, struct err *err) {
    const struct json *all = json_get(doc, "special_tokens");
    for (struct json_iter it = json_iter_first(all); json_iter_ok(&it); json_iter_next(&it)) {
        if (!str_eq(it.key, name)) continue;
        const struct json *ids = json_get(it.value, "ids");
        for (size_t i = 0; i < json_count(ids); i++)
            TRY(put_item(p, json_int(json_at(ids, i), -1), v, err));
        return ST_OK;
    }
    return err_set(err, ST_BAD, "post_processor: TemplateProcessing: no special token \"%.*s\"",
                   STR_ARG(name));
}

static enum status read_template(const struct json *doc, const struct vocab *v, struct post *p,
                                 struct err *err) {
    const struct json *single = json_get(doc, "single");
    if (json_kind(single) != JS_LIST)
        return err_set(err, ST_BAD, "post_processor: TemplateProcessing without \"single\"");
    for (size_t i = 0; i < json_count(single); i++) {
        const struct json *special = json_get(json_at(single, i), "SpecialToken");
        const struct json *sequence = json_get(json_at(single, i), "Sequence");
        if (special) {
            TRY(read_special(doc, json_str(json_get(special, "id")), v, p, err));
        } else if (sequence && str_is(json_str(json_get(sequence, "id")), "A")) {
            TRY(put_item(p, POST_SEQUENCE, v, err));
        } else {
            return err_set(err, ST_BAD,
                           "post_processor: TemplateProcessing: item %zu of "
                           "\"single\" is neither a special token nor sequence A",
                           i);
        }
    }
    return ST_OK;
}

/* BertProcessing and RobertaProcessing: "cls" and "sep" are [token, id]. */
static enum status read_pair(const struct json *doc, const struct vocab *v, struct post *p,
                             struct err *err) {
    TRY(put_item(p, json_int(json_at(json_get(doc, "cls"), 1), -1), v, err));
    TRY(put_item(p, POST_SEQUENCE, v, err));
    return put_item(p, json_int(json_at(json_get(doc, "sep"), 1), -1), v, err);
}

static enum status read_one(struct tokenizer *t, const struct json *v, uint32_t depth,
                            struct err *err) {
    struct str type = json_str(json_get(v, "type"));
    struct post p = {.count = 0};
    if (str_is(type, "ByteLevel")) return ST_OK; /* it only moves offsets */
    if (str_is(type, "Sequence")) {
        const struct json *list = json_get(v, "processors");
        if (depth == NESTING_MAX) return err_set(err, ST_BAD, "post_processor: nested too deep");
        for (size_t i = 0; i < json_count(list); i++)
            TRY(read_one(t, json_at(list, i), depth + 1, err));
        return ST_OK;
    }
    if (str_is(type, "TemplateProcessing"))
        TRY(read_template(v, &t->vocab, &p, err));
    else if (str_is(type, "BertProcessing") || str_is(type, "RobertaProcessing"))
        TRY(read_pair(v, &t->vocab, &p, err));
    else
        return err_set(err, ST_BAD, "post_processor \"%.*s\" is not supported", STR_ARG(type));
    if (!post_nest(&t->post, &p))
        return err_set(err, ST_BAD, "post_processor: more than %d tokens", POST_ITEMS_MAX);
    return ST_OK;
}

enum status post_read(struct tokenizer *t, const struct json *v, struct err *err) {
    t->post = (struct post){{POST_SEQUENCE}, 1};
    if (json_kind(v) == JS_NONE || json_kind(v) == JS_NULL) return ST_OK;
    return read_one(t, v, 0, err);
}
