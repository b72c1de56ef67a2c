/* cli/cmd_serve.c - `jitney serve`: the HTTP server. Its flags are the rows of
 * config/settings.def. */
#include "base/buf.h"
#include "cli/cli.h"
#include "cli/serve_check.h"
#include "cli/setting_args.h"
#include "config/env.h"
#include "config/settings.h"
#include "server/server.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

static const struct flag flags_settings[] = {
#define SECTION(title)
#define SETTING SETTING_FLAG
#include "config/settings.def"
#undef SETTING
#undef SECTION
    {0},
};

static const struct flag flags[] = {
    {.name = "print-config",
     .kind = FLAG_BOOL,
     .help =
         "Print every setting with its value and origin, and exit. The output is a config file."},
    {.name = "check",
     .kind = FLAG_BOOL,
     .help = "Check the settings, key file, certificate and models, and exit."},
    {0},
};

static enum exit_code set_from_flags(struct settings *s, const struct args *args, struct err *err) {
    enum status st = setting_args_read(args, flags_settings, s, err);
    for (uint32_t i = 0; st == ST_OK && i < args_operands(args); i++)
        st = settings_set(s, STR("model"), str_of(args_operand(args, i)), FROM_FLAG, err);
    if (st != ST_BAD) return exit_of(st);
    err_prefix(err, st, "serve");
    return EXIT_USAGE;
}

static enum exit_code read_all(struct settings *s, const struct args *args, struct err *err) {
    enum exit_code code = set_from_flags(s, args, err);
    if (code != EXIT_FINE) return code;
    enum status st = settings_read_env(s, env_find, err);
    if (st == ST_OK && s->config) st = settings_read_file(s, s->config, err);
    return st == ST_OK || st == ST_NOMEM ? exit_of(st) : EXIT_CONFIG;
}

static enum exit_code print_config(const struct settings *s, struct err *err) {
    struct buf out;
    buf_init(&out, CONFIG_BYTES_MAX);
    settings_print(s, &out);
    enum status st = buf_status(&out);
    st = st == ST_OK ? out_write(buf_str(&out), err) : err_set(err, st, "out of memory");
    buf_deinit(&out);
    return exit_of(st);
}

static enum exit_code act(const struct settings *s, const struct args *args, struct err *err) {
    if (args_on(args, "print-config")) return print_config(s, err);
    enum exit_code code = serve_check(s, err);
    if (code != EXIT_FINE) return code;
    if (args_on(args, "check")) {
        code = serve_check_models(s, err);
        return code == EXIT_FINE ? exit_of(out_write(STR("settings and models are valid\n"), err))
                                 : code;
    }
    enum status st = server_run(s, err);
    return st == ST_DEVICE ? EXIT_BUG : exit_of(st);
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct settings settings;
    enum status st = settings_init(&settings);
    if (st != ST_OK) return exit_of(err_set(err, st, "out of memory"));
    enum exit_code code = read_all(&settings, args, err);
    if (code == EXIT_FINE) code = act(&settings, args, err);
    settings_deinit(&settings);
    return code;
}

/* First the rows of the table, then the flags of this file. */
static const char *section(uint32_t i) {
    if (i < settings_count()) return settings_section(i);
    return i == settings_count() ? "Other" : NULL;
}

extern const struct command cmd_serve;
const struct command cmd_serve = {
    .name = "serve",
    .summary = "Serve models over HTTP with the APIs of OpenAI, Anthropic and Ollama",
    .operands = "[MODEL]...",
    .about =
        "Listens at once, loads the models and serves them until SIGTERM; requests under way then "
        "get time to finish. On SIGHUP it reads the config file, keys and certificate again. "
        "Models "
        "for text and for embeddings may be served together.\n"
        "Every flag can also be set by an environment variable, JITNEY_ and its name in capitals "
        "(--kv-memory: JITNEY_KV_MEMORY; lists separated by commas), or in a config file without "
        "dashes (kv-memory = 2G). A flag takes precedence over the environment, the environment "
        "over the file, and the file over the default. docs/configuration.md has the whole table; "
        "docs/operation.md explains how to run a server.",
    .groups = {flags_settings, flags},
    .section = section,
    .operands_max = SETTING_LIST_MAX,
    .run = run,
};
