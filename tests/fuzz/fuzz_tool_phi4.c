/* fuzz/fuzz_tool_phi4.c - use_tools.h with the form phi4. */
#include "fuzz/use_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_tools(tool_form_find("phi4"), data, size);
    return 0;
}
