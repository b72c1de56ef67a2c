/* cli/chat_turn.c - one turn of a conversation. See cli/chat.h. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/chat.h"
#include "cli/chat_answer.h"
#include "cli/chat_local.h"
#include "cli/chat_remote.h"
#include "cli/cli.h"
#include "cli/dialog.h"
#include "cli/generated.h"
#include "cli/tools_file.h"

enum { NEARLY_FULL_PERCENT = 80, NOTE_BYTES = 4096 };

void chat_note(const char *fmt, ...) {
    char text[NOTE_BYTES];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof(text), fmt, list);
    va_end(list);
    note_write(text);
}

static enum status generate_here(struct chat *c, struct chat_answer *answer, struct err *err) {
    return local_generate(c->local, &c->sample, c->max_tokens, answer, &c->last, err);
}

static enum status generate_remotely(struct chat *c, struct chat_answer *answer, struct err *err) {
    struct buf messages;
    buf_init(&messages, DIALOG_BYTES_MAX * 2);
    dialog_put_json(c->dialog, &messages);
    enum status st = buf_status(&messages);
    const struct remote_request request = {.messages = buf_str(&messages),
                                           .tools =
                                               c->tools ? tool_set_json(c->tools) : (struct str){0},
                                           .sample = &c->sample,
                                           .max_tokens = c->max_tokens};
    if (st == ST_OK)
        st = remote_generate(c->remote, &request, answer, &c->last, err);
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

/* ---- rounds ---- */

/* What happens after an answer. */
enum next { NEXT_END, NEXT_RUN };

static enum next choose_next(const struct chat *c, const struct chat_answer *a, uint32_t round) {
    if (a->call_count == 0 || c->last.finish == FINISH_CANCELLED) return NEXT_END;
    if (a->is_cut) {
        chat_note("(the answer reached its maximum of tokens inside a call, so no call was run; "
                  "-n N allows a longer answer)");
        return NEXT_END;
    }
    if (!c->tools) {
        chat_note("(no call was run: start the program with --tools FILE to run tools)");
        return NEXT_END;
    }
    if (round == CHAT_CALL_ROUNDS_MAX) {
        chat_note("(the model has called tools %d times in a row; the turn ends here, and the last "
                  "calls were not run; send a message to continue)",
                  CHAT_CALL_ROUNDS_MAX);
        return NEXT_END;
    }
    return NEXT_RUN;
}

/* The answer ends its line and becomes part of the conversation. Calls that are not run are left
 * out: a call without a result is not a valid conversation. */
static enum status finish_answer(struct chat *c, struct chat_answer *a, uint32_t round,
                                 enum next *next, struct err *err) {
    enum finish_reason finish = c->last.finish;
    chat_answer_finish(a, finish == FINISH_CANCELLED || finish == FINISH_LENGTH);
    TRY(chat_answer_status(a, err));
    c->answer_tokens += c->last.completion_tokens;
    c->answer_us += c->last.decode_us;
    note_end(c);
    *next = choose_next(c, a, round);
    return dialog_add_message(c->dialog, chat_answer_message(a, *next == NEXT_RUN), err);
}

/* One answer and its calls. A failure of this turn is in *turn_st and `turn_err`; the returned
 * status ends the program. */
static enum status run_round(struct chat *c, uint32_t round, bool *goes_on, enum status *turn_st,
                             struct err *turn_err, struct err *err) {
    struct chat_answer answer;
    enum next next = NEXT_END;
    *goes_on = false;
    chat_answer_init(&answer, c->dims);
    *turn_st = (c->remote ? generate_remotely : generate_here)(c, &answer, turn_err);
    enum status st = ST_OK;
    if (*turn_st == ST_OK) st = finish_answer(c, &answer, round, &next, err);
    if (st == ST_OK && next == NEXT_RUN) {
        *turn_st = chat_run_calls(c, &answer, goes_on, turn_err);
        *goes_on &= *turn_st == ST_OK;
        if (*turn_st == ST_OK && !*goes_on) {
            chat_note("(stopped)");
            /* The turn ends with a message of the assistant: some templates demand it. */
            st = dialog_add(c->dialog, "assistant", (struct str){"", 0}, err);
        }
    }
    chat_answer_deinit(&answer);
    return st;
}

enum status chat_turn(struct chat *c, struct str text, struct err *err) {
    uint32_t before = dialog_count(c->dialog);
    struct err turn_err = {0};
    enum status st = dialog_add(c->dialog, "user", text, &turn_err);
    enum status end = ST_OK;
    bool goes_on = st == ST_OK;
    for (uint32_t round = 0; goes_on && end == ST_OK && round <= CHAT_CALL_ROUNDS_MAX; round++)
        end = run_round(c, round, &goes_on, &st, &turn_err, err);
    if (st != ST_OK) {
        dialog_truncate(c->dialog, before);
        chat_note("jitney: %s", turn_err.text);
        c->worst = st;
    }
    return end;
}
