"""Folders whose matrices are e4m3 with float scales, as other tools publish them.

The definition is that of the float32 model with the same numbers (docs/decisions/0027), so logits
are compared bit for bit with those of a folder that holds the decoded matrices as F32.
"""

import concurrent.futures
import json
import shutil
import sys

import gguf
import numpy as np
import pytest

from cli_lib import BAD, GOLDEN, ROOT, answer, out, refusal
from folder_lib import config_of
from server_lib import Server

sys.path.insert(0, str(ROOT / "tools"))
from goldens import foreign  # noqa: E402
from goldens.weights import make_weights  # noqa: E402

LAYOUTS = {
    "channel": foreign.Fp8("compressed-tensors", "channel", narrow=True),
    "static": foreign.Fp8("compressed-tensors", "tensor", static=True),
    "blocks": foreign.Fp8("compressed-tensors", (128, 128)),
    "deepseek": foreign.Fp8("fp8", (128, 128), narrow=True),
    "tensor": foreign.Fp8("fp8", "tensor"),
    "fbgemm": foreign.Fp8("fbgemm_fp8", "channel"),
    "modelopt": foreign.Fp8("modelopt", "tensor", static=True),
}
LLAMA = {"like": "llama", "hidden_size": 160, "intermediate_size": 288, "num_attention_heads": 4,
         "num_key_value_heads": 2, "num_hidden_layers": 2}
MOE = {"like": "qwen3moe", "hidden_size": 160, "moe_intermediate_size": 64, "head_dim": 32,
       "num_attention_heads": 4, "num_key_value_heads": 2}
PROMPT = "The quick brown fox jumps over the lazy dog, and then"


def write_pair(folder, layout, like, **config):
    """The same model twice: folder/fp8, and folder/f32 with what its matrices stand for."""
    config = {**config_of(GOLDEN / like), "vocab_size": 288, **config}
    stored, decoded = {}, {}
    for name, values in make_weights("fp8", config).items():
        stored[name] = decoded[name] = values
        if "_proj." in name:
            stem = name.removesuffix(".weight")
            del stored[name]
            parts, decoded[name] = layout.encode(stem, values.astype(np.float64), None)
            stored.update(parts)
    for kind, tensors in (("fp8", stored), ("f32", decoded)):
        own = {**config, "quantization_config": layout.config()} if kind == "fp8" else config
        (folder / kind).mkdir(parents=True)
        foreign.save(folder / kind / "model.safetensors", tensors)
        (folder / kind / "config.json").write_text(json.dumps(own))
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copy(GOLDEN / "llama" / name, folder / kind / name)
    return folder / "fp8", folder / "f32"


def logits_hash(model, *flags):
    got = answer("generate", model, "-p", PROMPT, "-n", 12, "--temp", 0, "--ignore-eos",
                 "--hash-logits", "--device", "cpu", *flags)
    return got["logits_sha256"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_are_those_of_the_decoded_matrices(tmp_path, layout):
    stored, decoded = write_pair(tmp_path, LAYOUTS[layout], **LLAMA)
    assert logits_hash(stored) == logits_hash(decoded)


@pytest.mark.parametrize("layout", ["channel", "deepseek", "tensor"])
def test_experts_are_read_too(tmp_path, layout):
    stored, decoded = write_pair(tmp_path, LAYOUTS[layout], **MOE)
    assert answer("inspect", stored)["experts"] == 5
    assert logits_hash(stored) == logits_hash(decoded)


def test_the_weights_stay_at_eight_bits(tmp_path):
    stored, decoded = write_pair(tmp_path, LAYOUTS["channel"], **LLAMA)
    text = out("inspect", stored, "--tensors").decode()
    assert "F8_E4M3 160 x 160  model.layers.0.self_attn.q_proj.weight" in text
    small, large = ((path / "model.safetensors").stat().st_size for path in (stored, decoded))
    assert small < 0.45 * large  # the embedding is float32 in both


def test_an_answer_is_the_same_alone_and_in_a_batch(tmp_path):
    stored, _ = write_pair(tmp_path, LAYOUTS["deepseek"], **LLAMA)
    prompts = [PROMPT[:n] for n in (5, 11, 17, 30, 41, len(PROMPT))]

    def ask(server, prompt):
        body = {"model": "fp8", "prompt": prompt, "max_tokens": 24, "temperature": 0,
                "logprobs": 1}
        reply = server.post("/v1/completions", body)
        assert reply.status == 200, reply.text
        choice = reply.json["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]

    with Server(stored, "--served-model-name", "fp8", "--device", "cpu") as server:
        alone = [ask(server, prompt) for prompt in prompts]
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            together = list(pool.map(lambda prompt: ask(server, prompt), prompts))
    assert alone == together


def test_quantizing_again_needs_leave(tmp_path):
    stored, decoded = write_pair(tmp_path, LAYOUTS["channel"], **LLAMA)
    for target in ("m.gguf", "folder"):
        kind = "Q8_0" if target == "m.gguf" else "int8"
        said = refusal(BAD, "quantize", stored, tmp_path / target, "--type", kind)
        assert "is quantised already (F8_E4M3)" in said and "--allow-requantize" in said
        out("quantize", stored, tmp_path / target, "--type", kind, "--allow-requantize")
        assert logits_hash(tmp_path / target)
    out("quantize", stored, tmp_path / "a.gguf", "--type", "F32", "--allow-requantize")
    out("quantize", decoded, tmp_path / "b.gguf", "--type", "F32")
    ours, theirs = ({t.name: t.data.tobytes() for t in gguf.GGUFReader(str(path)).tensors}
                    for path in (tmp_path / "a.gguf", tmp_path / "b.gguf"))
    assert ours == theirs and "blk.0.attn_q.weight" in ours


@pytest.mark.parametrize("key, value, says", [
    ("weight_block_size", [128, 64], "weight_block_size is [128, 64], expected rows and a multiple"),
    ("fmt", "e5m2", 'fmt is "e5m2", expected e4m3'),
    ("quant_method", "mxfp8", 'quant_method "mxfp8" is not read'),
])
def test_what_is_not_read_is_named(tmp_path, key, value, says):
    stored, _ = write_pair(tmp_path, LAYOUTS["deepseek"], **LLAMA)
    config = config_of(stored)
    config["quantization_config"][key] = value
    (stored / "config.json").write_text(json.dumps(config))
    assert says in refusal(BAD, "generate", stored, "-p", "x", "--device", "cpu")
    assert f"does not run  {stored}: " in out("inspect", stored).decode()
