/* cli/serve_check.c - see cli/serve_check.h. */
#include "cli/serve_check.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/str.h"
#include "config/env.h"
#include "hub/model_cache.h"
#include "config/settings.h"
#include "engine/draft_checks.h"
#include "engine/draft_model.h"
#include "format/model_file.h"
#include "kernels/devices.h"
#include "net/tls.h"
#include "sched/knobs.h"
#include "sched/policy.h"
#include "access/keys.h"
#include "report/notify.h"
#include "access/access.h"
#include "server/memory_plan.h"
#include "spec/speculate_option.h"
#include "text/tokenizer.h"

enum { HOST_BYTES = 256 };

/* The code for a wrong value: it depends on where the value came from. */
static enum exit_code code_of_origin(const struct settings *s, const char *flag) {
    return settings_origin(s, flag) == FROM_FLAG ? EXIT_USAGE : EXIT_CONFIG;
}

static enum exit_code code_of(enum status st, const struct settings *s, const char *flag) {
    if (st == ST_OK) return EXIT_FINE;
    return st == ST_NOMEM ? exit_of(st) : code_of_origin(s, flag);
}

static enum exit_code check_scheduling(const struct settings *s, struct err *err) {
    if (!sched_policy_find(s->policy)) {
        usage_set(err, "unknown policy \"%.100s\"; \"jitney knobs\" lists them", s->policy);
        return code_of_origin(s, "policy");
    }
    struct knobs knobs = knobs_default();
    for (uint32_t i = 0; i < s->set.count; i++) {
        enum status st = knobs_set_pair(&knobs, str_of(s->set.items[i]), err);
        if (st != ST_OK) return code_of(err_prefix(err, st, "--set"), s, "set");
    }
    struct speculate_option speculate;
    enum status st = speculate_option_parse(str_of(s->speculate), &speculate, err);
    if (st != ST_OK) return code_of(st, s, "speculate");
    struct str runner = str_of(s->runner);
    if (!str_is(runner, "local") && !str_starts(runner, STR("sim:"))) {
        usage_set(err, "--runner is \"%.100s\"; it must be local or sim:STEP_US", s->runner);
        return code_of_origin(s, "runner");
    }
    if (speculate.kind != SPECULATE_MODEL || str_is(runner, "local")) return EXIT_FINE;
    usage_set(err, "--speculate model needs --runner local; choose another drafter");
    return code_of_origin(s, "speculate");
}

/* The limits that must fit into --memory-max. */
static enum exit_code check_memory(const struct settings *s, struct err *err) {
    static const char *const flags[] = {"memory-max", "body-max", "keep-memory", "file-max"};
    struct memory_plan plan;
    if (memory_plan_make(s, memory_plan_machine_bytes(), &plan, err) == ST_OK) return EXIT_FINE;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (settings_origin(s, flags[i]) == FROM_FLAG) return EXIT_USAGE;
    return EXIT_CONFIG;
}

static enum exit_code check_device(const struct settings *s, struct err *err) {
    enum status st = device_check_name(s->device, err);
    if (st != ST_OK) (void)err_prefix(err, st, "--device");
    return code_of(st, s, "device");
}

static enum exit_code check_isa(const struct settings *s, struct err *err) {
    enum status st = device_check_isa(s->isa, err);
    if (st != ST_OK) (void)err_prefix(err, st, "--isa");
    return code_of(st, s, "isa");
}

static bool address_is_local(const struct sockaddr_storage *at) {
    char text[HOST_BYTES] = "";
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)at;
    if (at->ss_family == AF_INET) inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    if (at->ss_family == AF_INET6) inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    return !text[0] || access_host_is_loopback(text); /* a unix socket has no address */
}

/* A variable as a number; 0 if it is not set or not a number. */
static uint64_t env_number(const char *name) {
    const char *text = env_find(name);
    uint64_t value = 0;
    return text && str_to_u64(str_of(text), &value) ? value : 0;
}

/* How many sockets a service manager passes to this process (report/notify.h). */
static uint64_t count_passed(void) {
    return env_number("LISTEN_PID") == (uint64_t)getpid() ? env_number("LISTEN_FDS") : 0;
}

/* Whether other machines can reach one of these sockets. */
static bool is_passed_open(void) {
    enum { FIRST_FD = 3 };
    uint64_t count = count_passed();
    for (uint64_t i = 0; i < count && i < NOTIFY_FDS_MAX; i++) {
        struct sockaddr_storage at = {0};
        socklen_t bytes = sizeof(at);
        if (getsockname(FIRST_FD + (int)i, (struct sockaddr *)&at, &bytes) != 0) continue;
        if (!address_is_local(&at)) return true;
    }
    return false;
}

static enum exit_code check_address(const struct settings *s, struct err *err) {
    bool has_other = s->uds || count_passed() > 0;
    bool has_tcp = !has_other || settings_origin(s, "port") != FROM_DEFAULT;
    if (s->uds && strlen(s->uds) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        usage_set(err, "serve: --uds is too long; the path of a socket has less than %zu bytes",
                  sizeof(((struct sockaddr_un *)0)->sun_path));
        return code_of_origin(s, "uds");
    }
    if (s->api_key_file || s->no_auth) return EXIT_FINE;
    bool is_given = is_passed_open();
    if (!is_given && (!has_tcp || access_host_is_loopback(s->host))) return EXIT_FINE;
    return usage_set(
        err,
        "serve: other machines can reach %s%.100s; give --api-key-file FILE to require a "
        "key, or --no-auth to accept requests without one",
        is_given ? "a socket of the service manager" : "--host ", is_given ? "" : s->host);
}

static enum exit_code check_tls(const struct settings *s, struct err *err) {
    if (!s->tls_cert && !s->tls_key) return EXIT_FINE;
    if (!s->tls_cert || !s->tls_key) {
        const char *given = s->tls_cert ? "tls-cert" : "tls-key";
        const char *missing = s->tls_cert ? "tls-key" : "tls-cert";
        usage_set(err, "serve: --%s needs --%s, too", given, missing);
        return code_of_origin(s, given);
    }
    struct tls_context *tls = NULL;
    enum status st = tls_context_create(s->tls_cert, s->tls_key, &tls, err);
    tls_context_destroy(tls);
    return code_of(st, s, "tls-cert");
}

static enum exit_code check_keys(const struct settings *s, struct err *err) {
    if (!s->api_key_file) return EXIT_FINE;
    if (s->no_auth) {
        usage_set(err, "serve: give --api-key-file or --no-auth, not both");
        return code_of_origin(s, "no-auth");
    }
    struct keys *keys = NULL;
    enum status st = keys_create(s->api_key_file, &keys, err);
    keys_destroy(keys);
    return code_of(st, s, "api-key-file");
}

static enum exit_code resolve(const char *model, char path[MODEL_PATH_BYTES], struct err *err) {
    struct env_settings env;
    struct model_cache cache = {0};
    env_read(&env);
    /* Without a cache, paths still work. */
    if (model_cache_init(&cache, &env, NULL) != ST_OK) cache.root[0] = 0;
    return exit_of(model_cache_resolve(&cache, model, path, err));
}

static enum exit_code check_names(const struct settings *s, struct err *err) {
    char path[MODEL_PATH_BYTES];
    if (s->served_model_name.count > s->models.count) {
        usage_set(err,
                  "serve: %u names for %u models; give --served-model-name once for each model",
                  s->served_model_name.count, s->models.count);
        return code_of_origin(s, "served-model-name");
    }
    for (uint32_t i = 0; i < s->models.count; i++) {
        enum exit_code code = resolve(s->models.items[i], path, err);
        if (code != EXIT_FINE) return code;
    }
    return EXIT_FINE;
}

typedef enum exit_code check_fn(const struct settings *s, struct err *err);

static enum exit_code check_each(check_fn *const *checks, const struct settings *s,
                                 struct err *err) {
    enum exit_code code = EXIT_FINE;
    for (uint32_t i = 0; code == EXIT_FINE && checks[i]; i++) code = checks[i](s, err);
    return code;
}

enum exit_code serve_check_engine(const struct settings *s, struct err *err) {
    static check_fn *const checks[] = {check_scheduling, check_device, check_isa, check_names,
                                       NULL};
    return check_each(checks, s, err);
}

enum exit_code serve_check(const struct settings *s, struct err *err) {
    static check_fn *const checks[] = {check_address, check_scheduling, check_device,
                                       check_isa,     check_keys,       check_tls,
                                       check_names,   check_memory,     NULL};
    return check_each(checks, s, err);
}

static enum status open_model(const char *path, struct err *err) {
    struct model_file *file = NULL;
    struct tokenizer *tokenizer = NULL;
    enum status st = model_file_open(path, &file, err);
    if (st == ST_OK) st = tokenizer_create(file, &tokenizer, err);
    tokenizer_destroy(tokenizer);
    model_file_close(file);
    return st;
}

/* Can the draft model draft for the model at `path`? For one that only gives embeddings nothing is
 * drafted. How much memory is free is not checked: another server may run until this one starts. */
static enum status check_draft(const struct settings *s, const char *path, const char *draft,
                               struct err *err) {
    struct loaded_model loaded = {0};
    struct draft_needs needs;
    const struct draft_model_options options = {.load = {.no_weights = true, .device = s->device},
                                                .block_tokens = knobs_default().block_size,
                                                .seq_max = 1,
                                                .memory_bytes = UINT64_MAX};
    enum status st = loaded_model_open(&loaded, path, &options.load, err);
    if (st == ST_OK && !model_is_encoder(loaded.model)) {
        st = draft_checks_run(draft, &loaded, &options, &needs, err);
        if (st != ST_OK) (void)err_prefix(err, st, "--speculate model");
    }
    loaded_model_close(&loaded);
    return st;
}

/* The path of --speculate model:PATH, up to the setting's end; NULL: there is no draft model. */
static const char *draft_path(const struct settings *s) {
    struct speculate_option speculate;
    if (speculate_option_parse(str_of(s->speculate), &speculate, NULL) != ST_OK) return NULL;
    return speculate.kind == SPECULATE_MODEL ? speculate.path.ptr : NULL;
}

enum exit_code serve_check_models(const struct settings *s, struct err *err) {
    char path[MODEL_PATH_BYTES];
    const char *draft = draft_path(s);
    for (uint32_t i = 0; i < s->models.count; i++) {
        enum exit_code code = resolve(s->models.items[i], path, err);
        if (code == EXIT_FINE) code = exit_of(open_model(path, err));
        if (code == EXIT_FINE && draft) code = exit_of(check_draft(s, path, draft, err));
        if (code != EXIT_FINE) return code;
    }
    return EXIT_FINE;
}
