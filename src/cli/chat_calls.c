/* cli/chat_calls.c - the tool calls of an answer: asking the user, running the commands, adding the
 * results to the conversation. See cli/chat.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "cli/call_text.h"
#include "cli/chat.h"
#include "cli/chat_answer.h"
#include "cli/cli.h"
#include "cli/dialog.h"
#include "cli/line_reader.h"
#include "cli/tool_run.h"
#include "cli/tools_file.h"

enum {
    LINE_BYTES_MAX = 1 << 16,
    REPLY_BYTES_MAX = 1 << 16,
    SHOWN_BYTES = 120, /* of an output */
    RESULT_BYTES_MAX = TOOL_OUTPUT_BYTES_MAX + TOOL_ERRORS_BYTES_MAX + 4096,
    US_PER_S = 1000 * 1000,
};

enum permission { CALL_ALLOWED, CALL_REFUSED, CALL_UNASKED, CALL_STOPPED };

/* ---- asking ---- */

/* The user's reply to one question; `wants_more`: the user asks to see all arguments. */
static enum permission ask_once(struct chat *c, struct tool *tool, bool is_long, bool *wants_more) {
    struct buf reply;
    buf_init(&reply, REPLY_BYTES_MAX);
    enum line_result got =
        line_reader_ask(c->reader,
                        is_long ? "   Run it? [y/N, a: always this tool, s: show all arguments] "
                                : "   Run it? [y/N, a: always this tool] ",
                        &reply);
    struct str word = str_trim(buf_str(&reply));
    bool is_always = str_is(word, "a") || str_is(word, "A") || str_is(word, "always");
    bool is_yes = str_is(word, "y") || str_is(word, "Y") || str_is(word, "yes");
    *wants_more = got == LINE_TEXT && is_long && (str_is(word, "s") || str_is(word, "S"));
    buf_deinit(&reply);
    if (got == LINE_INTERRUPT) return CALL_STOPPED;
    if (got != LINE_TEXT) return CALL_REFUSED;
    if (is_always) tool->is_allowed = true;
    return is_always || is_yes ? CALL_ALLOWED : CALL_REFUSED;
}

static enum permission ask(struct chat *c, struct tool *tool, const struct answer_call *call) {
    bool wants_more = false;
    enum permission got;
    do {
        got = ask_once(c, tool, call->is_long, &wants_more);
        if (wants_more) {
            struct buf all;
            buf_init(&all, 2 * CALL_ARGS_BYTES_MAX);
            buf_put_json_inner(&all, buf_str(&call->args));
            note_write(buf_text(&all));
            buf_deinit(&all);
        }
    } while (wants_more);
    return got;
}

static enum permission permission_for(struct chat *c, struct tool *tool,
                                      const struct answer_call *call) {
    if (c->runs_tools || tool->is_allowed) return CALL_ALLOWED;
    return c->on_terminal ? ask(c, tool, call) : CALL_UNASKED;
}

static void show_command(const struct tool *tool) {
    struct buf line;
    buf_init(&line, LINE_BYTES_MAX);
    buf_put_text(&line, "   command: ");
    command_text_put(tool->command, &line);
    buf_put_text(&line, " (the arguments are its standard input)");
    note_write(buf_text(&line));
    buf_deinit(&line);
}

/* ---- the result ---- */

static void put_end(const struct chat *c, const struct tool_result *r, struct buf *out) {
    switch (r->end) {
    case TOOL_EXITED:
        buf_printf(out, "exit status %d", r->code);
        return;
    case TOOL_SIGNALLED:
        buf_printf(out, "ended by signal %d (%s)", r->code, strsignal(r->code));
        return;
    case TOOL_TIMED_OUT:
        buf_printf(out, "ended after %lld seconds, the time limit",
                   (long long)(c->tool_timeout_us / US_PER_S));
        return;
    case TOOL_STOPPED:
        buf_put_text(out, "stopped by the user");
        return;
    case TOOL_NOT_STARTED:
        buf_printf(out, "the command could not be started: %s", strerror(r->code));
        return;
    }
}

/* The beginning of an output, and how much of it is left out. */
static void put_output(const struct buf *kept, uint64_t bytes, struct buf *out) {
    struct str text = buf_str(kept);
    const bool is_cut = bytes > text.len;
    if (is_cut) text.len = utf8_complete_len(text);
    buf_put_str(out, text);
    if (text.len > 0 && !str_ends(text, STR("\n")) && is_cut) buf_put_char(out, '\n');
    if (is_cut)
        buf_printf(out, "[output cut: %zu of %llu bytes]\n", text.len, (unsigned long long)bytes);
}

/* What the model reads: the output. After a failure it also reads how the command ended. The error
 * output is added after a failure, and if there is no other output. */
static void put_result(const struct chat *c, const struct tool_result *r, struct buf *out) {
    const bool is_success = r->end == TOOL_EXITED && r->code == 0;
    put_output(&r->output, r->output_bytes, out);
    if (is_success && r->output_bytes > 0) return;
    if (out->len > 0 && !str_ends(buf_str(out), STR("\n"))) buf_put_char(out, '\n');
    buf_put_char(out, '[');
    if (is_success)
        buf_put_text(out, "no output");
    else
        put_end(c, r, out);
    buf_put_char(out, ']');
    if (r->errors_bytes == 0) return;
    buf_put_text(out, "\n[error output]\n");
    put_output(&r->errors, r->errors_bytes, out);
}

static void show_result(const struct chat *c, const struct tool_result *r) {
    struct buf line;
    buf_init(&line, LINE_BYTES_MAX);
    buf_put_text(&line, "<- ");
    put_end(c, r, &line);
    if (r->output_bytes > 0) {
        buf_printf(&line, ", %llu bytes: ", (unsigned long long)r->output_bytes);
        short_text_put(str_trim(buf_str(&r->output)), SHOWN_BYTES, &line);
    }
    if (r->errors_bytes > 0) {
        buf_put_text(&line, "; error output: ");
        short_text_put(str_trim(buf_str(&r->errors)), SHOWN_BYTES, &line);
    }
    note_write(buf_text(&line));
    buf_deinit(&line);
}

/* ---- one call ---- */

static void put_unknown(const struct chat *c, struct str name, struct buf *out) {
    buf_printf(out, "There is no tool \"%.*s\". The tools are: ", STR_ARG(name));
    for (uint32_t i = 0; i < tool_set_count(c->tools); i++)
        buf_printf(out, "%s%.*s", i ? ", " : "", STR_ARG(tool_set_at(c->tools, i)->name));
    buf_put_char(out, '.');
}

/* The arguments end with a newline, which programs that read lines need. Returns whether the turn
 * goes on. */
static bool run_command(struct chat *c, const struct tool *tool, struct str args, struct buf *out) {
    struct tool_result result;
    struct buf input;
    buf_init(&input, CALL_ARGS_BYTES_MAX + 1);
    buf_put_str(&input, args);
    buf_put_char(&input, '\n');
    const struct tool_command command = {.argv = tool->command,
                                         .input = buf_str(&input),
                                         .timeout_us = c->tool_timeout_us,
                                         .interrupt = c->interrupt};
    tool_result_init(&result);
    if (buf_status(&input) == ST_OK)
        tool_run(&command, &result);
    else
        result = (struct tool_result){.end = TOOL_NOT_STARTED, .code = ENOMEM};
    show_result(c, &result);
    put_result(c, &result, out);
    bool goes_on = result.end != TOOL_STOPPED;
    tool_result_deinit(&result);
    buf_deinit(&input);
    return goes_on;
}

/* Append what the model is told about the call. Returns whether the turn goes on. */
static bool answer_call(struct chat *c, const struct answer_call *call, struct buf *out) {
    struct str name = buf_str(&call->name), args = buf_str(&call->args);
    struct tool *tool = tool_set_find(c->tools, name);
    if (!tool) {
        put_unknown(c, name, out);
        chat_note("   (not run: there is no such tool)");
        return true;
    }
    if (!call_args_are_whole(args)) {
        buf_put_text(out, "The arguments are not a JSON object, so the tool was not run.");
        chat_note("   (not run: the arguments are not a JSON object)");
        return true;
    }
    if (str_trim(args).len == 0) args = STR("{}");
    show_command(tool);
    switch (permission_for(c, tool, call)) {
    case CALL_ALLOWED:
        return run_command(c, tool, args, out);
    case CALL_UNASKED:
        buf_put_text(out, "The tool was not run: there is no terminal to ask the user for "
                          "permission.");
        chat_note("   (not run: there is no terminal to ask for permission; --run-tools runs calls "
                  "without asking)");
        return true;
    case CALL_REFUSED:
        buf_put_text(out, "The user refused this call, so the tool was not run.");
        chat_note("   (not run: refused)");
        return true;
    case CALL_STOPPED:
        break;
    }
    buf_put_text(out, "The user stopped the turn, so the tool was not run.");
    return false;
}

enum status chat_run_calls(struct chat *c, const struct chat_answer *answer, bool *goes_on,
                           struct err *err) {
    struct buf text;
    enum status st = ST_OK;
    *goes_on = true;
    buf_init(&text, RESULT_BYTES_MAX);
    for (uint32_t i = 0; i < answer->call_count && st == ST_OK; i++) {
        const struct answer_call *call = &answer->calls[i];
        buf_clear(&text);
        /* Every call has a result in the conversation, also those after the end of the turn. */
        if (*goes_on)
            *goes_on = answer_call(c, call, &text);
        else
            buf_put_text(&text, "The user stopped the turn, so the tool was not run.");
        st = buf_status(&text) == ST_OK
                 ? dialog_add_result(c->dialog, buf_str(&call->id), buf_str(&call->name),
                                     buf_str(&text), err)
                 : err_set(err, ST_NOMEM, "out of memory");
    }
    buf_deinit(&text);
    return st;
}
