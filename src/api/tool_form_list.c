/* api/tool_form_list.c - every form in which models write tool calls. */
#include <string.h>

#include "api/tools.h"

extern const struct tool_form tool_form_deepseek, tool_form_gemma, tool_form_glm4,
    tool_form_granite, tool_form_hermes, tool_form_json, tool_form_kimi, tool_form_llama3,
    tool_form_mistral, tool_form_phi4, tool_form_pythonic, tool_form_qwen3_coder;

/* A template gets the first form whose sign it contains; the least specific sign comes last. */
const struct tool_form *const tool_forms[] = {
    &tool_form_qwen3_coder,
    &tool_form_glm4,
    &tool_form_kimi,
    &tool_form_deepseek,
    &tool_form_phi4,
    &tool_form_granite,
    &tool_form_pythonic,
    &tool_form_gemma,
    &tool_form_hermes,
    &tool_form_mistral,
    &tool_form_llama3,
    &tool_form_json,
    NULL,
};

/* Signs of templates whose calls no form reads: tags or programs in place of JSON, or channels.
 * Some of these templates also contain the sign of a form. */
static const char *const foreign_signs[] = {
    "\uff5cDSML\uff5c", /* DeepSeek from V3.2 on */
    "<|channel|>",      /* gpt-oss */
    "<invoke name=",    /* MiniMax */
    "<|START_ACTION|>", /* Command */
    NULL,
};

const struct tool_form *tool_form_find(const char *name) {
    for (size_t i = 0; tool_forms[i]; i++)
        if (strcmp(tool_forms[i]->name, name) == 0) return tool_forms[i];
    return NULL;
}

bool tool_template_has(struct str text, struct str part) {
    for (; text.len >= part.len; text = str_skip(text, 1)) {
        const char *at = memchr(text.ptr, part.ptr[0], text.len - part.len + 1);
        if (!at) return false;
        text = str_skip(text, (size_t)(at - text.ptr));
        if (str_starts(text, part)) return true;
    }
    return false;
}

static bool has_sign(struct str chat_template, const char *const *signs) {
    for (; *signs; signs++)
        if (tool_template_has(chat_template, str_of(*signs))) return true;
    return false;
}

const struct tool_form *tool_form_of_template(struct str chat_template) {
    if (has_sign(chat_template, foreign_signs)) return NULL;
    /* Qwen3-Coder's tag without its parameters: other models write JSON in it. */
    if (tool_template_has(chat_template, STR("<function=")) &&
        !tool_template_has(chat_template, STR("<parameter=")))
        return NULL;
    for (size_t i = 0; tool_forms[i]; i++)
        if (has_sign(chat_template, tool_forms[i]->signs)) return tool_forms[i];
    return NULL;
}

bool tool_form_needs(const struct tool_form *form, struct str special) {
    for (const char *const *own = form->specials; *own; own++)
        if (str_is(special, *own)) return true;
    return false;
}
