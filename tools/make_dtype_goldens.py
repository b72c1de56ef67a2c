#!/usr/bin/env python3
"""Writes tests/golden/dtype: blocks of every number format and what the gguf package makes of them.

The formats that are not GGUF's are read here, by the words of src/tensor/dtype.h.

usage: make_dtype_goldens.py [FOLDER]          needs the packages gguf and numpy

One file a format, NAME.bin, little-endian: u32 block count, the blocks, then float32 bits of
every element. The first blocks have the edges of float16 as scales and minima (zeros of both
signs, subnormals, the largest, infinities, NaN) over random integers; in the others everything
is random within what files contain. The same versions give the same bytes.
"""
import struct
import sys
from pathlib import Path

import gguf
import numpy as np

EDGES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00]

# Where in a block its float16 numbers stand.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0],
}
TABLES = {
    "NF4": [-112, -78, -59, -44, -32, -21, -10, 0, 9, 18, 28, 38, 49, 63, 81, 112],
    "FP4": [0, 1, 80, 120, 40, 60, 20, 30, 0, -1, -80, -120, -40, -60, -20, -30],
}
OWN = ["INT4", "INT8", "INT8_Z", "NF4", "FP4", "F8_E4M3"]
PLAIN = {"F32": 4, "F16": 2, "BF16": 2}
PLAIN_ELEMS = 512


def quantised_blocks(name, rng):
    """Random blocks; `EDGES` in turn as every float16, then scales of an ordinary size."""
    block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    places = HALVES[name]
    count = len(EDGES) * len(places) + 8
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for i in range(count):
        for k, place in enumerate(places):
            half = rng.normal(0, 0.02, 1).astype(np.float16).view(np.uint16)[0]
            if i < len(EDGES) * len(places) and i // len(EDGES) == k:
                half = EDGES[i % len(EDGES)]
            blocks[i, place:place + 2] = [half & 0xFF, half >> 8]
    return blocks


def own_blocks(name, rng):
    """Blocks of jitney's own formats, and their values in float32."""
    if name == "F8_E4M3":
        return e4m3_blocks(rng)
    wide = name in ("INT8", "NF4", "FP4")
    head = np.dtype([("scale", "<f4" if wide else "<f2")]
                    + {"INT4": [("zero", "i1")], "INT8_Z": [("zero", "<i2")]}.get(name, []))
    values = 32 if name.startswith("INT8") else 16
    count = len(EDGES) + 8
    blocks = np.zeros(count, np.dtype([("head", head), ("q", "u1", values)]))
    scales = rng.normal(0, 0.02, count).astype(np.float16)
    scales[:len(EDGES)] = np.array(EDGES, np.uint16).view(np.float16)
    blocks["head"]["scale"] = scales
    if "zero" in head.names:
        low, high = (-255, 256) if name == "INT8_Z" else (0, 17)
        blocks["head"]["zero"] = rng.integers(low, high, count)
    blocks["q"] = rng.integers(0, 256, (count, values))
    q = blocks["q"].view(np.int8)
    if values == 16:
        codes = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1)
        q = np.array(TABLES.get(name, range(16)))[codes]
    scale = blocks["head"]["scale"].astype(np.float32)[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        result = scale * q.astype(np.float32)
        if "zero" in head.names:
            result += -(scale * blocks["head"]["zero"].astype(np.float32)[:, None])
    return blocks, result.astype("<f4")


def e4m3_blocks(rng):
    """Every code once with the scale 1, then random ones; the code of NaN is read as 480."""
    blocks = np.zeros(24, np.dtype([("scale", "<f4"), ("q", "u1", 32)]))
    blocks["scale"] = np.concatenate([np.ones(8), rng.normal(0, 0.02, 16)])
    blocks["q"] = rng.integers(0, 256, (24, 32))
    blocks["q"][:8] = np.arange(256).reshape(8, 32)
    size = blocks["q"] & 127
    value = np.where(size < 8, size * 2.0**-9, (8 + size % 8) * 2.0 ** (size // 8 - 10.0))
    value = np.where(blocks["q"] & 128, -value, value).astype(np.float32)
    return blocks, (value * blocks["scale"][:, None]).astype("<f4")


def plain_blocks(name, rng):
    """Random bits, which include NaN and infinity, behind the edges."""
    bytes_each = PLAIN[name]
    elems = rng.integers(0, 256, (PLAIN_ELEMS, bytes_each), dtype=np.uint8)
    for i, half in enumerate(EDGES):
        elems[i, -2:] = [half & 0xFF, half >> 8]
    return elems


def package_values(name, blocks):
    """What the gguf package makes of blocks."""
    source = blocks
    if name in ("F32", "F16"):  # the package takes these as arrays of their own type
        source = blocks.view(np.float32 if name == "F32" else np.float16)
    with np.errstate(invalid="ignore", over="ignore"):
        return gguf.quants.dequantize(source, gguf.GGMLQuantizationType[name])


def main():
    """Write one file for each format."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/dtype")
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate([*PLAIN, *HALVES, *OWN]):
        rng = np.random.default_rng(1000 + number)
        if name in OWN:
            blocks, values = own_blocks(name, rng)
        else:
            blocks = (plain_blocks if name in PLAIN else quantised_blocks)(name, rng)
            values = package_values(name, blocks)
        data = struct.pack("<I", len(blocks)) + blocks.tobytes()
        data += values.astype("<f4").tobytes()
        (folder / f"{name}.bin").write_bytes(data)
        print(f"{name}: {len(blocks)} blocks, {len(data)} bytes")


if __name__ == "__main__":
    main()
