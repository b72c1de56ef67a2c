#!/usr/bin/env python3
"""A server under mixed traffic for a long time: does it leak, and does it leave a request unanswered?

The clients are those of the kill loop (work.py, batch_work.py), whose results are compared with those
of an undisturbed server, and others: interactive streams, clients that hang up, requests that are
wrong. Meanwhile the server reloads (SIGHUP), and its disk is full now and then: by a file beside the
database if the folder can be a small tmpfs (root), and by uploads up to --data-max.

usage: soak.py [--minutes N] [--seed N] [--clients N] [--warm-up MINUTES]

Bars: resident memory grows by less than 1 % after the first five minutes (a sixth of a shorter run),
compared at moments when nothing runs; no KV block, descriptor or row is left; every request is
answered. A row each minute; exit code 0: all bars are kept.
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
import batch_work  # noqa: E402
import database  # noqa: E402
import work  # noqa: E402
from kill_loop import ROOT, check_promise, innermost, tiny_model  # noqa: E402
from reference import Reference  # noqa: E402
from requests_list import REQUESTS, is_last  # noqa: E402
from world import (FAULTS, Broken, Stopped, World, connect, events_of, fetch, program_of,  # noqa: E402
                   send)

DATA_MAX = 64 << 20
DISK_BYTES = 160 << 20
PROMISES = 200  # that are open at one time; older ones are deleted
GROWTH = 0.01
EPISODE_S, BETWEEN_S = 5.0, 45.0  # how long the disk is full, and how long it is not
QUIET = ("vllm:num_requests_running", "vllm:num_requests_waiting", "jitney:kv_blocks_held",
         "jitney:answers_under_way", "jitney:http_bodies_bytes", "jitney:http_queued_bytes",
         "jitney:work_items")
# A batch of OpenAI cannot be deleted: its row stays.
EMPTY_TABLES = [name for name in database.TABLES if name != "batches"]


class Traffic:
    """What the clients have sent, beside the counters of the world."""

    def __init__(self):
        self.lock = threading.Lock()
        self.statuses = {}
        self.unanswered = []

    def count(self, status):
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1

    def miss(self, what):
        with self.lock:
            self.unanswered.append(what)


# --- clients beside those of the kill loop ---

def interactive(world, rng, traffic):
    """A stream that is not stored; one in four hangs up."""
    path, body = rng.choice(REQUESTS)
    leaves_after = rng.randrange(30) if rng.random() < 0.25 else None
    connection = connect(world.address(), 30)
    last = None
    try:
        response = send(connection, "POST", path, {**body, "stream": True}, {})
        traffic.count(response.status)
        if response.status != 200:
            response.read()
            return
        for count, last in enumerate(events_of(response)):
            if count == leaves_after:
                return
        if not last or not is_last(path, last):
            traffic.miss(f"{path}: the stream ended with {last}")
    except FAULTS as fault:
        traffic.miss(f"{path}: {fault!r}")
    finally:
        connection.close()


WRONG = [
    ("POST", "/v1/responses", b"{", 400), ("POST", "/v1/chat/completions", {"model": "m"}, 400),
    ("POST", "/v1/responses", {"model": "other", "input": "x", "store": True}, 404),
    ("POST", "/v1/responses", {"model": "m", "input": "x", "previous_response_id": "resp_0"}, 404),
    ("GET", "/v1/responses/resp_0", None, 404), ("DELETE", "/v1/files/file-0", None, 404),
    ("GET", "/v1/batches/batch_0", None, 404), ("POST", "/v1/batches", {"input_file_id": 3}, 400),
    ("POST", "/v1/files", b"no form", 400), ("GET", "/v1/requests/none", None, 404),
    ("POST", "/v1/responses", {"model": "m", "input": "word " * 9000, "store": True}, 400),
    ("POST", "/v1/messages/batches", {"requests": []}, 400),
]


def wrong(world, rng, traffic):
    method, path, body, expected = rng.choice(WRONG)
    answer = world.once(method, path, body)
    traffic.count(answer.status)
    if answer.status not in (expected, 415, 413, 429, 503):
        world.fail(f"{method} {path}: {answer}, expected {expected}")


def durable_and_gone(world, rng, traffic):
    """A durable request whose client hangs up at once; it is cancelled or found later."""
    name = work.name_of_request()
    connection = connect(world.address(), 30)
    with contextlib.suppress(*FAULTS):
        path, body = rng.choice(REQUESTS)
        connection.request("POST", path, json.dumps(body), {
            "content-type": "application/json", "x-jitney-keep": "durable", "x-request-id": name})
        time.sleep(rng.random() * 0.02)
    connection.close()
    time.sleep(0.5)
    work.find_request(world, name)
    answer = world.ask("DELETE", f"/v1/requests/{name}")
    traffic.count(answer.status)
    if answer.status not in (200, 404):
        world.fail(f"DELETE /v1/requests/{name}: {answer}")


OTHERS = [interactive, interactive, interactive, wrong, durable_and_gone]
KINDS = {**work.KINDS, **batch_work.KINDS}


def other_client(world, traffic, seed):
    rng = random.Random(seed)
    with contextlib.suppress(Stopped):
        while not world.is_calm:
            try:
                rng.choice(OTHERS)(world, rng, traffic)
            except Broken as broken:
                traffic.miss(str(broken))
            time.sleep(rng.random() * 0.02)


def work_client(world, reference, seed):
    rng = random.Random(seed)
    names = list(KINDS)
    weights = [KINDS[name][1] for name in names]
    try:
        while not world.is_calm:
            name = rng.choices(names, weights)[0]
            KINDS[name][0](world, rng, reference)
            world.finish(name)
            settle_promises(world, PROMISES)
    except Stopped:
        pass
    except Exception as fault:  # pylint: disable=broad-except
        world.fail(f"a client is broken: {type(fault).__name__} {fault} at {innermost(fault)}")


def object_of(path):
    """The path of the object that a promise is about; None: it cannot be deleted."""
    path = path.partition("?")[0]
    for end in ("/items", "/content", "/results"):
        path = path.removesuffix(end)
    return None if path.startswith("/v1/batches/") else path


def settle_promises(world, limit, lock=threading.Lock()):
    """Check the oldest promises once more and delete what they are about. One client at a time, as
    two promises may be about the same object."""
    with lock:
        while len(world.promises) > limit:
            settle(world, world.promises.pop(0))


def settle(world, promise):
    path = object_of(promise.path)
    if promise.status == 404 or path is None:
        check_promise(world, promise)
        return
    if world.ask("GET", path).status != 404:
        check_promise(world, promise)
    answer = world.ask("DELETE", path)
    work.require(world, answer.status in (200, 404), f"DELETE {path}: {answer}")


# --- disturbances ---

def hog(world, folder, has_disk):
    """The disk is full for a while: by a file beside the database, or by uploads."""
    filler, names = folder.parent / "filler", []
    while not world.is_calm and not world.is_over:
        if not wait(world, BETWEEN_S):
            return
        if has_disk and not names and random.random() < 0.5:
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * (1 << 16))
        else:
            fill_by_uploads(world, names)
        world.signal("disk full")
        wait(world, EPISODE_S)
        filler.unlink(missing_ok=True)
        while names:
            world.ask("DELETE", f"/v1/files/{names.pop()}")


def fill_by_uploads(world, names):
    headers = {"content-type": f"multipart/form-data; boundary={batch_work.BOUNDARY}"}
    body = batch_work.multipart("hog", os.urandom(4 << 20), "user_data")
    for _ in range(2 * DATA_MAX // len(body)):
        with contextlib.suppress(Broken):
            answer = fetch(world.address(), "POST", "/v1/files", body, headers)
            if answer.status == 507:
                return
            if answer.status == 200:
                names.append(answer.json["id"])


def wait(world, seconds):
    """False: the run is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if world.is_calm or world.is_over:
            return False
        time.sleep(0.1)
    return True


# --- measures ---

def metrics(world):
    sums = {}
    for line in fetch(world.process.address, "GET", "/metrics").body.decode().splitlines():
        match = re.match(r"([A-Za-z_:][\w:]*)(\{.*\})? (\S+)", line)
        if match:
            sums[match[1]] = sums.get(match[1], 0.0) + float(match[3])
    return sums


def memory(pid):
    """Resident MiB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


HEAD = (f"{'min':>4} {'work':>7} {'others':>7} {'refused':>8} {'full':>5} {'reload':>6} {'MiB':>7} "
        f"{'fds':>4} {'db MiB':>7} {'open':>5}  problems")


class Soak:
    def __init__(self, options, place, has_disk):
        self.options = options
        self.folder = place / "disk" / "data"
        self.has_disk = has_disk
        model = tiny_model(place)
        command = [str(program_of(ROOT, False)), "serve", str(model), "--served-model-name", "m",
                   "--port", "0", "--runner", "sim:1000", "--set", "kv_blocks=2048", "--keep-s", "1"]
        self.reference = Reference([*command, "--data-dir", str(place / "reference")])
        self.world = World([*command, "--data-dir", str(self.folder), "--data-max", str(DATA_MAX)],
                           self.folder)
        self.world.tried_again = (429, 503, 507)
        self.traffic = Traffic()
        self.reloads = 0
        self.samples = []  # (minute, MiB) at quiet moments
        self.threads = []

    def start(self):
        self.world.start()
        assert self.world.process.wait_ready() is not None, self.world.process.lines
        self.fds = descriptors(self.world.process.pid)
        self.world.announce()

    def begin_clients(self, part):
        self.world.is_calm = False
        count, seed = self.options.clients, f"{self.options.seed}/{part}"
        jobs = [(work_client, (self.world, self.reference, f"{seed}/w{n}")) for n in range(count)]
        jobs += [(other_client, (self.world, self.traffic, f"{seed}/o{n}")) for n in range(count)]
        self.threads = [threading.Thread(target=job, args=args, daemon=True) for job, args in jobs]
        for thread in self.threads:
            thread.start()

    def end_clients(self):
        self.world.is_calm = True
        for thread in self.threads:
            thread.join(90)
            if thread.is_alive():
                self.world.fail("a client has not ended in 90 s")
                return

    def is_quiet(self):
        found = metrics(self.world)
        return not any(found.get(name) for name in QUIET)

    def wait_quiet(self):
        end = time.monotonic() + 30
        while not self.is_quiet():
            if time.monotonic() > end:
                found = metrics(self.world)
                left = {name: found[name] for name in QUIET if found.get(name)}
                self.world.fail(f"left over: {left}")
                return
            time.sleep(0.1)

    def row(self, minute):
        counters, traffic = self.world.counters, self.traffic
        others = sum(traffic.statuses.values())
        refused = sum(counters.statuses.values())
        size = sum(path.stat().st_size for path in self.folder.glob("jitney.db*")) / (1 << 20)
        pid = self.world.process.pid
        problems = self.world.problems + traffic.unanswered
        print(f"{minute:4} {sum(counters.finished.values()):7} {others:7} {refused:8} "
              f"{self.world.signals.get('disk full', 0):5} {self.reloads:6} {memory(pid):7.1f} "
              f"{descriptors(pid):4} {size:7.1f} {len(self.world.promises):5}  "
              f"{problems[0][:200] if problems else ''}", flush=True)

    def minute(self, number):
        """A minute of traffic, then a quiet moment at which memory is measured."""
        self.begin_clients(number)
        thread = threading.Thread(target=hog, args=(self.world, self.folder, self.has_disk),
                                  daemon=True)
        thread.start()
        for _ in range(3):
            if not wait(self.world, 19):
                break
            self.world.process.process.send_signal(signal.SIGHUP)
            self.reloads += 1
        self.end_clients()
        thread.join(30)
        if self.world.process.has_ended():
            self.world.fail(f"the server has ended: {self.world.process.lines[-10:]}")
            return
        with contextlib.suppress(Stopped):
            settle_promises(self.world, 0)  # so that each minute ends with the same rows
        self.wait_quiet()
        time.sleep(3.5)  # longer than --keep-s; then the server returns free memory
        self.samples.append((number, memory(self.world.process.pid)))

    def finish(self):
        """Nothing is left: descriptors, rows; then the server ends well."""
        world, pid = self.world, self.world.process.pid
        end = time.monotonic() + 10
        while descriptors(pid) > self.fds + 2 and time.monotonic() < end:
            time.sleep(0.1)
        if descriptors(pid) > self.fds + 2:
            world.fail(f"{descriptors(pid)} descriptors, were {self.fds}")
        self.check_rows()
        code = world.process.stop()
        if code != 0:
            world.fail(f"SIGTERM ended the server with {code}: {world.process.lines[-5:]}")
        for problem in database.check(self.folder, deletes_outputs=True):
            world.fail(problem)

    def check_rows(self):
        """What was deleted is removed by and by."""
        end = time.monotonic() + 30
        while True:
            left = {name: count for name, count in database.counts(self.folder).items()
                    if count and name in EMPTY_TABLES}
            if not left:
                return
            if time.monotonic() > end:
                self.world.fail(f"rows are left: {left}; files {database.files(self.folder)[:3]}")
                return
            time.sleep(0.5)

    def judge(self, warm_up):
        """What misses a bar."""
        problems = self.world.problems + self.traffic.unanswered
        warm = [mib for minute, mib in self.samples if minute >= warm_up]
        if len(warm) >= 2:
            growth = warm[-1] / warm[0] - 1
            print(f"memory at quiet moments after {warm_up} min: {warm[0]:.1f} MiB, at the end "
                  f"{warm[-1]:.1f} MiB, at most {max(warm):.1f} MiB: {growth * 100:+.2f} %")
            if growth >= GROWTH:
                problems.append(f"memory has grown by {growth * 100:.2f} %")
        return problems


@contextlib.contextmanager
def disk_at(folder):
    """A small file system of its own, if the user may mount one."""
    folder.mkdir()
    has_disk = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], check=False,
        capture_output=True).returncode == 0
    try:
        yield has_disk
    finally:
        if has_disk:
            subprocess.run(["umount", "-l", folder], check=False, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--clients", type=int, default=6, help="of each of the two kinds")
    parser.add_argument("--warm-up", type=int, help="minutes before memory is compared")
    options = parser.parse_args()
    warm_up = options.warm_up or max(1, min(5, options.minutes // 6))
    print(f"seed {options.seed}\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak") as name, disk_at(Path(name) / "disk") as disk:
        soak = Soak(options, Path(name), disk)
        try:
            soak.start()
            for minute in range(1, options.minutes + 1):
                soak.minute(minute)
                soak.row(minute)
                if soak.world.problems:
                    break
            else:
                soak.finish()
        finally:
            soak.world.end()
            if not soak.world.process.has_ended():
                soak.world.process.kill()
            soak.reference.close()
        problems = soak.judge(warm_up)
        for problem in problems[:10]:
            print(f"    {problem}")
        print(f"soak: {'FAILED' if problems else 'all bars are kept'}, {options.minutes} min, "
              f"{len(soak.traffic.unanswered)} unanswered, statuses {soak.traffic.statuses}, "
              f"tried again {soak.world.counters.statuses}, seed {options.seed}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
