"""Goal:   instructor, pydantic-ai and openai-agents read objects from the server as they do from
        OpenAI's, by schema and by prompt.
Method: a model that says a known JSON text (scripted_model.py); the frameworks run in an
        environment of their own, with the versions that they want."""

import json
import subprocess

import pytest

from cli_lib import ROOT
from scripted_model import scripted_model
from server_lib import Server

PYTHON = ROOT / "build" / "venv-frameworks" / "bin" / "python"
PIECES = ['{"na', 'me":"', "Ada", '","age"', ":36", ',"tags":["x', '","y', '"]}']
NAMES = {"instructor, schema", "instructor, json", "pydantic-ai, native", "pydantic-ai, prompted",
         "pydantic-ai, responses", "openai-agents, chat", "openai-agents, responses"}


@pytest.mark.skipif(not PYTHON.exists(), reason="build/venv-frameworks is not made (make test)")
def test_frameworks_read_the_object(tmp_path):
    ada = scripted_model(tmp_path / "ada", PIECES)
    with Server(ada, "--kv-memory", "64M") as server:
        said = subprocess.run([PYTHON, ROOT / "tests" / "e2e" / "frameworks_client.py", server.url, "ada"],
                              capture_output=True, text=True, timeout=300, check=False)
    assert said.returncode == 0, said.stderr
    answers = json.loads(said.stdout.splitlines()[-1])
    assert answers == {name: json.loads("".join(PIECES)) for name in NAMES}
