/* server/fingerprint.c - see server/fingerprint.h. */
#include "server/fingerprint.h"

#include <stdint.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/buf.h"
#include "format/model_file.h"
#include "tensor/row_source.h"

enum { SAMPLES_MAX = 1024, SAMPLE_BYTES = 4096, VALUE_BYTES_MAX = 64 << 10 };
/* The system maps aligned pieces of this size when one of their pages is read. */
enum { FAULT_BYTES = 64 << 10 };

static uint64_t add(uint64_t hash, const void *bytes, size_t len) {
    return XXH3_64bits_withSeed(bytes, len, hash);
}

static uint64_t add_facts(uint64_t hash, const struct model_file *f) {
    struct buf text;
    buf_init(&text, VALUE_BYTES_MAX);
    for (size_t i = 0; i < meta_count(f); i++) {
        const struct str key = meta_key(f, i);
        buf_clear(&text);
        meta_put_value(f, i, &text);
        hash = add(hash, key.ptr, key.len);
        hash = add(hash, buf_str(&text).ptr, text.len);
    }
    buf_deinit(&text);
    return hash;
}

static uint64_t add_shapes(uint64_t hash, const struct model_file *f) {
    for (size_t i = 0; i < tensor_count(f); i++) {
        const struct tensor_info *t = tensor_at(f, i);
        const uint64_t facts[] = {(uint64_t)t->type, t->dims[0], t->dims[1],
                                  t->dims[2],        t->dims[3], t->bytes};
        hash = add(hash, t->name.ptr, t->name.len);
        hash = add(hash, facts, sizeof(facts));
    }
    return hash;
}

/* The hash of a sample, whose pages do not stay in the process's memory. */
static uint64_t add_sample(uint64_t hash, const struct model_file *f, const char *bytes,
                           size_t len) {
    const size_t before = (uintptr_t)bytes % FAULT_BYTES;
    hash = add(hash, bytes, len);
    model_file_release(f, bytes - before,
                       (before + len + FAULT_BYTES - 1) / FAULT_BYTES * FAULT_BYTES);
    return hash;
}

/* The middle of each tensor, or of tensors at even distances; of a quantised folder's matrix, of
 * its codes. */
static uint64_t add_samples(uint64_t hash, const struct model_file *f) {
    const size_t count = tensor_count(f), samples = count < SAMPLES_MAX ? count : SAMPLES_MAX;
    for (size_t i = 0; i < samples; i++) {
        const struct tensor_info *t = tensor_at(f, i * count / samples);
        const struct row_part whole =
            t->source ? t->source->parts[0] : (struct row_part){t->data, t->bytes};
        const size_t len = whole.bytes < SAMPLE_BYTES ? whole.bytes : SAMPLE_BYTES;
        hash = add_sample(hash, f, (const char *)whole.ptr + (whole.bytes - len) / 2, len);
    }
    return hash;
}

uint64_t fingerprint_file(const struct model_file *f) {
    return add_samples(add_shapes(add_facts(0, f), f), f);
}

void fingerprint_make(const struct fingerprint_parts *p, char out[FINGERPRINT_BYTES]) {
    char text[256];
    int len = snprintf(text, sizeof(text), "%s %s %s %s %u %u %d %d %d", JITNEY_VERSION, p->device,
                       p->weights, p->tool_form, p->kv_type, p->ctx_tokens, p->is_sim,
                       p->special_in_content, p->forced_text);
    uint64_t hash = add(0, text, len < (int)sizeof(text) ? (size_t)len : sizeof(text) - 1);
    hash = add(hash, p->chat_template.ptr, p->chat_template.len);
    hash = add(hash, &p->file_hash, sizeof(p->file_hash));
    snprintf(out, FINGERPRINT_BYTES, "fp_%012llx", (unsigned long long)(hash >> 16));
}
