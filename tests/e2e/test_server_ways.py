"""Goal:   every way to receive an answer gives the same answer: whole, as a stream, again after a
        broken connection, over a WebSocket, by polling; over HTTP/1.1, HTTP/2, TLS and a unix
        socket.
Method: the same seeded request each time against `jitney serve` with a simulated runner,
        at a pace where the middle of an answer matters."""

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest

from cli_lib import answer, refusal
from server_lib import (FAST, Server, http_request, parse_events, read_all, read_until, statuses,
                        tiny_model, wait_until)

PACED = ("--runner", "sim:5000")  # 200 tokens a second


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


@pytest.fixture(scope="module", name="server")
def server_fixture(model):
    with Server(model, *PACED, "--served-model-name", "tiny", "--ping-s", "0.2",
                "--keep-s", "5") as server:
        yield server


def body_of(tokens=12, **fields):
    return {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": tokens, "seed": 9, **fields}


def text_of(chunks):
    return "".join(choice["delta"].get("content") or "" for chunk in chunks
                   for choice in chunk["choices"])


@pytest.fixture(scope="module", name="expected")
def expected_fixture(server):
    answer = server.post("/v1/chat/completions", body_of()).json
    return answer["choices"][0]["message"]["content"]


# --- streams ---

def test_a_stream_has_headers_that_proxies_respect(server, expected):
    reply = server.post("/v1/chat/completions", body_of(stream=True))
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["x-accel-buffering"] == "no"
    assert "no-" in reply.headers["cache-control"]
    assert reply.headers["x-request-id"]
    assert reply.events[-1][2] == "[DONE]"
    assert text_of(reply.data) == expected
    ids = [int(number) for _, number, _ in reply.events]
    assert ids == list(range(1, len(ids) + 1))


def open_stream(server, headers=None, **fields):
    body = json.dumps(body_of(stream=True, **fields)).encode()
    sock = server.connect()
    sock.sendall(http_request("POST", "/v1/chat/completions", body, **(headers or {})))
    return sock


def test_headers_and_events_come_one_by_one(server):
    with open_stream(server, tokens=300) as sock:  # 1.5 s
        start = time.monotonic()
        data = read_until(sock, b"\r\n\r\n")
        read_until(sock, b"data: ", data.split(b"\r\n\r\n", 1)[1])
        first = time.monotonic() - start
        read_until(sock, b"[DONE]")
        assert first < 0.8 * (time.monotonic() - start)  # long before the answer was made


def test_a_request_that_waits_gets_heartbeats(model):
    slow = ("--runner", "sim:700000")
    with Server(model, *slow, "--served-model-name", "tiny", "--ping-s", "0.1") as server:
        with open_stream(server, tokens=2) as sock:
            data = read_until(sock, b"[DONE]")
    assert data.count(b": ping\n\n") >= 3
    assert statuses(data) == [200]


def test_a_broken_stream_is_resumed_after_its_last_event(server, expected):
    whole = server.post("/v1/chat/completions", body_of(stream=True)).events
    with open_stream(server, headers={"x_jitney_keep": "true", "x_request_id": "mine-1"}) as sock:
        read_until(sock, b"id: 4\n")
    rest = server.get("/v1/requests/mine-1", headers={"accept": "text/event-stream",
                                                      "last-event-id": "4"})
    assert rest.status == 200
    assert [e[1] for e in rest.events] == [e[1] for e in whole[4:]]
    assert text_of(rest.data) and expected.endswith(text_of(rest.data))
    again = server.get("/v1/requests/mine-1", headers={"accept": "text/event-stream"})
    assert text_of(again.data) == expected
    assert [e[1] for e in again.events] == [e[1] for e in whole]
    odd = server.get("/v1/requests/mine-1", headers={"accept": "text/event-stream",
                                                     "last-event-id": "four"})
    assert odd.status == 400 and "four" in odd.json["error"]["message"]


def test_a_finished_stream_is_kept_only_for_a_while(model):
    with Server(model, *FAST, "--served-model-name", "tiny", "--keep-s", "0.3") as server:
        reply = server.post("/v1/chat/completions", body_of(stream=True))
        name = reply.data[0]["id"]
        assert server.get(f"/v1/requests/{name}").json["status"] == "completed"
        assert wait_until(lambda: server.get(f"/v1/requests/{name}").status == 404)
        assert server.get(f"/v1/requests/{name}").error["code"] == "request_not_found"


def test_a_disconnect_cancels_the_request(server):
    sock = open_stream(server, tokens=4000)
    read_until(sock, b"id: 2\n")
    assert server.metrics()["vllm:num_requests_running"] == 1
    sock.close()
    assert wait_until(server.is_quiet, 15)


def test_a_disconnect_cancels_a_request_that_is_not_streamed(server):
    sock = server.connect()
    sock.sendall(http_request("POST", "/v1/chat/completions",
                              json.dumps(body_of(4000)).encode()))
    assert wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 1)
    sock.close()
    assert wait_until(server.is_quiet, 15)


def test_bursts_can_be_smoothed(model):
    """A step every 100 ms for 4 choices; smoothed, no character is split and nothing is lost."""
    with Server(model, *PACED, "--served-model-name", "tiny") as server:
        plain = server.post("/v1/chat/completions", body_of(30, stream=True))
        smooth = server.post("/v1/chat/completions", body_of(30, stream=True),
                             headers={"x-jitney-smooth-ms": "40"})
        assert text_of(smooth.data) == text_of(plain.data)


def test_a_slow_reader_delays_no_other(model):
    with Server(model, *FAST, "--served-model-name", "tiny") as server:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(server.address)
        body = json.dumps(body_of(8000, stream=True)).encode()
        sock.sendall(http_request("POST", "/v1/chat/completions", body))
        time.sleep(0.5)
        start = time.monotonic()
        assert server.post("/v1/chat/completions", body_of(50)).status == 200
        assert time.monotonic() - start < 10
        sock.settimeout(20)
        data = read_until(sock, b"[DONE]")
        assert text_of([json.loads(d) for _, _, d in parse_events(
            dechunk(data).decode()) if d != "[DONE]"])
        sock.close()


def dechunk(data):
    """The body of a chunked response, as far as it came."""
    _, _, rest = data.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if not size or int(size, 16) == 0:
            break
        body += rest[:int(size, 16)]
        rest = rest[int(size, 16) + 2:]
    return body


# --- later, and polling ---

def test_respond_async_and_polling(server, expected):
    reply = server.post("/v1/chat/completions", body_of(), headers={"prefer": "respond-async"})
    assert reply.status == 202
    assert reply.headers["preference-applied"] == "respond-async"
    place = reply.headers["location"]
    after, chunks, polls = 0, [], 0
    while True:
        found = server.get(f"{place}?after={after}&wait_ms=2000").json
        assert [e["id"] for e in found["events"]] == \
            list(range(after + 1, after + 1 + len(found["events"])))
        chunks += [e["data"] for e in found["events"] if isinstance(e["data"], dict)]
        after, polls = found["next"], polls + 1
        if found["done"]:
            break
    assert found["status"] == "completed"
    assert text_of(chunks) == expected
    assert polls > 1


def test_a_poll_waits_no_longer_than_requested(server):
    place = server.post("/v1/chat/completions", body_of(4000),
                        headers={"prefer": "respond-async"}).headers["location"]
    found = server.get(place).json
    start = time.monotonic()
    server.get(f"{place}?after=100000&wait_ms=200")
    assert 0.15 < time.monotonic() - start < 10
    assert found["status"] in ("queued", "in_progress")
    assert server.request("DELETE", place).json["status"] == "cancelled"
    assert wait_until(server.is_quiet, 15)
    assert server.get(place).json["status"] == "cancelled"


def test_delete_ends_the_stream_of_another_connection(server):
    with open_stream(server, tokens=4000, headers={"x_request_id": "mine-2"}) as sock:
        data = read_until(sock, b"id: 2\n")
        assert server.request("DELETE", "/v1/requests/mine-2").status == 200
        sock.settimeout(5)
        data = read_until(sock, b"0\r\n\r\n", data)
    assert b'"error"' in data and b"cancelled" in data


def test_an_unknown_request_is_404(server):
    for method in ("GET", "DELETE"):
        assert server.request(method, "/v1/requests/none").status == 404
    place = server.post("/v1/chat/completions", body_of(2),
                        headers={"prefer": "respond-async"}).headers["location"]
    assert server.get(place + "?after=x").status == 400
    assert server.get(place + "?wait_ms=-1").status == 400


def test_a_long_answer_with_log_probabilities_is_written_in_the_pool(model):
    """From 4,096 of them on it is written in the pool, whether its client waits or not."""
    body = body_of(400, n=16, logprobs=True, top_logprobs=1)
    with Server(model, *FAST, "--served-model-name", "tiny") as server:
        reply = server.post("/v1/chat/completions", body)
        assert [len(c["logprobs"]["content"]) for c in reply.json["choices"]] == 16 * [400]
        for i in range(8):  # these leave at all stages of it
            sock = server.connect()
            sock.sendall(http_request("POST", "/v1/chat/completions", json.dumps(body).encode()))
            time.sleep(i / 200)
            sock.close()
        assert wait_until(server.is_quiet, 15)
        assert server.post("/v1/chat/completions", body).status == 200


# --- WebSocket ---

websockets = pytest.importorskip("websockets", reason="the package websockets is not installed")


def ws_url(server):
    return server.url.replace("http", "ws", 1) + "/v1/stream"


async def receive_all(ws):
    messages = []
    while not messages or messages[-1] != "[DONE]":
        messages.append(await asyncio.wait_for(ws.recv(), 10))
    return messages


def test_a_websocket_brings_the_same_chunks(server, expected):
    async def main():
        async with websockets.connect(ws_url(server)) as ws:
            await ws.send(json.dumps(body_of()))
            first = await receive_all(ws)
            await ws.send(json.dumps({"path": "/v1/completions", "body": {
                "model": "tiny", "prompt": "x", "max_tokens": 3}}))
            return first, await receive_all(ws)
    first, second = asyncio.run(main())
    document = server.get("/openapi.json").json
    chunks = [json.loads(m) for m in first[:-1]]
    server.document.check_events(document["paths"]["/v1/chat/completions"]["post"], document[
        "paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"][
        "text/event-stream"], "application/x-ndjson", "\n".join(first[:-1]))
    assert text_of(chunks) == expected
    assert json.loads(second[0])["object"] == "text_completion"


def test_a_websocket_can_cancel_and_continue(server, expected):
    async def main():
        async with websockets.connect(ws_url(server)) as ws:
            await ws.send(json.dumps(body_of(4000)))
            await ws.recv()
            await ws.send(json.dumps(body_of()))
            busy = ""
            while "busy" not in busy:
                busy = await asyncio.wait_for(ws.recv(), 10)
            await ws.send(json.dumps({"type": "cancel"}))
            assert "cancelled" in (await receive_all(ws))[-2]
            await ws.send(json.dumps(body_of()))
            return await receive_all(ws)
    assert text_of([json.loads(m) for m in asyncio.run(main())[:-1]]) == expected
    assert wait_until(server.is_quiet, 15)


CONTENT = [{"role": "user", "content": "Hello"}]
# A request of each dialect, the field that limits its answer, and whether a message is its last.
ENDS = {
    "/v1/chat/completions": ({"messages": CONTENT}, "max_tokens", lambda m: m == "[DONE]"),
    "/v1/completions": ({"prompt": "Hello"}, "max_tokens", lambda m: m == "[DONE]"),
    "/v1/responses": ({"input": "Hello"}, "max_output_tokens", lambda m: '"error":{' in m or any(
        f'"type":"response.{end}"' in m for end in ("completed", "incomplete", "failed"))),
    "/v1/messages": ({"messages": CONTENT}, "max_tokens", lambda m: '"type":"error"' in m or
                     '"type":"message_stop"' in m),
}


@pytest.mark.parametrize("path", ENDS)
def test_every_request_of_a_websocket_ends_with_one_final_message(server, path):
    """Whole answers, refused requests and cancelled ones, one after the other: each time exactly
    one final message, so that the next message belongs to the next request."""
    body, limit, is_last = ENDS[path]

    async def ask(ws, cancel=False, **fields):
        messages = []
        await ws.send(json.dumps({"path": path, "body": {"model": "tiny"} | body | fields}))
        while not messages or not is_last(messages[-1]):
            messages.append(await asyncio.wait_for(ws.recv(), 10))
            if cancel and len(messages) == 1:
                await ws.send('{"type":"cancel"}')
        return messages

    async def main():
        async with websockets.connect(ws_url(server)) as ws:
            for _ in range(3):
                assert '"error":{' not in (await ask(ws, **{limit: 3}))[0]
                assert '"error":{' in (await ask(ws, **{limit: "three"}))[0]
                assert '"error":{' in (await ask(ws, model="unknown"))[0]
                cancelled = await ask(ws, cancel=True, **{limit: 7000})
                assert '"error":{' not in cancelled[0] and "cancelled" in "".join(cancelled[-2:])
    asyncio.run(main())
    assert wait_until(server.is_quiet, 15)


def test_a_stream_that_fails_ends_with_the_mark_of_its_end(model):
    with Server(model, "--runner", "sim:1000,fail-after=20", "--served-model-name", "tiny") as server:
        reply = server.post("/v1/chat/completions", body_of(4000, stream=True))
        assert reply.events[-1][2] == "[DONE]" and '"error"' in reply.events[-2][2]


def test_invalid_messages_are_answered_and_the_websocket_stays_open(server):
    async def main():
        async with websockets.connect(ws_url(server)) as ws:
            answers = []
            for message in ("{", "[]", '{"model":"none","messages":[]}',
                            '{"path":"/v1/models","body":{}}'):
                await ws.send(message)
                error, *rest = await receive_all(ws)
                answers.append(json.loads(error))
                assert rest == ["[DONE]"]
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await ws.send(b"binary")
                await asyncio.wait_for(ws.recv(), 10)
            return answers, caught.value.rcvd.code
    answers, code = asyncio.run(main())
    assert all(answer["error"]["message"] for answer in answers)
    assert code == 1003


def test_a_long_message_is_parsed_in_the_pool_and_later_ones_wait(server, expected):
    """From 64 KiB on a message is read in the pool of threads."""
    padded = json.dumps(body_of()) + 200000 * " "

    async def main():
        async with websockets.connect(ws_url(server)) as ws:
            await ws.send(padded)
            await ws.send(json.dumps(body_of(2)))  # too early: it does not overtake the long one
            busy, messages = False, []
            while not messages or messages[-1] != "[DONE]":
                message = await asyncio.wait_for(ws.recv(), 10)
                busy = busy or '"busy"' in message
                if '"busy"' not in message:
                    messages.append(message)
            for leave in range(3):  # clients that go while theirs is read leave nothing behind
                async with websockets.connect(ws_url(server)) as other:
                    await other.send(padded)
                    await asyncio.sleep(leave / 1000)
            return busy, messages
    busy, messages = asyncio.run(main())
    assert busy
    assert text_of([json.loads(m) for m in messages[:-1]]) == expected
    assert wait_until(server.is_quiet, 15)


def frame_of(text):
    """A text as one frame whose mask is zero."""
    size = len(text)
    head = bytes([0x81, 0x80 + size]) if size < 126 else b"\x81\xff" + size.to_bytes(8, "big")
    return head + bytes(4) + text


def test_a_cancel_reaches_a_message_that_is_being_read(server):
    """Both are sent at once, so the cancel comes while the message is parsed, or just after."""
    padded = json.dumps(body_of(4000, ignore_eos=True)).encode() + 200000 * b" "
    sock = server.connect()
    sock.sendall(http_request("GET", "/v1/stream", upgrade="websocket", connection="upgrade",
                              sec_websocket_version="13",
                              sec_websocket_key="AAAAAAAAAAAAAAAAAAAAAA=="))
    read_until(sock, b"\r\n\r\n")
    sock.sendall(frame_of(padded) + frame_of(b'{"type":"cancel"}'))
    assert b"request_cancelled" in read_until(sock, b"[DONE]")
    sock.close()


def test_a_websocket_whose_key_was_removed_is_closed(model, tmp_path):
    path = tmp_path / "keys"
    path.write_text("first\nsecond\n")

    async def main(server):
        headers = {"authorization": "Bearer first"}
        async with websockets.connect(ws_url(server), additional_headers=headers) as ws:
            await ws.send(json.dumps(body_of(3)))
            assert (await receive_all(ws))[-1] == "[DONE]"
            path.write_text("second\n")
            server.process.send_signal(signal.SIGHUP)
            assert wait_until(lambda: any("event=reload" in line for line in server.lines))
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await ws.send(json.dumps(body_of(3)))
                await asyncio.wait_for(ws.recv(), 10)
            return caught.value.rcvd.code
    with Server(model, *FAST, "--served-model-name", "tiny", "--api-key-file", path) as server:
        assert asyncio.run(main(server)) == 1008


def test_a_client_that_disconnects_is_counted(server):
    name = 'status="499"'

    def count():
        text = server.plain("GET", "/metrics").body.decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if name in line)
    before = count()
    sock = server.connect()
    sock.sendall(http_request("POST", "/v1/chat/completions",
                              json.dumps(body_of(4000, stream=True)).encode()))
    read_until(sock, b"data: ")
    sock.close()
    assert wait_until(lambda: count() == before + 1)


def test_a_websocket_that_disconnects_cancels_its_request(server):
    async def main():
        async with websockets.connect(ws_url(server)) as ws:
            await ws.send(json.dumps(body_of(4000)))
            await ws.recv()
    asyncio.run(main())
    assert wait_until(server.is_quiet, 15)


def test_a_plain_request_for_the_websocket_is_refused(server):
    reply = server.get("/v1/stream")
    assert 400 <= reply.status < 500


# --- transports ---

def make_certificate(folder, name):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True)


needs_openssl = pytest.mark.skipif(not shutil.which("openssl"),
                                   reason="openssl, which makes certificates, is not installed")


@pytest.fixture(scope="module", name="secure")
def secure_fixture(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder, "first")
    with Server(model, *FAST, "--served-model-name", "tiny", "--tls-cert", folder / "cert.pem",
                "--tls-key", folder / "key.pem") as server:
        server.folder = folder
        assert server.url.startswith("https://")
        assert wait_until(lambda: is_ready(server))
        yield server


def is_ready(server):
    """Whatever its certificate is."""
    how = ssl.create_default_context()
    how.check_hostname, how.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError):
        return urllib.request.urlopen(server.url + "/readyz", context=how, timeout=10).status == 200
    return False


def http_client(**how):
    httpx = pytest.importorskip("httpx", reason="the package httpx is not installed")
    return httpx.Client(timeout=20, **how)


def wait_secure(client, server):
    assert wait_until(lambda: client.get(server.url + "/readyz").status_code == 200)


@needs_openssl
def test_bench_measures_over_https(secure):
    how = ("--clients", 4, "--requests", 12, "--prompt-tokens", 3000, "--output-tokens", 8)
    for flags in (("--cacert", secure.folder / "cert.pem"), ("--insecure",)):
        (found,) = answer("bench", secure.url, *how, *flags)["runs"]
        assert (found["completed"], found["failed"]) == (12, 0)
        assert found["total_output_tokens"] == 12 * 8
    assert "self-signed certificate" in refusal(69, "bench", secure.url)
    other = secure.url.replace("127.0.0.1", "127.0.0.2")  # nobody listens, or another name
    assert "127.0.0.2" in refusal(69, "bench", other, "--cacert", secure.folder / "cert.pem")
    assert "none.pem" in refusal(65, "bench", secure.url, "--cacert", secure.folder / "none.pem")
    plain = secure.url.replace("https", "http")
    assert "begin the address with https://" in refusal(69, "bench", plain)


@needs_openssl
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_plain_http_to_a_tls_port_is_told_so(secure, method):
    port = int(secure.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(f"{method} /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        reply = b""
        while piece := client.recv(4096):
            reply += piece
    head, _, text = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"https://" in text
    assert f"Content-Length: {len(text)}".encode() in head


@needs_openssl
@pytest.mark.parametrize("http2", [False, True])
def test_tls_speaks_both_versions(secure, http2):
    with http_client(verify=False, http2=http2) as client:
        wait_secure(client, secure)
        reply = client.post(secure.url + "/v1/chat/completions", json=body_of(5))
        assert reply.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        assert reply.json()["usage"]["completion_tokens"] == 5


def served_name(server):
    context = ssl._create_unverified_context()
    with socket.create_connection(server.address, timeout=10) as sock:
        with context.wrap_socket(sock) as tls:
            der = tls.getpeercert(binary_form=True)
    return b"second" if b"second" in der else b"first"


@needs_openssl
def test_a_new_certificate_is_taken_while_connections_live(secure):
    with http_client(verify=False) as client:
        wait_secure(client, secure)
        assert served_name(secure) == b"first"
        make_certificate(secure.folder, "second")
        secure.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: served_name(secure) == b"second")
        assert client.get(secure.url + "/livez").status_code == 200
        (secure.folder / "cert.pem").write_text("damaged")
        secure.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert served_name(secure) == b"second"


@needs_openssl
def test_plain_http_and_half_a_handshake_do_no_harm(secure):
    with socket.create_connection(secure.address, timeout=10) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        read_all(sock)
    assert served_name(secure)


def test_http2_without_tls_carries_many_streams_at_once(server, expected):
    with http_client(http1=False, http2=True) as client:
        found = [None] * 8

        def ask(i):
            with client.stream("POST", server.url + "/v1/chat/completions",
                               json=body_of(stream=True)) as reply:
                assert reply.http_version == "HTTP/2"
                found[i] = parse_events(reply.read().decode())
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for events in found:
        assert text_of([json.loads(d) for _, _, d in events if d != "[DONE]"]) == expected


class Http2:
    """As much of a client of HTTP/2 as the tests need."""

    def __init__(self, server):
        h2 = pytest.importorskip("h2.connection", reason="the package h2 is not installed")
        self.sock = server.connect()
        self.connection = h2.H2Connection()
        self.connection.initiate_connection()
        self.flush()

    def flush(self):
        self.sock.sendall(self.connection.data_to_send())

    def ask(self, method, path, body=None):
        stream = self.connection.get_next_available_stream_id()
        headers = [(":method", method), (":path", path), (":scheme", "http"),
                   (":authority", "localhost"), ("content-type", "application/json")]
        self.connection.send_headers(stream, headers, end_stream=body is None)
        if body is not None:
            self.connection.send_data(stream, json.dumps(body).encode(), end_stream=True)
        self.flush()
        return stream

    def wait_for(self, kind, stream):
        while True:
            events = self.connection.receive_data(self.sock.recv(65536))
            self.flush()
            for event in events:
                if type(event).__name__ == kind and event.stream_id == stream:
                    return event


def test_a_reset_stream_of_http2_cancels_that_request_only(server):
    client = Http2(server)
    stream = client.ask("POST", "/v1/chat/completions", body_of(4000, stream=True))
    other = client.ask("POST", "/v1/chat/completions", body_of(100))
    client.wait_for("DataReceived", stream)
    client.connection.reset_stream(stream, 8)
    client.flush()
    assert wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 1)
    client.wait_for("StreamEnded", other)
    assert wait_until(server.is_quiet, 15)
    again = client.ask("GET", "/livez")
    client.wait_for("StreamEnded", again)
    client.sock.close()


def test_a_connection_of_http2_that_ends_cancels_all_of_its_requests(server):
    client = Http2(server)
    streams = [client.ask("POST", "/v1/chat/completions", body_of(4000, stream=True))
               for _ in range(5)]
    client.wait_for("DataReceived", streams[-1])
    client.sock.close()
    assert wait_until(server.is_quiet, 15)


def test_a_unix_socket(model, tmp_path):
    path = tmp_path / "s"
    with Server(model, *FAST, "--served-model-name", "tiny", listen=("--uds", path),
                ready=False) as server:
        assert str(path) in server.url
        httpx = pytest.importorskip("httpx", reason="the package httpx is not installed")
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://anything", timeout=20) as client:
            assert wait_until(lambda: client.get("/readyz").status_code == 200)
            reply = client.post("/v1/chat/completions", json=body_of(4))
            assert reply.json()["usage"]["completion_tokens"] == 4
    assert not path.exists()


def test_head_and_options(server):
    assert server.plain("HEAD", "/v1/models").body == b""
    reply = server.plain("PUT", "/v1/models")
    assert reply.status == 405 and "GET" in reply.headers["allow"]
    assert server.plain("GET", "/no/such/path").status == 404


def test_requests_follow_each_other_on_one_connection(server):
    request = http_request("GET", "/livez")
    with server.connect() as sock:
        sock.sendall(request * 3)  # pipelined
        data = b""
        while data.count(b"HTTP/1.1 200") < 3:
            data += sock.recv(65536)
        sock.sendall(http_request("GET", "/livez", connection="close"))
        assert statuses(read_all(sock)) == [200]


def test_http_10_gets_a_length_or_an_end(server):
    data = server.raw(b"GET /livez HTTP/1.0\r\n\r\n")
    assert statuses(data) == [200]
    body = json.dumps(body_of(3, stream=True)).encode()
    data = server.raw(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%s" %
                      (len(body), body))
    assert data.rstrip().endswith(b"data: [DONE]") and b"chunked" not in data


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def test_events_of_slow_readers_wait_in_the_log_and_not_in_a_buffer(model):
    """What a reader has not taken is kept as events, which are far smaller than on the wire."""
    clients, tokens, choices = 8, 7000, 4
    body = json.dumps({**body_of(tokens, stream=True, n=choices), "ignore_eos": True}).encode()
    with Server(model, *FAST, "--served-model-name", "tiny", "--keep-memory", "0",
                "--log-level", "warn") as server:
        before = resident_kib(server.pid)
        socks = []
        for _ in range(clients):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(60)
            sock.connect(server.address)
            sock.sendall(http_request("POST", "/v1/chat/completions", body,
                                      connection="close"))
            socks.append(sock)
        made = clients * tokens * choices
        assert wait_until(lambda: server.metrics()["vllm:generation_tokens_total"] >= made, 60)
        time.sleep(0.5)
        grown = resident_kib(server.pid) - before
        assert b"[DONE]" in read_all(socks[0])  # nothing of it was lost
        for sock in socks:
            sock.close()
        assert grown < made * 100 // 1024, grown
