/* tests/fuzz/fuzz_grammar_parts.c - any bytes as a source of this kind, see use_grammar.h. */
#include <stddef.h>
#include <stdint.h>

#include "fuzz/use_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_grammar(GRAMMAR_PARTS, data, size);
}
