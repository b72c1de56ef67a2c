/* cli/cmd_embed.c - `jitney embed`: texts to vectors. */
#include <stdio.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/generated.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "cli/stdin_texts.h"
#include "engine/embedder.h"
#include "text/tokenizer.h"

enum { LINE_BYTES_MAX = 1 << 24 };

static const struct flag flags[] = {
    {.name = "null",
     .letter = '0',
     .kind = FLAG_BOOL,
     .help = "The input is several texts, separated by NUL bytes."},
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object instead of lines."},
    {0},
};

/* The state of a run. */
struct embedding {
    struct loaded_model loaded;
    struct embedder *embedder;
    struct tokens ids;
    float *vector; /* [dims] */
    uint32_t dims;
    struct buf line;
    bool json;
};

static enum status print_vector(struct embedding *w, bool first, struct err *err) {
    buf_clear(&w->line);
    if (w->json) buf_put_text(&w->line, first ? "[" : ",\n[");
    for (uint32_t i = 0; i < w->dims; i++) {
        if (i) buf_put_char(&w->line, w->json ? ',' : ' ');
        put_json_number(&w->line, (double)w->vector[i]);
    }
    buf_put_char(&w->line, w->json ? ']' : '\n');
    if (buf_status(&w->line) != ST_OK) return err_set(err, ST_NOMEM, "out of memory");
    return out_write(buf_str(&w->line), err);
}

static enum status embed_text(struct embedding *w, struct str text, struct err *err) {
    const struct encode_options options = {.add_special = true};
    w->ids.count = 0;
    enum status st = tokenizer_encode(w->loaded.tokenizer, text, options, &w->ids);
    if (st != ST_OK) return err_set(err, st, "out of memory");
    uint32_t max = embedder_tokens_max(w->embedder);
    if (w->ids.count > max)
        fprintf(stderr,
                "jitney: a text of %zu tokens was truncated to %u, the maximum of the model\n",
                w->ids.count, max);
    struct embed_job job = {.ids = w->ids.ids, .count = (uint32_t)w->ids.count, .out = w->vector};
    return embedder_run(w->embedder, &job, err);
}

static enum status embed_all(struct embedding *w, struct stdin_texts *texts, struct err *err) {
    struct str text;
    if (w->json) TRY(out_write(STR("{\"embeddings\":["), err));
    for (bool first = true; stdin_texts_next(texts, &text); first = false) {
        TRY(embed_text(w, text, err));
        TRY(print_vector(w, first, err));
    }
    if (!w->json) return ST_OK;
    buf_clear(&w->line);
    buf_printf(&w->line, "],\"dims\":%u}\n", w->dims);
    return out_write(buf_str(&w->line), err);
}

static enum status work_on(struct embedding *w, struct stdin_texts *texts, struct err *err) {
    w->dims = embedder_dims(w->embedder);
    w->vector = mem_alloc_array(w->dims, sizeof(w->vector[0]));
    if (!w->vector) return err_set(err, ST_NOMEM, "out of memory");
    return embed_all(w, texts, err);
}

static enum status open_model(struct embedding *w, const struct args *args, struct err *err) {
    const struct embedder_options options = {.batch_tokens = (uint32_t)args_int(args, "chunk"),
                                             .kv_type = model_args_kv_type(args)};
    TRY(model_args_load(args, 0, false, &w->loaded, err));
    return embedder_open(&w->embedder, &w->loaded, &options, err);
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct embedding w = {.json = args_on(args, "json")};
    struct stdin_texts texts;
    buf_init(&w.line, LINE_BYTES_MAX);
    enum status st = open_model(&w, args, err);
    if (st == ST_OK) st = stdin_texts_read(&texts, args_on(args, "null"), err);
    if (st == ST_OK) {
        st = work_on(&w, &texts, err);
        stdin_texts_deinit(&texts);
    }
    buf_deinit(&w.line);
    mem_free(w.vector);
    tokens_deinit(&w.ids);
    embedder_close(w.embedder);
    loaded_model_close(&w.loaded);
    return exit_of(st);
}

extern const struct command cmd_embed;
const struct command cmd_embed = {
    .name = "embed",
    .summary = "Turn texts into vectors",
    .operands = "< TEXT",
    .about = "Reads standard input and prints one vector for each text: numbers separated by "
             "blanks, pooled and normalised as the model's files specify.",
    .groups = {flags, flags_chunk, flags_engine},
    .takes_model = true,
    .run = run,
};
