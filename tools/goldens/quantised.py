"""Llama models in the quantised types of GGUF.

Types with an encoder in the gguf package hold encoded random weights; the others hold random
blocks, which are as good as encoded ones here, for every bit pattern of theirs means something.
The goldens come from the decoded weights in float32, so what an engine loses by rounding
activations shows as a difference.
"""

import hashlib
import json
import pathlib
import shutil
import tempfile

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType as File
from safetensors.torch import save_file

from goldens import golden_file, gguf_export, reference
from goldens.specs import llama_config
from goldens.weights import make_prompts, make_weights

_SMALL = llama_config(hidden_size=64, intermediate_size=96, tie_word_embeddings=True)
_WIDE = llama_config(hidden_size=256, intermediate_size=256, num_hidden_layers=1, vocab_size=64,
                     num_key_value_heads=1, head_dim=32, tie_word_embeddings=True)

_TYPES = {
    "llama-q8_0": (Type.Q8_0, File.MOSTLY_Q8_0, _SMALL),
    "llama-q4_0": (Type.Q4_0, File.MOSTLY_Q4_0, _SMALL),
    "llama-q4_1": (Type.Q4_1, File.MOSTLY_Q4_1, _SMALL),
    "llama-q5_0": (Type.Q5_0, File.MOSTLY_Q5_0, _SMALL),
    "llama-q5_1": (Type.Q5_1, File.MOSTLY_Q5_1, _SMALL),
    "llama-iq4_nl": (Type.IQ4_NL, File.MOSTLY_IQ4_NL, _SMALL),
    "llama-q2_k": (Type.Q2_K, File.MOSTLY_Q2_K, _WIDE),
    "llama-q3_k": (Type.Q3_K, File.MOSTLY_Q3_K_M, _WIDE),
    "llama-q4_k": (Type.Q4_K, File.MOSTLY_Q4_K_M, _WIDE),
    "llama-q5_k": (Type.Q5_K, File.MOSTLY_Q5_K_M, _WIDE),
    "llama-q6_k": (Type.Q6_K, File.MOSTLY_Q6_K, _WIDE),
    "llama-iq4_xs": (Type.IQ4_XS, File.MOSTLY_IQ4_XS, _WIDE),
}
NAMES = list(_TYPES)

# Where a block keeps its float16 scale, where its float16 offset, and offset / scale for which
# random quants have a mean of zero.
_SCALE_AT = {Type.IQ4_NL: 0, Type.Q2_K: 80, Type.Q3_K: 108, Type.Q4_K: 0, Type.Q5_K: 0,
             Type.Q6_K: 208, Type.IQ4_XS: 0}
_OFFSET = {Type.Q2_K: (82, 1.5), Type.Q4_K: (2, 7.5), Type.Q5_K: (2, 15.5)}


def random_blocks(seed, count, kind):
    """(count, bytes) of random blocks with scales near one."""
    rng = np.random.Generator(np.random.Philox(
        int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")))
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    scales = rng.uniform(0.5, 1.5, count)
    _put_f16(blocks, _SCALE_AT[kind], scales)
    if kind in _OFFSET:
        at, ratio = _OFFSET[kind]
        _put_f16(blocks, at, scales * ratio * rng.uniform(0.9, 1.1, count))
    return blocks


def _put_f16(blocks, at, values):
    blocks[:, at:at + 2] = values.astype("<f2").view(np.uint8).reshape(-1, 2)


def _scaled_blocks(seed, values, kind):
    """Random blocks whose decoded values spread as `values` do."""
    rows, columns = values.shape
    length = gguf.GGML_QUANT_SIZES[kind][0]
    blocks = random_blocks(seed, rows * columns // length, kind)
    spread = values.std() / gguf.quants.dequantize(blocks, kind).std()
    for at in {_SCALE_AT[kind], _OFFSET.get(kind, (_SCALE_AT[kind],))[0]}:
        _put_f16(blocks, at, blocks[:, at:at + 2].copy().view("<f2")[:, 0] * spread)
    return blocks.reshape(rows, -1)


def _encode(seed, values, kind):
    """(bytes, type); rows that no whole number of blocks fills fall back to Q8_0."""
    if values.shape[1] % gguf.GGML_QUANT_SIZES[kind][0]:
        kind = Type.Q8_0
    if kind in _SCALE_AT:
        return _scaled_blocks(seed, values, kind), kind
    return gguf.quants.quantize(values, kind), kind


def _checkpoint(config, tensors, names):
    """The decoded weights under the names of a checkpoint."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    out = {}
    for name, target in names.items():
        values = tensors[target]
        if isinstance(values, tuple):
            values = gguf.quants.dequantize(*values)
        part = name.split(".")[-2]
        if part in heads:
            values = gguf_export.unpermute(values, heads[part])
        out[name] = torch.from_numpy(values.astype(np.float32)).contiguous()
    return out


def make_model(out, name):
    kind, file_type, config = _TYPES[name]
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    weights = make_weights(name, config)
    plain = gguf_export.gguf_tensors(config, weights)
    names = dict(zip(weights, plain, strict=True))
    tensors = {t: _encode(f"{name}/{t}", v, kind) if v.ndim == 2 else v
               for t, v in plain.items()}
    gguf_export.write_gguf(folder / "model.gguf", "jitney-golden-" + name, config, tensors,
                           file_type=int(file_type))
    prompts = make_prompts(name, config["vocab_size"], (12, 24))
    with tempfile.TemporaryDirectory() as temporary:
        _write_checkpoint(temporary, config, _checkpoint(config, tensors, names))
        rows = reference.logits(reference.load(temporary), prompts)
    golden_file.write(folder / "goldens.bin", prompts, rows)


def _write_checkpoint(folder, config, tensors):
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
    save_file(tensors, pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
