/* translate/to_gguf.c - see translate/translate.h for the contract of translate_to_gguf. */
#include <string.h>

#include "base/check.h"
#include "format/gguf_writer.h"
#include "format/model_file.h"
#include "format/view.h"
#include "model/arch.h"
#include "text/tokenizer.h"
#include "translate/check.h"
#include "translate/translate.h"
#include "translate/translate_int.h"

/* Mistral and Mixtral are llama in a GGUF. */
static const char *gguf_arch(const struct arch *arch) {
    static const char *const llamas[] = {"mistral", "mixtral"};
    for (size_t i = 0; i < sizeof(llamas) / sizeof(llamas[0]); i++)
        if (strcmp(arch->hf, llamas[i]) == 0) return "llama";
    return arch->name;
}

bool gguf_has_pairs(const char *arch) { return strcmp(arch, "llama") == 0; }

static enum status open_base(struct to_gguf *g) {
    if (tensor_count(g->folder) == 0 && !model_file_problem(g->folder))
        return err_set(g->err, ST_BAD, "%s: has no tensors, so there is nothing to translate",
                       model_file_path(g->folder));
    TRY(model_open(g->folder, &(struct model_options){0}, &g->model, g->err));
    g->arch = gguf_arch(g->model->arch);
    return tokenizer_create(g->folder, &g->tokenizer, g->err);
}

static enum status make_view(struct to_gguf *g) {
    TRY(open_base(g));
    TRY(gguf_writer_create(&g->writer, g->err));
    TRY(gguf_put_numbers(g));
    TRY(gguf_put_tokens(g));
    TRY(view_open_gguf(g->folder, g->writer, &g->view, g->err));
    TRY(gguf_add_tensors(g));
    TRY(check_model(g->model, g->view, g->err));
    return check_tokens(g->tokenizer, g->view, g->err);
}

enum status translate_to_gguf(struct model_file *folder, struct model_file **out, struct err *err) {
    CHECK(model_file_kind(folder) == MODEL_HF);
    struct to_gguf g = {.folder = folder, .err = err};
    enum status st = make_view(&g);
    gguf_writer_destroy(g.writer);
    tokenizer_destroy(g.tokenizer);
    model_close(g.model);
    if (st == ST_OK)
        *out = g.view;
    else
        model_file_close(g.view);
    return st;
}
