/* Goal:   a quantised folder whose config and tensors disagree, or that asks for what is not read,
 *         opens for its tokenizer and says in one sentence why it does not run.
 * Method: small folders written by the test, each wrong in one place; and the same put right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/model_file.h"
#include "tensor/row_source.h"
#include "unit/format/make_files.h"
#include "unit/format/make_quant.h"
#include "unit/format/use_model.h"

struct wrong {
    const char *config;  /* quantization_config */
    const char *tensors; /* NAME FORMAT DIM ...; */
    const char *says;
};

static void check_wrong(const struct wrong *w) {
    char folder[256], config[1024];
    struct err err = {0};
    struct model_file *f;
    make_folder(folder, sizeof(folder));
    snprintf(config, sizeof(config), "{\"a\": 1%s%s}",
             *w->config ? ", \"quantization_config\": " : "", w->config);
    write_text(folder, "config.json", config);
    write_quantised(folder, w->tensors);
    if (model_file_open(folder, &f, &err) != ST_OK) fail_msg("%s", err.text);
    const char *problem = model_file_problem(f);
    if (!problem != !w->says || (w->says && !strstr(problem, w->says)))
        fail_msg("\"%s\", expected \"%s\"", problem ? problem : "nothing",
                 w->says ? w->says : "nothing");
    if (problem) {
        snprintf(err.text, sizeof(err.text), "%s", problem);
        assert_true(is_sentence(&err, folder));
    }
    use_model(f);
    model_file_close(f);
    remove_folder(folder);
}

#define GPTQ(more) "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32" more "}"
#define AWQ(more) "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32" more "}"
#define GPTQ_TENSORS "m.qweight I32 8 16;m.qzeros I32 2 2;m.scales F16 2 16;"
#define AWQ_TENSORS "m.qweight I32 64 2;m.qzeros I32 2 2;m.scales F16 2 16;"

static void test_gptq_that_is_wrong_is_one_sentence(void **state) {
    (void)state;
    static const struct wrong cases[] = {
        {GPTQ(""), GPTQ_TENSORS, NULL},
        {GPTQ(", \"checkpoint_format\": \"gptq_v2\""), GPTQ_TENSORS "m.g_idx I32 64;", NULL},
        {GPTQ(", \"dynamic\": {}"), GPTQ_TENSORS, NULL},
        {"", GPTQ_TENSORS, "tensor m.qweight holds codes of type I32, but config.json has no"},
        {"{\"quant_method\": \"gptq\", \"group_size\": 32}", GPTQ_TENSORS, "bits is missing"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4}", GPTQ_TENSORS, "group_size is missing"},
        {"{\"quant_method\": \"gptq\", \"bits\": 3, \"group_size\": 32}", GPTQ_TENSORS,
         "bits is 3, expected 4 or 8"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 48}", GPTQ_TENSORS,
         "group_size is 48, expected -1 or a multiple of 32"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -7}", GPTQ_TENSORS,
         "group_size is -7"},
        {"{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 32}", GPTQ_TENSORS,
         "tensor m.scales is F16 of shape (2, 16), expected (1, 16) for 32 inputs and 16 outputs "
         "at bits 8 and group_size 32"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 64}", GPTQ_TENSORS,
         "tensor m.scales is F16 of shape (2, 16), expected (1, 16)"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -1}", GPTQ_TENSORS,
         "tensor m.scales is F16 of shape (2, 16), expected (1, 16)"},
        {GPTQ(", \"checkpoint_format\": \"marlin\""), GPTQ_TENSORS,
         "checkpoint_format is \"marlin\", expected gptq or gptq_v2"},
        {GPTQ(", \"dynamic\": {\"+:.*q_proj\": {\"bits\": 8}}"), GPTQ_TENSORS, "dynamic has rules"},
        {GPTQ(", \"desc_act\": true"), GPTQ_TENSORS, "tensor m.g_idx is missing"},
        {GPTQ(""), "m.qweight I32 8 16;m.scales F16 2 16;", "tensor m.qzeros is missing"},
        {GPTQ(""), "m.qweight I32 8 16;m.qzeros I32 2 2;", "tensor m.scales is missing"},
        {GPTQ(""), "m.qweight I32 8 16;m.qzeros I32 2 4;m.scales F16 2 16;",
         "tensor m.qzeros is I32 of shape (2, 4), expected (2, 2)"},
        {GPTQ(""), "m.qweight I32 8 16;m.qzeros U8 2 2;m.scales F16 2 16;",
         "tensor m.qzeros is U8, expected I32"},
        {GPTQ(""), "m.qweight I32 8 16;m.qzeros I32 2 2;m.scales F16 32;",
         "tensor m.scales is F16 of shape (32), expected (2, 16)"},
        {GPTQ(""), "m.qweight I32 8 12;m.qzeros I32 2 2;m.scales F16 2 12;",
         "64 inputs and 12 outputs, expected a multiple of 32 inputs and of 8 outputs"},
        {GPTQ(""), "m.qweight I32 5 16;m.qzeros I32 2 2;m.scales F16 2 16;", "40 inputs"},
        {GPTQ(""), "m.qweight I64 8 16;m.qzeros I32 2 2;m.scales F16 2 16;",
         "tensor m.qweight is I64 in 2 dims, expected I32 in 2"},
        {GPTQ(""), "m.qweight I32 128;m.qzeros I32 2 2;m.scales F16 2 16;", "in 1 dims"},
        {GPTQ(""), GPTQ_TENSORS "m.g_idx I32 32;",
         "tensor m.g_idx is I32 of shape (32), expected (64)"},
        {GPTQ(""), GPTQ_TENSORS "m.g_idx I32 64 =2;",
         "tensor m.g_idx: element 0 is 2, expected a group from 0 to 1"},
        {GPTQ(""), GPTQ_TENSORS "m.g_idx I32 64 =-1;", "element 0 is -1"},
        {GPTQ(""), GPTQ_TENSORS "m.g_idx I32 64 ~31;", "group 0 has 31 inputs"},
        {GPTQ(""), GPTQ_TENSORS "m.weight F16 16 64;", "beside its quantised form"},
        {GPTQ(""), "m.weight F16 16 64;", "no tensor's name ends in .qweight"},
        {GPTQ(""), "m.qweight I32 8 16;m.qzeros I32 2 2;m.scales F32 2 16 =2139095040;",
         "tensor m.weight: scale 0 is inf, expected at most 65504"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) check_wrong(&cases[i]);
}

static void test_awq_that_is_wrong_is_one_sentence(void **state) {
    (void)state;
    static const struct wrong cases[] = {
        {AWQ(""), AWQ_TENSORS, NULL},
        {AWQ(", \"version\": \"gemm\""), AWQ_TENSORS, NULL},
        {AWQ(", \"version\": \"gemv\""), AWQ_TENSORS, "version is \"gemv\", expected gemm"},
        {"{\"quant_method\": \"awq\", \"bits\": 8, \"group_size\": 32}", AWQ_TENSORS,
         "bits is 8, expected 4"},
        {AWQ(""), "m.qweight I32 64 2;m.scales F16 2 16;", "tensor m.qzeros is missing"},
        {AWQ(""), "m.qweight I32 64 2;m.qzeros I32 2 2;m.scales F16 2 8;",
         "tensor m.scales is F16 of shape (2, 8), expected (2, 16)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) check_wrong(&cases[i]);
}

#define CT(weights)                                                                                \
    "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"g\": {\"weights\": "         \
    "{\"type\": \"int\", " weights "}}}}"
#define CT4 "\"num_bits\": 4, \"strategy\": \"group\", \"group_size\": 32"
#define CT8 "\"num_bits\": 8, \"strategy\": \"channel\""
#define CT_PACKED "m.weight_packed I32 12 8;m.weight_shape I64 2 #12,64;"
#define CT_TENSORS CT_PACKED "m.weight_scale BF16 12 2;"

static void test_compressed_tensors_that_are_wrong_are_one_sentence(void **state) {
    (void)state;
    static const struct wrong cases[] = {
        {CT(CT4), CT_TENSORS, NULL},
        {CT(CT4 ", \"symmetric\": false"), CT_TENSORS "m.weight_zero_point I32 2 2;", NULL},
        {CT(CT4), CT_TENSORS "m.weight_g_idx I32 64 ^32;", NULL},
        {CT(CT4), CT_TENSORS "m.weight_g_idx I32 64 =-1;", NULL},
        {CT(CT4), CT_TENSORS "m.weight_g_idx I32 64 =2;", "element 0 is 2, expected a group"},
        {CT(CT4), CT_TENSORS "m.weight_g_idx I32 60;", "(60), expected (64)"},
        {CT(CT4 ", \"symmetric\": false"), CT_TENSORS, "tensor m.weight_zero_point is missing"},
        {CT(CT4 ", \"symmetric\": false"), CT_TENSORS "m.weight_zero_point I32 1 2;",
         "tensor m.weight_zero_point is I32 of shape (1, 2), expected (2, 2)"},
        {CT(CT4), CT_PACKED, "tensor m.weight_scale is missing"},
        {CT(CT4), CT_PACKED "m.weight_scale BF16 12 1;", "(12, 1), expected (12, 2) for 64 inputs"},
        {CT(CT4), "m.weight_packed I32 12 8;m.weight_scale BF16 12 2;",
         "tensor m.weight_shape is missing"},
        {CT(CT4), "m.weight_packed I32 12 8;m.weight_shape I64 2 #12,63;", "holds (12, 63)"},
        {CT(CT4), "m.weight_packed I32 12 8;m.weight_shape I64 2 #12,128;",
         "tensor m.weight_packed is I32 of shape (12, 8), expected (12, 16)"},
        {CT(CT8), CT_TENSORS, "tensor m.weight_packed is I32 of shape (12, 8), expected (12, 16)"},
        {CT("\"num_bits\": 2"), CT_TENSORS,
         "of 2 bits, expected \"int\" of 4 or 8, or \"float\" of 8"},
        {CT("\"num_bits\": 4, \"strategy\": \"group\", \"group_size\": 16"), CT_TENSORS,
         "group_size 16, expected channel, tensor, or groups of a multiple of 32"},
        {"{\"quant_method\": \"compressed-tensors\"}", CT_TENSORS, "config_groups is missing"},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"a\": {\"weights\": {" CT4
         "}}, \"b\": {\"weights\": {" CT8 "}}}}",
         CT_TENSORS, "the weights of b differ"},
        {CT(CT8), "m.weight I8 4 32;m.weight_scale F32 4 1;", NULL},
        {CT(CT8), "m.weight I8 4 32;m.weight_scale F32 1;", NULL},
        {CT(CT8), "m.weight I8 4 32;", "tensor m.weight_scale is missing"},
        {CT(CT8), "m.weight I8 4 32;m.weight_scale F32 3 1;",
         "tensor m.weight_scale has 3 numbers, expected 4 for 4 outputs"},
        {CT(CT8), "m.weight I8 4 40;m.weight_scale F32 4 1;", "shape (4, 40) in 2 dims"},
        {CT(CT8 ", \"symmetric\": false"), "m.weight I8 4 32;m.weight_scale F32 4 1;",
         "symmetric is false, expected true"},
        {CT(CT8), "m.weight F16 4 32;", "no tensor is NAME.weight_packed or NAME.weight of I8"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) check_wrong(&cases[i]);
}

#define BNB "{\"quant_method\": \"bitsandbytes\"}"
#define STATE(more)                                                                                \
    "m.weight.quant_state.bitsandbytes__nf4 U8 "                                                   \
    "'{\"blocksize\":64,\"shape\":[4,32]" more "};"
#define NESTED STATE(",\"nested_blocksize\":256,\"nested_offset\":0.5")
#define NF4_MAP                                                                                    \
    "m.weight.quant_map F32 16 #"                                                                  \
    "3212836864,3207739825,3204868912,3200922272,3197215309,"                                      \
    "3191682367,3183114353,0,1034091263,1042598627,"                                               \
    "1048315101,1051525946,1054975160,1058015147,1060705203,"                                      \
    "1065353216;"

static void test_bitsandbytes_that_is_wrong_is_one_sentence(void **state) {
    (void)state;
    static const struct wrong cases[] = {
        {BNB, "m.weight U8 64 1;" STATE(""), "tensor m.weight.quant_map is missing"},
        {BNB, "m.weight U8 64 1;m.weight.quant_map F32 16;" STATE(""),
         "tensor m.weight.quant_map: element 0 is 0, expected -1 as published"},
        {BNB, "m.weight U8 64 1;m.weight.quant_map F32 8;" STATE(""), "(8), expected (16)"},
        {BNB, "m.weight U8 64 1;", "quant_state.bitsandbytes__nf4 is missing"},
        {BNB, "m.weight U8 32 1;" STATE(""),
         "tensor m.weight is U8 of shape (32, 1), expected (64, 1) as its quant_state says"},
        {BNB, "m.weight U8 64 1;m.weight.quant_state.bitsandbytes__fp4 U8 '{;", "expected JSON"},
        {BNB, "m.weight U8 64 1;m.weight.quant_state.bitsandbytes__nf4 U8 '{\"shape\":[4]};",
         "expected 2 dims"},
        {BNB,
         "m.weight U8 64 1;m.weight.quant_state.bitsandbytes__nf4 U8 "
         "'{\"shape\":[4,32],\"blocksize\":48};",
         "blocksize is 48, expected a multiple of 32"},
        {"{\"quant_method\": \"bitsandbytes\", \"bnb_4bit_quant_storage\": \"bfloat16\"}",
         "m.weight U8 64 1;", "bnb_4bit_quant_storage is \"bfloat16\", expected uint8"},
        {BNB, "m.weight I8 4 32;m.SCB F32 4;m.weight_format U8;", NULL},
        {BNB, "m.weight I8 4 32;m.SCB F32 4;", NULL},
        {BNB, "m.weight I8 4 32;", "tensor m.SCB is missing"},
        {BNB, "m.weight I8 4 32;m.SCB F16 4;", "tensor m.SCB is F16, expected F32"},
        {BNB, "m.weight I8 4 32;m.SCB F32 5;", "tensor m.SCB has 5 numbers, expected 4"},
        {BNB, "m.weight I8 4 32;m.SCB F32 4;m.weight_format U8 #2;", "m.weight_format is not 0"},
        {BNB, "m.weight F16 4 32;", "no tensor NAME.weight is of U8 or I8"},
        {BNB, "m.weight U8 64 1;" NF4_MAP STATE("") "m.weight.absmax F32 2;", NULL},
        {BNB, "m.weight U8 64 1;" NF4_MAP STATE(""), "tensor m.weight.absmax is missing"},
        {BNB, "m.weight U8 64 1;" NF4_MAP STATE("") "m.weight.absmax F32 3;", "(3), expected (2)"},
        {BNB, "m.weight U8 64 1;" NF4_MAP STATE("") "m.weight.absmax F16 2;", "F16, expected F32"},
        {BNB, "m.weight U8 64 1;" NF4_MAP NESTED "m.weight.absmax U8 2;",
         "tensor m.weight.nested_absmax is missing"},
        {BNB,
         "m.weight U8 64 1;" NF4_MAP NESTED "m.weight.absmax U8 2;m.weight.nested_absmax F32 1;",
         "tensor m.weight.nested_quant_map is missing"},
        {BNB,
         "m.weight U8 64 1;" NF4_MAP NESTED
         "m.weight.absmax U8 2;m.weight.nested_absmax F32 1;m.weight.nested_quant_map F32 255;",
         "(255), expected (256)"},
        {BNB,
         "m.weight U8 64 1;" NF4_MAP NESTED
         "m.weight.absmax U8 2;m.weight.nested_absmax F32 1;m.weight.nested_quant_map F32 256;",
         NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) check_wrong(&cases[i]);
}

#define FP8(more) "{\"quant_method\": \"fp8\"" more "}"
#define FP8_BLOCK FP8(", \"fmt\": \"e4m3\", \"weight_block_size\": [2, 128]")
#define CT_F8(weights)                                                                             \
    "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"g\": {\"weights\": "         \
    "{\"type\": \"float\", \"num_bits\": 8, " weights "}}}}"
#define CODES "m.weight F8_E4M3 3 160;"

static void test_fp8_that_is_wrong_is_one_sentence(void **state) {
    (void)state;
    static const struct wrong cases[] = {
        {FP8_BLOCK, CODES "m.weight_scale_inv F32 2 2;n.weight BF16 2 2;", NULL},
        {FP8_BLOCK, CODES "m.weight_scale_inv BF16 2 2;", NULL},
        {FP8_BLOCK, CODES, "tensor m.weight_scale_inv is missing"},
        {FP8_BLOCK, CODES "m.weight_scale F32 2 2;", "tensor m.weight_scale_inv is missing"},
        {FP8_BLOCK, CODES "m.weight_scale_inv F32 3 2;",
         "tensor m.weight_scale_inv is F32 of shape (3, 2), expected (2, 2) for 3 outputs and 160 "
         "inputs with a scale for each block"},
        {FP8_BLOCK, CODES "m.weight_scale_inv F32 2 1;", "(2, 1), expected (2, 2)"},
        {FP8_BLOCK, CODES "m.weight_scale_inv F8_E8M0 2 2;",
         "tensor m.weight_scale_inv is F8_E8M0, expected F32, F16 or BF16"},
        {FP8_BLOCK, CODES "m.weight_scale_inv F32 2 2 =2139095040;",
         "tensor m.weight_scale_inv: element 0 is inf, expected 0 to 2^60"},
        {FP8_BLOCK, CODES "m.weight_scale_inv F32 2 2 =-1082130432;", "element 0 is -1, expected"},
        {FP8_BLOCK, CODES "m.weight_scale_inv F32 2 2 #0,1,2143289344,0;", "element 2 is nan"},
        {FP8_BLOCK, "m.weight F8_E4M3 3 40;m.weight_scale_inv F32 2 1;",
         "tensor m.weight has shape (3, 40) in 2 dims, expected 2 and a multiple of 32 columns"},
        {FP8_BLOCK, "m.weight F8_E4M3 96;m.weight_scale_inv F32 1;", "(96, 1) in 1 dims"},
        {FP8_BLOCK, "m.weight F8_E5M2 3 160;m.weight_scale_inv F32 2 2;",
         "no tensor is NAME.weight of F8_E4M3"},
        {FP8_BLOCK, "m.weight F16 2 2;", "says fp8, but no tensor is NAME.weight of F8_E4M3"},
        {FP8(", \"weight_block_size\": [128]"), CODES, "weight_block_size is [128, 0], expected"},
        {FP8(", \"weight_block_size\": [128, 64]"), CODES,
         "weight_block_size is [128, 64], expected rows and a multiple of 128 columns"},
        {FP8(", \"fmt\": \"e5m2\""), CODES, "fmt is \"e5m2\", expected e4m3"},
        {FP8(", \"weight_block_size\": null"), CODES "m.weight_scale F32;", NULL},
        {FP8(""), CODES "m.weight_scale F32 1;m.input_scale F32 1;", NULL},
        {FP8(""), CODES "m.weight_scale_inv BF16;m.activation_scale BF16;", NULL},
        {FP8(""), CODES, "tensor m.weight_scale is missing; m.weight cannot be read without it"},
        {FP8(""), CODES "m.weight_scale F32 3;",
         "tensor m.weight_scale is F32 of shape (3), expected (1) for 3 outputs and 160 inputs "
         "with a scale for the matrix"},
        {"", CODES "m.weight_scale F32;", "tensor m.weight holds codes of type F8_E4M3, but"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) check_wrong(&cases[i]);
}

static void test_other_fp8_folders_that_are_wrong_are_one_sentence(void **state) {
    (void)state;
    static const struct wrong cases[] = {
        {CT_F8("\"strategy\": \"channel\""), CODES "m.weight_scale BF16 3 1;", NULL},
        {CT_F8("\"strategy\": \"channel\""), CODES "m.weight_scale BF16 3;", NULL},
        {CT_F8("\"strategy\": \"tensor\""), CODES "m.weight_scale BF16 1;", NULL},
        {CT_F8("\"strategy\": \"block\", \"block_structure\": [2, 128]"),
         CODES "m.weight_scale BF16 2 2;", NULL},
        {CT_F8("\"strategy\": \"channel\""), CODES "m.weight_scale BF16 1;",
         "tensor m.weight_scale is BF16 of shape (1), expected (3)"},
        {CT_F8("\"strategy\": \"tensor\""), CODES "m.weight_scale BF16 3 1;",
         "(3, 1), expected (1, 1)"},
        {CT_F8("\"strategy\": \"block\""), CODES "m.weight_scale BF16 2 2;",
         "block_structure is [0, 0], expected rows and a multiple of 128 columns"},
        {CT_F8("\"strategy\": \"group\", \"group_size\": 32"), CODES "m.weight_scale BF16 3 5;",
         "weights of g are \"float\" with strategy \"group\", expected tensor, channel or block"},
        {CT_F8("\"symmetric\": false"), CODES, "symmetric is false, expected true for weights of"},
        {CT_F8("\"strategy\": \"channel\""), "m.weight I8 3 160;m.weight_scale BF16 3 1;",
         "with weights of type float, but no tensor is NAME.weight of F8_E4M3"},
        {CT(CT8), CODES "m.weight_scale BF16 3 1;", "no tensor is NAME.weight_packed"},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"g\": {\"weights\": "
         "{\"type\": \"float\", \"num_bits\": 4}}}}",
         CODES, "weights of g are \"float\" of 4 bits, expected 8"},
        {"{\"quant_method\": \"fbgemm_fp8\"}", CODES "m.weight_scale F32 3 1;", NULL},
        {"{\"quant_method\": \"fbgemm_fp8\"}", CODES "m.weight_scale F32 3;", NULL},
        {"{\"quant_method\": \"fbgemm_fp8\"}", CODES "m.weight_scale F32 1 3;",
         "(1, 3), expected (3, 1) for 3 outputs and 160 inputs with a scale for each output"},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"}", CODES "m.weight_scale F32;",
         NULL},
        {"{\"quant_method\": \"modelopt\", \"quantization\": {\"quant_algo\": \"FP8\"}}",
         CODES "m.weight_scale F32;", NULL},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8_PER_CHANNEL_PER_TOKEN\"}",
         CODES "m.weight_scale F32 3;", NULL},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}", CODES,
         "quant_algo is \"NVFP4\", expected FP8 or FP8_PER_CHANNEL_PER_TOKEN"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) check_wrong(&cases[i]);
}

static void test_other_methods_are_named(void **state) {
    (void)state;
    static const struct wrong cases[] = {
        {"{\"quant_method\": \"mxfp4\"}", "m.weight F16 2 2;",
         "quant_method \"mxfp4\" is not read; these are: gptq, awq, compressed-tensors, "
         "bitsandbytes, fp8, fbgemm_fp8, modelopt"},
        {"{\"bits\": 4}", "m.weight F16 2 2;", "quant_method \"\" is not read"},
        {"null", "m.weight F16 2 2;", NULL},
        {"", "m.position_ids I64 1 2;", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) check_wrong(&cases[i]);
}

/* Configs of older tools lie beside config.json. */
static void test_older_configs_are_found(void **state) {
    (void)state;
    static const struct {
        const char *file, *config, *tensors;
    } cases[] = {
        {"quantize_config.json", "{\"bits\": 4, \"group_size\": 32}", GPTQ_TENSORS},
        {"quant_config.json", "{\"w_bit\": 4, \"q_group_size\": 32, \"version\": \"GEMM\"}",
         AWQ_TENSORS},
        {"hf_quant_config.json", "{\"quantization\": {\"quant_algo\": \"FP8\"}}",
         "m.weight F8_E4M3 16 64;m.weight_scale F32;"},
    };
    for (int i = 0; i < 3; i++) {
        char folder[256];
        struct err err = {0};
        struct model_file *f;
        make_folder(folder, sizeof(folder));
        write_text(folder, "config.json", "{}");
        write_text(folder, cases[i].file, cases[i].config);
        write_quantised(folder, cases[i].tensors);
        assert_int_equal(model_file_open(folder, &f, &err), ST_OK);
        if (model_file_problem(f)) fail_msg("%s", model_file_problem(f));
        const struct tensor_info *t = tensor_find(f, "m.weight");
        assert_non_null(t);
        assert_int_equal(t->dims[0], 16);
        assert_int_equal(t->dims[1], 64);
        assert_int_equal(tensor_count(f), 1); /* the parts are no tensors of the model */
        model_file_close(f);
        remove_folder(folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gptq_that_is_wrong_is_one_sentence),
        cmocka_unit_test(test_awq_that_is_wrong_is_one_sentence),
        cmocka_unit_test(test_compressed_tensors_that_are_wrong_are_one_sentence),
        cmocka_unit_test(test_bitsandbytes_that_is_wrong_is_one_sentence),
        cmocka_unit_test(test_fp8_that_is_wrong_is_one_sentence),
        cmocka_unit_test(test_other_fp8_folders_that_are_wrong_are_one_sentence),
        cmocka_unit_test(test_other_methods_are_named),
        cmocka_unit_test(test_older_configs_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
