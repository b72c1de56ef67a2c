/* base/size_text.c - see base/size_text.h. */
#include "base/size_text.h"

#include <stdio.h>

const char *size_text(uint64_t bytes, char out[SIZE_TEXT_BYTES]) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    if (bytes < 1000) {
        snprintf(out, SIZE_TEXT_BYTES, "%u B", (unsigned)bytes);
        return out;
    }
    double value = (double)bytes / 1000.0;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000.0;
        unit++;
    }
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, SIZE_TEXT_BYTES, "%.*f %s", digits, value, units[unit]);
    return out;
}
