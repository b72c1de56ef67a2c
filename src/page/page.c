/* page/page.c - see page/page.h. */
#include "page/page.h"

#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "page/page_int.h"

/* Where recording.html has its data. */
static const char DATA[] = "<script type=\"application/json\" id=\"recording\">null</script>";
static const char DATA_BEGIN[] = "<script type=\"application/json\" id=\"recording\">";
static const char DATA_END[] = "</script>";

uint32_t page_count(void) {
    CHECK(page_file_count <= PAGE_FILES_MAX);
    return page_file_count;
}

const struct page_file *page_at(uint32_t i) {
    CHECK(i < page_file_count);
    return &page_files[i];
}

const struct page_file *page_find(struct str name) {
    for (uint32_t i = 0; i < page_file_count; i++)
        if (str_is(name, page_files[i].name)) return &page_files[i];
    return NULL;
}

/* Without '<', the data cannot close its element, whatever a client has called its model. */
static void put_data(struct buf *out, struct str json) {
    while (json.len > 0) {
        const char *at = memchr(json.ptr, '<', json.len);
        const size_t plain = at ? (size_t)(at - json.ptr) : json.len;
        buf_put_str(out, (struct str){json.ptr, plain});
        if (at) buf_put_text(out, "\\u003c");
        json = str_skip(json, plain + (at ? 1 : 0));
    }
}

void page_put_recording(struct str json, struct buf *out) {
    const struct page_file *page = page_find(STR("recording.html"));
    CHECK(page);
    const struct str data = str_of(DATA);
    size_t at = 0;
    while (at < page->bytes.len && !str_starts(str_skip(page->bytes, at), data)) at++;
    CHECK(at < page->bytes.len); /* the build has put it there */
    buf_put_str(out, (struct str){page->bytes.ptr, at});
    buf_put_text(out, DATA_BEGIN);
    put_data(out, json);
    buf_put_text(out, DATA_END);
    buf_put_str(out, str_skip(page->bytes, at + data.len));
}
