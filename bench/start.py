#!/usr/bin/env python3
"""Measures how long `jitney serve` takes until it is ready, with and without cached weights.

usage: start.py [--rounds 5] [JITNEY] MODEL

Makes a cache folder of its own, starts a server there that keeps its weights, and then takes turns:
warm (from the cached weights), warm with --verify, cold (weights are packed; the model file is in
memory). Prints wall time from the start of the process to the line that says ready, and resident
memory there (VmRSS) and at its peak (VmHWM). On a machine with other work, `chrt -f 10` before it
keeps that from counting.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

WAYS = {"warm": [], "warm, --verify": ["--verify"], "cold": ["--weights-cache", "off"]}


def status_mib(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(rf"{name}:\s+(\d+)", file.read())[1]) / 1024


def start(jitney, model, flags, cache, until):
    """Milliseconds to ready, VmRSS and VmHWM there; ends it once a line has `until` in it."""
    began = time.perf_counter()
    server = subprocess.Popen([jitney, "serve", model, "--port", "0", *flags], text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              env={**os.environ, "JITNEY_CACHE": cache})
    found, line = None, "it said nothing"
    for line in server.stderr:
        if "state=ready" in line:
            took_ms = (time.perf_counter() - began) * 1e3
            found = took_ms, status_mib(server.pid, "VmRSS"), status_mib(server.pid, "VmHWM")
        if until in line:
            break
    server.terminate()
    server.communicate()
    if not found:
        sys.exit(f"start.py: the server did not become ready with {model}: {line.strip()}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("words", nargs="+", metavar="[JITNEY] MODEL")
    options = parser.parse_args()
    *program, model = options.words
    jitney = program[0] if program else "build/jitney"
    model = os.path.abspath(model)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as cache:
        start(jitney, model, [], cache, "event=weights")
        found = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way, flags in WAYS.items():
                found[way].append(start(jitney, model, flags, cache, "state=ready"))
    print(f"{'':16} {'ms, median':>10} {'min':>6} {'max':>6} {'RSS MiB':>8} {'peak MiB':>9}")
    for way, runs in found.items():
        ms = [run[0] for run in runs]
        print(f"{way:16} {statistics.median(ms):10.0f} {min(ms):6.0f} {max(ms):6.0f} "
              f"{runs[-1][1]:8.0f} {runs[-1][2]:9.0f}")


if __name__ == "__main__":
    main()
