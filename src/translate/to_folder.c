/* translate/to_folder.c - see translate/translate.h for the contract of translate_to_folder. */
#include "base/buf.h"
#include "base/check.h"
#include "format/model_file.h"
#include "format/view.h"
#include "model/arch.h"
#include "text/tokenizer.h"
#include "translate/check.h"
#include "translate/translate.h"
#include "translate/translate_int.h"

enum { TEXT_BYTES_MAX = 1 << 29, TEXTS = 5 };

/* Mistral and Mixtral are llama in a GGUF, with a window or experts. */
static const char *folder_arch(const struct model *m) {
    if (m->hp.rope.style != ROPE_ADJACENT) return m->arch->hf;
    return m->hp.experts ? "mixtral" : m->hp.window ? "mistral" : "llama";
}

static enum status open_base(struct to_folder *f) {
    if (tensor_count(f->gguf) == 0)
        return err_set(f->err, ST_BAD, "%s: has no tensors, so there is nothing to translate",
                       model_file_path(f->gguf));
    TRY(model_open(f->gguf, &(struct model_options){0}, &f->model, f->err));
    f->arch = arch_find(folder_arch(f->model), true);
    CHECK(f->arch);
    if (f->arch->encoder)
        return err_set(f->err, ST_BAD, "%s: a GGUF of architecture %s cannot become a folder yet",
                       model_file_path(f->gguf), f->model->arch->name);
    return tokenizer_create(f->gguf, &f->tokenizer, f->err);
}

static enum status put_template(const struct to_folder *f, struct buf *out) {
    buf_put_str(out, tokenizer_chat_template(f->tokenizer, false));
    return ST_OK;
}

static const struct {
    const char *name;
    enum status (*put)(const struct to_folder *f, struct buf *out);
} text_rows[TEXTS] = {
    {"config.json", folder_put_config},
    {"generation_config.json", folder_put_generation},
    {"tokenizer.json", folder_put_tokenizer},
    {"tokenizer_config.json", folder_put_tokenizer_config},
    {"chat_template.jinja", put_template}, /* last: it may be empty, and is left out then */
};

static enum status put_texts(struct to_folder *f, struct buf bufs[TEXTS]) {
    struct view_text texts[TEXTS];
    size_t count = 0;
    for (; count < TEXTS; count++) {
        struct buf *out = &bufs[count];
        TRY(text_rows[count].put(f, out));
        enum status st = buf_status(out);
        if (st != ST_OK)
            return err_set(f->err, st, "%s: out of memory for %s", model_file_path(f->gguf),
                           text_rows[count].name);
        if (out->len == 0) break;
        texts[count] = (struct view_text){text_rows[count].name, buf_str(out)};
    }
    return view_open_folder(f->gguf, texts, count, &f->view, f->err);
}

static enum status make_view(struct to_folder *f) {
    struct buf bufs[TEXTS];
    TRY(open_base(f));
    for (int i = 0; i < TEXTS; i++) buf_init(&bufs[i], TEXT_BYTES_MAX);
    enum status st = put_texts(f, bufs);
    for (int i = 0; i < TEXTS; i++) buf_deinit(&bufs[i]);
    TRY(st);
    TRY(folder_add_tensors(f));
    TRY(check_model(f->model, f->view, f->err));
    return check_tokens(f->tokenizer, f->view, f->err);
}

enum status translate_to_folder(struct model_file *gguf, struct model_file **out, struct err *err) {
    CHECK(model_file_kind(gguf) == MODEL_GGUF);
    struct to_folder f = {.gguf = gguf, .err = err};
    enum status st = make_view(&f);
    tokenizer_destroy(f.tokenizer);
    model_close(f.model);
    if (st == ST_OK)
        *out = f.view;
    else
        model_file_close(f.view);
    return st;
}
