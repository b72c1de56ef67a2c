"""The attacker of tests/abuse: a process at nice 19, on 127.0.0.2, that sends at most 10 MB/s.

usage: attacker.py HOST PORT NICE

It reads one attack after the other from its standard input, as lines "NAME SECONDS FIRST_WAVE_S
[KEY]". When the first wave of an attack is out, after FIRST_WAVE_S, it prints "begun". It runs the
attack until SECONDS are over or a line "stop" comes, closes all its connections, and prints "ended", the statuses that it has read and their
numbers; or "broken" if the attack has a mistake of its own, which it writes to its standard error.
What the server does to its connections (closing them, refusing them, not reading) is no failure of
the attacker: it tries again.
"""

import asyncio
import contextlib
import functools
import os
import socket
import ssl
import sys
import threading
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
        self.statuses = Counter()

    @property
    def is_over(self):
        return time.monotonic() >= self.until

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

    async def handshake(self):
        """Of TLS, to its end."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = insecure().wrap_bio(incoming, outgoing, server_hostname=self.target.host)
        while True:
            try:
                tls.do_handshake()
                await self.send(outgoing.read())
                return
            except ssl.SSLWantReadError:
                await self.send(outgoing.read())
                incoming.write(await self.receive())

    async def until_closed(self, timeout):
        """Reads nothing; returns when time is up. A closed connection shows at the next send."""
        await asyncio.sleep(min(timeout, max(0, self.target.until - time.monotonic())))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.sock.close()


@functools.cache
def insecure():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@functools.cache
def client_hello():
    """The first bytes of a TLS connection."""
    outgoing = ssl.MemoryBIO()
    tls = insecure().wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


async def repeat(target, attack, stop, first_wave_s):
    """Tasks that each run the attack again and again until time is up. Returns the mistakes of those
    that ended before."""
    async def one():
        while not target.is_over:
            with contextlib.suppress(*LEFT):
                await attack.run(target)
            await asyncio.sleep(0.02)
    tasks = [asyncio.create_task(one()) for _ in range(attack.count)]
    await asyncio.sleep(first_wave_s)
    print("begun", flush=True)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(stop.wait(), max(0.1, target.until - time.monotonic()))
    target.until = 0
    pending = set(tasks)
    while pending:  # wait_for may lose a cancellation: again until all have ended
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.2)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return [end for end in ends if isinstance(end, Exception) and not isinstance(end, LEFT)]


async def run_attack(address, line, stop):
    from attacks import ATTACKS
    name, seconds, wave_s, *key = line.split()
    target = Target(*address, key[0] if key else "", float(seconds))
    mistakes = await repeat(target, ATTACKS[name], stop, float(wave_s))
    if mistakes:
        traceback.print_exception(mistakes[0])
    found = " ".join(f"{status}:{count}" for status, count in sorted(target.statuses.items()))
    print("broken" if mistakes else f"ended {found}", flush=True)


async def main(host, port):
    loop, lines = asyncio.get_running_loop(), asyncio.Queue()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line.strip())
        loop.call_soon_threadsafe(lines.put_nowait, None)
    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        stop = asyncio.Event()
        running = asyncio.create_task(run_attack((host, int(port)), line, stop))
        await lines.get()  # "stop", or the end of the input
        stop.set()
        await running


if __name__ == "__main__":
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, int(sys.argv[3]))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:3]))
    sys.stdout.flush()
    os._exit(0)  # the thread that reads standard input does not end by itself
