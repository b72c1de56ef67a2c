"""Goal:   the runner counts every case once and calls nothing passed that did not pass.

Method: programs that print what cmocka prints and then crash, hang, leak or end well, listed
        by a stand-in for ctest; small pytest files; commands.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNNING = "echo '[==========] Running %d test(s).'\n"
OK = "echo '[       OK ] a'\n"
SKIPPED = "echo '[  SKIPPED ] b'\n"
FAILED = "echo '[  FAILED  ] c'\n"


class Suite:
    def __init__(self, path):
        self.path = path
        self.tests = []
        (path / "bin").mkdir()
        ctest = path / "bin/ctest"
        ctest.write_text(f"#!/bin/sh\ncat {path}/tests.json\n")
        ctest.chmod(0o755)

    def program(self, name, body, **properties):
        file = self.path / name
        file.write_text("#!/bin/sh\n" + body)
        file.chmod(0o755)
        self.tests.append({"name": name, "command": [str(file)], "properties": [
            {"name": key, "value": value} for key, value in properties.items()]})

    def run(self, *arguments):
        (self.path / "tests.json").write_text(json.dumps({"tests": self.tests}))
        done = subprocess.run(
            [ROOT / "tools/run_tests", "--jobs", "2", *arguments], text=True, timeout=120,
            capture_output=True, env={**os.environ,
                                      "PATH": f"{self.path}/bin:{os.environ['PATH']}"})
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    def count(self, *arguments):
        status, output = self.run(*(arguments or (f"--ctest=x={self.path}",)))
        words = output.splitlines()[-1].replace(",", "").split()
        assert words[1::2] == ["passed", "failed", "skipped"]
        assert (status == 0) == (words[2] == "0")
        return tuple(int(n) for n in words[0::2])


@pytest.fixture
def suite(tmp_path):
    return Suite(tmp_path)


def test_cases_of_all_programs_are_added(suite):
    suite.program("one", RUNNING % 3 + OK + OK + SKIPPED)
    suite.program("two", RUNNING % 1 + OK + RUNNING % 1 + OK)
    assert suite.count() == (4, 0, 1)


def test_the_summary_that_cmocka_writes_to_stderr_is_not_counted_again(suite):
    suite.program("one", RUNNING % 2 + OK + SKIPPED + "echo '[  SKIPPED ] b' >&2\n")
    assert suite.count() == (1, 0, 1)
    assert "skipped tests:\n  x/one: b\n" in suite.run(f"--ctest=x={suite.path}")[1]


def test_a_failed_case_is_counted_and_shown(suite):
    suite.program("one", RUNNING % 2 + OK + FAILED + "echo 'a.c:7: 1 != 2' >&2\nexit 1\n")
    assert suite.count() == (1, 1, 0)
    assert "a.c:7: 1 != 2" in suite.run(f"--ctest=x={suite.path}")[1]


def test_cases_after_a_crash_have_failed(suite):
    suite.program("one", RUNNING % 5 + OK + "kill -SEGV $$\n")
    assert suite.count() == (1, 4, 0)
    assert "ended by SIGSEGV" in suite.run(f"--ctest=x={suite.path}")[1]


def test_a_program_that_fails_after_its_cases_has_failed(suite):
    suite.program("one", RUNNING % 1 + OK + "exit 23\n")
    assert suite.count() == (1, 1, 0)


def test_a_program_past_its_time_is_killed_with_its_children(suite):
    suite.program("one", RUNNING % 2 + OK + "sleep 600 &\nsleep 600\n", TIMEOUT=1.0)
    assert suite.count() == (1, 1, 0)


def test_a_plain_program_is_one_case(suite):
    suite.program("good", "exit 0\n")
    suite.program("bad", "exit 1\n")
    suite.program("absent", "exit 77\n")
    assert suite.count() == (1, 1, 1)


def test_a_program_that_was_not_built_has_failed(suite):
    suite.tests.append({"name": "unbuilt", "properties": []})
    suite.tests.append({"name": "removed", "command": [str(suite.path / "removed")]})
    assert suite.count() == (0, 2, 0)


def test_pytest_cases_are_counted(suite):
    folder = suite.path / "py"
    folder.mkdir()
    (folder / "test_a.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_n(n): assert n < 2\n"
        "def test_skip(): pytest.skip('no')\n")
    (folder / "test_b.py").write_text("import nothing_of_that_name\n")
    arguments = f"--pytest={sys.executable}={folder}"
    assert suite.count(arguments) == (2, 2, 1)
    assert "test_skip (no)" in suite.run(arguments)[1]


def test_gates_are_cases(suite):
    assert suite.count("--gate=true", "--gate=false", "--gate=sh -c 'exit 0'") == (2, 1, 0)


def test_no_tests_at_all_is_a_failure(suite):
    status, output = suite.run(f"--ctest=x={suite.path}")
    assert status == 1
    assert output.endswith("0 passed, 0 failed, 0 skipped\n")
