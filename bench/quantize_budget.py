#!/usr/bin/env python3
"""What `jitney quantize --budget` gains: its KL beside that of the best uniform type of the size.

usage: quantize_budget.py JITNEY MODEL.gguf TEXT [--work FOLDER] [--types Q4_0,Q5_0,...]
                          [--at Q4_0,...] [--budgets BYTES,...] [--calibrate-chunks N] [--chunks N]

MODEL is F32, F16 or BF16; docs/quantizing.md says how the one of its table is made. The first half
of TEXT calibrates, the second half measures (`jitney compare`). All types are calibrated with the
same text. The budgets are the sizes of the files of the types --at, unless --budgets gives them. The
best uniform type of a budget is the one with the least KL whose file is at most SLACK bytes larger.
Exits with 1 if a KL is above 0.9 of that type's.

Files stay in --work (default: a temporary folder), and are not made again if they are there.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TYPES = "Q4_0,IQ4_NL,Q4_1,Q4_K,Q5_0,Q5_K,Q5_1,Q6_K,Q8_0"
AT = "Q4_0,Q5_0,Q5_1"
LIMIT = 0.9
SLACK = 64  # the padding of a tensor or two: budgets that were given as round numbers


def halves(text, work):
    """The two halves of the text, cut at a line."""
    data = Path(text).read_bytes()
    middle = data.index(b"\n", len(data) // 2)
    parts = work / "calibrate.txt", work / "measure.txt"
    parts[0].write_bytes(data[:middle])
    parts[1].write_bytes(data[middle:])
    return parts


class Bench:
    def __init__(self, args, work):
        self.args = args
        self.work = work
        self.calibration, self.text = halves(args.text, work)

    def jitney(self, *args):
        done = subprocess.run([self.args.jitney, *map(str, args), "--json"], check=True,
                              stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    def model(self, name, *flags):
        """(bytes, KL, expected KL or None) of the model with these flags."""
        path, facts = self.work / f"{name}.gguf", self.work / f"{name}.json"
        if not facts.exists():
            path.unlink(missing_ok=True)
            made = self.jitney("quantize", self.args.model, path, *flags, "--calibrate",
                               self.calibration, "--chunks", self.args.calibrate_chunks)
            got = self.jitney("compare", self.args.model, path, "-f", self.text, "--greedy", 0,
                              "--chunks", self.args.chunks)
            expected = made.get("plan", {}).get("expected_kl")
            facts.write_text(json.dumps([got["bytes_b"], got["kl_mean"], expected]))
            path.unlink()
        return json.loads(facts.read_text())

    def run(self):
        """Whether every KL is within the limit."""
        uniform = {t: self.model(t, "--type", t) for t in self.args.types.split(",")}
        for name, (size, kl, _) in uniform.items():
            print(f"{name:8} {size:12,} bytes, KL {kl:.5f}", flush=True)
        budgets = [uniform[t][0] for t in self.args.at.split(",")]
        if self.args.budgets:
            budgets = [int(b) for b in self.args.budgets.split(",")]
        met = True
        print(f"{'budget':>12} {'bytes':>12} {'KL':>8} {'expected':>8}  best uniform type")
        for budget in budgets:
            size, kl, expected = self.model(f"budget-{budget}", "--budget", budget)
            fits = {t: u for t, u in uniform.items() if u[0] <= budget + SLACK}
            best = min(fits, key=lambda t: fits[t][1])
            ratio = kl / fits[best][1]
            met = met and ratio <= LIMIT and size <= budget
            print(f"{budget:12,} {size:12,} {kl:8.5f} {expected:8.5f}  {best} {fits[best][1]:.5f}, "
                  f"ratio {ratio:.3f}", flush=True)
        return met


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("jitney")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--at", default=AT)
    parser.add_argument("--budgets")
    parser.add_argument("--calibrate-chunks", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if Bench(args, work).run() else 1)


if __name__ == "__main__":
    main()
