/* format/safetensors_writer.c - see format/safetensors_writer.h for the contract. The layout is in
 * safetensors.c. */
#include "format/safetensors_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/folder_out.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/limits.h"

enum { HEAD_ALIGNMENT = 8, LENGTH_BYTES = 8, NAME_BYTES = 64, INDEX_BYTES_MAX = 256 << 20 };

static const char index_name[] = "model.safetensors.index.json";

/* One file. Its tensors follow each other in `ends`. */
struct shard {
    struct buf head;     /* JSON of the header, so far without the last bracket */
    uint64_t data_bytes; /* of its tensors */
    size_t tensor_count;
    struct file_out file; /* open from begin on */
};

struct safetensors_writer {
    uint64_t file_bytes_max;
    struct shard *shards; /* heap */
    size_t shard_count, shard_cap;
    struct buf names; /* of all tensors, as JSON, a line for each */
    uint64_t data_bytes;
    bool no_memory;
    struct folder_out *folder; /* borrowed; NULL before begin */
    size_t put_shard;          /* the file that is being written */
    uint64_t put_bytes;        /* of its data */
};

enum status safetensors_writer_create(uint64_t file_bytes_max, struct safetensors_writer **out,
                                      struct err *err) {
    CHECK(file_bytes_max > 0);
    struct safetensors_writer *w = mem_zalloc(sizeof(*w));
    if (!w) return err_set(err, ST_NOMEM, "out of memory for the head of a safetensors file");
    w->file_bytes_max = file_bytes_max;
    buf_init(&w->names, INDEX_BYTES_MAX);
    *out = w;
    return ST_OK;
}

void safetensors_writer_destroy(struct safetensors_writer *w) {
    if (!w) return;
    for (size_t i = 0; i < w->shard_count; i++) {
        buf_deinit(&w->shards[i].head);
        file_out_close(&w->shards[i].file);
    }
    mem_free(w->shards);
    buf_deinit(&w->names);
    mem_free(w);
}

/* NULL: out of memory. */
static struct shard *push_shard(struct safetensors_writer *w) {
    if (w->shard_count == w->shard_cap) {
        size_t cap = w->shard_cap ? w->shard_cap * 2 : 1, bytes;
        if (!size_mul(cap, sizeof(w->shards[0]), &bytes)) return NULL;
        struct shard *shards = mem_realloc(w->shards, bytes);
        if (!shards) return NULL;
        w->shards = shards;
        w->shard_cap = cap;
    }
    struct shard *s = &w->shards[w->shard_count++];
    s->data_bytes = 0;
    s->tensor_count = 0;
    s->file.fd = -1;
    buf_init(&s->head, LIMIT_SAFETENSORS_HEADER_BYTES);
    buf_put_text(&s->head, "{\"__metadata__\":{\"format\":\"pt\"}");
    return s;
}

static struct shard *shard_for(struct safetensors_writer *w, uint64_t bytes) {
    struct shard *last = w->shard_count ? &w->shards[w->shard_count - 1] : NULL;
    if (last && (last->tensor_count == 0 || last->data_bytes + bytes <= w->file_bytes_max))
        return last;
    return push_shard(w);
}

void safetensors_writer_add(struct safetensors_writer *w, const struct safetensors_entry *t) {
    CHECK(!w->folder);
    CHECK(t->dim_count <= 4);
    CHECK(t->bytes > 0);
    struct shard *s = shard_for(w, t->bytes);
    if (!s) {
        w->no_memory = true;
        return;
    }
    buf_put_char(&s->head, ',');
    buf_put_json_string(&s->head, t->name);
    buf_printf(&s->head, ":{\"dtype\":\"%s\",\"shape\":[", t->format);
    for (uint32_t i = 0; i < t->dim_count; i++)
        buf_printf(&s->head, "%s%" PRIu64, i ? "," : "", t->dims[i]);
    buf_printf(&s->head, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", s->data_bytes,
               s->data_bytes + t->bytes);
    buf_put_json_string(&w->names, t->name);
    buf_put_char(&w->names, '\n');
    s->data_bytes += t->bytes;
    s->tensor_count++;
    w->data_bytes += t->bytes;
}

/* Of the header with its last bracket and the blanks behind it. */
static uint64_t head_bytes(const struct shard *s) {
    uint64_t bytes = s->head.len + 1;
    return (bytes + HEAD_ALIGNMENT - 1) / HEAD_ALIGNMENT * HEAD_ALIGNMENT;
}

static uint64_t shard_bytes(const struct shard *s) {
    return LENGTH_BYTES + head_bytes(s) + s->data_bytes;
}

uint64_t safetensors_writer_bytes(const struct safetensors_writer *w) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->shard_count; i++) bytes += shard_bytes(&w->shards[i]);
    return bytes;
}

static enum status check_heads(const struct safetensors_writer *w, struct err *err) {
    bool no_memory = w->no_memory || buf_status(&w->names) == ST_NOMEM;
    bool is_full = w->shard_count > LIMIT_PARTS || buf_status(&w->names) == ST_FULL;
    for (size_t i = 0; i < w->shard_count; i++) {
        no_memory = no_memory || buf_status(&w->shards[i].head) == ST_NOMEM;
        is_full = is_full || buf_status(&w->shards[i].head) == ST_FULL ||
                  head_bytes(&w->shards[i]) > LIMIT_SAFETENSORS_HEADER_BYTES;
    }
    if (no_memory) return err_set(err, ST_NOMEM, "out of memory for the head of the files");
    if (!is_full) return ST_OK;
    return err_set(err, ST_BAD, "%zu files with their names and shapes are more than readers take",
                   w->shard_count);
}

static void put_name(const struct safetensors_writer *w, size_t shard, char name[NAME_BYTES]) {
    if (w->shard_count == 1)
        snprintf(name, NAME_BYTES, "model.safetensors");
    else
        snprintf(name, NAME_BYTES, "model-%05zu-of-%05zu.safetensors", shard + 1, w->shard_count);
}

static enum status open_shard(struct safetensors_writer *w, size_t i, struct err *err) {
    char name[NAME_BYTES], path[FILE_OUT_PATH_BYTES];
    struct shard *s = &w->shards[i];
    put_name(w, i, name);
    TRY(folder_out_path(w->folder, name, path, err));
    TRY(file_out_open(path, false, &s->file, err));
    return file_out_reserve(&s->file, shard_bytes(s), err);
}

static enum status write_head(struct shard *s, struct err *err) {
    static const char end[HEAD_ALIGNMENT + 1] = "}       ";
    uint64_t bytes = head_bytes(s);
    uint8_t length[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (uint8_t)(bytes >> (8 * i));
    TRY(file_out_write(&s->file, length, sizeof(length), err));
    TRY(file_out_write(&s->file, s->head.ptr, s->head.len, err));
    return file_out_write(&s->file, end, (size_t)bytes - s->head.len, err);
}

enum status safetensors_writer_begin(struct safetensors_writer *w, struct folder_out *folder,
                                     struct err *err) {
    CHECK(!w->folder);
    CHECK(w->shard_count > 0);
    w->folder = folder;
    TRY(check_heads(w, err));
    for (size_t i = 0; i < w->shard_count; i++) TRY(open_shard(w, i, err));
    for (size_t i = 0; i < w->shard_count; i++) TRY(write_head(&w->shards[i], err));
    return ST_OK;
}

enum status safetensors_writer_put(struct safetensors_writer *w, const void *bytes, size_t len,
                                   struct err *err) {
    CHECK(w->folder);
    const uint8_t *at = bytes;
    while (len) {
        CHECK(w->put_shard < w->shard_count);
        struct shard *s = &w->shards[w->put_shard];
        uint64_t room = s->data_bytes - w->put_bytes;
        size_t part = len < room ? len : (size_t)room;
        TRY(file_out_write(&s->file, at, part, err));
        at += part;
        len -= part;
        w->put_bytes += part;
        if (w->put_bytes < s->data_bytes) continue;
        w->put_shard++;
        w->put_bytes = 0;
    }
    return ST_OK;
}

static void put_index(const struct safetensors_writer *w, struct buf *out) {
    const char *at = w->names.ptr;
    buf_printf(out, "{\n  \"metadata\": {\"total_size\": %" PRIu64 "},\n  \"weight_map\": {",
               w->data_bytes);
    for (size_t i = 0; i < w->shard_count; i++) {
        char file[NAME_BYTES];
        put_name(w, i, file);
        for (size_t t = 0; t < w->shards[i].tensor_count; t++) {
            const char *end = strchr(at, '\n');
            CHECK(end);
            buf_put_text(out, at == w->names.ptr ? "\n    " : ",\n    ");
            buf_put(out, at, (size_t)(end - at));
            buf_printf(out, ": \"%s\"", file);
            at = end + 1;
        }
    }
    buf_put_text(out, "\n  }\n}\n");
}

static enum status write_index(struct safetensors_writer *w, struct err *err) {
    char path[FILE_OUT_PATH_BYTES];
    struct file_out file = {.fd = -1};
    struct buf text;
    buf_init(&text, INDEX_BYTES_MAX);
    put_index(w, &text);
    enum status st = buf_status(&text);
    if (st != ST_OK) err_set(err, st, "out of memory for %s", index_name);
    if (st == ST_OK) st = folder_out_path(w->folder, index_name, path, err);
    if (st == ST_OK) st = file_out_open(path, false, &file, err);
    if (st == ST_OK) st = file_out_write(&file, text.ptr, text.len, err);
    if (st == ST_OK) st = file_out_publish(&file, err);
    file_out_close(&file);
    buf_deinit(&text);
    return st;
}

enum status safetensors_writer_finish(struct safetensors_writer *w, struct err *err) {
    CHECK(w->folder);
    CHECK(w->put_shard == w->shard_count);
    for (size_t i = 0; i < w->shard_count; i++) {
        TRY(file_out_publish(&w->shards[i].file, err));
        file_out_close(&w->shards[i].file);
    }
    return w->shard_count > 1 ? write_index(w, err) : ST_OK;
}
