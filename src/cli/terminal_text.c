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

enum { JOINER = 0x200D, KEYCAP = 0x20E3 };

static bool is_skin_tone(uint32_t code) { return code >= 0x1F3FB && code <= 0x1F3FF; }

bool terminal_text_has_column(uint32_t code) {
    const bool is_selector = code == 0xFE0E || code == 0xFE0F;
    const bool is_tag = code >= 0xE0020 && code <= 0xE007F;
    return code == JOINER || code == KEYCAP || is_selector || is_tag;
}

void terminal_text_put_unjoined(struct buf *out, struct str text) {
    while (text.len > 0) {
        uint32_t code;
        size_t len = utf8_decode(text, &code);
        if (is_skin_tone(code)) buf_put_text(out, "\xE2\x80\x8B"); /* a space without width */
        if (terminal_text_has_column(code))
            buf_put_char(out, code == JOINER ? '+' : ' ');
        else
            buf_put(out, text.ptr, len);
        text = str_skip(text, len);
    }
}
