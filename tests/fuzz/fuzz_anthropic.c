/* fuzz/fuzz_anthropic.c - the body of /v1/messages and its count_tokens, as an attacker would
 * write it; see fuzz/use_peer.h. */
#include "fuzz/use_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_peer(codec_find("anthropic.messages"), (struct str){(const char *)data, size});
    use_peer(codec_find("anthropic.count_tokens"), (struct str){(const char *)data, size});
    return 0;
}
