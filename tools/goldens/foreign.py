"""The layouts in which other tools keep quantised matrices, written and read in numpy.

Each class encodes a matrix of (outputs, inputs) as the tensors of a folder and says what they stand
for. Rounding is to nearest: what the codes are worth is not the question here, but how they lie.
"""

import json

import numpy as np

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the output whose code is in nibble i of a word


def pack(codes, bits, axis):
    """Codes of `bits` as int32 words along an axis, the first in the low bits."""
    per_word = 32 // bits
    codes = np.moveaxis(codes, axis, -1).astype(np.uint32)
    codes = codes.reshape(*codes.shape[:-1], -1, per_word)
    words = np.zeros(codes.shape[:-1], np.uint32)
    for i in range(per_word):
        words |= codes[..., i] << np.uint32(bits * i)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view(np.int32)


def round_groups(w, bits, group, symmetric, scale_type=np.float16):
    """Codes (N, K), scales and zero points (N, groups), of `group` inputs each."""
    rows, cols = w.shape
    groups = -(-cols // group)
    top = 2**bits - 1
    codes = np.zeros((rows, cols), np.int64)
    scales = np.zeros((rows, groups), scale_type)
    zeros = np.zeros((rows, groups), np.int64)
    for g in range(groups):
        part = w[:, g * group:(g + 1) * group]
        low, high = np.minimum(part.min(axis=1), 0), np.maximum(part.max(axis=1), 0)
        if symmetric:
            high = np.maximum(-low, high)
            low = -high
        scale = ((high - low) / top).astype(scale_type)
        zero = np.full(rows, 2**(bits - 1)) if symmetric else np.rint(
            -low / scale.astype(np.float64)).astype(np.int64)
        zero = np.clip(zero, 1, top)  # version 1 of GPTQ cannot store a zero point of 0
        value = np.rint(part / scale.astype(np.float64)[:, None]).astype(np.int64) + zero[:, None]
        codes[:, g * group:(g + 1) * group] = np.clip(value, 0, top)
        scales[:, g], zeros[:, g] = scale, zero
    return codes, scales, zeros


def decode(codes, scales, zeros, group_of):
    """scale * (code - zero), each input with the numbers of its group."""
    return scales[:, group_of].astype(np.float64) * (codes - zeros[:, group_of])


class Gptq:
    """version 2: zero points as they are; else less one. order: inputs in a random order."""

    def __init__(self, bits=4, group=32, symmetric=False, version=1, order=False):
        self.bits, self.group, self.symmetric = bits, group, symmetric
        self.version, self.order = version, order

    def config(self):
        c = {"quant_method": "gptq", "bits": self.bits, "group_size": self.group,
             "desc_act": self.order, "sym": self.symmetric, "true_sequential": True,
             "damp_percent": 0.01, "lm_head": False}
        if self.version == 2:
            c["checkpoint_format"] = "gptq_v2"
        return c

    def encode(self, name, w, rng):
        cols = w.shape[1]
        group = cols if self.group == -1 else self.group
        inputs = rng.permutation(cols) if self.order else np.arange(cols)
        codes, scales, zeros = round_groups(w[:, inputs], self.bits, group, self.symmetric)
        g_idx, back = np.zeros(cols, np.int32), np.zeros(cols, np.int64)
        g_idx[inputs], back[inputs] = np.arange(cols) // group, np.arange(cols)
        codes = codes[:, back]
        stored = zeros - (self.version == 1)
        tensors = {
            name + ".qweight": pack(codes.T, self.bits, 0),
            name + ".qzeros": pack(stored.T, self.bits, 1),
            name + ".scales": np.ascontiguousarray(scales.T),
            name + ".g_idx": g_idx,
        }
        return tensors, decode(codes, scales, zeros, g_idx)


class Awq:
    def __init__(self, group=32):
        self.group = group

    def config(self):
        return {"quant_method": "awq", "bits": 4, "group_size": self.group, "zero_point": True,
                "version": "gemm", "modules_to_not_convert": None}

    def encode(self, name, w, rng):
        del rng
        codes, scales, zeros = round_groups(w, 4, self.group, False)
        tensors = {
            name + ".qweight": self._pack(codes.T),
            name + ".qzeros": self._pack(zeros.T),
            name + ".scales": np.ascontiguousarray(scales.T),
        }
        return tensors, decode(codes, scales, zeros, np.arange(w.shape[1]) // self.group)

    @staticmethod
    def _pack(codes):
        shape = codes.shape
        return pack(codes.reshape(shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(shape), 4, 1)


FORMATS = {"F16": np.float16, "F32": np.float32, "I32": np.int32, "I64": np.int64, "I8": np.int8,
           "U8": np.uint8, "BF16": np.uint16}


def save(path, tensors):
    """A safetensors file. A value is an array, or (format, array) where numpy lacks the type."""
    header, data = {}, b""
    for name, value in tensors.items():
        kind, array = value if isinstance(value, tuple) else (None, value)
        if kind is None:
            kind = next(k for k, t in FORMATS.items() if t == array.dtype and k != "BF16")
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
