"""Goal:   an answer that is generated again after a crash is the same as the one that was begun, also
        where something outside the request decided about it: the limit of its key, the turns of
        several choices, a server that ends in an orderly way, a client that has cancelled.
Method: `jitney serve` with a simulated runner, ended by kill -9 or SIGTERM right after the client was
        told something; the same request undisturbed as the reference."""

import contextlib
import http.client
import json
import random
import signal
import time

import pytest

from server_lib import (Server, http_request, parse_events, read_all, read_until, tiny_model,
                        wait_until)

PACED = ("--runner", "sim:5000")  # 200 tokens a second
EVENTS = {"accept": "text/event-stream"}
DURABLE = {"x-jitney-keep": "durable"}
ENDED = ("completed", "incomplete", "cancelled", "failed")


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


@contextlib.contextmanager
def crashing(model, folder, *flags, runner=PACED):
    """A server that ends by kill -9."""
    server = Server(model, *runner, "--served-model-name", "tiny", "--data-dir", folder / "data",
                    *flags)
    try:
        yield server
    finally:
        server.kill()


def response_body(tokens, **fields):
    return {"model": "tiny", "input": "Hello", "max_output_tokens": tokens, "seed": 9,
            "store": True, **fields}


def wait_ended(server, made):
    return wait_until(lambda: (lambda r: r.get("status") in ENDED and r)(
        server.get(f"/v1/responses/{made}").json), 20)


def test_the_limit_of_a_key_cuts_the_answer_at_the_same_token(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one name=a tpm=100\ntwo name=b tpm=100\n")
    flags = ("--api-key-file", keys)
    with crashing(model, tmp_path, *flags) as server:
        server.key = "one"
        expected = server.post("/v1/responses", response_body(300)).json
        server.key = "two"
        made = server.post("/v1/responses", response_body(300, background=True)).json["id"]
    assert expected["usage"]["output_tokens"] < 100
    with crashing(model, tmp_path, *flags) as server:
        server.key = "two"
        found = wait_ended(server, made)
        assert found["usage"]["output_tokens"] == expected["usage"]["output_tokens"]
        assert found["output"][0]["content"] == expected["output"][0]["content"]


def test_a_cancelled_response_stays_cancelled(model, tmp_path):
    for _ in range(5):
        with crashing(model, tmp_path) as server:
            made = server.post("/v1/responses", response_body(500, background=True)).json["id"]
            reply = server.post(f"/v1/responses/{made}/cancel", {})
            assert reply.json["status"] == "cancelled"
        with crashing(model, tmp_path) as server:
            assert server.get(f"/v1/responses/{made}").json["status"] == "cancelled"


def test_a_deleted_request_is_gone(model, tmp_path):
    with crashing(model, tmp_path) as server:
        sock = server.connect()
        body = json.dumps({**response_body(500), "stream": True}).encode()
        sock.sendall(http_request("POST", "/v1/responses", body, x_request_id="mine"))
        read_until(sock, b"id: 5\n")
        reply = server.request("DELETE", "/v1/requests/mine")
        assert reply.status == 200 and reply.json["status"] == "cancelled"
        assert server.get("/v1/requests/mine").status == 404
        sock.close()
        server.stop()
    with crashing(model, tmp_path) as server:
        assert server.get("/v1/requests/mine").status == 404


def test_several_choices_take_turns_whatever_else_runs(model, tmp_path):
    """The numbers of events do not depend on when the tokens of a choice arrive."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40,
            "seed": 5, "n": 4, "stream": True, "stop": ["e"]}
    other = {"model": "tiny", "prompt": "word " * 300, "max_tokens": 100, "n": 4, "stream": True}
    rng = random.Random(3)
    with crashing(model, tmp_path, "--set", "max_seqs=6", "--set",
                  "max_step_tokens=64") as server:
        orders = []
        for busy in (0, 1, 3):
            socks = [server.connect() for _ in range(busy)]
            for sock in socks:
                sock.sendall(http_request("POST", "/v1/completions", json.dumps(
                    {**other, "seed": rng.randrange(99)}).encode()))
            reply = server.post("/v1/chat/completions", body, headers=DURABLE)
            orders.append([choice["index"] for chunk in reply.data for choice in chunk["choices"]])
            for sock in socks:
                sock.close()
    assert orders[0] == orders[1] == orders[2]
    assert orders[0][:8] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_durable_stream_does_not_fail_when_the_server_ends(model, tmp_path):
    """The connection breaks, as in a crash; the next process goes on after the last number."""
    body = {**response_body(300), "stream": True}
    with crashing(model, tmp_path, "--drain-s", "0.1") as server:
        expected = server.post("/v1/responses", body).events
        sock = server.connect()
        sock.sendall(http_request("POST", "/v1/responses", json.dumps(body).encode(),
                                  x_request_id="mine"))
        data = read_until(sock, b"id: 9\n")
        server.stop(sig=signal.SIGTERM)
        data += read_all(sock)
    assert b"response.failed" not in data and b"shutting_down" not in data
    assert not data.endswith(b"\r\n0\r\n\r\n")  # the client sees that something is missing
    seen = [e for e in parse_events(data.partition(b"\r\n\r\n")[2].decode()) if e[1]]
    with crashing(model, tmp_path) as server:
        assert wait_until(lambda: server.get("/v1/requests/mine").status == 200)
        rest = server.get("/v1/requests/mine", headers={**EVENTS, "last-event-id": "8"}).events
    assert [e[1] for e in rest] == [e[1] for e in expected[8:]]
    assert len(seen) < len(expected)


def test_a_stored_response_is_not_refused_when_the_server_ends(model, tmp_path):
    """503 would say that nothing was done, but the next process does it."""
    with crashing(model, tmp_path, "--drain-s", "0.1") as server:
        sock = server.connect()
        sock.sendall(http_request("POST", "/v1/responses", json.dumps(response_body(300)).encode(),
                                  x_request_id="mine"))
        assert wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 1)
        server.stop(sig=signal.SIGTERM)
        assert read_all(sock) == b""
    with crashing(model, tmp_path) as server:
        assert wait_until(lambda: server.get("/v1/requests/mine").json.get("done"), 20)


def test_a_response_has_not_failed_because_the_server_ends(model, tmp_path):
    """A client that reads or cancels it in the last moments of the process must not take it for
    ended. The moments last as long as another client does not read what it asked for."""
    seen = []
    with crashing(model, tmp_path, "--drain-s", "0.1") as server:
        form = b"".join((b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n',
                         b'--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n',
                         bytes(32 << 20), b"\r\n--b--\r\n"))
        file = server.request("POST", "/v1/files", form,
                              headers={"content-type": "multipart/form-data; boundary=b"})
        slow = server.connect()
        slow.sendall(http_request("GET", f"/v1/files/{file.json['id']}/content"))
        read_until(slow, b"\r\n\r\n")
        made = server.post("/v1/responses", response_body(2000, background=True)).json["id"]
        server.process.send_signal(signal.SIGTERM)
        while server.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                seen.append(server.get(f"/v1/responses/{made}"))
                states = [r.json.get("status") for r in seen if r.status == 200]
                if "in_progress" in states and states[-1] == "queued":  # left for the next one
                    seen.append(server.post(f"/v1/responses/{made}/cancel", {}))
            time.sleep(0.01)
        slow.close()
    assert {r.json["status"] for r in seen if r.status == 200} == {"queued", "in_progress"}
    assert {r.error["code"] for r in seen if r.status != 200} == {"not_resumed"}
    with crashing(model, tmp_path) as server:
        assert server.get(f"/v1/responses/{made}").json["status"] in ("queued", "in_progress")


def test_a_response_that_has_ended_stays_so_after_a_crash(model, tmp_path):
    """Its end is on disk before a client is told of it."""
    for _ in range(3):
        with crashing(model, tmp_path, runner=("--runner", "sim:200")) as server:
            made = [server.plain("POST", "/v1/responses", response_body(n, background=True)).json
                    for n in range(2, 40)]
            found, ended = {}, set()
            while len(ended) < len(made) // 2:
                for one in made:
                    path = f"/v1/responses/{one['id']}"
                    found[path] = server.plain("GET", path).json
                    if found[path]["status"] in ENDED:
                        ended.add(path)
        with crashing(model, tmp_path) as server:
            for path in ended:
                assert server.get(path).json == found[path]


def test_a_conversation_waits_for_a_response_that_is_generated_again(model, tmp_path):
    with crashing(model, tmp_path) as server:
        talk = server.post("/v1/conversations", {}).json["id"]
        body = response_body(200, conversation=talk, background=True)
        made = server.post("/v1/responses", body).json["id"]
    with crashing(model, tmp_path) as server:
        reply = server.post("/v1/responses", response_body(4, conversation=talk))
        assert reply.status == 409 and reply.error["code"] == "conversation_locked"
        reply = server.post("/v1/responses", response_body(4, previous_response_id=made))
        assert reply.status == 409 and reply.error["param"] == "previous_response_id"
        wait_ended(server, made)
        assert server.post("/v1/responses", response_body(4, conversation=talk)).status == 200
        assert wait_until(lambda: len(server.plain(
            "GET", f"/v1/conversations/{talk}/items").json["data"]) == 4)


def test_a_deleted_message_batch_leaves_no_file(model, tmp_path):
    body = {"requests": [{"custom_id": "a", "params": {
        "model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}}]}
    with crashing(model, tmp_path) as server:
        made = server.post("/v1/messages/batches", body).json["id"]
        path = f"/v1/messages/batches/{made}"
        assert wait_until(lambda: server.get(path).json["processing_status"] == "ended")
        assert server.request("DELETE", path).status == 200
        assert server.get("/v1/files").json["data"] == []
