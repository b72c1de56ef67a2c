"""The golden file: prompts and the float32 rows that the reference computed for them.

Little-endian, no padding; tests/golden/README.md has the same table for readers in C.

    char[4]  "JGLD"
    u32      version, 1
    u32      prompt count
    u32      width: floats in a row (vocabulary size, or embedding length)
    then for each prompt
    u32      tokens
    u32      rows: equal to tokens, or 1 for a pooled embedding
    i32      ids[tokens]
    f32      values[rows][width]
"""

import struct

import numpy as np

MAGIC = b"JGLD"
VERSION = 1


def write(path, prompts, outputs):
    """`prompts`: lists of token ids; `outputs`: one (rows, width) array for each."""
    width = outputs[0].shape[1]
    with open(path, "wb") as f:
        f.write(MAGIC + struct.pack("<3I", VERSION, len(prompts), width))
        for ids, rows in zip(prompts, outputs, strict=True):
            assert rows.shape[1] == width
            assert rows.shape[0] in (1, len(ids))
            assert np.isfinite(rows).all()
            f.write(struct.pack("<2I", len(ids), rows.shape[0]))
            f.write(np.asarray(ids, dtype="<i4").tobytes())
            f.write(np.ascontiguousarray(rows, dtype="<f4").tobytes())


def read(path):
    """Gives (prompts, outputs) as `write` took them."""
    with open(path, "rb") as f:
        data = f.read()
    assert data[:4] == MAGIC
    version, count, width = struct.unpack_from("<3I", data, 4)
    assert version == VERSION
    at = 16
    prompts, outputs = [], []
    for _ in range(count):
        tokens, rows = struct.unpack_from("<2I", data, at)
        at += 8
        prompts.append(np.frombuffer(data, "<i4", tokens, at).tolist())
        at += 4 * tokens
        outputs.append(np.frombuffer(data, "<f4", rows * width, at).reshape(rows, width))
        at += 4 * rows * width
    assert at == len(data)
    return prompts, outputs
