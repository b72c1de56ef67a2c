/* cli/cmd_chat.c - `jitney chat`: a conversation at the terminal, or from a pipe. */
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/chat.h"
#include "cli/chat_remote.h"
#include "cli/cli.h"
#include "cli/dialog.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/model_args.h"
#include "config/env.h"

enum { MESSAGE_BYTES_MAX = 1 << 22 };

static const struct flag flags[] = {
    {.name = "url",
     .kind = FLAG_TEXT,
     .value = "URL",
     .help = "Talk with a running server, for example http://127.0.0.1:8080; -m then names one of "
             "its models. JITNEY_API_KEY is sent as the key, if it is set."},
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
            chat_note("jitney: a message may have at most %d bytes", MESSAGE_BYTES_MAX);
            c->worst = ST_BAD;
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
    bool edit = c->on_terminal && !env.dumb_terminal;
    bool keep = edit && model_cache_init(&cache, &env, NULL) == ST_OK &&
                file_make_dirs(cache.root, NULL) == ST_OK &&
                path_join(history, sizeof(history), cache.root, "chat_history");
    return line_reader_open(edit, keep ? history : NULL, c->interrupt, &c->reader, err);
}

static enum status open_model(struct chat *c, struct err *err) {
    TRY(model_args_service(c->args, model_args_ctx(c->args), false, &c->service, err));
    return dialog_open(c->service.loaded.tokenizer, args_model(c->args), &c->dialog, err);
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

static enum status prepare(struct chat *c, struct err *err) {
    c->max_tokens = (uint32_t)args_int(c->args, "max-tokens");
    buf_put_text(&c->system, args_text(c->args, "system") ? args_text(c->args, "system") : "");
    /* Before the engine: its threads inherit a mask that blocks the signal. */
    TRY(interrupt_create(&c->interrupt, err));
    TRY(args_text(c->args, "url") ? open_server(c, err) : open_model(c, err));
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
    dialog_close(c->dialog);
    remote_close(c->remote);
    service_close(&c->service);
    interrupt_destroy(c->interrupt);
    buf_deinit(&c->system);
    mem_free(c->bias);
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
        "a pipe, every line is a message, and the answers are written to standard output. With "
        "--url a running server generates the answers.",
    .groups = {flags, flags_sampling, flags_context, flags_chunk, flags_engine},
    .takes_model = true,
    .model_optional = true,
    .run = run,
};
