/* format/view.c - see format/view.h for the contract. */
#include "format/view.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "format/format_int.h"
#include "format/gguf_writer.h"
#include "format/limits.h"

enum { HEAD_BYTES_MAX = 1 << 30 };

enum status view_open_gguf(const struct model_file *base, const struct gguf_writer *w,
                           struct model_file **out, struct err *err) {
    struct buf head;
    size_t len = 0;
    buf_init(&head, HEAD_BYTES_MAX);
    gguf_writer_put_head(w, &head);
    char *bytes = buf_take(&head, &len);
    if (!bytes) {
        buf_deinit(&head);
        return no_memory(base->path, err);
    }
    enum status st = gguf_open_memory((struct str){bytes, len}, base->path, out, err);
    if (st != ST_OK) {
        mem_free(bytes);
        return st;
    }
    (*out)->base = base;
    (*out)->head = bytes;
    return ST_OK;
}

enum status view_open_folder(const struct model_file *base, const struct view_text *texts,
                             size_t count, struct model_file **out, struct err *err) {
    struct model_file *f = model_file_create(&format_hf, base->path);
    if (!f) return no_memory(base->path, err);
    f->base = base;
    enum status st = ST_OK;
    for (size_t i = 0; i < count && st == ST_OK; i++)
        st = model_file_put_text(f, texts[i].name, texts[i].text, err);
    if (st == ST_OK) st = hf_read_texts(f, err);
    if (st == ST_OK)
        *out = f;
    else
        model_file_close(f);
    return st;
}

struct arena *view_arena(struct model_file *view) {
    CHECK(view->base);
    return view->arena;
}

enum status view_add(struct model_file *view, const struct tensor_info *t, struct err *err) {
    CHECK(view->base);
    CHECK(t->data || t->source);
    if (view->tensor_count == view->tensor_cap)
        TRY(model_file_reserve(view, view->path, view->tensor_count ? view->tensor_count : 64,
                               err));
    return model_file_add(view, view->path, t, err);
}

/* A name that was asked for and is none of the files has an entry without a text. */
static const struct beside *text_entry(const struct model_file *view, size_t wanted,
                                       size_t *count) {
    size_t at = 0;
    const struct beside *found = NULL;
    for (size_t i = 0; i < view->beside_count; i++) {
        if (!view->beside[i].text) continue;
        if (at++ == wanted) found = &view->beside[i];
    }
    *count = at;
    return found;
}

size_t view_text_count(const struct model_file *view) {
    size_t count;
    text_entry(view, 0, &count);
    return count;
}

struct view_text view_text_at(const struct model_file *view, size_t i) {
    size_t count;
    const struct beside *b = text_entry(view, i, &count);
    CHECK(b);
    return (struct view_text){b->name, {b->text, b->text_len}};
}
