/* cli/layer_kl.c - see cli/layer_kl.h for the contract; the drawing is in cli/layer_kl_svg.c. */
#include "cli/layer_kl.h"

#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "cli/generated.h"
#include "engine/loaded_model.h"
#include "engine/window_kl.h"
#include "model/arch.h"

struct run {
    struct layer_kl *k;
    struct loaded_model *a, *b;
    struct window_kl *windows;
};

/* ---- are they the same but for the numbers? ---- */

static enum status say_other(const char *what, uint32_t a, uint32_t b, struct err *err) {
    return err_set(err, ST_BAD,
                   "--svg: the models differ in %s, %u and %u; layers can be exchanged between "
                   "models of one shape only",
                   what, a, b);
}

static enum status check_shapes(const struct model *a, const struct model *b, struct err *err) {
    const struct hparams *x = &a->hp, *y = &b->hp;
    const struct {
        const char *what;
        uint32_t a, b;
    } rows[] = {{"layers", x->layers, y->layers},
                {"width", x->dim, y->dim},
                {"heads", x->heads, y->heads},
                {"KV heads", x->kv_heads, y->kv_heads},
                {"head width", x->head_dim, y->head_dim},
                {"feed-forward width", x->ffn, y->ffn},
                {"experts", x->experts, y->experts},
                {"experts used", x->experts_used, y->experts_used},
                {"expert width", x->expert_ffn, y->expert_ffn},
                {"vocabulary", x->vocab, y->vocab},
                {"KV groups", a->kv_group_count, b->kv_group_count}};
    if (a->arch != b->arch)
        return err_set(err, ST_BAD,
                       "--svg: the architectures differ, %s and %s; layers can be exchanged "
                       "between models of one shape only",
                       a->arch->name, b->arch->name);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].a != rows[i].b) return say_other(rows[i].what, rows[i].a, rows[i].b, err);
    if (x->rope.style == y->rope.style) return ST_OK;
    return err_set(err, ST_BAD,
                   "--svg: the rows of the query and key matrices have different orders, because "
                   "one model is a GGUF file and the other a folder; write the folder as a GGUF "
                   "file with \"jitney quantize --type F16\" and compare that");
}

enum status layer_kl_check(const struct loaded_model *a, const struct loaded_model *b,
                           struct err *err) {
    if (!str_starts(str_of(a->device.name), STR("cpu")))
        return err_set(err, ST_BAD, "--svg needs the CPU, this is %s; give --device cpu",
                       a->device.name);
    return check_shapes(a->model, b->model, err);
}

/* ---- exchanging ---- */

/* Where a layer's keys are kept, and how they are smoothed, stays A's. */
static struct layer layer_of_both(const struct layer *a, const struct layer *b) {
    struct layer both = *b;
    both.smoothing = a->smoothing;
    both.slides = a->slides;
    both.kv_group = a->kv_group;
    both.kv_layer = a->kv_layer;
    return both;
}

static enum status measure_layer(struct run *r, uint32_t i, struct err *err) {
    struct layer *own = &r->a->model->layers[i], saved = *own;
    *own = layer_of_both(own, &r->b->model->layers[i]);
    enum status st = window_kl_measure(r->windows, &r->k->layers[i], err);
    *own = saved;
    return st;
}

static enum status measure_ends(struct run *r, bool embedding, bool output, double *kl,
                                struct err *err) {
    struct model *a = r->a->model, saved = *a;
    const struct model *b = r->b->model;
    if (embedding) {
        a->token_embd = b->token_embd;
        a->embd_norm = b->embd_norm;
        a->embd_norm_bias = b->embd_norm_bias;
    }
    if (output) {
        a->own_head = b->own_head;
        a->head = b->head == &b->token_embd ? &a->token_embd : &a->own_head;
        a->final_norm = b->final_norm;
    }
    enum status st = window_kl_measure(r->windows, kl, err);
    *a = saved;
    return st;
}

static void show_progress(uint32_t done, uint32_t count) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[K%u of %u layers", done, count);
    if (done == count) fprintf(stderr, "\r\033[K");
}

static bool is_tied(const struct model *m) { return m->head == &m->token_embd; }

static enum status measure_all(struct run *r, struct err *err) {
    struct layer_kl *k = r->k;
    k->layer_count = r->a->model->hp.layers;
    k->is_tied = is_tied(r->a->model) || is_tied(r->b->model);
    k->layers = mem_zalloc_array(k->layer_count, sizeof(k->layers[0]));
    if (!k->layers) return err_set(err, ST_NOMEM, "out of memory for %u layers", k->layer_count);
    if (!k->is_tied) TRY(measure_ends(r, true, false, &k->embedding_kl, err));
    TRY(measure_ends(r, k->is_tied, true, &k->output_kl, err));
    for (uint32_t i = 0; i < k->layer_count; i++) {
        TRY(measure_layer(r, i, err));
        show_progress(i + 1, k->layer_count);
    }
    return ST_OK;
}

enum status layer_kl_measure(struct layer_kl *k, struct loaded_model *a, struct loaded_model *b,
                             const struct layer_kl_options *o, struct err *err) {
    struct run r = {.k = k, .a = a, .b = b};
    TRY(layer_kl_check(a, b, err));
    struct window_kl_options options = {.kv_type = o->kv_type, .threads = o->threads};
    window_kl_spread(&o->text, LAYER_KL_WINDOWS, LAYER_KL_TOKENS, &options);
    options.first = options.window_tokens / 2;
    TRY(window_kl_create(a, &options, &r.windows, err));
    enum status st = measure_all(&r, err);
    window_kl_destroy(r.windows);
    return st;
}

void layer_kl_deinit(struct layer_kl *k) {
    mem_free(k->layers);
    *k = (struct layer_kl){0};
}

static void put_part(struct buf *out, const char *part, double kl) {
    buf_printf(out, "{\"part\":\"%s\",\"kl\":", part);
    put_json_number(out, kl);
    buf_put_char(out, '}');
}

void layer_kl_put_json(const struct layer_kl *k, struct buf *out) {
    buf_put_char(out, '[');
    if (!k->is_tied) {
        put_part(out, "embedding", k->embedding_kl);
        buf_put_char(out, ',');
    }
    for (uint32_t i = 0; i < k->layer_count; i++) {
        buf_printf(out, "{\"part\":\"layer\",\"layer\":%u,\"kl\":", i);
        put_json_number(out, k->layers[i]);
        buf_put_text(out, "},");
    }
    put_part(out, k->is_tied ? "embedding and output" : "output", k->output_kl);
    buf_put_char(out, ']');
}
