/* cli/cmd_chat.c - `jitney chat`: a conversation at the terminal, or from a pipe. */
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/chat.h"
#include "cli/chat_local.h"
#include "cli/chat_remote.h"
#include "cli/cli.h"
#include "cli/dialog.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/model_args.h"
#include "cli/tools_file.h"
#include "config/env.h"

enum { MESSAGE_BYTES_MAX = 1 << 22, US_PER_S = 1000 * 1000 };

static const struct flag flags[] = {
    {.name = "url",
     .kind = FLAG_TEXT,
     .value = "URL",
     .help = "Talk with a running server, for example http://127.0.0.1:8080; -m then names one of "
             "its models. JITNEY_API_KEY is sent as the key, if it is set."},
    {.name = "tools",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "A file with the tools that the model may call, a JSON list of "
             "{\"name\", \"description\", \"parameters\", \"command\": [\"program\", \"argument\", "
             "...]}. The program asks before it runs a command. The command gets the arguments "
             "of the call as JSON on its standard input."},
    {.name = "run-tools",
     .kind = FLAG_BOOL,
     .help = "Run the commands of tools without asking, with or without a terminal."},
    {.name = "tool-seconds",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "60",
     .min = 1,
     .max = 86400,
     .help = "Stop the command of a tool after N seconds."},
    {.name = "system", .kind = FLAG_TEXT, .value = "TEXT", .help = "The system message."},
    {.name = "max-tokens",
     .letter = 'n',
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "0",
     .min = 0,
     .max = 1 << 24,
     .help = "End an answer after N tokens; 0: when the model ends it or the context is full."},
    {.name = "verbose",
     .letter = 'v',
     .kind = FLAG_BOOL,
     .help = "Report the speed of every answer on standard error."},
    {0},
};

static const char FENCE[] = "\"\"\"";

/* The lines of a message between fences; `text` holds what followed the first one. */
static enum line_result read_fenced(struct chat *c, struct buf *line, struct buf *text) {
    for (;;) {
        enum line_result result = line_reader_next(c->reader, ". ", line);
        if (result != LINE_TEXT) return result == LINE_END ? LINE_TEXT : result;
        struct str more = buf_str(line);
        bool last = str_ends(more, str_of(FENCE));
        if (last) more.len -= sizeof(FENCE) - 1;
        if (text->len > 0 && (more.len > 0 || !last)) buf_put_char(text, '\n');
        buf_put_str(text, more);
        if (last) return buf_status(text) == ST_OK ? LINE_TEXT : LINE_TOO_LONG;
    }
}

/* One message into `text`: a line, or several between fences. */
static enum line_result read_message(struct chat *c, struct buf *line, struct buf *text) {
    buf_clear(text);
    enum line_result result = line_reader_next(c->reader, "> ", line);
    if (result != LINE_TEXT) return result;
    struct str s = buf_str(line);
    if (!str_starts(s, str_of(FENCE))) {
        buf_put_str(text, s);
        return buf_status(text) == ST_OK ? LINE_TEXT : LINE_TOO_LONG;
    }
    s = str_skip(s, sizeof(FENCE) - 1);
    bool closed = s.len >= sizeof(FENCE) - 1 && str_ends(s, str_of(FENCE));
    if (closed) s.len -= sizeof(FENCE) - 1;
    buf_put_str(text, s);
    return closed ? LINE_TEXT : read_fenced(c, line, text);
}

/* The first Ctrl-C at the prompt clears the line; a second one ends the program. */
static void note_interrupt(struct chat *c, uint32_t *interrupts) {
    if (c->on_terminal) fputc('\n', stderr);
    if (++*interrupts >= 2 || !c->on_terminal)
        c->quit = true;
    else
        chat_note("(Ctrl-C again, Ctrl-D or /quit ends the program)");
}

/* A message was not read: it is too long, or there is no memory for it. */
static void note_lost(struct chat *c, const struct buf *line, const struct buf *text) {
    bool has_memory = buf_status(line) != ST_NOMEM && buf_status(text) != ST_NOMEM;
    if (has_memory)
        chat_note("jitney: a message may have at most %d bytes", MESSAGE_BYTES_MAX);
    else
        chat_note("jitney: out of memory for the message");
    c->worst = has_memory ? ST_BAD : ST_NOMEM;
}

static enum status converse(struct chat *c, struct buf *line, struct buf *text, struct err *err) {
    uint32_t interrupts = 0;
    while (!c->quit) {
        enum line_result result = read_message(c, line, text);
        if (result == LINE_END) break;
        if (result == LINE_INTERRUPT) {
            note_interrupt(c, &interrupts);
            continue;
        }
        interrupts = 0;
        if (result == LINE_TOO_LONG) {
            note_lost(c, line, text);
            continue;
        }
        struct str message = buf_str(text);
        if (str_trim(message).len == 0) continue;
        if (message.ptr[0] == '/')
            chat_command(c, message);
        else
            TRY(chat_turn(c, message, err));
    }
    if (c->on_terminal && !c->quit) fputc('\n', stderr);
    return ST_OK;
}

static void greet(const struct chat *c) {
    if (!c->on_terminal) return;
    if (c->remote) {
        chat_note("%s at %s. /help lists commands, Ctrl-D leaves.", remote_model(c->remote),
                  args_text(c->args, "url"));
        return;
    }
    chat_note("%s: %u tokens of context, %s kernels, %u threads. /help lists commands, Ctrl-D "
              "leaves.",
              args_model(c->args), c->service.loaded.ctx_tokens, c->service.loaded.device.name,
              c->service.loaded.threads);
}

static enum status open_reader(struct chat *c, struct err *err) {
    struct env_settings env;
    struct model_cache cache;
    char history[MODEL_PATH_BYTES];
    env_read(&env);
    c->on_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    c->dims = isatty(STDOUT_FILENO) && !env.no_color && !env.dumb_terminal;
    bool edit = c->on_terminal && !env.dumb_terminal;
    bool keep = edit && model_cache_init(&cache, &env, NULL) == ST_OK &&
                file_make_dirs(cache.root, NULL) == ST_OK &&
                path_join(history, sizeof(history), cache.root, "chat_history");
    return line_reader_open(edit, keep ? history : NULL, c->interrupt, &c->reader, err);
}

static enum status open_model(struct chat *c, struct err *err) {
    TRY(model_args_service(c->args, model_args_ctx(c->args), false, NULL, &c->service, err));
    TRY(dialog_open(c->service.loaded.tokenizer, args_model(c->args), &c->dialog, err));
    const struct local_options options = {.service = &c->service,
                                          .dialog = c->dialog,
                                          .interrupt = c->interrupt,
                                          .model = args_model(c->args),
                                          .tools = c->tools ? tool_set_json(c->tools) : STR("")};
    return local_open(&options, &c->local, err);
}

static enum status open_server(struct chat *c, struct err *err) {
    struct env_settings env;
    env_read(&env);
    const struct remote_options options = {.url = args_text(c->args, "url"),
                                           .model = args_model(c->args),
                                           .key = env_find("JITNEY_API_KEY"),
                                           .ca_file = env.ca_file,
                                           .interrupt = c->interrupt};
    TRY(remote_open(&options, &c->remote, err));
    return dialog_open(NULL, options.url, &c->dialog, err);
}

/* Before anything that takes time: a wrong file is reported at once. */
static enum status open_tools(struct chat *c, struct err *err) {
    const char *path = args_text(c->args, "tools");
    c->runs_tools = args_on(c->args, "run-tools");
    c->tool_timeout_us = args_int(c->args, "tool-seconds") * US_PER_S;
    return path ? tools_file_load(path, &c->tools, err) : ST_OK;
}

/* The commands of tools need no keys, and a model could ask for them. */
static void hide_keys(const struct chat *c) {
    if (!c->tools) return;
    env_remove("JITNEY_API_KEY");
    env_remove("HF_TOKEN");
}

static enum status prepare(struct chat *c, struct err *err) {
    TRY(open_tools(c, err));
    c->max_tokens = (uint32_t)args_int(c->args, "max-tokens");
    buf_put_text(&c->system, args_text(c->args, "system") ? args_text(c->args, "system") : "");
    /* Before the engine: its threads inherit a mask that blocks the signal. */
    TRY(interrupt_create(&c->interrupt, err));
    TRY(args_text(c->args, "url") ? open_server(c, err) : open_model(c, err));
    hide_keys(c);
    TRY(dialog_reset(c->dialog, buf_str(&c->system), err));
    return open_reader(c, err);
}

static enum status talk(struct chat *c, struct err *err) {
    struct buf line, text;
    buf_init(&line, MESSAGE_BYTES_MAX);
    buf_init(&text, MESSAGE_BYTES_MAX);
    interrupt_settle(c->interrupt);
    greet(c);
    enum status st = converse(c, &line, &text, err);
    buf_deinit(&line);
    buf_deinit(&text);
    return st;
}

static void drop(struct chat *c) {
    line_reader_close(c->reader);
    local_close(c->local);
    dialog_close(c->dialog);
    remote_close(c->remote);
    service_close(&c->service);
    interrupt_destroy(c->interrupt);
    tool_set_destroy(c->tools);
    buf_deinit(&c->system);
    mem_free(c->bias);
}

static enum exit_code check_tool_flags(const struct args *args, struct err *err) {
    const char *path = args_text(args, "tools");
    if (path && str_is(str_of(path), "-"))
        return usage_set(err, "chat: --tools - is not possible: the messages come from standard "
                              "input; give the name of a file");
    if (!path && (args_on(args, "run-tools") || args_given(args, "tool-seconds")))
        return usage_set(err, "chat: --run-tools and --tool-seconds need --tools FILE");
    return EXIT_FINE;
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct chat c = {.args = args};
    buf_init(&c.system, MESSAGE_BYTES_MAX);
    c.bias = mem_alloc_array(LOGIT_BIAS_MAX, sizeof(c.bias[0]));
    if (!c.bias) return exit_of(err_set(err, ST_NOMEM, "out of memory"));
    enum exit_code code = model_args_sampling(args, c.bias, &c.sample, err);
    c.sample.no_logprobs = true;
    if (code == EXIT_FINE && !args_model(args) && !args_text(args, "url"))
        code =
            usage_set(err, "chat: no model; give -m MODEL (\"jitney list\" shows the models in the "
                           "cache) or --url URL");
    if (code == EXIT_FINE) code = check_tool_flags(args, err);
    if (code == EXIT_FINE) {
        enum status st = prepare(&c, err);
        if (st == ST_OK) st = talk(&c, err);
        /* A person has read the error; a script needs the exit code. */
        if (st == ST_OK && !c.on_terminal) st = c.worst;
        code = exit_of(st);
    }
    drop(&c);
    return code;
}

extern const struct command cmd_chat;
const struct command cmd_chat = {
    .name = "chat",
    .summary = "Talk with a model",
    .operands = "",
    .about =
        "Starts a conversation that uses the model's chat template. On a terminal, lines can be "
        "edited and earlier lines recalled; Ctrl-C stops an answer, Ctrl-D ends the program, "
        "/help lists the commands, and \"\"\" begins and ends a message of several lines. From "
        "a pipe, every line is a message, and the answers are written to standard output. The "
        "model's thoughts are shown dimmed, and each tool call on a line. With --tools the program "
        "asks for permission and then runs the commands of the tools that the model calls. With "
        "--url a running server generates the answers.",
    .groups = {flags, flags_sampling, flags_context, flags_chunk, flags_engine},
    .takes_model = true,
    .model_optional = true,
    .run = run,
};
