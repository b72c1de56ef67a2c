/* Goal:   the drawing of KL by layer is well-formed XML with a bar for each part, whatever the
 *         names of the models and the numbers are.
 * Method: drawings of few and many layers, of names that XML does not allow as they are; a plain
 *         reader follows the tags. An XML parser reads one in the end-to-end tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "cli/layer_kl.h"

enum { SVG_BYTES_MAX = 1 << 22, DEPTH_MAX = 16, LAYERS_MAX = 200 };

/* Every "<" begins a tag, every tag ends, and ends match their beginnings. */
static void check_tags(struct str s) {
    struct str open[DEPTH_MAX];
    int depth = 0;
    assert_true(utf8_is_valid(s));
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\n') continue;
        assert_true((unsigned char)s.ptr[i] >= 0x20);
        if (s.ptr[i] != '<') continue;
        const char *close = memchr(s.ptr + i, '>', s.len - i);
        assert_non_null(close);
        struct str tag = {s.ptr + i + 1, (size_t)(close - s.ptr) - i - 1};
        assert_null(memchr(tag.ptr, '<', tag.len));
        bool ends = tag.ptr[0] == '/', is_alone = tag.ptr[tag.len - 1] == '/';
        size_t name = 0;
        while (name + ends < tag.len && tag.ptr[name + ends] != ' ') name++;
        struct str word = {tag.ptr + ends, name};
        if (ends) assert_true(depth > 0 && str_eq(open[--depth], word));
        if (!ends && !is_alone) {
            assert_true(depth < DEPTH_MAX);
            open[depth++] = word;
        }
        i = (size_t)(close - s.ptr);
    }
    assert_int_equal(depth, 0);
}

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) count++;
    return count;
}

static void draw(const struct layer_kl *k, const char *a, const char *b, struct buf *out) {
    buf_init(out, SVG_BYTES_MAX);
    layer_kl_put_svg(k, a, b, out);
    buf_put_char(out, '\0');
    assert_int_equal(buf_status(out), ST_OK);
    check_tags((struct str){out->ptr, out->len - 1});
}

static void test_every_part_has_a_bar(void **state) {
    (void)state;
    double layers[LAYERS_MAX];
    for (int i = 0; i < LAYERS_MAX; i++) layers[i] = 1e-4 * i;
    for (uint32_t count = 1; count <= LAYERS_MAX; count += 33) {
        for (int tied = 0; tied < 2; tied++) {
            const struct layer_kl k = {.layers = layers,
                                       .layer_count = count,
                                       .is_tied = tied,
                                       .embedding_kl = 0.5,
                                       .output_kl = 3};
            struct buf b;
            draw(&k, "a", "b", &b);
            assert_int_equal(count_of(b.ptr, "</title></rect>"), count + (tied ? 1 : 2));
            assert_int_equal(count_of(b.ptr, ">embedding and output: 3.000000<"), tied);
            assert_int_equal(count_of(b.ptr, ">embedding: 0.500000<"), !tied);
            buf_deinit(&b);
        }
    }
}

static void test_names_are_escaped(void **state) {
    (void)state;
    double layer = 0.25;
    struct buf b;
    const struct layer_kl k = {.layers = &layer, .layer_count = 1, .is_tied = true};
    draw(&k, "<a & \"b\">", "gr\xc3\xbc\xc3\x9f\x01\n\x7f\xff\xef\xbf\xbf", &b);
    assert_non_null(strstr(b.ptr, "&lt;a &amp; &quot;b&quot;&gt;"));
    assert_non_null(strstr(b.ptr, "gr\xc3\xbc\xc3\x9f?????"));
    assert_null(strstr(b.ptr, "<a &"));
    buf_deinit(&b);
}

static void test_equal_models_have_bars_without_height(void **state) {
    (void)state;
    double layers[2] = {0, 0};
    struct buf b;
    const struct layer_kl k = {.layers = layers, .layer_count = 2};
    draw(&k, "a", "a", &b);
    assert_int_equal(count_of(b.ptr, "height=\"0.0\""), 4);
    assert_null(strstr(b.ptr, "nan"));
    buf_deinit(&b);
}

static void test_an_infinite_divergence_has_the_full_height(void **state) {
    (void)state;
    double layers[2] = {HUGE_VAL, 0.5};
    struct buf b;
    const struct layer_kl k = {.layers = layers, .layer_count = 2};
    draw(&k, "a", "b", &b);
    assert_int_equal(count_of(b.ptr, "height=\"260.0\""), 2);
    assert_int_equal(count_of(b.ptr, ">layer 0: inf<"), 1);
    assert_null(strstr(b.ptr, "nan"));
    buf_deinit(&b);
}

static void test_json_names_the_parts(void **state) {
    (void)state;
    double layers[2] = {0.5, 0.25};
    struct buf b;
    struct layer_kl k = {.layers = layers, .layer_count = 2, .output_kl = 2, .embedding_kl = 1};
    buf_init(&b, SVG_BYTES_MAX);
    layer_kl_put_json(&k, &b);
    k.is_tied = true;
    layer_kl_put_json(&k, &b);
    buf_put_char(&b, '\0');
    assert_string_equal(b.ptr, "[{\"part\":\"embedding\",\"kl\":1},"
                               "{\"part\":\"layer\",\"layer\":0,\"kl\":0.5},"
                               "{\"part\":\"layer\",\"layer\":1,\"kl\":0.25},"
                               "{\"part\":\"output\",\"kl\":2}]"
                               "[{\"part\":\"layer\",\"layer\":0,\"kl\":0.5},"
                               "{\"part\":\"layer\",\"layer\":1,\"kl\":0.25},"
                               "{\"part\":\"embedding and output\",\"kl\":2}]");
    buf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_part_has_a_bar),
        cmocka_unit_test(test_names_are_escaped),
        cmocka_unit_test(test_equal_models_have_bars_without_height),
        cmocka_unit_test(test_an_infinite_divergence_has_the_full_height),
        cmocka_unit_test(test_json_names_the_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
