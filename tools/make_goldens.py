#!/usr/bin/env python3
"""Make tests/golden/models: tiny models of every architecture and what they should compute.

    python tools/make_goldens.py --out tests/golden/models [--only NAME ...]
    python tools/make_goldens.py --out tests/golden/models --minilm FOLDER

Needs the packages of tools/goldens-requirements.txt. The same versions give the same files.
tests/golden/README.md describes what is written.
"""

import argparse
import json
import pathlib
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers.utils import logging

from goldens import golden_file, gguf_export, quantised, reference, tokenizers_tiny
from goldens.specs import SPECS
from goldens.weights import make_prompts, make_weights

_TORCH = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def put_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def round_to(weights, dtype):
    """The weights as the file holds them, back in float32."""
    return {name: torch.from_numpy(values).to(_TORCH[dtype]).float().numpy()
            for name, values in weights.items()}


def make_tokenizer(spec):
    if spec.tokenizer == "bpe":
        return tokenizers_tiny.bpe(spec.config["vocab_size"])
    if spec.tokenizer == "wordpiece":
        return tokenizers_tiny.wordpiece(spec.config["vocab_size"])
    return None


def write_tokenizer(folder, spec, tokenizer):
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str())) + "\n")
    if spec.tokenizer == "bpe":
        put_json(folder / "tokenizer_config.json", {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
            "unk_token": "<unk>", "add_bos_token": False, "add_eos_token": False})
    else:
        put_json(folder / "tokenizer_config.json", {
            "tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]",
            "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]",
            "do_lower_case": True})


def write_pooling(folder, spec):
    """The folder layout of sentence-transformers."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if spec.pooling == "mean":
        modules.append(("2_Normalize", "Normalize"))
    put_json(folder / "modules.json", [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)])
    put_json(folder / "1_Pooling" / "config.json", {
        "word_embedding_dimension": spec.config["hidden_size"],
        "pooling_mode_cls_token": spec.pooling == "cls",
        "pooling_mode_mean_tokens": spec.pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False})


def write_folder(folder, spec, weights, tokenizer):
    put_json(folder / "config.json", spec.config)
    if not spec.pooling:
        put_json(folder / "generation_config.json", {
            "bos_token_id": spec.config["bos_token_id"],
            "eos_token_id": spec.config["eos_token_id"]})
    tensors = {name: torch.from_numpy(values).to(_TORCH[spec.dtype]).contiguous()
               for name, values in weights.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if tokenizer:
        write_tokenizer(folder, spec, tokenizer)
    if spec.pooling:
        write_pooling(folder, spec)


def write_goldens(folder, spec):
    model = reference.load(folder, encoder=bool(spec.pooling))
    files = {"goldens.bin": spec.lengths} | spec.extra
    for name, lengths in files.items():
        prompts = make_prompts(spec.name, spec.config["vocab_size"], lengths)
        if spec.pooling:
            rows = reference.hidden(model, prompts)
            golden_file.write(folder / "goldens-hidden.bin", prompts, rows)
            golden_file.write(folder / name, prompts, reference.pool(rows, spec.pooling))
        else:
            golden_file.write(folder / name, prompts, reference.logits(model, prompts))


def write_gguf(folder, spec, weights, tokenizer):
    tensors = gguf_export.gguf_tensors(spec.config, weights)
    pooling = gguf.PoolingType.CLS if spec.pooling == "cls" else gguf.PoolingType.MEAN
    gguf_export.write_gguf(
        folder / "model.gguf", "jitney-golden-" + spec.name, spec.config,
        gguf_export.narrow(tensors, spec.dtype), file_type=spec.dtype, tokenizer=tokenizer,
        pooling=pooling)


def make_model(out, spec):
    folder = out / spec.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    weights = round_to(make_weights(spec.name, spec.config), spec.dtype)
    tokenizer = make_tokenizer(spec)
    write_folder(folder, spec, weights, tokenizer)
    write_goldens(folder, spec)
    if spec.gguf:
        write_gguf(folder, spec, weights, tokenizer)


def describe(folder):
    """One line about the goldens of a folder, to see that they can tell right from wrong."""
    _, rows = golden_file.read(folder / "goldens.bin")
    values = np.concatenate(rows)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    return (f"{folder.name:16} std {values.std():5.2f}  range {values.min():6.2f} .. "
            f"{values.max():5.2f}  {size // 1024:4} KiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*", default=None, help="names of models")
    parser.add_argument("--minilm", type=pathlib.Path, metavar="FOLDER",
                        help="make minilm.json and minilm.bin beside --out from this model instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    if args.minilm:
        from goldens import minilm  # the one part that needs sentence-transformers

        print("minilm: tokens", minilm.make(args.minilm, args.out.parent))
        return
    for spec in SPECS:
        if args.only is None or spec.name in args.only:
            make_model(args.out, spec)
            print(describe(args.out / spec.name), flush=True)
    for name in quantised.NAMES:
        if args.only is None or name in args.only:
            quantised.make_model(args.out, name)
            print(describe(args.out / name), flush=True)


if __name__ == "__main__":
    main()
