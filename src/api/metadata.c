/* api/metadata.c - see api/metadata.h for the contract. */
#include "api/metadata.h"

#include "api/fields.h"
#include "base/json.h"
#include "base/utf8.h"

static enum status check_pair(const struct json_iter *it, const char *param, struct api_error *e) {
    const size_t key_count = utf8_count(it->key), value_count = utf8_count(json_str(it->value));
    if (key_count > METADATA_KEY_MAX)
        return api_refuse(e, 400, param, "string_above_max_length",
                          "Invalid '%s': a key has %zu characters, more than the maximum of %d.",
                          param, key_count, METADATA_KEY_MAX);
    if (json_kind(it->value) != JS_TEXT)
        return api_refuse_kind(e, it->value, FIELD_TEXT, "%s.%.*s", param,
                               (int)(it->key.len > 64 ? 64 : it->key.len), it->key.ptr);
    if (value_count > METADATA_VALUE_MAX)
        return api_refuse(e, 400, param, "string_above_max_length",
                          "Invalid '%s': the value of '%.*s' has %zu characters, more than the "
                          "maximum of %d.",
                          param, (int)(it->key.len > 64 ? 64 : it->key.len), it->key.ptr,
                          value_count, METADATA_VALUE_MAX);
    return ST_OK;
}

enum status metadata_read(const struct json *v, const char *param, struct buf *out,
                          struct api_error *e) {
    if (json_kind(v) == JS_NONE || json_kind(v) == JS_NULL) return ST_OK;
    if (json_kind(v) != JS_MAP) return api_refuse_kind(e, v, FIELD_MAP, "%s", param);
    if (json_count(v) > METADATA_PAIRS_MAX)
        return api_refuse(e, 400, param, "object_above_max_properties",
                          "Invalid '%s': %zu pairs, more than the maximum of %d.", param,
                          json_count(v), METADATA_PAIRS_MAX);
    for (struct json_iter it = json_iter_first(v); json_iter_ok(&it); json_iter_next(&it))
        TRY(check_pair(&it, param, e));
    json_put(v, out);
    return buf_status(out);
}

enum status metadata_update_read(const struct json *body, struct buf *out, struct api_error *e) {
    const struct json *v = json_get(body, "metadata");
    if (json_kind(body) != JS_MAP) return api_refuse_kind(e, body, FIELD_MAP, "body");
    if (json_kind(v) == JS_NONE) return api_refuse_missing(e, "metadata");
    if (json_kind(v) == JS_NULL) buf_put_text(out, "{}");
    return metadata_read(v, "metadata", out, e);
}

void metadata_put(struct str metadata, const char *absent, struct buf *out) {
    buf_put_text(out, ",\"metadata\":");
    if (metadata.len)
        buf_put_str(out, metadata);
    else
        buf_put_text(out, absent);
}
