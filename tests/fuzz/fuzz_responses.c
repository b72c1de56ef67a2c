/* fuzz/fuzz_responses.c - the body of /v1/responses, as an attacker would write it; see
 * fuzz/use_peer.h. */
#include "fuzz/use_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_peer(codec_find("openai.responses"), (struct str){(const char *)data, size});
    return 0;
}
