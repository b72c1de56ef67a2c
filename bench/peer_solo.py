#!/usr/bin/env python3
"""One sequence on this machine: jitney beside llama.cpp, the same file, the same threads.

    python bench/peer_solo.py [--jitney build/jitney] [--threads 2] [--repeats 5]

Takes turns (A B A B ...) so that whatever else the machine does hits both, and prints medians of
prompt and decode speed in tokens/s and jitney's multiple of llama.cpp's. llama.cpp is the library
inside the PyPI package xllamacpp (tools/goldens-requirements.txt), called straight through its C
interface, without Python between two tokens but for one call.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from goldens import llamacpp  # noqa: E402

WORDS = "the keeper of the light wrote down the weather and every ship that passed that day "


def prompt_of(model, tokens):
    text = WORDS * (tokens // 8)
    while len(model.tokenize(text)) > tokens:
        text = text[: text.rstrip().rfind(" ")]
    return text


def run_batch(model, ids, first):
    batch = model.lib.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, first + i, 1
        batch.logits[i] = i == len(ids) - 1
        batch.seq_id[i][0] = 0
    begun = time.perf_counter()
    assert model.lib.llama_decode(model.context, batch) == 0
    logits = model.lib.llama_get_logits_ith(model.context, len(ids) - 1)
    ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))[0]
    elapsed = time.perf_counter() - begun
    model.lib.llama_batch_free(batch)
    return elapsed


def theirs(model, ids, answer):
    model.lib.llama_memory_clear(model.lib.llama_get_memory(model.context), True)
    prompt = run_batch(model, ids, 0)
    decode = sum(run_batch(model, [ids[i]], len(ids) + i) for i in range(answer))
    return len(ids) / prompt, answer / decode


def ours(args, text, answer):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        said = subprocess.run(
            [args.jitney, "generate", "-m", args.model, "-f", file.name, "-n", str(answer + 1),
             "--temp", "0", "--ignore-eos", "--threads", str(args.threads), "--json"],
            check=True, capture_output=True)
    said = json.loads(said.stdout)
    prompt_s, decode_s = said["timings"]["prompt_ms"] / 1e3, said["timings"]["decode_ms"] / 1e3
    return said["usage"]["prompt_tokens"] / prompt_s, answer / decode_s


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jitney", default=str(ROOT / "build" / "jitney"))
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--gguf", help="the same model as a file; default: from jitney list")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--answer", type=int, default=128)
    args = parser.parse_args()
    listed = json.loads(subprocess.run([args.jitney, "list", "--json"], check=True,
                                       capture_output=True).stdout)
    rows = listed["models"] if isinstance(listed, dict) else listed
    path = args.gguf or next(r["path"] for r in rows if r["name"] == args.model)
    model = llamacpp.Model(path, n_ctx=1024, threads=args.threads, kv_f32=False)
    text = prompt_of(model, args.prompt)
    ids = model.tokenize(text)
    speeds = {"llama.cpp": [], "jitney": []}
    for _ in range(args.repeats):
        speeds["llama.cpp"].append(theirs(model, ids, args.answer))
        speeds["jitney"].append(ours(args, text, args.answer))
    median = {name: [statistics.median(v) for v in zip(*runs)] for name, runs in speeds.items()}
    print(f"{len(ids)} prompt tokens, {args.answer} decoded, {args.threads} threads, "
          f"medians of {args.repeats}")
    for name, (prompt, decode) in median.items():
        print(f"{name:10} prompt {prompt:7.0f} tok/s   decode {decode:7.1f} tok/s")
    ratio = [a / b for a, b in zip(median["jitney"], median["llama.cpp"])]
    print(f"jitney / llama.cpp: prompt {ratio[0]:.2f}x, decode {ratio[1]:.2f}x")


if __name__ == "__main__":
    main()
