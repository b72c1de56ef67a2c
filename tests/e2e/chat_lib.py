"""What the tests of `jitney chat` share: a person at a terminal, a server that answers with a
script, and the same script from a model in the program itself."""

import contextlib
import http.server
import json
import os
import pty
import re
import select
import signal
import threading
import time

from cli_lib import JITNEY
from scripted_model import scripted_model


class Person:
    """Someone at a terminal, talking with the program."""

    def __init__(self, cache, *words, term="xterm", env=None):
        env = {**os.environ, "JITNEY_CACHE": str(cache), "TERM": term, "LC_ALL": "C.UTF-8",
               **(env or {})}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(JITNEY, [JITNEY, "chat", *map(str, words)], env)
        self.seen = b""

    def type(self, text):
        os.write(self.fd, text.encode())

    def read_some(self, timeout):
        if not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side is gone
            return False
        self.seen += data
        return bool(data)

    def wait_for(self, pattern, timeout=30):
        """Read until `pattern` appears; forget what came up to it."""
        end = time.monotonic() + timeout
        while True:
            match = re.search(pattern.encode(), self.seen)
            if match:
                before, self.seen = self.seen[: match.end()], self.seen[match.end() :]
                return before.decode(errors="replace")
            assert time.monotonic() < end, (pattern, self.seen)
            self.read_some(0.1)

    def leave(self):
        """Ctrl-D at the next prompt; before it the terminal is not yet set for editing."""
        self.wait_for("> ")
        self.type("\x04")
        assert self.exit_code() == 0

    def exit_code(self, timeout=30):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            self.read_some(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"still running; {self.seen!r}")


class Script(http.server.BaseHTTPRequestHandler):
    """Answers as its server's `script` says: a list of pieces, or (status, body). The first
    answers are those of `scripts`. A piece is a text, a delta of a chat, bytes of the stream, or
    seconds to wait; the reason for the end is a tuple of one word."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        models = {"object": "list", "data": [{"id": "first"}, {"id": "second"}]}
        self.reply(200, "application/json", json.dumps(models).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.path, headers, body))
        scripts = self.server.scripts
        script = scripts.pop(0) if scripts else self.server.script
        if isinstance(script, tuple):
            self.reply(script[0], "application/json", json.dumps(script[1]).encode())
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for piece in script:
                self.put(piece)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.server.gone.set()

    def put(self, piece):
        if isinstance(piece, float):
            for _ in range(int(piece * 20)):
                self.put(b": still here\n\n")
                time.sleep(0.05)
            return
        if isinstance(piece, (str, dict, tuple)):
            delta = {"content": piece} if isinstance(piece, str) else piece
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            if isinstance(piece, tuple):
                choice |= {"delta": {}, "finish_reason": piece[0]}
            chunk = {"choices": [choice]}
            piece = b"data: " + json.dumps(chunk).encode() + b"\n\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


@contextlib.contextmanager
def scripted_server():
    """A server on a free port; `seen` has the requests, `gone` says that a client went away."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Script)
    server.daemon_threads = True
    server.seen, server.gone, server.scripts = [], threading.Event(), []
    server.script = [b": hello\n\n", "Hel", "lo \u00e9", b"data: [DONE]\n\n"]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def call(name, index=0, **arguments):
    """The deltas of one call, its arguments in two pieces."""
    text = json.dumps(arguments)
    return [{"tool_calls": [{"index": index, "id": f"id{index}", "type": "function",
                             "function": {"name": name, "arguments": text[:5]}}]},
            {"tool_calls": [{"index": index, "function": {"arguments": text[5:]}}]}]


def calls(*deltas):
    return [piece for some in deltas for piece in some] + [("tool_calls",)]


class ServerWay:
    """Answers come from a server that plays a script."""

    def __init__(self, server):
        self.server = server
        self.words = ["--url", server.url]

    def says(self, *parts, then="Done."):
        """The answer to every message: texts, thoughts and calls. Results of tools are answered
        with `then`; None: with the same again."""
        script = [piece for part in parts for piece in (part if isinstance(part, list) else [part])]
        self.server.script = [then] if then else script
        self.server.scripts = [script] if then else []
        return self


class ModelWay:
    """The same answers come from a model that writes them as text, in the program itself."""

    template = "{# <think> <tool_call> #}{% if tools %}{{ tools | tojson }}\n{% endif %}"

    def __init__(self, folder):
        self.folder = folder
        self.words = None

    def says(self, *parts, then="Done."):
        thoughts = [part["reasoning_content"] for part in parts if isinstance(part, dict)]
        pieces = ["<think>\n", *thoughts, "\n</think>\n\n"] if thoughts else []
        for part in parts:
            if isinstance(part, str):
                pieces.append(part)
            elif isinstance(part, list):
                pieces += self.written(part)
        model = scripted_model(self.folder / "model", pieces, self.template, [then] if then else [])
        self.words = [model, "--temp", "0"]
        return self

    @staticmethod
    def written(deltas):
        """Two pieces; blanks tell equal calls apart, because each piece must be another."""
        first, second = (delta["tool_calls"][0] for delta in deltas)
        function, blanks = first["function"], " " * first["index"]
        return [f'<tool_call>{blanks}\n{{"name": "{function["name"]}", "arguments": '
                + function["arguments"],
                second["function"]["arguments"] + "}\n" + blanks + "</tool_call>"]
