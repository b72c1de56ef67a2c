"""The attacker of tests/abuse: a process at nice 19, on 127.0.0.2, that sends at most 10 MB/s.

usage: attacker.py HOST PORT ATTACK SECONDS [KEY]

It prints "begun" when its first wave is out, runs until SECONDS are over or its standard input is
closed, closes everything and ends with 0. What the server does to its connections (closing them,
refusing them, not reading) is no failure of the attacker: it tries again. It ends with 1 if an
attack has a mistake of its own.
"""

import asyncio
import contextlib
import os
import socket
import sys
import time
import traceback
from collections import Counter

BYTES_PER_S = 10_000_000
ADDRESS = "127.0.0.2"
PIECE = 16384
LEFT = (OSError, ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError, EOFError)


class Budget:
    """Sending waits here, so that all connections together stay below BYTES_PER_S."""

    def __init__(self):
        self.free_at = time.monotonic()

    async def take(self, count):
        now = time.monotonic()
        self.free_at = max(self.free_at, now) + count / BYTES_PER_S
        if self.free_at - now > 0.01:
            await asyncio.sleep(self.free_at - now)


class Target:
    """The server, as an attack sees it."""

    def __init__(self, host, port, key, seconds):
        self.host, self.port, self.key = host, port, key
        self.until = time.monotonic() + seconds
        self.budget = Budget()
        self.begun = False
        self.statuses = Counter()

    @property
    def is_over(self):
        return time.monotonic() >= self.until

    def begin(self):
        if not self.begun:
            self.begun = True
            print("begun", flush=True)

    def head(self, method, path, *headers):
        lines = [f"{method} {path} HTTP/1.1", f"host: {self.host}:{self.port}", *headers]
        if self.key:
            lines.append(f"authorization: Bearer {self.key}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def post(self, path, body, *headers):
        head = self.head("POST", path, "content-type: application/json",
                         f"content-length: {len(body)}", *headers)
        return head + body

    async def connect(self, receive_buffer=0):
        """A connection whose kernel buffer may be small, so that unread bytes stay in the server."""
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        try:
            sock.bind((ADDRESS, 0))
            await asyncio.get_running_loop().sock_connect(sock, (self.host, self.port))
        except BaseException:
            sock.close()
            raise
        return Connection(self, sock)


class Connection:
    def __init__(self, target, sock):
        self.target, self.sock, self.has_status = target, sock, False
        self.loop = asyncio.get_running_loop()

    async def send(self, data):
        view = memoryview(data)
        while view:
            piece = view[:PIECE]
            await self.target.budget.take(len(piece))
            await asyncio.wait_for(self.loop.sock_sendall(self.sock, piece), 5)
            view = view[PIECE:]

    async def receive(self, count=65536, timeout=5):
        data = await asyncio.wait_for(self.loop.sock_recv(self.sock, count), timeout)
        if not data:
            raise EOFError
        if not self.has_status and data.startswith(b"HTTP/1.1 "):
            self.target.statuses[data[9:12].decode()] += 1
            self.has_status = True
        return data

    async def until_closed(self, timeout):
        """Reads nothing; returns when time is up. A closed connection shows at the next send."""
        await asyncio.sleep(min(timeout, max(0, self.target.until - time.monotonic())))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.sock.close()


async def repeat(target, count, attack):
    """`count` tasks that each run attack(target) again and again until time is up. Returns the
    mistakes of those that ended before."""
    async def one():
        while not target.is_over:
            with contextlib.suppress(*LEFT):
                await attack(target)
            await asyncio.sleep(0.02)
    tasks = [asyncio.create_task(one()) for _ in range(count)]
    await asyncio.sleep(0.3)
    target.begin()
    await asyncio.wait(tasks, timeout=max(0.1, target.until - time.monotonic() + 0.5))
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return [end for end in ends if isinstance(end, Exception) and not isinstance(end, LEFT)]


async def watch_stdin(target):
    """The runner closes our standard input to end us early."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    target.until = 0


async def main(host, port, name, seconds, key):
    from attacks import ATTACKS
    attack = ATTACKS[name]
    target = Target(host, int(port), key, float(seconds))
    watcher = asyncio.create_task(watch_stdin(target))
    mistakes = await repeat(target, attack.count, attack.run)
    watcher.cancel()
    print(*(f"{status}:{count}" for status, count in sorted(target.statuses.items())))
    if mistakes:
        traceback.print_exception(mistakes[0])
    return 1 if mistakes else 0


if __name__ == "__main__":
    os.nice(19)
    code = 1
    with contextlib.suppress(KeyboardInterrupt):
        code = asyncio.run(main(*sys.argv[1:5], sys.argv[5] if len(sys.argv) > 5 else ""))
    sys.stdout.flush()
    os._exit(code)  # the thread that waits for standard input does not end by itself
