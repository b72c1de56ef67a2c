"""Goal:   the gates refuse what they say they refuse, and let good code pass.

Method: a small tree that passes every gate; each case plants one fault in a copy of it and
        expects the tool to fail and to name the fault.
"""
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"

LAYERS = """\
| rank | folder | what it holds |
|---|---|---|
| 0 | `base` | ground |
| 1 | `config` | settings |
| 3 | `kernels/cpu` | kernels |
| 3 | `text` | words |
"""

HEADER = """\
/* text/word.h - words. */
#ifndef TEXT_WORD_H
#define TEXT_WORD_H

#include <stdint.h>

#include "base/str.h"

int word_count(struct str text);

#endif
"""

SOURCE = """\
/* text/word.c - see text/word.h for the contract. */
#include "text/word.h"

#include <stdio.h>

static const char *const names[] = {"free(", "a"};

int word_count(struct str text) {
    /* The caller may free() it. */
    return names[0] && text.len ? 1 : 0;
}
"""


@pytest.fixture
def tree(tmp_path):
    files = {
        "docs/layers.md": LAYERS,
        "docs/decisions/README.md": "| [0001](0001-why.md) |\n",
        "docs/decisions/0001-why.md": "See `src/text/word.c` and word.c:word_count.\n",
        "CMakeLists.txt": "set(FOLDERS base config kernels/cpu text)\n",
        "tools/long_functions": "# none\n",
        "src/base/README.md": "# base\n",
        "src/text/README.md": "# text\n",
        "src/base/str.h": "/* base/str.h - text. */\n#ifndef BASE_STR_H\n#define BASE_STR_H\n"
                          "#include <stddef.h>\nstruct str {\n    size_t len;\n};\n#endif\n",
        "src/text/word.h": HEADER,
        "src/text/word.c": SOURCE,
        "tests/unit/text/test_word.c": "/* Goal:   words.\n * Method: count. */\n",
    }
    for name, text in files.items():
        write(tmp_path, name, text)
    return tmp_path


def write(tree, name, text):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add(tree, text, name="src/text/word.c"):
    """Append to a file of the tree, which is made with a proper opening if it is new."""
    path = tree / name
    opening = f"/* {name.removeprefix('src/')} - a file. */\n"
    write(tree, name, (path.read_text() if path.exists() else opening) + text)


def check(tool, tree):
    done = subprocess.run([TOOLS / tool, tree], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


def refuses(tool, tree, *words):
    status, output = check(tool, tree)
    assert status == 1, output
    for word in words:
        assert word in output, output


@pytest.mark.parametrize("tool", ["check_layers", "check_style", "check_docs"])
def test_a_good_tree_passes(tool, tree):
    status, output = check(tool, tree)
    assert status == 0, output


def include(target):
    return f'#include "{target}"\n'


@pytest.mark.parametrize("name, target, words", [
    ("src/base/up.c", "text/word.h", "base (rank 0) may not include text (rank 3)"),
    ("src/kernels/cpu/side.c", "text/word.h", "may not include text (rank 3)"),
    ("src/text/near.c", "word.h", "by its path from src/"),
    ("src/text/dots.c", "../base/str.h", "by its path from src/"),
    ("src/text/gone.c", "base/gone.h", "does not exist"),
    ("src/lost/new.c", "base/str.h", "lost has no row"),
])
def test_layers_refuse_an_include(tree, name, target, words):
    add(tree, include(target), name)
    refuses("check_layers", tree, name, words)


def test_layers_refuse_the_private_header_of_a_lower_folder(tree):
    add(tree, "", "src/base/base_int.h")
    add(tree, include("base/base_int.h"), "src/base/own.c")
    assert check("check_layers", tree)[0] == 0
    add(tree, include("base/base_int.h"))
    refuses("check_layers", tree, "belongs to base alone")


def test_layers_refuse_a_build_order_against_the_ranks(tree):
    write(tree, "CMakeLists.txt", "set(FOLDERS text base)\n")
    refuses("check_layers", tree, "text before base")


def test_layers_refuse_a_lost_table(tree):
    write(tree, "docs/layers.md", "# Layers\n")
    refuses("check_layers", tree)


def function(lines, name="long_one"):
    body = "".join(f"    x += {i};\n" for i in range(lines - 4))
    return f"int {name}(void) {{\n    int x = 0;\n{body}    return x;\n}}\n"


def test_style_walls_off_long_functions(tree):
    add(tree, function(70))
    add(tree, function(150), "src/kernels/cpu/dot.c")
    assert check("check_style", tree)[0] == 0
    add(tree, function(71, "too_long"))
    refuses("check_style", tree, "too_long has 71 lines, the wall is 70")


def test_style_walls_off_long_kernels(tree):
    add(tree, function(151), "src/kernels/cpu/dot.c")
    refuses("check_style", tree, "has 151 lines, the wall is 150")


def test_style_sees_a_function_whose_signature_takes_two_lines(tree):
    add(tree, function(71).replace("(void)", "(int a,\n             int b)"))
    refuses("check_style", tree, "long_one has 72 lines")


def test_style_takes_an_exception_with_a_reason_while_it_is_needed(tree):
    add(tree, function(71))
    write(tree, "tools/long_functions", "src/text/word.c:long_one a switch over every token\n")
    assert check("check_style", tree)[0] == 0
    write(tree, "tools/long_functions", "src/text/word.c:long_one\n")
    refuses("check_style", tree, "gives no reason")
    write(tree, "tools/long_functions", "src/text/word.c:long_one x\nsrc/text/word.c:gone x\n")
    refuses("check_style", tree, "src/text/word.c:gone needs no exception")


def test_style_walls_off_long_files_and_headers(tree):
    add(tree, "/* */\n" * 1000)
    refuses("check_style", tree, "at most 1000")
    add(tree, "/* */\n" * 200, "src/text/word.h")
    refuses("check_style", tree, "word.h:201: 211 lines, at most 200")


NEST = """\
int deep(int a) {
    if (a) {
        for (int i = 0; i < a; i++) {
            while (a--)
                %s
        }
    } else if (a > 1) {
        return 2;
    }
    switch (a) {
    case 1:
    case 2: return 1;
    default: break;
    }
    int list[] = {1, 2, 3};
    do a += list[0];
    while (a < 3);
    return a ? 1 : 2;
}
"""


def test_style_walls_off_deep_nesting(tree):
    add(tree, NEST % "a--;")
    assert check("check_style", tree)[0] == 0
    add(tree, (NEST % "if (a == 3) return 1;").replace("deep", "deeper"))
    refuses("check_style", tree, "deeper nests 4 deep, at most 3")


def test_style_walls_off_many_parameters(tree):
    add(tree, "int f(int a, int b, int c, int d, int e, int (*g)(int, int)) {\n    return a;\n}\n")
    add(tree, "int k(int a, int b, int c, int d, int e, int f, int g, int h) {\n    return a;\n}\n",
        "src/kernels/cpu/kernel.c")
    write(tree, "src/kernels/cpu/README.md", "# kernels\n")
    assert check("check_style", tree)[0] == 0
    add(tree, "int g(int a, int b, int c, int d, int e, int f,\n      int g) {\n    return a;\n}\n")
    refuses("check_style", tree, "g takes 7 parameters, at most 6")


@pytest.mark.parametrize("call", [
    "strcpy(a, b)", "strcat(a, b)", "sprintf(a, b)", "strtok(a, b)", "atoi(a)", "atof(a)",
    "gets(a)", "rand()", "time(a)", "alloca(a)", "malloc(a)", "calloc(a, b)", "realloc(a, b)",
    "free(a)", "exit(1)", "assert(a)", "getenv(a)",
])
def test_style_refuses_a_banned_function(tree, call):
    add(tree, f"int f(char *a, char *b) {{\n    {call};\n}}\n")
    refuses("check_style", tree, f"{call.split('(')[0]}() is banned here")


def test_style_knows_calls_that_only_look_banned(tree):
    add(tree, "void f(struct op *a) {\n    a->free(a);\n    op.time(1);\n    my_free(a);\n"
              "    puts(\"malloc(1)\"); /* free(a) */\n}\n")
    assert check("check_style", tree)[0] == 0


def test_style_lets_base_have_the_heap_and_config_the_environment(tree):
    add(tree, "void f(char *a) {\n    free(a);\n}\n", "src/base/mem.c")
    add(tree, "char *f(char *a) {\n    return getenv(a);\n}\n", "src/config/env.c")
    assert check("check_style", tree)[0] == 0
    add(tree, "char *g(char *a) {\n    return getenv(a);\n}\n", "src/base/mem.c")
    refuses("check_style", tree, "getenv() is banned here")


@pytest.mark.parametrize("text, words", [
    ("/* TO" "DO: later. */\n", "debt"),
    ("/* FIX" "ME */\n", "debt"),
    ("/* Not imple" "mented. */\n", "unfinished"),
    ("/* Good enough for n" "ow. */\n", "unfinished"),
    ("int a;\t/* b */\n", "a tab"),
    ("int a; \n", "trailing space"),
    ("int a;", "no newline at the end"),
    ("/* " + "x" * 95 + " */\n", "101 columns"),
    ("static int calls;\n", "global state"),
    ("static int calls = 3;\n", "global state"),
    ("/* as /wor" "k/main has it */\n", "workshop"),
    ("/* a sub" "agent wrote it */\n", "workshop"),
])
def test_style_refuses_a_line(tree, text, words):
    add(tree, text)
    refuses("check_style", tree, words)


@pytest.mark.parametrize("text", [
    "/* TO" "DO(#12): a sentence. */\n",
    "static const int calls = 3;\n",
    "static int helper(int a);\n",
    "static volatile sig_atomic_t stop;\n",
    "/* " + "x" * 94 + " */\n",
])
def test_style_lets_a_line_pass(tree, text):
    add(tree, text)
    status, output = check("check_style", tree)
    assert status == 0, output


def test_style_refuses_headers_that_pull_in_the_system(tree):
    write(tree, "src/text/word.h", HEADER.replace("<stdint.h>", "<pthread.h>"))
    refuses("check_style", tree, "may not include <pthread.h>")


def test_style_refuses_a_wrong_guard_and_a_wrong_opening(tree):
    write(tree, "src/text/word.h", HEADER.replace("TEXT_WORD_H", "WORD_H"))
    refuses("check_style", tree, "guard is not TEXT_WORD_H")
    write(tree, "src/text/word.h", HEADER.replace("text/word.h - ", "word.h - "))
    refuses("check_style", tree, "does not open with")


def test_style_refuses_a_test_without_goal_and_method(tree):
    write(tree, "tests/unit/text/test_word.c", "/* Tests. */\n")
    refuses("check_style", tree, "Goal and Method")


@pytest.fixture
def banning(tree):
    write(tree, "tools/banned_words", "# a comment\nsled sleds | \"request\" |\n"
          "hill | \"layer\" | src/text/\nexcept SLED_HOME tests/unit/text/test_word.c\n")
    return tree


@pytest.mark.parametrize("text", [
    "/* Every sled has one. */", "int sled_push(void);", "int push_sleds;", "enum { SLED = 1 };",
    "static const char *const hill_name;",
])
def test_style_refuses_a_banned_word_alone_and_in_a_name(banning, text):
    add(banning, text + "\n")
    refuses("check_style", banning, "src/text/word.c", ": write \"")


def test_style_lets_banned_words_pass_where_they_are_allowed(banning):
    add(banning, "/* sledge, uphill; SLED_HOME is read by others. */\n")
    add(banning, "/* A sled. */\n", "tests/unit/text/test_word.c")
    add(banning, "/* A hill. */\n", "src/base/str.c")
    add(banning, "A sled.\n", "docs/page.md")
    status, output = check("check_style", banning)
    assert status == 0, output


def test_style_refuses_a_long_subject_of_a_commit(tree):
    def commit(subject):
        subprocess.run(["git", "-C", tree, "-c", "user.name=a", "-c", "user.email=a@example.org",
                        "commit", "-q", "--allow-empty", "-m", subject], check=True)
    subprocess.run(["git", "init", "-q", tree], check=True)
    commit("s" * 72)
    assert check("check_style", tree)[0] == 0
    commit("s" * 73)
    refuses("check_style", tree, "its subject has 73 columns, at most 72")


def test_style_refuses_big_files(tree):
    (tree / "weights.bin").write_bytes(b"\0" * ((2 << 20) + 1))
    refuses("check_style", tree, "weights.bin")


@pytest.mark.parametrize("text, words", [
    ("word.c:word_lost does it.\n", "word.c has no word_lost"),
    ("lost.c:word_count does it.\n", "lost.c does not exist"),
    ("See `src/text/lost.c`.\n", "src/text/lost.c does not exist"),
    ("See [this](lost.md).\n", "link to lost.md"),
])
def test_docs_refuse_what_does_not_exist(tree, text, words):
    write(tree, "docs/page.md", text)
    refuses("check_docs", tree, "docs/page.md:1", words)


def test_docs_let_patterns_and_the_world_pass(tree):
    write(tree, "docs/page.md", "`tests/unit/X.c`, [site](https://example.org/lost.md)\n")
    assert check("check_docs", tree)[0] == 0


@pytest.mark.parametrize("name, text", [
    ("README.md", "word " * 900), ("docs/glossary.md", "line\n" * 31),
])
def test_docs_refuse_a_long_readme_and_a_long_glossary(tree, name, text):
    write(tree, name, text)
    refuses("check_docs", tree, f"{name}:1")


def test_docs_refuse_a_folder_without_readme_and_an_unlisted_decision(tree):
    (tree / "src/text/README.md").unlink()
    write(tree, "docs/decisions/0002-new.md", "New.\n")
    refuses("check_docs", tree, "src/text: has no README.md", "0002-new.md: not listed")


def compile_program(tmp_path, *flags):
    source = tmp_path / "a.c"
    source.write_text("#include <stdio.h>\n#include <string.h>\n"
                      "int main(int n, char **v) {\n    char b[64];\n"
                      "    memcpy(b, v[0], (size_t)n);\n    return printf(\"%s\", b) < 0;\n}\n")
    program = tmp_path / "a"
    subprocess.run(["cc", "-O2", *flags, source, "-o", program], check=True, capture_output=True)
    return program


HARD = ["-fPIE", "-pie", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2",
        "-Wl,-z,relro,-z,now"]


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf")
@pytest.mark.parametrize("flags, words", [
    (HARD, None),
    ([*HARD, "-no-pie"], "no position-independent code"),
    ([*HARD, "-Wl,-z,lazy"], "no immediate binding"),
    ([*HARD, "-Wl,-z,norelro"], "no read-only relocations"),
    ([*HARD, "-Wl,-z,execstack"], "no stack without execute permission"),
    ([*HARD, "-fno-stack-protector"], "no stack protector"),
    ([*HARD, "-U_FORTIFY_SOURCE"], "no fortified library calls"),
])
def test_binary_check_sees_missing_hardening(tmp_path, flags, words):
    program = compile_program(tmp_path, *flags)
    done = subprocess.run([TOOLS / "check_binary", program], capture_output=True, text=True)
    assert done.returncode == (1 if words else 0), done.stdout
    assert (words or "is hardened") in done.stdout
