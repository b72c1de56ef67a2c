/* Goal:   whatever is drafted, clients get the same bytes: text, log-probabilities, calls,
 *         thoughts, events, usage and finish reasons, streamed and whole, in every dialect.
 * Method: the whole server with a tiny random model, at depth 0 and 1 of the pipeline. A list of
 *         requests is answered without drafts, and then with a drafter that knows those answers and
 *         is right, wrong or both, with prompt lookup and with the suffix automaton. Bodies are
 *         compared without ids and times. Then what requests with a prediction report, and what is
 *         refused.
 *         In one of the ways grammars are often locked, so that a row ends inside its drafts.
 *         A step takes a millisecond on a clock that stands still otherwise, so drafts always pay.
 * wrap: clock_now engine_start log_line sched_plan spec_end tracer_add uv_now uv_timer_start
 * wrap: grammar_hold */
#include "spec/spec.h"
#include "base/rng.h"
#include "grammar/grammar.h"
#include "unit/server/server_rig.h"

#define CHAT "POST /v1/chat/completions"
#define COMPLETIONS "POST /v1/completions"
#define RESPONSES "POST /v1/responses"
#define MESSAGES "POST /v1/messages"
#define OLLAMA_CHAT "POST /api/chat"
#define OLLAMA_GENERATE "POST /api/generate"

/* ---- a drafter that knows the answers ---- */

/* DRAFTS_LATE: right, while the grammars of answers are often locked by other threads. */
enum drafts {
    DRAFTS_OFF,
    DRAFTS_RIGHT,
    DRAFTS_RANDOM,
    DRAFTS_MIXED,
    DRAFTS_LATE,
    DRAFTS_NGRAM,
    DRAFTS_SUFFIX
};
static const char *const drafter_names[] = {
    NULL,        "\"model\"", "\"model\",\"max\":24", "\"model\",\"max\":5", "\"model\"",
    "\"ngram\"", "\"suffix\""};

enum { TEXTS_MAX = 128, TEXT_TOKENS = 512 };
static struct known_text {
    uint32_t count;
    int32_t tokens[TEXT_TOKENS];
} texts[TEXTS_MAX]; /* of the sequences that have ended, as the engine knows them */
static uint32_t text_count;
static bool is_learning;

void __real_spec_end(struct spec *s, seq_idx i, const int32_t *tokens, uint32_t count,
                     uint32_t prompt_tokens);
void __wrap_spec_end(struct spec *s, seq_idx i, const int32_t *tokens, uint32_t count,
                     uint32_t prompt_tokens);
void __wrap_spec_end(struct spec *s, seq_idx i, const int32_t *tokens, uint32_t count,
                     uint32_t prompt_tokens) {
    if (is_learning) {
        assert_true(text_count < TEXTS_MAX && count <= TEXT_TOKENS);
        memcpy(texts[text_count].tokens, tokens, count * sizeof(tokens[0]));
        texts[text_count++].count = count;
    }
    __real_spec_end(s, i, tokens, count, prompt_tokens);
}

void __real_sched_plan(struct sched *s, int64_t now_us, struct plan *plan);
void __wrap_sched_plan(struct sched *s, int64_t now_us, struct plan *plan);
void __wrap_sched_plan(struct sched *s, int64_t now_us, struct plan *plan) {
    rig_pass_us(1000);
    __real_sched_plan(s, now_us, plan);
}

static _Atomic bool is_often_locked; /* grammars, by other threads */
static _Atomic unsigned quick_holds, refused_holds;

bool __real_grammar_hold(struct grammar *g, bool is_quick);
bool __wrap_grammar_hold(struct grammar *g, bool is_quick);
bool __wrap_grammar_hold(struct grammar *g, bool is_quick) {
    enum { LOCKED_EVERY = 4 };
    if (is_quick && is_often_locked && ++quick_holds % LOCKED_EVERY == 0) {
        refused_holds++;
        return false;
    }
    return __real_grammar_hold(g, is_quick);
}

struct oracle {
    enum drafts drafts;
    struct rng rng;
};

static const struct known_text *find_text(const struct draft_ask *ask) {
    for (uint32_t i = 0; i < text_count; i++)
        if (texts[i].count > ask->count &&
            memcmp(texts[i].tokens, ask->tokens, ask->count * sizeof(ask->tokens[0])) == 0)
            return &texts[i];
    return NULL;
}

static void oracle_answer(struct oracle *o, struct draft_ask *ask) {
    enum { VOCAB = 288 };
    const struct known_text *text = find_text(ask);
    uint32_t right = o->drafts == DRAFTS_RIGHT || o->drafts == DRAFTS_LATE ? ask->max : 0;
    if (o->drafts == DRAFTS_MIXED) right = (uint32_t)rng_below(&o->rng, ask->max + 1);
    for (ask->given = 0; ask->given < ask->max; ask->given++) {
        const uint32_t at = ask->count + ask->given;
        const bool is_right = text && ask->given < right && at < text->count;
        ask->out[ask->given] = is_right ? text->tokens[at] : (int32_t)rng_below(&o->rng, VOCAB);
    }
}

static void oracle_propose(void *self, struct draft_ask *const *asks, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) oracle_answer(self, asks[i]);
}
static double oracle_cost_us(void *self, uint32_t seqs, uint32_t tokens) {
    (void)self, (void)seqs, (void)tokens;
    return 0;
}
static void oracle_begin(void *self, seq_idx seq, const struct sampling *draw) {
    (void)self, (void)seq, (void)draw;
}
static void oracle_end(void *self, seq_idx seq) { (void)self, (void)seq; }

static void oracle_plug(struct oracle *o, struct server_rig *g) {
    const struct draft_model model = {.begin = oracle_begin,
                                      .end = oracle_end,
                                      .propose = oracle_propose,
                                      .cost_us = oracle_cost_us,
                                      .self = o};
    spec_plug_model(engine_spec(g->model->engine), &model);
}

/* ---- the model ---- */

/* Thoughts and tools need a chat template; the context of the golden model is short. */
static void put_file(const char *folder, const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static const char *const model_files[] = {"model.safetensors", "tokenizer.json",
                                          "generation_config.json"};
enum { MODEL_FILES = sizeof(model_files) / sizeof(model_files[0]) };

static void make_model(char folder[32]) {
    snprintf(folder, 32, "/tmp/jitney-spec-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (uint32_t i = 0; i < MODEL_FILES; i++) {
        char from[512], to[128];
        snprintf(from, sizeof(from), RIG_MODELS "llama/%s", model_files[i]);
        snprintf(to, sizeof(to), "%s/%s", folder, model_files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    put_file(
        folder, "config.json",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":288,"
        "\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"hidden_act\":\"silu\","
        "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"
        "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2,"
        "\"torch_dtype\":\"float32\"}");
    put_file(folder, "tokenizer_config.json",
             "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"bos_token\":\"<s>\","
             "\"eos_token\":\"</s>\",\"unk_token\":\"<unk>\",\"add_bos_token\":false,"
             "\"add_eos_token\":false,\"chat_template\":\"{% for m in messages %}{{ m.role }}: "
             "{{ m.content }}\\n{% endfor %}{% if tools %}T{% endif %}a: <think>\\n\"}");
}

static void remove_model(const char *folder) {
    static const char *const made[] = {"config.json", "tokenizer_config.json"};
    char path[128];
    for (uint32_t i = 0; i < MODEL_FILES + 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder,
                 i < MODEL_FILES ? model_files[i] : made[i - MODEL_FILES]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* ---- requests ---- */

#define SAY "\"messages\":[{\"role\":\"user\",\"content\":\"Say ab ab ab ab\"}]"
#define LETTERS "[\"a\",\"b\",\"c\",\"d\",\"e\",\"fg\",\"h\",\"1\",\"2\",\"3\",\"4\",\"(\",\"Q\"]"
#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":9},"         \
    "\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":30}},\"required\":[\"city\","        \
    "\"days\"],\"additionalProperties\":false}"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"trip\",\"parameters\":" SCHEMA     \
    "}}],\"tool_choice\":\"required\""

/* Without the closing brace: fields follow. `by_index`: events of several choices are interleaved
 * as tokens arrive, so they are compared choice by choice. */
static const struct {
    const char *line, *body;
    bool by_index;
} cases[] = {
    {CHAT,
     "{" SAY ",\"seed\":1,\"max_tokens\":40,\"logprobs\":true,\"top_logprobs\":3,"
     "\"thinking_token_budget\":6",
     false},
    {CHAT,
     "{" SAY ",\"seed\":1,\"max_tokens\":40,\"logprobs\":true,\"top_logprobs\":3,"
     "\"thinking_token_budget\":6,\"stream\":true,"
     "\"stream_options\":{\"include_usage\":true}",
     false},
    {CHAT, "{" SAY ",\"seed\":2,\"max_tokens\":30,\"n\":3,\"logprobs\":true", false},
    {CHAT,
     "{" SAY ",\"seed\":3,\"max_tokens\":24,\"n\":3,\"stream\":true,"
     "\"stream_options\":{\"continuous_usage_stats\":true}",
     true},
    {CHAT, "{" SAY ",\"temperature\":0,\"max_tokens\":60", false},
    {CHAT,
     "{" SAY ",\"temperature\":0,\"max_tokens\":60,\"frequency_penalty\":0.5,"
     "\"presence_penalty\":0.3,\"repetition_penalty\":1.2,\"stream\":true",
     false},
    {CHAT,
     "{" SAY ",\"seed\":4,\"max_tokens\":60,\"thinking_token_budget\":3,\"response_format\":"
     "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":" SCHEMA "}}",
     false},
    {CHAT,
     "{" SAY ",\"seed\":4,\"max_tokens\":60,\"thinking_token_budget\":3,\"response_format\":"
     "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":" SCHEMA
     "}},\"stream\":true,\"logprobs\":true",
     false},
    {CHAT, "{" SAY ",\"seed\":5,\"max_tokens\":90,\"thinking_token_budget\":3," TOOLS, false},
    {CHAT,
     "{" SAY ",\"seed\":5,\"max_tokens\":90,\"thinking_token_budget\":3,\"stream\":true," TOOLS,
     false},
    {COMPLETIONS, "{\"prompt\":\"ab ab ab\",\"seed\":6,\"max_tokens\":60,\"stop\":" LETTERS, false},
    {COMPLETIONS,
     "{\"prompt\":\"ab ab ab\",\"seed\":7,\"max_tokens\":60,\"stream\":true,"
     "\"stream_options\":{\"include_usage\":true},\"stop\":" LETTERS,
     false},
    {COMPLETIONS,
     "{\"prompt\":\"ab ab ab\",\"seed\":8,\"max_tokens\":60,\"n\":4,\"logprobs\":2,"
     "\"include_stop_str_in_output\":true,\"stop\":" LETTERS,
     false},
    {COMPLETIONS,
     "{\"prompt\":[\"one one one\",\"two\"],\"seed\":9,\"max_tokens\":12,"
     "\"n\":2,\"echo\":true,\"logprobs\":1,\"return_token_ids\":true",
     false},
    {COMPLETIONS, "{\"prompt\":\"ab\",\"seed\":10,\"max_tokens\":1", false},
    {COMPLETIONS, "{\"prompt\":\"ab\",\"seed\":11,\"max_tokens\":2,\"stream\":true", false},
    {COMPLETIONS,
     "{\"prompt\":\"ab ab\",\"seed\":12,\"max_tokens\":50,\"min_tokens\":20,"
     "\"stop_token_ids\":[70,71,72,73,74,75,76,77,78,79,80,81,82,83,84]",
     false},
    {COMPLETIONS,
     "{\"prompt\":\"ab ab\",\"temperature\":0,\"max_tokens\":50,\"regex\":"
     "\"(ab|cd|e[0-9]+ ){4,30}\",\"logprobs\":0",
     false},
    {RESPONSES, "{\"input\":\"Say ab ab\",\"seed\":13,\"max_output_tokens\":40", false},
    {RESPONSES,
     "{\"input\":\"Say ab ab\",\"seed\":13,\"max_output_tokens\":40,\"stream\":true,"
     "\"thinking_token_budget\":5",
     false},
    {MESSAGES, "{" SAY ",\"temperature\":0,\"max_tokens\":50,\"stop_sequences\":[\"zq\",\"kk\"]",
     false},
    {MESSAGES, "{" SAY ",\"temperature\":0,\"max_tokens\":50,\"stream\":true", false},
    {OLLAMA_CHAT, "{\"model\":\"m\"," SAY ",\"options\":{\"seed\":14,\"num_predict\":30}", false},
    {OLLAMA_CHAT,
     "{\"model\":\"m\"," SAY ",\"stream\":false,\"options\":{\"seed\":14,"
     "\"num_predict\":30}",
     false},
    {OLLAMA_GENERATE,
     "{\"model\":\"m\",\"prompt\":\"ab ab\",\"options\":{\"seed\":15,"
     "\"num_predict\":40,\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}",
     false},
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

/* ---- what is compared ---- */

static size_t skip_value(const char *at) {
    if (*at == '"') return strcspn(at + 1, "\"") + 2;
    return strspn(at, "0123456789.");
}

/* Ids and times are of each request its own. */
static void put_comparable(const char *text, struct buf *out) {
    static const char *const own[] = {
        "\"id\":",         "\"call_id\":",      "\"item_id\":", "\"created\":",
        "\"created_at\":", "\"completed_at\":", "_duration\":", "\"response_id\":"};
    while (*text) {
        size_t len = 0;
        for (size_t i = 0; i < sizeof(own) / sizeof(own[0]) && len == 0; i++)
            if (strncmp(text, own[i], strlen(own[i])) == 0) len = strlen(own[i]);
        buf_put_str(out, (struct str){text, len ? len : 1});
        text += len ? len : 1;
        if (len) text += skip_value(text);
    }
}

static void put_by_index(const char *text, struct buf *out) {
    enum { CHOICES = 3 };
    char mark[32];
    for (uint32_t i = 0; i < CHOICES; i++) {
        snprintf(mark, sizeof(mark), "{\"index\":%u,", i);
        for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
            const struct str line = {at, strcspn(at, "\n")};
            const char *found = strstr(at, mark);
            if (str_starts(line, STR("data:")) && found && found < at + line.len)
                buf_put_str(out, line);
        }
    }
}

static char *wanted[CASES];

static void run_case(struct server_rig *g, uint32_t i, enum drafts drafts) {
    struct buf body, text, got;
    struct reply r;
    buf_init(&body, 1 << 16);
    buf_init(&text, 1 << 24);
    buf_init(&got, 1 << 24);
    buf_put_text(&body, cases[i].body);
    if (drafts != DRAFTS_OFF)
        buf_printf(&body, ",\"speculation\":{\"drafter\":%s}", drafter_names[drafts]);
    buf_put_text(&body, "}");
    ask(g, &r, cases[i].line, NULL, buf_text(&body));
    if (r.status != 200) fail_msg("case %u: %s", i, buf_text(&r.body));
    put_comparable(buf_text(&r.body), &text);
    if (cases[i].by_index)
        put_by_index(buf_text(&text), &got);
    else
        buf_put_str(&got, buf_str(&text));
    assert_true(got.len > 40);
    if (drafts == DRAFTS_OFF) {
        size_t len;
        wanted[i] = buf_take(&got, &len);
    } else if (strcmp(buf_text(&got), wanted[i]) != 0) {
        fail_msg("case %u, drafts %d:\n%s\nnot\n%s", i, drafts, buf_text(&got), wanted[i]);
    }
    buf_deinit(&body);
    buf_deinit(&text);
    buf_deinit(&got);
    reply_free(&r);
}

static void assert_drafted(struct server_rig *g, enum drafts drafts) {
    const double drafted = metric(g, NULL, "vllm:spec_decode_num_draft_tokens_total");
    const double accepted = metric(g, NULL, "vllm:spec_decode_num_accepted_tokens_total");
    const double rows = metric(g, NULL, "vllm:spec_decode_num_drafts_total");
    const double first =
        metric(g, NULL,
               "vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"m\","
               "position=\"0\"}");
    printf("drafts %d: %.0f rows, %.0f drafted, %.0f accepted, %.0f first\n", drafts, rows, drafted,
           accepted, first);
    if (drafts == DRAFTS_OFF) assert_true(drafted == 0);
    /* How many there are is for the cost model to say, which measures. */
    assert_true(first <= rows && rows <= drafted && first <= accepted && accepted <= drafted);
    if (drafts == DRAFTS_RIGHT) assert_true(accepted > drafted / 2 && first > 0);
    if (drafts == DRAFTS_RANDOM) assert_true(accepted <= 3 + drafted / 10);
}

static void run_all(const char *folder, const char *device, enum drafts drafts) {
    struct server_rig g;
    struct oracle o = {.drafts = drafts, .rng = {.seed = 500 + (uint64_t)drafts}};
    const char *const flags[] = {"model",
                                 folder,
                                 "served-model-name",
                                 "m",
                                 "device",
                                 device,
                                 "kv-memory",
                                 "16M",
                                 "tool-form",
                                 "hermes",
                                 "set",
                                 "threads=1",
                                 "grammar-seconds",
                                 "60",
                                 NULL}; /* under a sanitizer, on a busy machine */
    rig_open(&g, NULL, flags);
    rig_stop_clock_at_second();
    oracle_plug(&o, &g);
    is_learning = drafts == DRAFTS_OFF;
    is_often_locked = drafts == DRAFTS_LATE;
    for (uint32_t i = 0; i < CASES; i++) run_case(&g, i, drafts);
    is_often_locked = false;
    is_learning = false;
    assert_int_equal(refused_holds > 0, drafts >= DRAFTS_LATE);
    assert_drafted(&g, drafts);
    rig_close(&g);
}

static void compare_on(const char *device) {
    char folder[32];
    make_model(folder);
    text_count = 0;
    refused_holds = 0;
    for (int drafts = DRAFTS_OFF; drafts <= DRAFTS_SUFFIX; drafts++)
        run_all(folder, device, (enum drafts)drafts);
    for (uint32_t i = 0; i < CASES; i++) mem_free(wanted[i]);
    remove_model(folder);
}

static void test_the_bytes_are_the_same_at_depth_0(void **state) {
    (void)state;
    compare_on("cpu");
}

static void test_the_bytes_are_the_same_at_depth_1(void **state) {
    (void)state;
    compare_on("delayed");
}

/* ---- predictions ---- */

static const char *const sim_flags[] = {"model", RIG_MODELS "llama", "runner", "sim:0", NULL};

struct counts {
    int64_t completion, accepted, rejected;
    double drafted; /* by the engine, since the request before */
    char text[1024];
};

static int64_t int_at(const struct reply *r, const char *path) {
    const struct json *v = reply_path(r->json, path);
    if (json_kind(v) != JS_INT) fail_msg("no %s: %s", path, buf_text((struct buf *)&r->body));
    return json_int(v, -1);
}

/* Of a request with these fields, and `prediction` if it is not NULL. */
static struct counts count_of(struct server_rig *g, const char *fields, const char *prediction) {
    struct reply r;
    struct buf body;
    const double before = metric(g, NULL, "vllm:spec_decode_num_draft_tokens_total");
    buf_init(&body, 1 << 16);
    buf_printf(&body, "{\"prompt\":\"x\",\"seed\":7,\"max_tokens\":40%s", fields);
    if (prediction)
        buf_printf(&body, ",\"prediction\":{\"type\":\"content\",\"content\":%s}", prediction);
    buf_put_text(&body, "}");
    ask(g, &r, COMPLETIONS, NULL, buf_text(&body));
    buf_deinit(&body);
    if (r.status != 200) fail_msg("%s", buf_text(&r.body));
    while (!rig_is_quiet(g)) rig_step(g, 1);
    struct counts c = {
        .completion = int_at(&r, "usage.completion_tokens"),
        .accepted = int_at(&r, "usage.completion_tokens_details.accepted_prediction_tokens"),
        .rejected = int_at(&r, "usage.completion_tokens_details.rejected_prediction_tokens"),
        .drafted = metric(g, NULL, "vllm:spec_decode_num_draft_tokens_total") - before};
    const struct str text = json_str(reply_path(r.json, "choices.0.text"));
    assert_true(text.len < sizeof(c.text));
    snprintf(c.text, sizeof(c.text), "%.*s", STR_ARG(text));
    reply_free(&r);
    return c;
}

static void test_the_usage_tells_what_was_predicted(void **state) {
    (void)state;
    struct server_rig g;
    char text[2048], parts[2048];
    rig_open(&g, NULL, sim_flags);
    rig_stop_clock_at_second();
    const struct counts plain = count_of(&g, "", NULL);
    assert_int_equal(plain.completion, 40);
    assert_true(plain.drafted == 0 && plain.accepted + plain.rejected == 0);
    snprintf(text, sizeof(text), "\"%s\"", plain.text);
    snprintf(parts, sizeof(parts),
             "[{\"type\":\"text\",\"text\":\"%.10s\"},{\"type\":\"text\",\"text\":\"%s\"}]",
             plain.text, plain.text + 10);

    /* As a text and in parts, by a server that does not speculate by itself. */
    struct counts c = count_of(&g, "", text);
    assert_string_equal(c.text, plain.text);
    assert_int_equal(c.completion, 40);
    assert_true(c.accepted > 10 && c.accepted < 40);
    assert_true((double)(c.accepted + c.rejected) == c.drafted);
    c = count_of(&g, "", parts);
    assert_int_equal(c.completion, 40);
    assert_true(c.accepted > 10 && (double)(c.accepted + c.rejected) == c.drafted);

    /* A wrong one costs nothing of the usage. */
    c = count_of(&g, "", "\"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\"");
    assert_int_equal(c.completion, 40);
    assert_true(c.accepted == 0 && c.rejected > 0 && (double)c.rejected == c.drafted);

    /* Several choices count together. */
    c = count_of(&g, ",\"n\":3", text);
    assert_int_equal(c.completion, 120);
    assert_true(c.accepted > 10 && (double)(c.accepted + c.rejected) == c.drafted);

    /* Other drafters, and none. */
    c = count_of(&g, ",\"speculation\":{\"drafter\":\"off\"}", text);
    assert_true(c.drafted == 0 && c.accepted + c.rejected == 0);
    c = count_of(&g, ",\"speculation\":{\"max\":0}", text);
    assert_true(c.drafted == 0 && c.accepted + c.rejected == 0);
    c = count_of(&g, ",\"speculation\":{\"drafter\":\"suffix\"}", text);
    assert_true(c.drafted > 0 && c.accepted + c.rejected == 0);
    rig_close(&g);
}

/* The answer ends inside accepted drafts: those behind its end are not part of it. */
static void test_tokens_behind_a_stop_string_are_not_counted(void **state) {
    (void)state;
    struct server_rig g;
    char text[2048], stop[128];
    rig_open(&g, NULL, sim_flags);
    rig_stop_clock_at_second();
    const struct counts whole = count_of(&g, "", NULL);
    snprintf(text, sizeof(text), "\"%s\"", whole.text);
    for (size_t at = strlen(whole.text) / 3; at + 4 < strlen(whole.text); at++) {
        snprintf(stop, sizeof(stop), ",\"stop\":\"%.4s\"", whole.text + at);
        const struct counts plain = count_of(&g, stop, NULL), c = count_of(&g, stop, text);
        assert_string_equal(c.text, plain.text);
        assert_int_equal(c.completion, plain.completion);
        assert_true(c.accepted < c.completion && (double)(c.accepted + c.rejected) <= c.drafted);
    }
    rig_close(&g);
}

/* A key pays for the tokens of prompt and answer, whatever was drafted. */
static void test_a_key_does_not_pay_for_drafts(void **state) {
    (void)state;
    static const char *const keys = "k1 name=alice tenant=a rpm=10 tpm=1000\n";
    char text[2048] = "";
    for (int has_drafts = 0; has_drafts < 2; has_drafts++) {
        struct server_rig g;
        struct reply r;
        char body[2048];
        rig_open(&g, keys, sim_flags);
        rig_stop_clock_at_second();
        snprintf(body, sizeof(body), "{\"prompt\":\"x\",\"seed\":7,\"max_tokens\":40%.1900s}",
                 text);
        ask(&g, &r, COMPLETIONS, "authorization: Bearer k1\r\n", body);
        assert_int_equal(r.status, 200);
        const struct str answer = json_str(reply_path(r.json, "choices.0.text"));
        snprintf(text, sizeof(text), ",\"prediction\":{\"type\":\"content\",\"content\":\"%.*s\"}",
                 STR_ARG(answer));
        while (!rig_is_quiet(&g)) rig_step(&g, 1);
        const struct key *key = keys_find(g.server->keys, STR("k1"));
        const struct key_room room = keys_room(g.server->keys, key, clock_now(&clock_real));
        assert_int_equal(room.tokens_left, 1000 - 1 - 40);
        reply_free(&r);
        rig_close(&g);
    }
}

/* Text that a grammar forces is several tokens at once, and drafts would be behind it. */
static void test_forced_text_has_no_drafts(void **state) {
    (void)state;
    char folder[32], first[64] = "";
    make_model(folder);
    for (int has_drafts = 0; has_drafts < 2; has_drafts++) {
        struct server_rig g;
        struct reply r;
        struct oracle o = {.drafts = DRAFTS_RANDOM, .rng = {.seed = 9}};
        const char *const flags[] = {
            "model",           folder, "kv-memory",   "16M",  "set", "threads=1", "device", "cpu",
            "grammar-seconds", "60",   "forced-text", "true", NULL};
        rig_open(&g, NULL, flags);
        rig_stop_clock_at_second();
        oracle_plug(&o, &g);
        ask(&g, &r, COMPLETIONS, NULL,
            has_drafts ? "{\"prompt\":\"ab\",\"seed\":4,\"max_tokens\":60,\"speculation\":"
                         "{\"drafter\":\"model\"},\"regex\":\"a long text [a-z]{9} of it\"}"
                       : "{\"prompt\":\"ab\",\"seed\":4,\"max_tokens\":60,"
                         "\"regex\":\"a long text [a-z]{9} of it\"}");
        if (r.status != 200) fail_msg("%s", buf_text(&r.body));
        const struct str text = json_str(reply_path(r.json, "choices.0.text"));
        assert_true(str_starts(text, STR("a long text ")));
        if (has_drafts) assert_true(str_is(text, first));
        snprintf(first, sizeof(first), "%.*s", STR_ARG(text));
        assert_true(metric(&g, NULL, "vllm:spec_decode_num_draft_tokens_total") <= 0);
        reply_free(&r);
        rig_close(&g);
    }
    remove_model(folder);
}

/* ---- what is refused ---- */

static void test_wrong_fields_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *fields, *code, *words;
    } wrong[] = {
        {"\"speculation\":\"ngram\"", "invalid_type",
         "'speculation': expected an object, got a string"},
        {"\"speculation\":{\"drafter\":\"ngrams\"}", NULL, "speculation.drafter"},
        {"\"speculation\":{\"drafter\":\"ngrams\"}", NULL, "ngram"},
        {"\"speculation\":{\"drafter\":\"ngram:2-4\"}", NULL, "speculation.drafter"},
        {"\"speculation\":{\"drafter\":3}", "invalid_type", "speculation.drafter"},
        {"\"speculation\":{\"max\":25}", "integer_above_max_value", "maximum of 24"},
        {"\"speculation\":{\"max\":-1}", "integer_below_min_value", "minimum of 0"},
        {"\"speculation\":{\"max\":\"4\"}", "invalid_type", "speculation.max"},
        {"\"speculation\":{\"drafter\":\"model\"}", "invalid_value",
         "started without --speculate model:PATH"},
        {"\"speculation\":{\"drafter\":\"predicted\"}", "invalid_value",
         "needs the field 'prediction'"},
        {"\"prediction\":\"text\"", "invalid_type", "'prediction'"},
        {"\"prediction\":{\"content\":\"text\"}", "missing_required_parameter", "prediction.type"},
        {"\"prediction\":{\"type\":\"content\"}", "missing_required_parameter",
         "prediction.content"},
        {"\"prediction\":{\"type\":\"file\",\"content\":\"t\"}", NULL, "prediction.type"},
        {"\"prediction\":{\"type\":\"content\",\"content\":[\"t\"]}", "invalid_type",
         "prediction.content[0]"},
        {"\"prediction\":{\"type\":\"content\",\"content\":[{\"type\":\"image\"}]}", NULL,
         "prediction.content[0].type"},
        {"\"prediction\":{\"type\":\"content\",\"content\":[{\"type\":\"text\"}]}",
         "missing_required_parameter", "prediction.content[0].text"},
    };
    static const char *const ways[][2] = {
        {COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":2,%s}"},
        {RESPONSES, "{\"input\":\"a\",%s}"},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],%s}"}};
    struct server_rig g;
    rig_open(&g, NULL, NULL);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
            char body[512];
            snprintf(body, sizeof(body), ways[w][1], wrong[i].fields);
            expect(&g, ways[w][0], NULL, body, 400, wrong[i].code, wrong[i].words);
        }
    static const char *const right[] = {
        "\"speculation\":null",
        "\"speculation\":{}",
        "\"speculation\":{\"drafter\":null}",
        "\"speculation\":{\"drafter\":\"suffix\",\"max\":24}",
        "\"prediction\":null",
        "\"prediction\":{\"type\":\"content\",\"content\":\"\"}",
        "\"prediction\":{\"type\":\"content\",\"content\":[]}",
        ("\"speculation\":{\"drafter\":\"predicted\"},\"prediction\":{\"type\":\"content\","
         "\"content\":\"a\"}")};
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        char body[512];
        snprintf(body, sizeof(body), ways[0][1], right[i]);
        expect(&g, ways[0][0], NULL, body, 200, NULL, NULL);
    }
    rig_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bytes_are_the_same_at_depth_0),
        cmocka_unit_test(test_the_bytes_are_the_same_at_depth_1),
        cmocka_unit_test(test_the_usage_tells_what_was_predicted),
        cmocka_unit_test(test_tokens_behind_a_stop_string_are_not_counted),
        cmocka_unit_test(test_a_key_does_not_pay_for_drafts),
        cmocka_unit_test(test_forced_text_has_no_drafts),
        cmocka_unit_test(test_wrong_fields_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
