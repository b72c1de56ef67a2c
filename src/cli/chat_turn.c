/* cli/chat_turn.c - one turn of a conversation. See cli/chat.h. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/generated.h"
#include "cli/chat.h"
#include "cli/chat_remote.h"
#include "cli/cli.h"
#include "cli/dialog.h"
#include "cli/interrupt.h"
#include "text/tokenizer.h"

enum { NEARLY_FULL_PERCENT = 80, NOTE_BYTES = 4096 };

void chat_note(const char *fmt, ...) {
    char text[NOTE_BYTES];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof(text), fmt, list);
    va_end(list);
    note_write(text);
}

/* The prompt for all that was said, if it leaves room for an answer. */
static enum status encode(struct chat *c, struct tokens *out, struct err *err) {
    TRY(dialog_encode(c->dialog, out, err));
    uint32_t ctx = c->service.loaded.ctx_tokens;
    if (request_check_prompt(out->count, ctx, false, NULL) == ST_OK) return ST_OK;
    return err_set(
        err, ST_BAD,
        "the conversation has %zu tokens, but the context holds %u, the answer included; "
        "/reset starts a new conversation",
        out->count, ctx);
}

static enum status generate(struct chat *c, const struct tokens *prompt,
                            struct generated *generated, struct err *err) {
    uint32_t room = c->service.loaded.ctx_tokens - (uint32_t)prompt->count;
    const struct request_spec spec = {
        .prompt = prompt->ids,
        .prompt_tokens = (uint32_t)prompt->count,
        .max_tokens = c->max_tokens && c->max_tokens < room ? c->max_tokens : room,
        .n = 1,
        .sample = c->sample,
    };
    const struct text_output_options text = {.tokenizer = c->service.loaded.tokenizer};
    _Atomic bool is_cancelled = false;
    const struct request_run run = {.engine = c->service.engine,
                                    .spec = &spec,
                                    .text = &text,
                                    .is_cancelled = &is_cancelled,
                                    .on_event = generated_take,
                                    .ctx = generated};
    c->last = (struct request_usage){0};
    interrupt_aim(c->interrupt, &is_cancelled);
    enum status st = request_run(&run, &c->last, err);
    interrupt_aim(c->interrupt, NULL);
    return st;
}

static enum status generate_here(struct chat *c, struct generated *generated, struct err *err) {
    struct tokens prompt = {0};
    enum status st = encode(c, &prompt, err);
    if (st == ST_OK) st = generate(c, &prompt, generated, err);
    tokens_deinit(&prompt);
    return st;
}

static enum status generate_remotely(struct chat *c, struct generated *generated, struct err *err) {
    struct buf messages;
    buf_init(&messages, DIALOG_BYTES_MAX * 2);
    dialog_put_json(c->dialog, &messages);
    enum status st = buf_status(&messages);
    const struct remote_request request = {
        .messages = buf_str(&messages), .sample = &c->sample, .max_tokens = c->max_tokens};
    if (st == ST_OK)
        st = remote_generate(c->remote, &request, generated, &c->last, err);
    else
        err_set(err, st, "the conversation is too long to send; /reset starts a new one");
    buf_deinit(&messages);
    return st;
}

static void note_room(const struct chat *c) {
    uint32_t ctx = c->service.loaded.ctx_tokens;
    uint32_t used = c->last.prompt_tokens + c->last.completion_tokens;
    if (used >= ctx)
        chat_note("(the context of %u tokens is full and cut the answer; /reset starts anew)", ctx);
    else if ((uint64_t)used * 100 >= (uint64_t)ctx * NEARLY_FULL_PERCENT)
        chat_note("(%u of %u tokens of context are used; /reset starts anew)", used, ctx);
}

static void note_end(const struct chat *c) {
    if (c->last.finish == FINISH_CANCELLED) chat_note("(stopped)");
    if (!c->remote) note_room(c);
    if (args_on(c->args, "verbose")) report_speed(&c->last);
}

/* The answer ends its line and becomes part of the conversation. */
static enum status finish_turn(struct chat *c, struct generated *generated, struct err *err) {
    TRY(generated_status(generated, err));
    TRY(out_write(STR("\n"), err));
    TRY(out_flush(err));
    c->answer_tokens += c->last.completion_tokens;
    c->answer_us += c->last.decode_us;
    note_end(c);
    return dialog_add(c->dialog, "assistant", buf_str(&generated->text), err);
}

enum status chat_turn(struct chat *c, struct str text, struct err *err) {
    uint32_t before = dialog_count(c->dialog);
    struct generated generated;
    generated_init(&generated, GENERATED_STREAM | GENERATED_COLLECT);
    struct err turn_err = {0};
    enum status st = dialog_add(c->dialog, "user", text, &turn_err);
    if (st == ST_OK) st = (c->remote ? generate_remotely : generate_here)(c, &generated, &turn_err);
    if (st != ST_OK) {
        dialog_truncate(c->dialog, before);
        chat_note("jitney: %s", turn_err.text);
        c->worst = st;
    }
    enum status end = st == ST_OK ? finish_turn(c, &generated, err) : ST_OK;
    generated_deinit(&generated);
    return end;
}
