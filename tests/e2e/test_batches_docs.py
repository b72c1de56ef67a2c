"""Goal:   the walk-through of docs/api.md, section Batches, runs as it is.
Method: its blocks run in one shell, in an empty folder, against a simulated model; only the address
        is another. What they print and write is compared."""

import json
import re
import shutil
import subprocess

import pytest

from cli_lib import ROOT
from server_lib import FAST, Server, tiny_model

ADDRESS = "http://127.0.0.1:8080"
SECTION = (ROOT / "docs/api.md").read_text().partition("\n## Batches\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```sh\n(.*?)```", SECTION, re.S)


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_walk_through_ends_with_the_output(tmp_path, tmp_path_factory):
    assert len(BLOCKS) == 4
    with Server(tiny_model(tmp_path_factory), *FAST, "--served-model-name", "smollm2",
                "--data-dir", tmp_path / "data") as server:
        script = "set -eu\n" + "".join(BLOCKS).replace(ADDRESS, server.url).replace(
            "sleep 1", "sleep 0.1")
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60,
                              cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["custom_id"], line["response"]["status_code"]) for line in lines] == [
        ("sky", 200), ("sea", 200), ("bad", 400)]
    batch = json.loads((tmp_path / "batch.json").read_text())
    assert batch["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
