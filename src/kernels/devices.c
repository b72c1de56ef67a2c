/* kernels/devices.c - see kernels/devices.h for the contract. */
#include "kernels/devices.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/str.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda_load.h"
#include "kernels/delayed/delayed.h"

/* One kind of device. `args`: what follows the colon in the name; empty if there is none. */
struct device_kind {
    const char *name;
    bool is_for_tests; /* not offered to users */
    enum status (*check)(struct str args, struct err *err);
    enum status (*open)(const struct device_options *options, struct str args, struct device *out,
                        struct err *err);
};

/* ---- the CPU ---- */

static enum status check_cpu(struct str args, struct err *err) {
    if (args.len == 0) return ST_OK;
    return err_set(err, ST_BAD,
                   "this device takes no options, found \":%.*s\"; write --device cpu or auto",
                   STR_ARG(args));
}

static enum cpu_placement placement_of(const char *word) {
    if (!word || strcmp(word, "auto") == 0) return CPU_PLACE_AUTO;
    return strcmp(word, "on") == 0 ? CPU_PLACE_ON : CPU_PLACE_OFF;
}

static enum status open_cpu(const struct device_options *o, struct str args, struct device *out,
                            struct err *err) {
    (void)args;
    TRY(cpu_device_open(o->isa ? o->isa : "auto", o->threads, out, err));
    cpu_device_place(out, placement_of(o->placement));
    return ST_OK;
}

/* ---- NVIDIA GPUs ---- */

static enum status check_cuda(struct str args, struct err *err) {
    struct cuda_choice ignored;
    return cuda_parse(args, &ignored, err);
}

static enum status open_cuda(const struct device_options *o, struct str args, struct device *out,
                             struct err *err) {
    struct cuda_choice choice;
    (void)o;
    TRY(cuda_parse(args, &choice, err));
    return cuda_device_open(&choice, out, err);
}

/* ---- a device for tests ---- */

static enum status check_delayed(struct str args, struct err *err) {
    struct delayed_options ignored;
    return delayed_parse(args, &ignored, err);
}

static enum status open_delayed(const struct device_options *o, struct str args, struct device *out,
                                struct err *err) {
    struct delayed_options options;
    struct device inner;
    TRY(delayed_parse(args, &options, err));
    TRY(open_cpu(o, STR(""), &inner, err));
    return delayed_open(&inner, &options, out, err);
}

/* ---- the list ---- */

static const struct device_kind kinds[] = {
    {"cpu", false, check_cpu, open_cpu},
    {"cuda", false, check_cuda, open_cuda},
    {"delayed", true, check_delayed, open_delayed},
};
enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

static enum status say_unknown(struct str name, struct err *err) {
    struct buf known;
    buf_init(&known, 256);
    buf_put_text(&known, "auto");
    for (int i = 0; i < KIND_COUNT; i++)
        if (!kinds[i].is_for_tests) buf_printf(&known, ", %s", kinds[i].name);
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
        if (str_is(name, kinds[i].name)) *out = &kinds[i];
    if (!*out) return say_unknown(name, err);
    return (*out)->check(*args, err);
}

/* A GPU that answers, else the CPU. */
static enum status open_best(const struct device_options *options, struct device *out,
                             struct err *err) {
    struct err ignored;
    if (cuda_is_likely() && open_cuda(options, STR(""), out, &ignored) == ST_OK) return ST_OK;
    return open_cpu(options, STR(""), out, err);
}

enum status device_open(const struct device_options *options, struct device *out, struct err *err) {
    const struct device_kind *kind;
    struct str args;
    CHECK(options->threads >= 1);
    if (is_auto(options->name)) return open_best(options, out, err);
    TRY(find(options->name, &kind, &args, err));
    return kind->open(options, args, out, err);
}

enum status device_check_name(const char *name, struct err *err) {
    const struct device_kind *kind;
    struct str args;
    return is_auto(name) ? ST_OK : find(name, &kind, &args, err);
}

enum status device_check_isa(const char *isa, struct err *err) { return cpu_isa_check(isa, err); }
