"""Goal:   docs/a-request.md lists the hops of a streamed chat request as they are: none is missing,
        none is left over, each with its callers and its thread; and the walk stays short.
Method: tools/trace_request runs one request through a server under callgrind. Then it compares the
        same recording with copies of the page that were changed in one place each.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli_lib import JITNEY, ROOT

HOPS_MAX = 38
FILES_MAX = 30
PAGE = ROOT / "docs" / "a-request.md"

pytestmark = pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")


@pytest.fixture(scope="module", name="calls")
def calls_fixture(tmp_path_factory):
    return tmp_path_factory.mktemp("calls")


def compare(calls, page=PAGE):
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "trace_request", "--check", "--program", JITNEY,
         "--calls", calls, "--page", page], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


def changed(tmp_path, pattern, text):
    """The page with the first match of a pattern replaced."""
    whole, count = re.subn(pattern, text, PAGE.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1, pattern
    path = Path(tmp_path, "page.md")
    path.write_text(whole)
    return path


def test_the_page_lists_every_hop_of_a_request_and_no_other(calls):
    status, output = compare(calls)
    assert status == 0, output


def test_the_walk_is_short(calls):
    hops, files = map(int, re.search(r"(\d+) hops in (\d+) files", compare(calls)[1]).groups())
    assert hops <= HOPS_MAX
    assert files <= FILES_MAX


@pytest.mark.parametrize("pattern, text, words", [
    (r"^\| \d+ \| `sched/.*\n", "", "is a hop (engine, from engine_main) and is not listed"),
    (r"^(\| \d+ \| `)(engine/engine.c:engine_)main(`)", r"\1\2stop\3",
     "engine/engine.c:engine_stop is listed and is not a hop"),
    (r"^(\| \d+ \| `net/conn.c:\w+` \| `)\w+(`)", r"\1conn_nobody\2", "listed as ('conn_nobody'"),
    (r"^(\| \d+ \| `sched/\S+ \| [^|]* \|) engine \|", r"\1 I/O thread |", "'I/O thread'), traced as"),
])
def test_a_page_that_is_wrong_in_one_place_is_refused(calls, tmp_path, pattern, text, words):
    status, output = compare(calls, changed(tmp_path, pattern, text))
    assert status == 1 and words in output, output
