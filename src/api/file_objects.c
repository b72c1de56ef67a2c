/* api/file_objects.c - see api/file_objects.h for the contract. */
#include "api/file_objects.h"

#include "api/fields.h"
#include "base/buf.h"
#include "jobs/files.h"

static const char *const purposes[] = {"assistants", "batch", "fine-tune",
                                       "vision",     "evals", "user_data"};

bool file_purpose_is_known(struct str purpose) {
    for (size_t i = 0; i < sizeof(purposes) / sizeof(purposes[0]); i++)
        if (str_is(purpose, purposes[i])) return true;
    return false;
}

static enum status read_purpose(const struct multipart_part *part, struct file_upload *out,
                                struct api_error *e) {
    if (!part) return api_refuse_missing(e, "purpose");
    out->purpose = part->data;
    if (file_purpose_is_known(out->purpose)) return ST_OK;
    return api_refuse(e, 400, "purpose", "invalid_value",
                      "Invalid 'purpose': '%.*s' is not supported; supported: assistants, batch, "
                      "fine-tune, vision, user_data, evals.",
                      (int)(part->data.len > 100 ? 100 : part->data.len), part->data.ptr);
}

static enum status read_expiry(const struct multipart *form, struct file_upload *out,
                               struct api_error *e) {
    const struct multipart_part *anchor = multipart_find(form, "expires_after[anchor]");
    const struct multipart_part *seconds = multipart_find(form, "expires_after[seconds]");
    uint64_t value;
    if (!anchor && !seconds) return ST_OK;
    if (!anchor) return api_refuse_missing(e, "expires_after[anchor]");
    if (!seconds) return api_refuse_missing(e, "expires_after[seconds]");
    if (!str_is(anchor->data, "created_at"))
        return api_refuse(e, 400, "expires_after[anchor]", "invalid_value",
                          "Invalid 'expires_after[anchor]': '%.*s' is not supported; supported: "
                          "created_at.",
                          (int)(anchor->data.len > 100 ? 100 : anchor->data.len), anchor->data.ptr);
    if (!str_to_u64(seconds->data, &value) || value < EXPIRES_AFTER_MIN_S ||
        value > EXPIRES_AFTER_MAX_S)
        return api_refuse(e, 400, "expires_after[seconds]", "invalid_value",
                          "Invalid 'expires_after[seconds]': '%.*s' is not a number from %d to %d.",
                          (int)(seconds->data.len > 32 ? 32 : seconds->data.len), seconds->data.ptr,
                          EXPIRES_AFTER_MIN_S, EXPIRES_AFTER_MAX_S);
    out->expires_after_s = (int64_t)value;
    return ST_OK;
}

enum status file_upload_read(const struct multipart *form, struct file_upload *out,
                             struct api_error *e) {
    const struct multipart_part *file = multipart_find(form, "file");
    *out = (struct file_upload){.filename = STR("upload")};
    if (!file) return api_refuse_missing(e, "file");
    out->data = file->data;
    if (file->filename[0]) out->filename = str_of(file->filename);
    TRY(read_purpose(multipart_find(form, "purpose"), out, e));
    if (multipart_find(form, "expires_after"))
        return api_refuse(e, 400, "expires_after", "invalid_value",
                          "Invalid 'expires_after': a form has it as two fields, "
                          "'expires_after[anchor]' and 'expires_after[seconds]'.");
    return read_expiry(form, out, e);
}

void file_object_put(const struct file_row *row, struct buf *out) {
    buf_put_text(out, "{\"id\":");
    buf_put_json_string(out, row->id);
    buf_printf(out, ",\"object\":\"file\",\"bytes\":%llu,\"created_at\":%lld,\"expires_at\":",
               (unsigned long long)row->bytes, (long long)row->created_s);
    if (row->expires_s)
        buf_printf(out, "%lld", (long long)row->expires_s);
    else
        buf_put_text(out, "null");
    buf_put_text(out, ",\"filename\":");
    buf_put_json_string(out, row->filename);
    buf_put_text(out, ",\"purpose\":");
    buf_put_json_string(out, row->purpose);
    buf_put_text(out, ",\"status\":\"processed\",\"status_details\":null}");
}

void file_deleted_put(struct str id, struct buf *out) {
    buf_put_text(out, "{\"id\":");
    buf_put_json_string(out, id);
    buf_put_text(out, ",\"object\":\"file\",\"deleted\":true}");
}
