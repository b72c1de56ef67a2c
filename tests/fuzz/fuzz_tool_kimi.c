/* fuzz/fuzz_tool_kimi.c - use_tools.h with the form kimi. */
#include "fuzz/use_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_tools(tool_form_find("kimi"), data, size);
    return 0;
}
