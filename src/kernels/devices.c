/* kernels/devices.c - see kernels/devices.h for the contract. */
#include "kernels/devices.h"

#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "kernels/cpu/cpu.h"

#define DEVICE(name) extern const struct device_kind device_kind_##name;
#include "kernels/devices.def"
#undef DEVICE

#define DEVICE(name) &device_kind_##name,
static const struct device_kind *const kinds[] = {
#include "kernels/devices.def"
};
#undef DEVICE
enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

static enum status say_unknown(struct str name, struct err *err) {
    struct buf known;
    buf_init(&known, 256);
    buf_put_text(&known, "auto");
    for (int i = 0; i < KIND_COUNT; i++)
        if (!kinds[i]->is_for_tests) buf_printf(&known, ", %s", kinds[i]->name);
    enum status st =
        err_set(err, ST_BAD, "unknown device \"%.*s\"; known: %s", STR_ARG(name), buf_text(&known));
    buf_deinit(&known);
    return st;
}

static bool is_auto(const char *text) { return !text || strcmp(text, "auto") == 0; }

static enum status find(const char *text, const struct device_kind **out, struct str *args,
                        struct err *err) {
    struct str name = str_of(text);
    const char *colon = memchr(name.ptr, ':', name.len);
    *args = STR("");
    if (colon) {
        *args = str_skip(name, (size_t)(colon - name.ptr) + 1);
        name.len = (size_t)(colon - name.ptr);
    }
    *out = NULL;
    for (int i = 0; i < KIND_COUNT && !*out; i++)
        if (str_is(name, kinds[i]->name)) *out = kinds[i];
    if (str_is(name, "auto"))
        return err_set(err, ST_BAD, "device auto takes no options, found \":%.*s\"; write auto",
                       STR_ARG(*args));
    if (!*out) return say_unknown(name, err);
    return (*out)->check(*args, err);
}

static enum status open_kind(const struct device_kind *kind, const struct device_options *options,
                             struct str args, struct device *out, struct err *err) {
    if (options->fp8_weights && !kind->takes_fp8)
        return err_set(
            err, ST_BAD,
            "--weights fp8 needs an NVIDIA H100 or H200, and the model would run on "
            "device %s; use --weights auto, or --device cuda:0 to see why there is no GPU",
            kind->name);
    return kind->open(options, args, out, err);
}

/* The first that this machine has. The error is that of the last one, which is the CPU's. */
static enum status open_best(const struct device_options *options, struct device *out,
                             struct err *err) {
    enum status st = ST_MISSING;
    for (int i = 0; i < KIND_COUNT && st != ST_OK; i++) {
        if (!kinds[i]->is_likely || !kinds[i]->is_likely()) continue;
        if (err) *err = (struct err){{0}};
        st = open_kind(kinds[i], options, STR(""), out, err);
    }
    return st;
}

enum status device_open(const struct device_options *options, struct device *out, struct err *err) {
    const struct device_kind *kind;
    struct str args;
    CHECK(options->threads >= 1);
    if (is_auto(options->name)) return open_best(options, out, err);
    TRY(find(options->name, &kind, &args, err));
    return open_kind(kind, options, args, out, err);
}

enum status device_check_name(const char *name, struct err *err) {
    const struct device_kind *kind;
    struct str args;
    return is_auto(name) ? ST_OK : find(name, &kind, &args, err);
}

enum status device_check_isa(const char *isa, struct err *err) { return cpu_isa_check(isa, err); }
