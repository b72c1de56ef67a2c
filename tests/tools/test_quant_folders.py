"""What `jitney quantize` writes as a folder, beside the libraries whose formats these are.

    python -m pytest -s tests/tools/test_quant_folders.py

bitsandbytes' functions for the CPU must give the same bytes for NF4. transformers must load every
folder whose library is installed, and compute what jitney computes. Each test is skipped without
its library.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from cli_lib import GOLDEN, out  # noqa: E402
from folder_lib import config_of, nf4_state, read_tensors  # noqa: E402
from test_cli_quantize_folder import FLAGS, quantize, write_source  # noqa: E402

# What loading a kind of folder needs; transformers names it if it is missing.
NEEDS = {"gptq": "gptqmodel", "awq": "gptqmodel", "nf4": "bitsandbytes",
         "int8": "compressed_tensors"}
# Root mean square of the difference of the logits, which have a deviation of about 2. jitney
# rounds activations to 8 bits for each 32, W8A8 in transformers for each token.
FAR = {"gptq": 0.06, "awq": 0.06, "nf4": 0.06, "int8": 0.08}


def test_nf4_has_the_bytes_of_bitsandbytes(tmp_path):
    """But for the mean of the scales, which torch adds up in an order that depends on the machine:
    with ours, what is made of it has the same bytes."""
    torch = pytest.importorskip("torch")
    bnb = pytest.importorskip("bitsandbytes.functional")

    def spread(tensors):
        rng = np.random.default_rng(7)
        name = "model.layers.0.mlp.up_proj.weight"
        tensors[name] *= np.exp(rng.standard_normal(tensors[name].shape)).astype(np.float32)
        tensors[name][:3] = 0
        tensors["model.layers.0.mlp.down_proj.weight"] *= 1e-30

    source = write_source(tmp_path / "source", spread, hidden_size=224, intermediate_size=608,
                          num_attention_heads=4)
    quantize(source, tmp_path / "q", "nf4")
    before, after = read_tensors(source), read_tensors(tmp_path / "q")
    same_mean = count = 0
    for name in (n.removesuffix(".quant_map") for n in after if n.endswith(".quant_map")
                 and not n.endswith("nested_quant_map")):
        codes, state = bnb.quantize_4bit(torch.from_numpy(before[name].copy()), quant_type="nf4")
        assert np.array_equal(codes.numpy(), after[name]), name
        ours = nf4_state(after, name)
        offset = np.float32(ours["nested_offset"])
        same_mean += float(state.absmax.mean()) == offset
        count += 1
        assert abs(float(state.absmax.mean()) / offset - 1) < 1e-6
        nested, outer = bnb.quantize_blockwise(state.absmax - torch.tensor(offset), blocksize=256)
        assert np.array_equal(nested.numpy(), after[name + ".absmax"]), name
        assert np.array_equal(outer.absmax.numpy(), after[name + ".nested_absmax"]), name
        assert np.array_equal(outer.code.numpy(), after[name + ".nested_quant_map"]), name
        assert np.array_equal(state.code.numpy(), after[name + ".quant_map"]), name
    assert count == 14
    print(f"\n{count} matrices; torch's mean has the same bits for {same_mean}")


def jitney_logits(folder, text, tokens):
    """(ids, logits of those from the middle on)"""
    dump = folder.parent / (folder.name + ".logits")
    out("perplexity", folder, "-f", text, "--ctx", tokens, "--chunks", 1, "--dump-logits", dump)
    ids = list(map(int, out("tokenize", folder, stdin=text.read_bytes()).split()))[:tokens]
    raw = dump.read_bytes()
    rows, cols = np.frombuffer(raw[:8], "<i4")
    return ids, np.frombuffer(raw[8:], np.float32).reshape(rows, cols)


@pytest.mark.parametrize("kind", FLAGS)
def test_transformers_computes_what_jitney_computes(tmp_path, kind, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip(NEEDS[kind])
    source = write_source(tmp_path / "source", hidden_size=128, intermediate_size=256)
    quantize(source, tmp_path / "q", kind)
    text = tmp_path / "text"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 20)
    ids, ours = jitney_logits(tmp_path / "q", text, 32)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "q", device_map="cpu")
    module = type(model.model.layers[0].mlp.up_proj).__name__
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0].float().numpy()
    far = np.sqrt(np.mean((theirs[16:16 + len(ours)] - ours) ** 2))
    print(f"\n{kind}: {module}, logits {far:.4f} apart (deviation {ours.std():.2f})")
    assert far < FAR[kind]


def test_the_configs_are_json_with_the_method(tmp_path):
    for kind, flags in FLAGS.items():
        out("quantize", GOLDEN / "llama", tmp_path / kind, "--type", kind, *flags)
        methods = {"nf4": "bitsandbytes", "int8": "compressed-tensors"}
        assert config_of(tmp_path / kind)["quantization_config"]["quant_method"] == methods.get(
            kind, kind)
        json.loads((tmp_path / kind / "tokenizer.json").read_text())
