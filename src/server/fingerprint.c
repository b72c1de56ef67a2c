/* server/fingerprint.c - see server/fingerprint.h. */
#include "server/fingerprint.h"

#include <stdint.h>
#include <stdio.h>
#include <xxhash.h>

#include "format/model_file.h"
#include "tensor/row_source.h"

enum { SAMPLES = 16, SAMPLE_BYTES = 4096 };

static uint64_t add(uint64_t hash, const void *bytes, size_t len) {
    return XXH3_64bits_withSeed(bytes, len, hash);
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

/* The middle of tensors at even distances; of a quantised folder's matrix, of its codes. */
static uint64_t add_samples(uint64_t hash, const struct model_file *f) {
    const size_t count = tensor_count(f);
    for (size_t i = 0; i < SAMPLES && count > 0; i++) {
        const struct tensor_info *t = tensor_at(f, i * (count - 1) / (SAMPLES - 1));
        const struct row_part whole =
            t->source ? t->source->parts[0] : (struct row_part){t->data, t->bytes};
        const size_t len = whole.bytes < SAMPLE_BYTES ? whole.bytes : SAMPLE_BYTES;
        hash = add(hash, (const char *)whole.ptr + (whole.bytes - len) / 2, len);
    }
    return hash;
}

void fingerprint_make(const struct fingerprint_parts *p, char out[FINGERPRINT_BYTES]) {
    char text[256];
    int len = snprintf(text, sizeof(text), "%s %s %s %s %u %u %d %d %d", JITNEY_VERSION, p->device,
                       p->weights, p->tool_form, p->kv_type, p->ctx_tokens, p->is_sim,
                       p->special_in_content, p->forced_text);
    uint64_t hash = add(0, text, len < (int)sizeof(text) ? (size_t)len : sizeof(text) - 1);
    hash = add(hash, p->chat_template.ptr, p->chat_template.len);
    hash = add_shapes(hash, p->file);
    hash = add_samples(hash, p->file);
    snprintf(out, FINGERPRINT_BYTES, "fp_%012llx", (unsigned long long)(hash >> 16));
}
