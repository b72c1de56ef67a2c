"""The published layouts of quantised folders, read in numpy: what a folder's tensors stand for."""

import json

import numpy as np

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the output whose code is in nibble i of a word
FORMATS = {"F16": np.float16, "F32": np.float32, "I32": np.int32, "I8": np.int8, "U8": np.uint8,
           "BF16": np.uint16}


def read_file(path):
    """The tensors of one safetensors file; BF16 as float32."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    assert header.pop("__metadata__") == {"format": "pt"}
    data, end, tensors = raw[8 + size:], 0, {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        assert start == end, name
        end = stop
        values = np.frombuffer(data[start:stop], FORMATS[entry["dtype"]])
        if entry["dtype"] == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = values.reshape(entry["shape"])
    assert end == len(data)
    return tensors


def read_tensors(folder):
    """All tensors of a folder, by its index if it has one."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return read_file(folder / "model.safetensors")
    where = json.loads(index.read_text())["weight_map"]
    files = {name: read_file(folder / name) for name in sorted(set(where.values()))}
    tensors = {name: files[file][name] for name, file in where.items()}
    assert sum(map(len, files.values())) == len(tensors)
    return tensors


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def unpack(words, axis):
    """Codes of 4 bits from int32 words along an axis, the first in the low bits."""
    words = np.moveaxis(words.view(np.uint32), axis, -1)[..., None]
    codes = words >> (4 * np.arange(8, dtype=np.uint32)) & 15
    codes = codes.reshape(*codes.shape[:-2], -1)
    return np.moveaxis(codes, -1, axis).astype(np.int64)


def unpack_awq(words):
    codes = unpack(words, 1).reshape(words.shape[0], -1, 8)
    out = np.empty_like(codes)
    out[:, :, AWQ_ORDER] = codes
    return out.reshape(words.shape[0], -1)


def gptq_parts(tensors, stem):
    """Codes (N, K), zero points and scales (N, groups), the group of each input."""
    codes = unpack(tensors[stem + ".qweight"], 0).T
    zeros = unpack(tensors[stem + ".qzeros"], 1).T + 1
    return codes, zeros, tensors[stem + ".scales"].T, tensors[stem + ".g_idx"]


def read_gptq(tensors, stem, config):
    codes, zeros, scales, g_idx = gptq_parts(tensors, stem)
    assert config["checkpoint_format"] == "gptq" and zeros.max() <= 15
    assert np.bincount(g_idx).tolist() == [config["group_size"]] * scales.shape[1]
    return scales.astype(np.float32)[:, g_idx] * (codes - zeros[:, g_idx])


def read_awq(tensors, stem, config):
    codes = unpack_awq(tensors[stem + ".qweight"]).T
    zeros = unpack_awq(tensors[stem + ".qzeros"]).T
    scales = tensors[stem + ".scales"].T.astype(np.float32)
    group_of = np.arange(codes.shape[1]) // config["group_size"]
    return scales[:, group_of] * (codes - zeros[:, group_of])


def read_int8(tensors, stem, config):
    del config
    scales = tensors[stem + ".weight_scale"].astype(np.float32)
    assert scales.shape[1] == 1
    return scales * tensors[stem + ".weight"]


def nf4_absmax(tensors, name, state):
    nested = np.repeat(tensors[name + ".nested_absmax"], state["nested_blocksize"])
    codes = tensors[name + ".absmax"]
    values = tensors[name + ".nested_quant_map"][codes] * nested[:codes.size]
    return values + np.float32(state["nested_offset"])


def nf4_state(tensors, name):
    return json.loads(tensors[name + ".quant_state.bitsandbytes__nf4"].tobytes())


def read_nf4(tensors, stem, config):
    assert config["bnb_4bit_use_double_quant"]
    name = stem + ".weight"
    state = nf4_state(tensors, name)
    pairs = tensors[name].reshape(-1)
    codes = np.stack([pairs >> 4, pairs & 15], axis=1).reshape(-1)
    absmax = np.repeat(nf4_absmax(tensors, name, state), state["blocksize"])[:codes.size]
    return (tensors[name + ".quant_map"][codes] * absmax).reshape(state["shape"])


READERS = {"gptq": (read_gptq, ".qweight"), "awq": (read_awq, ".qweight"),
           "int8": (read_int8, ".weight_scale"), "nf4": (read_nf4, ".weight.absmax")}


def read_folder(folder, kind):
    """What each tensor of the model stands for, as float32, and the names of those packed."""
    tensors = read_tensors(folder)
    config = config_of(folder)["quantization_config"]
    reader, mark = READERS[kind]
    stems = [name.removesuffix(mark) for name in tensors if name.endswith(mark)]
    parts = [name for name in tensors if name.rsplit(".", 1)[0] in stems or
             any(name.startswith(stem + ".weight.") for stem in stems)]
    values = {stem + ".weight": reader(tensors, stem, config) for stem in stems}
    packed = sorted(values)
    for name, tensor in tensors.items():
        if name in values or (name in parts and not name.endswith(".bias")):
            continue
        values[name] = tensor.astype(np.float32)
    return values, packed
