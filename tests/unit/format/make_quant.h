/* unit/format/make_quant.h - folders of quantised matrices for tests, from a line of text:
 *
 *     NAME FORMAT DIM ... [FILL];...
 *
 * All bytes are zero, or as FILL says:
 *     =N  all words of 32 bits are N           ~N  the first N words are 0, the others 1
 *     ^N  the first N words are 1, others 0    #N,N,...  these numbers
 *     'TEXT  the text, without DIM */
#ifndef UNIT_FORMAT_MAKE_QUANT_H
#define UNIT_FORMAT_MAKE_QUANT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/format/make_files.h"

static inline size_t bytes_of_format(const char *format) {
    static const char *const formats[] = {"I8",  "U8",   "F8_E4M3", "F8_E5M2", "F8_E8M0",
                                          "F16", "BF16", "F32",     "I32",     "I64"};
    static const size_t bytes[] = {1, 1, 1, 1, 1, 2, 2, 4, 4, 8};
    for (int i = 0; i < 10; i++)
        if (strcmp(format, formats[i]) == 0) return bytes[i];
    abort();
}

/* What the bytes of a tensor are. */
struct fill {
    char kind; /* one of = ~ ^ # ', or 0: zeros */
    char *text;
};

static inline void put_fill(struct buf *data, size_t bytes, size_t width, struct fill fill) {
    size_t start = data->len;
    if (fill.kind == '\'') buf_put_text(data, fill.text);
    for (char *state, *word = fill.kind == '#' ? strtok_r(fill.text, ",", &state) : NULL; word;
         word = strtok_r(NULL, ",", &state))
        put_le(data, (uint64_t)atoll(word), (int)width);
    if (data->len > start) return;
    long number = fill.kind ? atol(fill.text) : 0;
    for (size_t i = 0; i < bytes; i++) {
        long value = number;
        if (fill.kind == '~') value = (long)i / 4 >= number;
        if (fill.kind == '^') value = (long)i / 4 < number;
        buf_put_char(data, (char)(value >> (i % 4 * 8)));
    }
}

/* One tensor into the header and its bytes into the data. */
static inline void put_quantised(struct buf *header, struct buf *data, char *words) {
    char *state, *name = strtok_r(words, " ", &state), *format = strtok_r(NULL, " ", &state);
    size_t width = bytes_of_format(format), bytes = width, start = data->len;
    struct fill fill = {0};
    bool first = true;
    buf_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", header->len > 1 ? "," : "", name,
               format);
    for (char *word; (word = strtok_r(NULL, " ", &state));) {
        if (strchr("=~^#'", *word)) {
            fill = (struct fill){*word, word + 1};
        } else {
            buf_printf(header, first ? "%s" : ",%s", word);
            bytes *= (size_t)atol(word);
            first = false;
        }
    }
    put_fill(data, bytes, width, fill);
    if (fill.kind == '\'') buf_printf(header, "%zu", data->len - start);
    buf_printf(header, "],\"data_offsets\":[%zu,%zu]}", start, data->len);
}

static inline void put_quantised_file(struct buf *out, const char *tensors) {
    struct buf header, data;
    char text[4096], *state;
    if (strlen(tensors) >= sizeof(text)) abort();
    memcpy(text, tensors, strlen(tensors) + 1);
    buf_init(&header, FILE_BYTES_MAX);
    buf_init(&data, FILE_BYTES_MAX);
    buf_put_char(&header, '{');
    for (char *one = strtok_r(text, ";", &state); one; one = strtok_r(NULL, ";", &state))
        put_quantised(&header, &data, one);
    buf_put_char(&header, '}');
    put_string(out, buf_text(&header));
    buf_put(out, data.ptr, data.len);
    buf_deinit(&header);
    buf_deinit(&data);
}

static inline void write_quantised(const char *folder, const char *tensors) {
    struct buf b;
    buf_init(&b, FILE_BYTES_MAX);
    put_quantised_file(&b, tensors);
    write_buf(folder, "model.safetensors", &b);
    buf_deinit(&b);
}

#endif
