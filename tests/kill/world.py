"""A server that is killed and started again, and how clients talk to whichever process there is."""

import http.client
import json
import os
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

ASK_S = 30.0  # within which a request must be answered by some process
TRY_S = 20.0  # for one try
PAUSE_S = 0.01


class Broken(Exception):
    """The connection ended before the answer did."""


class Stopped(Exception):
    """The run is over; the client stops."""


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    def __str__(self):
        return f"{self.status} {self.body[:300]!r}"


class Process:
    """One `jitney serve`; its log is read by a thread."""

    def __init__(self, command, env):
        self.began = time.monotonic()
        self.url_found = threading.Event()
        self.address = None
        self.lines = []
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        env={**os.environ, "JITNEY_WEIGHTS_CACHE": "off", **env})
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            text = line.decode(errors="replace").rstrip("\n")
            self.lines.append(text)
            if "listening on http://" in text and not self.address:
                host, _, port = text.partition("listening on http://")[2].split()[0].rpartition(":")
                self.address = host.strip("[]"), int(port.strip("/\""))
                self.url_found.set()
        self.url_found.set()

    @property
    def pid(self):
        return self.process.pid

    def has_ended(self):
        return self.process.poll() is not None

    def kill(self):
        self.process.kill()
        self.process.wait(30)
        self.reader.join(10)

    def stop(self, seconds=60):
        """SIGTERM; the exit code."""
        self.process.terminate()
        code = self.process.wait(seconds)
        self.reader.join(10)
        return code

    def wait_ready(self, seconds=60):
        """Seconds from exec to the first 200 of /readyz, or None if the process has ended."""
        self.url_found.wait(seconds)
        while self.address and time.monotonic() < self.began + seconds:
            try:
                if fetch(self.address, "GET", "/readyz", timeout=5).status == 200:
                    return time.monotonic() - self.began
            except Broken:
                if self.has_ended():
                    return None
            time.sleep(0.002)
        return None


def connect(address, timeout):
    return http.client.HTTPConnection(*address, timeout=timeout)


def send(connection, method, path, body, headers):
    headers = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
        headers.setdefault("content-type", "application/json")
    connection.request(method, path, body, headers)
    return connection.getresponse()


FAULTS = (OSError, http.client.HTTPException, ValueError, AttributeError)


def fetch(address, method, path, body=None, headers=None, timeout=TRY_S):
    """One request on a connection of its own. Broken: no whole answer has come."""
    connection = connect(address, timeout)
    try:
        response = send(connection, method, path, body, headers)
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    except FAULTS as fault:
        raise Broken(repr(fault)) from fault
    finally:
        connection.close()


def events_of(response):
    """The events of a stream, one by one, as (number, name, data); only whole ones."""
    number, name, data = 0, "", []
    while True:
        line = response.readline()
        if not line.endswith(b"\n"):
            return
        text = line.decode().rstrip("\r\n")
        if not text:
            if data:
                yield number, name, "\n".join(data)
            number, name, data = 0, "", []
            continue
        key, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if key == "id":
            number = int(value)
        elif key == "event":
            name = value
        elif key == "data":
            data.append(value)


@dataclass
class Counters:
    acknowledged: int = 0
    finished: dict = field(default_factory=dict)  # by kind of work
    reconnects: int = 0
    kills: dict = field(default_factory=dict)  # by kind of instant
    statuses: dict = field(default_factory=dict)  # refusals that were tried again


class World:
    """The folder, the process that uses it now, what clients were promised, what went wrong."""

    def __init__(self, command, folder, env=None):
        self.command, self.folder, self.env = command, folder, env or {}
        self.lock = threading.Condition()
        self.process = None
        self.is_up = False  # the process takes requests
        self.is_over = False
        self.is_calm = False  # no further kill: clients finish what they have begun
        self.tried_again = (429, 503)  # statuses that a client tries again
        self.problems = []
        self.counters = Counters()
        self.signals = {}  # what the director of kills waits for: name -> count
        self.promises = []  # see work.Promise

    # --- the process ---

    def start(self, env=None):
        self.process = Process(self.command, {**self.env, **(env or {})})
        return self.process

    def announce(self):
        """Clients may use the process."""
        with self.lock:
            self.is_up = True
            self.lock.notify_all()

    def kill(self):
        with self.lock:
            self.is_up = False
        self.process.kill()

    # --- signals ---

    def signal(self, name):
        with self.lock:
            self.signals[name] = self.signals.get(name, 0) + 1
            self.lock.notify_all()

    def wait_signal(self, name, seconds):
        """Until clients have signalled once more; False: not in time."""
        with self.lock:
            before = self.signals.get(name, 0)
            return self.lock.wait_for(
                lambda: self.signals.get(name, 0) > before or self.is_over, seconds)

    def acknowledge(self):
        with self.lock:
            self.counters.acknowledged += 1
        self.signal("acknowledged")

    def finish(self, kind):
        with self.lock:
            self.counters.finished[kind] = self.counters.finished.get(kind, 0) + 1

    def fail(self, text):
        with self.lock:
            self.problems.append(text)
            self.is_over = True
            self.lock.notify_all()

    def end(self):
        with self.lock:
            self.is_over = True
            self.lock.notify_all()

    # --- clients ---

    def address(self):
        """Of the process that is up; waits for one."""
        with self.lock:
            self.lock.wait_for(lambda: self.is_up or self.is_over, ASK_S)
            if self.is_over or not self.is_up:
                raise Stopped
            return self.process.address

    def note(self, status):
        with self.lock:
            self.counters.statuses[status] = self.counters.statuses.get(status, 0) + 1

    def once(self, method, path, body=None, headers=None, timeout=TRY_S):
        """One try. Broken: the server has gone."""
        return fetch(self.address(), method, path, body, headers, timeout)

    def ask(self, method, path, body=None, headers=None):
        """Until some process answers; for requests that may be repeated."""
        end = time.monotonic() + ASK_S
        while True:
            try:
                answer = self.once(method, path, body, headers)
                if answer.status not in self.tried_again:
                    return answer
                self.note(answer.status)
                reason = str(answer)
            except Broken as broken:
                reason = str(broken)
            if time.monotonic() > end:
                self.fail(f"{method} {path}: no answer in {ASK_S:g} s, the last was {reason}")
                raise Stopped
            time.sleep(PAUSE_S)

    def count_reconnect(self):
        with self.lock:
            self.counters.reconnects += 1


def name_of_request():
    return "kill-" + uuid.uuid4().hex[:20]


def program_of(root, lossy):
    build = Path(os.environ.get("JITNEY", root / "build" / "jitney")).parent
    return build / "tests" / "jitney_lossy" if lossy else build / "jitney"
