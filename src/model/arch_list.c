/* model/arch_list.c - every architecture, in the order documents list them. */
#include <stddef.h>
#include <string.h>

#include "model/arch.h"

extern const struct arch arch_llama, arch_mistral, arch_qwen2, arch_qwen3, arch_gemma2, arch_gemma3,
    arch_phi3, arch_mixtral, arch_qwen3moe, arch_bert;

const struct arch *const archs[] = {
    &arch_llama, &arch_mistral, &arch_qwen2,    &arch_qwen3, &arch_gemma2, &arch_gemma3,
    &arch_phi3,  &arch_mixtral, &arch_qwen3moe, &arch_bert,  NULL,
};

static bool is_called(const struct arch *arch, const char *name, bool is_hf) {
    if (strcmp(is_hf ? arch->hf : arch->name, name) == 0) return true;
    for (const char *const *aka = arch->aka; aka && *aka; aka++)
        if (strcmp(*aka, name) == 0) return true;
    return false;
}

const struct arch *arch_find(const char *name, bool is_hf) {
    for (const struct arch *const *a = archs; *a; a++)
        if (is_called(*a, name, is_hf)) return *a;
    return NULL;
}
