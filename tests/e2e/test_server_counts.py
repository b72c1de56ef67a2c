"""Goal:   every number that the server reports is exact: /metrics, the log and the x-ratelimit
        headers after a known series of requests, the bytes of one connection, and what a refusal
        counts. Every limit of a request lets the last value through and refuses the next.
Method: `jitney serve` with a simulated runner; the difference of two readings is compared with what
        was sent and received."""

import json
import re
import socket

import pytest

from cli_lib import GOLDEN
from server_lib import FAST, Server, http_request, read_until, tiny_model, wait_until

KEYS = """one name=first tenant=a rpm=5000 tpm=100000
two tenant=b
boss admin
"""
ROUTE = re.compile(r'jitney:http_requests_total{route="([^"]*)",status="(\d+)"} (\S+)')


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


@pytest.fixture(scope="module", name="server")
def server_fixture(model, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEYS)
    with Server(model, *FAST, "--served-model-name", "tiny", "--api-key-file", keys, "--n-max", "3",
                "--body-max", "64K", "--text-max", "4K", "--memory-max", "16M",
                "--keep-s", "0") as server:
        yield server


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def page_of(server):
    return server.plain("GET", "/metrics", headers=bearer("boss")).body.decode()


def numbers_of(server):
    """Sums over labels, and each route with its status; only of what is not moving by itself."""
    page, sums = page_of(server), {}
    for name, value in re.findall(r"^([\w:]+)(?:{.*})? (\S+)$", page, re.M):
        sums[name] = sums.get(name, 0.0) + float(value)
    return sums | {(route, int(status)): float(n) for route, status, n in ROUTE.findall(page)}


def difference(server, before, *names):
    after = numbers_of(server)
    return [after.get(name, 0) - before.get(name, 0) for name in names]


def complete(server, key="one", **fields):
    body = {"model": "tiny", "prompt": [5] * 10, "max_tokens": 4, "ignore_eos": True, "seed": 1,
            **fields}
    return server.plain("POST", "/v1/completions", body, headers=bearer(key))


def has_ended(server, before, count):
    name = "vllm:request_success_total"
    return wait_until(lambda: difference(server, before, name) == [count])


def test_metrics_are_the_sums_of_what_was_asked_and_answered(server):
    """Prompts of 10, 10, 20 + 30 and 7 tokens; answers of 4, 2 x 5, 2 x 3 and none."""
    before = numbers_of(server)
    replies = [complete(server), complete(server, n=2, max_tokens=5),
               complete(server, prompt=[[6] * 20, [7] * 30], max_tokens=3),
               complete(server, prompt=[8] * 7, max_tokens=0, echo=True, logprobs=1)]
    assert [reply.status for reply in replies] == [200] * 4, replies[-1].body
    usages = [reply.json["usage"] for reply in replies]
    assert [u["prompt_tokens"] for u in usages] == [10, 10, 50, 7]
    assert [u["completion_tokens"] for u in usages] == [4, 10, 6, 0]
    assert [u["total_tokens"] for u in usages] == [14, 20, 56, 7]
    assert has_ended(server, before, 4)
    for name, amount in {
            "vllm:prompt_tokens_total": 77, "vllm:generation_tokens_total": 20,
            "vllm:request_prompt_tokens_sum": 77, "vllm:request_prompt_tokens_count": 4,
            "vllm:request_generation_tokens_sum": 20, "vllm:request_generation_tokens_count": 4,
            "vllm:request_max_num_generation_tokens_sum": 4 + 5 + 3 + 0,
            "vllm:request_params_max_tokens_sum": 4 + 5 + 3,
            "vllm:request_params_max_tokens_count": 3,  # 0 is not a limit that was asked for
            "vllm:request_params_n_sum": 1 + 2 + 1 + 1, "vllm:request_params_n_count": 4,
            "vllm:e2e_request_latency_seconds_count": 4,
            "vllm:request_queue_time_seconds_count": 4,
            "vllm:time_to_first_token_seconds_count": 3,
            "vllm:request_time_per_output_token_seconds_count": 3,
            "jitney:requests_submitted_total": 5, "jitney:requests_refused_total": 0,
            "jitney:answers_refused_total": 0, "jitney:work_refused_total": 0,
            "jitney:http_faults_total": 0, "jitney:http_slow_total": 0,
            ("/v1/completions", 200): 4}.items():
        assert difference(server, before, name) == [amount], name
    found = numbers_of(server)
    assert found["jitney:memory_max_bytes"] == 16 << 20
    for name in ("jitney:answers_under_way", "jitney:answers_bytes", "jitney:kept_answers",
                 "jitney:kept_answers_bytes", "jitney:embeddings_bytes", "jitney:work_items",
                 "jitney:work_bytes", "jitney:http_bodies_bytes", "jitney:http_queued_bytes",
                 "jitney:kv_blocks_held"):
        assert found[name] == 0, name
    assert found["jitney:http_exchanges"] == found["jitney:http_connections"] == 1  # this one


def test_a_log_line_has_the_numbers_of_its_answer(server):
    reply = complete(server, n=2, max_tokens=3, prompt=[9] * 33)
    again = complete(server, n=2, max_tokens=3, prompt=[9] * 33)
    for answer, cached in ((reply, 0), (again, 32)):
        name = answer.headers["x-request-id"]

        def lines():
            return [line for line in list(server.lines) if f"id={name} " in line]
        assert wait_until(lines)
        for word in ("route=/v1/completions", "model=tiny", "key=first", "status=200",
                     "finish=length", "prompt_tokens=33", f"cached_tokens={cached}",
                     "completion_tokens=6"):
            assert f" {word} " in lines()[0] + " ", (word, lines())


def limits_of(server):
    reply = server.plain("GET", "/v1/models", headers=bearer("one"))
    return [int(reply.headers[f"x-ratelimit-{kind}-{what}"]) for what in ("requests", "tokens")
            for kind in ("limit", "remaining")]


def test_each_request_takes_one_and_its_tokens_from_the_limits_of_its_key(server):
    """What was refused before it began takes nothing; what was refused later, one request."""
    before, first = numbers_of(server), limits_of(server)
    assert first[0] == 5000 and first[2] == 100000
    for fields, status, requests, tokens in (
            ({}, 200, 1, 14), ({"n": 3, "max_tokens": 2}, 200, 1, 16), ({"n": 4}, 400, 0, 0),
            ({"prompt": [10**6]}, 400, 1, 0), ({"prompt": [5] * 9000}, 400, 1, 0),
            ({"model": "other"}, 404, 0, 0), ({"max_tokens": "x"}, 400, 0, 0),
            ({"stream": True}, 200, 1, 14)):
        left = limits_of(server)
        assert complete(server, **fields).status == status
        wanted = [left[1] - requests, left[3] - tokens]
        assert wait_until(lambda: limits_of(server)[1::2] == wanted), (fields, limits_of(server))
    assert difference(server, before, ("/v1/completions", 200), ("/v1/completions", 400),
                      ("/v1/completions", 404)) == [3, 4, 1]


def test_the_bytes_and_writes_of_a_connection_are_counted(server):
    """Of three requests for the metrics the second and third count the first and second."""
    request = http_request("GET", "/metrics", **bearer("boss"))
    readings, sizes = [], []
    with server.connect() as sock:
        for _ in range(3):
            sock.sendall(request)
            data = read_until(sock, b"\r\n\r\n")
            head, _, body = data.partition(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head)[1])
            while len(body) < length:
                body += sock.recv(65536)
            sizes.append(len(head) + 4 + length)
            readings.append({name: float(value) for name, value in re.findall(
                r"^(jitney:http_\w+)(?:{.*})? (\S+)$", body.decode(), re.M)})
    for i in (1, 2):
        def grown(name):
            return readings[i][f"jitney:http_{name}"] - readings[i - 1][f"jitney:http_{name}"]
        assert grown("received_bytes_total") == len(request)
        assert grown("sent_bytes_total") == sizes[i - 1]
        assert grown("writes_total") == 1
        assert grown("connections_accepted_total") == 0
        assert grown("request_seconds_count") == 1
    before = numbers_of(server)
    for _ in range(3):
        server.connect().close()
    assert difference(server, before, "jitney:http_connections_accepted_total") == [4]


# --- polls ---

def poll(server, name, query):
    return server.plain("GET", f"/v1/requests/{name}?{query}", headers=bearer("two")).json


def test_polls_number_events_without_gaps_and_take_512_at_a_time(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    with Server(model, *FAST, "--served-model-name", "tiny", "--api-key-file", keys) as server:
        body = {"model": "tiny", "prompt": [5], "max_tokens": 700, "ignore_eos": True}
        reply = server.plain("POST", "/v1/completions", body,
                             headers={**bearer("two"), "prefer": "respond-async"})
        name = reply.json["id"]
        assert reply.status == 202 and reply.headers["location"] == f"/v1/requests/{name}"
        assert wait_until(lambda: poll(server, name, "after=100000")["status"] == "completed")
        whole, after = [], 0
        while True:
            found = poll(server, name, f"after={after}")
            assert found["next"] == after + len(found["events"])
            whole += found["events"]
            after = found["next"]
            if found["done"]:
                break
            assert len(found["events"]) == 512 and found["status"] == "completed"
        assert len(whole) > 512 and len(whole) == after
        assert poll(server, name, "after=5")["events"][:3] == whole[5:8]
        last = poll(server, name, f"after={after}&wait_ms=60000")  # nothing to wait for
        assert (last["events"], last["next"], last["done"]) == ([], after, True)
        beyond = poll(server, name, "after=4294967295")
        assert beyond["events"] == [] and beyond["done"]
        assert server.plain("GET", f"/v1/requests/{name}", headers=bearer("one")).status == 404


# --- embeddings ---

def test_embeddings_are_counted_by_their_end_and_tokens(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one tpm=5000 rpm=100\nboss admin\n")
    with Server(GOLDEN / "bert", "--api-key-file", keys) as server:
        def embed(**headers):
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            return server.plain("POST", "/v1/embeddings", {"input": ["a text", "a longer text"]},
                                headers={**bearer("one"), **headers})

        def ends():
            return {reason: int(n) for reason, n in re.findall(
                r'request_success_total{.*finished_reason="(\w+)"} (\d+)', page_of(server)) if n != "0"}
        tokens = embed().json["usage"]["prompt_tokens"]
        assert tokens > 4 and ends() == {"stop": 1}
        assert limits_of(server)[1::2] == [99, 5000 - tokens]
        reply = embed(x_jitney_deadline_ms="0.001")
        assert (reply.status, reply.error["code"]) == (504, "deadline_exceeded")
        assert ends() == {"stop": 1, "abort": 1}
        assert limits_of(server)[1::2] == [98, 5000 - tokens]  # nothing was computed
        found = numbers_of(server)
        assert found["vllm:prompt_tokens_total"] == found["vllm:request_prompt_tokens_sum"] == tokens
        assert found["vllm:e2e_request_latency_seconds_count"] == 2
        assert found["jitney:embeddings_bytes"] == 0


# --- the last value that is accepted, and the next ---

def text_of(bytes_in_all):
    """A body of so many bytes that asks for one token of a short prompt."""
    body = {"model": "tiny", "prompt": [5], "max_tokens": 1, "padding": ""}
    body["padding"] = "p" * (bytes_in_all - len(json.dumps(body)))
    return json.dumps(body).encode()


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_a_body_may_be_as_long_as_body_max(server, is_chunked):
    for size, status in (((64 << 10) - 1, 200), (64 << 10, 200), ((64 << 10) + 1, 413)):
        body = text_of(size)
        assert len(body) == size
        coding = {"transfer_encoding": "chunked"} if is_chunked else {"content_length": size}
        head = http_request("POST", "/v1/completions", **bearer("one")).split(b"\r\ncontent-")[0]
        head += "".join(f"\r\n{name.replace('_', '-')}: {value}" for name, value in
                        {**coding, "content_type": "application/json"}.items()).encode()
        data = b"%x\r\n%s\r\n0\r\n\r\n" % (size, body) if is_chunked else body
        with server.connect() as sock:
            sock.sendall(head + b"\r\n\r\n" + data)
            assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 %d" % status), size


@pytest.mark.parametrize("fields, status", [
    ({"n": 3}, 200), ({"n": 4}, 400), ({"prompt": [5] * 8191, "max_tokens": 1}, 200),
    ({"prompt": [5] * 8191, "max_tokens": 2}, 200), ({"prompt": [5] * 8192}, 400),
    ({"prompt": [0]}, 200), ({"prompt": [-1]}, 400), ({"logprobs": 5}, 200),
    ({"logprobs": 6}, 400), ({"temperature": 2}, 200), ({"temperature": 2.01}, 400),
    ({"top_p": 1}, 200), ({"top_p": 1.01}, 400), ({"prompt": [[5]] * 3, "n": 3}, 200)])
def test_a_value_at_its_limit_is_accepted_and_the_next_is_not(server, fields, status):
    assert complete(server, **{"max_tokens": 1, **fields}).status == status


@pytest.mark.parametrize("prompt, wanted, given", [
    (8190, None, 2), (8190, 3, 2), (8191, None, 1), (8191, 2, 1), (8191, 1, 1), (8180, 5, 5)])
def test_an_answer_ends_with_the_context(server, prompt, wanted, given):
    limit = {"max_tokens": wanted} if wanted else {}
    body = {"model": "tiny", "prompt": [5] * prompt, "ignore_eos": True, "seed": 1, **limit}
    reply = server.plain("POST", "/v1/completions", body, headers=bearer("two"))
    assert reply.json["usage"]["completion_tokens"] == given
    assert reply.json["usage"]["total_tokens"] == prompt + given <= 8192
    assert reply.json["choices"][0]["finish_reason"] == "length"


def test_the_first_token_after_the_vocabulary_is_refused(server):
    reply = complete(server, prompt=[10**6], max_tokens=1)
    last = int(re.search(r"has 0 to (\d+)", reply.error["message"])[1])
    assert complete(server, prompt=[last], max_tokens=1).status == 200
    assert complete(server, prompt=[last + 1], max_tokens=1).status == 400


@pytest.mark.parametrize("name, value, status", [
    ("x-jitney-priority", "1000", 200), ("x-jitney-priority", "1001", 400),
    ("x-jitney-priority", "-1000", 200), ("x-jitney-priority", "-1001", 400),
    ("x-jitney-ttft-ms", "86400000", 200), ("x-jitney-ttft-ms", "86400001", 400),
    ("x-jitney-tpot-ms", "0", 200), ("x-jitney-tpot-ms", "-1", 400),
    ("x-jitney-deadline-ms", "86400000", 200), ("x-jitney-deadline-ms", "86400000.5", 400),
    ("x-jitney-smooth-ms", "86400001", 400)])
def test_a_header_at_its_limit_is_accepted_and_the_next_is_not(server, name, value, status):
    body = {"model": "tiny", "prompt": [5], "max_tokens": 1}
    reply = server.plain("POST", "/v1/completions", body, headers={**bearer("one"), name: value})
    assert reply.status == status, reply.body


# --- limits of a key ---

def test_the_requests_of_a_minute_are_allowed_and_the_next_is_not(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one rpm=4\ntwo tenant=t rpm=9\nthree tenant=t\n@t rpm=5\n")
    with Server(model, *FAST, "--served-model-name", "tiny", "--api-key-file", keys) as server:
        def ask(key):
            return complete(server, key, max_tokens=1)
        replies = [ask("one") for _ in range(5)]
        assert [reply.status for reply in replies] == [200] * 4 + [429]
        assert "requests per minute: 4 of 4 are" in replies[-1].error["message"]
        lefts = [int(reply.headers["x-ratelimit-remaining-requests"]) for reply in replies]
        assert lefts == [3, 2, 1, 0, 0]
        wait_ms = int(replies[-1].headers["retry-after-ms"])
        assert 1 <= wait_ms <= 60000
        assert [ask(key).status for key in ("two", "three", "two", "three", "two")] == [200] * 5
        assert [ask("two").status, ask("three").status] == [429, 429]  # of the tenant together


def test_the_tokens_of_a_minute_are_allowed_and_the_next_is_not(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one tpm=50\ntwo\n")
    with Server(model, *FAST, "--served-model-name", "tiny", "--api-key-file", keys) as server:
        reply = complete(server, prompt=[5] * 20, max_tokens=9)
        assert reply.json["usage"]["total_tokens"] == 29
        assert complete(server, prompt=[5] * 20, max_tokens=2).status == 429
        reply = complete(server, prompt=[5] * 20, max_tokens=1)  # 50 in all
        assert (reply.status, reply.json["usage"]["total_tokens"]) == (200, 21)
        assert complete(server, prompt=[5], max_tokens=1).status == 429


def test_the_concurrent_requests_of_a_key_are_allowed_and_the_next_is_not(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one concurrent=3\ntwo\n")
    body = json.dumps({"model": "tiny", "prompt": [5], "max_tokens": 4000, "ignore_eos": True,
                       "stream": True}).encode()
    with Server(model, "--runner", "sim:20000", "--served-model-name", "tiny", "--api-key-file",
                keys) as server:
        socks = []
        for _ in range(3):
            socks.append(server.connect())
            socks[-1].sendall(http_request("POST", "/v1/completions", body, **bearer("one")))
            assert read_until(socks[-1], b"\r\n\r\n").startswith(b"HTTP/1.1 200")
        reply = complete(server, max_tokens=1)
        assert reply.status == 429 and "concurrent requests: 3 of 3 are" in reply.error["message"]
        assert complete(server, "two", max_tokens=1).status == 200
        socks.pop().shutdown(socket.SHUT_RDWR)
        assert wait_until(lambda: complete(server, max_tokens=1).status == 200)
        for sock in socks:
            sock.close()
