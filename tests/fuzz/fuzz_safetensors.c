/* fuzz/fuzz_safetensors.c - a safetensors file that an attacker wrote: opened, then read. */
#include <stddef.h>
#include <stdint.h>

#include "format/format_int.h"
#include "unit/format/use_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    struct model_file *f;
    struct str bytes = {(const char *)data, size};
    if (safetensors_open_memory(bytes, "fuzz", &f, &err) == ST_OK) {
        use_model(f);
        model_file_close(f);
    } else {
        CHECK(is_sentence(&err, "fuzz"));
    }
    return 0;
}
