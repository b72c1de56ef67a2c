"""What the end-to-end tests of the server share: starting one, asking it, and holding every answer
against the document at /openapi.json."""

import contextlib
import functools
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema

from cli_lib import JITNEY, run, talking_model

START_S = 60
STOP_S = 60
FAST = ("--runner", "sim:0")  # tokens from a hash, no pause
SERVE_LOAD = Path(JITNEY).parent / "bench" / "serve_load"
ASAN_JITNEY = Path(JITNEY).parent / "asan" / "jitney"  # the same under sanitizers, if it was built


@functools.cache
def has_model(name):
    return run("inspect", name)[0] == 0


def wait_until(check, seconds=60.0, pause=0.01):
    """The first true value of check(), or the last false one when time is up."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value or time.monotonic() > end:
            return value
        time.sleep(pause)


@dataclass
class Reply:
    status: int
    headers: dict  # lower-case names
    body: bytes
    events: list = field(default_factory=list)  # of a stream: (name, id, data)

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def data(self):
        """What the events of a stream carry, without the mark of its end."""
        return [json.loads(data) for _, _, data in self.events if data != "[DONE]"]


def check_retry(status, headers):
    """A client that waits for the seconds of retry-after has waited for retry-after-ms."""
    if "retry-after-ms" in headers:
        assert status in (429, 503), status
        assert int(headers["retry-after"]) == -(-int(headers["retry-after-ms"]) // 1000) >= 1


def parse_events(text):
    """Server-sent events as (name, id, data); comments are left out."""
    events = []
    for block in re.split(r"\r?\n\r?\n", text):
        found = {"event": "", "id": "", "data": []}
        for line in block.splitlines():
            key, _, value = line.partition(":")
            if key == "data":
                found["data"].append(value.removeprefix(" "))
            elif key in found:
                found[key] = value.removeprefix(" ")
        if found["data"]:
            events.append((found["event"], found["id"], "\n".join(found["data"])))
    return events


class Document:
    """The server's own description of its answers."""

    def __init__(self, document):
        self.document = document
        self.validators = {}
        self.paths = [(re.compile("^" + re.sub(r"\{\w+\}", "[^?]+", path) + "$"), item)
                      for path, item in document["paths"].items()]

    def validator(self, schema):
        name = json.dumps(schema)
        if name not in self.validators:
            whole = {**schema, "components": self.document["components"]}
            self.validators[name] = jsonschema.Draft202012Validator(whole)
        return self.validators[name]

    def operation(self, method, path):
        for pattern, item in self.paths:
            if pattern.match(path) and method.lower() in item:
                return item[method.lower()]
        return None

    def check(self, method, path, status, kind, body):
        """Raises unless the answer is one that the document allows."""
        path = urlsplit(path).path
        operation = self.operation(method, path)
        if operation is None or method == "HEAD" or status in (204, 304):
            if operation is None and status >= 400 and kind == "application/json":
                json.loads(body)  # nothing is known of it but that it is JSON
            return
        responses = operation["responses"]
        response = responses.get(str(status)) or responses.get(f"{status // 100}XX")
        assert response, f"{method} {path}: {status} is not in the document"
        if "content" not in response:
            return
        media = response["content"].get(kind.partition(";")[0])
        assert media, f"{method} {path}: {status} as {kind} is not in the document"
        if kind.startswith("application/json"):
            self.validator(media["schema"]).validate(json.loads(body))
        elif "x-event-schema" in media:
            self.check_events(operation, media, kind, body.decode())

    def check_events(self, operation, media, kind, text):
        if kind.startswith("text/event-stream"):
            pieces = [data for _, _, data in parse_events(text)]
        else:
            pieces = text.splitlines()
        fault = operation["responses"]["5XX"]["content"]["application/json"]["schema"]
        for piece in pieces:
            if piece == "[DONE]":
                continue
            value = json.loads(piece)
            is_fault = "error" in value and value.get("type") != "response.failed" and \
                not value.get("object")
            schema = fault if is_fault and not value.get("sequence_number") \
                else media["x-event-schema"]
            self.validator(schema).validate(value)


class Server:
    """A running `jitney serve`. Answers that come through request() and stream() are checked
    against the document; stop() wants an orderly end."""

    def __init__(self, model, *flags, env=None, wrap=(), listen=("--port", "0"), ready=True,
                 pass_fds=(), program=JITNEY):
        command = [*wrap, program, "serve", *(model if isinstance(model, list) else [model]),
                   *listen, *flags]
        self.lines, self.found = [], threading.Event()
        self.url = ""
        self.place = "http" if "--port" in listen else ""  # it may listen in other places, too
        self.document = None
        self.key = ""  # that requests without a key of their own send
        # Nothing is written to the user's cache unless a test asks for it.
        env = {**os.environ, "JITNEY_WEIGHTS_CACHE": "off", **(env or {})}
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=env, pass_fds=pass_fds)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            assert self.found.wait(START_S), self.lines
            assert self.url, self.lines
            if ready:
                self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def _read(self):
        for line in self.process.stderr:
            text = line.decode(errors="replace").rstrip("\n")
            self.lines.append(text)
            match = re.search(rf"listening on ({self.place}\S*)", text)
            if match and not self.url:
                self.url = match[1]
                self.found.set()
        self.found.set()

    # --- life ---

    @property
    def pid(self):
        return self.process.pid

    @property
    def address(self):
        parts = urlsplit(self.url)
        return parts.hostname, parts.port

    def wait_ready(self):
        def is_ready():
            assert self.process.poll() is None, self.lines
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.plain("GET", "/readyz").status == 200
            return False
        if self.url.startswith("http://"):
            assert wait_until(is_ready, START_S), self.lines

    def stop(self, expect=0, sig=signal.SIGTERM):
        """End it and see that it ends well."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        code = self.process.wait(STOP_S)
        self.reader.join(5)
        assert code == expect, (code, self.lines[-20:])

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self.reader.join(5)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.kill()
        else:
            self.stop()

    # --- asking ---

    def plain(self, method, path, body=None, headers=None, timeout=60):
        """One request on a connection of its own; not held against the document."""
        host, port = self.address
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
        headers = dict(headers or {})
        if self.key:
            headers.setdefault("authorization", f"Bearer {self.key}")
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault("content-type", "application/json")
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            check_retry(response.status, found)
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def request(self, method, path, body=None, headers=None, timeout=60):
        reply = self.plain(method, path, body, headers, timeout)
        if self.document is None:
            self.document = Document(self.plain("GET", "/openapi.json").json)
        kind = reply.headers.get("content-type", "")
        self.document.check(method, path, reply.status, kind, reply.body)
        if kind.startswith("text/event-stream"):
            reply.events = parse_events(reply.body.decode())
        return reply

    def get(self, path, **how):
        return self.request("GET", path, **how)

    def post(self, path, body, **how):
        return self.request("POST", path, body, **how)

    def chat(self, text="Say something", headers=None, **fields):
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], **fields}
        return self.post("/v1/chat/completions", body, headers=headers)

    @functools.cached_property
    def model(self):
        return self.get("/v1/models").json["data"][0]["id"]

    def connect(self, timeout=20):
        return socket.create_connection(self.address, timeout=timeout)

    def raw(self, data, timeout=20, half_close=False):
        """Everything that comes back for some bytes until the server closes, or b"" if silent."""
        with self.connect(timeout) as sock:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(data)
                if half_close:
                    sock.shutdown(socket.SHUT_WR)
            return read_all(sock)

    # --- watching ---

    def metrics(self):
        """Sums over labels: {"vllm:num_requests_running": 0.0, ...}."""
        sums = {}
        for line in self.plain("GET", "/metrics").body.decode().splitlines():
            match = re.match(r"([A-Za-z_:][\w:]*)(\{.*\})? (\S+)", line)
            if match:
                sums[match[1]] = sums.get(match[1], 0.0) + float(match[3])
        return sums

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def is_quiet(self):
        """Nothing runs, nothing waits, no KV block is held."""
        found = self.metrics()
        return not any(found[name] for name in (
            "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"))


def read_all(sock):
    data = b""
    with contextlib.suppress(OSError):
        while piece := sock.recv(65536):
            data += piece
    return data


def read_until(sock, mark, data=b""):
    while mark not in data:
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    return data


def http_request(method, path, body=b"", **headers):
    """The bytes of a request of HTTP/1.1; header names with _ for -."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body or method == "POST":
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def statuses(data):
    """The status of every response in some bytes."""
    return [int(code) for code in re.findall(rb"(?:^|\r\n|\n)?HTTP/1\.[01] (\d{3}) ", data)]


def tiny_model(tmp_path_factory, ctx=8192):
    """A model with random weights and a chat template, whose contexts are long."""
    folder = talking_model(tmp_path_factory.mktemp("served") / "tiny")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["max_position_embeddings"] = ctx
    path.write_text(json.dumps(config))
    return folder


def checking_hook(server):
    """For the `event_hooks` of httpx: whole answers are held against the document."""
    def check(response):
        kind = response.headers.get("content-type", "")
        if not kind.startswith("application/json"):
            return
        if server.document is None:
            server.document = Document(server.plain("GET", "/openapi.json").json)
        server.document.check(response.request.method, response.request.url.path,
                              response.status_code, kind, response.read())
    return check
