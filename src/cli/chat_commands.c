/* cli/chat_commands.c - the commands of `jitney chat`, which begin with a slash. See cli/chat.h. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/chat.h"
#include "cli/chat_remote.h"
#include "cli/cli_int.h"
#include "cli/dialog.h"

enum { PATH_BYTES = 4096, SAVED_BYTES_MAX = 1 << 26 };

struct slash_command {
    const char *name, *argument, *help;
    void (*run)(struct chat *c, struct str argument);
};

enum value_kind { VALUE_FLOAT, VALUE_UINT, VALUE_INT };

/* What /set can change. */
struct setting {
    const char *name; /* as the flag */
    enum value_kind kind;
    size_t offset; /* in struct sample_params */
};

static const struct setting settings[] = {
    {"temp", VALUE_FLOAT, offsetof(struct sample_params, temperature)},
    {"top-k", VALUE_UINT, offsetof(struct sample_params, top_k)},
    {"typical", VALUE_FLOAT, offsetof(struct sample_params, typical_p)},
    {"top-p", VALUE_FLOAT, offsetof(struct sample_params, top_p)},
    {"min-p", VALUE_FLOAT, offsetof(struct sample_params, min_p)},
    {"repeat-penalty", VALUE_FLOAT, offsetof(struct sample_params, repetition_penalty)},
    {"presence-penalty", VALUE_FLOAT, offsetof(struct sample_params, presence_penalty)},
    {"frequency-penalty", VALUE_FLOAT, offsetof(struct sample_params, frequency_penalty)},
    {"penalty-window", VALUE_INT, offsetof(struct sample_params, penalty_window)},
};
enum { SETTING_COUNT = sizeof(settings) / sizeof(settings[0]) };

/* The first word of `s`, which moves to what follows it. */
static struct str take_word(struct str *s) {
    size_t len = 0;
    while (len < s->len && s->ptr[len] != ' ') len++;
    struct str word = str_take(*s, len);
    *s = str_trim(str_skip(*s, len));
    return word;
}

static bool copy_path(struct str argument, char path[PATH_BYTES]) {
    if (argument.len == 0 || argument.len >= PATH_BYTES) {
        chat_note("no file name; for example: /save talk.json");
        return false;
    }
    memcpy(path, argument.ptr, argument.len);
    path[argument.len] = 0;
    return true;
}

static void run_reset(struct chat *c, struct str argument) {
    (void)argument;
    struct err err = {0};
    if (dialog_reset(c->dialog, buf_str(&c->system), &err) != ST_OK) chat_note("%s", err.text);
    chat_note("(a new conversation)");
}

static void run_system(struct chat *c, struct str argument) {
    buf_clear(&c->system);
    buf_put_str(&c->system, argument);
    run_reset(c, argument);
}

static void run_save(struct chat *c, struct str argument) {
    char path[PATH_BYTES];
    if (!copy_path(argument, path)) return;
    struct buf text;
    struct err err = {0};
    buf_init(&text, SAVED_BYTES_MAX);
    dialog_put_json(c->dialog, &text);
    buf_put_char(&text, '\n');
    if (buf_status(&text) != ST_OK)
        chat_note("out of memory");
    else if (file_write_atomic(path, buf_str(&text), &err) != ST_OK)
        chat_note("%s", err.text);
    else
        chat_note("(%u messages saved)", dialog_count(c->dialog));
    buf_deinit(&text);
}

static void run_load(struct chat *c, struct str argument) {
    char path[PATH_BYTES];
    if (!copy_path(argument, path)) return;
    struct buf text;
    struct json *list = NULL;
    struct err err = {0};
    buf_init(&text, SAVED_BYTES_MAX);
    enum status st = file_read(path, &text, &err);
    if (st == ST_OK) {
        st = json_parse(buf_str(&text), &json_limits_model_file, &list, &err);
        if (st == ST_OK) st = dialog_load_json(c->dialog, list, &err);
        if (st != ST_OK) err_prefix(&err, st, path);
    }
    if (st == ST_OK)
        chat_note("(%u messages loaded)", dialog_count(c->dialog));
    else
        chat_note("%s", err.text);
    json_destroy(list);
    buf_deinit(&text);
}

static void run_stats(struct chat *c, struct str argument) {
    (void)argument;
    double rate = c->answer_us > 0 ? (double)c->answer_tokens * 1e6 / (double)c->answer_us : 0.0;
    if (c->remote) {
        chat_note("%u messages, %u tokens of context; %llu tokens answered, %.1f/s; %s, seed %llu",
                  dialog_count(c->dialog), c->last.prompt_tokens + c->last.completion_tokens,
                  (unsigned long long)c->answer_tokens, rate, remote_model(c->remote),
                  (unsigned long long)c->sample.seed);
        return;
    }
    chat_note("%u messages, %u of %u tokens of context; %llu tokens answered, %.1f/s; %s kernels, "
              "%u threads, seed %llu",
              dialog_count(c->dialog), c->last.prompt_tokens + c->last.completion_tokens,
              c->service.loaded.ctx_tokens, (unsigned long long)c->answer_tokens, rate,
              c->service.loaded.device.name, c->service.loaded.threads,
              (unsigned long long)c->sample.seed);
}

static double get_setting(const struct sample_params *p, const struct setting *s) {
    const char *field = (const char *)p + s->offset;
    float real;
    int32_t whole;
    uint32_t natural;
    switch (s->kind) {
    case VALUE_FLOAT:
        memcpy(&real, field, sizeof(real));
        return (double)real;
    case VALUE_INT:
        memcpy(&whole, field, sizeof(whole));
        return (double)whole;
    case VALUE_UINT:
        memcpy(&natural, field, sizeof(natural));
        return (double)natural;
    }
    return 0.0;
}

/* false if the field cannot hold the value; whether it makes sense is for the check to say. */
static bool put_setting(struct sample_params *p, const struct setting *s, struct str text) {
    char *field = (char *)p + s->offset;
    double real;
    int64_t whole;
    if (s->kind == VALUE_FLOAT) {
        if (!str_to_f64(text, &real) || !(real > -1e30 && real < 1e30)) return false;
        float value = (float)real;
        memcpy(field, &value, sizeof(value));
        return true;
    }
    if (!str_to_i64(text, &whole) || whole > INT32_MAX || whole < INT32_MIN) return false;
    if (s->kind == VALUE_UINT && whole < 0) return false;
    int32_t value = (int32_t)whole;
    memcpy(field, &value, sizeof(value));
    return true;
}

static void change_setting(struct chat *c, const struct setting *s, struct str value) {
    struct sample_params changed = c->sample;
    struct err err = {0};
    if (!put_setting(&changed, s, value))
        chat_note("\"%.*s\" is not a value for %s", STR_ARG(value), s->name);
    else if (sample_params_check(&changed, &err) != ST_OK)
        chat_note("%s", err.text);
    else {
        c->sample = changed;
        chat_note("(%s is %.9g)", s->name, get_setting(&c->sample, s));
    }
}

static void run_set(struct chat *c, struct str argument) {
    struct str name = take_word(&argument);
    const char *near = NULL;
    uint32_t best = UINT32_MAX;
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (name.len == 0)
            chat_note("%-18s %.9g", settings[i].name, get_setting(&c->sample, &settings[i]));
        if (str_is(name, settings[i].name)) {
            change_setting(c, &settings[i], argument);
            return;
        }
        if (word_is_near(name, settings[i].name, &best)) near = settings[i].name;
    }
    if (name.len == 0) return;
    chat_note("unknown setting \"%.*s\"; %s%s", STR_ARG(name),
              near ? "did you mean " : "/set lists them", near ? near : "");
}

static void run_quit(struct chat *c, struct str argument) {
    (void)argument;
    c->quit = true;
}

static void run_help(struct chat *c, struct str argument);

static const struct slash_command slashes[] = {
    {"help", "", "this list", run_help},
    {"reset", "", "start a new conversation", run_reset},
    {"system", "TEXT", "set the system message (without TEXT: none) and start a new conversation",
     run_system},
    {"set", "NAME VALUE", "change a sampling setting, for example /set temp 0.7", run_set},
    {"save", "FILE", "write the conversation to FILE, as JSON", run_save},
    {"load", "FILE", "load a saved conversation and continue it", run_load},
    {"stats", "", "tokens, speed, context", run_stats},
    {"quit", "", "end the program, as Ctrl-D does", run_quit},
};
enum { SLASH_COUNT = sizeof(slashes) / sizeof(slashes[0]) };

static void run_help(struct chat *c, struct str argument) {
    (void)c;
    (void)argument;
    for (size_t i = 0; i < SLASH_COUNT; i++)
        chat_note("/%-7s %-11s %s", slashes[i].name, slashes[i].argument, slashes[i].help);
    chat_note("\"\"\" begins and ends a message of several lines; Ctrl-C stops an answer");
}

void chat_command(struct chat *c, struct str line) {
    struct str rest = str_trim(str_skip(line, 1));
    struct str name = take_word(&rest);
    const char *near = NULL;
    uint32_t best = UINT32_MAX;
    for (size_t i = 0; i < SLASH_COUNT; i++) {
        if (str_is(name, slashes[i].name)) {
            slashes[i].run(c, rest);
            return;
        }
        if (word_is_near(name, slashes[i].name, &best)) near = slashes[i].name;
    }
    chat_note("unknown command /%.*s; %s%s", STR_ARG(name),
              near ? "did you mean /" : "/help lists the commands", near ? near : "");
}
