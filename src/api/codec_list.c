/* api/codec_list.c - every wire format. */
#include "api/codec.h"

#include <string.h>

extern const struct codec codec_openai_chat;
extern const struct codec codec_openai_completions;
extern const struct codec codec_openai_responses;
extern const struct codec codec_anthropic, codec_anthropic_count;
extern const struct codec codec_ollama_chat, codec_ollama_generate;

const struct codec *const codecs[] = {
    &codec_openai_chat,     &codec_openai_completions, &codec_openai_responses, &codec_anthropic,
    &codec_anthropic_count, &codec_ollama_chat,        &codec_ollama_generate,  NULL,
};

const struct codec *codec_find(const char *name) {
    for (const struct codec *const *c = codecs; *c; c++)
        if (strcmp((*c)->name, name) == 0) return *c;
    return NULL;
}
