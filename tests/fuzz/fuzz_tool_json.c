/* fuzz/fuzz_tool_json.c - use_tools.h with the form json. */
#include "fuzz/use_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_tools(tool_form_find("json"), data, size);
    return 0;
}
