"""Goal:   who may call the server, and how much one key may take, holds on every way in.
Method: the real program with a simulated runner; the same request by HTTP (whole, streamed, async,
        every dialect) and by WebSocket; Host headers as a web page or a proxy would send them."""

import asyncio
import json
import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from cli_lib import GOLDEN
from server_lib import (FAST, Server, http_request, parse_events, read_all, read_until, statuses,
                        tiny_model, wait_until)

websockets = pytest.importorskip("websockets", reason="the package websockets is not installed")

ROOT = Path(__file__).resolve().parents[2]
SLOW = ("--runner", "sim:5000")
POLICIES = ("chunked", "prefill-first", "orca", "static", "dynamic", "mlfq", "sjf", "priority",
            "deadline", "fair")


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


def start(model, *flags, **how):
    return Server(model, "--served-model-name", "tiny", *flags, **how)


def bearer(key, **headers):
    return {"authorization": f"Bearer {key}", **{n.replace("_", "-"): v for n, v in headers.items()}}


def chat(tokens, **fields):
    return {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": tokens, **fields}


def in_threads(calls):
    """The results of all calls, which run at the same time."""
    found = [None] * len(calls)

    def run(i):
        found[i] = calls[i]()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


# --- hosts ---

def test_a_server_on_all_addresses_without_keys_checks_the_host(model):
    with start(model, *FAST, "--host", "0.0.0.0", "--no-auth", "--allowed-host", "box.lan",
               listen=("--port", "0")) as server:
        def status(host, path="/v1/models"):
            return server.plain("GET", path, headers={"host": host}).status
        for host in ("evil.example", "evil.example:8080", "backend", "127.0.0.1.evil.example"):
            assert status(host) == 403 and status(host, "/openapi.json") == 403
        for host in ("localhost", "LOCALHOST.:80", "127.0.0.1:1", "[::1]", "10.1.2.3", "Box.lan:8"):
            assert status(host) == 200
        reply = server.plain("POST", "/v1/chat/completions", chat(1), {"host": "backend"})
        assert reply.status == 403 and reply.error["code"] == "host_not_allowed"
        for text in ('Host "backend"', "--allowed-host", "reverse proxy"):
            assert text in reply.error["message"]
        assert b"403" in server.raw(b"GET /v1/stream HTTP/1.1\r\nhost: evil.example\r\n"
                                    b"connection: close\r\n\r\n")


@pytest.mark.parametrize("env, words, is_served", [
    ({}, [], False),
    ({"JITNEY_NO_AUTH": "true"}, [], False),
    ({}, ["--no-auth"], False),
    ({"JITNEY_API_KEY_FILE": "/run/secrets/keys"}, [], True),
    ({"JITNEY_NO_AUTH": "true", "JITNEY_ALLOWED_HOST": "localhost"}, [], True),
    ({}, ["--api-key-file", "/run/secrets/keys"], True),
    ({}, ["--no-auth", "--allowed-host=box.lan"], True)])
def test_a_container_asks_for_keys_or_for_a_list_of_names(env, words, is_served, tmp_path):
    program = tmp_path / "jitney"
    program.write_text('#!/bin/sh\necho "jitney $*"\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JITNEY_MODEL": "/", **env}
    got = subprocess.run([ROOT / "deploy/container-start", *words], env=env, capture_output=True,
                         text=True, timeout=10, check=False)
    if is_served:
        assert got.returncode == 0 and got.stdout.startswith("jitney serve")
    else:
        assert got.returncode == 64 and got.stdout == ""
        assert "JITNEY_API_KEY_FILE" in got.stderr and "JITNEY_ALLOWED_HOST" in got.stderr


# --- every way to ask for text ---

async def ask_websocket(server, key, body):
    """The events, or the status of the refusal."""
    url = server.url.replace("http", "ws", 1) + "/v1/stream"
    async with websockets.connect(url, additional_headers=bearer(key)) as ws:
        await ws.send(json.dumps(body))
        events = []
        while True:
            message = await asyncio.wait_for(ws.recv(), 30)
            if message == "[DONE]":
                return events
            events.append(json.loads(message))
            if "error" in events[-1]:
                return events


def by_websocket(server, key, tokens, **fields):
    events = asyncio.run(ask_websocket(server, key, chat(
        tokens, stream=True, stream_options={"include_usage": True}, **fields)))
    usage = next((e["usage"] for e in events if e.get("usage")), None)
    return usage["total_tokens"] if usage else 0


def by_post(path, body, used):
    def ask(server, key, tokens, **fields):
        reply = server.plain("POST", path, body(tokens, **fields), bearer(key))
        assert reply.status in (200, 429), reply.body
        return used(reply) if reply.status == 200 else 0
    return ask


def total(reply):
    usage = reply.json["usage"]
    return usage.get("total_tokens") or usage["input_tokens"] + usage["output_tokens"]


def stream_total(reply):
    return next(json.loads(data)["usage"]["total_tokens"]
                for _, _, data in reversed(parse_events(reply.body.decode()))
                if data != "[DONE]" and json.loads(data).get("usage"))


def by_async(server, key, tokens, **fields):
    body = chat(tokens, stream=True, stream_options={"include_usage": True}, **fields)
    reply = server.plain("POST", "/v1/chat/completions", body, bearer(key, prefer="respond-async"))
    assert reply.status in (202, 429), reply.body
    if reply.status == 429:
        return 0

    def poll():
        got = server.plain("GET", reply.headers["location"] + "?wait_ms=500", headers=bearer(key))
        return got.json if got.json["done"] else None
    done = wait_until(poll, 30)
    events = [e["data"] for e in done["events"] if isinstance(e["data"], dict)]
    return next((e["usage"]["total_tokens"] for e in events if e.get("usage")), 0)


WAYS = {
    "chat": by_post("/v1/chat/completions", chat, total),
    "stream": by_post("/v1/chat/completions", lambda tokens, **fields: chat(
        tokens, stream=True, stream_options={"include_usage": True}, **fields), stream_total),
    "n": by_post("/v1/chat/completions", lambda tokens, **fields: chat(tokens, n=3, **fields),
                 total),
    "completions": by_post("/v1/completions", lambda tokens, **fields: {
        "model": "tiny", "prompt": ["one", "two"], "max_tokens": tokens, **fields}, total),
    "messages": by_post("/v1/messages", chat, total),
    "responses": by_post("/v1/responses", lambda tokens: {
        "model": "tiny", "input": "Hello", "max_output_tokens": tokens}, total),
    "ollama": by_post("/api/chat", lambda tokens: {
        "model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "stream": False,
        "options": {"num_predict": tokens}},
        lambda reply: reply.json["prompt_eval_count"] + reply.json["eval_count"]),
    "async": by_async,
    "websocket": by_websocket,
}


def test_forty_requests_at_once_stay_within_the_tokens_of_their_key(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("other\n" + "".join(f"{way} tpm=100\n" for way in WAYS) +
                    "mixed tenant=lab\nmixed2 tenant=lab\n@lab tpm=100\n")
    with start(model, "--runner", "sim:500", "--api-key-file", keys) as server:
        for way, ask in WAYS.items():
            used = in_threads([lambda ask=ask, way=way: ask(server, way, 191)] * 10)
            assert 0 < sum(used) <= 100, (way, used)
        ways = list(WAYS.values())
        used = in_threads([lambda i=i: ways[i % len(ways)](
            server, "mixed2" if i % 2 else "mixed", 191) for i in range(40)])
        assert 0 < sum(used) <= 100, used


def test_each_of_n_short_answers_is_reserved(model, tmp_path):
    """Each request needs less than a third of the limit, all its choices counted."""
    keys = tmp_path / "keys"
    keys.write_text("one tpm=300\ntwo\n")
    with start(model, "--runner", "sim:500", "--api-key-file", keys) as server:
        used = in_threads([lambda: WAYS["n"](server, "one", 20, ignore_eos=True)] * 10)
        assert 0 < sum(used) <= 300, used


LONG = "some words of a text " * 45000  # 945 KB


@pytest.mark.parametrize("path, fields", [
    ("/tokenize", {"content": LONG}), ("/detokenize", {"tokens": [5] * 90000}),
    ("/apply-template", {"messages": [{"role": "user", "content": LONG}]}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": LONG}]}),
    ("/v1/embeddings", {"model": "bert", "input": ["a text"] * 1000}),
    ("/v1/completions", {"prompt": "x", "max_tokens": 100, "stream": True})])
def test_a_client_that_leaves_gives_back_its_place_among_concurrent_ones(model, tmp_path, path,
                                                                         fields):
    keys = tmp_path / "keys"
    keys.write_text("one concurrent=1\ntwo\n")
    body = json.dumps({"model": "tiny", **fields}).encode()
    with Server([model, GOLDEN / "bert"], *SLOW, "--api-key-file", keys) as server:
        name = next(m["id"] for m in server.plain("GET", "/v1/models", headers=bearer("one"))
                    .json["data"] if m["id"] != "bert")
        body = body.replace(b'"tiny"', json.dumps(name).encode())

        def is_free():
            return server.plain("POST", "/tokenize", {"model": name, "content": "x"},
                                bearer("one")).status == 200

        def leaves_under_way():
            """False: the request was answered before it was seen to be counted."""
            with server.connect() as sock:
                sock.sendall(http_request("POST", path, body, **bearer("one")))
                while not select.select([sock], [], [], 0)[0]:
                    if not is_free():
                        return True
            return False
        for _ in range(20):
            if leaves_under_way():
                break
        assert wait_until(is_free, 60)


def test_headers_say_when_requests_and_tokens_are_free_again(model, tmp_path):
    """/tokenize counts as a request and uses no tokens, so the two differ."""
    keys = tmp_path / "keys"
    keys.write_text("one rpm=7 tpm=900\ntwo\n")

    def limits(reply):
        assert reply.status == 200, reply.body
        kinds = ("limit", "remaining", "reset")
        return {what: [reply.headers[f"x-ratelimit-{kind}-{what}"] for kind in kinds]
                for what in ("requests", "tokens")}
    with start(model, *FAST, "--api-key-file", keys) as server:
        reply = server.plain("POST", "/tokenize", {"model": "tiny", "content": "x"}, bearer("one"))
        found = limits(reply)
        assert found["tokens"] == ["900", "900", "0ms"]
        assert found["requests"][:2] == ["7", "6"]
        assert 1 <= int(found["requests"][2].removesuffix("ms")) <= 60000
        used = total(server.plain("POST", "/v1/chat/completions", chat(3), bearer("one")))
        found = limits(server.plain("GET", "/v1/models", headers=bearer("one")))
        assert found["requests"][:2] == ["7", "5"]
        assert found["tokens"][:2] == ["900", str(900 - used)]
        assert 1 <= int(found["tokens"][2].removesuffix("ms")) <= 60000


def test_what_was_reserved_and_not_used_is_free_at_the_end(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one tpm=300\ntwo\n")
    with start(model, *SLOW, "--api-key-file", keys) as server:
        def left():
            reply = server.plain("GET", "/v1/models", headers=bearer("one"))
            return int(reply.headers["x-ratelimit-remaining-tokens"])
        assert left() == 300
        sock = server.connect()  # a client that goes away
        body = json.dumps(chat(5000, stream=True)).encode()
        sock.sendall(http_request("POST", "/v1/chat/completions", body, **bearer("one")))
        assert wait_until(lambda: left() == 0)
        reply = server.plain("POST", "/v1/chat/completions", chat(1), bearer("one"))
        assert reply.status == 429 and int(reply.headers["retry-after-ms"]) > 0
        sock.close()
        assert wait_until(lambda: left() > 200), left()
        before = left()
        reply = server.post("/v1/chat/completions", chat(3), headers=bearer("one"))
        assert reply.status == 200 and left() == before - total(reply)
        before = left()
        reply = server.post("/v1/completions", {"model": "tiny", "prompt": [10**6]},
                            headers=bearer("one"))
        assert reply.status == 400 and left() == before  # refused when it was prepared


def test_a_prompt_above_the_limit_of_tokens_is_refused_with_the_numbers(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one tpm=50\ntwo\n")
    with start(model, *FAST, "--api-key-file", keys) as server:
        for path, body in (("/v1/completions", {"prompt": [5] * 50}),
                           ("/v1/completions", {"prompt": [[5] * 30, [6] * 30]})):
            reply = server.post(path, {"model": "tiny", "max_tokens": 5, **body},
                                headers=bearer("one"))
            assert reply.status == 400, reply.body
            assert reply.error["code"] == "tokens_per_minute_exceeded"
            assert "limit of 50 tokens per minute" in reply.error["message"]
            assert "retry-after" not in reply.headers
            assert reply.headers["x-should-retry"] == "false"
        body = {"model": "tiny", "prompt": [5] * 49, "max_tokens": 5, "ignore_eos": True}
        reply = server.post("/v1/completions", body, headers=bearer("one"))
        assert reply.json["usage"]["completion_tokens"] == 1
        assert reply.json["choices"][0]["finish_reason"] == "length"


def test_embeddings_stay_within_the_tokens_of_their_key(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one tpm=50\ntwo\n")
    with Server(GOLDEN / "bert", "--api-key-file", keys) as server:
        def status(texts, path="/v1/embeddings", key="one"):
            return server.post(path, {"model": "bert", "input": texts}, headers=bearer(key)).status
        found = in_threads([lambda: status([[5] * 10, [6] * 10])] * 10)
        assert sorted(found) == [200] * 2 + [429] * 8
        assert status([[5] * 30] * 2) == 400  # above the limit, now and later
        assert status("a text", "/api/embed") == 200  # ten tokens are left
        assert status([[5] * 20], key="two") == 200


def test_embeddings_that_are_not_computed_are_not_charged(tmp_path):
    """A deadline of a microsecond has passed before the first text is computed."""
    keys = tmp_path / "keys"
    keys.write_text("sk-one tpm=1000\n")
    with Server(GOLDEN / "bert", "--api-key-file", keys) as server:
        def left(reply):
            return int(reply.headers["x-ratelimit-remaining-tokens"])
        late = server.plain("POST", "/v1/embeddings", {"input": [[5] * 20, [6] * 30]},
                            headers=bearer("sk-one", x_jitney_deadline_ms="0.001"))
        assert (late.status, late.error["code"]) == (504, "deadline_exceeded")
        assert left(server.plain("GET", "/v1/models", headers=bearer("sk-one"))) == 1000
        done = server.plain("POST", "/v1/embeddings", {"input": [[5] * 20, [6] * 30]},
                            headers=bearer("sk-one"))
        assert done.json["usage"]["prompt_tokens"] == 50 and left(done) == 950


# --- priority ---

def test_a_key_cannot_raise_its_priority(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("plain\nhigh priority=5\n")
    with start(model, *SLOW, "--api-key-file", keys, "--policy", "priority", "--set",
               "max_seqs=1") as server:
        def finished(key, tokens, body=None, **headers):
            reply = server.plain("POST", "/v1/chat/completions", {**chat(tokens), **(body or {})},
                                 bearer(key, **headers))
            assert reply.status == 200, reply.body
            return time.monotonic()

        def is_running(count):
            text = server.plain("GET", "/metrics", headers=bearer("plain")).body.decode()
            return f'vllm:num_requests_running{{model_name="tiny"}} {count}' in text

        for headers in ({}, {"x_jitney_priority": "1"}):  # the policy displaces
            sock = server.connect()
            sock.sendall(http_request("POST", "/v1/chat/completions", json.dumps(chat(
                4000, stream=True)).encode(), **bearer("plain")))
            assert wait_until(lambda: is_running(1))
            begin = time.monotonic()
            assert finished("high", 2, **headers) < begin + 10  # the other one takes 20 seconds
            sock.close()
            assert wait_until(lambda: is_running(0))

        def ended():
            """How many tokens each had, in the order in which the server ended them."""
            return [int(line.partition(" completion_tokens=")[2].split()[0])
                    for line in list(server.lines)
                    if "event=request " in line and " status=200 " in line]
        assert wait_until(lambda: ended() == [2, 2])  # a line may be read after the answer
        first = threading.Thread(target=lambda: finished("plain", 60, {"ignore_eos": True}))
        first.start()
        assert wait_until(lambda: is_running(1))
        in_threads([
            lambda: finished("plain", 2, x_jitney_priority="1000"),
            lambda: finished("plain", 2, {"priority": -1000}),
            lambda: finished("high", 2, x_jitney_priority="0"),
            lambda: finished("high", 2, {"priority": 3}),
            lambda: asyncio.run(ask_websocket(server, "plain", chat(2, priority=-1000)))])
        first.join(60)
        assert wait_until(lambda: len(ended()) == 8), server.lines
        assert ended()[2] == 60


def test_a_key_cannot_have_tighter_targets_than_its_own(model, tmp_path):
    """Of two that wait the one with the earlier target runs first; a tenant's is raised to 60 s."""
    keys = tmp_path / "keys"
    keys.write_text("plain ttft=60000\nquick\n")
    with start(model, *SLOW, "--api-key-file", keys, "--policy", "deadline", "--set",
               "max_seqs=1") as server:
        ended = []

        def ask(key, tokens, target_ms):
            reply = server.plain("POST", "/v1/chat/completions",
                                 chat(tokens, ttft_target_ms=target_ms), bearer(key))
            assert reply.status == 200, reply.body
            ended.append(key)

        def has(count, state):
            text = server.plain("GET", "/metrics", headers=bearer("quick")).body.decode()
            return f'vllm:num_requests_{state}{{model_name="tiny"}} {count}' in text

        threads = []
        for key, tokens, target_ms, state in (("first", 200, 0, "running"),
                                              ("plain", 80, 10000, "waiting"),
                                              ("quick", 80, 30000, "waiting")):
            threads.append(threading.Thread(target=ask, args=(
                key.replace("first", "quick"), tokens, target_ms)))
            threads[-1].start()
            assert wait_until(lambda: has(max(1, len(threads) - 1), state))
        for thread in threads:
            thread.join(60)
        assert ended == ["quick", "quick", "plain"]


# --- the queue ---

def is_queued(server, key, **fields):
    """A request that goes on without its client: was it accepted?"""
    reply = server.plain("POST", "/v1/chat/completions", {**chat(4000), **fields},
                         bearer(key, prefer="respond-async"))
    assert reply.status == 202 or reply.error["code"] == "queue_share_full", reply.body
    return reply.status == 202


async def open_queued(server, key, **fields):
    """The same by a WebSocket, which stays open. A request that waits gets no message."""
    url = server.url.replace("http", "ws", 1) + "/v1/stream"
    ws = await websockets.connect(url, additional_headers=bearer(key), max_queue=None)
    await ws.send(json.dumps(chat(4000, **fields)))
    try:
        return ws, "queue_share_full" not in await asyncio.wait_for(ws.recv(), 1)
    except TimeoutError:
        return ws, True


def test_one_key_cannot_fill_the_queue_by_any_way(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a tenant=x\na2 tenant=x\nb\n")
    with start(model, "--runner", "sim:20000", "--api-key-file", keys, "--set", "max_seqs=4",
               "--set", "queue_max=20", "--drain-s", "0") as server:  # 24 places
        async def main():
            taken, socks = 0, []
            for i in range(12):  # of 2 choices each, in turns by HTTP and by WebSocket
                if i % 3:
                    taken += 2 * is_queued(server, "a2" if i % 2 else "a", n=2)
                    continue
                ws, is_taken = await open_queued(server, "a", n=2)
                taken += 2 * is_taken
                socks.append(ws)
            assert taken == 12, taken  # half: there is no other tenant yet
            assert sum(is_queued(server, "b") for _ in range(20)) == 8  # a third
            assert not is_queued(server, "a")
            for ws in socks:
                await ws.close()
        asyncio.run(main())
        reply = server.post("/v1/chat/completions", chat(5, n=13), headers=bearer("b"))
        assert reply.status == 400 and "at most 12 of one API key" in reply.error["message"]


def test_each_model_has_a_queue_of_its_own(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a\nb\n")
    with Server([model, model], "--served-model-name", "tiny", "--served-model-name", "other",
                "--runner", "sim:20000", "--api-key-file", keys, "--set", "max_seqs=2", "--set",
                "queue_max=6", "--drain-s", "0") as server:  # 8 places in each
        assert sum(is_queued(server, "a") for _ in range(6)) == 4
        assert sum(is_queued(server, "a", model="other") for _ in range(6)) == 4
        assert sum(is_queued(server, "b", model="other") for _ in range(4)) == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_the_share_of_the_queue_holds_under_every_policy(model, tmp_path, policy):
    keys = tmp_path / "keys"
    keys.write_text("a\nb\n")
    with start(model, "--runner", "sim:20000", "--api-key-file", keys, "--policy", policy, "--set",
               "max_seqs=2", "--set", "queue_max=10", "--drain-s", "0") as server:  # 12 places
        assert sum(is_queued(server, "a") for _ in range(8)) == 6
        assert sum(is_queued(server, "b") for _ in range(6)) == 4


# --- ends ---

def test_sigterm_lets_queued_requests_finish(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a\nb\nc\n")
    server = start(model, "--runner", "sim:8000", "--api-key-file", keys, "--set", "max_seqs=1")
    try:
        def stream(key, **fields):
            return lambda: server.plain("POST", "/v1/chat/completions", chat(
                20, stream=True, ignore_eos=True, **fields), bearer(key))
        calls = [stream("a"), stream("a", n=3), stream("b"), stream("b", n=2),
                 lambda: server.plain("POST", "/v1/completions", {
                     "model": "tiny", "prompt": ["x", "y"], "max_tokens": 20}, bearer("c")),
                 lambda: asyncio.run(ask_websocket(server, "c", chat(20)))]
        found = []
        asking = threading.Thread(target=lambda: found.extend(in_threads(calls)))
        asking.start()

        def waiting():
            text = server.plain("GET", "/metrics", headers=bearer("a")).body.decode()
            return any(line.startswith("vllm:num_requests_waiting{") and float(line.split()[1]) >= 9
                       for line in text.splitlines())
        assert wait_until(waiting)
        server.process.send_signal(signal.SIGTERM)
        asking.join(30)
        assert server.process.wait(10) == 0
    finally:
        server.kill()
    for reply in found[:4]:
        events = parse_events(reply.body.decode())
        assert reply.status == 200 and events[-1][2] == "[DONE]" and b'"error"' not in reply.body
    assert [reply.body.count(b'"finish_reason":"length"') for reply in found[:4]] == [1, 3, 1, 2]
    assert found[4].status == 200 and len(found[4].json["choices"]) == 2
    assert found[5][-1]["choices"][0]["finish_reason"]


# --- a key file that changes ---

def test_a_missing_key_file_is_logged_once_and_when_it_is_back(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a\n")
    with start(model, *FAST, "--api-key-file", keys) as server:
        def lines():
            return [line for line in server.lines if "event=keys" in line]
        keys.rename(tmp_path / "aside")
        assert wait_until(lambda: len(lines()) == 1)
        assert str(keys) in lines()[0] and "stay valid" in lines()[0]
        time.sleep(1.2)  # it is looked for every second
        assert len(lines()) == 1
        assert server.plain("GET", "/v1/models", headers=bearer("a")).status == 200
        (tmp_path / "aside").rename(keys)
        assert wait_until(lambda: len(lines()) == 2)
        assert "1 keys" in lines()[1]


def test_a_removed_key_closes_its_websockets_when_they_are_idle(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first\nsecond\n")

    async def main(server):
        url = server.url.replace("http", "ws", 1) + "/v1/stream"
        async with websockets.connect(url, additional_headers=bearer("first")) as idle, \
                websockets.connect(url, additional_headers=bearer("first")) as busy, \
                websockets.connect(url, additional_headers=bearer("second")) as other:
            await busy.send(json.dumps(chat(100, ignore_eos=True)))
            await busy.recv()
            keys.write_text("second\n")
            server.process.send_signal(signal.SIGHUP)
            with pytest.raises(websockets.ConnectionClosed):
                await asyncio.wait_for(idle.recv(), 10)
            messages = []
            with pytest.raises(websockets.ConnectionClosed):
                while True:
                    messages.append(await asyncio.wait_for(busy.recv(), 10))
            assert messages[-1] == "[DONE]"
            await other.send(json.dumps(chat(1)))
            assert "choices" in await asyncio.wait_for(other.recv(), 10)
            return idle.close_code, busy.close_code
    with start(model, *SLOW, "--api-key-file", keys) as server:
        assert asyncio.run(main(server)) == (1008, 1008)


def begin_body(server, path, body, key):
    """A connection on which the head of a request was accepted, and its body is arriving."""
    sock = server.connect()
    sock.sendall(http_request("POST", path, authorization=f"Bearer {key}", expect="100-continue",
                              connection="close").replace(
                                  b"content-length: 0", b"content-length: %d" % len(body)))
    assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
    sock.sendall(body[:-1])
    return sock


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/tokenize"])
def test_a_key_that_is_removed_while_a_body_arrives_is_refused(model, tmp_path, path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one\nsk-two\n")
    body = json.dumps(chat(1, input="x", content="x")).encode()
    with start(model, *FAST, "--api-key-file", keys) as server:
        socks = [begin_body(server, path, body, key) for key in ("sk-one", "sk-two")]
        keys.write_text("sk-two\n")
        assert wait_until(lambda: any("it has 1 keys" in line for line in server.lines))
        for sock in socks:
            sock.sendall(body[-1:])
        first, second = (read_all(sock) for sock in socks)
        assert statuses(first) == [401] and b"invalid_api_key" in first
        assert statuses(second)[0] != 401
        for sock in socks:
            sock.close()
        assert server.plain("POST", path, body, headers=bearer("sk-one")).status == 401


def test_rights_that_are_removed_while_a_body_arrives_are_gone(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one admin\nsk-two admin\n")
    body = json.dumps({"policy": "fair"}).encode()
    with start(model, *FAST, "--api-key-file", keys) as server:
        socks = [begin_body(server, "/v1/engine/policy", body, key)
                 for key in ("sk-one", "sk-two")]
        keys.write_text("sk-one\nsk-two admin\n")
        assert wait_until(lambda: any("the key file has changed" in line
                                      for line in server.lines), 60)
        for sock in socks:
            sock.sendall(body[-1:])
        first, second = (read_all(sock) for sock in socks)
        assert statuses(first) == [403] and b"not_admin" in first
        assert statuses(second) == [200]
        for sock in socks:
            sock.close()


def test_a_body_that_is_complete_after_sigterm_is_refused(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n")
    body = json.dumps(chat(1)).encode()
    with start(model, *FAST, "--api-key-file", keys) as server:
        sock = begin_body(server, "/v1/chat/completions", body, "sk-one")
        server.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: any("event=drain" in line for line in server.lines))
        sock.sendall(body[-1:])
        answer = read_all(sock)
        assert statuses(answer) == [503] and b"shutting_down" in answer
        sock.close()
