#!/usr/bin/env python3
"""Measures what finding tool calls costs: the share of a streamed token's instructions.

usage: tool_share.py [--jitney FILE] [--model NAME] [--streams N]

A server runs under `valgrind --tool=callgrind`, with the runner `sim`, which produces tokens from a
hash: all that is counted is the server's own work. It streams short and long answers, with tools in
the request and without. The difference between long and short answers is the cost of their tokens;
what a request costs cancels out. Prints instructions per token, of the server and of its parsers,
without what they call to log an event. exit: 0, or 1 if the parsers take more than 1 % of a token.

The parsers' count varies little from run to run, that of the server by a tenth: run it several times
if the share is near the limit. The kernel's instructions are not counted.
"""
import argparse
import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHORT, LONG = 100, 600
LIMIT_PERCENT = 1.0
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather.",
                                           "parameters": {"type": "object"}}}]
PARSERS = ("tool_parser_push", "think_parser_push")
LOG = "on_text"  # of event_writer.c: a parser calls it, and without a parser it is called as well


def stream(port, tokens, tools, counts):
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": tokens,
            "min_tokens": tokens, "ignore_eos": True, "seed": 1}
    if tools:
        body["tools"] = TOOLS
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"content-type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    if reply.status != 200:
        sys.exit(f"tool_share: {text.decode()}")
    counts.append(text.count(b"data: "))
    connection.close()


def run_server(options, out, tokens, tools):
    """The chunks that were streamed by a server that counts its instructions into `out`."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", options.jitney, "serve",
               options.model, "--runner", "sim:0", "--port", "0", "--log-level", "error"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    port = None
    for line in server.stderr:
        match = re.search(r"listening on https?://\S+:(\d+)", line)
        port = int(match[1]) if match else port
        if line.startswith("ready:"):
            break
    drain = threading.Thread(target=server.stderr.read, daemon=True)
    drain.start()
    counts = []
    threads = [threading.Thread(target=stream, args=(port, tokens, tools, counts))
               for _ in range(options.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.send_signal(signal.SIGTERM)
    server.wait(600)
    drain.join(10)
    if len(counts) != options.streams:
        sys.exit("tool_share: a stream has failed")
    return sum(counts)


def read_counts(out):
    """All instructions, and those of each parser with what it calls."""
    said = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(out)],
                          capture_output=True, text=True, check=True).stdout
    found = dict.fromkeys(("all", LOG, *PARSERS), 0)
    for line in said.splitlines():
        match = re.match(r"\s*([\d,]+)\s*(?:\([^)]*\))?\s+(.*)", line)
        if not match:
            continue
        count = int(match[1].replace(",", ""))
        if match[2].startswith("PROGRAM TOTALS"):
            found["all"] = count
        for name in (LOG, *PARSERS):
            if re.search(rf"\b(event_writer|{name.split('_')[0]}\w*)\.c:{name}( |$)", match[2]):
                found[name] = max(found[name], count)
    return found


def measure(options, folder, tools):
    """Instructions per token, by what took them."""
    found = {}
    for tokens in (SHORT, LONG):
        out = Path(folder) / f"{tokens}-{tools}"
        run_server(options, out, tokens, tools)
        found[tokens] = read_counts(out)
    total = options.streams * (LONG - SHORT)
    return {key: (found[LONG][key] - found[SHORT][key]) / total for key in found[LONG]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jitney", default=str(ROOT / "build" / "jitney"))
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--streams", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, tools = measure(options, folder, False), measure(options, folder, True)
    spent = max(tools[name] for name in PARSERS) - tools[LOG]  # one parser calls the other
    share = 100 * spent / tools["all"]
    print(f"a streamed token, instructions: {plain['all']:.0f} without tools, "
          f"{tools['all']:.0f} with tools")
    for name in (*PARSERS, LOG):
        print(f"  {name}: {tools[name]:.1f}")
    print(f"parsers: {share:.2f} % of a token without a model; at most {LIMIT_PERCENT:g} %: "
          f"{'met' if share <= LIMIT_PERCENT else 'MISSED'}")
    sys.exit(share > LIMIT_PERCENT)


if __name__ == "__main__":
    main()
