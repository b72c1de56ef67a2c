/* unit/format/make_quant.h - folders of quantised matrices for tests, from a line of text:
 *
 *     NAME FORMAT DIM ... [=NUMBER | ~NUMBER | ^NUMBER];...
 *
 * All bytes are zero, or with =NUMBER all words of 32 bits are that number; with ~NUMBER the first
 * so many words are 0 and the others 1, with ^NUMBER the other way round. */
#ifndef UNIT_FORMAT_MAKE_QUANT_H
#define UNIT_FORMAT_MAKE_QUANT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/format/make_files.h"

static inline size_t bytes_of_format(const char *format) {
    static const char *const formats[] = {"I8", "U8", "F16", "BF16", "F32", "I32", "I64"};
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 8};
    for (int i = 0; i < 7; i++)
        if (strcmp(format, formats[i]) == 0) return bytes[i];
    abort();
}

/* One tensor into the header and its bytes into the data. */
static inline void put_quantised(struct buf *header, struct buf *data, char *words) {
    char *state, *name = strtok_r(words, " ", &state), *format = strtok_r(NULL, " ", &state);
    size_t bytes = bytes_of_format(format), start = data->len;
    long fill = 0, zeros = -1;
    bool turned = false;
    buf_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", header->len > 1 ? "," : "", name,
               format);
    bool first = true;
    for (char *word; (word = strtok_r(NULL, " ", &state));) {
        if (*word == '=')
            fill = atol(word + 1);
        else if (*word == '~' || *word == '^')
            zeros = atol(word + 1), turned = *word == '^';
        else
            buf_printf(header, first ? "%s" : ",%s", word), bytes *= (size_t)atol(word),
                first = false;
    }
    for (size_t i = 0; i < bytes; i++) {
        long value = zeros < 0 ? fill : ((long)i / 4 >= zeros) != turned;
        buf_put_char(data, (char)(value >> (i % 4 * 8)));
    }
    buf_printf(header, "],\"data_offsets\":[%zu,%zu]}", start, data->len);
}

static inline void put_quantised_file(struct buf *out, const char *tensors) {
    struct buf header, data;
    char text[2048], *state;
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
