/* fuzz/fuzz_ollama.c - the bodies of /api/chat and /api/generate as an attacker would write them;
 * see fuzz/use_peer.h. The first byte chooses. */
#include "fuzz/use_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *name = data[0] & 1 ? "ollama.generate" : "ollama.chat";
    use_peer(codec_find(name), (struct str){(const char *)data + 1, size - 1});
    return 0;
}
