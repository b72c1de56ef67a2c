"""Goal:   the nginx configuration in docs/operation.md works as the page says.
Method: nginx runs with the block of that page, with other paths and ports, before a server with a
        simulated runner: streams, HTTP/2, keys, WebSockets, the Host header. That a stream is passed
        on is seen by asking the server, when the first token arrives, whether the answer is still
        being made; nginx that holds streams back is tried, too. Skipped without nginx."""

import asyncio
import json
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from server_lib import Server, tiny_model, wait_until

websockets = pytest.importorskip("websockets", reason="the package websockets is not installed")

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
CURL = shutil.which("curl")
if not NGINX or not CURL:
    pytest.skip("nginx or curl is not installed", allow_module_level=True)

PAGE = Path(__file__).resolve().parents[2] / "docs/operation.md"
NAME = "llm.example.org"


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


@pytest.fixture(scope="module", name="certificate")
def certificate_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-subj",
                    f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"], check=True,
                   capture_output=True, timeout=30)
    return folder


class Proxy:
    """nginx in the foreground, with the configuration of the page."""

    def __init__(self, server, certificate, folder, without=(), add=""):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        block = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.S)[1]
        for old, new in (("127.0.0.1:8080", f"127.0.0.1:{server.address[1]}"),
                         ("listen 443", f"listen 127.0.0.1:{self.port}"),
                         ("/etc/nginx/", f"{certificate}/")):
            assert old in block
            block = block.replace(old, new)
        for word in without:
            assert word in block
            block = "\n".join(line for line in block.splitlines() if word not in line)
        assert "location / {" in block
        block = block.replace("location / {", "location / {\n" + add)
        temp = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in (
            "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        path = folder / "nginx.conf"
        path.write_text(f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\n"
                        f"events {{}}\nhttp {{\naccess_log off;\n{temp}{block}\n}}\n")
        self.certificate = certificate / "cert.pem"
        self.process = subprocess.Popen([NGINX, "-p", folder, "-c", path],
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert wait_until(self.is_open), self.process.poll()

    def is_open(self):
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)
        self.process.stderr.close()

    def curl(self, path, *words):
        """Status, version of HTTP and body."""
        got = subprocess.run(
            [CURL, "-sS", "--http2", "--max-time", "20", "--cacert", self.certificate, "--resolve",
             f"{NAME}:{self.port}:127.0.0.1", "-w", "\n%{http_code} %{http_version}",
             f"https://{NAME}:{self.port}{path}", *words], capture_output=True, check=True)
        body, _, last = got.stdout.decode().rpartition("\n")
        status, version = last.split()
        return int(status), version, body

    def stream(self, body, *words, until=None):
        """The events of a stream; with `until`, those up to the first for which it is true."""
        command = [CURL, "-sSN", "--http2", "--max-time", "30", "--cacert", self.certificate,
                   "--resolve", f"{NAME}:{self.port}:127.0.0.1", "-d", json.dumps(body),
                   f"https://{NAME}:{self.port}/v1/chat/completions", *words]
        events = []
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            for line in process.stdout:
                if not line.startswith(b"data:"):
                    continue
                events.append(line)
                if until and until(line):
                    process.terminate()
                    break
        return events


def chat(tokens, **fields):
    return {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": tokens, "ignore_eos": True, **fields}


def start(model, *flags, runner="sim:0"):
    return Server(model, "--served-model-name", "tiny", "--runner", runner, *flags)


def test_streams_http2_keys_and_websockets_pass_through_nginx(model, certificate, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one rpm=100\n")
    key = ("-H", "authorization: Bearer sk-one")
    with start(model, "--api-key-file", keys, "--trusted-proxy", "127.0.0.1", "--log-level",
               "debug") as server, \
            Proxy(server, certificate, tmp_path) as proxy:
        assert proxy.curl("/v1/models")[0] == 401
        status, version, body = proxy.curl("/v1/models", *key)
        assert (status, version) == (200, "2") and "tiny" in body
        assert proxy.curl("/metrics", *key)[0] == 403
        status, _, body = proxy.curl("/v1/chat/completions", *key, "-d", json.dumps(chat(5)))
        assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 5
        events = proxy.stream(chat(30, stream=True), *key)
        assert len(events) >= 30 and events[-1] == b"data: [DONE]\n"
        status, _, _ = proxy.curl("/livez", "-H", "x-forwarded-for: 203.0.113.9", "-H",
                                  "forwarded: for=203.0.113.9")
        assert status == 200

        async def by_websocket():
            context = ssl.create_default_context(cafile=proxy.certificate)
            async with websockets.connect(
                    f"wss://{NAME}:{proxy.port}/v1/stream", host="127.0.0.1", ssl=context,
                    server_hostname=NAME, additional_headers={"x-api-key": "sk-one"}) as ws:
                await ws.send(json.dumps(chat(3)))
                messages = []
                while not messages or messages[-1] != "[DONE]":
                    messages.append(await asyncio.wait_for(ws.recv(), 10))
                return messages
        assert len(asyncio.run(by_websocket())) > 3
        assert not any("203.0.113.9" in line for line in server.lines)
        assert wait_until(lambda: any("path=/livez" in line and "peer=127.0.0.1" in line
                                      for line in server.lines))


IGNORE = "proxy_ignore_headers X-Accel-Buffering;"  # what the server sends with a stream


@pytest.fixture(scope="module", name="slow")
def slow_fixture(model):
    """A server that gives a token in half a second."""
    with start(model, "--allowed-host", NAME, runner="sim:500000") as server:
        yield server


def is_passed_on(server, proxy, tokens):
    """Does the first token arrive while the answer is being made? All of it is less than a buffer
    of nginx, so that a full one is no reason to pass it on. The event before the first token comes
    with the head of the response, which is always passed on."""
    found = []

    def look(event):
        if b'"content":""' in event:
            return False
        found.append(server.metrics()["vllm:num_requests_running"])
        return True
    assert len(proxy.stream(chat(tokens, stream=True), until=look)) == 2
    assert wait_until(server.is_quiet)
    return found == [1]


# Chunks of HTTP/1.1 are passed on by nginx in any case; what it gets by HTTP/1.0 fills its buffer.
@pytest.mark.parametrize("without, add", [
    ([], ""), (["proxy_http_version", "proxy_buffering"], ""), (["proxy_http_version"], IGNORE),
], ids=["as_printed", "by_the_header", "by_the_setting"])
def test_the_first_token_arrives_before_the_last_is_made(slow, certificate, tmp_path, without, add):
    with Proxy(slow, certificate, tmp_path, without, add) as proxy:
        assert is_passed_on(slow, proxy, 10)


def test_without_header_and_setting_nginx_holds_a_stream_back(slow, certificate, tmp_path):
    with Proxy(slow, certificate, tmp_path, ["proxy_http_version", "proxy_buffering"],
               IGNORE) as proxy:
        assert not is_passed_on(slow, proxy, 2)


def test_without_keys_nginx_needs_the_host_line_and_the_list(model, certificate, tmp_path):
    with start(model, "--allowed-host", NAME) as server:
        with Proxy(server, certificate, tmp_path) as proxy:
            assert proxy.curl("/v1/models")[0] == 200
        with Proxy(server, certificate, tmp_path, ["proxy_set_header Host"]) as proxy:
            status, _, body = proxy.curl("/v1/models")
        error = json.loads(body)["error"]
        assert status == 403 and error["code"] == "host_not_allowed"
        assert 'Host "jitney"' in error["message"] and "--allowed-host" in error["message"]
    with start(model) as server, Proxy(server, certificate, tmp_path) as proxy:
        status, _, body = proxy.curl("/v1/models")
        assert status == 403 and f'Host \\"{NAME}\\"' in body
