/* Goal:   every command survives the failure of any one allocation: it ends with "unavailable"
 *         or does without, and nothing is lost.
 * Method: the whole program in this process, on tiny models of the tree, the first time with
 *         the first allocation failing, then the second, until a run needs no more. For `chat` one
 *         of them gets a template with thoughts and tools. Leaks show in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "fault/fail_alloc.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"
#define TOOLS TEST_SOURCE_DIR "/../examples/tools.json"

/* Made by the test in a folder of its own, which is the current one: relative names. */
#define TALKING "talking"
#define SAVED "saved.json"

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
    {"/load " SAVED "\nagain\n",
     {"jitney", "chat", TALKING, "--tools", TOOLS, "-n", "3", "--threads", "1", "--ctx", "200"}},
    {"", {"jitney", "knobs", "--json"}},
    {"", {"jitney", "generate", "--help"}},
    {"", {"jitney", "serve", "--print-config", "-m", "a", "b", "--set", "c=d"}},
    {"", {"jitney", "serve", "--check", MODELS "llama"}},
    {"", {"jitney", "completion", "zsh"}},
};

/* A short template, because a prompt is a token a byte. It ends inside a thought. */
static const char SETTINGS[] =
    "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"bos_token\": \"<s>\", "
    "\"eos_token\": \"</s>\", \"unk_token\": \"<unk>\", \"add_bos_token\": false, "
    "\"chat_template\": \"{# <tool_call> #}{% if tools %}{{ tools[0].function.name }}{% endif %}"
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.arguments.city }}{% endfor %}{% endfor %}<think>\"}";
static const char CONVERSATION[] =
    "[{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", \"content\": \"\", "
    "\"tool_calls\": [{\"id\": \"a\", \"type\": \"function\", \"function\": {\"name\": \"now\", "
    "\"arguments\": \"{\\\"city\\\": \\\"Rome\\\"}\"}}]}, {\"role\": \"tool\", \"content\": "
    "\"two\", \"tool_call_id\": \"a\"}, {\"role\": \"assistant\", \"content\": \"three\"}]";
static const char *const shared_files[] = {"config.json", "model.safetensors", "tokenizer.json"};
enum { SHARED_FILES = sizeof(shared_files) / sizeof(shared_files[0]), PATH_BYTES = 4096 };

static char folder[] = "/tmp/test_fault_commands_XXXXXX";

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int make_folder(void **state) {
    (void)state;
    char from[PATH_BYTES], to[PATH_BYTES];
    if (!mkdtemp(folder) || chdir(folder) != 0 || mkdir(TALKING, 0700) != 0) return -1;
    for (size_t i = 0; i < SHARED_FILES; i++) {
        snprintf(from, sizeof(from), MODELS "llama/%s", shared_files[i]);
        snprintf(to, sizeof(to), TALKING "/%s", shared_files[i]);
        if (symlink(from, to) != 0) return -1;
    }
    write_file(TALKING "/tokenizer_config.json", SETTINGS);
    write_file(SAVED, CONVERSATION);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char path[PATH_BYTES];
    for (size_t i = 0; i < SHARED_FILES; i++) {
        snprintf(path, sizeof(path), TALKING "/%s", shared_files[i]);
        unlink(path);
    }
    unlink(TALKING "/tokenizer_config.json");
    unlink(SAVED);
    rmdir(TALKING);
    return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

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
        /* After the first five hundred, each failure stands for a run of similar ones. */
        for (;; n += n < 500 ? 1 : 1 + n / 50) {
            fail_alloc_at(n);
            int code = run_once(&runs[i]);
            if (!fail_alloc_stop()) break;
            if (code != EXIT_UNAVAILABLE && code != EXIT_FINE)
                fail_msg("%s: code %d when allocation %ld fails", runs[i].words[1], code, n);
            assert_true(n < RUNS_MAX);
        }
        assert_int_equal(run_once(&runs[i]), EXIT_FINE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_of_every_command_may_fail)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
