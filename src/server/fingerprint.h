/* server/fingerprint.h - the name of everything that an answer's bits depend on besides the
 * request: "fp_" and twelve digits (OpenAI's system_fingerprint).
 *
 * Of the weights a sample is read, so that a start stays fast: the middle of every tensor (of 1,024
 * of them, if there are more), and the names, types and shapes of all tensors and the model's
 * metadata. Two models that differ only elsewhere have the same fingerprint.
 *
 * Thread: any. fingerprint_file reads up to 4 MiB of the model's file: not on the I/O thread.
 */
#ifndef SERVER_FINGERPRINT_H
#define SERVER_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct model_file;

enum { FINGERPRINT_BYTES = 24 };

uint64_t fingerprint_file(const struct model_file *f);

struct fingerprint_parts {
    uint64_t file_hash;       /* fingerprint_file */
    struct str chat_template; /* empty: none */
    const char *device;       /* name; "none" if nothing is computed */
    const char *weights;      /* --weights */
    const char *tool_form;    /* --tool-form */
    unsigned kv_type, ctx_tokens;
    bool is_sim, special_in_content, forced_text;
};
void fingerprint_make(const struct fingerprint_parts *p, char out[FINGERPRINT_BYTES]);

#endif
