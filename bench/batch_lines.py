#!/usr/bin/env python3
"""What batch lines cost other requests, and how much work they get done: simulated, with the real
scheduler.

usage: batch_lines.py JITNEY

400 requests at 8 a second (prompts of 50 to 1,500 tokens, answers of 20 to 400), alone; beside 3,000
batch lines (prompts of 100 to 800, answers of 20 to 300); and beside the same 3,000 as requests
like all others. Prints a table for docs/scheduling.md. Times are of the 400 requests, except where
all are alike."""

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


def run(jitney, path, target_ms):
    command = [jitney, "replay", "--sim", "h200-8b", "--json", "--requests", path]
    for knob in (*KNOBS, f"step_target_ms={target_ms}"):
        command += ["--set", knob]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main():
    print("| `step_target_ms` | load | TTFT p50 ms | p99 | TPOT p50 ms | p99 | tokens/s of all |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for target_ms in (0, 25):
            for name, lines in (
                ("requests alone", None),
                ("and batch lines", True),
                ("and as many other requests", False),
            ):
                path = f"{folder}/list.jsonl"
                write(path, lines)
                got = run(sys.argv[1], path, target_ms)
                ttft, tpot = got["ttft_ms"], got["tpot_ms"]
                print(
                    f"| {target_ms} | {name} | {ttft['p50']:.0f} | {ttft['p99']:.0f} "
                    f"| {tpot['p50']:.1f} | {tpot['p99']:.1f} | {got['output_tokens_per_s']:.0f} |"
                )


if __name__ == "__main__":
    main()
