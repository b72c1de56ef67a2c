/* Goal:   a model opens only if every weight that its pass reads is there in the shape it is read
 *         in; every refusal names the file and the weight or number at fault.
 * Method: tiny models of several architectures, from which each tensor in turn is taken away or
 *         given another shape; numbers that lie; edited copies of a golden folder's config.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "base/rng.h"
#include "format/format_int.h"
#include "graph/tape.h"
#include "model/arch.h"
#include "model/model.h"
#include "unit/model/make_model.h"

enum { CTX = 64 };

/* Open the file, write the pass, check and plan it. */
static enum status open_all(struct model_file *f, struct err *err) {
    struct model *m;
    struct tape *t;
    TRY(model_open(f, &(struct model_options){.ctx_tokens = CTX}, &m, err));
    assert_int_equal(tape_create(&t), ST_OK);
    model_build(m, GOAL_LOGITS, t);
    enum status st = tape_finish(t, &(struct tape_sizes){4, 4, 1}, err);
    tape_destroy(t);
    model_close(m);
    return st;
}

static enum status open_spec(const struct spec *s, struct err *err) {
    struct buf b;
    struct model_file *f;
    buf_init(&b, FILE_BYTES_MAX);
    put_spec(&b, s);
    *err = (struct err){{0}};
    enum status st = gguf_open_memory(buf_str(&b), "tiny", &f, err);
    if (st == ST_OK) {
        st = open_all(f, err);
        model_file_close(f);
    }
    buf_deinit(&b);
    return st;
}

static void refuses(const struct spec *s, const char *word) {
    struct err err;
    assert_int_equal(open_spec(s, &err), ST_BAD);
    assert_memory_equal(err.text, "tiny: ", 6);
    if (!strstr(err.text, word)) fail_msg("\"%s\" does not name %s", err.text, word);
}

static void opens(const struct spec *s) {
    struct err err;
    if (open_spec(s, &err) != ST_OK) fail_msg("%s: %s", s->arch, err.text);
}

/* One of each way in which a layer can be built. */
static struct spec spec_at(uint32_t i) {
    static const char *const names[] = {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "qwen3moe"};
    struct spec s = spec_of(names[i]);
    s.has_qkv_bias = i == 1;
    s.has_qk_norm = i == 2 || i >= 4;
    s.has_post_norms = i == 3 || i == 4;
    if (i == 5) {
        s.experts = 4;
        s.experts_used = 2;
        s.expert_ffn = 16;
    }
    return s;
}
enum { SPEC_COUNT = 6 };

static void test_each_kind_opens_and_a_missing_tensor_is_named(void **state) {
    (void)state;
    for (uint32_t i = 0; i < SPEC_COUNT; i++) {
        struct spec s = spec_at(i);
        opens(&s);
        struct spec_list l = list_of(&s);
        for (uint32_t t = 0; t < l.count; t++) {
            s.omit = l.at[t].name;
            /* Without a router the layer counts as dense, and that is what is missing. */
            bool is_router = strstr(s.omit, "ffn_gate_inp") != NULL;
            refuses(&s, is_router ? "ffn_gate.weight" : s.omit);
        }
    }
}

static void test_a_tensor_of_another_shape_is_named(void **state) {
    (void)state;
    for (uint32_t i = 0; i < SPEC_COUNT; i++) {
        struct spec s = spec_at(i);
        struct spec_list l = list_of(&s);
        for (uint32_t t = 0; t < l.count; t++)
            for (int d = 0; d < 4; d++) {
                s.extra = l.at[t];
                if (d > 0 && !s.extra.dims[d - 1]) continue;
                s.extra.dims[d] = s.extra.dims[d] ? s.extra.dims[d] + 1 : 2;
                bool is_vocab = t == 0 && d == 1; /* any number of rows is a vocabulary */
                if (is_vocab)
                    opens(&s);
                else
                    refuses(&s, s.extra.name);
            }
    }
}

static void test_a_bias_has_as_many_numbers_as_its_matrix_has_rows(void **state) {
    (void)state;
    static const char *const names[] = {"gate", "up", "down"};
    for (int i = 0; i < 3; i++) {
        struct spec s = spec_of("llama");
        snprintf(s.extra.name, sizeof(s.extra.name), "blk.0.ffn_%s.bias", names[i]);
        s.extra.dims[0] = i < 2 ? s.ffn : s.dim;
        opens(&s);
        s.extra.dims[0] = i < 2 ? s.dim : s.ffn;
        refuses(&s, s.extra.name);
    }
}

/* Five rows of a whole block look like five elements if only two dims are counted. */
static void test_a_quantised_vector_is_counted_in_all_its_dims(void **state) {
    (void)state;
    struct spec s = spec_of("llama");
    s.extra = (struct spec_tensor){"output_norm.weight", {32, 1, 1, 32}, T_Q8_0};
    refuses(&s, "output_norm.weight");
    s.extra.dims[3] = 0;
    opens(&s);
}

static void test_numbers_that_cannot_be_are_refused(void **state) {
    (void)state;
    const struct {
        uint32_t spec;
        const char *key;
        uint32_t value;
        const char *word;
    } lies[] = {
        {5, "expert_used_count", 0, "0 of 4 experts"},
        {5, "expert_used_count", 5, "5 of 4 experts"},
        {5, "expert_count", 5000, "expert_count"},
        {5, "expert_feed_forward_length", 0, "inner width of 0"},
        {5, "expert_feed_forward_length", 0x80000000, "inner width of 2147483648"},
        {0, "feed_forward_length", 0, "feed-forward"},
        {0, "feed_forward_length", 0xFFFFFFFF, "feed_forward_length"},
        {0, "attention.key_length", 7, "heads of 7"},
        {0, "attention.key_length", 4096, "blk.0.attn_q.weight"},
        {0, "attention.head_count", 0, "attention.head_count"},
        {0, "attention.head_count_kv", 3, "3 KV heads"},
        {0, "attention.head_count_kv", 8, "8 KV heads"},
        {0, "embedding_length", 0, "embedding_length"},
        {0, "block_count", 513, "block_count"},
        {0, "block_count", 2, "blk.1."},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct spec s = spec_at(lies[i].spec);
        s.lie_key = lies[i].key;
        s.lie_value = lies[i].value;
        refuses(&s, lies[i].word);
    }
}

/* One or two lies at random: a key's value, a tensor's type, its dims. */
static void lie_at_random(struct spec *s, struct rng *r) {
    static const char *const keys[] = {"embedding_length",        "attention.head_count",
                                       "attention.head_count_kv", "attention.key_length",
                                       "feed_forward_length",     "expert_count",
                                       "expert_used_count",       "expert_feed_forward_length"};
    static const uint32_t values[] = {0,  1,  2,  3,  4,    7,    8,       15,         16,
                                      31, 32, 33, 64, 4096, 4097, 1 << 20, 0x7FFFFFFF, UINT32_MAX};
    static const uint32_t types[] = {T_F32, T_F16, T_Q8_0};
    if (rng_below(r, 2)) {
        s->lie_key = keys[rng_below(r, sizeof(keys) / sizeof(keys[0]))];
        s->lie_value = values[rng_below(r, sizeof(values) / sizeof(values[0]))];
    }
    struct spec_list l = list_of(s);
    s->extra = l.at[rng_below(r, l.count)];
    s->extra.type = types[rng_below(r, 3)];
    if (rng_below(r, 4) == 0) s->extra.dims[rng_below(r, 4)] = 32;
}

/* What the model accepts, the tape must: nothing but a bug is left for it to refuse. */
static void test_a_model_that_opens_has_a_pass(void **state) {
    (void)state;
    struct rng r = {.seed = 7};
    uint32_t opened = 0;
    for (int i = 0; i < 3000; i++) {
        struct spec s = spec_at((uint32_t)rng_below(&r, SPEC_COUNT));
        struct err err;
        s.ffn = 64;
        if (s.experts) s.expert_ffn = 32;
        lie_at_random(&s, &r);
        enum status st = open_spec(&s, &err);
        if (st == ST_OK) opened++;
        if (st != ST_OK && (st != ST_BAD || strncmp(err.text, "tiny: ", 6) != 0))
            fail_msg("round %d: %s", i, err.text);
    }
    assert_true(opened > 300);
}

/* The short divisors apply up to a context of the original length, whether the engine's context is
 * given or taken from the model. */
static void test_the_rope_is_that_of_the_context_in_use(void **state) {
    (void)state;
    const struct {
        struct model_options options;
        const char *used;
    } rows[] = {{{.ctx_tokens = 16}, "rope_factors_short.weight"},
                {{.ctx_tokens = 4096}, "rope_factors_long.weight"},
                {{.ctx_tokens = 0}, "rope_factors_long.weight"},
                {{.ctx_default_max = 2048}, "rope_factors_short.weight"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct spec s = spec_of("llama");
        struct buf b;
        struct model_file *f;
        struct model *m;
        struct err err = {{0}};
        s.extra = (struct spec_tensor){.dims = {4}, .type = T_F32}; /* zeros: refused if used */
        snprintf(s.extra.name, sizeof(s.extra.name), "%s", rows[i].used);
        buf_init(&b, FILE_BYTES_MAX);
        put_spec(&b, &s);
        assert_int_equal(gguf_open_memory(buf_str(&b), "tiny", &f, &err), ST_OK);
        assert_int_equal(model_open(f, &rows[i].options, &m, &err), ST_BAD);
        assert_non_null(strstr(err.text, "rope divisor 0 is 0"));
        model_file_close(f);
        buf_deinit(&b);
    }
}

/* GGUF does not say how Gemma's attention is scaled: the depth shows which is the largest. */
static void test_gemma_scales_by_head_except_in_its_largest_size(void **state) {
    (void)state;
    const struct {
        const char *arch;
        uint32_t layers, per_head;
    } rows[] = {{"gemma2", 26, 8}, {"gemma2", 46, 16}, {"gemma3", 34, 8}, {"gemma3", 62, 16}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct spec s = spec_of(rows[i].arch);
        struct buf b;
        struct model_file *f;
        struct hparams hp;
        struct err err = {{0}};
        s.dim = 64; /* 16 to a head, of which attention uses 8 */
        s.lie_key = "block_count";
        s.lie_value = rows[i].layers;
        buf_init(&b, FILE_BYTES_MAX);
        put_spec(&b, &s);
        assert_int_equal(gguf_open_memory(buf_str(&b), "tiny", &f, &err), ST_OK);
        assert_int_equal(arch_find(s.arch, false)->read_hparams(f, &hp, &err), ST_OK);
        assert_true(fabs((double)hp.attn_scale - 1 / sqrt(rows[i].per_head)) < 1e-6);
        model_file_close(f);
        buf_deinit(&b);
    }
}

/* ---- Folders: a golden one with another config.json ---- */

static void edit(struct buf *out, struct str text, const char *from, const char *to) {
    const char *hit = from ? strstr(text.ptr, from) : NULL;
    assert_true(!from || hit);
    size_t before = from ? (size_t)(hit - text.ptr) : 0;
    buf_put(out, text.ptr, before);
    buf_put_text(out, to);
    buf_put_str(out, str_skip(text, before + (from ? strlen(from) : 0)));
}

/* The folder tests/golden/models/llama with the first `from` of its config turned into `to`. */
static enum status open_edited(const char *golden, const char *from, const char *to,
                               struct err *err) {
    char source[4096], folder[4096], path[4096 + 32];
    struct buf config, changed;
    struct model_file *f;
    buf_init(&config, 1 << 16);
    buf_init(&changed, 1 << 16);
    snprintf(source, sizeof(source), TEST_SOURCE_DIR "/golden/models/%s", golden);
    snprintf(path, sizeof(path), "%s/config.json", source);
    assert_int_equal(file_read(path, &config, err), ST_OK);
    edit(&changed, (struct str){buf_text(&config), config.len}, from, to);
    make_folder(folder, sizeof(folder));
    write_buf(folder, "config.json", &changed);
    snprintf(path, sizeof(path), "%s/model.safetensors", source);
    char link[4096 + 32];
    snprintf(link, sizeof(link), "%s/model.safetensors", folder);
    assert_int_equal(symlink(path, link), 0);
    *err = (struct err){{0}};
    enum status st = model_file_open(folder, &f, err);
    if (st == ST_OK) {
        st = open_all(f, err);
        model_file_close(f);
    }
    remove_folder(folder);
    buf_deinit(&changed);
    buf_deinit(&config);
    return st;
}

static void refuses_edit(const char *golden, const char *from, const char *to, const char *word) {
    struct err err = {{0}};
    assert_int_equal(open_edited(golden, from, to, &err), ST_BAD);
    if (!strstr(err.text, word)) fail_msg("\"%s\" does not name %s", err.text, word);
}

static void test_a_config_that_asks_for_what_we_do_not_do_is_refused(void **state) {
    (void)state;
    struct err err = {{0}};
    assert_int_equal(open_edited("llama", "\"silu\"", "\"silu\"", &err), ST_OK);
    refuses_edit("llama", "\"silu\"", "\"relu2\"", "hidden_act \"relu2\"");
    refuses_edit("llama", "{", "{\"partial_rotary_factor\": 1e30, ", "partial_rotary_factor");
    refuses_edit("llama", "{", "{\"partial_rotary_factor\": -1, ", "partial_rotary_factor");
    refuses_edit("llama", "{", "{\"rope_scaling\": {\"rope_type\": \"spiral\"}, ", "\"spiral\"");
    refuses_edit("llama", "1e-05", "-1e-05", "epsilon");
    refuses_edit("qwen3moe", "\"num_experts\": ", "\"num_experts\": 9999999, \"was\": ", "experts");
}

static void test_a_model_that_says_it_has_a_head_must_have_one(void **state) {
    (void)state;
    struct err err = {{0}};
    const char *tied = "\"tie_word_embeddings\": true";
    assert_int_equal(open_edited("llama-tied", tied, tied, &err), ST_OK);
    refuses_edit("llama-tied", tied, "\"tie_word_embeddings\": false", "lm_head.weight");
}

static bool head_is_embedding(const char *golden) {
    char path[4096];
    struct err err = {{0}};
    struct model_file *f;
    struct model *m;
    snprintf(path, sizeof(path), TEST_SOURCE_DIR "/golden/models/%s", golden);
    assert_int_equal(model_file_open(path, &f, &err), ST_OK);
    assert_int_equal(model_open(f, &(struct model_options){0}, &m, &err), ST_OK);
    assert_non_null(m->head);
    bool same = m->head == &m->token_embd;
    model_close(m);
    model_file_close(f);
    return same;
}

/* One weight, so that a device prepares it once and reads rows of it from what it prepared. */
static void test_a_tied_head_is_the_embedding_itself(void **state) {
    (void)state;
    assert_true(head_is_embedding("llama-tied"));
    assert_false(head_is_embedding("llama"));
}

/* What a device must not make less exact: embeddings, the head, routers; all else it may. */
static void test_embeddings_heads_and_routers_keep_their_type(void **state) {
    (void)state;
    static const char *const golden[] = {"llama", "llama-tied", "mixtral"};
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        char path[4096];
        struct err err = {{0}};
        struct model_file *f;
        struct model *m;
        snprintf(path, sizeof(path), TEST_SOURCE_DIR "/golden/models/%s", golden[i]);
        assert_int_equal(model_file_open(path, &f, &err), ST_OK);
        assert_int_equal(model_open(f, &(struct model_options){0}, &m, &err), ST_OK);
        assert_true(m->head->keeps_type);
        assert_true(m->token_embd.keeps_type);
        for (int mat = 0; mat < MAT_COUNT; mat++)
            assert_int_equal(m->layers[0].mat[mat].keeps_type,
                             mat == MAT_ROUTER && m->hp.experts > 0);
        model_close(m);
        model_file_close(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind_opens_and_a_missing_tensor_is_named),
        cmocka_unit_test(test_a_tensor_of_another_shape_is_named),
        cmocka_unit_test(test_a_bias_has_as_many_numbers_as_its_matrix_has_rows),
        cmocka_unit_test(test_a_quantised_vector_is_counted_in_all_its_dims),
        cmocka_unit_test(test_numbers_that_cannot_be_are_refused),
        cmocka_unit_test(test_a_model_that_opens_has_a_pass),
        cmocka_unit_test(test_the_rope_is_that_of_the_context_in_use),
        cmocka_unit_test(test_gemma_scales_by_head_except_in_its_largest_size),
        cmocka_unit_test(test_a_config_that_asks_for_what_we_do_not_do_is_refused),
        cmocka_unit_test(test_a_model_that_says_it_has_a_head_must_have_one),
        cmocka_unit_test(test_a_tied_head_is_the_embedding_itself),
        cmocka_unit_test(test_embeddings_heads_and_routers_keep_their_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
