/* fuzz/fuzz_tool_llama3.c - use_tools.h with the form llama3. */
#include "fuzz/use_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_tools(tool_form_find("llama3"), data, size);
    return 0;
}
