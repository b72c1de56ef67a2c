"""Goal:   durable work survives a runner that hangs, that fails all steps or that computes no numbers:
        every line of a batch is answered once, every stream goes on without a gap, and all of it is
        the same as on a server whose runner is well. An answer that failed stays failed.
Method: `jitney serve` with a simulated runner at fault in a step that the seed draws, restarted on its
        folder until the work is done; the same work on a healthy server as the reference."""

import json
import random

import pytest

from batch_lib import FINAL, chat_line, client_of, create, read_lines, texts_of
from server_lib import Server, tiny_model, wait_until

LINES, STEP_US = 30, 500
EVENTS = {"accept": "text/event-stream"}
STREAM = {"model": "tiny", "input": "Tell me", "max_output_tokens": 60, "seed": 4, "store": True}


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


def serve(model, folder, fault=""):
    return Server(model, "--runner", f"sim:{STEP_US}{fault}", "--served-model-name", "tiny",
                  "--watchdog-s", "0.3", "--data-dir", folder / "data")


def begin(server):
    """A batch, a response in the background and the names of both."""
    lines = [chat_line(n, seed=n, max_tokens=20) for n in range(LINES)]
    batch = create(client_of(server), lines)
    made = server.plain("POST", "/v1/responses", {**STREAM, "background": True}).json["id"]
    return batch.id, made


def wait_end(server, batch, made):
    """True: both have ended. False: the process has."""
    def look():
        if server.process.poll() is not None:
            return "gone"
        try:
            status = server.plain("GET", f"/v1/batches/{batch}", timeout=5).json["status"]
            answer = server.plain("GET", f"/v1/responses/{made}", timeout=5).json["status"]
        except OSError:
            return None
        return status in FINAL and answer not in ("queued", "in_progress") and "ended"
    found = wait_until(look, 60)
    assert found, server.lines[-5:]
    return found == "ended"


def read(server, batch, made):
    """(texts of the lines, the response's text, its events) when both have ended."""
    client = client_of(server)
    found = client.batches.retrieve(batch)
    assert found.status == "completed", found
    assert (found.request_counts.completed, found.request_counts.failed) == (LINES, 0)
    lines = read_lines(client, found.output_file_id)
    assert [line["custom_id"] for line in lines] == [f"line-{n}" for n in range(LINES)]
    events = server.get(f"/v1/responses/{made}?stream=true", headers=EVENTS).events
    assert [int(e[1]) for e in events] == list(range(1, len(events) + 1))
    deltas = [json.loads(e[2]).get("delta", "") for e in events]
    return texts_of(lines), "".join(deltas), len(events)


@pytest.fixture(scope="module", name="expected")
def expected_fixture(model, tmp_path_factory):
    with serve(model, tmp_path_factory.mktemp("healthy")) as server:
        names = begin(server)
        assert wait_end(server, *names)
        return read(server, *names)


@pytest.mark.parametrize("fault", ["hang-after", "fail-after"])
def test_work_goes_on_after_the_engine_is_lost(model, tmp_path, expected, fault):
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    rng, names = random.Random(seed), None
    for _ in range(2):
        server = serve(model, tmp_path, f",{fault}={rng.randrange(3, 60)}")
        try:
            names = names or begin(server)
            assert not wait_end(server, *names)
            assert server.process.wait(20) == 70, server.lines
        finally:
            server.kill()
    with serve(model, tmp_path) as server:
        assert wait_end(server, *names)
        assert read(server, *names) == expected


def test_a_line_whose_numbers_are_none_is_computed_again(model, tmp_path, expected):
    """Its second try is not at fault; a response has one try, ends with an error and stays so."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    at = random.Random(seed).randrange(3, 40)
    with serve(model, tmp_path, f",nan-at={at}") as server:
        batch, made = begin(server)
        assert wait_end(server, batch, made)
        answer = server.get(f"/v1/responses/{made}").json
        lines = read_lines(client_of(server), client_of(server).batches.retrieve(
            batch).output_file_id)
        assert texts_of(lines) == expected[0]
        assert answer["status"] in ("incomplete", "completed", "failed")
    with serve(model, tmp_path) as server:
        assert server.get(f"/v1/responses/{made}").json == answer


def test_a_response_whose_numbers_are_none_fails_for_good(model, tmp_path):
    with serve(model, tmp_path, ",nan-at=20") as server:
        made = server.plain("POST", "/v1/responses", {**STREAM, "background": True}).json["id"]
        path = f"/v1/responses/{made}"
        assert wait_until(lambda: server.get(path).json["status"] == "failed")
        seen = server.get(f"{path}?stream=true", headers=EVENTS).events
        assert seen[-1][0] == "response.failed"
    with serve(model, tmp_path) as server:
        assert server.get(path).json["status"] == "failed"
        assert server.get(f"{path}?stream=true", headers=EVENTS).events == seen
