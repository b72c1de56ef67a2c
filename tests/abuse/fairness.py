#!/usr/bin/env python3
"""Two keys compete for one server: does each get its share?

usage: tests/abuse/fairness.py [--small]

1. Under the policy `fair`: both keys offer more than the server can carry, `many` with ten times the
   connections of `few`. Bar: `few` gets at least 0.45 of all tokens of answers.
2. Under every policy: `many` floods the queue while `few` stays below its share of it. Bar: no
   request of `few` is refused; `many` is refused, and only because its share is used up.

The server is `jitney serve` with a simulated runner on loopback, the clients are coroutines of this
process. Prints a line for each measurement; the exit code is 1 if a bar is missed. --small takes
about 9 seconds, for `make test`; else about 45.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "e2e")]

from server_lib import Server, tiny_model  # noqa: E402  pylint: disable=wrong-import-position
from victim import Folders  # noqa: E402

STEP_US, SEATS = 4000, 8  # one tenant gets seven of them
ANSWER_TOKENS = 24
SHARE_BAR, ALONE_BAR = 0.45, 0.8
FLOOD_S_MAX = 30
POLICIES = ("chunked", "prefill-first", "orca", "static", "dynamic", "mlfq", "sjf", "priority",
            "deadline", "fair")


@dataclass
class Tally:
    """What the clients of a key got within the time that counts."""
    tokens: int = 0
    answers: int = 0
    refusals: dict = field(default_factory=dict)  # by code


class Client:
    """One connection of HTTP/1.1 that sends one request after another."""

    def __init__(self, server, key):
        self.address, self.key = server.address, key
        self.reader = self.writer = None

    async def ask(self, tokens):
        """(status, body) of one chat."""
        body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "ignore_eos": True,
                           "max_tokens": tokens}).encode()
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(*self.address)
        self.writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
                          f"authorization: Bearer {self.key}\r\ncontent-type: application/json\r\n"
                          f"content-length: {len(body)}\r\n\r\n".encode() + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        return int(head.split()[1]), json.loads(await self.reader.readexactly(length))

    async def ask_counted(self, tally, begin=0.0, end=float("inf")):
        """Ask once; an answer counts if it comes between `begin` and `end`."""
        status, body = await self.ask(ANSWER_TOKENS)
        if status == 200 and begin <= time.monotonic() <= end:
            tally.tokens += body["usage"]["completion_tokens"]
            tally.answers += 1
        elif status != 200:
            code = body["error"]["code"]
            tally.refusals[code] = tally.refusals.get(code, 0) + 1
            await asyncio.sleep(0.05)

    async def run(self, tally, begin, end):
        while time.monotonic() < end:
            await self.ask_counted(tally, begin, end)
        self.writer.close()


async def compete(server, counts, seconds, warm_s):
    """The tallies of keys with so many connections each."""
    begin = time.monotonic() + warm_s
    tallies = {key: Tally() for key in counts}
    await asyncio.gather(*(Client(server, key).run(tallies[key], begin, begin + seconds)
                           for key, count in counts.items() for _ in range(count)))
    return tallies


def start(model, folder, *flags):
    keys = folder / "keys"
    keys.write_text("few\nmany\n")
    return Server(model, "--runner", f"sim:{STEP_US}", "--api-key-file", keys, "--drain-s", "0",
                  "--set", f"max_seqs={SEATS}", *flags)


def check_tokens(model, folder, seconds):
    """Part 1. True: the bar is met."""
    few, warm_s = 2 * SEATS, 0.5
    with start(model, folder, "--policy", "fair") as server:
        alone = asyncio.run(compete(server, {"few": few}, seconds / 2, warm_s))["few"]
        both = asyncio.run(compete(server, {"few": few, "many": 10 * few}, seconds, warm_s))
    total = both["few"].tokens + both["many"].tokens
    share = both["few"].tokens / max(total, 1)
    carried = total / seconds
    offered = alone.tokens / (seconds / 2)
    print(f"fair: alone {few} connections get {offered:.0f} tokens/s; with {10 * few} of another "
          f"key {both['few'].tokens / seconds:.0f} of {carried:.0f} tokens/s, share {share:.3f} "
          f"(bar {SHARE_BAR})")
    if offered < ALONE_BAR * carried:
        print("fair: the few connections do not offer what the server carries", file=sys.stderr)
        return False
    return share >= SHARE_BAR


async def ask_times(client, tally, times):
    """So many requests, however long they take."""
    for _ in range(times):
        await client.ask_counted(tally)
    client.writer.close()


async def flood(server, times):
    """`few` asks on four connections, so many times on each, while sixty of `many` never stop."""
    tallies = {"few": Tally(), "many": Tally()}
    many = [asyncio.create_task(ask_times(Client(server, "many"), tallies["many"], 10**6))
            for _ in range(60)]
    while not tallies["many"].refusals:
        await asyncio.sleep(0.01)
    few = asyncio.gather(*(ask_times(Client(server, "few"), tallies["few"], times)
                           for _ in range(4)))
    await asyncio.wait_for(few, FLOOD_S_MAX)
    for task in many:
        task.cancel()
    await asyncio.gather(*many, return_exceptions=True)
    return tallies


def check_queue(model, folder, policy, times):
    """Part 2. True: the bar is met. 24 places: 12 for one tenant, 8 for each of two."""
    with start(model, folder, "--policy", policy, "--set", "queue_max=16") as server:
        tallies = asyncio.run(flood(server, times))
    few, many = tallies["few"], tallies["many"]
    print(f"{policy}: few: {few.answers} answers, refused {few.refusals or 'none'}; "
          f"many: {many.answers} answers, refused {many.refusals}")
    return few.answers == 4 * times and set(many.refusals) == {"queue_share_full"}


def run(small=False):
    """True: every bar is met."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny_model(Folders(folder))
        results = [check_tokens(model, folder, 3 if small else 12)]
        policies = ("chunked", "fair") if small else POLICIES
        results += [check_queue(model, folder, p, 1 if small else 4) for p in policies]
    return all(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a short run, for make test")
    return 0 if run(parser.parse_args().small) else 1


if __name__ == "__main__":
    sys.exit(main())
