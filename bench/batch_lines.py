#!/usr/bin/env python3
"""What batch lines cost other requests, and how much work they get done: simulated, with the real
scheduler.

usage: batch_lines.py JITNEY

400 requests at 8 a second (prompts of 50 to 1,500 tokens, answers of 20 to 400), alone; beside 3,000
batch lines (prompts of 100 to 800, answers of 20 to 300); and beside the same 3,000 as requests
like all others. Then the 400 beside lines for several values of the knob batch_slowdown. Prints two
tables for docs/scheduling.md. Times are of the 400 requests, except where all are alike."""

import json
import random
import subprocess
import sys
import tempfile

COUNT, PER_S, LINES = 400, 8, 3000
KNOBS = ("max_step_tokens=2048", "max_seqs=128")


def write(path, lines):
    """lines: None, or whether the 3,000 are marked as batch."""
    draw = random.Random(1)
    at_ms = 0.0
    with open(path, "w", encoding="utf-8") as out:
        for i in range(COUNT):
            at_ms += draw.expovariate(PER_S) * 1000
            one = {"id": f"i{i}", "at_ms": round(at_ms, 3), "ignore_eos": True}
            one |= {"prompt_len": draw.randint(50, 1500), "max_tokens": draw.randint(20, 400)}
            print(json.dumps(one), file=out)
        for i in range(0 if lines is None else LINES):
            one = {"id": f"b{i}", "ignore_eos": True, "batch": lines}
            one |= {"prompt_len": draw.randint(100, 800), "max_tokens": draw.randint(20, 300)}
            print(json.dumps(one), file=out)


def run(jitney, path, *knobs):
    command = [jitney, "replay", "--sim", "h200-8b", "--json", "--requests", path]
    for knob in (*KNOBS, *knobs):
        command += ["--set", knob]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def print_row(first, got):
    ttft, tpot = got["ttft_ms"], got["tpot_ms"]
    print(f"| {first} | {ttft['p50']:.0f} | {ttft['p99']:.0f} | {tpot['p50']:.1f} "
          f"| {tpot['p99']:.1f} | {got['output_tokens_per_s']:.0f} |")


def print_loads(jitney, path):
    print("| `step_target_ms` | load | TTFT p50 ms | p99 | TPOT p50 ms | p99 | tokens/s of all |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for target_ms in (0, 25):
        for name, lines in (
            ("requests alone", None),
            ("and batch lines", True),
            ("and as many other requests", False),
        ):
            write(path, lines)
            print_row(f"{target_ms} | {name}", run(jitney, path, f"step_target_ms={target_ms}"))


def print_slowdowns(jitney, path):
    print("\n| `batch_slowdown` | TTFT p50 ms | p99 | TPOT p50 ms | p99 | tokens/s of all |")
    print("|---:|---:|---:|---:|---:|---:|")
    write(path, True)
    for share in (0, 0.05, 0.15, 0.5, 1, 10):
        print_row(share, run(jitney, path, "step_target_ms=25", f"batch_slowdown={share}"))


def main():
    with tempfile.TemporaryDirectory() as folder:
        print_loads(sys.argv[1], f"{folder}/list.jsonl")
        print_slowdowns(sys.argv[1], f"{folder}/list.jsonl")


if __name__ == "__main__":
    main()
