/* unit/translate/golden_folder.h - a model of tests/golden/models with a tokenizer, which most of
 * them lack, in a folder of its own.
 */
#ifndef UNIT_TRANSLATE_GOLDEN_FOLDER_H
#define UNIT_TRANSLATE_GOLDEN_FOLDER_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unit/format/make_files.h"

static const char golden_models[] = TEST_SOURCE_DIR "/golden/models";

/* Byte-level BPE of 60 tokens: letters, digits, some marks and merges. */
static inline void put_small_tokenizer(struct buf *out) {
    static const char *const specials[] = {"<unk>", "<s>", "</s>"};
    static const char chars[] = "abcdefghijklmnopqrstuvwxyz0123456789.,!'";
    static const char *const merges[][2] = {{"t", "h"},  {"th", "e"},       {"a", "n"},
                                            {"an", "d"}, {"\u0120", "the"}, {"i", "n"}};
    uint32_t id = 0;
    buf_put_text(out, "{\"added_tokens\":[");
    for (uint32_t i = 0; i < 3; i++)
        buf_printf(out, "%s{\"id\":%u,\"content\":\"%s\",\"special\":true,\"normalized\":false}",
                   i ? "," : "", i, specials[i]);
    buf_put_text(out, "],\"normalizer\":null,\"post_processor\":null,"
                      "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                      "\"decoder\":{\"type\":\"ByteLevel\"},"
                      "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (; id < 3; id++) buf_printf(out, "\"%s\":%u,", specials[id], id);
    for (const char *c = chars; *c; c++) buf_printf(out, "\"%c\":%u,", *c, id++);
    buf_printf(out, "\"\u0120\":%u,\"\u010a\":%u", id, id + 1);
    id += 2;
    for (size_t i = 0; i < sizeof(merges) / sizeof(merges[0]); i++)
        buf_printf(out, ",\"%s%s\":%u", merges[i][0], merges[i][1], id++);
    buf_put_text(out, "},\"merges\":[");
    for (size_t i = 0; i < sizeof(merges) / sizeof(merges[0]); i++)
        buf_printf(out, "%s[\"%s\",\"%s\"]", i ? "," : "", merges[i][0], merges[i][1]);
    buf_put_text(out, "]}}");
}

static inline void link_all(const char *from, const char *folder) {
    DIR *dir = opendir(from);
    if (!dir) abort();
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char source[4096], target[4096];
        if (e->d_name[0] == '.' || str_ends(str_of(e->d_name), STR(".gguf"))) continue;
        if (!path_join(source, sizeof(source), from, e->d_name)) abort();
        if (!path_join(target, sizeof(target), folder, e->d_name)) abort();
        if (symlink(source, target) != 0) abort();
    }
    closedir(dir);
}

/* `folder`: 256 bytes; remove_folder it. */
static inline void make_golden_folder(const char *name, char *folder) {
    char from[4096], path[4096];
    if (!path_join(from, sizeof(from), golden_models, name)) abort();
    make_folder(folder, 256);
    link_all(from, folder);
    if (!path_join(path, sizeof(path), folder, "tokenizer.json")) abort();
    if (file_exists(path)) return;
    struct buf text;
    buf_init(&text, 1 << 16);
    put_small_tokenizer(&text);
    write_text(folder, "tokenizer.json", buf_text(&text));
    buf_deinit(&text);
    write_text(folder, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
}

#endif
