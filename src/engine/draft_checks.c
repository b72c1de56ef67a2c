/* engine/draft_checks.c - see engine/draft_checks.h for the contract. */
#include "engine/draft_checks.h"

#include <string.h>

#include "base/cgroup.h"
#include "base/check.h"
#include "base/file.h"
#include "base/str.h"
#include "base/utf8.h"
#include "engine/draft_model.h"
#include "text/tokenizer.h"

enum {
    KV_SHARE = 4,  /* of the memory beside the weights, this part for keys and values */
    TEXT_MAX = 40, /* bytes of a token in a message */
};

static unsigned long long mib(uint64_t bytes) { return (unsigned long long)(bytes >> 20); }

/* ---- the vocabulary ---- */

static int shown_len(struct str text) {
    return (int)(text.len <= TEXT_MAX ? text.len : utf8_complete_len(str_take(text, TEXT_MAX)));
}

enum status draft_checks_vocab(const struct tokenizer *target, const struct tokenizer *draft,
                               struct err *err) {
    uint32_t ours = tokenizer_vocab(target), theirs = tokenizer_vocab(draft);
    for (uint32_t i = 0; i < ours && i < theirs; i++) {
        struct str a = tokenizer_piece(target, (int32_t)i);
        struct str b = tokenizer_piece(draft, (int32_t)i);
        if (a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0)) continue;
        return err_set(err, ST_BAD,
                       "the draft model has another vocabulary: token %u is \"%.*s\", in the model "
                       "that it drafts for it is \"%.*s\"; use a draft model of the same family",
                       i, shown_len(b), b.ptr ? b.ptr : "", shown_len(a), a.ptr ? a.ptr : "");
    }
    return ST_OK;
}

static enum status check_vocab(const struct loaded_model *target, const struct loaded_model *draft,
                               struct err *err) {
    uint32_t ours = target->model->hp.vocab, theirs = draft->model->hp.vocab;
    if (target->tokenizer && draft->tokenizer)
        return draft_checks_vocab(target->tokenizer, draft->tokenizer, err);
    if (ours == theirs) return ST_OK;
    return err_set(err, ST_BAD,
                   "the draft model has another vocabulary: %u tokens, the model that it drafts "
                   "for has %u; use a draft model of the same family",
                   theirs, ours);
}

/* ---- memory ---- */

static uint64_t read_available(void) {
    enum { MEMINFO_BYTES = 4096 };
    char storage[MEMINFO_BYTES];
    struct str text;
    uint64_t kib;
    if (file_read_short("/proc/meminfo", storage, sizeof(storage), &text) != ST_OK)
        return UINT64_MAX;
    while (text.len > 0) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        struct str line = str_take(text, len), name = STR("MemAvailable:");
        text = str_skip(text, end ? len + 1 : len);
        if (!str_starts(line, name)) continue;
        line = str_trim(str_skip(line, name.len));
        const char *unit = memchr(line.ptr, ' ', line.len);
        if (unit) line = str_take(line, (size_t)(unit - line.ptr));
        return str_to_u64(line, &kib) ? kib << 10 : UINT64_MAX;
    }
    return UINT64_MAX;
}

uint64_t draft_checks_free_bytes(void) {
    const uint64_t machine = read_available(), container = cgroup_memory_left("");
    return machine < container ? machine : container;
}

static enum status add_bytes(void *ctx, struct weight *w, struct err *err) {
    (void)err;
    *(uint64_t *)ctx += w->bytes;
    return ST_OK;
}

static uint64_t free_bytes(const struct loaded_model *target, const struct draft_model_options *o) {
    const struct device *dev = &target->device;
    if (o->memory_bytes > 0) return o->memory_bytes;
    return dev->memory ? dev->memory(dev->self).free_bytes : draft_checks_free_bytes();
}

static enum status size_up(struct loaded_model *draft, const struct loaded_model *target,
                           const struct draft_model_options *o, struct draft_needs *n,
                           struct err *err) {
    uint64_t room = free_bytes(target, o), least;
    n->ctx_tokens = draft->ctx_tokens;
    n->lane_blocks = (n->ctx_tokens + o->block_tokens - 1) / o->block_tokens;
    n->lane_bytes = n->weight_bytes = 0;
    for (uint32_t g = 0; g < draft->model->kv_group_count; g++)
        n->lane_bytes += n->lane_blocks * (uint64_t)loaded_model_kv_block_bytes(
                                              draft, o->load.kv_type, o->block_tokens, g);
    TRY(model_each_weight(draft->model, add_bytes, &n->weight_bytes, err));
    CHECK(n->lane_bytes > 0);
    least = n->weight_bytes + n->lane_bytes;
    if (least > room)
        return err_set(err, ST_NOMEM,
                       "the draft model needs %llu MiB (weights %llu, keys and values of one "
                       "sequence of %u tokens %llu), but %llu MiB are free; use a smaller draft "
                       "model or a lower --ctx",
                       mib(least), mib(n->weight_bytes), n->ctx_tokens, mib(n->lane_bytes),
                       mib(room));
    uint64_t fit = (room - n->weight_bytes) / KV_SHARE / n->lane_bytes;
    n->lanes = o->lanes > 0 ? o->lanes : DRAFT_LANES_DEFAULT;
    if (n->lanes > fit) n->lanes = fit > 0 ? (uint32_t)fit : 1;
    if (n->lanes > o->seq_max) n->lanes = o->seq_max;
    return ST_OK;
}

/* ---- all of it ---- */

static enum status check_kind(const struct loaded_model *draft, const char *path, struct err *err) {
    if (!model_is_encoder(draft->model)) return ST_OK;
    return err_set(err, ST_BAD,
                   "%s is an encoder: it gives embeddings and generates no text, so it cannot "
                   "draft; use a small model of the same family as the one that it drafts for",
                   path);
}

static enum status check(struct loaded_model *draft, const char *path,
                         const struct loaded_model *target, const struct draft_model_options *o,
                         struct draft_needs *out, struct err *err) {
    TRY(check_kind(draft, path, err));
    TRY(check_vocab(target, draft, err));
    return size_up(draft, target, o, out, err);
}

enum status draft_checks_run(const char *path, const struct loaded_model *target,
                             const struct draft_model_options *options, struct draft_needs *out,
                             struct err *err) {
    struct loaded_model draft;
    struct loaded_model_options load = options->load;
    load.no_weights = true;
    load.tokens_only = target->tokenizer == NULL;
    load.ctx_tokens = target->ctx_tokens;
    load.block_tokens = 0;
    load.on_progress = NULL;
    TRY(loaded_model_open(&draft, path, &load, err));
    const struct hparams *hp = &draft.model->hp;
    if (hp->ctx_train > 0 && draft.ctx_tokens > hp->ctx_train) draft.ctx_tokens = hp->ctx_train;
    enum status st = check(&draft, path, target, options, out, err);
    loaded_model_close(&draft);
    return st;
}
