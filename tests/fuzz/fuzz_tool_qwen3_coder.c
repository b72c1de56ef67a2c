/* fuzz/fuzz_tool_qwen3_coder.c - use_tools.h with the form qwen3_coder. */
#include "fuzz/use_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_tools(tool_form_find("qwen3_coder"), data, size);
    return 0;
}
