#!/usr/bin/env python3
"""Nothing that was promised is lost: kill -9 at any instant, and what clients notice.

Clients with all kinds of durable work talk to a server with --data-dir. The server is killed again
and again and started on the same folder. Checked are: nothing that was acknowledged is lost; nothing
is reported or counted twice; event numbers have no gap and no repeat for any client, however it
reconnects; every result is the same as on a server that nothing disturbs; the database is whole
after each kill; the server is ready again within 0.5 s and the time that an empty one takes.

usage: kill_loop.py [--kills N] [--shards N | --shard I/N] [--seed N] [--lossy] [--model MODEL]
                    [--runner NAME] [--clients N] [--instant NAME] [--pace X]
                    [--ready-s S] [--seconds S] [--keep]

A shard is a folder of its own with its share of the kills. --lossy: the disk loses what was not
synced (jitney_lossy.c). --seconds: a limit of the whole run; what is left is not killed. --keep: the
folder of a failed shard stays. Exit code 0: all shards are as they should be.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
import batch_work  # noqa: E402
import database  # noqa: E402
import requests_list  # noqa: E402
import work  # noqa: E402
from reference import Reference  # noqa: E402
from world import Process, Stopped, World, fetch, program_of  # noqa: E402

READY_S = 0.5  # above the time that an empty server takes
CALM_S = 120.0  # in which clients must finish after the last kill
# Instants of kills and how often each is drawn.
INSTANTS = {"any": 30, "acknowledged": 25, "sent": 10, "starting": 15, "recovering": 10,
            "finalizing": 10, "terminating": 8}


class Folders:
    """As pytest's tmp_path_factory."""

    def __init__(self, place):
        self.place = place

    def mktemp(self, name):
        return Path(tempfile.mkdtemp(prefix=name, dir=self.place))


def tiny_model(place):
    from server_lib import tiny_model as make  # pylint: disable=import-outside-toplevel
    return make(Folders(place))


def command_of(program, options, folder):
    return [str(program), "serve", str(options.model), "--served-model-name", "m", "--port", "0",
            "--runner", options.runner, "--data-dir", str(folder), *options.flags]


def empty_start_s(options, place):
    """The median of the times that a server with an empty folder takes to be ready."""
    times = []
    for number in range(3):
        process = Process(command_of(options.program, options, place / f"empty{number}"), {})
        times.append(process.wait_ready())
        process.kill()
        assert times[-1] is not None, process.lines
    return statistics.median(times)


# --- clients ---

KINDS = {**work.KINDS, **batch_work.KINDS}


def client(world, reference, seed):
    rng = random.Random(seed)
    names = list(KINDS)
    weights = [KINDS[name][1] for name in names]
    try:
        while not world.is_calm and not world.is_over:
            name = rng.choices(names, weights)[0]
            KINDS[name][0](world, rng, reference)
            world.finish(name)
            if world.promises and rng.random() < 0.3:
                check_promise(world, rng.choice(world.promises))
    except Stopped:
        pass
    except Exception as fault:  # pylint: disable=broad-except
        world.fail(f"a client is broken: {type(fault).__name__} {fault} at "
                   f"{fault.__traceback__.tb_next and innermost(fault)}")


def innermost(fault):
    at = fault.__traceback__
    while at.tb_next:
        at = at.tb_next
    return f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"


def check_promise(world, promise):
    if problem := promise.check(world):
        world.fail(problem)
        raise Stopped


# --- kills ---

class Shard:
    def __init__(self, number, kills, options, place, empty_s):
        self.seed = options.seed * 1000 + number
        self.rng = random.Random(self.seed)
        self.kills, self.options, self.empty_s = kills, options, empty_s
        self.folder = place / f"shard{number}" / "data"
        self.folder.parent.mkdir()
        self.world = World(command_of(options.program, options, self.folder), self.folder)
        self.ready_s = []
        self.killed = 0

    def start(self):
        self.world.start({"JITNEY_LOSSY_SEED": str(self.rng.getrandbits(60))})

    def wait_ready(self):
        """Until the server is ready; the time is compared with the bar."""
        ready = self.world.process.wait_ready()
        if ready is None:
            tail = "\n".join(self.world.process.lines[-15:])
            self.world.fail(f"the server did not start again:\n{tail}")
            raise Stopped
        self.ready_s.append(ready - self.empty_s)
        self.world.announce()

    def kill(self, instant):
        world = self.world
        if instant != "terminating" and world.process.has_ended():
            tail = "\n".join(world.process.lines[-15:])
            world.fail(f"the server has ended by itself, with {world.process.process.poll()}:"
                       f"\n{tail}")
        world.kill()
        self.killed += 1
        world.counters.kills[instant] = world.counters.kills.get(instant, 0) + 1
        for problem in database.check(self.folder):
            world.fail(f"after a kill ({instant}): {problem}")

    def one(self):
        """Start the server and kill it at an instant that is drawn."""
        rng, world, pace = self.rng, self.world, self.options.pace
        instant = self.options.instant or rng.choices(list(INSTANTS), INSTANTS.values())[0]
        self.start()
        if instant == "starting":
            time.sleep(rng.random() * (self.empty_s + 0.05))
            self.kill(instant)
            return
        self.wait_ready()
        if instant == "recovering":
            time.sleep(rng.random() * 0.03)
        elif instant == "any":
            time.sleep(rng.random() * 0.4 * pace)
        elif instant == "terminating":
            time.sleep(rng.random() * 0.3 * pace)
            world.process.process.terminate()
            time.sleep(rng.random() * 0.3)
        else:
            time.sleep(rng.random() * 0.2 * pace)
            world.wait_signal(instant, 0.5 * pace)
            time.sleep(rng.choice([0, 0, 0.001, 0.005]))
        self.kill(instant)

    def calm(self, clients):
        """No more kills: everything that was begun comes to its end."""
        self.start()
        self.wait_ready()
        self.world.is_calm = True
        end = time.monotonic() + CALM_S
        for thread in clients:
            thread.join(max(0.0, end - time.monotonic()))
        if any(thread.is_alive() for thread in clients):
            self.world.fail(f"clients have not finished {CALM_S:g} s after the last kill")
            return
        for promise in self.world.promises:
            check_promise(self.world, promise)
        self.settle(end)

    def settle(self, end):
        """Work that nobody waits for ends as well; then the server stops and leaves nothing open."""
        address = self.world.process.address
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting")

        def is_busy():
            text = fetch(address, "GET", "/metrics").body.decode()
            busy = any(line.startswith(names) and not line.endswith(" 0")
                       for line in text.splitlines())
            found = fetch(address, "GET", "/v1/batches?limit=100").json["data"]
            return busy or any(b["status"] not in batch_work.FINAL for b in found)
        while is_busy() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.2)
        code = self.world.process.stop()
        if code != 0:
            self.world.fail(f"SIGTERM ended the server with {code}: "
                            f"{self.world.process.lines[-10:]}")
        for problem in database.check(self.folder):
            self.world.fail(f"at the end: {problem}")
        with database.opened(self.folder) as db:
            for table, rule in (("answers", "state = 0"), ("batches", "state IN (0, 2, 3, 6)")):
                left = db.execute(f"SELECT id FROM {table} WHERE {rule}").fetchmany(3)
                if left:
                    self.world.fail(f"at the end: not finished in {table}: {left}")

    def run(self, reference, until):
        clients = [threading.Thread(target=client, daemon=True,
                                    args=(self.world, reference, f"{self.seed}/{n}"))
                   for n in range(self.options.clients)]
        try:
            for thread in clients:
                thread.start()
            while self.killed < self.kills and time.monotonic() < until:
                self.one()
                if self.world.is_over:
                    return
            self.calm(clients)
        except Stopped:
            pass
        finally:
            self.world.end()
            if self.world.process and not self.world.process.has_ended():
                self.world.process.kill()
            for thread in clients:
                thread.join(30)

    def judge(self):
        bar = self.options.ready_s
        late = [t for t in self.ready_s if t > bar]
        # One of fifty may be late: other programs run on the machine.
        if len(late) > len(self.ready_s) * 0.02 + 1:
            self.world.problems.append(
                f"{len(late)} of {len(self.ready_s)} starts took more than {bar:g} s above an "
                f"empty one: {max(late):.2f} s")
        return not self.world.problems

    def row(self):
        counters = self.world.counters
        done = " ".join(f"{name}:{count}" for name, count in sorted(counters.finished.items()))
        ready = max(self.ready_s, default=0.0)
        return (f"{self.killed} kills, {counters.acknowledged} acknowledged, "
                f"{counters.reconnects} reconnects, {len(self.world.promises)} promises, ready "
                f"+{ready * 1e3:.0f} ms at most; {done}; tried again {counters.statuses}")


def run_shard(number, options, place, reference, empty_s, until):
    shares = options.shards
    kills = options.kills // shares + (number < options.kills % shares)
    shard = Shard(number, kills, options, place, empty_s)
    began = time.monotonic()
    shard.run(reference, until)
    is_fine = shard.judge()
    again = f"--seed {options.seed} --kills {options.kills} --shard {number}/{shares}" + \
        (" --lossy" if options.lossy else "")
    print(f"shard {number}/{shares}: {'ok' if is_fine else 'FAILED'}, "
          f"{time.monotonic() - began:.1f} s, {shard.row()}", flush=True)
    for problem in shard.world.problems[:5]:
        print(f"    {problem}")
    if not is_fine:
        print(f"    again: tests/kill/kill_loop.py {again}", flush=True)
        if options.keep:
            print(f"    folder: {shutil.copytree(shard.folder, tempfile.mkdtemp() + '/data')}")
            print("    " + "\n    ".join(shard.world.process.lines[-30:]))
    shutil.rmtree(shard.folder.parent, ignore_errors=True)
    return shard, is_fine


def run_shards(numbers, options, place):
    empty_s = empty_start_s(options, place)
    reference = Reference(command_of(program_of(ROOT, False), options, place / "reference"))
    until = time.monotonic() + options.seconds
    kills = failed = acknowledged = 0
    began = time.monotonic()
    try:
        for number in numbers:
            if time.monotonic() > until:
                break
            shard, is_fine = run_shard(number, options, place, reference, empty_s, until)
            kills += shard.killed
            acknowledged += shard.world.counters.acknowledged
            failed += not is_fine
    finally:
        reference.close()
    print(f"total: {kills} kills{' with a lossy disk' if options.lossy else ''}, {acknowledged} "
          f"acknowledged, {failed} shards failed, {time.monotonic() - began:.0f} s, empty start "
          f"{empty_s * 1e3:.0f} ms, seed {options.seed}", flush=True)
    return failed


def read_options(args=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--shard", help="I/N: only this one")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--lossy", action="store_true")
    parser.add_argument("--model", help="default: a tiny one with random weights")
    parser.add_argument("--runner", default="sim:2000")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--instant", choices=INSTANTS, help="of all kills; default: drawn")
    parser.add_argument("--ready-s", type=float, default=READY_S,
                        help="above an empty start; more where the machine has other work")
    parser.add_argument("--pace", type=float, default=1, help="how long servers live, as a factor")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args(args)
    numbers = range(options.shards)
    if options.shard:
        first, options.shards = map(int, options.shard.split("/"))
        numbers = [first]
    options.program = program_of(ROOT, options.lossy)
    options.flags = ["--keep-s", "1", "--drain-s", "0.1", "--set", "kv_blocks=2048"]
    return options, numbers


def main(args=None):
    options, numbers = read_options(args)
    if not os.access(options.program, os.X_OK):
        print(f"{options.program} is not built")
        return 77
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kill-loop") as name:
        if options.runner == "local":
            work.REQUESTS += requests_list.WITH_GRAMMARS
        options.model = options.model or tiny_model(Path(name))
        return 1 if run_shards(numbers, options, Path(name)) else 0


if __name__ == "__main__":
    sys.exit(main())
