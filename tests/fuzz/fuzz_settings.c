/* tests/fuzz/fuzz_settings.c - any bytes as a config file.
 *
 * What is accepted is printed, read and printed again: the same values must come out. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "config/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PRINTED_BYTES_MAX = 1 << 24 };

/* Print, and read what was printed into `out`. */
static void print_and_read(const struct settings *s, struct buf *printed, struct settings *out) {
    settings_print(s, printed);
    if (buf_status(printed) != ST_OK || settings_init(out) != ST_OK) abort();
    if (settings_read_text(out, buf_str(printed), "printed", NULL) != ST_OK) abort();
}

static void check(const struct settings *s) {
    struct settings second, third;
    struct buf a, b, c;
    buf_init(&a, PRINTED_BYTES_MAX);
    buf_init(&b, PRINTED_BYTES_MAX);
    buf_init(&c, PRINTED_BYTES_MAX);
    print_and_read(s, &a, &second);
    print_and_read(&second, &b, &third);
    settings_print(&third, &c);
    if (strcmp(buf_text(&b), buf_text(&c)) != 0) abort();
    settings_deinit(&second);
    settings_deinit(&third);
    buf_deinit(&a);
    buf_deinit(&b);
    buf_deinit(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct settings s;
    struct err err = {0};
    if (settings_init(&s) != ST_OK) abort();
    enum status st = settings_read_text(&s, (struct str){(const char *)data, size}, "f", &err);
    if (st == ST_OK)
        check(&s);
    else if (st != ST_BAD || !err.text[0])
        abort();
    settings_deinit(&s);
    return 0;
}
