/* embed/struct_copy.c - see embed/struct_copy.h for the contract. */
#include "embed/struct_copy.h"

#include <string.h>

void struct_copy(void *out, size_t out_bytes, const void *in, size_t in_bytes) {
    memcpy(out, in, in_bytes < out_bytes ? in_bytes : out_bytes);
    if (out_bytes >= sizeof(out_bytes)) memcpy(out, &out_bytes, sizeof(out_bytes));
}
