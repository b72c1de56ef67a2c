/* server/generation_grammar.c - compiles the grammar of an answer: the request's own grammar, the
 * tools that the model may or must call, and the thoughts before them (api/tool_grammar.h).
 *
 * Compiling runs in libuv's pool, after the prompt was rendered, because the end of the prompt
 * shows whether the answer begins inside a thought. */
#include <string.h>

#include "api/tool_grammar.h"
#include "server/generation_int.h"
#include "server/registry.h"

enum { SOURCE_BYTES_MAX = 8 << 20 }; /* a grammar of parts is read up to this size */

static struct answer_shape shape_of(const struct generation *gen) {
    const struct prompts *p = &gen->prompts;
    return (struct answer_shape){.request = &gen->request,
                                 .tokenizer = gen->model->tokenizer,
                                 .tools = gen->model->forms.tools,
                                 .thinks = p->thought_is_over ? NULL : gen->model->forms.thinks,
                                 .in_thought = p->in_thought};
}

/* If the answer is what the request's own grammar says and nothing else, it needs no parts. */
static bool is_plain(const struct answer_shape *s) {
    return s->request->grammar.is_given && !s->thinks && s->request->tool_choice == TOOLS_NONE;
}

bool generation_has_grammar(const struct generation *gen) {
    const struct answer_shape shape = shape_of(gen);
    const bool is_forced = gen->request.tool_choice >= TOOLS_REQUIRED;
    if (!gen->model->grammars) return gen->request.grammar.is_given || is_forced;
    return gen->request.is_chat ? answer_shape_is_needed(&shape) : gen->request.grammar.is_given;
}

/* ---- errors ---- */

/* The field of the body that is at fault. */
static const char *field_of(const struct generation *gen) {
    return gen->request.grammar.field ? gen->request.grammar.field : "tools";
}

static enum status refuse(const struct generation *gen, enum status st,
                          const struct grammar_refusal *why, struct api_error *e) {
    const bool is_tool = strncmp(why->path, "tools[", 6) == 0;
    const char *field = is_tool ? "tools" : field_of(gen);
    if (st == ST_NOMEM) return api_refuse(e, 503, NULL, "out_of_memory", "%s", why->err.text);
    if (st == ST_UNAVAILABLE) {
        api_refuse(e, why->is_share ? 429 : 503, NULL,
                   why->is_share ? "memory_share_full" : "memory_full", "%s", why->err.text);
        e->retry_after_ms = GRAMMAR_RETRY_MS;
        return st;
    }
    return api_refuse(e, 400, field, is_tool ? "invalid_function_parameters" : "invalid_grammar",
                      "'%s' is refused%s%s: %s", field, why->path[0] ? " at " : "", why->path,
                      why->err.text);
}

static enum status refuse_simulated(const struct generation *gen, struct api_error *e) {
    const char *field = gen->request.grammar.field ? gen->request.grammar.field : "tool_choice";
    return api_refuse(
        e, 400, field, "unsupported_parameter",
        "'%s': the model \"%s\" is simulated (--runner sim:STEP_US) and can neither follow a "
        "grammar nor call tools; leave the field out",
        field, gen->model->name);
}

void generation_refuse_grammar(const struct generation *gen, const struct request *q,
                               struct api_error *e) {
    const char *field = field_of(gen);
    if (q->grammar_failure == ST_UNAVAILABLE) {
        api_refuse(e, 503, NULL, "memory_full", "%s", q->refusal.text);
        e->retry_after_ms = GRAMMAR_RETRY_MS;
    } else if (q->grammar_failure == ST_NOMEM) {
        api_refuse(e, 503, NULL, "out_of_memory", "%s", q->refusal.text);
    } else {
        api_refuse(e, 400, field, "invalid_grammar", "'%s': %s", field, q->refusal.text);
    }
}

/* ---- compiling ---- */

/* The warning becomes the value of a header, so it may have only printable ASCII. */
static void warn(struct generation *gen, const char *text) {
    char *out = gen->answer.warning;
    if (!text[0]) return;
    str_store(str_of(text), out, sizeof(gen->answer.warning));
    for (; *out; out++)
        if (*out < ' ' || *out > '~') *out = '?';
}

static enum status compile_parts(struct generation *gen, const struct answer_shape *shape,
                                 struct grammar_source *source, struct grammar_refusal *why) {
    struct buf text;
    buf_init(&text, SOURCE_BYTES_MAX);
    enum status st = answer_shape_put(shape, &text);
    source->kind = GRAMMAR_PARTS;
    source->text = buf_str(&text);
    if (st == ST_OK)
        st = grammars_compile(gen->model->grammars, source, &gen->grammar, why);
    else if (st == ST_FULL)
        err_set(&why->err, st, "the grammar of the tools has more than %d bytes", SOURCE_BYTES_MAX);
    else
        err_set(&why->err, st, "out of memory for a grammar");
    buf_deinit(&text);
    return st;
}

/* If the schemas are too large for a grammar's limits, only the names of the tools are enforced,
 * unless a tool is strict. Reaching the limit of time is always an error: otherwise the answer
 * would depend on what else the machine does. */
static enum status compile_answer(struct generation *gen, struct answer_shape *shape,
                                  struct grammar_source *source, struct grammar_refusal *why) {
    enum status st = compile_parts(gen, shape, source, why);
    if (st != ST_FULL || why->is_late || !answer_shape_may_loosen(shape)) return st;
    char reason[sizeof(gen->answer.warning)];
    snprintf(reason, sizeof(reason), "tools: the schemas are not enforced: %.200s", why->err.text);
    shape->is_loose = true;
    st = compile_parts(gen, shape, source, why);
    if (st == ST_OK) warn(gen, reason);
    return st;
}

enum status generation_compile(struct generation *gen, struct grammar_source source,
                               struct api_error *e) {
    struct answer_shape shape = shape_of(gen);
    const struct api_grammar *own = &gen->request.grammar;
    struct grammar_refusal why = {0};
    source.max_tokens = gen->request.max_tokens;
    if (!gen->model->grammars) return refuse_simulated(gen, e);
    enum status st;
    if (is_plain(&shape) || !gen->request.is_chat) {
        source.kind = own->kind;
        source.text = buf_str(&own->source);
        st = grammars_compile(gen->model->grammars, &source, &gen->grammar, &why);
    } else {
        st = compile_answer(gen, &shape, &source, &why);
    }
    if (st != ST_OK) return refuse(gen, st, &why, e);
    warn(gen, answer_grammar_relaxed(gen->grammar));
    return ST_OK;
}
