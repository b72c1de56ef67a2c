"""`jitney quantize --budget`, `--bits` and `--plan`: a type for each matrix.

The estimate is compared with what it estimates: models in which only one matrix is quantised are
made with the `gguf` package, and `jitney compare` measures their KL.
"""

import json
import shutil

import gguf
import numpy as np
import pytest

from cli_lib import BAD, CREATE, GOLDEN, USAGE, answer, out, refusal, run
from test_cli_quantize_folder import write_source

LLAMA = GOLDEN / "llama" / "model.gguf"
CTX = 64
KEYS = {"file_bytes", "bits_per_weight", "expected_kl", "tensors", "curve"}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("The quick brown fox jumps over the lazy dog, and then it sleeps. " * 60)
    return path


@pytest.fixture(scope="module")
def args(text):
    return ["--calibrate", text, "--ctx", CTX]


@pytest.fixture(scope="module")
def plan(args):
    return answer("quantize", LLAMA, "--bits", 6, "--plan", *args)["plan"]


def tensors_of(path):
    return {t.name: t for t in gguf.GGUFReader(str(path)).tensors}


@pytest.mark.parametrize("size", [30000, "35kB", "32KiB"])
def test_a_file_is_within_its_budget(tmp_path, args, size):
    most = {30000: 30000, "35kB": 35000, "32KiB": 32768}[size]
    path = tmp_path / "o.gguf"
    got = answer("quantize", LLAMA, path, "--budget", size, *args)
    assert got["type"] == "mixed" and KEYS == set(got["plan"])
    assert got["file_bytes"] == path.stat().st_size == got["plan"]["file_bytes"]
    assert 0.95 * most < path.stat().st_size <= most
    written = tensors_of(path)
    for planned in got["plan"]["tensors"]:
        assert written[planned["name"]].tensor_type.name == planned["type"]
    assert got["plan"]["bits_per_weight"] == pytest.approx(got["bits_per_weight"])
    out("generate", path, "-p", "a", "-n", 2)


def test_bits_count_all_tensors(tmp_path, args):
    for bits in (5, 7.25):
        path = tmp_path / f"{bits}.gguf"
        got = answer("quantize", LLAMA, path, "--bits", bits, *args)
        assert bits - 0.1 < got["bits_per_weight"] <= bits
        assert got["calibration"]["matrices"] > 0


def test_a_plan_writes_nothing(tmp_path, text, args):
    table = out("quantize", LLAMA, tmp_path / "o.gguf", "--bits", 6, "--plan", *args).decode()
    assert list(tmp_path.iterdir()) == []
    assert "blk.1.ffn_up.weight" in table and "bits a weight, expected KL" in table
    again = out("quantize", LLAMA, "--bits", 6, "--plan", *args).decode()
    assert table == again
    other = out("quantize", LLAMA, "--bits", 6, "--plan", *args, "-t", 1).decode()
    assert table == other


def test_more_bytes_cost_less(plan):
    assert KEYS == set(plan)
    sizes = [p["bytes"] for p in plan["curve"]]
    costs = [p["expected_kl"] for p in plan["curve"]]
    assert len(sizes) == 12
    assert sizes == sorted(sizes) and costs == sorted(costs, reverse=True)
    assert plan["curve"][0]["bits_per_weight"] < 5 and plan["curve"][-1]["bits_per_weight"] > 8
    total = sum(t["expected_kl"] for t in plan["tensors"])
    assert total == pytest.approx(plan["expected_kl"])


def kl_with(folder, name, values, text):
    """The KL that compare measures if this matrix alone has other values."""
    path = folder / "changed.gguf"
    shutil.copyfile(LLAMA, path)
    path.chmod(0o644)
    for tensor in gguf.GGUFReader(str(path), "r+").tensors:
        if tensor.name == name:
            tensor.data[...] = values
            tensor.data.flush()
    return answer("compare", LLAMA, path, "-f", text, "--ctx", CTX, "--greedy", 0)["kl_mean"]


def test_the_estimate_is_near_what_is_measured(tmp_path, text, args):
    """Matrix by matrix, with the types of the plan; then all of them together."""
    path = tmp_path / "o.gguf"
    got = answer("quantize", LLAMA, path, "--bits", 5.5, *args, "--report", "-f", text,
                 "--greedy", 0)
    written = tensors_of(path)
    for planned in got["plan"]["tensors"]:
        tensor = written[planned["name"]]
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        measured = kl_with(tmp_path, planned["name"], values, text)
        print(f"{planned['name']:28} {planned['type']:6} expected {planned['expected_kl']:.6f}, "
              f"measured {measured:.6f}")
        assert measured / 2 < planned["expected_kl"] < measured * 2, planned
    together = got["report"]["kl_mean"]
    print(f"together: expected {got['plan']['expected_kl']:.5f}, measured {together:.5f}")
    assert together / 1.5 < got["plan"]["expected_kl"] < together * 1.5


def test_a_budget_loses_less_than_one_type_of_the_size(tmp_path, text, args):
    how = [*args, "--report", "-f", text, "--greedy", 0]
    uniform = answer("quantize", LLAMA, tmp_path / "u.gguf", "--type", "Q5_0", *how)
    mixed = answer("quantize", LLAMA, tmp_path / "m.gguf", "--budget", uniform["file_bytes"], *how)
    assert mixed["file_bytes"] <= uniform["file_bytes"]
    assert mixed["report"]["kl_mean"] < uniform["report"]["kl_mean"]


def test_an_impossible_budget_says_the_nearest_sizes(tmp_path, text, args):
    message = refusal(BAD, "quantize", LLAMA, tmp_path / "o", "--budget", "20kB", *args)
    assert "--budget 20000 cannot be met" in message and list(tmp_path.iterdir()) == []
    words = message.split()
    least, after = int(words[words.index("has") + 1]), int(words[-1])
    assert 20000 < least < after
    got = answer("quantize", LLAMA, tmp_path / "o", "--budget", least, *args)
    assert got["file_bytes"] == least
    got = answer("quantize", LLAMA, tmp_path / "p", "--budget", after, *args)
    assert least <= got["file_bytes"] <= after
    message = refusal(BAD, "quantize", LLAMA, tmp_path / "q", "--bits", 3, *args)
    assert "--bits 3 cannot be met" in message
    bits = message.split("together have ")[1].split()[0]
    assert answer("quantize", LLAMA, tmp_path / "q", "--bits", bits, *args)


def test_an_impossible_budget_without_another_choice_says_so(tmp_path, args):
    """Rows of 80 and 200 fit into no block: every matrix is F16."""
    source = write_source(tmp_path / "source", hidden_size=80, intermediate_size=200)
    for target in (["--bits", 5], ["--budget", 300]):
        message = refusal(BAD, "quantize", source, tmp_path / "o", *target, *args)
        assert "cannot be met" in message and message.endswith("there is no other choice\n")


def test_bad_arguments(tmp_path, text):
    to, calibrate = tmp_path / "o", ["--calibrate", text]
    assert "give one of them" in refusal(USAGE, "quantize", LLAMA, to, "--budget", "1MB", "--bits",
                                         5, *calibrate)
    assert "give --calibrate TEXT" in refusal(USAGE, "quantize", LLAMA, to, "--bits", 5)
    assert "leave --type out" in refusal(USAGE, "quantize", LLAMA, to, "--bits", 5, "--type", "Q4_0",
                                         *calibrate)
    for size in ("", "MB", "-5", "70M", "1,5GB", "1e6", "70MBs"):
        message = refusal(USAGE, "quantize", LLAMA, to, f"--budget={size}", *calibrate)
        assert f'--budget is "{size}"; it must be a number of bytes' in message
    assert "--plan needs a size" in refusal(USAGE, "quantize", LLAMA, to, "--plan", "--type",
                                            "Q4_0")
    assert "no output" in refusal(USAGE, "quantize", LLAMA, "--bits", 5, *calibrate)
    assert "--plan writes nothing" in refusal(USAGE, "quantize", LLAMA, "--bits", 5, "--plan",
                                              "--report", "-f", text, *calibrate)
    refusal(USAGE, "quantize", LLAMA, to, "--bits", "x", *calibrate)
    refusal(USAGE, "quantize", LLAMA, to, "--bits", 0.5, *calibrate)
    assert list(tmp_path.iterdir()) == []


def test_bad_input(tmp_path, text, args):
    short = tmp_path / "short"
    short.write_text("too short")
    code, _, stderr = run("quantize", LLAMA, tmp_path / "o", "--bits", 5, "--calibrate", short)
    assert code == BAD and b"too few for calibration" in stderr
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(LLAMA.read_bytes()[:-1000])
    refusal(BAD, "quantize", cut, tmp_path / "o", "--bits", 5, *args)
    bad = tmp_path / "bad.gguf"
    shutil.copyfile(LLAMA, bad)
    bad.chmod(0o644)
    for tensor in gguf.GGUFReader(str(bad), "r+").tensors:
        if tensor.name == "blk.1.ffn_down.weight":
            tensor.data[3, 5] = np.inf
            tensor.data.flush()
    code, _, stderr = run("quantize", bad, tmp_path / "o", "--bits", 5, *args)
    assert code == BAD and b"blk.1.ffn_down.weight" in stderr, stderr
    again = tmp_path / "q8.gguf"
    out("quantize", LLAMA, again, "--type", "Q8_0")
    assert "is quantised already" in refusal(BAD, "quantize", again, tmp_path / "o", "--bits", 5,
                                             *args)
    got = answer("quantize", again, tmp_path / "p", "--bits", 5, "--allow-requantize", *args)
    assert got["bits_per_weight"] <= 5
    taken = tmp_path / "taken"
    taken.write_text("mine")
    refusal(CREATE, "quantize", LLAMA, taken, "--bits", 5, *args)
    assert taken.read_text() == "mine" and not (tmp_path / "o").exists()


def test_a_model_without_predictions_has_no_plan(tmp_path, args):
    """A norm with finite numbers makes logits that are not."""
    source = tmp_path / "nan.gguf"
    shutil.copyfile(LLAMA, source)
    source.chmod(0o644)
    for tensor in gguf.GGUFReader(str(source), "r+").tensors:
        if tensor.name == "output_norm.weight":
            tensor.data[...] = 3e38
            tensor.data.flush()
    code, stdout, stderr = run("quantize", source, "--bits", 6, "--plan", *args)
    assert code == BAD and stdout == b"", stderr
    assert b"are not finite numbers" in stderr


def test_the_json_of_a_plan_is_one_object(args):
    code, stdout, _ = run("quantize", LLAMA, "--bits", 6, "--plan", "--json", *args)
    assert code == 0 and set(json.loads(stdout)) == {"plan"}
