/* cli/cmd_health.c - `jitney health`: is a server ready? For containers and scripts. */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"
#include "config/env.h"
#include "config/settings.h"

enum { URL_BYTES = 1024, BODY_BYTES = 200, HTTP_OK = 200 };

static const struct flag flags[] = {
    {.name = "live",
     .kind = FLAG_BOOL,
     .help = "Check that the server is alive (/livez) instead of ready (/readyz)."},
    {.name = "timeout-s",
     .kind = FLAG_REAL,
     .value = "S",
     .fallback = "5",
     .min = 0.1,
     .max = 600,
     .help = "Time limit for the response."},
    {0},
};

/* The first bytes of the response. */
struct body {
    char text[BODY_BYTES];
    size_t len;
};

static size_t take_body(char *bytes, size_t size, size_t count, void *ctx) {
    struct body *b = ctx;
    size_t room = sizeof(b->text) - 1 - b->len, len = size * count;
    size_t taken = len < room ? len : room;
    memcpy(b->text + b->len, bytes, taken);
    b->len += taken;
    return len;
}

/* The server; `socket_path` is "" for TCP. */
struct target {
    char url[URL_BYTES], socket_path[URL_BYTES];
};

static enum exit_code target_of_url(const char *url, const char *path, struct target *out,
                                    struct err *err) {
    struct str base = str_of(url);
    if (!str_starts(base, STR("http://")) && !str_starts(base, STR("https://")))
        return usage_set(
            err, "health: \"%.100s\" is not an address; expected for example http://127.0.0.1:8080",
            url);
    while (base.len > 0 && base.ptr[base.len - 1] == '/') base.len--;
    snprintf(out->url, sizeof(out->url), "%.*s%s", STR_ARG(base), path);
    return EXIT_FINE;
}

/* The server that the environment describes, as `jitney serve` would read it. */
static enum exit_code target_of_env(const char *path, struct target *out, struct err *err) {
    struct settings s;
    enum status st = settings_init(&s);
    if (st != ST_OK) return exit_of(err_set(err, st, "out of memory"));
    st = settings_read_env(&s, env_find, err);
    if (st == ST_OK && s.config) st = settings_read_file(&s, s.config, err);
    if (st == ST_OK) {
        bool is_any = strcmp(s.host, "0.0.0.0") == 0 || strcmp(s.host, "::") == 0;
        bool is_v6 = strchr(s.host, ':') && s.host[0] != '[' && !is_any;
        bool has_tcp = !s.uds || settings_origin(&s, "port") != FROM_DEFAULT;
        snprintf(out->url, sizeof(out->url), "%s://%s%s%s:%d%s", s.tls_cert ? "https" : "http",
                 is_v6 ? "[" : "", is_any ? "127.0.0.1" : s.host, is_v6 ? "]" : "", (int)s.port,
                 path);
        if (!has_tcp) {
            snprintf(out->url, sizeof(out->url), "http://localhost%s", path);
            snprintf(out->socket_path, sizeof(out->socket_path), "%s", s.uds);
        }
    }
    settings_deinit(&s);
    return st == ST_OK || st == ST_NOMEM ? exit_of(st) : EXIT_CONFIG;
}

static void set_options(CURL *curl, const struct target *target, const struct args *args,
                        struct body *body) {
    curl_easy_setopt(curl, CURLOPT_URL, target->url);
    if (target->socket_path[0])
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, target->socket_path);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(1000 * args_real(args, "timeout-s")));
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    struct env_settings env;
    env_read(&env);
    if (env.ca_file) curl_easy_setopt(curl, CURLOPT_CAINFO, env.ca_file);
    /* Our own server: its certificate has its public name, not 127.0.0.1. */
    bool is_ours = args_operands(args) == 0;
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, is_ours ? 0L : 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, is_ours ? 0L : 2L);
}

static enum exit_code ask(const struct target *target, const struct args *args, struct err *err) {
    struct body body = {0};
    char why[CURL_ERROR_SIZE] = "";
    curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL *curl = curl_easy_init();
    if (!curl) {
        curl_global_cleanup();
        return exit_of(err_set(err, ST_NOMEM, "out of memory"));
    }
    set_options(curl, target, args, &body);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    CURLcode failed = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    curl_global_cleanup();
    if (failed)
        return exit_of(err_set(err, ST_UNAVAILABLE, "%.200s: %s", target->url,
                               why[0] ? why : curl_easy_strerror(failed)));
    if (status == HTTP_OK) return EXIT_FINE;
    return exit_of(
        err_set(err, ST_UNAVAILABLE, "%.200s: status %ld: %s", target->url, status, body.text));
}

static enum exit_code run(const struct args *args, struct err *err) {
    const char *path = args_on(args, "live") ? "/livez" : "/readyz";
    struct target target = {0};
    enum exit_code code = args_operands(args) > 0
                              ? target_of_url(args_operand(args, 0), path, &target, err)
                              : target_of_env(path, &target, err);
    return code == EXIT_FINE ? ask(&target, args, err) : code;
}

extern const struct command cmd_health;
const struct command cmd_health = {
    .name = "health",
    .summary = "Check whether a server is ready",
    .operands = "[URL]",
    .about = "Exits with 0 if the server at URL is ready, and with 69 and a message if it is not. "
             "Without URL it checks the server on this machine that the environment (JITNEY_HOST, "
             "JITNEY_PORT, JITNEY_UDS, JITNEY_CONFIG, ...) describes. SSL_CERT_FILE names "
             "certificates to trust.",
    .groups = {flags},
    .operands_max = 1,
    .run = run,
};
