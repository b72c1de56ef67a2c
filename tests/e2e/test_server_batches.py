"""Goal:   a file that was acknowledged is stored, and a batch answers every line of its file once:
        in input order, with the errors in a file of their own, also after kill -9, also while it is
        cancelled or expires; a key sees what is its own.
Method: OpenAI's package against `jitney serve` with a simulated runner and a folder of its own;
        kills in the middle of batches; the same batch undisturbed as the reference."""

import json
import signal
import sqlite3
import time

import pytest

from server_lib import FAST, Server, has_model, tiny_model, wait_until

openai = pytest.importorskip("openai", reason="the package openai is not installed")

from batch_lib import (chat_line, client_of, create, jsonl, read_lines, serve, texts_of, upload,
                       wait)  # noqa: E402

PACED = ("--runner", "sim:3000")
KEYS = "sesame name=alice\nother name=bob\n"


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


@pytest.fixture(scope="module", name="server")
def server_fixture(model, tmp_path_factory):
    with serve(model, tmp_path_factory.mktemp("batches"), "--file-max", "4M") as server:
        yield server


@pytest.fixture(name="client")
def client_fixture(server):
    with client_of(server) as client:
        yield client


# --- files ---

def test_a_file_comes_back_as_it_was_sent(client):
    data = bytes(range(256)) * 12000  # 3 MB: several slices of the store and of the response
    made = upload(client, data, name='odd "name".bin', purpose="user_data")
    assert (made.bytes, made.filename, made.purpose) == (len(data), 'odd "name".bin', "user_data")
    assert made.id.startswith("file-") and len(made.id) == 29
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == data
    assert client.files.delete(made.id).deleted
    for ask in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            ask(made.id)


def test_an_empty_file_is_a_file(client):
    made = upload(client, b"", purpose="user_data")
    assert made.bytes == 0 and client.files.content(made.id).read() == b""


def test_files_are_listed_in_pages(client):
    made = [upload(client, b"x", name=f"{i}", purpose="evals").id for i in range(5)]
    found = client.files.list(purpose="evals", limit=2)
    assert [f.id for f in found.data] == made[:2:-1] and found.has_more
    assert [f.id for f in client.files.list(purpose="evals", limit=2)] == made[::-1]
    assert [f.id for f in client.files.list(purpose="evals", limit=2, order="asc")] == made
    assert [f.id for f in client.files.list(purpose="vision")] == []
    with pytest.raises(openai.NotFoundError, match="'after' must be the id of one that exists"):
        client.files.list(after="file-none")
    with pytest.raises(openai.NotFoundError, match="file-none"):
        client.files.content("file-none")


def test_a_file_can_expire(client):
    made = upload(client, b"x", purpose="user_data",
                  expires_after={"anchor": "created_at", "seconds": 3600})
    assert made.expires_at == made.created_at + 3600


def test_uploads_that_are_refused(server, client):
    for more in (1, 20 << 20):
        with pytest.raises(openai.APIStatusError, match="--file-max") as caught:
            upload(client, b"x" * ((4 << 20) + more), purpose="user_data")
        assert (caught.value.status_code, caught.value.code) == (413, "file_too_large")
    with pytest.raises(openai.BadRequestError, match="purpose"):
        upload(client, b"x", purpose="nothing")
    with pytest.raises(openai.BadRequestError, match="two fields"):
        upload(client, b"x", extra_body={"expires_after": '{"anchor":"created_at","seconds":3600}'})
    for kind, body in (("application/json", b"{}"), ("multipart/form-data; boundary=b", b"--c")):
        assert server.plain("POST", "/v1/files", body, {"content-type": kind}).status == 400


def test_without_a_folder_files_and_batches_are_refused(model):
    with Server(model, *FAST, "--served-model-name", "tiny") as server:
        for method, path in (("GET", "/v1/files"), ("GET", "/v1/files/a"), ("GET", "/v1/batches"),
                             ("GET", "/v1/files/a/content"), ("DELETE", "/v1/files/a"),
                             ("GET", "/v1/messages/batches"), ("POST", "/v1/files"),
                             ("POST", "/v1/batches"), ("POST", "/v1/messages/batches"),
                             ("POST", "/v1/batches/a/cancel")):
            reply = server.plain(method, path, b"{}" if method == "POST" else None)
            assert reply.status == 400, path
            assert "--data-dir" in reply.error["message"], path


# --- batches ---

def test_every_line_is_answered_once_and_in_order(client):
    lines = [chat_line(i) for i in range(2000)]
    made = create(client, lines, metadata={"night": "one"})
    assert made.status == "validating" and made.metadata == {"night": "one"}
    done = wait(client, made)
    assert done.status == "completed" and done.model == "tiny"
    counts = done.request_counts
    assert (counts.total, counts.completed, counts.failed) == (2000, 2000, 0)
    assert done.error_file_id is None and done.errors is None
    found = read_lines(client, done.output_file_id)
    assert [line["custom_id"] for line in found] == [line["custom_id"] for line in lines]
    assert len({line["id"] for line in found}) == 2000
    assert all(line["response"]["status_code"] == 200 and line["error"] is None for line in found)
    used = [line["response"]["body"]["usage"] for line in found]
    assert done.usage.output_tokens == sum(u["completion_tokens"] for u in used) == 2000 * 6
    assert done.usage.input_tokens == sum(u["prompt_tokens"] for u in used)
    assert len(set(texts_of(found).values())) > 1900  # every line has a seed of its own
    described = client.files.retrieve(done.output_file_id)
    assert described.purpose == "batch_output" and described.filename.endswith("_output.jsonl")


def test_a_line_with_a_seed_is_answered_as_an_interactive_request(server, client):
    line = chat_line(1, seed=7, temperature=0.8)
    found = read_lines(client, wait(client, create(client, [line])).output_file_id)
    alone = server.post("/v1/chat/completions", line["body"]).json
    assert found[0]["response"]["body"]["choices"] == alone["choices"]


def test_failed_lines_are_in_the_error_file(client):
    lines = [chat_line(0), chat_line(1, max_tokens=-1), chat_line(2), chat_line(3, top_p=7)]
    done = wait(client, create(client, lines))
    assert done.status == "completed"
    assert (done.request_counts.completed, done.request_counts.failed) == (2, 2)
    assert set(texts_of(read_lines(client, done.output_file_id))) == {"line-0", "line-2"}
    bad = read_lines(client, done.error_file_id)
    assert [line["custom_id"] for line in bad] == ["line-1", "line-3"]
    assert [line["response"]["status_code"] for line in bad] == [400, 400]
    assert "max_tokens" in bad[0]["response"]["body"]["error"]["message"]


def test_a_model_that_is_not_served_fails_the_lines(client):
    done = wait(client, create(client, [chat_line(i, model="large") for i in range(3)]))
    assert done.status == "completed" and done.output_file_id is None
    bad = read_lines(client, done.error_file_id)
    assert [line["response"]["status_code"] for line in bad] == [404] * 3
    assert bad[0]["response"]["body"]["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("endpoint, body", [
    ("/v1/completions", {"prompt": "Hello", "max_tokens": 5}),
    ("/v1/responses", {"input": "Hello", "max_output_tokens": 5}),
])
def test_other_endpoints_have_their_own_answers(client, endpoint, body):
    lines = [{"custom_id": f"{i}", "method": "POST", "url": endpoint,
              "body": {"model": "tiny", **body}} for i in range(40)]
    done = wait(client, create(client, lines, endpoint=endpoint))
    found = [line["response"]["body"] for line in read_lines(client, done.output_file_id)]
    assert len(found) == 40
    kinds = {"/v1/completions": "text_completion", "/v1/responses": "response"}
    assert {answer["object"] for answer in found} == {kinds[endpoint]}


def test_lines_can_ask_for_embeddings(model, tmp_path):
    with serve(model, tmp_path, runner=()) as server, client_of(server) as client:
        body = {"model": "tiny", "input": "Hello", "encoding_format": "float"}
        lines = [{"custom_id": f"{i}", "method": "POST", "url": "/v1/embeddings", "body": body}
                 for i in range(200)]
        done = wait(client, create(client, lines, endpoint="/v1/embeddings"))
        assert done.request_counts.completed == 200
        found = read_lines(client, done.output_file_id)
        alone = server.post("/v1/embeddings", body).json["data"][0]["embedding"]
        assert all(line["response"]["body"]["data"][0]["embedding"] == alone for line in found)
        assert done.usage.input_tokens == 200 * found[0]["response"]["body"]["usage"]["prompt_tokens"]


def test_a_file_with_errors_fails_the_batch(client):
    lines = [chat_line(0), "{", chat_line(0), chat_line(4, url="/v1/completions"),
             chat_line(5, model="other"), {"custom_id": "x"}]
    done = wait(client, create(client, lines))
    assert done.status == "failed" and done.failed_at and done.request_counts.total == 0
    found = [(error.line, error.code) for error in done.errors.data]
    assert found == [(2, "invalid_json_line"), (3, "duplicate_custom_id"), (4, "url_mismatch"),
                     (5, "model_mismatch"), (6, "missing_required_parameter")]
    assert done.output_file_id is None and done.error_file_id is None
    empty = wait(client, create(client, b"\n\n"))
    assert empty.status == "failed" and empty.errors.data[0].code == "empty_file"


def test_a_file_may_begin_with_a_byte_order_mark(client):
    lines = b"\xef\xbb\xbf" + jsonl([chat_line(0), chat_line(1)])
    assert wait(client, create(client, lines)).request_counts.completed == 2


def test_long_lines_that_cross_slices_are_read_whole(client):
    lines = [json.dumps(chat_line(i))[:-1] + " " * size + "}"
             for i, size in enumerate((300_000, 10, 600_000, 262_144))]
    done = wait(client, create(client, lines))
    assert done.request_counts.total == 4
    assert (done.request_counts.completed, done.request_counts.failed) == (4, 0)


def test_the_output_can_expire(client):
    done = wait(client, create(client, [chat_line(0)], extra_body={
        "output_expires_after": {"anchor": "created_at", "seconds": 7200}}))
    made = client.files.retrieve(done.output_file_id)
    assert made.expires_at == made.created_at + 7200


def test_bodies_that_are_refused(client):
    made = upload(client, b"x", purpose="user_data")
    for fields in ({"input_file_id": "file-none"}, {"input_file_id": made.id},
                   {"endpoint": "/v1/audio"}, {"completion_window": "soon"}):
        with pytest.raises(openai.BadRequestError):
            client.batches.create(**{"input_file_id": made.id, "completion_window": "24h",
                                     "endpoint": "/v1/chat/completions", **fields})


def test_batches_are_listed_in_pages(client):
    made = [create(client, [chat_line(0)]).id for _ in range(5)]
    page = client.batches.list(limit=3)
    assert [b.id for b in page.data] == made[:1:-1] and page.has_more
    everything = [b.id for b in client.batches.list(limit=2)]
    assert everything[:5] == made[::-1] and len(everything) == len(set(everything))
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("batch_none")
    with pytest.raises(openai.NotFoundError):
        client.batches.cancel("batch_none")
    with pytest.raises(openai.NotFoundError, match="no such batch: .*batch_none.*'after'"):
        client.batches.list(after="batch_none")


def test_the_input_of_a_batch_under_way_cannot_be_deleted(model, tmp_path):
    with serve(model, tmp_path, runner=PACED) as server, client_of(server) as client:
        made = create(client, [chat_line(i, max_tokens=4000) for i in range(4)])
        wait(client, made, "in_progress")
        with pytest.raises(openai.ConflictError):
            client.files.delete(made.input_file_id)
        client.batches.cancel(made.id)
        wait(client, made)
        assert client.files.delete(made.input_file_id).deleted


# --- cancelling and expiry ---

def test_a_cancelled_batch_keeps_what_is_done(model, tmp_path):
    with serve(model, tmp_path, runner=PACED) as server, client_of(server) as client:
        lines = [chat_line(i, max_tokens=3 if i < 5 else 2000) for i in range(400)]
        made = create(client, lines)
        wait_until(lambda: client.batches.retrieve(made.id).request_counts.completed >= 5)
        assert client.batches.cancel(made.id).status in ("cancelling", "cancelled")
        done = wait(client, made)
        assert done.status == "cancelled" and done.cancelling_at and done.cancelled_at
        good = read_lines(client, done.output_file_id)
        rest = read_lines(client, done.error_file_id)
        assert len(good) == done.request_counts.completed >= 5
        assert len(good) + len(rest) == 400
        assert {line["error"]["code"] for line in rest} == {"batch_cancelled"}
        assert wait_until(server.is_quiet)
        with pytest.raises(openai.ConflictError):
            client.batches.cancel(made.id)


def test_a_batch_that_takes_too_long_expires(model, tmp_path):
    with serve(model, tmp_path, runner=PACED) as server, client_of(server) as client:
        lines = [chat_line(i, max_tokens=3 if i < 5 else 8000) for i in range(50)]
        done = wait(client, create(client, lines, window="1s"))
        assert done.status == "expired" and done.expired_at
        rest = read_lines(client, done.error_file_id)
        assert {line["error"]["code"] for line in rest} == {"batch_expired"}
        assert len(read_lines(client, done.output_file_id)) + len(rest) == 50
        assert wait_until(server.is_quiet)


# --- owners ---

def test_a_key_sees_its_own_files_and_batches(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    with serve(model, tmp_path, "--api-key-file", keys) as server:
        alice, bob = client_of(server, "sesame"), client_of(server, "other")
        made = create(alice, [chat_line(0)])
        done = wait(alice, made)
        for ask in (lambda: bob.batches.retrieve(made.id), lambda: bob.batches.cancel(made.id),
                    lambda: bob.files.retrieve(done.output_file_id),
                    lambda: bob.files.content(done.output_file_id),
                    lambda: bob.files.delete(made.input_file_id)):
            with pytest.raises(openai.NotFoundError):
                ask()
        assert not bob.batches.list().data and not bob.files.list().data
        with pytest.raises(openai.BadRequestError, match="no such file"):
            bob.batches.create(input_file_id=made.input_file_id, completion_window="24h",
                               endpoint="/v1/chat/completions")


def test_the_lines_of_a_removed_key_fail_by_name(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    flags = ("--api-key-file", keys)
    server = serve(model, tmp_path, *flags, runner=PACED)
    alice = client_of(server, "sesame")
    made = create(alice, [chat_line(i, max_tokens=4000) for i in range(3)])
    wait(alice, made, "in_progress")
    server.kill()
    keys.write_text("other name=bob\n")
    with serve(model, tmp_path, *flags) as server:
        assert wait_until(lambda: any("state=completed" in line for line in server.lines))
        keys.write_text(KEYS)
        alice = client_of(server, "sesame")
        def look():
            try:
                return alice.batches.retrieve(made.id)
            except openai.AuthenticationError:
                return None
        done = wait_until(look)
        assert done.request_counts.failed == 3
        bad = read_lines(alice, done.error_file_id)
        assert {line["response"]["body"]["error"]["code"] for line in bad} == {"key_removed"}


def test_owners_take_turns(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    with serve(model, tmp_path, "--api-key-file", keys, "--set", "max_seqs=4",
               runner=PACED) as server:
        alice, bob = client_of(server, "sesame"), client_of(server, "other")
        first = create(alice, [chat_line(i, max_tokens=30) for i in range(120)])
        wait(alice, first, "in_progress")
        done = wait(bob, create(bob, [chat_line(i, max_tokens=30) for i in range(8)]))
        assert done.status == "completed"
        assert alice.batches.retrieve(first.id).status == "in_progress"
        alice.batches.cancel(first.id)


def test_a_line_that_can_never_run_is_refused(model, tmp_path):
    with serve(model, tmp_path, "--set", "max_seqs=1") as server, client_of(server) as client:
        done = wait(client, create(client, [chat_line(0, n=2), chat_line(1, n=3)]))
        assert (done.request_counts.completed, done.request_counts.failed) == (1, 1)
        bad = read_lines(client, done.error_file_id)[0]["response"]["body"]["error"]
        assert bad["param"] == "n" and "at most 2" in bad["message"]


def test_an_owner_may_have_a_hundred_open_batches(model, tmp_path):
    with serve(model, tmp_path, "--drain-s", "0", runner=("--runner", "sim:50000")) as server, \
            client_of(server) as client:
        source = upload(client, [chat_line(0, max_tokens=4000)])
        def make():
            return client.batches.create(input_file_id=source.id, completion_window="24h",
                                         endpoint="/v1/chat/completions")
        for _ in range(100):
            make()
        with pytest.raises(openai.RateLimitError, match="100 batches"):
            make()


# --- ends of the process ---

def reference(model, folder, lines):
    """The answers of an undisturbed run."""
    with serve(model, folder) as server, client_of(server) as client:
        return texts_of(read_lines(client, wait(client, create(client, lines)).output_file_id))


def test_a_killed_server_goes_on_after_its_start(model, tmp_path):
    lines = [chat_line(i, max_tokens=10, seed=i, temperature=1.2) for i in range(600)]
    wanted = reference(model, tmp_path / "calm", lines)
    made = None
    for kill in range(4):
        server = serve(model, tmp_path, runner=("--runner", "sim:1000"))
        try:
            client = client_of(server)
            made = made or create(client, lines)
            if kill:  # some further lines are done, the first time it may be validating
                before = client.batches.retrieve(made.id).request_counts.completed
                wait_until(lambda: client.batches.retrieve(made.id).request_counts.completed
                           > before or client.batches.retrieve(made.id).status == "completed", 10)
        finally:
            server.kill()
    with serve(model, tmp_path) as server, client_of(server) as client:
        done = wait(client, made)
        assert done.status == "completed" and done.request_counts.completed == 600
        found = read_lines(client, done.output_file_id)
        assert [line["custom_id"] for line in found] == [line["custom_id"] for line in lines]
        assert texts_of(found) == wanted
        outputs = [f for f in client.files.list() if f.purpose == "batch_output"]
        assert len(outputs) == 1
    check_store(tmp_path)


def check_store(folder):
    with sqlite3.connect(f"file:{folder}/data/jitney.db?mode=ro", uri=True) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_drained_server_leaves_the_rest_for_the_next(model, tmp_path):
    lines = [chat_line(i, max_tokens=20 if i % 2 else 4000, seed=i) for i in range(300)]
    with serve(model, tmp_path, "--drain-s", "0.3", runner=PACED) as server:
        client = client_of(server)
        made = create(client, lines)
        wait_until(lambda: client.batches.retrieve(made.id).request_counts.completed > 3)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5
    with serve(model, tmp_path) as server, client_of(server) as client:
        before = client.batches.retrieve(made.id)
        assert before.request_counts.failed == 0
        done = wait(client, made)
        assert (done.request_counts.completed, done.request_counts.failed) == (300, 0)


def test_a_cancel_survives_a_kill(model, tmp_path):
    server = serve(model, tmp_path, runner=PACED)
    client = client_of(server)
    made = create(client, [chat_line(i, max_tokens=4000) for i in range(50)])
    wait(client, made, "in_progress")
    client.batches.cancel(made.id)
    server.process.send_signal(signal.SIGKILL)
    server.kill()
    with serve(model, tmp_path) as server, client_of(server) as client:
        done = wait(client, made)
        assert done.status == "cancelled"
        assert len(read_lines(client, done.error_file_id)) == 50


def test_interactive_requests_are_served_while_a_batch_runs(model, tmp_path):
    with serve(model, tmp_path, "--set", "max_seqs=4", runner=PACED) as server, \
            client_of(server) as client:
        made = create(client, [chat_line(i, max_tokens=400) for i in range(100)])
        wait(client, made, "in_progress")
        began = time.monotonic()
        assert server.chat("Now", max_tokens=2).status == 200
        assert time.monotonic() - began < 1
        found = server.metrics()
        assert found["jitney:batches_open"] == 1
        assert found["jitney:batch_lines_running"] > 0
        client.batches.cancel(made.id)
        wait(client, made)
        assert server.metrics()["jitney:batches_open"] == 0


def test_what_is_old_is_deleted(model, tmp_path):
    with serve(model, tmp_path) as server, client_of(server) as client:
        kept = wait(client, create(client, [chat_line(0)]))
        assert len(client.files.list().data) == 2
    with serve(model, tmp_path, "--data-keep", "0") as server, client_of(server) as client:
        time.sleep(1.1)  # times are stored in whole seconds
        assert client.batches.retrieve(kept.id).status == "completed"
        assert len(client.files.list().data) == 2
    with serve(model, tmp_path, "--data-keep", "0.000001") as server, client_of(server) as client:
        assert wait_until(lambda: not client.files.list().data)
        assert wait_until(lambda: not client.batches.list().data)
        assert wait_until(lambda: any("event=retention deleted=" in line for line in server.lines))


# --- limits ---

def test_a_full_store_refuses_new_work_and_keeps_the_old(model, tmp_path):
    with serve(model, tmp_path, "--data-max", "2M") as server, client_of(server) as client:
        made = create(client, [chat_line(i) for i in range(20)])
        assert wait(client, made).status == "completed"
        with pytest.raises(openai.APIStatusError) as caught:
            upload(client, b"x" * (3 << 20), purpose="user_data")
        assert caught.value.status_code == 507
        assert server.chat("Still", max_tokens=2).status == 200
        assert len(read_lines(client, client.batches.retrieve(made.id).output_file_id)) == 20


def test_more_lines_than_a_batch_may_have_fail_it(client):
    line = json.dumps({"custom_id": "%d", "method": "POST", "url": "/v1/completions",
                       "body": {}})
    data = jsonl(line % i for i in range(50001))
    done = wait(client, create(client, data, endpoint="/v1/completions"))
    assert done.status == "failed"
    assert done.errors.data[0].code == "too_many_tasks"


@pytest.mark.skipif(not has_model("smollm2"), reason="the model smollm2 is not in the cache")
def test_a_real_model_answers_lines_as_it_answers_requests(tmp_path):
    lines = [chat_line(i, model="smollm2", max_tokens=4, temperature=0) for i in range(4)]
    with Server("smollm2", "--data-dir", tmp_path / "data", "--served-model-name",
                "smollm2") as server, client_of(server) as client:
        done = wait(client, create(client, lines), seconds=60)
        found = texts_of(read_lines(client, done.output_file_id))
        for line in lines:
            alone = server.post("/v1/chat/completions", line["body"]).json
            assert found[line["custom_id"]] == alone["choices"][0]["message"]["content"]
