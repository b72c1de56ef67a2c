/* unit/text/byte_tokenizer.h - a tokenizer whose first 256 tokens are the bytes.
 *
 * Token N below 256 is the byte N, so a test can write any bytes, also half a character. After them
 * come a few words and special tokens.
 */
#ifndef UNIT_TEXT_BYTE_TOKENIZER_H
#define UNIT_TEXT_BYTE_TOKENIZER_H

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

enum {
    T_END = 256,
    T_BEGIN,
    T_THE,
    T_HELLO,
    T_WORLD,
    T_CALL,
    T_WIDE,
    T_WIDE_FIRST,
    T_NEST,
    T_WORD_LAST,
    T_VOCAB
};

/* Control tokens with characters of several bytes, inside and at the beginning. */
#define WIDE_TEXT "<\xef\xbd\x9cw\xef\xbd\x9c>"
#define WIDE_FIRST_TEXT "\xe2\x96\x81<P>"
/* One that contains another. */
#define NEST_TEXT "<a<|end|>bc"
/* One that ends like a word: of its parts only the first has a sign. */
#define WORD_LAST_TEXT "<|pad"

/* GPT-2's letter for a byte, as JSON text. */
static inline void byte_tokenizer_put_byte(struct buf *out, uint32_t byte) {
    bool is_plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    uint32_t moved = byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67;
    char letter[4];
    size_t len = utf8_encode(is_plain ? byte : 256 + moved, letter);
    buf_put_json_string(out, (struct str){letter, len});
}

static inline void byte_tokenizer_put_added(struct buf *out, uint32_t id, const char *text,
                                            bool special) {
    buf_printf(out,
               "{\"id\":%u,\"content\":\"%s\",\"special\":%s,\"single_word\":false,"
               "\"lstrip\":false,\"rstrip\":false,\"normalized\":false}",
               id, text, special ? "true" : "false");
}

static inline void byte_tokenizer_put(struct buf *out) {
    buf_put_text(out, "{\"normalizer\":null,\"post_processor\":null,\"pre_tokenizer\":"
                      "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                      "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\","
                      "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
                      "\"added_tokens\":[");
    byte_tokenizer_put_added(out, T_END, "<|end|>", true);
    buf_put_char(out, ',');
    byte_tokenizer_put_added(out, T_BEGIN, "<|begin|>", true);
    buf_put_char(out, ',');
    byte_tokenizer_put_added(out, T_CALL, "<tool_call>", true);
    buf_put_char(out, ',');
    byte_tokenizer_put_added(out, T_WIDE, WIDE_TEXT, true);
    buf_put_char(out, ',');
    byte_tokenizer_put_added(out, T_WIDE_FIRST, WIDE_FIRST_TEXT, true);
    buf_put_char(out, ',');
    byte_tokenizer_put_added(out, T_NEST, NEST_TEXT, true);
    buf_put_char(out, ',');
    byte_tokenizer_put_added(out, T_WORD_LAST, WORD_LAST_TEXT, true);
    buf_put_text(out, "],\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (uint32_t i = 0; i < 256; i++) {
        byte_tokenizer_put_byte(out, i);
        buf_printf(out, ":%u,", i);
    }
    buf_printf(out, "\"<|end|>\":%d,\"<|begin|>\":%d,\"\xc4\xa0the\":%d,\"Hello\":%d,", T_END,
               T_BEGIN, T_THE, T_HELLO);
    buf_printf(out, "\"\xc4\xa0world\":%d,\"<tool_call>\":%d,", T_WORLD, T_CALL);
    buf_printf(out, "\"" WIDE_TEXT "\":%d,\"" WIDE_FIRST_TEXT "\":%d,", T_WIDE, T_WIDE_FIRST);
    buf_printf(out, "\"" NEST_TEXT "\":%d,\"" WORD_LAST_TEXT "\":%d}}}", T_NEST, T_WORD_LAST);
}

static inline struct tokenizer *byte_tokenizer(struct str template) {
    struct buf doc, config;
    struct json *doc_json, *config_json;
    struct tokenizer *t = NULL;
    struct err err = {0};
    buf_init(&doc, 1 << 20);
    buf_init(&config, 1 << 20);
    byte_tokenizer_put(&doc);
    buf_put_text(&config, "{\"bos_token\":\"<|begin|>\",\"eos_token\":\"<|end|>\","
                          "\"chat_template\":");
    buf_put_json_string(&config, template);
    buf_put_char(&config, '}');
    CHECK(json_parse(buf_str(&doc), &json_limits_model_file, &doc_json, &err) == ST_OK);
    CHECK(json_parse(buf_str(&config), &json_limits_model_file, &config_json, &err) == ST_OK);
    CHECK(tokenizer_create_json(doc_json, config_json, "bytes", &t, &err) == ST_OK);
    json_destroy(doc_json);
    json_destroy(config_json);
    buf_deinit(&doc);
    buf_deinit(&config);
    return t;
}

#endif
