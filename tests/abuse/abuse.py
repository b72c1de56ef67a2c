#!/usr/bin/env python3
"""Nobody can talk the server down: attacks on a running server, and what other clients notice.

For each attack of attacks.py: a victim with a key and a probe are measured while nothing else
happens, then while the attacker (attacker.py: another process, another address, nice 19, at most
10 MB/s) is at work, without a key and with one. Then the attacker leaves, and within five seconds
everything must be as before.

usage: abuse.py [--server PROGRAM] [--model MODEL] [--attack NAME]... [--requests N] [--seconds S]
                [--policy NAME] [--runner NAME] [--tries N] [--set NAME=VALUE]... [--concurrent N]

Bars: every /livez within 100 ms and answered; the victim's time to the first token at the 99th
percentile at most 2x of quiet (with a keyed attacker 3x, under the policy `fair` 1.5x; plus 5 ms,
what one turn of the operating system's scheduler takes); the largest amount of memory below what it
was plus --memory-max; afterwards no request, no connection and no counted byte is left. The quiet
times are those of the last cases, each measured right before its attack. A case that misses a bar on
time is tried again, --tries times in all, because other work on the machine looks the same. In the
end SIGTERM must end the server at once, as nothing is under way. Exit code 0: all are kept.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
from attacks import ATTACKS  # noqa: E402
from cli_lib import GOLDEN, JITNEY  # noqa: E402
from server_lib import Server, tiny_model, wait_until  # noqa: E402
from victim import CHAT, Folders, Memory, Probe, Victim, fetch, percentile  # noqa: E402

KEYS = "victim-key name=victim tenant=victim\n" \
       "attacker-key name=attacker tenant=attacker concurrent={concurrent}\n" \
       "operator-key name=operator tenant=operator admin\n"
MEMORY_MAX = 256 << 20
LIVEZ_S, SLACK_S = 0.1, 0.005
QUIET_PART = 4  # so many cases are measured for one percentile of quiet times
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
    late: list = field(default_factory=list)  # bars on time that are missed
    problems: list = field(default_factory=list)  # all other bars

    @property
    def row(self):
        return (f"{self.attack:34} {'key' if self.keyed else '-':4} {self.requests:5} "
                f"{self.quiet_ms:7.1f} {self.ttft_ms:7.1f} {self.livez_ms:7.1f} "
                f"{self.grown_mib:7.0f}  {'; '.join(self.problems + self.late) or 'ok'}  "
                f"[{self.statuses}]")


HEAD = f"{'attack':34} {'key':4} {'n':>5} {'quiet':>7} {'ttft':>7} {'livez':>7} {'MiB':>7}"


def make_certificate(folder):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=abuse", "-keyout", folder / "key.pem", "-out",
         folder / "cert.pem"], check=True, capture_output=True)
    return "--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem"


class Watched:
    """A server with keys, its quiet state, the clients that watch it, and the attacker's process."""

    def __init__(self, model, *flags, program=JITNEY, tls=False, concurrent=64, nice=19):
        self.folder = tempfile.TemporaryDirectory()
        keys = Path(self.folder.name) / "keys"
        keys.write_text(KEYS.format(concurrent=concurrent))
        tls_flags = make_certificate(Path(self.folder.name)) if tls else ()
        self.server = Server(model, "--api-key-file", keys, "--memory-max", str(MEMORY_MAX),
                             "--connections-max", "256", "--drain-s", "3600", *tls_flags, *flags,
                             program=program)
        assert wait_until(lambda: fetch(self.server, "/readyz")[0] == 200, 60, 0.05)
        self.victims, self.quiet = {}, {}
        self.victim_of(CHAT).measure(20, 5)
        self.descriptors = self.server.descriptors()
        self.attacker = subprocess.Popen(
            [sys.executable, HERE / "attacker.py", *map(str, self.server.address), str(nice)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def victim_of(self, request):
        """The victim that sends such requests."""
        if request[0] not in self.victims:
            self.victims[request[0]] = Victim(self.server, "victim-key", request)
            self.victims[request[0]].measure(5, 5)
            self.quiet[request[0]] = deque()
        return self.victims[request[0]]

    def close(self):
        self.attacker.stdin.close()
        try:
            self.attacker.wait(10)
        except subprocess.TimeoutExpired:
            self.attacker.kill()
            self.attacker.wait(10)
        self.server.stop()
        self.folder.cleanup()

    def metrics(self):
        found = {}
        for line in fetch(self.server, "/metrics", "operator-key")[1].decode().splitlines():
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
    def attacked(self, name, keyed, how):
        """Yields a list that holds the attacker's last line when the attack is over."""
        key = "attacker-key" if keyed else ""
        last = []
        print(name, how.seconds + 5, how.first_wave_s, key, file=self.attacker.stdin, flush=True)
        assert self.attacker.stdout.readline() == "begun\n"
        try:
            yield last
        finally:
            print("stop", file=self.attacker.stdin, flush=True)
            last.append(self.attacker.stdout.readline().strip())


def factor_of(keyed, policy):
    return 2.0 if not keyed else 1.5 if policy == "fair" else 3.0


def try_attack(watched, name, keyed, how):
    """One attack, measured before, during and after."""
    attack = ATTACKS[name]
    victim, quiet = watched.victim_of(attack.hurts), watched.quiet[attack.hurts[0]]
    probe, memory = Probe(watched.server), Memory(watched.server.pid)
    quiet.extend(victim.measure(max(how.requests - len(quiet), how.requests // QUIET_PART),
                                how.seconds))
    while len(quiet) > how.requests:
        quiet.popleft()
    victim.failures.clear()
    memory.start()
    with watched.attacked(name, keyed, how) as last:
        probe.start()
        times = victim.measure(how.requests, how.seconds)
        probe.stop()
    outcome = Outcome(name, keyed, percentile(quiet, 0.99) * 1e3, percentile(times, 0.99) * 1e3,
                      max(probe.times) * 1e3, memory.grown() / (1 << 20), len(times),
                      last[0].removeprefix("ended").strip())
    if not last[0].startswith("ended"):
        outcome.problems.append("the attacker is broken; it says why")
    if not wait_until(lambda: not watched.leftovers(), how.after_s, 0.1):
        outcome.problems.append("left over: " + ", ".join(watched.leftovers()))
    judge(outcome, victim, probe, how)
    return outcome


def judge(outcome, victim, probe, how):
    bar = factor_of(outcome.keyed, how.policy) * outcome.quiet_ms + SLACK_S * 1e3
    if victim.failures:
        outcome.problems.append(f"victim: {len(victim.failures)} x {victim.failures[0]}")
    if outcome.requests < how.requests:
        outcome.late.append(f"{outcome.requests} victim requests in {how.seconds:g} s")
    if not outcome.ttft_ms <= bar * how.tolerance:
        outcome.late.append(f"TTFT over {bar * how.tolerance:.1f} ms")
    if probe.failures:
        outcome.problems.append(f"livez: {len(probe.failures)} x {probe.failures[0]}")
    if outcome.livez_ms > LIVEZ_S * 1e3 * how.tolerance:
        outcome.late.append("livez too slow")
    if outcome.grown_mib * (1 << 20) > MEMORY_MAX:
        outcome.problems.append("over --memory-max")


@dataclass
class How:
    requests: int = 500
    seconds: float = 30.0
    policy: str = "chunked"
    tolerance: float = 1.0  # of the bars on time; more where the machine is shared
    first_wave_s: float = 0.3
    after_s: float = 5.0  # within which nothing is left of the attack


def cases(names, tls):
    for name in names or ATTACKS:
        if ATTACKS[name].tls != tls:
            continue
        if not ATTACKS[name].only_keyed:
            yield name, False
        if not tls:
            yield name, True


def run_cases(watched, todo, how, tries):
    """Each case, again if time was short. Returns how many have failed in the end."""
    failed = 0
    for name, keyed in todo:
        for _ in range(tries):
            outcome = try_attack(watched, name, keyed, how)
            print(outcome.row, flush=True)
            if outcome.problems or not outcome.late:
                break
        failed += bool(outcome.problems or outcome.late)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", default=JITNEY)
    parser.add_argument("--model", help="default: a tiny one with random weights")
    parser.add_argument("--attack", action="append", choices=sorted(ATTACKS))
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--policy", default="chunked")
    parser.add_argument("--runner", default="sim:2000")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--set", action="append", default=["kv_blocks=2048"])
    parser.add_argument("--concurrent", type=int, default=64, help="of the attacker's key")
    options = parser.parse_args()
    how = How(options.requests, options.seconds, options.policy)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or tiny_model(Folders(Path(folder)))
        models = [model, GOLDEN / "bert"]
        flags = ["--runner", options.runner, "--policy", options.policy]
        for pair in options.set:
            flags += ["--set", pair]
        print(HEAD)
        for tls in (False, True):
            todo = list(cases(options.attack, tls))
            if not todo:
                continue
            watched = Watched(models, *flags, program=options.server, tls=tls,
                              concurrent=options.concurrent)
            try:
                failed += run_cases(watched, todo, how, options.tries)
            finally:
                watched.close()
    print(f"{failed} cases failed" if failed else "all bars are kept")
    return 1 if failed else 0


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print(f"{time.monotonic() - started:.0f} s")
    sys.exit(code)
