#!/usr/bin/env python3
"""Make tests/golden/heads: tiny draft heads and what they should compute.

    build/venv/bin/python tools/make_head_golden.py [--models FOLDER] [--out FOLDER]

Needs numpy alone: the weights are random, the target is the golden model `llama`, the outputs are
those of tools/goldens/llama_numpy.py in float64, which is compared with `transformers` first.
"""

import argparse
import json
import pathlib

import numpy as np

from goldens import foreign, golden_file, llama_numpy
from goldens.weights import head_weights, make_weights

TARGET = "llama"
LARGEST = 1e-4  # that a logit of the target may differ from that of `transformers`
HEADS = {
    "eagle": {"num_hidden_layers": 1, "num_key_value_heads": 2, "bias": True},
    "eagle-deep": {"num_hidden_layers": 2, "num_key_value_heads": 4, "bias": False},
}


def head_hidden(config, w, embedding, ids, hidden):
    """Row i is of the token ids[i] and the target's hidden state at the token before it."""
    x = np.concatenate([embedding[ids], hidden], axis=-1) @ w["fc.weight"].T + w.get("fc.bias", 0)
    for i in range(config["num_hidden_layers"]):
        x = llama_numpy.layer(config, w, f"layers.{i}.", x)
    return x


def in_float64(tensors):
    return {name: values.astype(np.float64) for name, values in tensors.items()}


def make_head(folder, config, target, prompts, hidden):
    tensors = head_weights(folder.name, config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    foreign.save(folder / "model.safetensors", tensors)
    w = in_float64(tensors)
    embedding = w.get("embed_tokens.weight", target["model.embed_tokens.weight"])
    shifted = [ids[1:] for ids in prompts]
    rows = [head_hidden(config, w, embedding, ids, h[:-1])
            for ids, h in zip(shifted, hidden, strict=True)]
    logits = [x @ target["lm_head.weight"].T for x in rows]
    golden_file.write(folder / "goldens.bin", shifted, logits)
    golden_file.write(folder / "goldens-hidden.bin", shifted, rows)
    golden_file.write(folder / "goldens-target.bin", prompts, hidden)
    spread = np.concatenate(logits).std()
    print(f"{folder.name:12} {sum(map(len, logits))} rows, logits have a spread of {spread:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("tests/golden/models"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/heads"))
    args = parser.parse_args()
    config = json.loads((args.models / TARGET / "config.json").read_text())
    prompts, wanted = golden_file.read(args.models / TARGET / "goldens.bin")
    target = in_float64(make_weights(TARGET, config))
    hidden = [llama_numpy.hidden(config, target, ids) for ids in prompts]
    for h, rows in zip(hidden, wanted, strict=True):
        worst = np.abs(h @ target["lm_head.weight"].T - rows).max()
        assert worst < LARGEST, worst
    for name, settings in HEADS.items():
        settings = {**config, **settings, "architectures": ["LlamaForCausalLMEagle"]}
        make_head(args.out / name, settings, target, prompts, hidden)


if __name__ == "__main__":
    main()
