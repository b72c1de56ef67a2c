"""Goal:   bench_peers asks engines in turns, leaves out what cannot be measured and says why, and
        its table divides by jitney's.
Method: engines that answer from a list in place of real ones; a worker process that speaks the
        protocol of bench/peers/worker.py.
"""
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="peers", scope="module")
def peers_fixture():
    loader = importlib.machinery.SourceFileLoader("bench_peers", str(ROOT / "tools/bench_peers"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_peers", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class Scripted:
    """An engine whose n-th answer is the n-th of a list; an exception is raised."""

    def __init__(self, name, log, answers):
        self.name, self.version, self.log, self.answers = name, "1", log, list(answers)

    def ask(self, **command):
        self.log.append(self.name)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"output_tok_s": answer}


def options(**more):
    return SimpleNamespace(lines="b", repeats=3, batch=(2, 4, 8), threads=1, ops="/nonexistent",
                           json=None, load_before=0.0, **more)


def test_engines_take_turns_and_ratios_are_of_medians(peers, capsys):
    log = []
    engines = [Scripted("jitney", log, [10, 30, 20]), Scripted("slow", log, [5, 50, 4])]
    found = peers.measure(options(), engines)
    assert log == ["jitney", "slow"] * 3
    peers.put_all(options(), engines, *found)
    row = next(l for l in capsys.readouterr().out.splitlines() if l.startswith("2 x (4 in"))
    assert row.split()[-4:] == ["tok/s", "20", "5", "0.25x"]


def test_what_is_skipped_is_said_once_and_not_asked_again(peers, capsys):
    log = []
    engines = [Scripted("jitney", log, [1, 1, 1]), Scripted("absent", log, [peers.Skip("no wheel")])]
    found = peers.measure(options(), engines)
    assert log.count("absent") == 1
    peers.put_all(options(), engines, *found)
    said = capsys.readouterr().out
    assert said.count("absent: skipped (b): no wheel") == 1


def test_all_values_go_to_the_file(peers, tmp_path, capsys):
    engines = [Scripted("jitney", [], [3, 1, 2])]
    chosen = options()
    chosen.json = tmp_path / "results.json"
    peers.put_all(chosen, engines, *peers.measure(chosen, engines))
    saved = json.loads(chosen.json.read_text())
    assert saved["rows"][0]["values"] == {"jitney": [3, 1, 2]}
    assert str(chosen.json) in capsys.readouterr().out


def test_prompts_are_the_same_for_every_engine(peers):
    assert peers.random_prompts(3, 2, 5) == peers.random_prompts(3, 2, 5)
    assert peers.random_prompts(3, 2, 5) != peers.random_prompts(4, 2, 5)


WORKER = """
import sys
sys.path.insert(0, {folder!r})
import worker
class Fake(worker.Engine):
    version = "fake 1"
    def load(self, model, threads):
        print("a library that talks")
        self.threads = threads
    def single(self, prompt, output):
        return {{"prompt_tok_s": len(prompt), "decode_tok_s": output * self.threads}}
    def loss_of(self, ids):
        return 2.0 * len(ids), len(ids)
worker.run(Fake())
"""


def test_a_worker_answers_and_says_what_it_cannot(peers, tmp_path):
    script = tmp_path / "fake.py"
    script.write_text(WORKER.format(folder=str(ROOT / "bench/peers")))
    worker = peers.Worker([sys.executable, script, "model", 2])
    try:
        assert worker.ready["version"] == "fake 1"
        assert worker.ask(do="single", prompt=[1, 2, 3], output=4) == {
            "prompt_tok_s": 3, "decode_tok_s": 8}
        assert worker.ask(do="perplexity", windows=[[1] * 9])["perplexity"] == pytest.approx(7.389, 1e-3)
        with pytest.raises(peers.Skip, match="batch"):
            worker.ask(do="batch", prompts=[[1]], output=1)
    finally:
        worker.close()


def test_a_worker_that_ends_is_skipped(peers):
    with pytest.raises(peers.Skip, match="ended with 3"):
        peers.Worker([sys.executable, "-c", "import sys; sys.exit(3)"])


def test_the_help_names_every_line():
    said = subprocess.run([sys.executable, ROOT / "tools/bench_peers", "--help"], check=True,
                          capture_output=True, text=True).stdout
    for letter in "sbhmp":
        assert f"\n    {letter}  " in said
