/* api/model_forms.h - how a model writes tool calls and thoughts, from its chat template. */
#ifndef API_MODEL_FORMS_H
#define API_MODEL_FORMS_H

#include <stdbool.h>

struct think_form;
struct tokenizer;
struct tool_form;

struct model_forms {
    const struct tool_form *tools; /* how it writes tool calls; NULL: in a form that is not read */
    const struct think_form *thinks; /* how it writes thoughts; NULL: it has none */
    bool tools_as_text;              /* its template has no place for tools: api/tools_as_text.h */
};

/* `tool_form` names the form of calls; NULL or "auto": that of the chat template. */
struct model_forms model_forms_of(const struct tokenizer *t, const char *tool_form);

#endif
