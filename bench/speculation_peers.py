#!/usr/bin/env python3
"""Speculation beside llama.cpp's: one sequence over HTTP, the same prompts, in turns.

    python3 bench/speculation_peers.py [--rounds 5] [--requests 8] [--tokens 128] [--formats q4_1,q4_0]
                                       [--only lookup|draft]

lookup   prompts that are copied to a large part (as bench/speculation.py makes them), SmolLM2-135M as
         shipped (Q4_1) and in Q4_0, the format that llama.cpp is fastest with; jitney's `ngram` and
         `suffix` beside each mode of llama.cpp that guesses from text: with its defaults, which wait for
         12 equal tokens, and with 3 equal tokens and 8 guesses.
draft    the same model in F32 with its Q4_0 as the draft model: texts that copy nothing.

Each server runs alone, one after the other, `rounds` times. A rate is (tokens - 1) / (time of the last
token - time of the first), the median over requests and rounds. The environment of llama.cpp is made
under build/peers (bench/peers/requirements-xllamacpp.txt). The share of answers that are the same text
with and without drafts is printed for each engine.
"""

import argparse
import http.client
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/peers")]
sys.dont_write_bytecode = True

import speculation  # noqa: E402
from driver import engines  # noqa: E402
from driver.common import PEERS, Skip  # noqa: E402
from driver.servers import Server  # noqa: E402

SLOT_TOKENS = 2048
FEW = ["size_n=3", "size_m=8"]
LOOKUP_MODES = [("ngram_simple", []), ("ngram_simple", FEW), ("ngram_map_k", []),
                ("ngram_map_k", FEW), ("ngram_map_k4v", []), ("ngram_map_k4v", FEW),
                ("ngram_mod", []), ("ngram_mod", ["n_match=3", "n_max=8", "n_min=1"]),
                ("ngram_cache", [])]


class Served:
    """A program that serves one sequence at a time, as driver.servers wants it."""

    def __init__(self, name, command, path):
        self.name, self.command, self.path = name, command, path

    def server(self, port, _slots):
        return [str(word).replace("{port}", str(port)) for word in self.command], {}, self.path


def jitney(model, drafter):
    return Served(f"jitney {drafter.partition(':')[0]}",
                  [ROOT / "build/jitney", "serve", model, "--port", "{port}", "--ctx", SLOT_TOKENS,
                   "--served-model-name", "any", "--speculate", drafter], "/readyz")


def llamacpp(python, model, mode, settings=()):
    more = [mode, *settings] if mode else []
    return Served(" ".join(["llama.cpp", (mode or "off").partition(":")[0], *settings]),
                  [python, PEERS / "serve_llamacpp.py", model, "{port}", 2, 1, SLOT_TOKENS, *more],
                  "/health")


def answer(port, prompt, tokens):
    """(text, tokens a second behind the first token)"""
    body = {"model": "any", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
            "ignore_eos": True, "stream_options": {"include_usage": True}, "cache_prompt": False}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    text, first, last, count = "", None, None, 0
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event.get("choices") and event["choices"][0].get("text"):
            last = time.perf_counter()
            first = first or last
            text += event["choices"][0]["text"]
        count = (event.get("usage") or {}).get("completion_tokens", count)
    connection.close()
    assert count > 1, "no usage"
    return text, (count - 1) / (last - first)


def turn(served, prompts, tokens):
    """(texts, rates) of a server of its own"""
    with Server(served, 1) as server:
        answer(server.port, "Warm up.", 8)
        answers = [answer(server.port, prompt, tokens) for prompt in prompts]
    return [text for text, _ in answers], [rate for _, rate in answers]


def compare(title, all_served, prompts, args):
    rates, texts = {}, {}
    print(title, flush=True)
    for _ in range(args.rounds):
        for served in all_served:
            try:
                found, some = turn(served, prompts, args.tokens)
            except (Skip, AssertionError, OSError) as fault:
                print(f"  {served.name}: {fault}")
                continue
            rates.setdefault(served.name, []).extend(some)
            texts.setdefault(served.name, found)
    medians = {name: statistics.median(some) for name, some in rates.items()}
    best_peer = max((m for n, m in medians.items() if n.startswith("llama")), default=None)
    for name, median in medians.items():
        plain = texts[name.split()[0] + " off"]
        same = sum(a == b for a, b in zip(texts[name], plain)) / len(plain)
        beside = f"{median / best_peer:6.2f}x of llama.cpp's best" if best_peer else ""
        print(f"  {name:44} {median:8.1f} tokens/s  {median / medians[name.split()[0] + ' off']:5.2f}x"
              f" of off  {beside}  {same:4.0%} same text", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--text", type=pathlib.Path,
                        default=ROOT.parent / "shared/data/text/wikitext2.test.raw")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--formats", default="q4_1,q4_0")
    parser.add_argument("--only", choices=["lookup", "draft"])
    args = parser.parse_args()
    args.flags = []
    args.folder, args.no_install = ROOT / "build/peers", False
    args.folder.mkdir(parents=True, exist_ok=True)
    listed = json.loads(subprocess.run([ROOT / "build/jitney", "list", "--json"], check=True,
                                       stdout=subprocess.PIPE).stdout)
    source = next(m["path"] for m in listed if m["name"] == args.model)
    python = engines.environment(args, "xllamacpp")

    def made(kind):
        path = args.folder / "models" / f"{args.model}-{kind}.gguf"
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            subprocess.run([python, PEERS / "requantize.py", source, path, kind], check=True)
        return path

    models = {"q4_1": source, "q4_0": made("q4_0")}
    runner = speculation.Runner(args, args.folder)
    if args.only != "draft":
        requests, share = speculation.make_workload(runner, "copy", args.requests, args.tokens)
        for kind in args.formats.split(","):
            model = models[kind]
            served = [jitney(model, d) for d in ("off", "ngram", "suffix")] + [
                llamacpp(python, model, None)] + [
                llamacpp(python, model, *mode) for mode in LOOKUP_MODES]
            compare(f"lookup, {kind}: {share:.0%} of the 8-grams are copied", served,
                    [r["prompt"] for r in requests], args)
    if args.only != "lookup":
        target, small = made("f32"), models["q4_0"]
        rng = random.Random(2)
        prompts = speculation.paragraphs(args.text, rng)[:args.requests]
        served = [jitney(target, "off"), jitney(target, f"model:{small}"),
                  llamacpp(python, target, None)] + [
                  llamacpp(python, target, f"draft:{small}", [f"n_max={n}"]) for n in (3, 6, 12)]
        compare("draft: F32 with a Q4_0 of the same model before it", served, prompts, args)


if __name__ == "__main__":
    main()
