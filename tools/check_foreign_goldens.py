#!/usr/bin/env python3
"""Ask the libraries that wrote such folders what the committed ones hold.

    PYTHON tools/check_foreign_goldens.py        needs torch, compressed-tensors and bitsandbytes

compressed-tensors unpacks the W4A16 models, bitsandbytes' CPU functions decode the NF4 and FP4
ones: both must give the numbers of tools/goldens/foreign.py, NF4 and FP4 in every bit.
"""

import json
import pathlib

import bitsandbytes.functional as bnb
import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32

from goldens import foreign
from make_foreign_goldens import MODELS, seed_of
from goldens.specs import llama_config
from goldens.weights import make_weights


def as_torch(value):
    if isinstance(value, tuple):
        return torch.from_numpy(value[1].astype(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(value))


def unpack(stem, tensors, layout):
    """A matrix of compressed-tensors, by its own function."""
    shape = torch.Size(tensors[stem + ".weight_shape"].tolist())
    codes = unpack_from_int32(as_torch(tensors[stem + ".weight_packed"]), layout.bits, shape)
    scales = as_torch(tensors[stem + ".weight_scale"]).double()
    zeros = torch.zeros_like(scales)
    if not layout.symmetric:
        packed = as_torch(tensors[stem + ".weight_zero_point"])
        zeros = unpack_from_int32(packed, layout.bits, scales.shape, packed_dim=0).double()
    group = shape[1] if layout.group == -1 else layout.group
    idx = torch.from_numpy(tensors.get(stem + ".weight_g_idx",
                                       np.arange(shape[1], dtype=np.int32) // group)).long()
    return (scales[:, idx] * (codes.double() - zeros[:, idx])).numpy()


def decode(stem, tensors, layout):
    """A matrix of bitsandbytes, by its own functions on the CPU."""
    parts = {k.removeprefix(stem + "."): as_torch(v) for k, v in tensors.items()
             if k.startswith(stem + ".") and k != stem + ".weight"}
    state = bnb.QuantState.from_dict(parts, device=torch.device("cpu"))
    shape, elems = state.shape, state.shape.numel()
    # As one row: bitsandbytes 0.50.2 decodes rows wrongly on the CPU that are not whole blocks, so
    # that what it encoded itself comes back wrong.
    state.shape = torch.Size([1, elems])
    values = bnb.dequantize_4bit(as_torch(tensors[stem + ".weight"]), state)
    return values.reshape(shape).float().numpy()


def main():
    for name, (layout, hidden, inner) in MODELS.items():
        kind = {foreign.Packed: unpack, foreign.Table: decode}.get(type(layout))
        if not kind:
            continue
        config = llama_config(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=1,
                              tie_word_embeddings=True)
        worst, count, same = 0.0, 0, True
        for tensor, values in make_weights(name, config).items():
            if "proj" not in tensor:
                continue
            rng = np.random.Generator(np.random.Philox(seed_of(f"{name}/{tensor}/order")))
            stem = tensor.removesuffix(".weight")
            tensors, wanted = layout.encode(stem, values.astype(np.float64), rng)
            got = kind(stem, tensors, layout)
            worst = max(worst, float(np.abs(got - wanted).max()))
            same = same and np.array_equal(got.astype(np.float32), wanted.astype(np.float32))
            count += 1
        assert same, (name, worst)
        print(f"{name:20} {count} matrices, the same bits")


if __name__ == "__main__":
    main()
