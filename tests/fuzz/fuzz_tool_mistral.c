/* fuzz/fuzz_tool_mistral.c - use_tools.h with the form mistral. */
#include "fuzz/use_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_tools(tool_form_find("mistral"), data, size);
    return 0;
}
