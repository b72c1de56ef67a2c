"""Goal:   one client cannot take the connections, the memory or the time of others, and the limits
        are those of docs/operation.md.
Method: `jitney serve` with few places for connections; the greedy client has the address
        127.0.0.2, the others 127.0.0.1."""

import json
import signal
import socket
import time

import pytest

from cli_lib import run
from server_lib import (Server, http_request, read_all, read_until, statuses, tiny_model,
                        wait_until)

GREEDY = "127.0.0.2"
PLACES = 32  # of which 4 are reserved, and 16 are one peer's


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


def serve(model, *flags):
    return Server(model, "--runner", "sim:5000", "--served-model-name", "tiny",
                  "--connections-max", PLACES, *flags)


@pytest.fixture(scope="module", name="server")
def server_fixture(model):
    with serve(model, "--body-timeout-s", "0.4") as server:
        yield server


def connect(server, address="127.0.0.1"):
    return socket.create_connection(server.address, timeout=20, source_address=(address, 0))


def stream(server, address=GREEDY):
    """A connection on which an answer is under way; None: the server has closed it."""
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}],
                       "max_tokens": 4000, "stream": True, "ignore_eos": True}).encode()
    sock = connect(server, address)
    try:
        sock.sendall(http_request("POST", "/v1/chat/completions", body))
        read_until(sock, b"data:")
        return sock
    except (AssertionError, OSError):
        sock.close()
        return None


def close_all(server, socks):
    for sock in socks:
        sock.close()
    assert wait_until(lambda: server.metrics()["jitney:http_connections"] == 1)
    assert wait_until(server.is_quiet)


# --- bodies ---

@pytest.mark.parametrize("method, path", [
    ("GET", "/v1/models"), ("GET", "/livez"), ("GET", "/metrics"), ("GET", "/openapi.json"),
    ("GET", "/"), ("GET", "/v1/stream"), ("GET", "/v1/requests/x"), ("DELETE", "/v1/requests/x"),
    ("HEAD", "/livez")])
def test_a_path_without_a_body_refuses_one_at_the_head(server, method, path):
    refused = server.raw(http_request(method, path, content_length=1))  # no byte of it is sent
    assert statuses(refused) == [413], refused
    chunks = http_request(method, path, transfer_encoding="chunked") + b"1\r\nx\r\n"
    assert statuses(server.raw(chunks)) == [413]
    with connect(server) as sock:
        sock.sendall(http_request(method, path, content_length=0, connection="close"))
        assert statuses(read_all(sock))[0] != 413


def test_a_small_body_has_a_small_limit(server):
    head = b"POST /api/show HTTP/1.1\r\nhost: localhost\r\ncontent-length: 65537\r\n\r\n"
    assert statuses(server.raw(head)) == [413]
    assert server.plain("POST", "/api/show", {"model": "tiny"}).status == 200


def test_a_body_of_a_byte_now_and_then_is_refused(server):
    with connect(server) as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
                     b"content-length: 1000\r\n\r\n")
        began = time.monotonic()
        sock.settimeout(0.1)
        answer = b""
        while not answer and time.monotonic() < began + 60:
            try:
                sock.sendall(b" ")
                answer = sock.recv(65536)
            except TimeoutError:
                pass
        assert statuses(answer) == [408]
        assert time.monotonic() - began < 20
    assert server.metrics()["jitney:http_slow_total"] >= 1


# --- connections ---

def test_one_address_has_at_most_half_of_the_connections(server):
    before = server.metrics()
    held = [stream(server) for _ in range(PLACES // 2)]
    assert all(held)
    assert [stream(server) for _ in range(5)] == [None] * 5
    assert server.get("/livez").status == 200
    assert server.chat(max_tokens=1).status == 200
    after = server.metrics()
    name = "jitney:http_connections_refused_peer_total"
    assert after[name] == before[name] + 5
    close_all(server, held)


def test_an_idle_connection_of_the_same_address_makes_room(server):
    held = [stream(server) for _ in range(PLACES // 2 - 1)]
    idle = connect(server, GREEDY)
    new = stream(server)
    assert new
    assert idle.recv(1) == b""
    close_all(server, [*held, idle, new])


def test_a_trusted_proxy_may_have_all_and_probes_find_a_place(model):
    with serve(model, "--trusted-proxy", "127.0.0.2/31") as server:
        held = [stream(server) for _ in range(PLACES - 4)]
        assert all(held)  # all but the reserve
        refused = server.plain("GET", "/v1/models")
        assert refused.status == 503
        assert refused.error["code"] == "too_many_connections"
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["connection"] == "close"
        for path in ("/livez", "/readyz", "/health", "/metrics"):
            assert server.plain("GET", path).status == 200
        held.pop().close()
        assert wait_until(lambda: server.plain("GET", "/v1/models").status == 200)
        close_all(server, held)


def test_limits_of_peers_are_applied_by_sighup(model, tmp_path):
    conf = tmp_path / "conf"
    conf.write_text("connections-per-peer = 2\n")
    with serve(model, "--config", conf) as server:
        def reload(text, count):
            conf.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            assert wait_until(lambda: sum("what=done" in line for line in server.lines) == count)
        held = [stream(server) for _ in range(2)]
        assert all(held) and stream(server) is None
        reload("connections-per-peer = 3\n", 1)
        held.append(stream(server))
        assert held[2] and stream(server) is None
        reload("connections-per-peer = 3\ntrusted-proxy = 127.0.0.2\n", 2)
        held += [stream(server) for _ in range(4)]
        assert all(held)
        reload("connections-per-peer = 3\n", 3)
        assert stream(server) is None
        close_all(server, held)


def test_no_limit_of_a_peer_and_a_limit_of_its_own(model):
    with serve(model, "--connections-per-peer", "0") as server:
        held = [stream(server) for _ in range(PLACES // 2 + 2)]
        assert all(held)
        close_all(server, held)
    with serve(model, "--connections-per-peer", "3") as server:
        held = [stream(server) for _ in range(3)]
        assert all(held)
        assert stream(server) is None
        close_all(server, held)


def test_memory_limits_connections_by_default(model):
    flags = ("--runner", "sim:5000", "--memory-max", "16M", "--body-max", "1M", "--keep-memory",
             "1M", "--connections-per-peer", "0")
    with Server(model, *flags) as server:  # 256 places, 8 of which are reserved
        held = [connect(server) for _ in range(300)]
        assert wait_until(lambda: server.metrics()["jitney:http_connections_evicted_total"] >= 44)
        assert server.metrics()["jitney:http_connections"] <= 256
        close_all(server, held)


def test_a_trusted_proxy_must_be_an_address(model):
    code, _, err = run("serve", str(model), "--port", "0", "--trusted-proxy", "proxy.example")
    assert code == 65
    assert b'trusted proxy "proxy.example" is neither an address nor a network' in err
