/* text/pretok_names.c - the steps for each value of a GGUF's tokenizer.ggml.pre.
 *
 * A name is a list of patterns; each cuts its matches out of the pieces that the one before it
 * left, and the bytes of the result go to byte-level BPE. The patterns are those of the
 * models' own tokenizer.json files. Names are in the order of strcmp.
 */
#include "text/text_int.h"

#define GPT2 pretok_gpt2_pattern
#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}"         \
    "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]"       \
    "+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M"       \
    "}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}"        \
    "\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT4O                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M"       \
    "}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}"         \
    "\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^"         \
    "\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define YOUTU                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M"       \
    "}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}"         \
    "\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}| ?[^\\s\\p{"       \
    "L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define KIMI                                                                                       \
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*["        \
    "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}"       \
    "\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"       \
    "&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]"       \
    "*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p"       \
    "{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r"       \
    "\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SEED_CODER                                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{"       \
    "N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define EXAONE_MOE                                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*"       \
    ")+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
#define DEEPSEEK_LETTERS                                                                           \
    "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"            \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-"         \
    "\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"             \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-"       \
    "\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}"        \
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"         \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"        \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-"       \
    "\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"          \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"         \
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"         \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-"        \
    "\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"        \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+"
#define DEEPSEEK_PUNCT                                                                             \
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-"               \
    "\\x{3002}]+"
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define YOUTU_CJK                                                                                  \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}"              \
    "\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-"          \
    "\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-"         \
    "\\x{30FF}]+"
#define AFMOE_CJK                                                                                  \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}"       \
    "-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}"           \
    "\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-"       \
    "\\x{D7AF}\\x{1100}-\\x{11FF}]+"
#define FALCON_PUNCT "[\\p{P}\\$\\+<=>\\^~\\|`]+"
#define DEFAULT_PUNCT "[\\p{P}\\$\\+<=>\\^~\\|]+"

static const struct pretok_name names[] = {
    {.name = "a.x-4.0", .splits = {GPT2}},
    {.name = "afmoe", .splits = {AFMOE_CJK, DEEPSEEK3}, .digits = PRETOK_DIGIT_GROUPS},
    {.name = "bailingmoe", .splits = {BAILING}},
    {.name = "bailingmoe2", .splits = {BAILING}},
    {.name = "bloom", .splits = {BLOOM}},
    {.name = "chameleon",
     .splits = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
                "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2},
     .add_bos = true},
    {.name = "chatglm-bpe", .splits = {LLAMA3}},
    {.name = "chatglm4", .splits = {LLAMA3}},
    {.name = "codeshell", .splits = {GPT2}, .digits = PRETOK_DIGITS},
    {.name = "command-r", .splits = {GPT2}, .digits = PRETOK_DIGITS},
    {.name = "dbrx", .splits = {LLAMA3}},
    {.name = "deepseek-coder",
     .splits = {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {.name = "deepseek-llm",
     .splits = {"[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_PUNCT, "\\s+$", DEEPSEEK_CJK, "\\p{N}+"}},
    {.name = "deepseek-r1-qwen", .splits = {QWEN2}},
    {.name = "deepseek-v3",
     .splits = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+", DEEPSEEK3}},
    {.name = "default", .splits = {DEFAULT_PUNCT, GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {.name = "exaone", .splits = {GPT2}, .digits = PRETOK_DIGITS},
    {.name = "exaone-moe", .splits = {EXAONE_MOE}},
    {.name = "exaone4", .splits = {GPT2}},
    {.name = "falcon", .splits = {FALCON_PUNCT, GPT2, "[0-9][0-9][0-9]"}},
    {.name = "falcon-h1", .splits = {LLAMA3}, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .splits = {LLAMA3}, .ignore_merges = true, .add_bos = true},
    {.name = "gigachat", .splits = {GPT2}},
    {.name = "glm4", .splits = {LLAMA3}},
    {.name = "gpt-2", .splits = {GPT2}},
    {.name = "gpt-4o", .splits = {GPT4O}},
    {.name = "gpt3-finnish", .splits = {BLOOM}},
    {.name = "granite-docling", .splits = {GPT2}},
    {.name = "grok-2", .splits = {QWEN2}},
    {.name = "hunyuan", .splits = {QWEN2}},
    {.name = "hunyuan-dense",
     .splits = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+", DEEPSEEK3}},
    {.name = "jais", .splits = {GPT2}},
    {.name = "jina-de", .splits = {GPT2}},
    {.name = "jina-es", .splits = {GPT2}},
    {.name = "jina-v1-en", .splits = {GPT2}, .add_sep = true},
    {.name = "jina-v2-code", .splits = {GPT2}, .add_sep = true},
    {.name = "jina-v2-de", .splits = {GPT2}},
    {.name = "jina-v2-es", .splits = {GPT2}},
    {.name = "kimi-k2", .splits = {KIMI}},
    {.name = "kormo", .splits = {QWEN2}},
    {.name = "lfm2", .splits = {LLAMA3}, .ignore_merges = true, .add_bos = true},
    {.name = "llada-moe", .splits = {BAILING}},
    {.name = "llama-bpe", .splits = {LLAMA3}, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .splits = {LLAMA3}, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .splits = {LLAMA3}, .ignore_merges = true, .add_bos = true},
    {.name = "llama4", .splits = {GPT4O}},
    {.name = "megrez", .splits = {QWEN2}},
    {.name = "mellum", .splits = {GPT2}},
    {.name = "midm-2.0", .splits = {LLAMA3}, .ignore_merges = true, .add_bos = true},
    {.name = "minerva-7b", .splits = {GPT2}, .digits = PRETOK_DIGITS},
    {.name = "minimax-m2", .splits = {GPT4O}},
    {.name = "modern-bert", .splits = {GPT2}},
    {.name = "mpt", .splits = {GPT2}},
    {.name = "olmo", .splits = {GPT2}},
    {.name = "phi-2", .splits = {GPT2}},
    {.name = "pixtral", .splits = {LLAMA3}, .ignore_merges = true, .add_bos = true},
    {.name = "poro-chat", .splits = {BLOOM}},
    {.name = "qwen2", .splits = {QWEN2}},
    {.name = "refact", .splits = {GPT2}, .digits = PRETOK_DIGITS},
    {.name = "roberta-bpe", .splits = {GPT2}, .add_sep = true},
    {.name = "seed-coder", .splits = {SEED_CODER}},
    {.name = "smaug-bpe", .splits = {LLAMA3}},
    {.name = "smollm", .splits = {GPT2}, .digits = PRETOK_DIGITS},
    {.name = "solar-open", .splits = {QWEN2}},
    {.name = "stablelm2", .splits = {QWEN2}},
    {.name = "starcoder", .splits = {GPT2}, .digits = PRETOK_DIGITS},
    {.name = "superbpe", .splits = {"\\p{N}+"}, .digits = PRETOK_DIGIT_GROUPS, .digits_last = true},
    {.name = "tekken", .splits = {TEKKEN}, .ignore_merges = true, .add_bos = true},
    {.name = "trillion", .splits = {GPT2}},
    {.name = "viking", .splits = {BLOOM, "\\p{N}"}},
    {.name = "youtu", .splits = {YOUTU_CJK, YOUTU}, .ignore_merges = true},
};

const struct pretok_name *pretok_name_find(struct str name) {
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (str_is(name, names[i].name)) return &names[i];
    return NULL;
}
