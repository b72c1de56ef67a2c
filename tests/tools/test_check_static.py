"""Goal:   static analysis finds a planted bug, and believes that a failure ends a function.

Method: a small tree with a copy of the tool and of base/status, and compile commands for it.
"""
import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    not (shutil.which("clang-tidy") and shutil.which("cppcheck")),
    reason="clang-tidy and cppcheck are not installed")

# The analyzer must know that find() does not give ST_OK where *out is not set.
GOOD = """\
#include "base/status.h"

static enum status find(int key, int *out, struct err *err) {
    if (key < 0) return err_set(err, ST_BAD, "key %d", key);
    *out = key;
    return ST_OK;
}

enum status twice(int key, int *out, struct err *err);
enum status twice(int key, int *out, struct err *err) {
    int value;
    TRY(find(key, &value, err));
    *out = value * 2;
    return ST_OK;
}
"""


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "build").mkdir()
    (tmp_path / "src/base").mkdir(parents=True)
    for name in ("tools/check_static", "tools/static_model.h", ".clang-tidy",
                 "src/base/status.h", "src/base/status.c"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def check(tree, source):
    (tree / "src/a.c").write_text(source)
    (tree / "build/compile_commands.json").write_text(json.dumps([
        {"directory": str(tree), "file": str(tree / name),
         "command": f"clang -std=c17 -D_POSIX_C_SOURCE=200809L -Isrc -I{ROOT}/src -c {name}"}
        for name in ("src/a.c", "src/base/status.c")]))
    return subprocess.run([tree / "tools/check_static", "build"], capture_output=True,
                          text=True, timeout=120)


def test_good_code_passes(tree):
    done = check(tree, GOOD)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("source, words", [
    ("int f(int n);\nint f(int n) {\n    int *p = n ? &n : 0;\n    return *p;\n}\n",
     "null pointer"),
    ("int f(int n);\nint f(int n) {\n    int a[3] = {0};\n    return n ? a[3] : 0;\n}\n",
     "out of bounds"),
    (GOOD.replace('return err_set(err, ST_BAD, "key %d", key)', "return ST_OK"), "garbage"),
    ("int f(int n;\n", "error"),
])
def test_a_planted_bug_is_found(tree, source, words):
    done = check(tree, source)
    assert done.returncode == 1
    assert words in done.stdout + done.stderr


def test_a_bug_in_the_file_analysed_by_itself_is_found(tree):
    with open(tree / "src/base/status.c", "a", encoding="utf-8") as file:
        file.write("int f(int n);\nint f(int n) {\n    int *p = n ? &n : 0;\n    return *p;\n}\n")
    assert check(tree, GOOD).returncode == 1
