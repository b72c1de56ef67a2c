/* cli/chat_answer.c - see cli/chat_answer.h. */
#include "cli/chat_answer.h"

#include "base/json.h"
#include "cli/call_text.h"
#include "cli/cli.h"

enum {
    TEXT_BYTES_MAX = 1 << 28,
    NAME_BYTES_MAX = 1024,
    ID_BYTES_MAX = 1024,
    LINE_BYTES_MAX = 1 << 16,
};

enum part { PART_NONE, PART_THOUGHT, PART_TEXT, PART_CALL };

void chat_answer_init(struct chat_answer *a, bool dims) {
    *a = (struct chat_answer){.dims = dims};
    buf_init(&a->text, TEXT_BYTES_MAX);
    buf_init(&a->thoughts, TEXT_BYTES_MAX);
}

void chat_answer_deinit(struct chat_answer *a) {
    for (uint32_t i = 0; i < a->call_count; i++) {
        buf_deinit(&a->calls[i].id);
        buf_deinit(&a->calls[i].name);
        buf_deinit(&a->calls[i].args);
    }
    buf_deinit(&a->text);
    buf_deinit(&a->thoughts);
}

/* ---- showing ---- */

static void put(struct chat_answer *a, struct str text) {
    if (a->out_status == ST_OK) a->out_status = out_write(text, &a->out_err);
}

static bool flush(struct chat_answer *a) {
    if (a->out_status == ST_OK) a->out_status = out_flush(&a->out_err);
    return a->out_status == ST_OK;
}

/* End what is being written and begin something else. */
static void begin_part(struct chat_answer *a, enum part part) {
    if (a->part == part) return;
    if (a->part == PART_THOUGHT) put(a, a->dims ? STR("\n\n") : STR("\n</think>\n\n"));
    bool is_line_open = a->part == PART_TEXT && !str_ends(buf_str(&a->text), STR("\n"));
    if (is_line_open) put(a, STR("\n"));
    if (part == PART_THOUGHT && !a->dims) put(a, STR("<think>\n"));
    a->part = part;
}

bool chat_answer_take_thought(struct chat_answer *a, struct str text) {
    if (text.len == 0) return true;
    begin_part(a, PART_THOUGHT);
    buf_put_str(&a->thoughts, text);
    if (!a->dims)
        put(a, text);
    else if (a->out_status == ST_OK)
        a->out_status = out_write_dim(text, &a->out_err);
    return flush(a);
}

bool chat_answer_take_text(struct chat_answer *a, struct str text) {
    if (text.len == 0) return true;
    begin_part(a, PART_TEXT);
    buf_put_str(&a->text, text);
    put(a, text);
    return flush(a);
}

static void show_call(struct chat_answer *a, struct answer_call *call, bool is_cut) {
    struct buf line;
    buf_init(&line, LINE_BYTES_MAX);
    call->is_long = call_text_put(buf_str(&call->name), buf_str(&call->args), is_cut, &line);
    buf_put_char(&line, '\n');
    put(a, buf_str(&line));
    if (a->out_status == ST_OK && buf_status(&line) != ST_OK)
        a->out_status = err_set(&a->out_err, ST_NOMEM, "out of memory");
    buf_deinit(&line);
}

void chat_answer_finish(struct chat_answer *a, bool is_short) {
    if (a->call_count > 0 && is_short) {
        struct str last = buf_str(&a->calls[a->call_count - 1].args);
        a->is_cut = last.len == 0 || !call_args_are_whole(last);
    }
    bool is_line_open = a->call_count == 0 && (a->part == PART_NONE || a->part == PART_TEXT);
    if (is_line_open)
        put(a, STR("\n"));
    else
        begin_part(a, PART_CALL);
    for (uint32_t i = 0; i < a->call_count; i++)
        if (a->calls[i].id.len == 0) buf_printf(&a->calls[i].id, "call_%u", i);
    for (uint32_t i = 0; i < a->call_count; i++)
        show_call(a, &a->calls[i], a->is_cut && i + 1 == a->call_count);
    flush(a);
}

/* ---- calls ---- */

static struct answer_call *add_call(struct chat_answer *a) {
    struct answer_call *call = &a->calls[a->call_count++];
    buf_init(&call->id, ID_BYTES_MAX);
    buf_init(&call->name, NAME_BYTES_MAX);
    buf_init(&call->args, CALL_ARGS_BYTES_MAX);
    return call;
}

static enum status call_status(const struct answer_call *call) {
    const struct buf *all[] = {&call->id, &call->name, &call->args};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) TRY(buf_status(all[i]));
    return ST_OK;
}

enum status chat_answer_take_call(struct chat_answer *a, const struct call_piece *piece,
                                  struct err *err) {
    int64_t index = piece->index;
    if (index < 0 || index > (int64_t)a->call_count || index >= ANSWER_CALLS_MAX)
        return err_set(
            err, ST_BAD,
            "the answer has a tool call with index %lld after %u calls; expected indexes that "
            "count up from 0 and at most %d calls",
            (long long)index, a->call_count, ANSWER_CALLS_MAX);
    bool is_new = index == (int64_t)a->call_count;
    struct answer_call *call = is_new ? add_call(a) : &a->calls[index];
    if (call->id.len == 0) buf_put_str(&call->id, piece->id);
    if (call->name.len == 0) buf_put_str(&call->name, piece->name);
    buf_put_str(&call->args, piece->args);
    enum status st = call_status(call);
    if (st == ST_FULL)
        return err_set(err, ST_BAD, "the answer has a tool call of more than %d bytes",
                       CALL_ARGS_BYTES_MAX);
    return st == ST_OK ? ST_OK : err_set(err, st, "out of memory");
}

/* ---- afterwards ---- */

enum status chat_answer_status(const struct chat_answer *a, struct err *err) {
    if (a->out_status != ST_OK) {
        *err = a->out_err;
        return a->out_status;
    }
    bool is_whole = buf_status(&a->text) == ST_OK && buf_status(&a->thoughts) == ST_OK;
    return is_whole ? ST_OK : err_set(err, ST_NOMEM, "the answer does not fit in memory");
}

static enum status put_call(struct json *list, const struct answer_call *call) {
    struct json *entry = json_map_create();
    TRY(json_push(list, entry));
    TRY(json_set(entry, STR("id"), json_text_create(buf_str(&call->id))));
    TRY(json_set(entry, STR("type"), json_text_create(STR("function"))));
    struct json *function = json_map_create();
    TRY(json_set(entry, STR("function"), function));
    struct str args = buf_str(&call->args);
    TRY(json_set(function, STR("name"), json_text_create(buf_str(&call->name))));
    return json_set(function, STR("arguments"), json_text_create(args.len ? args : STR("{}")));
}

static enum status fill_message(const struct chat_answer *a, bool with_calls,
                                struct json *message) {
    TRY(json_set(message, STR("role"), json_text_create(STR("assistant"))));
    if (a->thoughts.len > 0)
        TRY(json_set(message, STR("reasoning_content"), json_text_create(buf_str(&a->thoughts))));
    TRY(json_set(message, STR("content"), json_text_create(buf_str(&a->text))));
    if (!with_calls || a->call_count == 0) return ST_OK;
    struct json *calls = json_list_create();
    TRY(json_set(message, STR("tool_calls"), calls));
    for (uint32_t i = 0; i < a->call_count; i++) TRY(put_call(calls, &a->calls[i]));
    return ST_OK;
}

struct json *chat_answer_message(const struct chat_answer *a, bool with_calls) {
    struct json *message = json_map_create();
    if (fill_message(a, with_calls, message) == ST_OK) return message;
    json_destroy(message);
    return NULL;
}
