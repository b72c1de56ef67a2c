/* fuzz/fuzz_tool_granite.c - use_tools.h with the form granite. */
#include "fuzz/use_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_tools(tool_form_find("granite"), data, size);
    return 0;
}
