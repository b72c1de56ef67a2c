#!/usr/bin/env python3
"""How long clients wait until their requests are stored, beside what fsync costs on the same disk.

256 clients send responses with `"store": true, "stream": true` to a server with a simulated runner,
at a rate that leaves the machine idle most of the time, and measure from the last byte of the request
to the first byte of the response: the acknowledgement, before which the request is on disk. The same
is measured without `store`. Meanwhile a process of its own syncs 4 KiB again and again on the same
disk, and another one asks for /livez, which measures how long the I/O thread pauses.

usage: store_latency.py [--clients N] [--rate REQUESTS_A_SECOND] [--seconds S] [--folder DIR]

Bars: the 99th percentile of acknowledgements is at most three times that of fsync, and /livez takes
at most 1 ms more than without stored requests at the 99th percentile. Exit code 0: both are kept.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import selectors
import socket
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "kill"), str(ROOT / "tests" / "e2e")]
from kill_loop import tiny_model  # noqa: E402
from server_lib import Server  # noqa: E402

FSYNCS = 3
PAUSE_S = 0.001


def percentile(times, part):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * part))] if times else float("nan")


def show(name, times):
    print(f"{name:34} {len(times):7} {percentile(times, 0.5) * 1e3:8.2f} "
          f"{percentile(times, 0.99) * 1e3:8.2f} {max(times, default=0) * 1e3:8.2f}", flush=True)


# --- processes beside the clients ---

def go_first():
    """Before other programs, if the user may: what is measured is the server and the disk."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))


def sync_disk(folder, until, results):
    """Write 4 KiB and sync them, fifty times a second."""
    go_first()
    times = []
    with open(folder / "fsync-probe", "wb", buffering=0) as file:
        while time.monotonic() < until:
            begun = time.perf_counter()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
            time.sleep(0.02)
    results.put(("fsync", times))


def probe(address, until, results):
    """Ask for /livez on one connection, 500 times a second."""
    go_first()
    times = []
    with socket.create_connection(address, timeout=30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < until:
            begun = time.perf_counter()
            sock.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            sock.recv(65536)
            times.append(time.perf_counter() - begun)
            time.sleep(0.002)
    results.put(("livez", times))


# --- clients ---

class Client:
    """One connection; sends at drawn times and reads to the end of each stream."""

    def __init__(self, address, rate, fields, begins):
        self.sock = socket.create_connection(address, timeout=30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rate, self.next = rate, begins + random.random() / rate
        self.is_waiting, self.begun, self.data = False, 0.0, b""
        body = json.dumps({"model": "m", "input": "Hello", "max_output_tokens": 4, "seed": 1,
                           "stream": True, **fields}).encode()
        self.request = (b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\n"
                        b"content-type: application/json\r\ncontent-length: " +
                        str(len(body)).encode() + b"\r\n\r\n" + body)

    def send(self):
        self.is_waiting, self.data = True, b""
        self.next += random.uniform(0.5, 1.5) / self.rate
        self.sock.sendall(self.request)
        self.begun = time.perf_counter()

    def read(self, times):
        now = time.perf_counter()
        piece = self.sock.recv(65536)
        assert piece, "the server has closed a connection"
        if not self.data:
            times.append(now - self.begun)
            assert piece.startswith(b"HTTP/1.1 200"), piece[:300]
        self.data += piece
        if self.data.endswith(b"0\r\n\r\n"):
            self.is_waiting = False


def run_clients(address, options, fields):
    """Times from the end of a request to the first byte of its response."""
    times, begins = [], time.monotonic() + 0.5
    end = begins + options.seconds
    clients = [Client(address, options.rate / options.clients, fields, begins)
               for _ in range(options.clients)]
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.sock, selectors.EVENT_READ, client)
        while (now := time.monotonic()) < end or any(c.is_waiting for c in clients):
            assert now < end + 30, "requests are not answered"
            for client in clients:
                if now < end and client.next <= now and not client.is_waiting:
                    client.send()
            for key, _ in selector.select(0.001):
                key.data.read(times)
    for client in clients:
        client.sock.close()
    return times


def measure(server, folder, options, fields):
    results, found = multiprocessing.Queue(), {}
    until = time.monotonic() + options.seconds + 0.5
    jobs = [(sync_disk, (folder, until, results)), (probe, (server.address, until, results))]
    beside = [multiprocessing.Process(target=job, args=args) for job, args in jobs]
    for process in beside:
        process.start()
    found["first byte"] = run_clients(server.address, options, fields)
    for _ in beside:
        name, times = results.get(timeout=30)
        found[name] = times
    for process in beside:
        process.join(30)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--rate", type=float, default=256)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--folder", help="on the disk to measure; default: the one of TMPDIR")
    options = parser.parse_args()
    print(f"{'':34} {'count':>7} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        with Server(tiny_model(folder), "--runner", "sim:500", "--served-model-name", "m",
                    "--data-dir", folder / "data", "--connections-max", "1000") as server:
            run_clients(server.address, argparse.Namespace(**{**vars(options), "seconds": 1}), {})
            plain = measure(server, folder, options, {})
            stored = measure(server, folder, options, {"store": True})
            metrics = server.metrics()
    for what, found in (("without store", plain), ("with store", stored)):
        for measured in ("first byte", "fsync", "livez"):
            show(f"{what}: {measured}", found[measured])
    commits = metrics.get("jitney:store_commits_total", 0)
    print(f"{metrics.get('jitney:store_operations_total', 0):.0f} operations in {commits:.0f} "
          f"commits")
    waits = percentile(stored["first byte"], 0.99) / percentile(stored["fsync"], 0.99)
    pause = percentile(stored["livez"], 0.99) - percentile(plain["livez"], 0.99)
    is_fine = waits <= FSYNCS and pause <= PAUSE_S
    print(f"acknowledgement p99: {waits:.2f} fsyncs (bar {FSYNCS}); /livez p99: "
          f"{pause * 1e3:+.2f} ms (bar {PAUSE_S * 1e3:g}): {'kept' if is_fine else 'MISSED'}")
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
