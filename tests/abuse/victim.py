"""The other clients of tests/abuse: a victim with a key, who measures the time to the first token,
and a probe that asks for /livez; both on 127.0.0.1."""

import http.client
import json
import threading
import time


class Victim:
    """Sends one streamed chat after the other on a connection that it keeps."""

    def __init__(self, server, key, tokens=4, text="Tell me a story."):
        self.server, self.key = server, key
        self.body = json.dumps({"messages": [{"role": "user", "content": text}], "stream": True,
                                "max_tokens": tokens, "temperature": 0})
        self.connection = None
        self.failures = []  # statuses and errors in place of an answer

    def ask(self):
        """Seconds to the first token; None: it got no answer."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(*self.server.address, timeout=10)
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        began = time.perf_counter()
        try:
            self.connection.request("POST", "/v1/chat/completions", self.body, headers)
            response = self.connection.getresponse()
            data = b""
            while b'"content":"' not in data.replace(b'"content":""', b"") and response.status == 200:
                piece = response.read1(65536)
                if not piece:
                    break
                data += piece
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
    """Asks for /livez again and again, each time on a new connection, and keeps the largest value
    of `level()`."""

    def __init__(self, server, level, pause=0.02):
        super().__init__(daemon=True)
        self.server, self.level, self.pause = server, level, pause
        self.peak = level()
        self.times, self.failures = [], []
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.is_set():
            began = time.perf_counter()
            try:
                reply = self.server.plain("GET", "/livez", timeout=10)
                if reply.status != 200:
                    self.failures.append(reply.status)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            self.times.append(time.perf_counter() - began)
            self.peak = max(self.peak, self.level())
            time.sleep(self.pause)

    def stop(self):
        self.stopping.set()
        self.join(15)


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
