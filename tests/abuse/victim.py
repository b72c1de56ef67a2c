"""The other clients of tests/abuse: a victim with a key, who measures the time to the first token,
and a probe that asks for /livez; both on 127.0.0.1. And what they are judged by."""

import http.client
import json
import ssl
import threading
import time
from pathlib import Path


def connect(server, timeout=10):
    """A connection to the server, with TLS if the server has it."""
    if not server.url.startswith("https:"):
        return http.client.HTTPConnection(*server.address, timeout=timeout)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(*server.address, timeout=timeout, context=context)


def fetch(server, path, key=None):
    """Status and body of one request on a connection of its own."""
    connection = connect(server)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


CHAT = ("/v1/chat/completions", {
    "messages": [{"role": "user", "content": "Tell me a story."}], "stream": True,
    "max_tokens": 2, "temperature": 0})
EMBEDDING = ("/v1/embeddings", {"model": "bert", "input": "one short text"})


class Victim:
    """Sends one request after the other on a connection that it keeps: streamed chats, or texts to
    embed."""

    def __init__(self, server, key, request=CHAT):
        self.server, self.key = server, key
        self.path, self.body = request[0], json.dumps(request[1])
        self.connection = None
        self.failures = []  # statuses and errors in place of an answer

    def ask(self):
        """Seconds to the first token, or to the embedding; None: it got no answer."""
        if self.connection is None:
            self.connection = connect(self.server)
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        began = time.perf_counter()
        try:
            self.connection.request("POST", self.path, self.body, headers)
            response = self.connection.getresponse()
            data = b""
            while response.status == 200 and self.path == CHAT[0] and \
                    b'"content":"' not in data.replace(b'"content":""', b""):
                piece = response.read1(65536)
                if not piece:
                    break
                data += piece
            if self.path != CHAT[0]:
                response.read()
            took = time.perf_counter() - began
            response.read()
        except (OSError, http.client.HTTPException) as error:
            self.failures.append(repr(error))
            self.connection.close()
            self.connection = None
            return None
        if response.status != 200:
            self.failures.append(f"status {response.status}")
            return None
        return took

    def measure(self, count, seconds):
        """The times of at most `count` requests, within at most `seconds`."""
        times, until = [], time.monotonic() + seconds
        while len(times) < count and time.monotonic() < until:
            took = self.ask()
            if took is not None:
                times.append(took)
        return times


class Probe(threading.Thread):
    """Asks for /livez again and again, each time on a new connection."""

    def __init__(self, server, pause=0.02):
        super().__init__(daemon=True)
        self.server, self.pause = server, pause
        self.times, self.failures = [], []
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.is_set():
            began = time.perf_counter()
            try:
                status, _ = fetch(self.server, "/livez")
                if status != 200:
                    self.failures.append(status)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            self.times.append(time.perf_counter() - began)
            time.sleep(self.pause)

    def stop(self):
        self.stopping.set()
        self.join(15)


class Memory:
    """The largest number of bytes that are a process's own, without mapped model files and shared
    memory, since start(): as the kernel has counted it, also between two looks."""

    def __init__(self, pid):
        self.folder = Path(f"/proc/{pid}")
        self.before = 0

    def _kib(self):
        lines = (self.folder / "status").read_text().splitlines()
        pairs = (line.split()[:2] for line in lines if line.startswith(("Rss", "VmHWM")))
        return {name.rstrip(":"): int(value) for name, value in pairs}

    def start(self):
        (self.folder / "clear_refs").write_text("5")  # VmHWM begins anew
        self.before = self._kib()["RssAnon"]

    def grown(self):
        now = self._kib()
        peak = now["VmHWM"] - now["RssFile"] - now["RssShmem"]
        return (max(peak, now["RssAnon"]) - self.before) * 1024


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Folders:
    """As pytest's factory of folders, for tiny_model."""

    def __init__(self, root):
        self.root = root

    def mktemp(self, name):
        path = self.root / name
        path.mkdir()
        return path
