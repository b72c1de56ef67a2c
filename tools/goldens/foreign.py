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


def to_bf16(values):
    """Rounded to bfloat16, as float32."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def bf16(values):
    """What `save` writes as BF16, of numbers that are bfloat16 already."""
    return "BF16", (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Packed:
    """compressed-tensors, pack-quantized. order: inputs in a random order."""

    def __init__(self, bits=4, group=32, symmetric=True, order=False):
        self.bits, self.group, self.symmetric, self.order = bits, group, symmetric, order

    def config(self):
        weights = {"num_bits": self.bits, "type": "int", "symmetric": self.symmetric,
                   "strategy": "channel" if self.group == -1 else "group", "dynamic": False,
                   "group_size": None if self.group == -1 else self.group,
                   "actorder": "group" if self.order else None, "observer": "minmax"}
        return {"quant_method": "compressed-tensors", "format": "pack-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                              "input_activations": None,
                                              "output_activations": None}},
                "ignore": ["lm_head"], "quantization_status": "compressed"}

    def encode(self, name, w, rng):
        rows, cols = w.shape
        group = cols if self.group == -1 else self.group
        inputs = rng.permutation(cols) if self.order else np.arange(cols)
        codes, scales, zeros = round_groups(w[:, inputs], self.bits, group, self.symmetric,
                                            np.float32)
        scales = to_bf16(scales)
        g_idx, back = np.zeros(cols, np.int32), np.zeros(cols, np.int64)
        g_idx[inputs], back[inputs] = np.arange(cols) // group, np.arange(cols)
        codes = codes[:, back]
        tensors = {name + ".weight_packed": pack(codes, self.bits, 1),
                   name + ".weight_scale": bf16(scales),
                   name + ".weight_shape": np.array([rows, cols], np.int64)}
        if not self.symmetric:
            tensors[name + ".weight_zero_point"] = pack(zeros, self.bits, 0)
        if self.order:
            tensors[name + ".weight_g_idx"] = g_idx
        return tensors, decode(codes, scales, zeros, g_idx)


class Bytes:
    """compressed-tensors, int-quantized: W8A8 with a scale for each row, or for groups."""

    def __init__(self, group=-1):
        self.group = group

    def config(self):
        weights = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": False,
                   "strategy": "channel" if self.group == -1 else "group",
                   "group_size": None if self.group == -1 else self.group}
        inputs = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token",
                  "dynamic": True}
        return {"quant_method": "compressed-tensors", "format": "int-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                              "input_activations": inputs}},
                "ignore": ["lm_head"], "quantization_status": "compressed"}

    def encode(self, name, w, rng):
        del rng
        rows, cols = w.shape
        group = cols if self.group == -1 else self.group
        parts = w.reshape(rows, -1, group)
        scales = to_bf16(np.abs(parts).max(axis=2) / 127)
        codes = np.clip(np.rint(parts / scales[:, :, None]), -128, 127).astype(np.int8)
        values = scales[:, :, None] * codes.astype(np.float32)
        tensors = {name + ".weight": codes.reshape(rows, cols), name + ".weight_scale": bf16(scales)}
        return tensors, values.reshape(rows, cols)


class Int8:
    """bitsandbytes, LLM.int8()."""

    def config(self):
        return {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False,
                "llm_int8_threshold": 6.0}

    def encode(self, name, w, rng):
        del rng
        scb = np.abs(w).max(axis=1).astype(np.float32)
        codes = np.rint(w / scb[:, None] * 127).astype(np.int8)
        tensors = {name + ".weight": codes, name + ".SCB": scb,
                   name + ".weight_format": np.zeros((), np.uint8)}
        return tensors, (scb * np.float32(1 / 127))[:, None] * codes.astype(np.float32)


TABLES = {
    "nf4": [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
            -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
            0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
            0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
    "fp4": [0.0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25,
            0.0, -0.005208333333, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25],
}


class Table:
    """bitsandbytes, 4 bits. double: with quantised scales."""

    # What jitney's whole numbers for a table are, and a unit of them.
    WHOLE = {"nf4": ([-112, -78, -59, -44, -32, -21, -10, 0, 9, 18, 28, 38, 49, 63, 81, 112],
                     np.float32(0.0089261631)),
             "fp4": ([0, 1, 80, 120, 40, 60, 20, 30, 0, -1, -80, -120, -40, -60, -20, -30],
                     np.float32(1) / np.float32(120))}

    def __init__(self, kind="nf4", double=False, block=64):
        self.kind, self.double, self.block = kind, double, block

    def config(self):
        return {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
                "bnb_4bit_quant_type": self.kind, "bnb_4bit_use_double_quant": self.double,
                "bnb_4bit_compute_dtype": "float32", "bnb_4bit_quant_storage": "uint8"}

    def encode(self, name, w, rng):
        table = np.array(TABLES[self.kind], np.float32)
        flat = w.reshape(-1)
        blocks = np.pad(flat, (0, -flat.size % self.block)).reshape(-1, self.block)
        absmax = np.abs(blocks).max(axis=1).astype(np.float32)
        state = {"quant_type": self.kind, "blocksize": self.block, "dtype": "float32",
                 "shape": list(w.shape)}
        tensors = {name + ".weight.quant_map": table}
        if self.double:
            absmax = self._nest(name, absmax, state, tensors, rng)
        else:
            tensors[name + ".weight.absmax"] = absmax
        unit = blocks / absmax[:, None]
        codes = np.abs(unit[:, :, None] - table.astype(np.float64)).argmin(axis=2)
        flat_codes = codes.reshape(-1)[:flat.size].astype(np.uint8)
        tensors[name + ".weight"] = (flat_codes[::2] << 4 | flat_codes[1::2])[:, None]
        tensors[f"{name}.weight.quant_state.bitsandbytes__{self.kind}"] = np.frombuffer(
            json.dumps(state).encode(), np.uint8)
        self.whole = self._whole(codes, absmax).reshape(-1)[:flat.size].reshape(w.shape)
        values = table[codes] * absmax[:, None]
        return tensors, values.reshape(-1)[:flat.size].reshape(w.shape)

    def _whole(self, codes, absmax):
        """The numbers that jitney computes with."""
        numbers, unit = self.WHOLE[self.kind]
        return (absmax * unit)[:, None] * np.array(numbers, np.float32)[codes]

    @staticmethod
    def _nest(name, absmax, state, tensors, rng):
        offset = np.float32(absmax.mean())
        nested_map = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
        nested_map[0], nested_map[-1] = -1, 1
        parts = np.pad(absmax - offset, (0, -absmax.size % 256)).reshape(-1, 256)
        nested = np.abs(parts).max(axis=1).astype(np.float32)
        codes = np.abs((parts / nested[:, None])[:, :, None] - nested_map).argmin(axis=2)
        codes = codes.reshape(-1)[:absmax.size].astype(np.uint8)
        state.update(nested_blocksize=256, nested_dtype="float32", nested_offset=float(offset))
        tensors[name + ".weight.absmax"] = codes
        tensors[name + ".weight.nested_absmax"] = nested
        tensors[name + ".weight.nested_quant_map"] = nested_map
        return nested_map[codes] * np.repeat(nested, 256)[:absmax.size] + offset


# What the codes of e4m3 from 0 to 126 stand for: four bits of exponent, three of mantissa.
E4M3 = np.array([m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
                 for e in range(16) for m in range(8)][:127])


def to_e4m3(values):
    """Codes of the nearest numbers, even ones at a tie, of magnitudes up to 448."""
    size = np.abs(values)
    above = np.clip(np.searchsorted(E4M3, size), 1, 126)
    low, high = size - E4M3[above - 1], E4M3[above] - size
    code = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    return (code | (np.asarray(values) < 0) << 7).astype(np.uint8)


def from_e4m3(codes):
    return (np.where(codes & 128, -1.0, 1.0) * E4M3[codes & 127]).astype(np.float32)


class Fp8:
    """e4m3 with float scales: method is who wrote the folder, scope what a scale is for."""

    def __init__(self, method, scope, narrow=False, static=False):
        self.method, self.scope, self.narrow, self.static = method, scope, narrow, static

    def config(self):
        scheme = "static" if self.static else "dynamic"
        if self.method == "fbgemm_fp8":
            return {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
                    "modules_to_not_convert": ["lm_head"]}
        if self.method == "modelopt":
            return {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"],
                    "producer": {"name": "modelopt", "version": "0.29.0"}}
        if self.method == "fp8":
            size = list(self.scope) if isinstance(self.scope, tuple) else None
            return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": scheme,
                    "weight_block_size": size, "modules_to_not_convert": ["lm_head"]}
        is_block = isinstance(self.scope, tuple)
        weights = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False,
                   "strategy": "block" if is_block else self.scope, "group_size": None,
                   "block_structure": list(self.scope) if is_block else None}
        inputs = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": not self.static,
                  "strategy": "tensor" if self.static else "token"}
        return {"quant_method": "compressed-tensors", "format": "float-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                              "input_activations": inputs}},
                "ignore": ["lm_head"], "quantization_status": "compressed",
                "kv_cache_scheme": None}

    def _sizes(self, shape):
        if isinstance(self.scope, tuple):
            return self.scope
        return (1, shape[1]) if self.scope == "channel" else shape

    def encode(self, name, w, rng):
        del rng
        (rows, cols), (high, wide) = w.shape, self._sizes(w.shape)
        padded = np.pad(w, ((0, -rows % high), (0, -cols % wide)))
        parts = padded.reshape(-(-rows // high), high, -(-cols // wide), wide)
        scales = (np.abs(parts).max(axis=(1, 3)) / 448).astype(np.float32)
        if self.narrow:
            scales = to_bf16(scales)
        spread = np.repeat(np.repeat(scales, high, axis=0), wide, axis=1)[:rows, :cols]
        codes = to_e4m3(np.clip(w / spread, -448, 448))
        stored = scales.reshape(()) if self.scope == "tensor" else scales
        suffix = "_inv" if self.method == "fp8" and isinstance(self.scope, tuple) else ""
        tensors = {name + ".weight": ("F8_E4M3", codes),
                   f"{name}.weight_scale{suffix}": bf16(stored) if self.narrow else stored}
        if self.static:
            tensors[name + ".input_scale"] = np.float32(0.02).reshape(1)
        return tensors, from_e4m3(codes) * spread


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
