/* kernels/cuda_load.c - see kernels/cuda_load.h for the contract. */
#define _GNU_SOURCE
#include "kernels/cuda_load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/env.h"
#include "graph/device_kind.h"
#include "graph/op.h"
#include "graph/weight.h"
#include "kernels/cuda/library.h"

enum { PATH_BYTES = 4096, CARD_MAX = 63 };
static const char file_name[] = "libjitney-cuda.so";

bool cuda_is_likely(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver) dlclose(driver);
    return driver != NULL;
}

/* What stands behind the number of a card, each with a comma before it. */
static const struct {
    const char *name;
    size_t offset; /* of the bool in struct cuda_switches */
    bool value;
} switches[] = {
    {"cublaslt=off", offsetof(struct cuda_switches, without_cublaslt), true},
    {"depth=0", offsetof(struct cuda_switches, without_depth), true},
    {"graphs=off", offsetof(struct cuda_switches, without_graphs), true},
    {"fusion=off", offsetof(struct cuda_switches, without_fusion), true},
    {"attention=plain", offsetof(struct cuda_switches, plain_attention), true},
    {"codes=bytes", offsetof(struct cuda_switches, byte_codes), true},
    {"codes=plain", offsetof(struct cuda_switches, plain_codes), true},
    {"codes=few", offsetof(struct cuda_switches, few_codes), true},
    {"codes=many", offsetof(struct cuda_switches, few_codes), false},
    {"overlap=on", offsetof(struct cuda_switches, overlap), true},
    {"overlap=off", offsetof(struct cuda_switches, overlap), false},
    {"few=on", offsetof(struct cuda_switches, few_rows), true},
    {"few=off", offsetof(struct cuda_switches, few_rows), false},
    {"fill=on", offsetof(struct cuda_switches, fills), true},
    {"fill=off", offsetof(struct cuda_switches, fills), false},
    {"first=on", offsetof(struct cuda_switches, first), true},
    {"first=off", offsetof(struct cuda_switches, first), false},
    {"two=on", offsetof(struct cuda_switches, two_rows), true},
    {"two=always", offsetof(struct cuda_switches, two_always), true},
    {"two=first", offsetof(struct cuda_switches, two_first), true},
    {"two=off", offsetof(struct cuda_switches, two_rows), false},
    {"fresh=on", offsetof(struct cuda_switches, fresh), true},
    {"fresh=off", offsetof(struct cuda_switches, fresh), false},
    {"dots=on", offsetof(struct cuda_switches, dots), true},
    {"dots=off", offsetof(struct cuda_switches, dots), false},
    {"tiles=even", offsetof(struct cuda_switches, even_tiles), true},
    {"tiles=pairs", offsetof(struct cuda_switches, even_tiles), false},
    {"gated=on", offsetof(struct cuda_switches, gated), true},
    {"gated=off", offsetof(struct cuda_switches, gated), false},
    {"timed=on", offsetof(struct cuda_switches, timed), true},
    {"timed=early", offsetof(struct cuda_switches, timed_early), true},
    {"timed=off", offsetof(struct cuda_switches, timed), false},
    {"sums=any", offsetof(struct cuda_switches, any_sums), true},
    {"whole=on", offsetof(struct cuda_switches, whole), true},
    {"whole=off", offsetof(struct cuda_switches, whole), false},
    {"whole=always", offsetof(struct cuda_switches, whole_always), true},
    {"bulk=on", offsetof(struct cuda_switches, bulk), true},
    {"bulk=off", offsetof(struct cuda_switches, bulk), false},
    {"groups=on", offsetof(struct cuda_switches, groups), true},
    {"groups=off", offsetof(struct cuda_switches, groups), false},
    {"upload=on", offsetof(struct cuda_switches, upload), true},
    {"upload=off", offsetof(struct cuda_switches, upload), false},
    {"dense=on", offsetof(struct cuda_switches, dense), true},
    {"dense=off", offsetof(struct cuda_switches, dense), false},
    {"acts=clusters", offsetof(struct cuda_switches, act_clusters), true},
    {"acts=blocks", offsetof(struct cuda_switches, act_clusters), false},
    {"e4m3=card", offsetof(struct cuda_switches, e4m3_card), true},
    {"e4m3=own", offsetof(struct cuda_switches, e4m3_card), false},
    {"stored=on", offsetof(struct cuda_switches, stored_fp8), true},
    {"stored=off", offsetof(struct cuda_switches, stored_fp8), false},
    {"step=resident", offsetof(struct cuda_switches, resident), true},
    {"step=kernels", offsetof(struct cuda_switches, resident), false},
    {"lean=on", offsetof(struct cuda_switches, lean), true},
    {"lean=off", offsetof(struct cuda_switches, lean), false},
};
enum { SWITCH_COUNT = sizeof(switches) / sizeof(switches[0]) };

/* Those that are on unless they are turned off. */
static const struct cuda_switches usual = {.few_rows = true,
                                           .bulk = true,
                                           .groups = true,
                                           .lean = true,
                                           .whole = true,
                                           .overlap = true,
                                           .upload = true,
                                           .stored_fp8 = true,
                                           .gated = true,
                                           .few_codes = true,
                                           .dots = true,
                                           .two_rows = true,
                                           .first = true,
                                           .fresh = true,
                                           .fills = true,
                                           .timed = true};

static bool set_switch(struct str name, struct cuda_switches *out) {
    for (int i = 0; i < SWITCH_COUNT; i++) {
        if (!str_is(name, switches[i].name)) continue;
        *(bool *)((char *)out + switches[i].offset) = switches[i].value;
        return true;
    }
    return false;
}

enum status cuda_parse(struct str args, struct cuda_choice *out, struct err *err) {
    struct str rest = args;
    bool is_fine = true;
    *out = (struct cuda_choice){.card = 0, .switches = usual};
    while (rest.len > 0 && rest.ptr[0] >= '0' && rest.ptr[0] <= '9' && out->card <= CARD_MAX) {
        out->card = out->card * 10 + (rest.ptr[0] - '0');
        rest = str_skip(rest, 1);
    }
    while (is_fine && rest.len > 0 && rest.ptr[0] == ',') {
        rest = str_skip(rest, 1);
        const char *comma = memchr(rest.ptr, ',', rest.len);
        size_t len = comma ? (size_t)(comma - rest.ptr) : rest.len;
        is_fine = set_switch((struct str){rest.ptr, len}, &out->switches);
        rest = str_skip(rest, len);
    }
    if (is_fine && rest.len == 0 && out->card <= CARD_MAX) return ST_OK;
    return err_set(
        err, ST_BAD,
        "device cuda: \"%.*s\" is not the number of a card, as in cuda:0, with none or "
        "some of ,cublaslt=off ,depth=0 ,graphs=off ,fusion=off ,attention=plain "
        ",codes=plain|few|many|bytes ,dots=on|off ,fill=on|off ,first=on|off "
        ",overlap=on|off ,few=on|off ,two=on|off|first|always ,gated=on|off ,fresh=on|off "
        ",timed=on|early|off ,sums=any "
        ",whole=on|off|always ,bulk=on|off ,groups=on|off ,upload=on|off "
        ",tiles=pairs|even ,lean=on|off ,dense=on|off ,acts=blocks|clusters ,e4m3=own|card "
        ",stored=on|off ,step=kernels|resident "
        "behind it",
        STR_ARG(args));
}

/* ---- the library ---- */

/* The folder of the program, without a slash at its end; false if it is not known. */
static bool program_folder(char *out, size_t cap) {
    ssize_t len = readlink("/proc/self/exe", out, cap - 1);
    if (len <= 0) return false;
    out[len] = '\0';
    char *slash = strrchr(out, '/');
    if (slash) *slash = '\0';
    return slash != NULL;
}

static void *open_at(const char *folder, const char *below, bool *was_there) {
    char path[PATH_BYTES];
    int len = snprintf(path, sizeof(path), "%s%s/%s", folder, below, file_name);
    if (len <= 0 || (size_t)len >= sizeof(path) || access(path, R_OK) != 0) return NULL;
    *was_there = true;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *find_library(bool *was_there) {
    const char *named = env_find("JITNEY_CUDA_LIBRARY");
    char folder[PATH_BYTES];
    if (named) {
        *was_there = true;
        return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    }
    if (!program_folder(folder, sizeof(folder))) return NULL;
    void *library = open_at(folder, "", was_there);
    return library ? library : open_at(folder, "/../lib", was_there);
}

/* A library that was opened before is given again. */
static enum status load(void **library, struct err *err) {
    bool was_there = false;
    *library = find_library(&was_there);
    if (*library) return ST_OK;
    if (was_there) {
        const char *why = dlerror();
        return err_set(err, ST_BAD, "cuda: %s cannot be opened: %s", file_name, why ? why : "");
    }
    return err_set(
        err, ST_MISSING,
        "cuda: %s is neither beside the program nor in ../lib of it; build with the CUDA "
        "toolkit (nvcc on PATH) or set JITNEY_CUDA_LIBRARY to the file",
        file_name);
}

/* JITNEY_CUBLASLT_DIR, CUDA_HOME/lib64 and the toolkit's usual place, with colons between. */
static void cublaslt_dirs(char *out, size_t cap) {
    const char *own = env_find("JITNEY_CUBLASLT_DIR"), *home = env_find("CUDA_HOME");
    snprintf(out, cap, "%s%s%s%s/usr/local/cuda/lib64", own ? own : "", own ? ":" : "",
             home ? home : "", home ? "/lib64:" : "");
}

enum status cuda_device_open(const struct cuda_choice *choice, struct device *out,
                             struct err *err) {
    void *library;
    cuda_library_open_fn *open;
    char dirs[PATH_BYTES];
    TRY(load(&library, err));
    *(void **)&open = dlsym(library, CUDA_LIBRARY_OPEN);
    if (!open) return err_set(err, ST_BAD, "cuda: %s has no %s", file_name, CUDA_LIBRARY_OPEN);
    cublaslt_dirs(dirs, sizeof(dirs));
    const struct cuda_library_options options = {
        .version = JITNEY_VERSION,
        .sizes = {.device = sizeof(struct device),
                  .step = sizeof(struct step),
                  .op = sizeof(struct op),
                  .weight = sizeof(struct weight),
                  .sampling = sizeof(struct sampling),
                  .row_output = sizeof(struct row_output)},
        .card = choice->card,
        .cublaslt_dirs = dirs,
        .keep_dir = choice->keep_dir,
        .keeps_new = choice->keeps_new,
        .fp8_weights = choice->fp8_weights,
        .switches = choice->switches,
    };
    return open(&options, out, err);
}

enum status cuda_program_copy(struct device_program *p, size_t offset, size_t bytes, void *host,
                              bool is_write) {
    void *library;
    cuda_library_slab_fn *copy;
    TRY(load(&library, NULL));
    *(void **)&copy = dlsym(library, CUDA_LIBRARY_SLAB);
    return copy ? copy(p, offset, bytes, host, is_write) : ST_BAD;
}

struct cuda_library_resident cuda_program_resident(const struct device_program *p) {
    void *library;
    cuda_library_resident_fn *tell = NULL;
    if (load(&library, NULL) == ST_OK) *(void **)&tell = dlsym(library, CUDA_LIBRARY_RESIDENT);
    return tell ? tell(p) : (struct cuda_library_resident){.why_not = "the library cannot tell"};
}

/* ---- the list of devices ---- */

static enum status check(struct str args, struct err *err) {
    struct cuda_choice ignored;
    return cuda_parse(args, &ignored, err);
}

static enum status open_cuda(const struct device_options *o, struct str args, struct device *out,
                             struct err *err) {
    struct cuda_choice choice;
    TRY(cuda_parse(args, &choice, err));
    choice.keep_dir = o->keep_dir;
    choice.keeps_new = o->keeps_new;
    choice.fp8_weights = o->fp8_weights;
    return cuda_device_open(&choice, out, err);
}

extern const struct device_kind device_kind_cuda;
const struct device_kind device_kind_cuda = {.name = "cuda",
                                             .takes_fp8 = true,
                                             .is_likely = cuda_is_likely,
                                             .check = check,
                                             .open = open_cuda};
