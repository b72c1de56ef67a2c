"""Goal:   `jitney profile` keeps the contract that scripts rely on: fields, sums, flags, errors.
Method: the real program on tiny models of the tree, and on SmolLM2 where it is cached."""

import pytest

from cli_lib import BAD, GOLDEN, MISSING, USAGE, answer, out, refusal, run

LLAMA = GOLDEN / "llama"
QUICK = ["--steps", "8", "--ctx-fill", "40", "--batch", "3", "--prompt", "20"]
BOUNDS = {"none", "memory", "cache", "int8", "f32"}


def check_step(step, cap):
    """All that holds for every profile; `cap`: no op is more than so many times its ceiling."""
    parts = step["parts"]
    known = sum(p["us"] for p in parts) + step["around_us"] + step["sampling_us"]
    assert known + step["interrupted_us"] == pytest.approx(step["step_us"], rel=1e-3)
    assert known <= 1.1 * step["step_us"]
    assert 0 < step["step_us"] <= step["median_us"]
    assert 0 < step["share"] < cap
    tokens = step["sequences"] * step["rows"]
    assert step["tokens_per_second"] == pytest.approx(tokens * 1e6 / step["step_us"], rel=1e-3)
    assert step["ceiling_tokens_per_second"] == pytest.approx(tokens * 1e6 / step["least_us"], rel=1e-3)
    assert step["wait_us"] == pytest.approx(sum(p["wait_us"] for p in parts), rel=1e-3)
    assert len({p["op"] for p in parts}) == len(parts)
    for p in parts:
        assert p["calls"] >= 1 and p["bound"] in BOUNDS
        assert 0 <= p["wait_us"] <= p["us"]
        assert 0 <= p["share"] < cap


def test_three_kinds_of_step_with_all_fields():
    said = answer("profile", LLAMA, *QUICK, "--threads", 1)
    assert said["threads"] == 1 and said["device"].startswith("cpu-") and said["kv_type"] == "f16"
    assert said["ceilings"]["memory_gbs"] > 0 and said["ceilings"]["cache_gbs"] > 0
    shapes = [(s["kind"], s["sequences"], s["rows"], s["context"]) for s in said["steps"]]
    assert shapes == [("decode", 1, 1, 40), ("batch", 3, 1, 40), ("prompt", 1, 20, 0)]
    for step in said["steps"]:
        check_step(step, 50)  # its weights lie in the nearest cache
        names = " ".join(p["op"] for p in step["parts"])
        for word in ("embed", "norm", "matmul", "rope", "kv_write f16", "attention f16", "head"):
            assert word in names


@pytest.mark.parametrize("kv_type", ["int8", "fp8"])
def test_flags_choose_the_steps(kv_type):
    said = answer("profile", LLAMA, "--steps", 4, "--batch", 0, "--prompt", 0, "--ctx-fill", 0,
                  "--kv-type", kv_type, "--isa", "portable")
    assert [s["kind"] for s in said["steps"]] == ["decode"]
    assert said["device"] == "cpu-portable"
    assert said["kv_type"] == kv_type
    assert any(p["op"].startswith(f"attention {kv_type}") for p in said["steps"][0]["parts"])


def test_tables_end_with_the_limits_of_the_machine():
    text = out("profile", LLAMA, *QUICK).decode()
    assert text.count("limit of the machine") == 3
    assert text.count("\ntotal ") == 3
    assert "ceilings: memory" in text


@pytest.mark.parametrize("name", ["gemma2", "qwen3moe", "llama-q4_k/model.gguf"])
def test_other_architectures_and_formats(name):
    for step in answer("profile", GOLDEN / name, *QUICK)["steps"]:
        check_step(step, 50)


def test_what_cannot_be_profiled_is_refused():
    assert "embedding model" in refusal(BAD, "profile", GOLDEN / "bert")
    refusal(MISSING, "profile", "no/such/model.gguf")
    refusal(USAGE, "profile", LLAMA, "--batch", "2000")
    refusal(USAGE, "profile", LLAMA, "--steps", "1")
    assert "the model's context, 128" in refusal(USAGE, "profile", LLAMA, "--ctx-fill", "128")
    refusal(USAGE, "profile")


@pytest.mark.skipif(run("inspect", "smollm2")[0] != 0, reason="smollm2 is not in the cache")
def test_smollm2_reads_its_weights_once_a_step():
    said = answer("profile", "smollm2", "--steps", 8, "--batch", 4, "--prompt", 64)
    for step in said["steps"]:
        check_step(step, 10)
    decode = {p["op"]: p for p in said["steps"][0]["parts"]}
    head = decode["head token_embd Q8_0"]
    assert head["calls"] == 1 and head["memory_bytes"] == pytest.approx(30.08e6, rel=0.02)
    layers = sum(p["memory_bytes"] for name, p in decode.items() if name.startswith("matmul"))
    assert layers == pytest.approx(66.36e6, rel=0.02)


@pytest.mark.parametrize("command", [["profile", LLAMA, *QUICK], ["generate", LLAMA, "-p", "a"]])
def test_fp8_weights_need_a_gpu(command):
    said = refusal(BAD, *command, "--weights", "fp8", "--device", "cpu")
    assert "--weights fp8 needs an NVIDIA H100 or H200" in said
    assert "--weights auto" in said
