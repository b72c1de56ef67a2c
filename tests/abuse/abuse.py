#!/usr/bin/env python3
"""Nobody can talk the server down: attacks on a running server, and what other clients notice.

For each attack of attacks.py: a victim with a key and a probe are measured while nothing else
happens, then while the attacker (attacker.py: another process, another address, nice 19, at most
10 MB/s) is at work, without a key and with one. Then the attacker leaves, and within five seconds
everything must be as before.

usage: abuse.py [--server PROGRAM] [--model MODEL] [--attack NAME]... [--requests N] [--seconds S]
                [--policy NAME] [--runner NAME]

Bars: /livez within 100 ms at the 99th percentile and always answered; the victim's time to the
first token at the 99th percentile at most 2x of quiet (with a keyed attacker 3x, under the policy
`fair` 1.5x; plus 5 ms, what one turn of the operating system's scheduler takes); resident memory
below what it was plus --memory-max; afterwards no request, no connection and no counted byte is
left. Exit code 0: all are kept.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
from attacks import ATTACKS  # noqa: E402
from cli_lib import JITNEY  # noqa: E402
from server_lib import Server, tiny_model, wait_until  # noqa: E402
from victim import Folders, Probe, Victim, percentile  # noqa: E402

KEYS = "victim-key name=victim tenant=victim\n" \
       "attacker-key name=attacker tenant=attacker concurrent=64\n" \
       "operator-key name=operator tenant=operator admin\n"
MEMORY_MAX = 256 << 20
LIVEZ_S, SLACK_S = 0.1, 0.005
AFTER_S = 5
COUNTED = ("http_bodies_bytes", "http_queued_bytes", "embeddings_bytes", "work_bytes", "work_items",
           "answers_under_way")


@dataclass
class Outcome:
    attack: str
    keyed: bool
    quiet_ms: float
    ttft_ms: float
    livez_ms: float
    grown_mib: float
    requests: int
    statuses: str  # that the attacker got, where it reads them
    problems: list = field(default_factory=list)

    @property
    def row(self):
        return (f"{self.attack:34} {'key' if self.keyed else '-':4} {self.requests:5} "
                f"{self.quiet_ms:7.1f} {self.ttft_ms:7.1f} {self.livez_ms:7.1f} "
                f"{self.grown_mib:7.0f}  {'; '.join(self.problems) or 'ok'}  [{self.statuses}]")


HEAD = f"{'attack':34} {'key':4} {'n':>5} {'quiet':>7} {'ttft':>7} {'livez':>7} {'MiB':>7}"


def resident(pid):
    """Bytes that are the process's own; mapped model files and shared memory are left out."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


class Watched:
    """A server with keys, its quiet state, and the clients that watch it."""

    def __init__(self, model, *flags, program=JITNEY):
        self.folder = tempfile.TemporaryDirectory()
        keys = Path(self.folder.name) / "keys"
        keys.write_text(KEYS)
        self.server = Server(model, "--api-key-file", keys, "--memory-max", str(MEMORY_MAX),
                             "--connections-max", "256", "--set", "kv_blocks=2048", *flags, program=program)
        self.victim = Victim(self.server, "victim-key")
        self.victim.measure(20, 5)
        self.resident = resident(self.server.pid)
        self.descriptors = self.server.descriptors()

    def close(self):
        self.server.stop()
        self.folder.cleanup()

    def metrics(self):
        reply = self.server.plain("GET", "/metrics", headers={
            "authorization": "Bearer operator-key"})
        found = {}
        for line in reply.body.decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                found[name] = found.get(name, 0.0) + float(value)
        return found

    def leftovers(self):
        """What is not as in the beginning; empty: all is."""
        left = []
        found = self.metrics()
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            if found.get(name):
                left.append(f"{name} {found[name]:g}")
        for name in COUNTED:
            if found["jitney:" + name] > 0:
                left.append(f"{name} {found['jitney:' + name]:g}")
        answers = found["jitney:answers_bytes"] - found["jitney:kept_answers_bytes"]
        if answers > 0:
            left.append(f"answers that are not kept {answers:g}")
        if self.server.descriptors() > self.descriptors + 4:
            left.append(f"{self.server.descriptors()} descriptors, were {self.descriptors}")
        return left


@contextlib.contextmanager
def attacking(server, name, seconds, key):
    host, port = server.address
    process = subprocess.Popen(
        [sys.executable, HERE / "attacker.py", host, str(port), name, str(seconds), *key],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"begun\n"
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def factor_of(keyed, policy):
    return 2.0 if not keyed else 1.5 if policy == "fair" else 3.0


def try_attack(watched, name, keyed, how):
    """One attack, measured before, during and after."""
    server, victim = watched.server, watched.victim
    before = resident(server.pid)
    probe = Probe(server, lambda: resident(server.pid))
    quiet = victim.measure(how.requests, how.seconds)
    victim.failures.clear()
    key = ["attacker-key"] if keyed else []
    with attacking(server, name, how.seconds + 5, key) as attacker:
        probe.start()
        times = victim.measure(how.requests, how.seconds)
        probe.stop()
    grown = probe.peak - before
    outcome = Outcome(name, keyed, percentile(quiet, 0.99) * 1e3, percentile(times, 0.99) * 1e3,
                      percentile(probe.times, 0.99) * 1e3, grown / (1 << 20), len(times),
                      attacker.stdout.read().decode().strip())
    if attacker.returncode > 0:
        outcome.problems.append("the attacker is broken; it says why")
    if not wait_until(lambda: not watched.leftovers(), AFTER_S, 0.1):
        outcome.problems.append("left over: " + ", ".join(watched.leftovers()))
    judge(outcome, victim, probe, how)
    return outcome


def judge(outcome, victim, probe, how):
    bar = factor_of(outcome.keyed, how.policy) * outcome.quiet_ms + SLACK_S * 1e3
    if victim.failures:
        outcome.problems.append(f"victim: {len(victim.failures)} x {victim.failures[0]}")
    if outcome.ttft_ms > bar * how.tolerance:
        outcome.problems.append(f"TTFT over {bar * how.tolerance:.1f} ms")
    if probe.failures:
        outcome.problems.append(f"livez: {len(probe.failures)} x {probe.failures[0]}")
    if outcome.livez_ms > LIVEZ_S * 1e3 * how.tolerance:
        outcome.problems.append("livez too slow")
    if outcome.grown_mib * (1 << 20) > MEMORY_MAX:
        outcome.problems.append("over --memory-max")


@dataclass
class How:
    requests: int = 500
    seconds: float = 20.0
    policy: str = "chunked"
    tolerance: float = 1.0  # of the bars on time; more where the machine is shared


def cases(names):
    for name in names or ATTACKS:
        if not ATTACKS[name].only_keyed:
            yield name, False
        yield name, True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", default=JITNEY)
    parser.add_argument("--model", help="default: a tiny one with random weights")
    parser.add_argument("--attack", action="append", choices=sorted(ATTACKS))
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--policy", default="chunked")
    parser.add_argument("--runner", default="sim:2000")
    options = parser.parse_args()
    how = How(options.requests, options.seconds, options.policy)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or tiny_model(Folders(Path(folder)))
        watched = Watched(model, "--runner", options.runner, "--policy", options.policy,
                          program=options.server)
        print(HEAD)
        try:
            for name, keyed in cases(options.attack):
                outcome = try_attack(watched, name, keyed, how)
                print(outcome.row, flush=True)
                failed += bool(outcome.problems)
        finally:
            watched.close()
    print(f"{failed} cases failed" if failed else "all bars are kept")
    return 1 if failed else 0


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print(f"{time.monotonic() - started:.0f} s")
    sys.exit(code)
