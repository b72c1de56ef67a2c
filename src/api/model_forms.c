/* api/model_forms.c - see api/model_forms.h for the contract. */
#include "api/model_forms.h"

#include <string.h>

#include "api/think.h"
#include "api/tools.h"
#include "api/tools_as_text.h"
#include "text/tokenizer.h"

struct model_forms model_forms_of(const struct tokenizer *t, const char *tool_form) {
    const struct str with = tokenizer_chat_template(t, true);
    struct model_forms f = {.tools = tool_form_of_template(with),
                            .thinks = think_form_of_template(with),
                            .tools_as_text = tools_as_text_needed(with)};
    if (f.tools_as_text) f.tools = tool_form_find("hermes");
    if (tool_form && strcmp(tool_form, "auto") != 0) f.tools = tool_form_find(tool_form);
    if (!f.thinks) f.thinks = think_form_of_template(tokenizer_chat_template(t, false));
    return f;
}
