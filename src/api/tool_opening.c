/* api/tool_opening.c - the beginning of a forced call. It ends the prompt, so that the model can
 * only continue the call. See api/tools.h. */
#include "api/request.h"
#include "api/tools.h"
#include "base/buf.h"

/* The first of the form's openings whose sign the template contains. */
static const struct tool_opening *opening_of(const struct tool_form *form, struct str template) {
    const struct tool_opening *o = form->openings;
    while (o->sign && !tool_template_has(template, str_of(o->sign))) o++;
    return o;
}

void tool_opening_put(const struct tool_form *form, struct str chat_template,
                      const struct api_request *r, struct buf *out) {
    const bool is_named = r->tool_choice == TOOLS_NAMED;
    const bool is_forced = is_named || r->tool_choice == TOOLS_REQUIRED;
    const bool is_asked = !r->no_generation_prompt || r->continue_final;
    if (!form || !is_forced || !is_asked || !r->tools) return;
    const struct tool_opening *o = opening_of(form, chat_template);
    buf_put_text(out, o->before_name);
    if (!is_named) return;
    buf_put_json_inner(out, r->tool_name);
    buf_put_text(out, o->after_name);
}
