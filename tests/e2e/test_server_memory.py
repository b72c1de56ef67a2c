"""Goal:   what one client sends neither delays nor costs others more than its share: long texts do
        not hold up chats, fields that nobody reads are not held, a tenant's answers are safe from
        those of others, and memory has a bound that is checked at the start.
Method: small floods against `jitney serve` with a simulated runner; latencies, /metrics and what
        can be fetched afterwards."""

import json
import select
import socket
import subprocess
import time

import pytest

from cli_lib import GOLDEN, JITNEY
from server_lib import (FAST, Server, http_request, read_all, read_until, tiny_model,
                        wait_until)

JUNK = "x" * (1 << 20)
NO_DRAIN = ("--drain-s", "3600")  # at its end nothing is under way: it need not wait for anything


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


def chat_of(**fields):
    return {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "seed": 1,
            **fields}


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def test_a_chat_does_not_wait_behind_long_texts(model):
    text = json.dumps({"content": "some words of a text " * 50000}).encode()  # 1 MB
    request = http_request("POST", "/tokenize", text, connection="close")
    with Server(model, *FAST, "--text-max", "2M") as server:
        clients = [server.connect(60) for _ in range(12)]
        for client in clients:
            client.sendall(request)
        select.select(clients, [], [], 60)  # all were parsed: parsing precedes tokenising
        assert server.chat().status == 200
        left = server.metrics()["jitney:work_items"]
        replies = [read_all(client) for client in clients]
        assert all(reply.startswith(b"HTTP/1.1 200") for reply in replies)
        assert left >= 5  # in the order of arrival it would be four: those that are running
        assert server.metrics()["jitney:work_bytes"] == 0


def test_too_many_texts_are_refused_and_those_of_lost_clients_are_dropped(model, tmp_path):
    """An eighth of 256 MiB is for texts; a tenant may have half of it if it is alone."""
    keys = tmp_path / "keys"
    keys.write_text("one tenant=a\ntwo tenant=b\n")
    body = json.dumps({"content": "some words of a text " * 150000}).encode()  # 3 MB
    request = http_request("POST", "/tokenize", body, authorization="Bearer one",
                           connection="close")
    with Server(model, *FAST, "--memory-max", "256M", "--text-max", "4M", "--api-key-file", keys,
                *NO_DRAIN) as server:
        clients = [server.connect(60) for _ in range(12)]
        for client in clients:
            client.sendall(request)
        reply = server.plain("POST", "/v1/chat/completions", chat_of(), headers=bearer("two"))
        assert reply.status == 200
        clients.pop(1).close()  # it waits for a thread
        replies = [read_all(client) for client in clients]
        refused = [reply for reply in replies if b" 429 " in reply[:20]]
        assert 0 < len(refused) < 12
        assert all(b"\nretry-after: 1" in reply for reply in refused)
        assert any(b"work_share_full" in reply for reply in refused)
        assert [reply[9:12] for reply in replies].count(b"200") == 11 - len(refused)

        def is_empty():
            text = server.plain("GET", "/metrics", headers=bearer("two")).body.decode()
            return "\njitney:work_bytes 0\n" in text and "\njitney:work_items 0\n" in text
        assert wait_until(is_empty, 15)


def test_a_text_over_the_limit_is_refused_before_it_is_tokenised(model):
    with Server(model, *FAST, "--text-max", "2K") as server:
        long = "a" * 3000
        messages = [{"role": "user", "content": long}]
        bodies = {"/tokenize": {"content": long}, "/apply-template": {"messages": messages},
                  "/v1/messages/count_tokens": {"model": server.model, "messages": messages}}
        for path, body in bodies.items():
            reply = server.plain("POST", path, body)
            assert reply.status == 413, path
            assert "3000" in reply.json["error"]["message"] or path != "/tokenize"
            assert "2048" in reply.json["error"]["message"]
        assert server.plain("POST", "/tokenize", {"messages": messages}).status == 413
        assert server.post("/tokenize", {"content": "a" * 2048}).status == 200
        ids = server.post("/tokenize", {"content": "a" * 1024}).json["tokens"]
        assert server.post("/detokenize", {"tokens": ids}).json["content"] == "a" * 1024
        reply = server.plain("POST", "/detokenize", {"tokens": ids * 3})
        assert (reply.status, reply.error["code"]) == (413, "text_too_long")
        assert f"{3 * len(ids)} tokens" in reply.error["message"] and "2048" in reply.error["message"]


def test_fields_that_nobody_reads_are_not_held(model):
    """Answers under way and kept ones hold what was read of their bodies."""
    with Server(model, "--runner", "sim:20000", "--memory-max", "128M") as server:
        later = {"prefer": "respond-async"}
        for _ in range(40):
            reply = server.plain("POST", "/v1/chat/completions", chat_of(junk=JUNK), headers=later)
            assert reply.status == 202, reply.body
        found = server.metrics()
        assert found["jitney:answers_under_way"] + found["jitney:kept_answers"] == 40
        assert found["jitney:answers_bytes"] < 40 * 100_000
        before = found["process_resident_memory_bytes"]
        for _ in range(40):
            server.plain("POST", "/v1/chat/completions", chat_of(junk=JUNK), headers=later)
        grown = server.metrics()["process_resident_memory_bytes"] - before
        assert grown < 20 << 20  # of 40 MiB that were sent


def test_one_tenants_answers_never_remove_anothers(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one tenant=a\ntwo tenant=b\n")
    with Server(model, *FAST, "--api-key-file", keys, "--keep-memory", "256K") as server:
        def ask(key):
            reply = server.plain("POST", "/v1/chat/completions", chat_of(stream=True),
                                 headers=bearer(key))
            assert reply.status == 200
            return reply.headers["x-request-id"]

        def find(key, name):
            return server.plain("GET", f"/v1/requests/{name}", headers=bearer(key)).status

        mine = ask("one")
        others = [ask("two") for _ in range(60)]
        assert find("one", mine) == 200
        assert find("two", others[-1]) == 200
        assert find("two", others[0]) == 404


def test_embeddings_have_a_budget():
    with Server(GOLDEN / "bert", "--memory-max", "16M", "--body-max", "1M") as server:
        done = server.post("/v1/embeddings", {"input": ["a"] * 8})
        assert done.status == 200
        found = server.metrics()
        assert found["jitney:embeddings_bytes"] == 0
        assert found["vllm:prompt_tokens_total"] == done.json["usage"]["prompt_tokens"] > 0
        assert found["vllm:e2e_request_latency_seconds_count"] == 1
        reply = server.plain("POST", "/v1/embeddings", {"input": ["a"] * 2048})
        assert (reply.status, reply.error["code"]) == (413, "memory_share_exceeded")
        assert str((16 << 20) // 8) in reply.error["message"]  # what there is
        assert "--memory-max" in reply.error["message"]
        assert "retry-after" not in reply.headers
        assert reply.headers["x-should-retry"] == "false"
        assert server.metrics()["jitney:embeddings_bytes"] == 0


@pytest.mark.parametrize("flags, words", [
    (("--memory-max", "63M"), ("--body-max is 8388608", "at least 67108864")),
    (("--memory-max", "64M", "--keep-memory", "17M"), ("17825792", "at most 16777216")),
])
def test_a_bound_that_is_too_small_is_refused_at_the_start(model, flags, words):
    done = subprocess.run([JITNEY, "serve", model, *FAST, "--port", "0", *flags],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 64
    for word in words:
        assert word in done.stderr


def test_a_second_key_divides_the_memory_of_answers(model, tmp_path):
    """Two MiB are half of what 16 MiB leave for answers. A request that is refused for its size
    gives back its place among the key's concurrent ones."""
    keys = tmp_path / "keys"
    keys.write_text("one concurrent=1\n")
    body = {"prompt": "x" * ((2 << 20) - 100), "max_tokens": 1}
    with Server(model, *FAST, "--memory-max", "16M", "--body-max", "2M", "--text-max", "2M",
                "--api-key-file", keys) as server:
        def ask():
            return server.plain("POST", "/v1/completions", body, headers=bearer("one"))
        assert ask().error["code"] == "context_length_exceeded"
        keys.write_text("one concurrent=1\ntwo\n")
        assert wait_until(lambda: any("the key file has changed" in line for line in server.lines))
        for _ in range(3):
            reply = ask()
            assert (reply.status, reply.error["code"]) == (413, "memory_share_exceeded")


def open_websocket(server, key):
    sock = server.connect()
    sock.sendall(http_request("GET", "/v1/stream", upgrade="websocket", connection="upgrade",
                              sec_websocket_version="13", authorization=f"Bearer {key}",
                              sec_websocket_key="AAAAAAAAAAAAAAAAAAAAAA=="))
    assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    return sock


def send_message(sock, body):
    """As one frame whose mask is zero."""
    text = json.dumps(body).encode()
    assert len(text) < 126
    sock.sendall(bytes([0x81, 0x80 + len(text)]) + bytes(4) + text)


def test_responses_that_are_not_read_refuse_further_requests_of_their_key(model, tmp_path):
    """A key's part is a quarter of 9.6 MiB. The ids of the text are 12 MB, of which the kernel takes
    a few."""
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    text = json.dumps({"content": "x y " * 860_000}).encode()
    with Server(model, *FAST, "--memory-max", "64M", "--body-max", "4M", "--text-max", "4M",
                "--api-key-file", keys) as server:
        socket_of_one, socket_of_two = open_websocket(server, "one"), open_websocket(server, "two")
        unread = server.connect()
        unread.sendall(http_request("POST", "/tokenize", text, authorization="Bearer one"))

        def ask(key):
            return server.plain("POST", "/v1/chat/completions", chat_of(), headers=bearer(key))
        assert wait_until(lambda: ask("one").status == 429)
        assert ask("one").error["code"] == "unread_responses"
        assert ask("two").status == 200
        send_message(socket_of_one, chat_of())
        assert b"unread_responses" in read_until(socket_of_one, b"[DONE]")
        send_message(socket_of_two, chat_of())
        assert b"unread_responses" not in read_until(socket_of_two, b"[DONE]")
        unread.close()
        assert wait_until(lambda: ask("one").status == 200)
        send_message(socket_of_one, chat_of())
        assert b"unread_responses" not in read_until(socket_of_one, b"[DONE]")
        for sock in (socket_of_one, socket_of_two):
            sock.close()


def test_no_heartbeats_are_queued_for_a_client_that_does_not_read(model):
    """While its response waits, the number of queued bytes stays as it is."""
    body = chat_of(max_tokens=4000, n=12, ignore_eos=True, logprobs=True, stream=True)
    with Server(model, *FAST, "--ping-s", "0.05") as server:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(server.address)
        sock.sendall(http_request("POST", "/v1/chat/completions", json.dumps(body).encode()))

        def is_still():
            before = server.metrics()["jitney:http_queued_bytes"]
            time.sleep(0.3)  # of six heartbeats
            return before > 0 and server.metrics()["jitney:http_queued_bytes"] == before
        assert wait_until(is_still)
        sock.close()
