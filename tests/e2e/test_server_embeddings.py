"""Goal:   embeddings are requests like the others: texts of a client that has left are not computed,
        keys take turns, a deadline ends them, and the encoder is the model where none is named.
Method: tiny models that compute, and a request of 2,048 texts that takes a second or more."""

import json
import socket
import time

import pytest

from cli_lib import GOLDEN
from server_lib import Server, http_request, read_until, tiny_model

TEXT = "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 4
LARGE = [TEXT] * 2048
PATHS = ("/v1/embeddings", "/api/embed")


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("one\ntwo\n")
    with Server(tiny_model(tmp_path_factory), "--served-model-name", "tiny", "--api-key-file",
                keys) as server:
        yield server


def auth(key):
    return {"authorization": f"Bearer {key}"}


def embed(server, texts, key="one", **headers):
    began = time.monotonic()
    reply = server.post("/v1/embeddings", {"input": texts, "encoding_format": "base64"},
                        headers={**auth(key), **headers})
    return reply, time.monotonic() - began


@pytest.fixture(scope="module", name="seconds")
def seconds_fixture(server):
    """How long the large request takes alone."""
    reply, seconds = embed(server, LARGE)
    assert reply.status == 200
    return seconds


def start(server, texts, key="one", path="/v1/embeddings"):
    sock = server.connect()
    body = json.dumps({"input": texts, "model": "tiny"}).encode()
    sock.sendall(http_request("POST", path, body, authorization=f"Bearer {key}"))
    return sock


def is_silent(sock):
    """Nothing was received yet."""
    sock.setblocking(False)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        sock.settimeout(20)


@pytest.mark.parametrize("path", PATHS)
def test_the_texts_of_a_client_that_has_left_are_not_computed(server, seconds, path):
    for _ in range(3):
        sock = start(server, LARGE, path=path)
        time.sleep(0.1)
        sock.close()
    reply, took = embed(server, [TEXT])  # the same key: it would wait for all three
    assert reply.status == 200
    assert took < 2.5 * seconds


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/embeddings", {"input": TEXT}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 4})])
def test_others_go_on_beside_many_texts(server, path, body):
    with start(server, LARGE, key="two") as sock:
        time.sleep(0.1)
        assert server.post(path, body, headers=auth("one")).status == 200
        assert is_silent(sock)
        assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_deadline_ends_embeddings(server):
    reply, _ = embed(server, LARGE, **{"x-jitney-deadline-ms": "30"})
    assert reply.status == 504 and reply.error["code"] == "deadline_exceeded"
    assert embed(server, [TEXT], **{"x-jitney-deadline-ms": "60000"})[0].status == 200
    assert embed(server, [TEXT], **{"x-jitney-deadline-ms": "soon"})[0].status == 400


def test_a_client_cannot_extend_the_deadline_of_the_server():
    """A microsecond has passed before the first text is computed."""
    with Server(GOLDEN / "bert", "--request-timeout-s", "0.000001") as server:
        for headers in ({}, {"x-jitney-deadline-ms": "60000"}):
            reply = server.plain("POST", "/v1/embeddings", {"input": [[5, 6]]}, headers)
            assert (reply.status, reply.error["code"]) == (504, "deadline_exceeded")


def test_the_encoder_is_the_default_and_says_its_own_limits(tmp_path_factory):
    models = [tiny_model(tmp_path_factory), GOLDEN / "bert"]
    with Server(models) as server:
        listed = {m["id"]: m for m in server.get("/v1/models").json["data"]}
        assert listed["bert"]["meta"]["tools"] is None
        longest = listed["bert"]["max_model_len"]
        body = {"input": [[5] * longest]}
        reply = server.post("/v1/embeddings", body)
        assert reply.status == 200 and reply.json["model"] == "bert"
        reply = server.post("/v1/embeddings", {"input": [[5] * (longest + 1)]})
        assert reply.status == 400 and f"is {longest} tokens" in reply.error["message"]
        reply = server.post("/v1/embeddings", {**body, "model": "tiny"})
        assert reply.status == 200 and reply.json["model"] == "tiny"
