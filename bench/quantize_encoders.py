#!/usr/bin/env python3
"""What a calibrated model loses with jitney's encoders and with llama.cpp's, given the same importance.

    bench/quantize_encoders.py SOURCE.gguf CALIBRATION.txt TEST.txt [--types Q4_0,Q5_0,IQ4_NL] [--chunks 16]

SOURCE is a llama whose matrices are float32 (tools/make_noised_model.py makes one of SmolLM2).
`jitney quantize --calibrate` writes one file of each type. The other is a copy of it whose matrices are
encoded by llama.cpp's `ggml_quantize_chunk` (package xllamacpp), each in the type that it has there,
with the mean squares of the same inputs, computed in numpy. `jitney compare` measures both against
the source on TEST. Exits with 1 if a mean KL is more than llama.cpp's.
"""

import argparse
import ctypes
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from quantize_folders import WINDOW, Llama, load

ROOT = Path(__file__).resolve().parents[1]
JITNEY = ROOT / "build" / "jitney"


def encoder():
    package = importlib.util.find_spec("xllamacpp").submodule_search_locations[0]
    encode = ctypes.CDLL(str(next(Path(package).glob("xllamacpp*.so")))).ggml_quantize_chunk
    encode.restype = ctypes.c_size_t
    encode.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                       ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return encode


def config_of(source):
    """The keys that the forward pass needs, by their names in a folder."""
    reader = gguf.GGUFReader(str(source))
    def value(key):
        return reader.fields[f"llama.{key}"].contents()
    return {"num_attention_heads": value("attention.head_count"),
            "num_key_value_heads": value("attention.head_count_kv"),
            "num_hidden_layers": value("block_count"), "rope_theta": value("rope.freq_base"),
            "rms_norm_eps": value("attention.layer_norm_rms_epsilon")}


class Inputs:
    """Mean squares of what each matrix reads, by the names of the GGUF."""

    def __init__(self):
        self.sums, self.rows = {}, 0

    def add(self, names, x):
        for name in names:
            self.sums[name] = self.sums.get(name, 0) + (x.astype(np.float64) ** 2).sum(axis=0)

    def mean(self, name):
        return (self.sums[name] / self.rows).astype(np.float32) if name in self.sums else None


def read_inputs(model, windows):
    found = Inputs()
    for ids in windows:
        x = model.embed(ids)
        found.rows += len(x)
        for i in range(model.config["num_hidden_layers"]):
            stem, names = f"model.layers.{i}.", f"blk.{i}."
            a = model.norm(x, stem + "input_layernorm.weight")
            found.add([f"{names}attn_{n}.weight" for n in "qkv"], a)
            a = model.attend(a, i)
            found.add([names + "attn_output.weight"], a)
            x = x + model.product(a, stem + "self_attn.o_proj")
            m = model.norm(x, stem + "post_attention_layernorm.weight")
            found.add([names + "ffn_gate.weight", names + "ffn_up.weight"], m)
            m = model.gate(m, i)
            found.add([names + "ffn_down.weight"], m)
            x = x + model.product(m, stem + "mlp.down_proj")
        found.add(["output.weight", "token_embd.weight"], model.norm(x, "model.norm.weight"))
    return found


def encode_again(source, path, inputs, encode):
    """Every quantised matrix of the file in place, with llama.cpp's codes."""
    plain = {t.name: t for t in gguf.GGUFReader(str(source)).tensors}
    for t in gguf.GGUFReader(str(path), "r+").tensors:
        if t.tensor_type in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            continue
        x = np.ascontiguousarray(plain[t.name].data, np.float32)
        weights, out = inputs.mean(t.name), np.zeros(t.data.shape, np.uint8)
        used = encode(int(t.tensor_type), x.ctypes.data, out.ctypes.data, 0, *x.shape,
                      None if weights is None else weights.ctypes.data)
        assert used == out.nbytes, t.name
        t.data[:] = out


def run(*words, **how):
    return subprocess.run([JITNEY, *map(str, words)], check=True, stdout=subprocess.PIPE, **how).stdout


def kl_of(source, path, args):
    got = json.loads(run("compare", source, path, "-f", args.test, "--chunks", args.test_chunks,
                         "--greedy", 0, "--json", stderr=subprocess.DEVNULL))
    return got["kl_mean"], got["ppl_b"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("source")
    parser.add_argument("calibration")
    parser.add_argument("test")
    parser.add_argument("--types", default="Q4_0,Q5_0,IQ4_NL")
    parser.add_argument("--chunks", type=int, default=16, help="windows for calibration")
    parser.add_argument("--test-chunks", type=int, default=8)
    args = parser.parse_args()
    encode, config = encoder(), config_of(args.source)
    ids = np.array(run("tokenize", args.source, stdin=open(args.calibration, "rb")).split(), int)
    inputs = read_inputs(Llama(config, load(args.source, config)),
                         [ids[i * WINDOW:(i + 1) * WINDOW] for i in range(args.chunks)])
    worst = 0
    for name in args.types.split(","):
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = Path(folder, "ours.gguf"), Path(folder, "theirs.gguf")
            run("quantize", args.source, ours, "--type", name, "--calibrate", args.calibration,
                "--chunks", args.chunks, "--ctx", WINDOW, stderr=subprocess.DEVNULL)
            shutil.copy(ours, theirs)
            encode_again(args.source, theirs, inputs, encode)
            (kl, ppl), (their_kl, their_ppl) = (kl_of(args.source, p, args) for p in (ours, theirs))
        worst = max(worst, kl / their_kl)
        print(f"{name:8} KL {kl:.5f}, llama.cpp {their_kl:.5f}, ratio {kl / their_kl:.4f}; "
              f"perplexity {ppl:.3f}, llama.cpp {their_ppl:.3f}", flush=True)
    sys.exit(worst > 1)


if __name__ == "__main__":
    main()
