/* translate/check_model.c - see translate/check.h for the contract. */
#include <math.h>
#include <stddef.h>

#include "format/model_file.h"
#include "model/arch.h"
#include "translate/check.h"

/* Numbers of a GGUF are float32, and divisors of frequencies too. */
static const double CLOSE = 1e-6;

struct model_check {
    const struct model *base, *view;
    struct err *err;
};

static const char *kind_of(const struct model *m) {
    return model_file_kind(m->file) == MODEL_GGUF ? "GGUF" : "folder";
}

static enum status say_number(const struct model_check *c, const char *what, double was,
                              double is) {
    return err_set(c->err, ST_BAD,
                   "%s: a %s of architecture %s cannot say this: %s is %.9g, and would be read as "
                   "%.9g",
                   model_file_path(c->base->file), kind_of(c->view), c->view->arch->name, what, was,
                   is);
}

static bool is_close(double a, double b) { return a == b || fabs(a - b) <= CLOSE * fabs(a); }

static enum status check_number(const struct model_check *c, const char *what, double was,
                                double is) {
    return is_close(was, is) ? ST_OK : say_number(c, what, was, is);
}

static enum status check_numbers(const struct model_check *c) {
    const struct hparams *a = &c->base->hp, *b = &c->view->hp;
    const struct {
        const char *what;
        double was, is;
    } rows[] = {
        {"the number of layers", a->layers, b->layers},
        {"the width", a->dim, b->dim},
        {"the number of heads", a->heads, b->heads},
        {"the number of KV heads", a->kv_heads, b->kv_heads},
        {"the width of a head", a->head_dim, b->head_dim},
        {"the inner width", a->ffn, b->ffn},
        {"the size of the vocabulary", a->vocab, b->vocab},
        {"the context", a->ctx_train, b->ctx_train},
        {"the epsilon of norms", (double)a->norm_eps, (double)b->norm_eps},
        {"the scale of attention", (double)a->attn_scale, (double)b->attn_scale},
        {"the soft cap of attention", (double)a->attn_softcap, (double)b->attn_softcap},
        {"the soft cap of logits", (double)a->final_softcap, (double)b->final_softcap},
        {"the scale of embeddings", (double)a->embed_scale, (double)b->embed_scale},
        {"the number of the activation function", a->act, b->act},
        {"the number of experts", a->experts, b->experts},
        {"the number of experts of a token", a->experts ? a->experts_used : 0,
         b->experts ? b->experts_used : 0},
        {"the inner width of experts", a->experts ? a->expert_ffn : 0,
         b->experts ? b->expert_ffn : 0},
        {"whether weights of experts are divided by their sum", a->experts && a->norm_topk,
         b->experts && b->norm_topk},
        {"the number of positions", a->max_positions, b->max_positions},
        {"the kind of pooling", a->pooling, b->pooling},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        TRY(check_number(c, rows[i].what, rows[i].was, rows[i].is));
    return ST_OK;
}

static enum status say_tensors(const struct model_check *c, uint32_t l) {
    return err_set(c->err, ST_BAD,
                   "%s: a %s of architecture %s cannot say this: layer %u has tensors that would "
                   "not be read, or read as others",
                   model_file_path(c->base->file), kind_of(c->view), c->view->arch->name, l);
}

static enum status check_layer(const struct model_check *c, uint32_t l) {
    const struct layer *a = &c->base->layers[l], *b = &c->view->layers[l];
    if (a->slides != b->slides)
        return err_set(c->err, ST_BAD,
                       "%s: a %s of architecture %s cannot say this: layer %u %s, and would be "
                       "read as one that %s",
                       model_file_path(c->base->file), kind_of(c->view), c->view->arch->name, l,
                       a->slides ? "attends over a window" : "attends over all tokens",
                       b->slides ? "attends over a window" : "attends over all tokens");
    if (a->slides) TRY(check_number(c, "the window", c->base->hp.window, c->view->hp.window));
    bool is_same = true;
    for (int i = 0; i < MAT_COUNT; i++) is_same &= !a->mat[i].data == !b->mat[i].data;
    for (int i = 0; i < VEC_COUNT; i++) is_same &= !a->vec[i] == !b->vec[i];
    return is_same ? ST_OK : say_tensors(c, l);
}

static enum status check_freqs(const struct model_check *c, const struct weight *a,
                               const struct weight *b) {
    TRY(check_number(c, "the number of rope's frequencies", a->cols, b->cols));
    for (uint32_t i = 0; i < a->cols; i++) {
        double was = (double)((const float *)a->data)[i], is = (double)((const float *)b->data)[i];
        TRY(check_number(c, "a frequency of rope", was, is));
    }
    return ST_OK;
}

static enum status check_rope(const struct model_check *c) {
    const struct model *a = c->base, *b = c->view;
    bool any_slides = false, any_full = false;
    for (uint32_t l = 0; l < a->hp.layers; l++)
        if (a->layers[l].slides)
            any_slides = true;
        else
            any_full = true;
    if (any_full) {
        TRY(check_freqs(c, a->rope_freqs, b->rope_freqs));
        TRY(check_number(c, "rope's factor", (double)a->rope_factor, (double)b->rope_factor));
    }
    if (!any_slides) return ST_OK;
    TRY(check_freqs(c, a->rope_freqs_local, b->rope_freqs_local));
    return check_number(c, "rope's factor in a window", (double)a->rope_factor_local,
                        (double)b->rope_factor_local);
}

static enum status check_both(const struct model_check *c) {
    TRY(check_numbers(c));
    for (uint32_t l = 0; l < c->base->hp.layers; l++) TRY(check_layer(c, l));
    return c->base->arch->encoder ? ST_OK : check_rope(c);
}

/* Both with sequences of `ctx_tokens`; 0: what the model was made for. */
static enum status check_at(const struct model *base, const struct model_file *view,
                            uint32_t ctx_tokens, struct err *err) {
    const struct model_options options = {.ctx_tokens = ctx_tokens};
    struct model *a = NULL, *b = NULL;
    enum status st = model_open(base->file, &options, &a, err);
    if (st == ST_OK) st = model_open(view, &options, &b, err);
    const struct model_check c = {a, b, err};
    if (st == ST_OK) st = check_both(&c);
    model_close(a);
    model_close(b);
    return st;
}

enum status check_model(const struct model *base, const struct model_file *view, struct err *err) {
    TRY(check_at(base, view, 0, err));
    if (base->arch->encoder) return ST_OK;
    TRY(check_at(base, view, base->hp.rope.original_ctx, err)); /* longrope's short list */
    return check_at(base, view, base->hp.rope.original_ctx + 1, err);
}
