#!/usr/bin/env python3
"""What batch lines cost interactive requests, and what they get beside them.

For each step_target_ms: the interactive load alone (half of what the machine carries, Poisson
arrivals), a batch alone, and both together, each in turn on one server, repeated; medians are
printed with these ratios:

    TTFT p50 and p99   may rise by at most the time of one step of the batch alone
    TPOT p99           at most 1.15x
    batch tokens/s     at least 0.65x of (batch alone - interactive tokens/s)

Usage: bench/batch_beside.py [--model smollm2] [--targets 10,0,5,20,50] [--seconds 20] [--repeats 3]
       [--set KNOB=VALUE]...
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

JITNEY = Path(__file__).resolve().parent.parent / "build" / "jitney"
PROMPT_TOKENS, OUTPUT_TOKENS, CLIENTS = 64, 64, 256
WORDS = "river stone cloud lamp paper garden winter copper music engine window harbour".split()


class Server:
    def __init__(self, model, knobs, folder):
        flags = [word for knob in knobs for word in ("--set", knob)]
        self.process = subprocess.Popen(
            [JITNEY, "serve", model, "--port", "0", "--data-dir", folder, "--log-level", "error",
             *flags], stderr=subprocess.PIPE, text=True)
        self.url, self.runs = "", 0
        for line in self.process.stderr:
            found = re.search(r"ready: (http\S+)", line)
            if found:
                self.url = found[1]
                break
        assert self.url, "the server did not start"
        self.model = json.loads(self.ask("/v1/models"))["data"][0]["id"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, path, body=None, headers=None, method=None):
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {
            "content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read()

    def numbers(self):
        text = self.ask("/metrics").decode()
        return {name: float(re.search(rf"^{name}{{[^}}]*}} (\S+)", text, re.M)[1]) for name in (
            "vllm:generation_tokens_total", "jitney:engine_steps_total",
            "jitney:step_seconds_total")}

    def bench(self, *flags):
        """Each run has prompts of its own: the prefix cache must not know them from another run."""
        self.runs += 1
        out = subprocess.run([JITNEY, "bench", self.url, "--json", "--prompt-tokens",
                              str(PROMPT_TOKENS), "--output-tokens", str(OUTPUT_TOKENS),
                              "--seed", str(self.runs),
                              *map(str, flags)], capture_output=True, text=True, check=True).stdout
        return json.loads(out)["runs"][0]

    def start_batch(self, lines):
        text = b"".join(json.dumps({
            "custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions",
            "body": {"model": self.model, "prompt": " ".join(WORDS[(i * 7 + j * (i % 5 + 1)) % len(WORDS)]
                                                     for j in range(PROMPT_TOKENS)),
                     "max_tokens": OUTPUT_TOKENS, "ignore_eos": True, "seed": i}}).encode() + b"\n"
            for i in range(lines))
        mark = b"----line"
        form = (b"--" + mark + b"\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch"
                b"\r\n--" + mark + b"\r\ncontent-disposition: form-data; name=\"file\"; "
                b"filename=\"in.jsonl\"\r\n\r\n" + text + b"\r\n--" + mark + b"--\r\n")
        file = json.loads(self.ask("/v1/files", form, {
            "content-type": "multipart/form-data; boundary=----line"}))
        return json.loads(self.ask("/v1/batches", {
            "input_file_id": file["id"], "endpoint": "/v1/completions",
            "completion_window": "24h"}))["id"]

    def end_batch(self, name):
        state = json.loads(self.ask(f"/v1/batches/{name}"))
        assert state["status"] == "in_progress" and not state["request_counts"]["failed"], state
        self.ask(f"/v1/batches/{name}/cancel", b"", method="POST")
        while json.loads(self.ask(f"/v1/batches/{name}"))["status"] not in ("cancelled",
                                                                          "completed"):
            time.sleep(0.1)


def rates(before, after, seconds):
    steps = after["jitney:engine_steps_total"] - before["jitney:engine_steps_total"]
    step_s = after["jitney:step_seconds_total"] - before["jitney:step_seconds_total"]
    tokens = after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"]
    return tokens / seconds, 1000 * step_s / max(steps, 1)


def batch_alone(server, seconds):
    name = server.start_batch(20000)
    time.sleep(3)
    before, began = server.numbers(), time.monotonic()
    time.sleep(seconds / 2)
    found = rates(before, server.numbers(), time.monotonic() - began)
    server.end_batch(name)
    return found


def both(server, load):
    name = server.start_batch(20000)
    time.sleep(3)
    before, began = server.numbers(), time.monotonic()
    run = server.bench(*load)
    tokens, _ = rates(before, server.numbers(), time.monotonic() - began)
    server.end_batch(name)
    return run, tokens - run["output_throughput"]


def one_target(model, target_ms, args):
    rows, knobs = [], [f"step_target_ms={target_ms}", *args.set]
    with tempfile.TemporaryDirectory() as folder, Server(model, knobs, folder) as server:
        most = server.bench("--clients", 16, "--requests", 48)["request_throughput"]
        load = ("--rate", most / 2, "--clients", CLIENTS, "--seconds", args.seconds, "--warmup", 0)
        for _ in range(args.repeats):
            alone = server.bench(*load)
            batch, step_ms = batch_alone(server, args.seconds)
            run, beside = both(server, load)
            rows.append((alone, run, batch, beside, step_ms))
    def median(pick):
        return statistics.median(pick(*row) for row in rows)
    rise = {p: median(lambda a, r, *_: r[f"{p}_ttft_ms"] - a[f"{p}_ttft_ms"])
            for p in ("median", "p99")}
    return {"step_target_ms": target_ms,
            "interactive_tok_s": median(lambda a, *_: a["output_throughput"]),
            "batch_tok_s": median(lambda a, r, b, *_: b),
            "beside_tok_s": median(lambda a, r, b, s, *_: s),
            "batch_step_ms": median(lambda *row: row[4]),
            "ttft_p50_rise_ms": rise["median"], "ttft_p99_rise_ms": rise["p99"],
            "ttft_p50_alone_ms": median(lambda a, *_: a["median_ttft_ms"]),
            "ttft_p99_alone_ms": median(lambda a, *_: a["p99_ttft_ms"]),
            "tpot_p50_ratio": median(lambda a, r, *_: r["median_tpot_ms"] / a["median_tpot_ms"]),
            "tpot_p99_alone_ms": median(lambda a, *_: a["p99_tpot_ms"]),
            "tpot_p99_ratio": median(lambda a, r, *_: r["p99_tpot_ms"] / a["p99_tpot_ms"]),
            "share": median(lambda a, r, b, s, *_: s / max(b - a["output_throughput"], 1e-9))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--targets", default="10,0,5,20,50")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="a further knob=value")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = None
    for target in args.targets.split(","):
        row = one_target(args.model, float(target), args)
        if args.json:
            print(json.dumps(row), flush=True)
            continue
        if not names:
            names = list(row)
            print("  ".join(names))
        print("  ".join(f"{row[name]:>{len(name)}.2f}" for name in names), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
