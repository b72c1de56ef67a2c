"""Goal:   invalid command lines, damaged models and closed pipes give the documented exit code and
        one message.
Method: the real program with each error in turn; models are damaged copies of golden ones."""

import os
import random
import re
import subprocess
import sys

import pytest

from cli_lib import BAD, GOLDEN, IO, JITNEY, MISSING, ROOT, USAGE, out, refusal, run

LLAMA = GOLDEN / "llama"
GGUF = GOLDEN / "llama-q4_1" / "model.gguf"
MODEL_COMMANDS = {
    "chat": [],
    "generate": ["-p", "x"],
    "embed": [],
    "perplexity": ["-f", os.devnull],
    "inspect": [],
    "tokenize": [],
    "detokenize": [],
    "template": [],
}


def commands():
    listing = out("--help").decode().split("commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listing.splitlines()]


def test_version():
    assert re.fullmatch(rb"jitney \d+\.\d+\.\d+\n", out("--version"))
    assert out("-V") == out("--version")


def test_every_command_has_help():
    assert set(MODEL_COMMANDS) <= set(commands())
    for command in commands():
        text = out(command, "--help")
        assert text.startswith(b"usage: jitney " + command.encode())
        assert out("help", command) == text
        assert out(command, "-h") == text


def test_documents_say_what_help_says():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/make_cli_docs.py", "--check", JITNEY],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_man_page_names_every_flag():
    page = (ROOT / "docs/jitney.1").read_text().replace("\\-", "-")
    for command in commands():
        for flag in re.findall(
            r"^  .{3} (--[\w-]+)", out(command, "--help").decode(), re.MULTILINE
        ):
            assert re.search(rf"\\fB{flag}\\fR", page), (command, flag)


@pytest.mark.parametrize(
    "word, meant",
    [
        ("genrate", "generate"),
        ("tokenise", "tokenize"),
        ("lst", "list"),
        ("--hlep", "--help"),
        ("--versoin", "--version"),
        ("perplexty", "perplexity"),
    ],
)
def test_unknown_command_gets_a_suggestion(word, meant):
    assert f'did you mean "{meant}"?' in refusal(USAGE, word)


def test_unknown_command_without_a_likely_meaning():
    assert "--help" in refusal(USAGE, "zzzzzz")
    assert "--help" in refusal(USAGE)


@pytest.mark.parametrize(
    "args, meant",
    [
        (("generate", "--promt", "x"), "--prompt"),
        (("tokenize", "--ad-special"), "--add-special"),
        (("perplexity", "--jsn"), "--json"),
        (("generate", "--thread", "2"), "--threads"),
        (("inspect", "--grph"), "--graph"),
    ],
)
def test_unknown_flag_gets_a_suggestion(args, meant):
    assert f"did you mean {meant}?" in refusal(USAGE, *args)


@pytest.mark.parametrize(
    "args",
    [
        ("generate", "m", "-p", "x", "--temp", "-1"),
        ("generate", "m", "-p", "x", "--temp", "nan"),
        ("generate", "m", "-p", "x", "-n", "1.5"),
        ("generate", "m", "-p", "x", "--threads", "0"),
        ("generate", "m", "-p", "x", "--top-p", "2"),
        ("generate", "m", "-p", "x", "--seed", "-3"),
        ("generate", "m", "-p", "x", "--kv-type", "q8"),
        ("generate", "m", "-p", "x", "--logit-bias", "5"),
        ("generate", "m", "-p", "x", "--logit-bias", "5=nan"),
        ("generate", "m"),
        ("generate", "m", "-p", "x", "-f", "y"),
        ("generate", "m", "-p", "x", "--stop", ""),
        ("generate", "m", "-p", "x", "--system", "s"),
        ("generate", "m", "-p"),
        ("perplexity", "m"),
        ("generate",),
        ("inspect", "m", "--svg", "x"),
        ("tokenize", "m", "more"),
        ("perplexity", "m", "-f", "x", "-c", "3"),
    ],
)
def test_usage_errors(args):
    refusal(USAGE, *args)


@pytest.mark.parametrize("command", MODEL_COMMANDS)
def test_missing_model_says_how_to_get_one(command, tmp_path):
    env = {"JITNEY_CACHE": str(tmp_path)}
    extra = MODEL_COMMANDS[command]
    for name in ("smollm2", "./none.gguf", "no/such/folder"):
        text = refusal(MISSING, command, "-m", name, *extra, env=env, stdin="{}")
        assert "jitney pull" in text or "none.gguf" in text or "folder" in text
    assert "jitney pull smollm2" in refusal(
        MISSING, command, "smollm2", *extra, env=env, stdin="{}"
    )


@pytest.mark.parametrize("command", MODEL_COMMANDS)
def test_damaged_model(command, tmp_path):
    whole = GGUF.read_bytes()
    path = tmp_path / "damaged.gguf"
    for length in (0, 3, 100, len(whole) // 2):
        path.write_bytes(whole[:length])
        text = refusal(BAD, command, "-m", path, *MODEL_COMMANDS[command], stdin="{}")
        assert "damaged.gguf" in text
    path.write_bytes(b"not a model at all" * 100)
    assert "damaged.gguf" in refusal(BAD, command, path, *MODEL_COMMANDS[command], stdin="{}")


def test_damaged_models_are_refused_or_answered_and_never_crash(tmp_path):
    whole = GGUF.read_bytes()
    path = tmp_path / "mutated.gguf"
    rng = random.Random(3)
    for _ in range(60):
        data = bytearray(whole)
        place = rng.randrange(len(data) if rng.random() < 0.3 else 4096)
        data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        code, stdout, stderr = run("generate", path, "-p", "hi", "-n", "2", "--temp", "0")
        assert code in (0, BAD), (place, code, stderr)
        if code == BAD:
            assert stderr.count(b"\n") == 1 and stderr.startswith(b"jitney: "), stderr


def test_a_closed_pipe_ends_the_program_without_a_message():
    for args in (
        ("inspect", str(LLAMA), "--tensors", "--meta"),
        ("generate", str(LLAMA), "-p", "a", "-n", "100", "--ignore-eos"),
    ):
        read_end, write_end = os.pipe()
        os.close(read_end)
        done = subprocess.run(
            [JITNEY, *args],
            stdout=write_end,
            stderr=subprocess.PIPE,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        os.close(write_end)
        assert done.returncode == IO
        assert done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    "args", [("--help",), ("generate", str(LLAMA), "-p", "a", "-n", "3"), ("tokenize", str(LLAMA))]
)
def test_a_full_disk_is_reported(args):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [JITNEY, *args],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
    assert done.returncode == IO
    assert done.stderr == b"jitney: standard output: No space left on device\n"
