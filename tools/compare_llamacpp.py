#!/usr/bin/env python3
"""Hold next-token distributions against llama.cpp's on the same tokens.

    compare_llamacpp.py dump -m MODEL.gguf -f TEXT --windows 8 --out THEIRS.bin
    compare_llamacpp.py compare THEIRS.bin OURS.bin
    compare_llamacpp.py perplexity -m MODEL.gguf -f TEXT --windows 20 [--exact]
    compare_llamacpp.py excerpt -m MODEL.gguf --golden tests/golden
    compare_llamacpp.py compare-excerpt tests/golden/smollm2_llamacpp.bin OURS.bin

The text is cut into windows of `-c` tokens without overlap and without BOS; positions c/2 to c-2
of each are scored, each predicting its next token. A dump holds one row of raw logits for each
scored position, in order: int32 rows, int32 vocabulary, float32[rows][vocabulary]. OURS.bin is
what `jitney perplexity --dump-logits` writes for the same text, context and number of windows.

KL is KL(llama.cpp || ours) in nats, in float64 from the logits.
"""

import argparse
import math
import pathlib
import struct
import sys

import numpy as np

from goldens import llamacpp

EXCERPT_TOP = 64
EXCERPT_CONTEXT = 256
EXCERPT_WINDOWS = 3


def log_softmax(logits):
    shifted = np.asarray(logits, dtype=np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def read_exactly(path):
    """The text with its line ends as they are; read_text would turn CR LF into LF."""
    return path.read_bytes().decode()


def scored_windows(model, text, context, windows):
    """Yields (logits rows, their next tokens) of each window."""
    tokens = model.tokenize(text)
    if len(tokens) < windows * context:
        sys.exit(f"the text has {len(tokens)} tokens, {windows * context} are needed")
    for w in range(windows):
        ids = tokens[w * context:(w + 1) * context]
        first = context // 2
        yield model.logits(ids)[first:context - 1], ids[first + 1:]


def open_model(args):
    if args.exact:
        from goldens import exact  # the one part that needs torch

        return exact.Model(args.model)
    return llamacpp.Model(args.model, n_ctx=args.context, kv_f32=args.kv_f32)


def run_dump(args):
    model = open_model(args)
    rows = args.windows * (args.context - 1 - args.context // 2)
    with open(args.out, "wb") as f:
        f.write(struct.pack("<2i", rows, model.n_vocab))
        text = read_exactly(args.file)
        for logits, _ in scored_windows(model, text, args.context, args.windows):
            f.write(logits.astype("<f4").tobytes())
    print(f"{rows} rows of {model.n_vocab} logits in {args.out}")


def run_perplexity(args):
    total, count = 0.0, 0
    model = open_model(args)
    text = read_exactly(args.file)
    for logits, following in scored_windows(model, text, args.context, args.windows):
        total -= log_softmax(logits)[np.arange(len(following)), following].sum()
        count += len(following)
        print(f"[{count}] {math.exp(total / count):.4f}", flush=True)


def open_dump(path):
    rows, vocab = struct.unpack("<2i", path.open("rb").read(8))
    size = path.stat().st_size
    if size != 8 + 4 * rows * vocab:
        sys.exit(f"{path}: {size} bytes do not fit {rows} rows of {vocab}")
    return np.memmap(path, dtype="<f4", mode="r", offset=8, shape=(rows, vocab))


def kl(theirs, ours):
    """KL of each row, from logits or log-probabilities."""
    p, q = log_softmax(theirs), log_softmax(ours)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def summary(divergence, same):
    order = np.sort(divergence)
    return (f"rows {len(order)}  mean KL {order.mean():.6f}  median {order[len(order) // 2]:.6f}  "
            f"99% {order[int(len(order) * 0.99)]:.6f}  largest {order[-1]:.6f}  "
            f"same best {100 * same / len(order):.2f} %")


def run_compare(args):
    theirs, ours = open_dump(args.theirs), open_dump(args.ours)
    rows = min(len(theirs), len(ours))
    if theirs.shape[1] != ours.shape[1]:
        sys.exit(f"vocabularies differ: {theirs.shape[1]} and {ours.shape[1]}")
    divergence, same = [], 0
    for at in range(0, rows, 64):
        a, b = theirs[at:min(at + 64, rows)], ours[at:min(at + 64, rows)]
        divergence.append(kl(a, b))
        same += int((a.argmax(1) == b.argmax(1)).sum())
    divergence = np.concatenate(divergence)
    print(summary(divergence, same))
    return 0 if divergence.mean() < args.limit else 1


def write_excerpt(path, windows):
    """See tests/golden/README.md for the layout."""
    logits = np.concatenate([rows for rows, _ in windows])
    following = np.concatenate([ids for _, ids in windows]).astype("<i4")
    log_p = log_softmax(logits)
    top = np.argsort(-log_p, axis=1, kind="stable")[:, :EXCERPT_TOP]
    with open(path, "wb") as f:
        f.write(b"JTOP" + struct.pack("<5I", 1, EXCERPT_WINDOWS, EXCERPT_CONTEXT, len(log_p),
                                      EXCERPT_TOP))
        f.write(following.tobytes())
        f.write(log_p[np.arange(len(log_p)), following].astype("<f4").tobytes())
        f.write(top.astype("<i4").tobytes())
        f.write(np.take_along_axis(log_p, top, axis=1).astype("<f4").tobytes())


def read_excerpt(path):
    """(next tokens, their log-probabilities, ids of the best, their log-probabilities)"""
    data = path.read_bytes()
    version, _, _, rows, best = struct.unpack_from("<5I", data, 4)
    assert data[:4] == b"JTOP" and version == 1
    at = 24
    parts = []
    for kind, shape in (("<i4", (rows,)), ("<f4", (rows,)), ("<i4", (rows, best)),
                        ("<f4", (rows, best))):
        parts.append(np.frombuffer(data, kind, math.prod(shape), at).reshape(shape))
        at += 4 * math.prod(shape)
    assert at == len(data)
    return parts


def run_excerpt(args):
    text = read_exactly(args.golden / "smollm2_llamacpp.txt")
    model = llamacpp.Model(args.model, n_ctx=EXCERPT_CONTEXT, kv_f32=args.kv_f32)
    windows = list(scored_windows(model, text, EXCERPT_CONTEXT, EXCERPT_WINDOWS))
    out = args.golden / "smollm2_llamacpp.bin"
    write_excerpt(out, windows)
    _, log_p, _, best = read_excerpt(out)
    mass = np.exp(best.astype(np.float64)).sum(axis=1)
    print(f"{len(log_p)} rows, perplexity {math.exp(-log_p.mean(dtype=np.float64)):.4f}, the best "
          f"{EXCERPT_TOP} hold {mass.mean():.4f} of the probability, {mass.min():.4f} at least")


def excerpt_kl(best_ids, best_log_p, ours):
    """KL over the best tokens and one more for all the rest; never above the full KL."""
    q = np.take_along_axis(log_softmax(ours), best_ids, axis=1)
    p = best_log_p.astype(np.float64)
    p_rest = np.maximum(1 - np.exp(p).sum(axis=1), 1e-9)
    q_rest = np.maximum(1 - np.exp(q).sum(axis=1), 1e-9)
    return (np.exp(p) * (p - q)).sum(axis=1) + p_rest * np.log(p_rest / q_rest)


def run_compare_excerpt(args):
    following, log_p, ids, best = read_excerpt(args.theirs)
    ours = open_dump(args.ours)
    if len(ours) != len(following):
        sys.exit(f"{args.ours}: {len(ours)} rows, {len(following)} expected")
    divergence = excerpt_kl(ids, best, ours)
    our_log_p = log_softmax(ours)[np.arange(len(following)), following]
    print(summary(divergence, int((ids[:, 0] == ours.argmax(1)).sum())))
    print(f"perplexity {math.exp(-our_log_p.mean()):.4f}, llama.cpp's "
          f"{math.exp(-log_p.mean(dtype=np.float64)):.4f}")
    return 0 if divergence.mean() < args.limit else 1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("dump", "perplexity", "excerpt"):
        command = commands.add_parser(name)
        command.add_argument("-m", "--model", type=pathlib.Path, required=True)
        command.add_argument("--kv-f32", action="store_true",
                             help="keys and values in float32, not llama.cpp's default float16")
        if name == "excerpt":
            command.add_argument("--golden", type=pathlib.Path, required=True)
            continue
        command.add_argument("--exact", action="store_true",
                             help="transformers in float32 on the decoded weights, not llama.cpp")
        command.add_argument("-f", "--file", type=pathlib.Path, required=True)
        command.add_argument("-c", "--context", type=int, default=512)
        command.add_argument("--windows", type=int, default=8)
        if name == "dump":
            command.add_argument("--out", type=pathlib.Path, required=True)
    for name in ("compare", "compare-excerpt"):
        command = commands.add_parser(name)
        command.add_argument("theirs", type=pathlib.Path)
        command.add_argument("ours", type=pathlib.Path)
        command.add_argument("--limit", type=float, default=0.01, help="fail at this mean KL")
    return parser.parse_args()


def main():
    args = parse_arguments()
    run = {"dump": run_dump, "perplexity": run_perplexity, "excerpt": run_excerpt,
           "compare": run_compare, "compare-excerpt": run_compare_excerpt}[args.command]
    sys.exit(run(args))


if __name__ == "__main__":
    main()
