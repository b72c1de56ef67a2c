/* base/size_text.h - a number of bytes for people. */
#ifndef BASE_SIZE_TEXT_H
#define BASE_SIZE_TEXT_H

#include <stdint.h>

enum { SIZE_TEXT_BYTES = 24 };

/* "98.4 MB": decimal units, three significant digits. Returns `out`. */
const char *size_text(uint64_t bytes, char out[SIZE_TEXT_BYTES]);

#endif
