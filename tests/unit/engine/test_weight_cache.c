/* Goal:   a model whose weights come from an image gives the same bits as one whose weights were
 *         made of its file; an image is used for the very files it was made of and no others; one
 *         that is damaged costs time only; writing one can be stopped.
 * Method: every tiny model under tests/golden/models is opened twice with a cache of its own and
 *         the logits compared; copies of one are touched, replaced and damaged; a pretended device
 *         writes for ever. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/tree.h"
#include "reference/forward.h"
#include "format/model_file.h"

enum { TOKENS = 20, WAIT_US = 1000, PATH_BYTES = 512 };

static const char models_dir[] = TEST_SOURCE_DIR "/golden/models";

struct rig {
    char dir[64], images[128], copy[96];
};

static int set_up(void **state) {
    struct rig *r = calloc(1, sizeof(*r));
    struct buf bytes;
    assert_non_null(r);
    snprintf(r->dir, sizeof(r->dir), "/tmp/jitney_weights_XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->images, sizeof(r->images), "%s/images", r->dir);
    snprintf(r->copy, sizeof(r->copy), "%s/model.gguf", r->dir);
    buf_init(&bytes, 64 << 20);
    assert_int_equal(
        file_read(TEST_SOURCE_DIR "/golden/models/llama-q4_0/model.gguf", &bytes, NULL), ST_OK);
    assert_int_equal(file_write_atomic(r->copy, buf_str(&bytes), NULL), ST_OK);
    buf_deinit(&bytes);
    *state = r;
    return 0;
}

static int tear_down(void **state) {
    struct rig *r = *state;
    assert_int_equal(tree_remove(r->dir, NULL, NULL), ST_OK);
    free(r);
    return 0;
}

struct hashing {
    struct sha256 *hash;
    uint32_t vocab;
};

static enum status add_rows(void *ctx, uint32_t first, uint32_t count, const float *logits) {
    (void)first;
    const struct hashing *h = ctx;
    sha256_add(h->hash, logits, (size_t)count * h->vocab * sizeof(float));
    return ST_OK;
}

/* What an encoder gives, or every logit of a decoder. */
static void hash_answer(struct forward *e, char out[SHA256_HEX_BYTES]) {
    int32_t ids[TOKENS];
    uint32_t vocab = forward_vocab(e);
    struct sha256 *hash = sha256_create();
    struct err err = {{0}};
    assert_non_null(hash);
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (int32_t)(i * 7 % vocab);
    if (forward_is_encoder(e)) {
        float *v = calloc(forward_embed_dims(e), sizeof(*v));
        assert_non_null(v);
        if (forward_embed(e, ids, TOKENS, v, &err) != ST_OK) fail_msg("%s", err.text);
        sha256_add(hash, v, forward_embed_dims(e) * sizeof(*v));
        free(v);
    } else {
        struct hashing h = {hash, vocab};
        if (forward_logits(e, ids, TOKENS, add_rows, &h, &err) != ST_OK) fail_msg("%s", err.text);
    }
    sha256_hex(hash, out);
    sha256_destroy(hash);
}

static struct forward *open_model(const struct rig *r, const char *path, const char *isa,
                                  bool verify) {
    struct forward_options o = {
        .threads = 2,
        .ctx_tokens = 64,
        .isa = isa,
        .tokens_only = true,
        .weights = {.dir = r->images, .max_bytes = 1 << 30, .verify = verify}};
    struct forward *e = NULL;
    struct err err = {{0}};
    if (forward_open(path, &o, &e, &err) != ST_OK) fail_msg("%s", err.text);
    return e;
}

static enum status wait_kept(struct weight_cache *c, const char **text) {
    enum status st;
    while (!weight_cache_kept(c, &st, text)) usleep(WAIT_US);
    return st;
}

/* Opens it, keeps its weights if it must, and closes it. Gives where they came from. */
static struct weight_report load_once(const struct rig *r, const char *path, bool verify,
                                      char hash[SHA256_HEX_BYTES]) {
    static char note[ERR_TEXT_BYTES];
    struct forward *e = open_model(r, path, "auto", verify);
    struct weight_report report = weight_cache_report(forward_loaded(e)->weights);
    snprintf(note, sizeof(note), "%s", report.note);
    report.note = note;
    hash_answer(e, hash);
    assert_int_equal(weight_cache_keep(forward_loaded(e)->weights, NULL), ST_OK);
    const char *text;
    if (report.made && wait_kept(forward_loaded(e)->weights, &text) != ST_OK) fail_msg("%s", text);
    forward_close(e);
    return report;
}

static void check_same(const char *path) {
    struct rig *r;
    void *state;
    char made[SHA256_HEX_BYTES], read[SHA256_HEX_BYTES];
    set_up(&state);
    r = state;
    struct weight_report first = load_once(r, path, false, made);
    assert_true(first.made > 0);
    assert_int_equal(first.read, 0);
    for (int verify = 0; verify < 2; verify++) {
        struct weight_report again = load_once(r, path, verify, read);
        assert_string_equal(again.note, "");
        assert_int_equal(again.made, 0);
        assert_int_equal(again.read, first.made);
        assert_string_equal(made, read);
    }
    tear_down(&state);
}

static void test_kept_weights_give_the_same_bits(void **state) {
    (void)state;
    DIR *dir = opendir(models_dir);
    uint32_t count = 0;
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char folder[PATH_BYTES], path[PATH_BYTES];
        if (e->d_name[0] == '.') continue;
        assert_true(path_join(folder, sizeof(folder), models_dir, e->d_name));
        assert_true(path_join(path, sizeof(path), folder, "model.gguf"));
        if (file_exists(path)) check_same(path);
        assert_true(path_join(path, sizeof(path), folder, "config.json"));
        if (file_exists(path)) check_same(folder);
        count++;
    }
    closedir(dir);
    assert_true(count > 10);
}

static void test_the_real_model_gives_the_same_bits(void **state) {
    (void)state;
    const char *path = getenv("JITNEY_TEST_MODEL");
    if (!path || !file_exists(path)) skip();
    check_same(path);
}

static void flip_last_byte(const char *path) {
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    int old = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(old ^ 1, f);
    fclose(f);
}

static uint32_t count_images(const struct rig *r, char path[PATH_BYTES]) {
    uint32_t count = 0;
    DIR *dir = opendir(r->images);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (e->d_name[0] == '.') continue;
        assert_true(str_ends(str_of(e->d_name), STR(".jpk")));
        assert_true(path_join(path, PATH_BYTES, r->images, e->d_name));
        count++;
    }
    closedir(dir);
    return count;
}

static void test_a_model_that_was_changed_or_replaced_gets_a_new_image(void **state) {
    struct rig *r = *state;
    char hash[SHA256_HEX_BYTES], path[PATH_BYTES], other[PATH_BYTES];
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1, .tv_nsec = 1}};
    assert_true(load_once(r, r->copy, false, hash).made > 0);
    assert_int_equal(load_once(r, r->copy, false, hash).made, 0);
    assert_int_equal(utimensat(AT_FDCWD, r->copy, times, 0), 0);
    assert_int_equal(load_once(r, r->copy, false, hash).read, 0);
    times[1].tv_nsec = 2; /* a nanosecond later */
    assert_int_equal(utimensat(AT_FDCWD, r->copy, times, 0), 0);
    assert_int_equal(load_once(r, r->copy, false, hash).read, 0);
    /* Another file of the same bytes and times under the same name. */
    struct buf bytes;
    buf_init(&bytes, 64 << 20);
    assert_int_equal(file_read(r->copy, &bytes, NULL), ST_OK);
    snprintf(other, sizeof(other), "%s.new", r->copy);
    assert_int_equal(file_write_atomic(other, buf_str(&bytes), NULL), ST_OK);
    buf_deinit(&bytes);
    assert_int_equal(utimensat(AT_FDCWD, other, times, 0), 0);
    assert_int_equal(rename(other, r->copy), 0);
    assert_int_equal(load_once(r, r->copy, false, hash).read, 0);
    assert_int_equal(count_images(r, path), 1); /* the others were of no use any more */
}

/* The last byte is a weight's. The clock of files moves in steps of some milliseconds. */
static void test_other_bytes_with_the_old_times_are_another_model(void **state) {
    enum { CLOCK_STEP_US = 50000 };
    struct rig *r = *state;
    char one[SHA256_HEX_BYTES], two[SHA256_HEX_BYTES];
    struct stat info;
    assert_true(load_once(r, r->copy, false, one).made > 0);
    assert_int_equal(stat(r->copy, &info), 0);
    usleep(CLOCK_STEP_US);
    flip_last_byte(r->copy);
    const struct timespec times[2] = {info.st_atim, info.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, r->copy, times, 0), 0);
    assert_int_equal(load_once(r, r->copy, false, two).read, 0);
}

static void test_an_image_is_readable_only_by_those_who_can_read_its_model(void **state) {
    struct rig *r = *state;
    char hash[SHA256_HEX_BYTES], path[PATH_BYTES];
    struct stat info;
    assert_int_equal(chmod(r->copy, 0640), 0);
    load_once(r, r->copy, false, hash);
    assert_int_equal(count_images(r, path), 1);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
}

static void test_forgetting_a_model_leaves_the_others(void **state) {
    struct rig *r = *state;
    char hash[SHA256_HEX_BYTES], path[PATH_BYTES];
    static const char other[] = TEST_SOURCE_DIR "/golden/models/llama-q4_0/model.gguf";
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char roundabout[PATH_BYTES];
    uint64_t freed = 0;
    load_once(r, r->copy, false, hash);
    load_once(r, other, false, hash);
    assert_int_equal(count_images(r, path), 2);
    assert_int_equal(utimensat(AT_FDCWD, r->copy, times, 0), 0); /* another, in the same place */
    assert_true(path_join(roundabout, sizeof(roundabout), r->images, "../model.gguf"));
    assert_int_equal(weight_cache_forget(r->images, roundabout, &freed, NULL), ST_OK);
    assert_true(freed > 0);
    assert_int_equal(count_images(r, path), 1);
    assert_int_equal(load_once(r, other, false, hash).made, 0);
}

static void test_every_instruction_set_has_its_own_image(void **state) {
    struct rig *r = *state;
    char path[PATH_BYTES], hash[2][SHA256_HEX_BYTES];
    const char *text;
    static const char *const names[] = {"portable", "auto"};
    for (int i = 0; i < 2; i++) {
        struct forward *e = open_model(r, r->copy, names[i], false);
        assert_int_equal(weight_cache_report(forward_loaded(e)->weights).read, 0);
        assert_int_equal(weight_cache_keep(forward_loaded(e)->weights, NULL), ST_OK);
        assert_int_equal(wait_kept(forward_loaded(e)->weights, &text), ST_OK);
        hash_answer(e, hash[i]);
        bool is_last = strcmp(forward_loaded(e)->device.name, "portable") == 0 && i == 1;
        forward_close(e);
        if (is_last) skip(); /* a machine with nothing better */
    }
    assert_string_equal(hash[0], hash[1]);
    assert_int_equal(count_images(r, path), 2);
    struct forward *e = open_model(r, r->copy, "ref", false);
    assert_null(forward_loaded(e)->weights);
    forward_close(e);
}

static void test_a_damaged_image_is_found_removed_and_made_again(void **state) {
    struct rig *r = *state;
    char path[PATH_BYTES], hash[SHA256_HEX_BYTES], right[SHA256_HEX_BYTES];
    load_once(r, r->copy, false, right);
    assert_int_equal(count_images(r, path), 1);
    flip_last_byte(path);
    struct forward *e = open_model(r, r->copy, "auto", true);
    struct weight_report report = weight_cache_report(forward_loaded(e)->weights);
    assert_int_equal(report.made, 1);
    assert_non_null(strstr(report.note, "checksum"));
    assert_non_null(strstr(report.note, path));
    hash_answer(e, hash);
    assert_string_equal(hash, right);
    assert_int_equal(count_images(r, path), 0);
    forward_close(e);
    assert_true(load_once(r, r->copy, true, hash).made > 1);
    assert_int_equal(load_once(r, r->copy, true, hash).made, 0);
}

static void test_a_damaged_image_is_found_after_the_start_and_fails_the_model(void **state) {
    struct rig *r = *state;
    char path[PATH_BYTES], hash[SHA256_HEX_BYTES];
    struct err err = {{0}};
    const char *text;
    load_once(r, r->copy, false, hash);
    struct forward *e = open_model(r, r->copy, "auto", false); /* undamaged */
    struct weight_cache *c = forward_loaded(e)->weights;
    assert_true(weight_cache_report(c).is_unverified);
    assert_int_equal(weight_cache_keep(c, NULL), ST_OK);
    assert_int_equal(wait_kept(c, &text), ST_OK);
    assert_non_null(strstr(text, "are right"));
    assert_false(weight_cache_report(c).is_unverified);
    assert_int_equal(loaded_model_check(forward_loaded(e), &err), ST_OK);
    forward_close(e);
    assert_int_equal(count_images(r, path), 1);
    flip_last_byte(path);
    e = open_model(r, r->copy, "auto", false);
    c = forward_loaded(e)->weights;
    assert_int_equal(loaded_model_check(forward_loaded(e), &err), ST_OK); /* nobody has looked */
    assert_int_equal(weight_cache_keep(c, NULL), ST_OK);
    assert_int_equal(wait_kept(c, &text), ST_BAD);
    assert_non_null(strstr(text, "fails its checksum"));
    assert_true(weight_cache_report(c).is_unverified);
    assert_int_equal(loaded_model_check(forward_loaded(e), &err), ST_IO);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(count_images(r, path), 0);
    forward_close(e);
    e = open_model(r, r->copy, "auto", true); /* nothing is left to check */
    assert_false(weight_cache_report(forward_loaded(e)->weights).is_unverified);
    forward_close(e);
}

static void test_an_image_without_its_end_is_replaced(void **state) {
    struct rig *r = *state;
    char path[PATH_BYTES], hash[SHA256_HEX_BYTES];
    load_once(r, r->copy, false, hash);
    assert_int_equal(count_images(r, path), 1);
    assert_int_equal(truncate(path, file_size(path) / 2), 0);
    struct weight_report report = load_once(r, r->copy, false, hash);
    assert_int_equal(report.read, 0);
    assert_non_null(strstr(report.note, "its head says"));
    assert_int_equal(load_once(r, r->copy, false, hash).made, 0);
}

static void test_two_processes_can_write_images_at_once(void **state) {
    struct rig *r = *state;
    struct forward *e[2];
    const char *text;
    char path[PATH_BYTES], hash[SHA256_HEX_BYTES];
    for (int i = 0; i < 2; i++) e[i] = open_model(r, r->copy, "auto", false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weight_cache_keep(forward_loaded(e[i])->weights, NULL), ST_OK);
    for (int i = 0; i < 2; i++) {
        enum status st = wait_kept(forward_loaded(e[i])->weights, &text);
        assert_true(st == ST_OK || st == ST_UNAVAILABLE);
        forward_close(e[i]);
    }
    assert_int_equal(count_images(r, path), 1);
    assert_int_equal(load_once(r, r->copy, true, hash).made, 0);
}

static void test_a_folder_that_cannot_be_created_is_reported_once(void **state) {
    struct rig *r = *state;
    enum status st;
    const char *text;
    snprintf(r->images, sizeof(r->images), "%s/below", r->copy);
    struct forward *e = open_model(r, r->copy, "auto", false);
    assert_int_equal(weight_cache_keep(forward_loaded(e)->weights, NULL), ST_OK);
    assert_int_equal(wait_kept(forward_loaded(e)->weights, &text), ST_CREATE);
    assert_non_null(strstr(text, r->copy));
    assert_false(weight_cache_kept(forward_loaded(e)->weights, &st, &text));
    forward_close(e);
}

static void test_without_a_folder_there_is_no_cache(void **state) {
    struct rig *r = *state;
    struct forward_options o = {.threads = 1, .ctx_tokens = 64, .tokens_only = true};
    struct forward *e;
    struct err err = {{0}};
    enum status st;
    const char *text;
    assert_int_equal(forward_open(r->copy, &o, &e, &err), ST_OK);
    assert_null(forward_loaded(e)->weights);
    assert_int_equal(weight_cache_keep(NULL, NULL), ST_OK);
    assert_false(weight_cache_kept(NULL, &st, &text));
    assert_string_equal(weight_cache_report(NULL).note, "");
    forward_close(e);
}

/* ---- a device that writes until a test stops it ---- */

static const char *endless_layout(void *self) { return self; }

static enum status endless_open(void *self, const struct device_image *image, struct err *err) {
    (void)self;
    return err_set(err, ST_MISSING, "%s: none", image->path);
}

static enum status endless_close(void *self, struct device_image_use *use, struct err *err) {
    (void)self;
    (void)err;
    *use = (struct device_image_use){.made = 1};
    return ST_OK;
}

static enum status endless_bytes(void *self, struct str key, uint64_t *bytes, struct err *err) {
    (void)self;
    (void)key;
    (void)err;
    *bytes = 1;
    return ST_OK;
}

static enum status endless_write(void *self, const struct device_image_out *out, struct err *err) {
    (void)self;
    while (out->may_go_on(out->ctx)) usleep(WAIT_US);
    return err_set(err, ST_CANCELLED, "stopped");
}

static void test_closing_stops_the_writer(void **state) {
    struct rig *r = *state;
    static char layout[] = "endless";
    const struct device_images images = {.layout = endless_layout,
                                         .open = endless_open,
                                         .close = endless_close,
                                         .bytes = endless_bytes,
                                         .write = endless_write};
    const struct device device = {.name = "endless", .images = &images, .self = layout};
    const struct weight_cache_options o = {.dir = r->images, .max_bytes = 1 << 20};
    struct model_file *file;
    struct weight_cache *c;
    char path[PATH_BYTES];
    enum status st;
    const char *text;
    assert_int_equal(model_file_open(r->copy, &file, NULL), ST_OK);
    assert_int_equal(weight_cache_open(&c, &o, file, &device, NULL), ST_OK);
    weight_cache_loaded(c);
    assert_int_equal(weight_cache_keep(c, NULL), ST_OK);
    usleep(20 * WAIT_US);
    assert_false(weight_cache_kept(c, &st, &text));
    weight_cache_close(c);
    if (file_exists(r->images)) assert_int_equal(count_images(r, path), 0);
    model_file_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_weights_give_the_same_bits),
        cmocka_unit_test(test_the_real_model_gives_the_same_bits),
        cmocka_unit_test_setup_teardown(test_a_model_that_was_changed_or_replaced_gets_a_new_image,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_bytes_with_the_old_times_are_another_model,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_an_image_is_readable_only_by_those_who_can_read_its_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forgetting_a_model_leaves_the_others, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_every_instruction_set_has_its_own_image, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_damaged_image_is_found_removed_and_made_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_damaged_image_is_found_after_the_start_and_fails_the_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_image_without_its_end_is_replaced, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_two_processes_can_write_images_at_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_folder_that_cannot_be_created_is_reported_once,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_folder_there_is_no_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_closing_stops_the_writer, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
