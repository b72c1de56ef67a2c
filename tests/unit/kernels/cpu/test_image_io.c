/* Goal:   weights that come from an image are the same bytes as weights that are packed; whatever
 *         is wrong with the file, they are packed instead and still the same bytes.
 * Method: a device prepares random weights of every number format, some with experts and rows that
 *         fill no panel, and writes an image; further devices prepare the same ones from it, with
 *         other numbers of threads, from files that are whole, cut, changed and of other keys. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/image.h"
#include "kernels/cpu/pack.h"

enum { WEIGHTS = 2 * DTYPE_COUNT, NAME_BYTES = 32, COLS = 512, ROWS = 35, EXPERTS = 3 };

struct rig {
    struct weight weights[WEIGHTS];
    char names[WEIGHTS][NAME_BYTES];
    char path[96];
    struct device device; /* has packed them and written the image */
    struct str key;
};

static bool always(void *ctx) {
    (void)ctx;
    return true;
}

/* The calls that are left before it says no. */
static bool count_down(void *ctx) { return (*(int *)ctx)-- > 0; }

static struct device open_device(const char *isa, uint32_t threads) {
    struct device d;
    struct err err = {{0}};
    if (cpu_device_open(isa, threads, &d, &err) != ST_OK) fail_msg("%s", err.text);
    return d;
}

/* Format f: a single matrix, then one of several experts. */
static void make_weights(struct rig *r) {
    for (uint32_t i = 0; i < WEIGHTS; i++) {
        struct weight *w = &r->weights[i];
        uint32_t experts = i % 2 ? EXPERTS : 1;
        size_t bytes;
        snprintf(r->names[i], NAME_BYTES, "weight.%u", i);
        assert_true(dtype_bytes(i / 2, (uint64_t)ROWS * COLS * experts, &bytes));
        uint8_t *data = malloc(bytes);
        assert_non_null(data);
        for (size_t b = 0; b < bytes; b++) data[b] = (uint8_t)rng_at(7, i, b);
        *w = (struct weight){.name = str_of(r->names[i]),
                             .type = i / 2,
                             .rows = ROWS,
                             .cols = COLS,
                             .experts = experts,
                             .data = data,
                             .bytes = bytes};
    }
}

static enum status write_file(const struct device *d, struct str key, const char *path,
                              bool (*may_go_on)(void *), void *ctx) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    struct device_image_out out = {.fd = fileno(f), .key = key, .may_go_on = may_go_on, .ctx = ctx};
    enum status st = d->images->write(d->self, &out, NULL);
    fclose(f);
    return st;
}

static int set_up(void **state) {
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    *state = r;
    r->key = STR("of these very weights");
    snprintf(r->path, sizeof(r->path), "/tmp/jitney_image_%ld", (long)getpid());
    make_weights(r);
    r->device = open_device("portable", 2);
    for (uint32_t i = 0; i < WEIGHTS; i++)
        assert_int_equal(r->device.prepare(r->device.self, &r->weights[i], NULL), ST_OK);
    assert_int_equal(write_file(&r->device, r->key, r->path, always, NULL), ST_OK);
    return 0;
}

static int tear_down(void **state) {
    struct rig *r = *state;
    r->device.close(r->device.self);
    for (uint32_t i = 0; i < WEIGHTS; i++) free((void *)(uintptr_t)r->weights[i].data);
    unlink(r->path);
    free(r);
    return 0;
}

/* What a second device made of the rig's weights. */
struct second {
    struct device device;
    enum status open, close;
    struct err why;
    struct device_image_use use;
};

static struct second prepare_again(const struct rig *r, struct str key, bool verify,
                                   uint32_t threads) {
    struct second s = {.device = open_device("portable", threads)};
    struct device_image image = {.path = r->path, .key = key, .verify = verify};
    s.open = s.device.images->open(s.device.self, &image, &s.why);
    for (uint32_t i = 0; i < WEIGHTS; i++) {
        struct weight w = r->weights[i];
        w.prepared = NULL;
        assert_int_equal(s.device.prepare(s.device.self, &w, NULL), ST_OK);
        const struct packed *a = r->weights[i].prepared, *b = w.prepared;
        assert_int_equal(a->bytes, b->bytes);
        assert_int_equal(a->panel_bytes, b->panel_bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    s.close = s.device.images->close(s.device.self, &s.use, &s.why);
    s.device.close(s.device.self);
    assert_int_equal(s.use.read + s.use.made, WEIGHTS);
    return s;
}

static void test_weights_of_every_format_come_back(void **state) {
    static const uint32_t threads[] = {1, 2, 7};
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t verify = 0; verify < 2; verify++) {
            struct rig *r = *state;
            struct second s = prepare_again(r, r->key, verify, threads[i]);
            assert_int_equal(s.open, ST_OK);
            assert_int_equal(s.close, ST_OK);
            assert_int_equal(s.use.read, WEIGHTS);
        }
}

static void test_the_file_has_as_many_bytes_as_was_said(void **state) {
    struct rig *r = *state;
    struct stat info;
    uint64_t bytes;
    assert_int_equal(r->device.images->bytes(r->device.self, r->key, &bytes, NULL), ST_OK);
    assert_int_equal(stat(r->path, &info), 0);
    assert_int_equal(info.st_size, bytes);
}

static void test_an_image_of_another_key_or_table_is_not_taken(void **state) {
    struct rig *r = *state;
    struct second s = prepare_again(r, STR("of others"), false, 2);
    assert_int_equal(s.open, ST_BAD);
    assert_non_null(strstr(s.why.text, r->path));
    assert_int_equal(s.use.made, WEIGHTS);
    struct device other = open_device("auto", 1);
    struct device_image image = {.path = r->path, .key = r->key};
    if (strcmp(other.name, r->device.name) != 0)
        assert_int_equal(other.images->open(other.self, &image, NULL), ST_BAD);
    other.close(other.self);
}

static void test_without_a_file_weights_are_packed(void **state) {
    struct rig *r = *state;
    unlink(r->path);
    struct second s = prepare_again(r, r->key, true, 2);
    assert_int_equal(s.open, ST_MISSING);
    assert_int_equal(s.close, ST_OK);
    assert_int_equal(s.use.made, WEIGHTS);
}

static void test_what_is_no_file_or_no_image_is_not_taken(void **state) {
    struct rig *r = *state;
    struct second s;
    assert_int_equal(truncate(r->path, 0), 0);
    s = prepare_again(r, r->key, false, 1);
    assert_int_equal(s.open, ST_BAD);
    unlink(r->path);
    assert_int_equal(mkdir(r->path, 0700), 0);
    s = prepare_again(r, r->key, false, 1);
    assert_true(s.open == ST_BAD || s.open == ST_IO);
    rmdir(r->path);
}

static void flip_byte(const char *path, uint64_t at) {
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, (long)at, SEEK_SET);
    int old = fgetc(f);
    fseek(f, (long)at, SEEK_SET);
    fputc(old ^ 4, f);
    fclose(f);
}

static void test_an_image_of_a_stranger_is_not_taken(void **state) {
    enum { STRANGER = 65534 };
    struct rig *r = *state;
    if (geteuid() != 0) skip();
    assert_int_equal(chown(r->path, STRANGER, STRANGER), 0);
    struct second s = prepare_again(r, r->key, false, 1);
    assert_int_equal(s.open, ST_IO);
    assert_non_null(strstr(s.why.text, "belongs to user 65534"));
    assert_int_equal(s.use.read, 0);
    /* In a folder of his own he may. */
    char folder[] = "/tmp/jitney_image_XXXXXX", path[96];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/image", folder);
    assert_int_equal(chown(folder, STRANGER, STRANGER), 0);
    assert_int_equal(rename(r->path, path), 0);
    snprintf(r->path, sizeof(r->path), "%s", path);
    s = prepare_again(r, r->key, false, 1);
    assert_int_equal(s.open, ST_OK);
    assert_int_equal(s.use.read, WEIGHTS);
    unlink(path);
    rmdir(folder);
}

static void test_a_changed_byte_of_a_weight_is_found_by_its_checksum(void **state) {
    struct rig *r = *state;
    struct stat info;
    assert_int_equal(stat(r->path, &info), 0);
    flip_byte(r->path, (uint64_t)info.st_size - 1); /* of the last weight */
    struct second s = prepare_again(r, r->key, true, 2);
    assert_int_equal(s.open, ST_OK);
    assert_int_equal(s.close, ST_BAD);
    assert_int_equal(s.use.made, 1);
    assert_non_null(strstr(s.why.text, r->names[WEIGHTS - 1]));
    assert_non_null(strstr(s.why.text, "checksum"));
}

static void test_an_image_that_lost_its_end_is_not_taken(void **state) {
    struct rig *r = *state;
    struct stat info;
    assert_int_equal(stat(r->path, &info), 0);
    assert_int_equal(truncate(r->path, info.st_size - 1), 0);
    assert_int_equal(prepare_again(r, r->key, false, 2).open, ST_BAD);
}

/* The file is cut while it is open: reading says so, where a map would be a signal. */
static void test_a_file_that_is_cut_under_its_reader_costs_only_time(void **state) {
    struct rig *r = *state;
    struct device d = open_device("portable", 2);
    struct device_image image = {.path = r->path, .key = r->key};
    struct device_image_use use;
    struct err why = {{0}};
    assert_int_equal(d.images->open(d.self, &image, NULL), ST_OK);
    assert_int_equal(truncate(r->path, IMAGE_DATA_ALIGN), 0);
    struct weight w = r->weights[0];
    w.prepared = NULL;
    assert_int_equal(d.prepare(d.self, &w, NULL), ST_OK);
    const struct packed *a = r->weights[0].prepared, *b = w.prepared;
    assert_memory_equal(a->data, b->data, a->bytes);
    assert_int_equal(d.images->close(d.self, &use, &why), ST_BAD);
    assert_int_equal(use.made, 1);
    assert_non_null(strstr(why.text, "ends within"));
    d.close(d.self);
}

static void test_a_weight_of_another_shape_is_packed(void **state) {
    struct rig *r = *state;
    struct device d = open_device("portable", 1);
    struct device_image image = {.path = r->path, .key = r->key};
    struct device_image_use use;
    assert_int_equal(d.images->open(d.self, &image, NULL), ST_OK);
    struct weight w = r->weights[0];
    w.prepared = NULL;
    w.rows--;
    assert_int_equal(d.prepare(d.self, &w, NULL), ST_OK);
    assert_int_equal(d.images->close(d.self, &use, NULL), ST_BAD);
    assert_int_equal(use.made, 1);
    d.close(d.self);
}

static void test_a_writer_that_is_told_to_stop_leaves_no_image(void **state) {
    struct rig *r = *state;
    for (int left = 0; left < 5; left++) {
        int calls = left;
        assert_int_equal(write_file(&r->device, r->key, r->path, count_down, &calls), ST_CANCELLED);
        assert_int_equal(prepare_again(r, r->key, false, 1).open, ST_BAD);
    }
}

static void test_a_full_disk_is_said(void **state) {
    struct rig *r = *state;
    FILE *full = fopen("/dev/full", "w");
    if (!full) skip();
    struct err err = {{0}};
    struct device_image_out out = {.fd = fileno(full), .key = r->key, .may_go_on = always};
    assert_int_equal(r->device.images->write(r->device.self, &out, &err), ST_IO);
    assert_true(err.text[0]);
    fclose(full);
}

static void test_a_device_on_plain_weights_keeps_none(void **state) {
    (void)state;
    struct device d = open_device("ref", 1);
    assert_null(d.images);
    d.close(d.self);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_weights_of_every_format_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_file_has_as_many_bytes_as_was_said, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_an_image_of_another_key_or_table_is_not_taken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_file_weights_are_packed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_no_file_or_no_image_is_not_taken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_an_image_of_a_stranger_is_not_taken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_changed_byte_of_a_weight_is_found_by_its_checksum,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_image_that_lost_its_end_is_not_taken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_file_that_is_cut_under_its_reader_costs_only_time,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_weight_of_another_shape_is_packed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_writer_that_is_told_to_stop_leaves_no_image, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_full_disk_is_said, set_up, tear_down),
        cmocka_unit_test(test_a_device_on_plain_weights_keeps_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
