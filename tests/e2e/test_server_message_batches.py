"""Goal:   Anthropic's message batches: every request of the body is answered once, the results come
        as Anthropic's package reads them, and a batch is listed, cancelled and deleted.
Method: Anthropic's package against `jitney serve` with a simulated runner and a folder of its own."""

import json

import pytest

from server_lib import checking_hook, tiny_model, wait_until

anthropic = pytest.importorskip("anthropic", reason="the package anthropic is not installed")
pytest.importorskip("openai", reason="the package openai is not installed")

import httpx2  # noqa: E402 (what anthropic is built on)
from batch_lib import client_of, serve  # noqa: E402

PACED = ("--runner", "sim:3000")


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


@pytest.fixture(scope="module", name="server")
def server_fixture(model, tmp_path_factory):
    with serve(model, tmp_path_factory.mktemp("messages")) as server:
        yield server


def messages_of(server, key="any"):
    """Of Anthropic's client; every answer is held against the document."""
    http = httpx2.Client(event_hooks={"response": [checking_hook(server)]})
    client = anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, http_client=http)
    return client.messages.batches


@pytest.fixture(name="batches")
def batches_fixture(server):
    return messages_of(server)


def request(number, **fields):
    return {"custom_id": f"m-{number}",
            "params": {"model": "tiny", "max_tokens": 6,
                       "messages": [{"role": "user", "content": f"Hello {number}"}], **fields}}


def wait(batches, made, seconds=30):
    def look():
        found = batches.retrieve(made.id)
        return found if found.processing_status == "ended" else None
    found = wait_until(look, seconds, pause=0.02)
    assert found, batches.retrieve(made.id)
    return found


def test_every_request_is_answered_in_order(batches):
    made = batches.create(requests=[request(i) for i in range(700)])
    assert made.id.startswith("msgbatch_") and made.type == "message_batch"
    assert made.processing_status == "in_progress" and made.results_url is None
    assert made.request_counts.processing == 700
    done = wait(batches, made)
    assert done.request_counts.succeeded == 700 and done.ended_at
    assert done.results_url.endswith(f"/v1/messages/batches/{made.id}/results")
    found = list(batches.results(made.id))
    assert [line.custom_id for line in found] == [f"m-{i}" for i in range(700)]
    assert {line.result.type for line in found} == {"succeeded"}
    assert all(line.result.message.usage.output_tokens == 6 for line in found)


def test_a_request_that_is_refused_is_errored(batches):
    made = batches.create(requests=[request(0), request(1, max_tokens=0), request(2, model="big")])
    done = wait(batches, made)
    counts = done.request_counts
    assert (counts.succeeded, counts.errored) == (1, 2)
    found = {line.custom_id: line.result for line in batches.results(made.id)}
    assert found["m-0"].type == "succeeded"
    assert found["m-1"].error.error.type == "invalid_request_error"
    assert found["m-2"].error.error.type == "not_found_error"


def test_bodies_that_are_refused_leave_nothing(server, batches):
    before = len(batches.list(limit=1000).data)
    many = [request(i, system="x" * 5000) for i in range(200)]  # several slices
    for requests in ([], [request(0), request(0)], [{"custom_id": "a b", "params": {}}],
                     [{"custom_id": "a"}], many + [request(0)]):
        with pytest.raises(anthropic.BadRequestError):
            batches.create(requests=requests)
    for body in (b"", b"{", b"[]", b"{}"):
        assert server.plain("POST", "/v1/messages/batches", body).status == 400
    assert wait_until(lambda: len(batches.list(limit=1000).data) == before)


def test_results_exist_when_the_batch_has_ended(model, tmp_path):
    with serve(model, tmp_path, runner=PACED) as server:
        batches = messages_of(server)
        made = batches.create(requests=[request(i, max_tokens=4000) for i in range(60)])
        early = server.plain("GET", f"/v1/messages/batches/{made.id}/results")
        assert early.status == 404 and "not ended" in early.error["message"]
        with pytest.raises(anthropic.BadRequestError, match="cancel"):
            batches.delete(made.id)
        asked = batches.cancel(made.id)
        assert asked.processing_status in ("canceling", "ended") and asked.cancel_initiated_at
        done = wait(batches, made)
        assert done.request_counts.canceled == 60
        assert {line.result.type for line in batches.results(made.id)} == {"canceled"}
        assert batches.delete(made.id).type == "message_batch_deleted"
        with pytest.raises(anthropic.NotFoundError):
            batches.retrieve(made.id)


def test_batches_are_listed_in_both_directions(server, batches):
    made = [batches.create(requests=[request(0)]).id for _ in range(5)]
    page = batches.list(limit=2)
    assert [b.id for b in page.data] == made[:2:-1] and page.has_more
    assert [b.id for b in batches.list(limit=2)][:5] == made[::-1]
    assert [b.id for b in batches.list(limit=2, before_id=made[1]).data] == [made[3], made[2]]
    with client_of(server) as client:  # the other API does not see them
        assert not {b.id for b in client.batches.list()} & set(made)
    assert server.plain("GET", f"/v1/batches/{made[0]}").status == 404
    assert server.plain("GET", "/v1/messages/batches?limit=0").status == 400


def test_a_killed_server_answers_the_rest(model, tmp_path):
    wanted = [request(i, max_tokens=12, temperature=1) for i in range(300)]
    server = serve(model, tmp_path, runner=PACED)
    made = messages_of(server).create(requests=wanted)
    wait_until(lambda: server.metrics()["jitney:batch_lines_completed_total"] > 5)
    server.kill()
    with serve(model, tmp_path) as server:
        batches = messages_of(server)
        assert wait(batches, made).request_counts.succeeded == 300
        found = list(batches.results(made.id))
        assert [line.custom_id for line in found] == [r["custom_id"] for r in wanted]


def test_a_batch_that_was_not_acknowledged_is_gone_after_a_kill(model, tmp_path):
    body = json.dumps({"requests": [request(i, system="x" * 3000) for i in range(5000)]}).encode()
    server = serve(model, tmp_path)
    with server.connect() as sock:
        sock.sendall(b"POST /v1/messages/batches HTTP/1.1\r\nhost: localhost\r\n"
                     b"content-type: application/json\r\n"
                     b"content-length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: server.metrics()["jitney:store_operations_total"] > 8, pause=0)
        server.kill()
        sock.settimeout(1)
        try:
            acknowledged = b" 200 " in sock.recv(4096)
        except OSError:
            acknowledged = False
    with serve(model, tmp_path) as server:
        batches = messages_of(server)
        assert wait_until(lambda: bool(batches.list().data) == acknowledged)
