/* tests/fuzz/fuzz_openai_chat.c - any bytes as the body of a chat completion. */
#include "fuzz/use_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_codec(codec_find("openai.chat"), data, size);
    return 0;
}
