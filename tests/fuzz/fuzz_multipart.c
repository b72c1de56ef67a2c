/* tests/fuzz/fuzz_multipart.c - any bytes as a form. The first line is the Content-Type, the rest
 * is the body. Data are slices of the body, in its order; names are text. */
#include <string.h>

#include "api/file_objects.h"
#include "api/multipart.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_parts(const struct multipart *form, struct str body) {
    const char *at = body.ptr;
    CHECK(form->count <= MULTIPART_PARTS_MAX);
    for (uint32_t i = 0; i < form->count; i++) {
        const struct multipart_part *p = &form->parts[i];
        CHECK(p->data.ptr >= at);
        CHECK(p->data.ptr + p->data.len <= body.ptr + body.len);
        CHECK(memchr(p->name, 0, sizeof(p->name)));
        CHECK(memchr(p->filename, 0, sizeof(p->filename)));
        CHECK(!strpbrk(p->filename, "/\\\n"));
        CHECK(multipart_find(form, p->name));
        at = p->data.ptr + p->data.len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct multipart form;
    struct file_upload upload;
    struct api_error e = {0};
    struct str body = {(const char *)data, size};
    const char *end = size ? memchr(data, '\n', size) : NULL;
    if (!end) return 0;
    struct str type = str_take(body, (size_t)(end - body.ptr));
    body = str_skip(body, type.len + 1);
    enum status st = multipart_read(type, body, &form, &e);
    CHECK(st == ST_OK || (e.status == 400 && e.message.text[0]));
    if (st != ST_OK) return 0;
    check_parts(&form, body);
    st = file_upload_read(&form, &upload, &e);
    CHECK(st == ST_OK || (e.status == 400 && e.message.text[0]));
    if (st != ST_OK) return 0;
    CHECK(file_purpose_is_known(upload.purpose));
    CHECK(upload.expires_after_s == 0 || upload.expires_after_s >= EXPIRES_AFTER_MIN_S);
    return 0;
}
