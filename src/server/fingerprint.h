/* server/fingerprint.h - the name of everything that an answer's bits depend on besides the
 * request: "fp_" and twelve digits (OpenAI's system_fingerprint).
 *
 * Of the weights a sample is read, so that a start stays fast: sixteen places in the file, and the
 * names, types and shapes of all tensors. Two models that differ only elsewhere have the same
 * fingerprint; training changes weights everywhere.
 *
 * Thread: any. Reads up to 64 KiB of the model's file.
 */
#ifndef SERVER_FINGERPRINT_H
#define SERVER_FINGERPRINT_H

#include <stdbool.h>

#include "base/str.h"

struct model_file;

enum { FINGERPRINT_BYTES = 24 };

struct fingerprint_parts {
    const struct model_file *file;
    struct str chat_template; /* empty: none */
    const char *device;       /* name; "none" if nothing is computed */
    const char *weights;      /* --weights */
    const char *tool_form;    /* --tool-form */
    unsigned kv_type, ctx_tokens;
    bool is_sim, special_in_content, forced_text;
};
void fingerprint_make(const struct fingerprint_parts *p, char out[FINGERPRINT_BYTES]);

#endif
