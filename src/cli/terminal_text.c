/* cli/terminal_text.c - see cli/terminal_text.h. */
#include "cli/terminal_text.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/utf8.h"

static bool is_control(uint32_t code) {
    if (code == '\n' || code == '\t') return false;
    return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

void terminal_text_put(struct buf *out, struct str text) {
    while (text.len > 0) {
        uint32_t code;
        size_t len = utf8_decode(text, &code);
        if (utf8_is_bad(code))
            for (size_t i = 0; i < len; i++) buf_printf(out, "\\x%02x", (uint8_t)text.ptr[i]);
        else if (is_control(code))
            buf_printf(out, "\\x%02x", (unsigned)code);
        else
            buf_put(out, text.ptr, len);
        text = str_skip(text, len);
    }
}
