/* fuzz/fuzz_gguf.c - a GGUF file that an attacker wrote: opened, then read to the last fact. */
#include <stddef.h>
#include <stdint.h>

#include "format/format_int.h"
#include "unit/format/use_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    struct model_file *f;
    enum status st = gguf_open_memory((struct str){(const char *)data, size}, "fuzz", &f, &err);
    if (st == ST_OK) {
        use_model(f);
        model_file_close(f);
    } else {
        CHECK(is_sentence(&err, "fuzz"));
    }
    return 0;
}
