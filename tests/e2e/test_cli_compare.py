"""`jitney compare` and `jitney quantize --report`: what a model has lost beside another.

The logits of `jitney perplexity --dump-logits` are the source for what numpy computes here from the
definition.
"""

import json
import shutil
from xml.etree import ElementTree

import gguf
import numpy as np
import pytest

from cli_lib import BAD, CREATE, GOLDEN, MISSING, USAGE, answer, out, refusal, run

LLAMA = GOLDEN / "llama" / "model.gguf"
OTHER = GOLDEN / "llama-q4_0" / "model.gguf"
KEYS = {"kl_mean", "kl_p99", "top1_agree", "ppl_a", "ppl_b", "bytes_a", "bytes_b"}
WINDOW = 32


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("The quick brown fox jumps over the lazy dog, and then it sleeps. " * 30)
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.gguf"
    out("quantize", LLAMA, path, "--type", "Q8_0")
    return path


def logits_of(model, text, tmp_path):
    path = tmp_path / "dump"
    out("perplexity", model, "-f", text, "--ctx", WINDOW, "--dump-logits", path)
    rows, columns = np.fromfile(path, np.int32, 2)
    data = np.fromfile(path, np.float32, offset=8)
    return data.reshape(rows, columns).astype(np.float64)


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def test_the_numbers_are_those_of_the_definition(tmp_path, text, small):
    got = answer("compare", LLAMA, small, "-f", text, "--ctx", WINDOW)
    assert KEYS <= set(got)
    a = log_softmax(logits_of(LLAMA, text, tmp_path))
    b = log_softmax(logits_of(small, text, tmp_path))
    kl = np.sort((np.exp(a) * (a - b)).sum(axis=1))
    assert got["positions"] == len(kl) and len(kl) > 100
    assert got["kl_mean"] == pytest.approx(kl.mean(), rel=1e-6)
    assert got["kl_max"] == pytest.approx(kl[-1], rel=1e-6)
    assert got["kl_p99"] == pytest.approx(kl[-(-len(kl) * 99 // 100) - 1], rel=1e-6)
    assert got["top1_agree"] == pytest.approx(np.mean(a.argmax(axis=1) == b.argmax(axis=1)))
    for key, model in (("ppl_a", LLAMA), ("ppl_b", small)):
        alone = answer("perplexity", model, "-f", text, "--ctx", WINDOW)["perplexity"]
        assert got[key] == pytest.approx(alone, rel=1e-6)
    assert got["bytes_a"] == LLAMA.stat().st_size
    assert got["bytes_b"] == small.stat().st_size


def test_a_model_beside_itself_has_lost_nothing(text):
    got = answer("compare", LLAMA, LLAMA, "-f", text, "--ctx", WINDOW, "--chunks", 2)
    assert got["kl_mean"] == 0 and got["kl_p99"] == 0
    assert got["top1_agree"] == 1 and got["greedy_agree"] == 1
    assert got["ppl_a"] == got["ppl_b"]
    assert got["chunks"] == 2
    assert got["tokens_per_s_a"] > 0 and got["tokens_per_s_b"] > 0


def test_fewer_bits_lose_more(tmp_path, text, small):
    out("quantize", LLAMA, tmp_path / "q4.gguf", "--type", "Q4_0")
    args = ["-f", text, "--ctx", WINDOW, "--greedy", 0]
    eight = answer("compare", LLAMA, small, *args)
    four = answer("compare", LLAMA, tmp_path / "q4.gguf", *args)
    assert 0 < eight["kl_mean"] < four["kl_mean"]
    assert eight["bits_per_weight_b"] > four["bits_per_weight_b"]
    assert "greedy_agree" not in eight


def test_the_table_for_people(text, small):
    table = out("compare", LLAMA, small, "-f", text, "--ctx", WINDOW).decode()
    for word in ("bits a weight", "perplexity", "KL of B from A", "same most likely token",
                 "greedy answers of 32 tokens"):
        assert word in table


def test_the_text_may_come_from_a_pipe(text, small):
    args = ["--ctx", WINDOW, "--chunks", 1, "--greedy", 0]
    piped = answer("compare", LLAMA, small, "-f", "-", *args, stdin=text.read_bytes())
    assert piped == answer("compare", LLAMA, small, "-f", text, *args)


def test_models_with_different_vocabularies_are_refused(tmp_path, text):
    other = tmp_path / "other"
    shutil.copytree(GOLDEN / "llama", other, ignore=shutil.ignore_patterns("*.gguf", "goldens*"))
    path = other / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocab = tokenizer["model"]["vocab"]
    pieces = sorted(vocab, key=vocab.get) if isinstance(vocab, dict) else None
    if pieces is None:
        pytest.skip("a vocabulary of another form")
    last, before = pieces[-1], pieces[-2]
    vocab[last], vocab[before] = vocab[before], vocab[last]
    path.write_text(json.dumps(tokenizer))
    code, stdout, stderr = run("compare", LLAMA, other, "-f", text, "--ctx", WINDOW)
    assert code == BAD and stdout == b"", stderr
    assert b"the vocabularies differ: token " in stderr


def change(path, part):
    """A copy of the model with noise in the matrices whose names begin with `part`."""
    shutil.copyfile(LLAMA, path)
    path.chmod(0o644)
    rng = np.random.default_rng(5)
    for tensor in gguf.GGUFReader(str(path), "r+").tensors:
        if tensor.name.startswith(part) and tensor.data.ndim == 2:
            tensor.data[...] += rng.normal(0, 0.02, tensor.data.shape).astype(np.float32)
            tensor.data.flush()
    return path


@pytest.mark.parametrize("part", ["token_embd", "blk.0.", "blk.1.", "output."])
def test_kl_by_layer_finds_the_part_that_differs(tmp_path, text, part):
    """With up to 4 windows the same positions are measured, so the KL is that of the models."""
    path, svg = change(tmp_path / "other.gguf", part), tmp_path / "kl.svg"
    got = answer("compare", LLAMA, path, "-f", text, "--ctx", WINDOW, "--chunks", 3, "--greedy", 0,
                 "--svg", svg)
    names = [f"blk.{p['layer']}." if p["part"] == "layer" else p["part"]
             for p in got["kl_by_layer"]]
    assert names == ["embedding", "blk.0.", "blk.1.", "output"]
    here = names.index({"token_embd": "embedding", "output.": "output"}.get(part, part))
    for i, measured in enumerate(got["kl_by_layer"]):
        if i == here:
            assert measured["kl"] == pytest.approx(got["kl_mean"], rel=1e-6) and measured["kl"] > 0
        else:
            assert measured["kl"] == 0


def test_the_drawing_of_kl_by_layer_is_xml(tmp_path, text, small):
    """A model's name may have any character."""
    odd = tmp_path / 'a <b> & "c" grüß\x01.gguf'
    odd.symlink_to(small)
    svg = tmp_path / "kl.svg"
    svg.write_text("old")
    args = ["-f", text, "--ctx", WINDOW, "--greedy", 0, "--chunks", 2]
    table = out("compare", LLAMA, odd, *args, "--svg", svg)
    assert b"KL of B from A" in table
    root = ElementTree.parse(svg).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == space + "svg" and root.get("role") == "img"
    assert root.find(space + "title").text == "KL by layer"
    assert 'a <b> & "c" grüß?.gguf' in root.find(space + "desc").text
    bars = [r for r in root.iter(space + "rect") if r.find(space + "title") is not None]
    assert len(bars) == 4
    texts = [t.text for t in root.iter(space + "text")]
    assert "mean KL in nats" in texts and "layer" in texts
    assert "kl_by_layer" not in answer("compare", LLAMA, odd, *args)


def test_quantize_draws_with_its_report(tmp_path, text):
    svg = tmp_path / "kl.svg"
    args = ["--type", "Q4_0", "-f", text, "--ctx", WINDOW, "--greedy", 0]
    got = answer("quantize", LLAMA, tmp_path / "o.gguf", *args, "--report", "--svg", svg)
    assert all(part["kl"] > 0 for part in got["report"]["kl_by_layer"])
    assert ElementTree.parse(svg)
    assert "give --report" in refusal(USAGE, "quantize", LLAMA, tmp_path / "p.gguf", "--type",
                                      "Q4_0", "--svg", svg)


def test_layers_of_other_shapes_are_not_exchanged(tmp_path, text, small):
    svg = tmp_path / "kl.svg"
    args = ["-f", text, "--ctx", WINDOW, "--chunks", 1, "--greedy", 0, "--svg", svg]
    assert "compare that" in refusal(BAD, "compare", LLAMA, LLAMA.parent, *args)
    assert not svg.exists()
    refusal(CREATE, "compare", LLAMA, small, *args[:-1], tmp_path / "none" / "kl.svg")


def test_bad_arguments(tmp_path, text, small):
    short = tmp_path / "short"
    short.write_text("too short")
    assert "one model" in refusal(USAGE, "compare", LLAMA, "-f", text)
    assert "no text" in refusal(USAGE, "compare", LLAMA, small)
    message = refusal(BAD, "compare", LLAMA, small, "-f", short)
    assert "at least 512 are needed (1 window of 512); use a longer text" in message
    refusal(MISSING, "compare", LLAMA, tmp_path / "none.gguf", "-f", text)
    refusal(MISSING, "compare", LLAMA, small, "-f", tmp_path / "none")


def test_quantize_reports_what_compare_says(tmp_path, text):
    path = tmp_path / "q8.gguf"
    args = ["-f", text, "--ctx", WINDOW, "--greedy", 0]
    summary = answer("quantize", LLAMA, path, "--type", "Q8_0", "--report", *args)
    again = answer("compare", LLAMA, path, *args)
    assert summary["report"] == again
    table = out("quantize", LLAMA, tmp_path / "b.gguf", "--type", "Q4_0", "--report", *args)
    assert b"KL of B from A" in table


def test_max_kl_keeps_nothing_that_is_worse(tmp_path, text):
    path = tmp_path / "q4.gguf"
    args = ["--type", "Q4_0", "-f", text, "--ctx", WINDOW, "--greedy", 0]
    message = refusal(1, "quantize", LLAMA, path, *args, "--max-kl", 1e-6)
    assert "more than --max-kl 1e-06; nothing was kept" in message
    assert list(tmp_path.iterdir()) == []
    kept = answer("quantize", LLAMA, path, *args, "--max-kl", 100)
    assert kept["report"]["kl_mean"] > 1e-6 and path.exists()
    assert "need a text" in refusal(USAGE, "quantize", LLAMA, tmp_path / "o", "--type", "Q4_0",
                                    "--max-kl", 1)
    assert "-f is for --report" in refusal(USAGE, "quantize", LLAMA, tmp_path / "o", "--type",
                                           "Q4_0", "-f", text)


def test_a_short_text_is_found_before_the_models_are_opened(tmp_path):
    short, cut = tmp_path / "short", tmp_path / "cut.gguf"
    short.write_text("too short")
    cut.write_bytes(LLAMA.read_bytes()[:-1000])
    message = refusal(BAD, "compare", LLAMA, cut, "-f", short)
    assert "short: has 8 tokens, too few for a window: at least 512 are needed" in message
    assert "cut.gguf" in refusal(BAD, "compare", LLAMA, cut, "-f", short, "--ctx", 8)
