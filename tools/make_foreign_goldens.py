#!/usr/bin/env python3
"""Make the folders of tests/golden/models that other tools quantised: GPTQ, AWQ and their like.

    build/venv/bin/python tools/make_foreign_goldens.py [--out tests/golden/models] [--only NAME ...]

Needs numpy alone: the weights are random, the layouts are those of tools/goldens/foreign.py, and
the outputs are those of the decoded weights in tools/goldens/llama_numpy.py. The same version of
numpy gives the same files.
"""

import argparse
import hashlib
import json
import pathlib
import shutil

import numpy as np

from goldens import foreign, golden_file, llama_numpy
from goldens.specs import llama_config
from goldens.weights import make_prompts, make_weights

# name: layout, width, width of the feed-forward
MODELS = {
    "llama-gptq": (foreign.Gptq(), 64, 96),
    "llama-gptq-v2": (foreign.Gptq(group=64, version=2), 128, 192),
    "llama-gptq-128": (foreign.Gptq(group=128), 128, 256),
    "llama-gptq-whole": (foreign.Gptq(group=-1, symmetric=True), 160, 224),
    "llama-gptq-order": (foreign.Gptq(order=True), 96, 160),
    "llama-gptq-order-v2": (foreign.Gptq(group=64, version=2, order=True, symmetric=True), 64, 128),
    "llama-gptq-8": (foreign.Gptq(bits=8), 64, 96),
    "llama-gptq-8-whole": (foreign.Gptq(bits=8, group=-1, symmetric=True), 96, 160),
    "llama-awq": (foreign.Awq(), 64, 96),
    "llama-awq-64": (foreign.Awq(group=64), 128, 192),
    "llama-w4a16": (foreign.Packed(), 64, 96),
    "llama-w4a16-zeros": (foreign.Packed(symmetric=False, group=64), 128, 192),
    "llama-w4a16-order": (foreign.Packed(symmetric=False, order=True), 96, 160),
    "llama-w4a16-8": (foreign.Packed(bits=8, group=-1), 64, 96),
    "llama-w8a8": (foreign.Bytes(), 96, 160),
    "llama-w8a8-32": (foreign.Bytes(group=32), 64, 96),
    "llama-int8": (foreign.Int8(), 64, 96),
    "llama-nf4": (foreign.Table(), 64, 96),
    "llama-nf4-double": (foreign.Table(double=True), 128, 192),
    "llama-fp4": (foreign.Table("fp4"), 96, 160),
    "llama-fp8": (foreign.Fp8("compressed-tensors", "channel", narrow=True), 96, 160),
    "llama-fp8-static": (foreign.Fp8("compressed-tensors", "tensor", static=True), 64, 96),
    "llama-fp8-blocks": (foreign.Fp8("compressed-tensors", (128, 128), narrow=True), 160, 160),
    "llama-fp8-deepseek": (foreign.Fp8("fp8", (128, 128)), 160, 160),
    "llama-fp8-tensor": (foreign.Fp8("fp8", "tensor", static=True), 64, 96),
    "llama-fp8-fbgemm": (foreign.Fp8("fbgemm_fp8", "channel"), 64, 96),
    "llama-fp8-modelopt": (foreign.Fp8("modelopt", "tensor", static=True), 64, 96),
}


def seed_of(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def is_quantised(name):
    return "proj" in name


def put_hashes(folder, decoded):
    """decoded.json: of each matrix the SHA-256 of its float32 values, row by row."""
    text = json.dumps({t: hashlib.sha256(v.astype("<f4").tobytes()).hexdigest()
                       for t, v in decoded.items()}, indent=2)
    (folder / "decoded.json").write_text(text + "\n")


def make_model(out, name):
    layout, hidden, inner = MODELS[name]
    config = llama_config(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=1,
                          tie_word_embeddings=True)
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tensors, decoded, exact = {}, {}, {}
    for tensor, values in make_weights(name, config).items():
        if is_quantised(tensor):
            rng = np.random.Generator(np.random.Philox(seed_of(f"{name}/{tensor}/order")))
            stem = tensor.removesuffix(".weight")
            parts, decoded[tensor] = layout.encode(stem, values.astype(np.float64), rng)
            tensors.update(parts)
            exact[tensor] = getattr(layout, "whole", decoded[tensor])
        else:
            tensors[tensor] = values.astype(np.float32)
            decoded[tensor] = tensors[tensor]
    foreign.save(folder / "model.safetensors", tensors)
    text = json.dumps({**config, "quantization_config": layout.config()}, indent=2)
    (folder / "config.json").write_text(text + "\n")
    put_hashes(folder, exact)
    prompts = make_prompts(name, config["vocab_size"], (12, 24))
    golden_file.write(folder / "goldens.bin", prompts, llama_numpy.logits(config, decoded, prompts))


def check_reference(models):
    """The forward pass here against that of transformers, which made the goldens of `llama`."""
    folder = models / "llama"
    config = json.loads((folder / "config.json").read_text())
    prompts, wanted = golden_file.read(folder / "goldens.bin")
    got = llama_numpy.logits(config, make_weights("llama", config), prompts)
    worst = max(np.abs(a - b).max() for a, b in zip(got, wanted, strict=True))
    assert worst < 1e-4, worst
    print(f"llama: {worst:.1e} from transformers")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/models"))
    parser.add_argument("--only", nargs="*", default=None, help="names of models")
    args = parser.parse_args()
    check_reference(pathlib.Path("tests/golden/models"))
    for name in MODELS:
        if args.only is None or name in args.only:
            make_model(args.out, name)
            size = sum(p.stat().st_size for p in (args.out / name).iterdir())
            print(f"{name:20} {size // 1024:4} KiB")


if __name__ == "__main__":
    main()
