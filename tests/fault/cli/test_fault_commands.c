/* Goal:   every command survives the failure of any one allocation: it ends with "unavailable"
 *         or does without, and nothing is lost.
 * Method: the whole program in this process, on tiny models of the tree, the first time with
 *         the first allocation failing, then the second, until a run needs no more. Leaks show
 *         in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "fault/fail_alloc.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { RUNS_MAX = 100000, WORDS_MAX = 16 };

struct run {
    const char *input; /* what standard input holds */
    const char *words[WORDS_MAX];
};

static const struct run runs[] = {
    {"Hello, world", {"jitney", "tokenize", MODELS "llama"}},
    {"5 6 7", {"jitney", "detokenize", MODELS "llama"}},
    {"", {"jitney", "inspect", MODELS "llama", "--json", "--tensors", "--meta"}},
    {"", {"jitney", "inspect", MODELS "llama", "--graph"}},
    {"",
     {"jitney", "generate", MODELS "llama", "-p", "ab", "-n", "3", "--threads", "1", "--json",
      "--repeat-penalty", "1.1", "--logit-bias", "5=1", "--hash-logits"}},
    {"abcdefghijklmnopqrstuvwxyz",
     {"jitney", "perplexity", MODELS "llama", "-f", "-", "-c", "8", "--threads", "1"}},
    {"text", {"jitney", "embed", MODELS "bert", "--threads", "1"}},
    {"{\"prompt\":\"ab\",\"max_tokens\":2,\"n\":2,\"tenant\":\"t\"}\n",
     {"jitney", "replay", MODELS "llama", "--requests", "-", "--set", "threads=1", "--set",
      "max_seqs=2", "--set", "queue_max=2"}},
    {"{\"prompt_len\":9,\"max_tokens\":2}\n",
     {"jitney", "replay", "--sim", "this-cpu", "--requests", "-", "--set", "kv_blocks=9",
      "--json"}},
    {"", {"jitney", "knobs", "--json"}},
    {"", {"jitney", "generate", "--help"}},
    {"", {"jitney", "serve", "--print-config", "-m", "a", "b", "--set", "c=d"}},
    {"", {"jitney", "serve", "--check", MODELS "llama"}},
    {"", {"jitney", "completion", "zsh"}},
};

/* Put `text` where the program reads standard input. */
static void set_input(const char *text) {
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    rewind(f);
    assert_true(dup2(fileno(f), STDIN_FILENO) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* What the program prints is of no interest here. */
static int run_silently(int count, char **argv) {
    int nowhere = open("/dev/null", O_WRONLY), out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    assert_true(nowhere >= 0 && out >= 0 && err >= 0);
    fflush(stdout);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    int code = cli_main(count, argv);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(nowhere);
    close(out);
    close(err);
    return code;
}

static int run_once(const struct run *r) {
    int count = 0;
    char *argv[WORDS_MAX + 1] = {0};
    for (; count < WORDS_MAX && r->words[count]; count++) argv[count] = (char *)r->words[count];
    set_input(r->input);
    clearerr(stdin);
    return run_silently(count, argv);
}

static void test_every_allocation_of_every_command_may_fail(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        long n = 0;
        /* After the first hundred, each failure stands for a run of similar ones. */
        for (;; n += n < 100 ? 1 : 1 + n / 50) {
            fail_alloc_at(n);
            int code = run_once(&runs[i]);
            if (!fail_alloc_stop()) break;
            if (code != EXIT_UNAVAILABLE && code != EXIT_FINE)
                fail_msg("%s: code %d when allocation %ld fails", runs[i].words[1], code, n);
            assert_true(n < RUNS_MAX);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_of_every_command_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
