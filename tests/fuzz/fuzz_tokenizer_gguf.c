/* fuzz/fuzz_tokenizer_gguf.c - the vocabulary of a GGUF that an attacker wrote, and a text. The
 * input is a u32 with the length of the file (little-endian), the file, the text. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cursor.h"
#include "format/format_int.h"
#include "fuzz/use_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cursor c = cursor_of(data, size);
    uint32_t len = cursor_u32(&c);
    if (c.failed || len > cursor_left(&c)) return 0;
    struct str file = cursor_bytes(&c, len), text = cursor_bytes(&c, cursor_left(&c));
    struct model_file *f;
    struct tokenizer *t = NULL;
    struct err err = {0};
    if (gguf_open_memory(file, "fuzz", &f, &err) != ST_OK) return 0;
    if (tokenizer_create(f, &t, &err) == ST_OK)
        use_tokenizer(t, text);
    else
        CHECK(strncmp(err.text, "fuzz", 4) == 0);
    tokenizer_destroy(t);
    model_file_close(f);
    return 0;
}
