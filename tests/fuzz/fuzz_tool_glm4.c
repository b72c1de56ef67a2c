/* fuzz/fuzz_tool_glm4.c - use_tools.h with the form glm4. */
#include "fuzz/use_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_tools(tool_form_find("glm4"), data, size);
    return 0;
}
