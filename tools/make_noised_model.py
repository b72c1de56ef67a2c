#!/usr/bin/env python3
"""Writes a quantised GGUF model as F32, with noise, as a source for measuring quantisers.

usage: make_noised_model.py IN.gguf OUT.gguf [--seed 1]

The weights of a Q4_1 model lie on a grid of 16 values for each block, which an encoder for Q4_1
finds again without any loss. Uniform noise of half a step to either side makes them as dense as
weights that were never quantised. Only matrices get noise; vectors are copied. The same seed gives
the same bytes.
"""
import argparse

import gguf
import numpy as np

CHUNK_ROWS = 4096


def steps_of(blocks, kind):
    """The step of the grid for each element: the scale of its block."""
    places = {"Q4_0": (18, 32), "Q4_1": (20, 32), "Q5_0": (22, 32), "Q5_1": (24, 32),
              "Q8_0": (34, 32)}
    if kind.name not in places:
        raise SystemExit(f"a tensor of type {kind.name}; expected one of {', '.join(places)}")
    size, elems = places[kind.name]
    scale = blocks.reshape(-1, size)[:, :2].copy().view(np.float16).astype(np.float32)
    return np.repeat(np.abs(scale[:, 0]), elems)


def noised(tensor, rng):
    """The matrix as float32, some rows at a time."""
    plain = gguf.GGMLQuantizationType
    if tensor.tensor_type in (plain.F32, plain.F16):
        return tensor.data.astype(np.float32)
    rows = tensor.data.reshape(-1, tensor.data.shape[-1])
    out = np.empty((rows.shape[0], int(tensor.shape[0])), dtype=np.float32)
    for at in range(0, rows.shape[0], CHUNK_ROWS):
        part = np.ascontiguousarray(rows[at:at + CHUNK_ROWS])
        values = gguf.dequantize(part, tensor.tensor_type)
        step = steps_of(part, tensor.tensor_type).reshape(values.shape)
        out[at:at + CHUNK_ROWS] = values + step * rng.uniform(-0.5, 0.5, values.shape)
    return out.reshape(tuple(int(n) for n in reversed(tensor.shape)))


def copy_keys(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type",
                                                "general.quantization_version"):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.source)
    writer = gguf.GGUFWriter(args.out, reader.fields["general.architecture"].contents())
    copy_keys(reader, writer)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    rng = np.random.default_rng(args.seed)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, noised(tensor, rng))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
