/* fuzz/fuzz_quant.c - a quantised folder that an attacker wrote: config.json up to the first line
 * feed, then the safetensors file. Opened, its matrices put together and rows of them made. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "format/quant.h"
#include "unit/format/use_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_problem(struct model_file *f) {
    struct err err = {0};
    if (!model_file_problem(f)) return;
    snprintf(err.text, sizeof(err.text), "%s", model_file_problem(f));
    CHECK(is_sentence(&err, "fuzz"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    struct model_file *f;
    struct json *config;
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    if (!end) return 0;
    struct str text = {(const char *)data, (size_t)(end - data)};
    struct str bytes = {(const char *)end + 1, size - text.len - 1};
    if (json_parse(text, &json_limits_model_file, &config, &err) != ST_OK) return 0;
    if (safetensors_open_memory(bytes, "fuzz", &f, &err) == ST_OK) {
        if (quant_apply(f, config, &err) == ST_OK) {
            use_problem(f);
            use_model(f);
        } else {
            CHECK(is_sentence(&err, "fuzz"));
        }
        model_file_close(f);
    }
    json_destroy(config);
    return 0;
}
