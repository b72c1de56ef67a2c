/* cli/command_list.c - every command, in the order in which --help lists them. */
#include "cli/cli.h"

extern const struct command cmd_serve;
extern const struct command cmd_chat;
extern const struct command cmd_generate;
extern const struct command cmd_batch;
extern const struct command cmd_embed;
extern const struct command cmd_perplexity;
extern const struct command cmd_compare;
extern const struct command cmd_quantize;
extern const struct command cmd_profile;
extern const struct command cmd_replay;
extern const struct command cmd_bench;
extern const struct command cmd_knobs;
extern const struct command cmd_inspect;
extern const struct command cmd_tokenize;
extern const struct command cmd_detokenize;
extern const struct command cmd_template;
extern const struct command cmd_grammar;
extern const struct command cmd_pull;
extern const struct command cmd_list;
extern const struct command cmd_rm;
extern const struct command cmd_health;
extern const struct command cmd_completion;

const struct command *const commands[] = {
    &cmd_serve,   &cmd_chat,     &cmd_generate,   &cmd_batch,      &cmd_embed,   &cmd_perplexity,
    &cmd_compare, &cmd_quantize, &cmd_profile,    &cmd_replay,     &cmd_bench,   &cmd_knobs,
    &cmd_inspect, &cmd_tokenize, &cmd_detokenize, &cmd_template,   &cmd_grammar, &cmd_pull,
    &cmd_list,    &cmd_rm,       &cmd_health,     &cmd_completion, NULL,
};
