/* bench/peer_worker.c - jitney as an offline engine among others: asked by tools/bench_peers.
 *
 * Usage: peer_worker MODEL THREADS [ISA [SEQS [TOKENS]]]
 *
 * The engine that serves, with its scheduler and its thread, loaded once: SEQS sequences (64) of
 * at most TOKENS tokens (2048). It speaks as bench/peers/worker.py does, a line of JSON for a line
 * of JSON:
 *
 *     {"do": "single", "prompt": [ids], "output": 128}  {"prompt_tok_s": .., "decode_tok_s": ..}
 *     {"do": "batch", "prompts": [[ids], ..], "output": 64}               {"output_tok_s": ..}
 *     anything else                                                       {"skipped": "why"}
 *
 * Its first line is {"ready": {"version": .., "kv_int8_share": ..}}. A prompt's speed is its
 * tokens by the time to the first token; the first token counts for no decoding. Tokens are chosen
 * greedily, end tokens end nothing. Between two lines it sleeps.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/service.h"

enum { REQUESTS_MAX = 1024, TOKENS_MAX = 8192, LINE_BYTES_MAX = 64 << 20, WAIT_US = 1000000 };

static const struct json_limits line_limits = {
    .bytes_max = LINE_BYTES_MAX, .depth_max = 4, .values_max = REQUESTS_MAX * TOKENS_MAX};

/* What has become of the requests of one command. */
struct round {
    struct engine *engine;
    struct request *requests[REQUESTS_MAX];
    uint32_t count, done_count;
    int64_t began_us, first_token_us, finished_us; /* the first began, the last of the others */
};

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "peer_worker: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static enum status submit(struct round *r, const struct json *ids, int64_t output,
                          struct err *err) {
    static int32_t prompt[TOKENS_MAX];
    size_t count = json_count(ids);
    if (r->count == REQUESTS_MAX) return err_set(err, ST_BAD, "over %d requests", REQUESTS_MAX);
    if (count < 1 || count > TOKENS_MAX || output < 1 || output > TOKENS_MAX)
        return err_set(err, ST_BAD, "%zu tokens in, %lld out: 1 to %d of each are possible", count,
                       (long long)output, TOKENS_MAX);
    for (size_t i = 0; i < count; i++) prompt[i] = (int32_t)json_int(json_at(ids, i), -1);
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = (uint32_t)count,
                                .max_tokens = (uint32_t)output,
                                .n = 1,
                                .sample = sample_params_default(),
                                .ignore_end = true};
    spec.sample.temperature = 0;
    TRY(engine_submit(r->engine, &spec, &r->requests[r->count], err));
    r->count++;
    return ST_OK;
}

/* Take what moves until every request has ended. A choice may be reported once more after its
 * end was seen, so the ends are counted over the requests themselves. */
static void wait_all(struct round *r) {
    uint32_t ready;
    while (r->done_count < r->count) {
        struct choice *choice = engine_next(r->engine, WAIT_US);
        if (choice) request_unref(choice->request);
        while (r->done_count < r->count &&
               choice_poll(&r->requests[r->done_count]->choices[0], &ready) != FINISH_NONE)
            r->done_count++;
    }
}

static enum status sum_up(struct round *r, struct err *err) {
    r->began_us = INT64_MAX;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct choice *c = &r->requests[i]->choices[0];
        uint32_t ready;
        if (choice_poll(c, &ready) != FINISH_LENGTH)
            return err_set(err, ST_BAD, "a request was not finished: %s",
                           r->requests[i]->refusal.text);
        if (c->submitted_us < r->began_us) r->began_us = c->submitted_us;
        if (c->first_token_us > r->first_token_us) r->first_token_us = c->first_token_us;
        if (c->finished_us > r->finished_us) r->finished_us = c->finished_us;
    }
    return ST_OK;
}

static void drop(struct round *r) {
    for (uint32_t i = 0; i < r->count; i++) request_unref(r->requests[i]);
}

/* Submit one prompt or several, wait for all, and say when what happened. */
static enum status run(struct round *r, const struct json *prompts, bool is_single, int64_t output,
                       struct err *err) {
    enum status st = ST_OK;
    size_t count = is_single ? 1 : json_count(prompts);
    for (size_t i = 0; st == ST_OK && i < count; i++)
        st = submit(r, is_single ? prompts : json_at(prompts, i), output, err);
    wait_all(r);
    if (st == ST_OK && r->count == 0) st = err_set(err, ST_BAD, "there is no prompt");
    if (st == ST_OK) st = sum_up(r, err);
    drop(r);
    return st;
}

static double per_s(double count, int64_t us) { return us > 0 ? count * 1e6 / (double)us : 0; }

static enum status answer(struct engine *engine, const struct json *command, struct buf *out,
                          struct err *err) {
    struct round r = {.engine = engine};
    struct str what = json_str(json_get(command, "do"));
    int64_t output = json_int(json_get(command, "output"), 0);
    if (str_eq(what, STR("single"))) {
        const struct json *prompt = json_get(command, "prompt");
        TRY(run(&r, prompt, true, output + 1, err));
        buf_printf(out, "{\"prompt_tok_s\": %.3f, \"decode_tok_s\": %.3f}",
                   per_s((double)json_count(prompt), r.first_token_us - r.began_us),
                   per_s((double)output, r.finished_us - r.first_token_us));
        return ST_OK;
    }
    if (!str_eq(what, STR("batch"))) return err_set(err, ST_BAD, "there is no such command here");
    TRY(run(&r, json_get(command, "prompts"), false, output, err));
    buf_printf(out, "{\"output_tok_s\": %.3f}",
               per_s((double)output * r.count, r.finished_us - r.began_us));
    return ST_OK;
}

static void answer_line(struct engine *engine, struct str line, struct buf *out) {
    struct json *command = NULL;
    struct err err = {{0}};
    enum status st = json_parse(line, &line_limits, &command, &err);
    if (st == ST_OK) st = answer(engine, command, out, &err);
    json_destroy(command);
    if (st == ST_OK) return;
    buf_clear(out);
    buf_put_text(out, "{\"skipped\": ");
    buf_put_json_string(out, str_of(err.text));
    buf_put_char(out, '}');
}

static bool read_line(struct buf *line) {
    int c;
    buf_clear(line);
    while ((c = getchar()) != EOF && c != '\n') buf_put_char(line, (char)c);
    return c != EOF;
}

static void say(struct buf *line) {
    printf("%s\n", buf_text(line));
    fflush(stdout);
}

/* What a token's keys and values take in int8, by what they take in f16. */
static double int8_share(struct loaded_model *loaded) {
    uint32_t tokens = loaded->device.kv_block_tokens;
    return (double)loaded_model_kv_block_bytes(loaded, KV_I8, tokens, 0) /
           (double)loaded_model_kv_block_bytes(loaded, KV_F16, tokens, 0);
}

static void put_ready(struct service *s, struct buf *out) {
    buf_printf(out,
               "{\"ready\": {\"version\": \"jitney %s, %s, %u threads\", "
               "\"kv_int8_share\": %.6f}}",
               JITNEY_VERSION, s->loaded.device.name, s->knobs.threads, int8_share(&s->loaded));
}

static uint32_t number(int argc, char **argv, int i, uint32_t fallback) {
    return argc > i ? (uint32_t)strtoul(argv[i], NULL, 10) : fallback;
}

int main(int argc, char **argv) {
    struct service service;
    struct err err = {{0}};
    struct buf line, out;
    if (argc < 2) {
        printf("peer_worker: passed over without a model; usage: peer_worker MODEL THREADS [ISA "
               "[SEQS [TOKENS]]]\n");
        return 0;
    }
    struct service_options options = {.knobs = knobs_default(),
                                      .isa = argc > 3 ? argv[3] : "auto",
                                      .ctx_tokens = number(argc, argv, 5, 2048)};
    options.knobs.threads = number(argc, argv, 2, 0);
    options.knobs.max_seqs = number(argc, argv, 4, 64);
    options.knobs.queue_max = REQUESTS_MAX;
    must(service_open(&service, argv[1], &options, &err), &err);
    must(engine_start(service.engine, &err), &err);
    buf_init(&line, LINE_BYTES_MAX);
    buf_init(&out, LINE_BYTES_MAX);
    put_ready(&service, &out);
    for (say(&out); read_line(&line); say(&out)) {
        buf_clear(&out);
        answer_line(service.engine, buf_str(&line), &out);
    }
    buf_deinit(&line);
    buf_deinit(&out);
    service_close(&service);
    return 0;
}
