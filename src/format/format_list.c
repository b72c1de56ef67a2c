/* format/format_list.c - every kind of model file, in the order in which they are tried. */
#include "format/format_int.h"

extern const struct format format_gguf;
extern const struct format format_hf;

const struct format *const formats[] = {
    &format_gguf,
    &format_hf,
    NULL,
};
