/* Goal:   no text of a model can control the terminal it is shown on, and plain text is unchanged.
 * Method: a table of texts with what is shown; then every single byte and every C1 character. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "cli/terminal_text.h"

static const struct {
    const char *text, *shown;
} rows[] = {
    {"plain\n\ttext", "plain\n\ttext"},
    {"", ""},
    {"\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"},
    {"over\rwrite\b", "over\\x0dwrite\\x08"},
    {"\x7f", "\\x7f"},
    {"\xc2\x9b"
     "31m",
     "\\x9b31m"},
    {"\x9b"
     "31m",
     "\\x9b31m"},
    {"\xe2\x82", "\\xe2\\x82"},
    {"h\xc3\xa9 \xf0\x9f\x98\x80 \xc2\xa0.", "h\xc3\xa9 \xf0\x9f\x98\x80 \xc2\xa0."},
};

static void test_controls_are_shown_and_text_is_kept(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, 1000);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        buf_clear(&out);
        terminal_text_put(&out, str_of(rows[i].text));
        assert_string_equal(buf_text(&out), rows[i].shown);
    }
    buf_deinit(&out);
}

/* A family, a heart, a hand, a keycap, a flag of two letters, and one of tags. */
static void test_emoji_are_shown_in_parts(void **state) {
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"a\r\n\x1b[C h\xc3\xa9", "a\r\n\x1b[C h\xc3\xa9"},
        {"\U0001F468\u200D\U0001F469\u200D\U0001F467b", "\U0001F468+\U0001F469+\U0001F467b"},
        {"\u2764\uFE0F", "\u2764 "},
        {"\u2764\uFE0E\u200D", "\u2764 +"},
        {"\U0001F44D\U0001F3FD", "\U0001F44D\u200B\U0001F3FD"},
        {"1\uFE0F\u20E3", "1  "},
        {"\U0001F1E9\U0001F1EA", "\U0001F1E9\U0001F1EA"},
        {"\U0001F3F4\U000E0067\U000E007F", "\U0001F3F4  "},
    };
    struct buf out;
    buf_init(&out, 1000);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buf_clear(&out);
        terminal_text_put_unjoined(&out, str_of(cases[i].text));
        assert_string_equal(buf_text(&out), cases[i].shown);
    }
    buf_deinit(&out);
}

static bool is_harmless(struct str shown) {
    for (size_t i = 0; i < shown.len; i++) {
        uint8_t byte = (uint8_t)shown.ptr[i];
        if (byte == 0x7F || (byte < 0x20 && byte != '\n' && byte != '\t')) return false;
    }
    return utf8_is_valid(shown);
}

static void test_no_byte_and_no_c1_character_passes(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, 1000);
    for (unsigned byte = 0; byte < 256; byte++) {
        const char one = (char)byte, two[] = {(char)0xC2, (char)byte};
        buf_clear(&out);
        terminal_text_put(&out, (struct str){&one, 1});
        assert_true(is_harmless(buf_str(&out)));
        buf_clear(&out);
        terminal_text_put(&out, (struct str){two, 2});
        assert_true(is_harmless(buf_str(&out)));
        if (byte >= 0x80 && byte < 0xA0) assert_int_equal(out.ptr[0], '\\');
    }
    buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_controls_are_shown_and_text_is_kept),
        cmocka_unit_test(test_emoji_are_shown_in_parts),
        cmocka_unit_test(test_no_byte_and_no_c1_character_passes),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
