/* fuzz/fuzz_translate.c - a GGUF that an attacker wrote, seen as a folder, and that as a GGUF. */
#include <stddef.h>
#include <stdint.h>

#include "format/format_int.h"
#include "translate/translate.h"
#include "unit/format/use_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void translate(struct model_file *f) {
    struct model_file *folder, *again;
    struct err err = {0};
    if (translate_to_folder(f, &folder, &err) != ST_OK) {
        CHECK(err.text[0]);
        return;
    }
    use_model(folder);
    if (translate_to_gguf(folder, &again, &err) == ST_OK) {
        use_model(again);
        model_file_close(again);
    } else {
        CHECK(err.text[0]);
    }
    model_file_close(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_file *f;
    struct str bytes = {(const char *)data, size};
    if (gguf_open_memory(bytes, "fuzz", &f, NULL) != ST_OK) return 0;
    translate(f);
    model_file_close(f);
    return 0;
}
