/* tests/fuzz/fuzz_openai_completions.c - any bytes as the body of a completion. */
#include "fuzz/use_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_codec(codec_find("openai.completions"), data, size);
    return 0;
}
