#!/usr/bin/env python3
"""What gptq, awq and int8 gain on a real model, and how GPTQ compares with a plain implementation.

    bench/quantize_folders.py SOURCE.gguf CALIBRATION.txt TEST.txt [--chunks 32] [--work FOLDER]

SOURCE is a llama whose matrices are float32 (tools/make_noised_model.py makes one of SmolLM2).
Quantises it with and without the first text, and measures the perplexity of the second. GPTQ is
also done in numpy as it was published (Frantar et al. 2022; the order of steps of its first
implementation), with the same windows of text; `jitney perplexity` measures both folders. For int8
the model is run in numpy with activations of 8 bits for each token, as readers of W8A8 do; jitney
rounds them for each 32, where smoothing has little to gain.

Exits with 1 if a limit is missed: GPTQ at most 1.005 of the plain implementation's perplexity;
GPTQ, AWQ and SmoothQuant below rounding to nearest. With --places N GPTQ is done N times, with the
windows from N places of the calibration text; the limit is then for the geometric mean of the N
ratios, which are printed, because one run with a short text is off by some percent.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tools")]
from folder_lib import config_of, read_folder, read_tensors  # noqa: E402
from goldens import foreign  # noqa: E402

WINDOW, GROUP, BLOCK, DAMP, LIMIT = 512, 64, 128, 0.01, 1.005
PARTS = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm"}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


# ---- the model ----

def hf_name(name):
    stem = name.removesuffix(".weight")
    if stem in WHOLE:
        return WHOLE[stem] + ".weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{PARTS[part]}.weight"


def to_halves(w, heads):
    """A GGUF has the two rows of a rotated pair beside each other, a folder a half head apart."""
    return w.reshape(heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


class Llama:
    """The forward pass in float32, a layer at a time."""

    def __init__(self, config, weights):
        self.config, self.w = config, weights
        self.heads = config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.round_inputs = lambda x: x  # what a quantised product does to its input

    def embed(self, ids):
        return self.w["model.embed_tokens.weight"][ids]

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(axis=1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.w[name]

    def product(self, x, name):
        return self.round_inputs(x) @ self.w[name + ".weight"].T

    def rotate(self, x):
        half = x.shape[-1] // 2
        angle = np.arange(len(x))[:, None] / self.config["rope_theta"] ** (np.arange(half) / half)
        cosine, sine = (f(angle).astype(np.float32)[:, None] for f in (np.cos, np.sin))
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)

    def attend(self, x, layer):
        """From the input of q, k and v to that of o."""
        stem = f"model.layers.{layer}.self_attn."
        q, k, v = (self.product(x, f"{stem}{n}_proj").reshape(len(x), count, -1)
                   for n, count in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)))
        q, k = self.rotate(q), self.rotate(k)
        k, v = (np.repeat(t, self.heads // self.kv_heads, axis=1) for t in (k, v))
        scores = q.swapaxes(0, 1) @ k.transpose(1, 2, 0) / np.float32(np.sqrt(q.shape[-1]))
        scores = np.where(np.tri(len(x), dtype=bool), scores, np.float32(-np.inf))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ v.swapaxes(0, 1)).swapaxes(0, 1).reshape(len(x), -1)

    def gate(self, x, layer):
        """From the input of gate and up to that of down."""
        stem = f"model.layers.{layer}.mlp."
        gate = self.product(x, stem + "gate_proj")
        return gate / (1 + np.exp(-gate)) * self.product(x, stem + "up_proj")

    def layer(self, x, layer):
        stem = f"model.layers.{layer}."
        a = self.attend(self.norm(x, stem + "input_layernorm.weight"), layer)
        x = x + self.product(a, stem + "self_attn.o_proj")
        m = self.gate(self.norm(x, stem + "post_attention_layernorm.weight"), layer)
        return x + self.product(m, stem + "mlp.down_proj")

    def logits(self, x):
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return self.norm(x, "model.norm.weight") @ head.T


def load(source, config):
    weights = {}
    for t in gguf.GGUFReader(str(source)).tensors:
        name, w = hf_name(t.name), gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
        for part, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads")):
            if name.endswith(f"{part}_proj.weight"):
                w = to_halves(w, config[heads])
        weights[name] = w
    return weights


# ---- GPTQ as published ----

def grid_of(w):
    """Scales, as f16 holds them, and zero points of rows."""
    low, high = np.minimum(w.min(axis=1), 0), np.maximum(w.max(axis=1), 0)
    scale = ((high - low) / 15).astype(np.float16).astype(np.float32)
    scale[scale == 0] = 1
    return scale, np.clip(np.rint(-low / scale), 0, 15)


def gptq(w, hessian):
    """Codes (N, K), zero points and scales (N, groups)."""
    w, (rows, cols) = w.astype(np.float32).copy(), w.shape
    codes = np.zeros((rows, cols), np.int64)
    scales, zeros = (np.zeros((rows, cols // GROUP), np.float32) for _ in range(2))
    dead = np.diag(hessian) == 0
    hessian[dead, dead] = 1
    w[:, dead] = 0
    hessian[np.diag_indices(cols)] += DAMP * np.diag(hessian).mean()
    factor = np.linalg.cholesky(np.linalg.inv(hessian)).T.astype(np.float32)  # upper
    for first in range(0, cols, BLOCK):
        last = min(first + BLOCK, cols)
        part, errors = w[:, first:last].copy(), np.zeros((rows, last - first), np.float32)
        for i in range(last - first):
            k = first + i
            if k % GROUP == 0:
                scale, zero = grid_of(w[:, k:k + GROUP])
                scales[:, k // GROUP], zeros[:, k // GROUP] = scale, zero
            codes[:, k] = np.clip(np.rint(part[:, i] / scale) + zero, 0, 15)
            error = (part[:, i] - scale * (codes[:, k] - zero)) / factor[k, k]
            part[:, i:] -= np.outer(error, factor[k, k:last])
            errors[:, i] = error
        w[:, last:] -= errors @ factor[first:last, last:]
    return codes, zeros.astype(np.int64), scales


def hessian_of(inputs):
    total = np.zeros((inputs[0].shape[1],) * 2)
    for x in inputs:
        total += (x.T @ x).astype(np.float64)
    return total * 2 / sum(map(len, inputs))


def quantise_plainly(model, windows, tensors):
    """Every matrix, with inputs that the rounded matrices before it have made."""
    def round_all(inputs, names):
        hessian = hessian_of(inputs)
        for name in names:
            codes, zeros, scales = gptq(model.w[name + ".weight"], hessian.copy())
            group_of = np.arange(codes.shape[1]) // GROUP
            model.w[name + ".weight"] = scales[:, group_of] * (codes - zeros[:, group_of]).astype(
                np.float32)
            tensors[name + ".qweight"] = foreign.pack(codes.T, 4, 0)
            tensors[name + ".qzeros"] = foreign.pack(zeros.T, 4, 1)
            tensors[name + ".scales"] = np.ascontiguousarray(scales.T).astype(np.float16)

    states = [model.embed(w) for w in windows]
    for layer in range(model.config["num_hidden_layers"]):
        stem = f"model.layers.{layer}."
        inputs = [model.norm(x, stem + "input_layernorm.weight") for x in states]
        round_all(inputs, [stem + f"self_attn.{n}_proj" for n in "qkv"])
        inputs = [model.attend(x, layer) for x in inputs]
        round_all(inputs, [stem + "self_attn.o_proj"])
        states = [x + model.product(a, stem + "self_attn.o_proj")
                  for x, a in zip(states, inputs, strict=True)]
        inputs = [model.norm(x, stem + "post_attention_layernorm.weight") for x in states]
        round_all(inputs, [stem + "mlp.gate_proj", stem + "mlp.up_proj"])
        inputs = [model.gate(x, layer) for x in inputs]
        round_all(inputs, [stem + "mlp.down_proj"])
        states = [x + model.product(m, stem + "mlp.down_proj")
                  for x, m in zip(states, inputs, strict=True)]
        print(f"\rplain GPTQ: layer {layer + 1}", end="", flush=True)
    print()


# ---- int8 with activations of 8 bits for each token ----

def round_tokens(x):
    scale = np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-9) / np.float32(127)
    return np.rint(x / scale) * scale


def perplexity_of(model, windows):
    """As `jitney perplexity`: the second half of each window."""
    total = count = 0
    for ids in windows:
        x = model.embed(ids)
        for layer in range(model.config["num_hidden_layers"]):
            x = model.layer(x, layer)
        first = len(ids) // 2
        logits = model.logits(x[first:-1]).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(logits)), ids[first + 1:]]
        total -= (chosen - np.log(np.exp(logits).sum(axis=1))).sum()
        count += len(logits)
    return float(np.exp(total / count))


# ---- the runs ----

class Runs:
    def __init__(self, args, work):
        self.args, self.work, self.table = args, work, {}

    def jitney(self, *words, **how):
        done = subprocess.run([self.args.jitney, *map(str, words)], check=True,
                              stdout=subprocess.PIPE, **how)
        return done.stdout

    def quantise(self, name, *flags):
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        self.jitney("quantize", self.args.source, folder, *flags, stderr=subprocess.DEVNULL)
        return folder

    def calibrated(self, name, *flags, text=None):
        return self.quantise(name, *flags, "--calibrate", text or self.args.calibration, "--chunks",
                             self.args.chunks, "--ctx", WINDOW)

    def measure(self, name, model):
        got = json.loads(self.jitney("perplexity", model, "-f", self.args.test, "--chunks",
                                     self.args.test_chunks, "--json"))
        self.put(name, got["perplexity"])

    def put(self, name, value):
        self.table[name] = value
        print(f"{name:34} {value:8.3f}", flush=True)

    def windows(self, folder, text, count):
        ids = np.array(self.jitney("tokenize", folder, stdin=open(text, "rb")).split(), int)
        return [ids[i * WINDOW:(i + 1) * WINDOW] for i in range(count)]


def check(runs, better, worse, most):
    ratio = runs.table[better] / runs.table[worse]
    print(f"{better} / {worse}: {ratio:.4f}, at most {most}: {'ok' if ratio <= most else 'MISSED'}")
    return ratio <= most


def text_from(runs, place):
    """The calibration text from a place on: one of --places parts of it."""
    if runs.args.places == 1:
        return runs.args.calibration
    lines = Path(runs.args.calibration).read_text(encoding="utf-8").splitlines(keepends=True)
    path = runs.work / f"text-{place}"
    path.write_text("".join(lines[place * len(lines) // runs.args.places:]), encoding="utf-8")
    return path


def quantise_as_published(runs, nearest, text):
    plain, config = runs.work / "gptq-plain", config_of(nearest)
    shutil.rmtree(plain, ignore_errors=True)
    shutil.copytree(nearest, plain)
    tensors = {k: v.copy() for k, v in read_tensors(nearest).items()}
    model = Llama(config, load(runs.args.source, config))
    quantise_plainly(model, runs.windows(nearest, text, runs.args.chunks), tensors)
    foreign.save(plain / "model.safetensors", tensors)
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"  # zero points as they are
    (plain / "config.json").write_text(json.dumps(config))
    return plain


def measure_gptq(runs):
    """The ratios to the plain implementation, one for each place."""
    nearest = runs.quantise("gptq-nearest", "--type", "gptq", "--group", GROUP, "--nearest")
    runs.measure("GPTQ's grid, nearest", nearest)
    flags, ratios = ["--type", "gptq", "--group", GROUP], []
    for place in range(runs.args.places):
        text = text_from(runs, place)
        runs.measure("GPTQ", runs.calibrated("gptq", *flags, text=text))
        runs.measure("GPTQ, plain implementation", quantise_as_published(runs, nearest, text))
        ratios.append(runs.table["GPTQ"] / runs.table["GPTQ, plain implementation"])
    runs.measure("GPTQ, act order", runs.calibrated("gptq-order", *flags, "--act-order"))
    return ratios


def check_gptq(runs):
    ratios = measure_gptq(runs)
    mean = float(np.exp(np.mean(np.log(ratios))))
    print("GPTQ / plain implementation:", " ".join(f"{r:.4f}" for r in ratios))
    print(f"their mean: {mean:.4f}, at most {LIMIT}: {'ok' if mean <= LIMIT else 'MISSED'}")
    return [mean <= LIMIT, check(runs, "GPTQ", "GPTQ's grid, nearest", 1)]


def measure_int8(runs):
    """In jitney, and as readers of W8A8 compute it."""
    made = {"nearest": runs.quantise("int8", "--type", "int8"),
            "SmoothQuant": runs.calibrated("int8-smooth", "--type", "int8")}
    for name, folder in made.items():
        runs.measure(f"int8, {name}", folder)
        model = Llama(config_of(folder), read_folder(folder, "int8")[0])
        plain = model.round_inputs
        model.round_inputs = round_tokens
        windows = runs.windows(folder, runs.args.test, runs.args.test_chunks)
        runs.put(f"W8A8, {name}", perplexity_of(model, windows))
        model.round_inputs = plain


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source")
    parser.add_argument("calibration")
    parser.add_argument("test")
    parser.add_argument("--chunks", type=int, default=32, help="windows for calibration")
    parser.add_argument("--places", type=int, default=1, help="of the calibration text, for GPTQ")
    parser.add_argument("--test-chunks", type=int, default=32)
    parser.add_argument("--work", type=Path, help="keep the folders here")
    parser.add_argument("--only", choices=["gptq", "awq", "int8"], nargs="*",
                        default=["gptq", "awq", "int8"])
    parser.add_argument("--jitney", default=str(ROOT / "build" / "jitney"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        runs = Runs(args, args.work or Path(temporary))
        runs.work.mkdir(exist_ok=True)
        runs.measure("source", args.source)
        results, checks = check_gptq(runs) if "gptq" in args.only else [], []
        if "awq" in args.only:
            flags = ["--type", "awq", "--group", GROUP]
            runs.measure("AWQ's grid, nearest", runs.quantise("awq-nearest", *flags, "--nearest"))
            runs.measure("AWQ", runs.calibrated("awq", *flags))
            checks.append(("AWQ", "AWQ's grid, nearest", 1))
        if "int8" in args.only:
            measure_int8(runs)
            checks.append(("W8A8, SmoothQuant", "W8A8, nearest", 1))
        results += [check(runs, *c) for c in checks]
        sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
