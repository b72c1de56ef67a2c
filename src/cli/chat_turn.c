/* cli/chat_turn.c - one turn of a conversation. See cli/chat.h. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/answer.h"
#include "cli/chat.h"
#include "cli/chat_remote.h"
#include "cli/cli.h"
#include "cli/dialog.h"
#include "cli/interrupt.h"
#include "text/tokenizer.h"

enum { NEARLY_FULL_PERCENT = 80 };

void chat_note(const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    vfprintf(stderr, fmt, list);
    va_end(list);
    fputc('\n', stderr);
}

/* The prompt for all that was said, if it leaves room for an answer. */
static enum status encode(struct chat *c, struct tokens *out, struct err *err) {
    TRY(dialog_encode(c->dialog, out, err));
    uint32_t ctx = solo_ctx_tokens(c->solo);
    if (out->count >= ctx)
        return err_set(err, ST_BAD,
                       "the conversation has grown to %zu tokens and the context holds %u; /reset "
                       "starts a new one",
                       out->count, ctx);
    return ST_OK;
}

static enum status generate(struct chat *c, const struct tokens *prompt, struct answer *answer,
                            struct err *err) {
    uint32_t room = solo_ctx_tokens(c->solo) - (uint32_t)prompt->count;
    const struct gen_request req = {
        .prompt = prompt->ids,
        .prompt_tokens = (uint32_t)prompt->count,
        .max_tokens = c->max_tokens && c->max_tokens < room ? c->max_tokens : room,
        .sample = c->sample,
    };
    c->last = (struct gen_usage){0};
    interrupt_aim(c->interrupt, c->solo);
    enum status st = solo_generate(c->solo, &req, answer_take, answer, &c->last, err);
    interrupt_aim(c->interrupt, NULL);
    return st;
}

static enum status answer_here(struct chat *c, struct answer *answer, struct err *err) {
    struct tokens prompt = {0};
    enum status st = encode(c, &prompt, err);
    if (st == ST_OK) st = generate(c, &prompt, answer, err);
    tokens_deinit(&prompt);
    return st;
}

static enum status answer_there(struct chat *c, struct answer *answer, struct err *err) {
    struct buf messages;
    buf_init(&messages, DIALOG_BYTES_MAX * 2);
    dialog_put_json(c->dialog, &messages);
    enum status st = buf_status(&messages);
    const struct remote_request request = {
        .messages = buf_str(&messages), .sample = &c->sample, .max_tokens = c->max_tokens};
    if (st == ST_OK)
        st = remote_ask(c->remote, &request, answer, &c->last, err);
    else
        err_set(err, st, "the conversation is too long to send; /reset starts a new one");
    buf_deinit(&messages);
    return st;
}

static void remark_on_room(const struct chat *c) {
    uint32_t ctx = solo_ctx_tokens(c->solo);
    uint32_t used = c->last.prompt_tokens + c->last.completion_tokens;
    if (used >= ctx)
        chat_note("(the context of %u tokens is full and cut the answer; /reset starts anew)", ctx);
    else if ((uint64_t)used * 100 >= (uint64_t)ctx * NEARLY_FULL_PERCENT)
        chat_note("(%u of %u tokens of context are used; /reset starts anew)", used, ctx);
}

static void remark_on_end(const struct chat *c) {
    if (c->last.finish == FINISH_CANCELLED) chat_note("(stopped)");
    if (c->solo) remark_on_room(c);
    if (args_on(c->args, "verbose")) answer_report_speed(&c->last);
}

/* The answer ends its line and becomes part of the conversation. */
static enum status finish_turn(struct chat *c, struct answer *answer, struct err *err) {
    TRY(answer_status(answer, err));
    TRY(out_write(STR("\n"), err));
    TRY(out_flush(err));
    c->answer_tokens += c->last.completion_tokens;
    c->answer_us += c->last.decode_us;
    remark_on_end(c);
    return dialog_add(c->dialog, "assistant", buf_str(&answer->text), err);
}

enum status chat_turn(struct chat *c, struct str text, struct err *err) {
    uint32_t before = dialog_count(c->dialog);
    struct answer answer;
    answer_init(&answer, ANSWER_STREAM | ANSWER_COLLECT);
    struct err turn_err = {0};
    enum status st = dialog_add(c->dialog, "user", text, &turn_err);
    if (st == ST_OK) st = (c->solo ? answer_here : answer_there)(c, &answer, &turn_err);
    if (st != ST_OK) {
        dialog_truncate(c->dialog, before);
        chat_note("jitney: %s", turn_err.text);
        c->worst = st;
    }
    enum status end = st == ST_OK ? finish_turn(c, &answer, err) : ST_OK;
    answer_deinit(&answer);
    return end;
}
