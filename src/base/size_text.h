/* base/size_text.h - a number of bytes as people write and read it. */
#ifndef BASE_SIZE_TEXT_H
#define BASE_SIZE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum { SIZE_TEXT_BYTES = 24 };

/* "98.4 MB": decimal units, three significant digits. Returns `out`. */
const char *size_text(uint64_t bytes, char out[SIZE_TEXT_BYTES]);

/* "73400320", "70MB", "1.5 GiB": a number, then no unit or one of B, kB, MB, GB, TB (powers of
 * 1,000), KiB, MiB, GiB, TiB (powers of 1,024), in any case. Fractions of a byte are cut off.
 * False: it is something else, or more than 2^63 bytes. */
bool size_parse(struct str text, uint64_t *bytes);

#endif
