#!/usr/bin/env python3
"""What batches cost beside the engine: the rate of `jitney batch` and of /v1/batches against that of
`jitney replay` with the same requests.

    python3 bench/batch_rate.py [-m smollm2] [--lines 2000] [--tokens 16] [--rounds 3] [flags]

replay gives the engine all requests at once and writes tokens; batch reads and writes OpenAI's
lines, and keeps every result on disk; the server does the same for a client. The programs take
turns. Printed are the medians of tokens a second (of the run without loading the model; of the
server: from the request for the batch until it is completed) and of processor time (of the whole
process, which other programs on the machine disturb less), as multiples of replay's.
"""

import argparse
import json
import pathlib
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORDS = ("the river carries small boats under an old bridge while people wait for letters from "
         "far away and count days until winter ends in a quiet town near mountains").split()


def make_requests(count, tokens, folder):
    """The same requests for both programs: half of them begin alike, as those of one task do."""
    chance = random.Random(1)
    task = "Answer in one sentence. " + " ".join(chance.choices(WORDS, k=24)) + ". "
    lines, requests = [], []
    for i in range(count):
        prompt = (task if i % 2 else "") + " ".join(chance.choices(WORDS, k=chance.randrange(4, 40)))
        common = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        lines.append({"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                      "body": common})
        requests.append({"id": i, **common})
    for name, items in (("lines.jsonl", lines), ("requests.jsonl", requests)):
        (folder / name).write_text("".join(json.dumps(x) + "\n" for x in items))


def measure(command):
    """(the program's summary, its processor time in seconds)"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return json.loads(done.stdout), (after.ru_utime + after.ru_stime -
                                     before.ru_utime - before.ru_stime)


def ask(url, body=None, kind="application/json"):
    request = urllib.request.Request(url, body, {"content-type": kind})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


def run_batch(url, text):
    """Upload, create, wait; (the batch, seconds)."""
    model = ask(url + "/v1/models")["data"][0]["id"]
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        line["body"]["model"] = model
    text = "".join(json.dumps(line) + "\n" for line in lines)
    part = '--edge\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    form = part % ("purpose", "", "batch") + part % ("file", '; filename="l.jsonl"', text)
    file = ask(url + "/v1/files", (form + "--edge--\r\n").encode(),
               "multipart/form-data; boundary=edge")
    began = time.monotonic()
    batch = ask(url + "/v1/batches", json.dumps({
        "input_file_id": file["id"], "endpoint": "/v1/completions",
        "completion_window": "24h"}).encode())
    while batch["status"] not in ("completed", "failed"):
        time.sleep(0.05)
        batch = ask(f"{url}/v1/batches/{batch['id']}")
    return batch, time.monotonic() - began


def measure_server(command, text):
    """As measure(), of a server that runs one batch."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            url = next(found[1] for line in server.stderr
                       if (found := re.search(r"ready: (http\S+)", line)))
            batch, seconds = run_batch(url, text)
        finally:
            server.terminate()
            server.stderr.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    tokens = batch["usage"]["output_tokens"]
    summary = {"completion_tokens": tokens, "failed": batch["request_counts"]["failed"],
               "tokens_per_s": tokens / seconds}
    return summary, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--jitney", default=str(ROOT / "build" / "jitney"))
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    args, flags = parser.parse_known_args()
    names = ("replay", "batch", "server")
    rates, seconds = {name: [] for name in names}, {name: [] for name in names}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_requests(args.lines, args.tokens, folder)
        common = ["-m", args.model, "--json", *flags]
        replay = [args.jitney, "replay", "--requests", folder / "requests.jsonl", "--out",
                  folder / "replayed", *common]
        batch = [args.jitney, "batch", folder / "lines.jsonl", "-o", folder / "answered",
                 "--weights-cache", "off", *common]
        serve = [args.jitney, "serve", args.model, "--port", "0", "--data-dir", folder / "data",
                 "--weights-cache", "off", *flags]
        text = (folder / "lines.jsonl").read_text()
        for _ in range(args.rounds):
            turn = {"replay": measure(replay), "batch": measure(batch),
                    "server": measure_server(serve, text)}
            tokens = turn["replay"][0]["output_tokens"]
            turn["replay"][0]["tokens_per_s"] = turn["replay"][0]["output_tokens_per_s"]
            for name in names[1:]:
                summary = turn[name][0]
                if (summary["completion_tokens"], summary["failed"]) != (tokens, 0):
                    sys.exit(f"replay wrote {tokens} tokens, {name}: {summary}")
            for name in names:
                rates[name].append(turn[name][0]["tokens_per_s"])
                seconds[name].append(turn[name][1])
            print("; ".join(f"{name}: {rates[name][-1]:.0f} tokens/s, {seconds[name][-1]:.2f} "
                            "processor s" for name in names), flush=True)
    rate = {name: statistics.median(values) for name, values in rates.items()}
    spent = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{args.lines} lines, {tokens} tokens, medians of {args.rounds}, against replay: " +
          "; ".join(f"{name} {rate[name] / rate['replay']:.3f} of the tokens/s, "
                    f"{spent['replay'] / spent[name]:.3f} by processor time"
                    for name in names[1:]))


if __name__ == "__main__":
    main()
