"""Goal:   the examples in docs/tools.md run as they are.
Method: each block of the section Examples runs against a model that says known calls
        (scripted_model.py); only the address is another. What it prints is compared."""

import re
import shutil
import subprocess
import sys

import pytest

from cli_lib import ROOT
from scripted_model import turns_model
from server_lib import Server

for package in ("openai", "anthropic", "ollama"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")

ADDRESS = "http://127.0.0.1:8080"
TURNS = {
    "sunny": "It is sunny in Rome.",
    "Rome": '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>',
    "": '<tool_call>\n{"name": "find_city", "arguments": {"person": "Ada"}}\n</tool_call>',
}
EXAMPLES = (ROOT / "docs/tools.md").read_text().partition("\n## Examples\n")[2]
EXAMPLES = EXAMPLES.partition("\n## ")[0]
BEGINNING, *LOOPS = re.findall(r"```python\n(.*?)```", EXAMPLES, re.S)
REQUESTS = re.findall(r"```sh\n(.*?)```", EXAMPLES, re.S)


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    model, _ = turns_model(tmp_path_factory.mktemp("docs") / "m", TURNS)
    with Server(model, "--tool-form", "hermes", "--served-model-name", "m",
                "--kv-memory", "64M") as server:
        yield server


def run(server, command, text):
    assert ADDRESS in text
    text = text.replace(ADDRESS, server.url)
    done = subprocess.run([*command, text], capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_api_has_both_examples():
    assert len(LOOPS) == len(REQUESTS) == 4


@pytest.mark.parametrize("number", range(4))
def test_a_loop_in_python_ends_with_the_answer(server, number):
    said = run(server, [sys.executable, "-c"], BEGINNING + LOOPS[number])
    assert said == "It is sunny in Rome.\n"


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("number", range(4))
def test_a_request_by_curl_gets_the_second_call(server, number):
    said = run(server, ["sh", "-c"], REQUESTS[number])
    assert re.search(r'"name": ?"weather"', said), said
    assert re.search(r'city\W+Rome', said), said
