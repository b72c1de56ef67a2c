#!/usr/bin/env python3
"""Can a client learn from the time to its first token which prompts another client has sent?

In each trial a victim sends a prompt that nobody has sent before, or, with a chance of one half,
another one of the same length. Then a prober sends the first prompt and measures the time to its
first token. AUC is the probability that the time is shorter where the victim has sent the prompt:
0.5 means that the prober learns nothing, 1 that it always knows. Three series, trial by trial in
turn, against one server with `--runner sim`, whose steps take a fixed time:

    other tenant  victim and prober have keys of different tenants
    other salt    the same tenant, and each its own cache_salt
    same tenant   the same tenant and no salt: the prober must see the difference, so the probe works

usage: prefix_probe.py [--trials N] [--server PROGRAM] [--model MODEL] [--seed N]

Exit code 0: the first two are within 0.02 of 0.5 and the third is above 0.9. With few trials the
first two may differ by chance: the bound is then four standard errors, if that is more.
"""

import argparse
import json
import math
import random
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from cli_lib import JITNEY, talking_model  # noqa: E402
from server_lib import Server, http_request, read_until  # noqa: E402

PROMPT_TOKENS, STEP_TOKENS, STEP_US = 129, 32, 700
KEYS = "victim tenant=one\nprober tenant=two\ncolleague tenant=one\n"
SERIES = {  # name: (victim's key, salt, prober's key, salt)
    "other tenant": ("victim", None, "prober", None),
    "other salt": ("victim", "mine", "colleague", "yours"),
    "same tenant": ("victim", None, "colleague", None),
}


def ask(sock, key, salt, prompt):
    """Seconds until the first token of an answer."""
    body = {"prompt": prompt, "max_tokens": 1, "stream": True, "temperature": 0}
    if salt:
        body["cache_salt"] = salt
    data = http_request("POST", "/v1/completions", json.dumps(body).encode(),
                        authorization=f"Bearer {key}")
    began = time.perf_counter()
    sock.sendall(data)
    head = read_until(sock, b"\ndata: ")
    took = time.perf_counter() - began
    assert head.startswith(b"HTTP/1.1 200 "), head
    read_until(sock, b"\r\n0\r\n\r\n", head)
    return took


def auc(shorter, longer):
    """The share of pairs in which the first is the smaller one; ties count half."""
    ranked = sorted([(value, 0) for value in shorter] + [(value, 1) for value in longer])
    wins, longer_seen, at = 0.0, 0, 0
    while at < len(ranked):
        end = at
        while end < len(ranked) and ranked[end][0] == ranked[at][0]:
            end += 1
        tied = sum(kind for _, kind in ranked[at:end])
        wins += (end - at - tied) * (len(longer) - longer_seen - tied / 2)
        longer_seen += tied
        at = end
    return wins / (len(shorter) * len(longer))


def probe(server, trials, rng):
    """{series: (times where the victim had sent the prompt, times where it had not)}."""
    times = {name: ([], []) for name in SERIES}
    connect = lambda: socket.create_connection(server.address, timeout=20)  # noqa: E731
    draw = lambda: [rng.randrange(3, 250) for _ in range(PROMPT_TOKENS)]  # noqa: E731
    with connect() as victims, connect() as probers:
        for sock in (victims, probers):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(trials):
            for name, (victim, own_salt, prober, salt) in SERIES.items():
                prompt, other, has_sent = draw(), draw(), rng.random() < 0.5
                ask(victims, victim, own_salt, prompt if has_sent else other)
                times[name][0 if has_sent else 1].append(ask(probers, prober, salt, prompt))
    return times


def judge(times, least=0.9):
    """({series: AUC}, what is wrong with them). `least`: of the same tenant."""
    found, wrong = {}, []
    for name, (hit, miss) in times.items():
        found[name] = auc(hit, miss)
        spread = math.sqrt((len(hit) + len(miss) + 1) / (12 * len(hit) * len(miss)))
        bound = max(0.02, 4 * spread)
        if name == "same tenant":
            if found[name] <= least:
                wrong.append(f"{name}: AUC {found[name]:.3f}, expected above {least}")
        elif abs(found[name] - 0.5) > bound:
            wrong.append(f"{name}: AUC {found[name]:.3f}, expected 0.5 +- {bound:.3f}")
    return found, wrong


def make_model(folder):
    config = json.loads((talking_model(folder) / "config.json").read_text())
    config["max_position_embeddings"] = 2 * PROMPT_TOKENS
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def run(model, trials, seed, program=JITNEY):
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        keys.write_text(KEYS)
        flags = ("--runner", f"sim:{STEP_US}", "--api-key-file", keys, "--set",
                 f"max_step_tokens={STEP_TOKENS}")
        with Server(model or make_model(Path(folder) / "tiny"), *flags, program=program) as server:
            return probe(server, trials, random.Random(seed))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10000, help="of each series (%(default)s)")
    parser.add_argument("--server", default=JITNEY, help="the program (%(default)s)")
    parser.add_argument("--model", help="default: a tiny one")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    times = run(args.model, args.trials, args.seed, args.server)
    found, wrong = judge(times)
    for name, (hit, miss) in times.items():
        middle = [1e3 * sorted(part)[len(part) // 2] for part in (hit, miss)]
        print(f"{name:13s} trials {len(hit) + len(miss):6d}  AUC {found[name]:.4f}  median of the "
              f"first token: {middle[0]:.2f} ms sent before, {middle[1]:.2f} ms not")
    for line in wrong:
        print(f"prefix_probe: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
