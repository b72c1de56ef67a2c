/* Goal:   logits of given tokens, for a comparison with another program
 *         (tests/gpu/transformers_compare.py).
 * Method: --model names the model, --tokens a file of int32: the number of sequences, the length of
 *         each, how many of its last positions are wanted, then the ids. --out receives float32
 *         rows: the logits of those positions, or one vector for each sequence of an encoder. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "check.h"
#include "reference/forward.h"

enum { HEAD_NUMBERS = 3, SEQS_MAX = 4096, TOKENS_MAX = 1 << 20 };

struct given {
    int32_t seqs, tokens, wanted;
    int32_t *ids;
};

struct writer {
    FILE *out;
    uint32_t first; /* positions before it are not written */
    uint32_t width;
    bool is_fine;
};

static bool read_given(const char *path, struct given *g) {
    int32_t head[HEAD_NUMBERS] = {0};
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    bool is_fine = fread(head, sizeof(head), 1, f) == 1;
    *g = (struct given){.seqs = head[0], .tokens = head[1], .wanted = head[2]};
    is_fine = is_fine && g->seqs > 0 && g->seqs <= SEQS_MAX && g->tokens > 0 &&
              g->tokens <= TOKENS_MAX && g->wanted > 0 && g->wanted <= g->tokens;
    size_t count = is_fine ? (size_t)g->seqs * (size_t)g->tokens : 0;
    g->ids = mem_alloc_array(count + 1, sizeof(g->ids[0]));
    CHECK(g->ids);
    is_fine = is_fine && fread(g->ids, sizeof(g->ids[0]), count, f) == count;
    fclose(f);
    return is_fine;
}

static enum status write_rows(void *ctx, uint32_t first, uint32_t count, const float *rows) {
    struct writer *w = ctx;
    uint32_t skipped = first < w->first ? w->first - first : 0;
    if (skipped >= count) return ST_OK;
    size_t floats = (size_t)(count - skipped) * w->width;
    const float *from = rows + (size_t)skipped * w->width;
    w->is_fine = w->is_fine && fwrite(from, sizeof(float), floats, w->out) == floats;
    return ST_OK;
}

static enum status run_one(struct forward *e, const struct given *g, const int32_t *ids,
                           struct writer *w, struct err *err) {
    if (!forward_is_encoder(e)) {
        w->width = forward_vocab(e);
        w->first = (uint32_t)(g->tokens - g->wanted);
        return forward_logits(e, ids, (uint32_t)g->tokens, write_rows, w, err);
    }
    w->width = forward_embed_dims(e);
    w->first = 0;
    float *vector = mem_alloc_array(w->width, sizeof(float));
    CHECK(vector);
    enum status st = forward_embed(e, ids, (uint32_t)g->tokens, vector, err);
    if (st == ST_OK) st = write_rows(w, 0, 1, vector);
    mem_free(vector);
    return st;
}

static enum status run_all(const struct checks *c, const struct given *g, struct writer *w,
                           struct err *err) {
    const struct forward_options o = {.threads = 1,
                                      .ctx_tokens = (uint32_t)g->tokens,
                                      .chunk_tokens = c->chunk,
                                      .kv_type = KV_F16,
                                      .device = c->device,
                                      .tokens_only = true};
    struct forward *e = NULL;
    enum status st = forward_open(c->model, &o, &e, err);
    for (int32_t i = 0; i < g->seqs && st == ST_OK; i++)
        st = run_one(e, g, g->ids + (size_t)i * (size_t)g->tokens, w, err);
    forward_close(e);
    return st;
}

void suite_logits(struct checks *c) {
    struct given g = {0};
    struct err err = {{0}};
    bool is_given = c->model && c->tokens && c->out;
    check_that(c, is_given, "logits needs --model, --tokens and --out");
    if (!is_given) return;
    bool is_read = read_given(c->tokens, &g);
    check_that(c, is_read, "%s cannot be read", c->tokens);
    struct writer w = {.out = is_read ? fopen(c->out, "wb") : NULL, .is_fine = true};
    if (w.out) {
        enum status st = run_all(c, &g, &w, &err);
        check_that(c, st == ST_OK, "%s: %s", c->model, err.text);
        w.is_fine = fclose(w.out) == 0 && w.is_fine;
    }
    check_that(c, w.out && w.is_fine, "%s cannot be written", c->out);
    mem_free(g.ids);
}
