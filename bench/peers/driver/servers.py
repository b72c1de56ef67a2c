"""A server of an engine, from its start to its end."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time

from .common import Skip
from .engines import STOP_S, memory_mib

READY_S = 300
POLL_S = 0.002


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Server:
    """Started when made; ready_s and ready_mib are those of the first 200."""

    def __init__(self, engine, slots, **more):
        self.port = free_port()
        command, environ, self.path = engine.server(self.port, slots, **more)
        self.url = f"http://127.0.0.1:{self.port}"
        begun = time.monotonic()
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, **environ}, start_new_session=True)
        try:
            self.wait(begun)
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.monotonic() - begun
        self.ready_mib = memory_mib(self.process.pid, "VmRSS")

    def wait(self, begun):
        while not self.is_ready():
            if self.process.poll() is not None:
                raise Skip(f"the server ended with {self.process.returncode}")
            if time.monotonic() - begun > READY_S:
                raise Skip(f"the server was not ready after {READY_S} s")
            time.sleep(POLL_S)

    def is_ready(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", self.path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def peak_mib(self):
        return memory_mib(self.process.pid, "VmHWM")

    def stop(self):
        for sig in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
                return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
