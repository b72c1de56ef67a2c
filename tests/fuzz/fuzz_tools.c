/* fuzz/fuzz_tools.c - use_tools.h with every form; the first byte chooses it. fuzz_tool_X.c has one
 * form each. */
#include "fuzz/use_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t count = 0;
    while (tool_forms[count]) count++;
    if (size > 0) use_tools(tool_forms[data[0] % count], data + 1, size - 1);
    return 0;
}
