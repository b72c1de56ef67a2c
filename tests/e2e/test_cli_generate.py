"""Goal:   generate, perplexity, embed and inspect keep the contract that scripts rely on, and
        results do not depend on threads, chunks or output form.
Method: the real program on tiny random models of the tree; on SmolLM2 too where it is cached."""

import hashlib
import json
import math
import os
import platform
import pty
import struct
import subprocess

import pytest

from cli_lib import BAD, CREATE, GOLDEN, JITNEY, USAGE, answer, out, refusal, run, talking_model

LLAMA = GOLDEN / "llama"
LONG = "The quick brown fox jumps over the lazy dog. " * 2
STEADY = ["-n", "24", "--ignore-eos", "--seed", "7"]


def models():
    found = [LLAMA, GOLDEN / "qwen2"]
    if run("inspect", "smollm2")[0] == 0:
        found.append("smollm2")
    return found


@pytest.fixture(params=models(), ids=str, name="model")
def model_fixture(request):
    return request.param


def test_json_has_the_promised_keys(model):
    got = answer("generate", "-m", model, "-p", "Hello", *STEADY)
    assert list(got)[:5] == ["text", "tokens", "logprobs", "finish_reason", "usage"]
    assert set(got["timings"]) == {"load_ms", "prompt_ms", "decode_ms"}
    assert got["seed"] == 7
    assert got["finish_reason"] == "length"
    assert len(got["tokens"]) == len(got["logprobs"]) == 24
    assert got["usage"] == {
        "prompt_tokens": len(out("tokenize", model, "--add-special", stdin="Hello").split()),
        "completion_tokens": 24,
    }
    assert all(p <= 0 for p in got["logprobs"])


def test_text_and_json_say_the_same(model):
    got = answer("generate", "-m", model, "-p", "Hello", *STEADY)
    assert out("generate", model, "-p", "Hello", *STEADY) == got["text"].encode() + b"\n"


def test_the_same_seed_gives_the_same_answer(model):
    one, two = (answer("generate", model, "-p", "A", *STEADY) for _ in range(2))
    assert (one["tokens"], one["logprobs"]) == (two["tokens"], two["logprobs"])
    other = answer("generate", model, "-p", "A", "-n", "24", "--ignore-eos", "--seed", "8")
    assert other["tokens"] != one["tokens"]


def test_the_default_temperature_is_0_8_and_the_length_256(tmp_path):
    got = answer("generate", LLAMA, "-p", "A", "--seed", "1", "--ignore-eos", "--ctx", "400")
    same = answer(
        "generate",
        LLAMA,
        "-p",
        "A",
        "--seed",
        "1",
        "--ignore-eos",
        "--temp",
        "0.8",
        "-n",
        "256",
        "--ctx",
        "400",
    )
    assert got["tokens"] == same["tokens"]
    assert len(got["tokens"]) == 256


def test_bits_do_not_depend_on_threads_or_chunks(model):
    seen = set()
    for flags in (
        ["--threads", "1"],
        ["--threads", "2"],
        ["--threads", "5"],
        ["--chunk", "1"],
        ["--chunk", "7"],
        ["--chunk", "64", "--threads", "2"],
    ):
        got = answer("generate", model, "-p", LONG, *STEADY, "--hash-logits", *flags)
        assert len(got["logits_sha256"]) == 64
        seen.add((got["logits_sha256"], got["text"], tuple(got["logprobs"])))
    assert len(seen) == 1


def test_the_hash_covers_prompt_and_answer():
    one = answer(
        "generate", LLAMA, "-p", LONG, "-n", "1", "--temp", "0", "--hash-logits", "--ignore-eos"
    )
    two = answer(
        "generate", LLAMA, "-p", LONG, "-n", "2", "--temp", "0", "--hash-logits", "--ignore-eos"
    )
    assert one["logits_sha256"] != two["logits_sha256"]


def test_the_hash_is_of_the_logits_that_perplexity_dumps(tmp_path):
    """Rows of the second half of a window, and the hash of all rows, come from the same pass."""
    text = tmp_path / "t.txt"
    text.write_text(LONG)
    ids = out("tokenize", LLAMA, stdin=LONG).split()
    dump = tmp_path / "rows"
    count = len(ids) - len(ids) % 2
    out("perplexity", LLAMA, "-f", text, "-c", str(count), "--dump-logits", dump)
    rows, vocab = struct.unpack_from("<ii", dump.read_bytes())
    assert (rows, vocab) == (count - 1 - count // 2, 288)
    assert dump.stat().st_size == 8 + rows * vocab * 4


def test_greedy_follows_the_likeliest_token(model):
    got = answer(
        "generate",
        model,
        "-p",
        "Hello",
        "-n",
        "8",
        "--temp",
        "0",
        "--logprobs",
        "3",
        "--ignore-eos",
    )
    assert len(got["top_logprobs"]) == 8
    for token, logprob, top in zip(got["tokens"], got["logprobs"], got["top_logprobs"]):
        assert len(top) == 3
        assert (top[0]["token"], top[0]["logprob"]) == (token, logprob)
        assert top[0]["logprob"] >= top[1]["logprob"] >= top[2]["logprob"]


def test_logprobs_are_before_temperature_and_penalties():
    plain = answer("generate", LLAMA, "-p", "Hello", "-n", "1", "--temp", "0", "--logprobs", "20")
    first = plain["tokens"][0]
    moved = answer(
        "generate",
        LLAMA,
        "-p",
        "Hello",
        "-n",
        "1",
        "--temp",
        "0",
        "--logprobs",
        "20",
        "--logit-bias",
        f"{first}=-inf",
    )
    assert moved["tokens"][0] == plain["top_logprobs"][0][1]["token"]
    assert moved["top_logprobs"] == plain["top_logprobs"]
    assert moved["logprobs"][0] == plain["top_logprobs"][0][1]["logprob"]


def test_a_stop_text_ends_the_answer_before_it():
    whole = answer("generate", LLAMA, "-p", "Hello", *STEADY)["text"]
    stop = whole[5:8]
    got = answer("generate", LLAMA, "-p", "Hello", *STEADY, "--stop", "never there", "--stop", stop)
    assert got["text"] == whole[: whole.index(stop)]
    assert got["finish_reason"] == "stop"


def test_prompts_from_file_and_standard_input(tmp_path):
    path = tmp_path / "prompt"
    path.write_text("Hello\n")
    expected = answer("generate", LLAMA, "-p", "Hello\n", *STEADY)["tokens"]
    assert answer("generate", LLAMA, "-f", path, *STEADY)["tokens"] == expected
    assert answer("generate", LLAMA, "-p", "-", *STEADY, stdin="Hello\n")["tokens"] == expected
    assert answer("generate", LLAMA, *STEADY, stdin="Hello\n")["tokens"] == expected
    assert "standard input is empty" in refusal(USAGE, "generate", LLAMA)


def shown_on_a_terminal(*args):
    """What a run writes to a terminal, as standard output and error."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([JITNEY, *map(str, args)], stdin=subprocess.DEVNULL, stdout=theirs,
                             stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    child.wait(60)
    return shown


def test_an_answer_cannot_control_the_terminal(tmp_path):
    escape = out("tokenize", LLAMA, stdin=b"\x1b").decode().strip()
    always = ["-p", "Hello", "-n", "3", "--logit-bias", f"{escape}=100"]
    assert out("generate", LLAMA, *always) == b"\x1b\x1b\x1b\n"
    assert shown_on_a_terminal("generate", LLAMA, *always) == b"\\x1b\\x1b\\x1b\r\n"
    error = shown_on_a_terminal("generate", tmp_path / "\x1b[2Jnone.gguf", "-p", "x")
    assert b"[2Jnone" in error and b"\x1b" not in error


def test_bad_utf8_in_a_prompt_is_replaced(tmp_path):
    path = tmp_path / "prompt"
    path.write_bytes(b"a\xff\xe2\x82z")
    got = answer("generate", LLAMA, "-f", path, *STEADY)
    same = answer("generate", LLAMA, "-p", "a\ufffd\ufffdz", *STEADY)
    assert got["tokens"] == same["tokens"]


def test_a_prompt_longer_than_the_context_says_both_numbers():
    ids = out("tokenize", LLAMA, stdin=LONG * 3).split()
    text = refusal(BAD, "generate", LLAMA, "-p", LONG * 3, "--ctx", "50")
    assert f" {len(ids)} " in text and " 50" in text
    refusal(BAD, "generate", LLAMA, "-p", LONG * 40)


def test_an_answer_ends_where_the_context_ends():
    got = answer("generate", LLAMA, "-p", "Hello", "-n", "100", "--ignore-eos", "--ctx", "20")
    assert got["finish_reason"] == "length"
    assert got["usage"]["prompt_tokens"] + got["usage"]["completion_tokens"] <= 21


def test_a_prompt_that_fills_the_context_gives_one_token():
    tokens = answer("generate", LLAMA, "-p", "Hello", "-n", "0")["usage"]["prompt_tokens"]
    got = answer("generate", LLAMA, "-p", "Hello", "--ignore-eos", "--ctx", str(tokens))
    assert (len(got["tokens"]), got["finish_reason"]) == (1, "length")
    refusal(BAD, "generate", LLAMA, "-p", "Hello", "--ctx", str(tokens - 1))


def test_no_tokens_is_a_fine_answer():
    got = answer("generate", LLAMA, "-p", "Hello", "-n", "0")
    assert got["text"] == "" and got["tokens"] == [] and got["finish_reason"] == "length"


def test_chat_goes_through_the_template(tmp_path):
    model = talking_model(tmp_path / "m")
    got = answer("generate", model, "--chat", "--system", "S", "-p", "U", *STEADY)
    same = answer("generate", LLAMA, "-p", "<|system|>S\n<|user|>U\n<|assistant|>", *STEADY)
    assert got["tokens"] == same["tokens"]
    assert "no chat template" in refusal(BAD, "generate", LLAMA, "--chat", "-p", "U")


def test_an_encoder_writes_no_text():
    assert "jitney embed" in refusal(BAD, "generate", GOLDEN / "bert", "-p", "x")
    assert "jitney embed" in refusal(BAD, "chat", GOLDEN / "bert")


def test_a_bias_outside_the_vocabulary_is_refused():
    assert "999" in refusal(BAD, "generate", LLAMA, "-p", "x", "--logit-bias", "999=1")


def test_verbose_reports_on_standard_error():
    code, stdout, stderr = run(
        "generate", LLAMA, "-p", "a", "-n", "3", "-v", "--ignore-eos", "--seed", "1"
    )
    assert code == 0 and b"3 tokens" in stderr
    assert stdout == out("generate", LLAMA, "-p", "a", "-n", "3", "--ignore-eos", "--seed", "1")


# ---- perplexity ----


def log_softmax_at(row, token):
    top = max(row)
    return row[token] - top - math.log(sum(math.exp(x - top) for x in row))


def test_perplexity_is_that_of_the_dumped_logits(tmp_path):
    text = tmp_path / "text"
    text.write_text(LONG * 4)
    ids = [int(i) for i in out("tokenize", LLAMA, "--no-special", stdin=LONG * 4).split()]
    dump = tmp_path / "rows"
    got = answer(
        "perplexity", "-m", LLAMA, "-f", text, "-c", "32", "--chunks", "3", "--dump-logits", dump
    )
    assert set(got) == {"perplexity", "tokens", "chunks"}
    assert got["chunks"] == 3 and got["tokens"] == 3 * 15
    data = dump.read_bytes()
    rows, vocab = struct.unpack_from("<ii", data)
    assert (rows, vocab) == (45, 288)
    loss = 0.0
    for r in range(rows):
        row = struct.unpack_from(f"<{vocab}f", data, 8 + r * vocab * 4)
        window, place = divmod(r, 15)
        loss -= log_softmax_at(row, ids[window * 32 + 16 + place + 1])
    assert got["perplexity"] == pytest.approx(math.exp(loss / rows), rel=1e-7)


def test_perplexity_refuses_what_it_cannot_score(tmp_path):
    text = tmp_path / "text"
    text.write_text("short")
    message = refusal(BAD, "perplexity", LLAMA, "-f", text)
    assert " 512" in message
    text.write_text(LONG * 4)
    refusal(
        CREATE, "perplexity", LLAMA, "-f", text, "-c", "16", "--dump-logits", "/no/such/folder/x"
    )
    refusal(BAD, "perplexity", GOLDEN / "bert", "-f", text, "-c", "16")


def test_a_dump_that_cannot_be_finished_is_told(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    text = tmp_path / "text"
    text.write_text(LONG * 4)
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    assert "No space" in refusal(
        74, "perplexity", LLAMA, "-f", text, "-c", "16", "--dump-logits", link
    )


# ---- embed ----


def test_embed_gives_a_vector_per_text():
    lines = (
        out("embed", "-m", GOLDEN / "bert", "-0", stdin="one\0two three\0one").decode().splitlines()
    )
    vectors = [[float(x) for x in line.split(" ")] for line in lines]
    assert len(vectors) == 3 and vectors[0] == vectors[2] != vectors[1]
    got = answer("embed", GOLDEN / "bert", "-0", stdin="one\0two three\0one")
    assert got["embeddings"] == vectors and got["dims"] == len(vectors[0])
    assert sum(x * x for x in vectors[0]) == pytest.approx(1, abs=1e-5)


def test_embed_of_one_text_is_one_line():
    stdout = out("embed", GOLDEN / "bert", stdin="two\nlines\n")
    assert stdout.count(b"\n") == 1


# ---- inspect ----


def test_inspect_json_tells_the_shape():
    got = json.loads(out("inspect", LLAMA, "--json", "--tensors", "--meta"))
    assert (got["architecture"], got["layers"], got["width"], got["vocabulary"]) == (
        "llama",
        2,
        32,
        288,
    )
    assert got["runs"] is True and got["chat_template"] is False
    assert len(got["tensors"]) == got["tensor_count"]
    assert sum(t["bytes"] for t in got["tensors"]) == got["bytes"]
    assert sum(t["tensors"] for t in got["types"].values()) == got["tensor_count"]
    assert got["meta"]["model_type"].strip('"') == "llama"


def test_inspect_graph_prints_and_draws(tmp_path):
    svg = tmp_path / "graph.svg"
    for model in (LLAMA, GOLDEN / "bert", GOLDEN / "mixtral"):
        text = out("inspect", model, "--graph", "--svg", svg)
        assert text.count(b"\n") > 10
        drawing = svg.read_text()
        assert drawing.startswith("<svg") or drawing.startswith("<?xml")
    refusal(CREATE, "inspect", LLAMA, "--graph", "--svg", "/no/such/folder/x.svg")


@pytest.mark.parametrize("model", sorted(p.name for p in GOLDEN.iterdir() if p.is_dir()))
def test_inspect_reads_every_golden_model(model):
    folder = GOLDEN / model
    paths = [
        p for p in (folder, folder / "model.gguf") if (p / "config.json").exists() or p.is_file()
    ]
    assert paths
    for path in paths:
        assert json.loads(out("inspect", path, "--json"))["architecture"] != "unknown"


def test_hash_of_nothing_else():
    """The hash is over logits alone: --json or not, the same digest."""
    code, _, stderr = run("generate", LLAMA, "-p", "a", "-n", "2", "--temp", "0", "--hash-logits")
    digest = answer("generate", LLAMA, "-p", "a", "-n", "2", "--temp", "0", "--hash-logits")[
        "logits_sha256"
    ]
    assert code == 0 and stderr.decode().strip() == f"logits_sha256 {digest}"
    assert digest != hashlib.sha256(b"").hexdigest()


def test_usage_of_flags_that_need_others():
    refusal(USAGE, "generate", LLAMA, "-p", "x", "--logprobs", "21")
    foreign = "avx2" if platform.machine() == "aarch64" else "neon"
    assert "this processor can run: " in refusal(USAGE, "generate", LLAMA, "-p", "x", "--isa", foreign)


def test_a_schema_a_regex_and_a_grammar_are_kept(model, tmp_path):
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "boolean"}},
              "required": ["a", "b"], "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "rules.gbnf").write_text('root ::= "[" ("1" | "2"){3} "]"\n')
    (tmp_path / "rules.lark").write_text('start: "<" /[ab]{4}/ ">"\n')
    steady = ["-p", "Hello", "-n", "60", "--seed", "7"]
    got = answer("generate", model, *steady, "--schema", tmp_path / "schema.json")
    assert got["finish_reason"] == "stop"
    value = json.loads(got["text"])
    assert list(value) == ["a", "b"] and value["a"] in ("x", "yy") and value["b"] in (True, False)
    got = answer("generate", model, *steady, "--regex", "(left|right) [0-9]{2}")
    assert got["text"][-3:-2] == " " and got["text"].split(" ")[0] in ("left", "right")
    got = answer("generate", model, *steady, "--grammar", tmp_path / "rules.gbnf")
    assert got["text"][0] + got["text"][4] == "[]" and set(got["text"][1:4]) <= {"1", "2"}
    got = answer("generate", model, *steady, "--grammar", tmp_path / "rules.lark")
    assert got["text"][0] + got["text"][5] == "<>" and set(got["text"][1:5]) <= {"a", "b"}


def test_a_grammar_that_is_cut_says_length_and_a_wrong_one_is_refused(tmp_path):
    got = answer("generate", LLAMA, "-p", "A", "-n", "3", "--regex", "[a-z]{99}")
    assert got["finish_reason"] == "length"
    (tmp_path / "schema.json").write_text('{"properties": {"a": {"type": "strin"}}}')
    says = refusal(BAD, "generate", LLAMA, "-p", "A", "--schema", tmp_path / "schema.json")
    assert "at #/properties/a: type: expected" in says
    refusal(USAGE, "generate", LLAMA, "-p", "A", "--regex", "a", "--grammar", "b")
