/* api/prompts.c - see api/prompts.h for the contract. */
#include "api/prompts.h"

#include "api/api_int.h"
#include "base/json.h"
#include "base/mem.h"

/* `at`: which member of `param` the list is; SIZE_MAX: `param` itself. */
static enum status refuse_id(const struct json *id, const char *param, size_t at, size_t i,
                             struct api_error *e) {
    if (!field_is_int(id) && at == SIZE_MAX)
        return api_refuse_kind(e, id, FIELD_INT, "%s[%zu]", param, i);
    if (!field_is_int(id)) return api_refuse_kind(e, id, FIELD_INT, "%s[%zu][%zu]", param, at, i);
    return api_refuse(e, 400, param, "invalid_value", "Invalid '%s': %lld is not a token id.",
                      param, (long long)field_int(id));
}

static enum status read_ids(const struct json *list, const char *param, size_t at,
                            struct api_prompt *out, struct api_error *e) {
    size_t count = json_count(list);
    if (count == 0 || count > API_PROMPT_TOKENS_MAX)
        return api_refuse(
            e, 400, param, count ? "array_above_max_length" : "array_below_min_length",
            "Invalid '%s': a list of token ids must have 1 to %d members; this one has %zu.", param,
            API_PROMPT_TOKENS_MAX, count);
    out->ids = mem_alloc_array(count, sizeof(out->ids[0]));
    if (!out->ids) return ST_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct json *id = json_at(list, i);
        if (!field_is_int(id) || field_int(id) < 0 || field_int(id) > INT32_MAX)
            return refuse_id(id, param, at, i, e);
        out->ids[i] = (int32_t)field_int(id);
    }
    out->count = (uint32_t)count;
    return ST_OK;
}

static enum status make_room(struct api_request *r, size_t count) {
    r->prompts = mem_zalloc_array(count, sizeof(r->prompts[0]));
    if (!r->prompts) return ST_NOMEM;
    r->prompt_count = (uint32_t)count;
    return ST_OK;
}

static enum status read_member(const struct json *v, const char *param, size_t i,
                               enum json_kind kind, struct api_request *r, struct api_error *e) {
    if (json_kind(v) != kind)
        return api_refuse_kind(e, v, kind == JS_TEXT ? FIELD_TEXT : FIELD_LIST, "%s[%zu]", param,
                               i);
    if (kind == JS_LIST) return read_ids(v, param, i, &r->prompts[i], e);
    r->prompts[i].text = json_str(v);
    return ST_OK;
}

enum status prompts_read(const struct json *v, const char *param, uint32_t max,
                         struct api_request *r, struct api_error *e) {
    enum json_kind kind = json_kind(json_at(v, 0));
    if (json_kind(v) == JS_TEXT || kind == JS_INT || kind == JS_REAL) {
        TRY(make_room(r, 1));
        if (json_kind(v) == JS_LIST) return read_ids(v, param, SIZE_MAX, &r->prompts[0], e);
        r->prompts[0].text = json_str(v);
        return ST_OK;
    }
    size_t count = json_count(v);
    if (count == 0 || count > max)
        return api_refuse(
            e, 400, param, count ? "array_above_max_length" : "array_below_min_length",
            "Invalid '%s': a list of texts must have 1 to %u members; this one has %zu.", param,
            max, count);
    if (kind != JS_TEXT && kind != JS_LIST)
        return api_refuse_kind(e, json_at(v, 0), FIELD_TEXT | FIELD_INT | FIELD_LIST, "%s[0]",
                               param);
    TRY(make_room(r, count));
    for (size_t i = 0; i < count; i++) TRY(read_member(json_at(v, i), param, i, kind, r, e));
    return ST_OK;
}
