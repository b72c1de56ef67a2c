"""Goal:   a disk that is full, read-only or gone costs new durable work alone: it is refused with 507
        and a sentence, and nothing is acknowledged that is not stored. Other requests are served as
        before, durable work that runs goes on, and its end is stored when there is room again,
        without a restart.
Method: `jitney serve` with a simulated runner, its folder on a tmpfs of a few MiB that the test
        fills, remounts and empties (root only); and --data-max, which everybody may test."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from server_lib import FAST, Server, tiny_model, wait_until

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kill"))
import database  # noqa: E402

PACED = ("--runner", "sim:5000")  # 200 tokens a second
DURABLE = {"x-jitney-keep": "durable"}


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


def mount(folder, *options):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder],
                          capture_output=True, check=False).returncode == 0


@pytest.fixture(name="disk")
def disk_fixture(tmp_path):
    """A folder on a file system of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or not mount(folder, "size=8m"):
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", folder], check=False, capture_output=True)


def serve(model, folder, *flags, runner=FAST):
    return Server(model, *runner, "--served-model-name", "tiny", "--data-dir", folder, *flags)


@contextlib.contextmanager
def crashing(model, folder, *flags, runner=FAST):
    """A server that ends by kill -9."""
    server = serve(model, folder, *flags, runner=runner)
    try:
        yield server
    finally:
        server.kill()


def response(server, tokens=8, **fields):
    return server.post("/v1/responses", {"model": "tiny", "input": "Hello", "seed": 3,
                                         "max_output_tokens": tokens, "store": True, **fields})


def upload(server, data, purpose="batch"):
    body = (b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\n' + purpose.encode() +
            b'\r\n--b\r\ncontent-disposition: form-data; name="file"; filename="x"\r\n\r\n' +
            data + b"\r\n--b--\r\n")
    return server.plain("POST", "/v1/files", body,
                        {"content-type": "multipart/form-data; boundary=b"})


def fill(folder):
    """No byte is left."""
    with open(folder / "filler", "ab", buffering=0) as file:
        piece = 1 << 20
        while piece:
            try:
                file.write(b"x" * piece)
            except OSError:
                piece //= 2


def check_refusals(server):
    """New durable work of every kind gets 507; everything else is served."""
    replies = {
        "response": response(server),
        "background": response(server, background=True),
        "stream": response(server, stream=True),
        "chat": server.chat(store=True, max_tokens=4),
        "header": server.chat(max_tokens=4, headers=DURABLE),
        "stream by header": server.chat(max_tokens=4, stream=True, headers=DURABLE),
        "conversation": server.post("/v1/conversations", {"items": [
            {"type": "message", "role": "user", "content": "x" * 50_000}]}),
        "file": upload(server, b"x" * 100_000),
        "message batch": server.post("/v1/messages/batches", {"requests": [
            {"custom_id": "a", "params": {"model": "tiny", "max_tokens": 4, "messages": [
                {"role": "user", "content": "Hi"}]}}]}),
    }
    for what, reply in replies.items():
        assert reply.status == 507, (what, reply.status, reply.body[:300])
        message = reply.json["error"]["message"]
        assert "cannot be stored" in message or "full" in message, (what, message)
    assert server.chat(max_tokens=4).status == 200
    assert server.chat(max_tokens=4, stream=True).status == 200
    assert server.get("/readyz").status == 200
    return replies


def works_again(server):
    return wait_until(lambda: response(server).status == 200, 10, 0.1)


def is_done(server, made):
    """Its answer is there, cut off by its limit of tokens."""
    return server.get(f"/v1/responses/{made}").json["status"] == "incomplete"


def check_stored(model, folder, names):
    """After kill -9 these answers are there, complete."""
    assert database.check(folder) == []
    with serve(model, folder) as server:
        for name in names:
            found = wait_until(lambda name=name: is_done(server, name), 10)
            assert found, name


def test_a_full_disk_refuses_new_durable_work_alone(model, disk):
    data = disk / "data"
    with crashing(model, data, runner=PACED) as server:
        before = response(server).json["id"]
        running = response(server, 200, background=True).json["id"]  # one second
        fill(disk)
        check_refusals(server)
        assert is_done(server, before)
        assert wait_until(lambda: is_done(server, running), 10)
        assert stored_state(data, running) == 0  # its end waits in memory until there is room
        (disk / "filler").unlink()
        assert works_again(server)
        after = response(server).json["id"]
        assert wait_until(lambda: stored_state(data, running) == 1, 10)
    check_stored(model, data, [before, running, after])


def test_an_answer_that_waits_for_the_disk_stays_complete(model, disk):
    """Also when the time is over for which ended answers are kept, and after a DELETE that failed."""
    with serve(model, disk / "data", "--keep-s", "0", runner=PACED) as server:
        ended, running = [response(server, tokens, background=True).json["id"]
                          for tokens in (40, 4000)]
        fill(disk)
        assert wait_until(lambda: is_done(server, ended), 10)
        for path in (f"/v1/responses/{ended}", f"/v1/requests/{ended}"):
            assert server.request("DELETE", path).status == 507
            assert is_done(server, ended)
        assert server.request("DELETE", f"/v1/responses/{running}").status == 507
        assert server.get(f"/v1/responses/{running}").json["status"] == "cancelled"
        (disk / "filler").unlink()
        assert works_again(server)
        assert is_done(server, ended)
        assert wait_until(lambda: stored_state(disk / "data", running) == 3, 10)
        assert server.get(f"/v1/responses/{running}").json["status"] == "cancelled"
        for made in (ended, running):
            assert server.request("DELETE", f"/v1/responses/{made}").status == 200
            assert server.get(f"/v1/responses/{made}").status == 404


def stored_state(folder, response_id):
    with database.opened(folder) as db:
        row = db.execute("SELECT state FROM answers WHERE id = ?",
                         (response_id.removeprefix("resp_"),)).fetchone()
        return row and row[0]


def test_a_killed_server_starts_on_a_full_disk(model, disk):
    data = disk / "data"
    with crashing(model, data, runner=PACED) as server:
        running = response(server, 100, background=True).json["id"]
        fill(disk)
    with serve(model, data) as server:
        assert wait_until(lambda: is_done(server, running), 10)
        check_refusals(server)
        (disk / "filler").unlink()
        assert works_again(server)
        assert wait_until(lambda: stored_state(data, running) == 1, 10)


def test_a_full_disk_is_noticed_in_the_log_and_the_metrics(model, disk):
    with serve(model, disk / "data") as server:
        response(server)
        fill(disk)
        assert wait_until(lambda: response(server).status == 507, 10)
        assert wait_until(lambda: any("event=storage" in line and "level=error" in line
                                      for line in server.lines))
        (disk / "filler").unlink()
        assert works_again(server)
        assert wait_until(lambda: any("can be written again" in line for line in server.lines))


def test_what_is_deleted_makes_room_on_a_full_disk(model, disk):
    """DELETE works while nothing else can be written, or a full disk would stay full."""
    with serve(model, disk / "data") as server:
        names = []
        while (reply := upload(server, os.urandom(700_000))).status == 200:
            names.append(reply.json["id"])
        assert reply.status == 507 and len(names) >= 2
        fill(disk)
        (disk / "filler").write_bytes(b"x" * max(0, (disk / "filler").stat().st_size - 300_000))
        for name in names:
            assert server.request("DELETE", f"/v1/files/{name}").status == 200
        assert works_again(server)


def test_a_read_only_folder_is_reported_at_the_start(model, disk):
    """(A folder cannot become read-only while files in it are open for writing.)"""
    data = disk / "data"
    with serve(model, data) as server:
        before = response(server).json["id"]
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(AssertionError) as e:
        serve(model, data)
    assert "data" in str(e.value) and "ead-only" in str(e.value), e.value
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    check_stored(model, data, [before])


def test_a_folder_that_was_removed_acknowledges_nothing(model, tmp_path):
    data = tmp_path / "data"
    with serve(model, data) as server:
        assert response(server).status == 200
        shutil.rmtree(data)
        check_refusals(server)
        reply = response(server)
        assert reply.status == 507
        assert server.chat(max_tokens=4).status == 200


def test_a_database_file_that_was_removed_acknowledges_nothing(model, tmp_path):
    data = tmp_path / "data"
    with serve(model, data) as server:
        assert response(server).status == 200
        for path in data.glob("jitney.db*"):
            path.unlink()
        check_refusals(server)
    with serve(model, data) as server:
        assert response(server).status == 200


def test_data_max_refuses_new_work_and_what_is_deleted_makes_room(model, tmp_path):
    data = tmp_path / "data"
    with crashing(model, data, "--data-max", "3M") as server:
        before = response(server).json["id"]
        names = []
        while (reply := upload(server, os.urandom(400_000))).status == 200:
            names.append(reply.json["id"])
            assert len(names) < 20
        assert reply.status == 507, reply.body
        # Small work takes what is left.
        while response(server, input="x" * 3000).status == 200:
            pass
        assert wait_until(lambda: response(server, input="x" * 3000).status == 507, 5)
        assert server.chat(max_tokens=4).status == 200
        assert is_done(server, before)
        for name in names:
            assert server.request("DELETE", f"/v1/files/{name}").status == 200
        assert works_again(server)
        size = sum(path.stat().st_size for path in data.glob("jitney.db*"))
        assert size < 12 << 20, size
    check_stored(model, data, [before])


def test_an_upload_that_does_not_fit_leaves_nothing(model, tmp_path):
    with serve(model, tmp_path / "data", "--data-max", "3M") as server:
        reply = upload(server, os.urandom(6_000_000))
        assert reply.status == 507, (reply.status, reply.body[:200])
        assert server.get("/v1/files").json["data"] == []
        assert works_again(server)
        assert upload(server, os.urandom(500_000)).status == 200


def test_a_batch_waits_while_the_disk_is_full(model, disk):
    lines = [json.dumps({"custom_id": f"l{n}", "method": "POST", "url": "/v1/chat/completions",
                         "body": {"model": "tiny", "max_tokens": 60, "seed": n,
                                  "messages": [{"role": "user", "content": "Hi"}]}})
             for n in range(40)]
    data = disk / "data"
    with serve(model, data, runner=PACED) as server:
        file = upload(server, "\n".join(lines).encode()).json["id"]
        made = server.post("/v1/batches", {"input_file_id": file, "completion_window": "24h",
                                           "endpoint": "/v1/chat/completions"}).json["id"]
        fill(disk)
        assert wait_until(lambda: response(server).status == 507, 10)
        (disk / "filler").unlink()
        found = wait_until(lambda: (lambda b: b["status"] == "completed" and b)(
            server.get(f"/v1/batches/{made}").json), 30)
        assert found and found["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
        output = server.plain("GET", f"/v1/files/{found['output_file_id']}/content").body
        ids = [json.loads(line)["custom_id"] for line in output.splitlines()]
        assert sorted(ids) == sorted(f"l{n}" for n in range(40))
