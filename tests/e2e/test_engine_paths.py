"""Goal:   /v1/engine/steps tells what each step did, by sequence, completely and to administrators
        only, to several watchers at a time, also to slow ones and to those that come back.
Method: the real program with a simulated runner; what the events say is added up and compared with
        the answers, the knobs and the metrics."""

import http.client
import json
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from server_lib import Server, http_request, parse_events, read_until, tiny_model, wait_until

httpx = pytest.importorskip("httpx", reason="the package httpx is not installed")

STEP = ("--runner", "sim:1000")
KEYS = "sk-plain name=plain\nsk-ops name=ops tenant=ops admin\n"


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


def start(model, *flags, **how):
    return Server(model, "--served-model-name", "tiny", *flags, **how)


class Watcher:
    """Reads the events of a server in a thread until it is closed."""

    def __init__(self, server, query="", headers=None):
        self.connection = http.client.HTTPConnection(*server.address, timeout=20)
        self.connection.request("GET", "/v1/engine/steps" + query, headers=headers or {})
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        self.text, self.is_over = "", False
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            while piece := self.response.read1(65536):
                self.text += piece.decode()
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass
        self.is_over = True

    def events(self):
        whole, _, _ = self.text.rpartition("\n\n")
        return [(name, number, json.loads(data)) for name, number, data in
                parse_events(whole + "\n\n")]

    def steps(self):
        return [data for name, _, data in self.events() if name == "step"]

    def list(self, name):
        """All entries of a list, with the step's number, as dictionaries."""
        columns = self.events()[0][2][name]
        return [{"step": step["step"], **dict(zip(columns, row))}
                for step in self.steps() for row in step.get(name, [])]

    def wait_ended(self, count):
        assert wait_until(lambda: len(self.list("ended")) >= count, 20), self.text[-2000:]

    def close(self):
        self.connection.sock.shutdown(2)
        self.thread.join(10)
        self.connection.close()


def complete(server, tokens, words=4, **fields):
    body = {"model": "tiny", "prompt": " ".join(f"word{i}" for i in range(words)),
            "max_tokens": tokens, "ignore_eos": True, **fields}
    return server.post("/v1/completions", body).json


def complete_all(server, bodies):
    threads = [threading.Thread(target=complete, args=(server,), kwargs=body) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def key_of(row):
    return row["request"], row["choice"]


def check_seats(watcher, seats):
    """No two sequences are in one seat at a time, and every row is in the seat of its own."""
    owner = {}
    columns = watcher.events()[0][2]

    def entries(step, name):
        return [dict(zip(columns[name], row)) for row in step.get(name, [])]

    for step in watcher.steps():
        rows = entries(step, "rows")
        assert len({row["seat"] for row in rows}) == len(rows)
        with_row = {key_of(row) for row in rows}
        left = [key_of(e) for e in entries(step, "preempted") + entries(step, "ended")]
        for key in left:
            if key not in with_row:
                owner = {seat: k for seat, k in owner.items() if k != key}
        for entry in entries(step, "admitted"):
            assert entry["seat"] < seats
            assert entry["seat"] not in owner, (step, owner)
            owner[entry["seat"]] = key_of(entry)
        for row in rows:
            assert owner[row["seat"]] == key_of(row), step
        owner = {seat: k for seat, k in owner.items() if k not in left}
    assert owner == {}


def test_the_steps_add_up_to_the_answers(model):
    bodies = [{"tokens": 3 + i, "words": 2 + 5 * i, "n": 1 + i % 3} for i in range(8)]
    bodies.append({"tokens": 9, "n": 6})  # more than there are seats
    with start(model, *STEP, "--set", "max_seqs=4", "--set", "max_step_tokens=32") as server:
        watcher = Watcher(server)
        complete_all(server, bodies)
        choices = sum(body["n"] for body in bodies)
        watcher.wait_ended(choices)
        hello = watcher.events()[0]
        assert hello[0] == "hello" and hello[2]["seats"] == 4 and hello[2]["model"] == "tiny"
        for name in ("arrived", "admitted", "ended"):
            keys = [key_of(entry) for entry in watcher.list(name)]
            assert len(keys) == len(set(keys)) == choices, name
        sampled = {}
        for row in watcher.list("rows"):
            sampled[key_of(row)] = sampled.get(key_of(row), 0) + row["sampled"]
        for ended in watcher.list("ended"):
            assert ended["why"] == "length"
            assert sampled[key_of(ended)] == ended["generated"]
        wanted = sum(body["tokens"] * body["n"] for body in bodies)
        assert sum(sampled.values()) == wanted
        check_seats(watcher, 4)
        numbers = [step["step"] for step in watcher.steps()]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert [int(n) for name, n, _ in watcher.events() if name == "step"] == numbers
        for step in watcher.steps():
            assert sum(step["blocks"].values()) == hello[2]["blocks"]
            assert len(step.get("waiting", [])) == min(step["waiting_count"] + step["swapped"], 32)
        assert {w["why"] for w in watcher.list("waiting")} >= {"seat", "prefix"}
        prompts = {key_of(a): a["prompt"] for a in watcher.list("arrived")}
        admitted = {key_of(a): a for a in watcher.list("admitted")}
        for row in watcher.list("rows"):
            if row["first"] < prompts[key_of(row)] and row["step"] == admitted[key_of(row)]["step"]:
                assert row["cached"] == admitted[key_of(row)]["cached"] == row["first"]
        watcher.close()
        assert server.metrics()["vllm:generation_tokens_total"] == wanted


@pytest.mark.parametrize("how", ["swap", "recompute"])
def test_a_preemption_is_told_with_whom_it_was_for(model, how):
    flags = ("--set", "max_seqs=4", "--set", "kv_blocks=12", "--set", f"preempt={how}",
             "--set", "spill_blocks=64", "--set", "watermark=0", "--set", "prefix_cache=off")
    with start(model, *STEP, *flags) as server:
        watcher = Watcher(server)
        complete(server, 90, n=3)
        watcher.wait_ended(3)
        preempted = watcher.list("preempted")
        assert preempted
        known = {key_of(entry) for entry in watcher.list("arrived")}
        for entry in preempted:
            assert entry["why"] == "memory" and entry["how"] == how
            assert (entry["for_request"], entry["for_choice"]) in known - {key_of(entry)}
        assert len(watcher.list("admitted")) == 3 + len(preempted)
        whys = {w["why"] for w in watcher.list("waiting")}
        assert "swapped" in whys if how == "swap" else "blocks" in whys
        if how == "swap":
            assert sum(step["moves"]["out"] for step in watcher.steps()) > 0
            assert sum(step["moves"]["in"] for step in watcher.steps()) > 0
        check_seats(watcher, 4)
        watcher.close()


def test_a_cancelled_request_that_waits_is_told_without_a_step(model):
    with start(model, "--runner", "sim:200000", "--set", "max_seqs=1") as server:
        watcher = Watcher(server)
        body = json.dumps({"model": "tiny", "prompt": "a b", "max_tokens": 100, "stream": True,
                           "ignore_eos": True}).encode()
        sockets = [server.connect() for _ in range(2)]
        for sock in sockets:
            sock.sendall(http_request("POST", "/v1/completions", body))
        read_until(sockets[0], b"data:")
        assert wait_until(lambda: len(watcher.list("arrived")) == 2, 10)
        for sock in sockets:
            sock.close()
        watcher.wait_ended(2)
        assert {entry["why"] for entry in watcher.list("ended")} == {"cancelled"}
        assert len(watcher.list("admitted")) <= 2
        watcher.close()


def test_watchers_get_the_same_and_resume_without_a_gap(model):
    with start(model, *STEP) as server:
        watchers = [Watcher(server) for _ in range(4)]
        complete_all(server, [{"tokens": 20}] * 3)
        for watcher in watchers:
            watcher.wait_ended(3)
        steps = watchers[0].steps()
        assert all(watcher.steps() == steps for watcher in watchers)
        middle = steps[len(steps) // 2]["step"]
        for query, headers in ((f"?from={middle + 1}", {}), ("", {"last-event-id": str(middle)})):
            again = Watcher(server, query, headers)
            assert wait_until(lambda w=again: len(w.steps()) == steps[-1]["step"] - middle)
            assert again.steps() == [s for s in steps if s["step"] > middle]
            again.close()
        oldest = Watcher(server, "?from=0")
        assert wait_until(lambda: len(oldest.steps()) == steps[-1]["step"])
        assert oldest.steps()[0]["step"] == 1
        for watcher in [*watchers, oldest]:
            watcher.close()
        assert server.get("/v1/engine/steps?from=x").status == 400
        assert server.get("/v1/engine/steps?model=other").status == 404
        head = server.plain("HEAD", "/v1/engine/steps")
        assert head.status == 200 and head.headers["content-type"].startswith("text/event-stream")


def test_what_the_ring_no_longer_has_is_skipped_and_told(model):
    with start(model, "--runner", "sim:0", "--record-bytes", "64K", "--set",
               "max_seqs=1") as server:
        complete(server, 1500)
        watcher = Watcher(server, "?from=5")
        assert wait_until(lambda: len(watcher.steps()) > 1)
        name, _, skipped = watcher.events()[1]
        assert name == "skipped" and skipped["from"] == 5
        assert watcher.steps()[0]["step"] == skipped["to"] + 1
        watcher.close()


def test_a_slow_reader_skips_and_holds_nobody_up(model):
    with start(model, "--runner", "sim:0", "--record-bytes", "1M", "--set",
               "max_seqs=64") as server:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(20)
        slow.connect(server.address)
        slow.sendall(http_request("GET", "/v1/engine/steps"))
        data = read_until(slow, b"event: hello")
        sockets_hold = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
        for _ in range(1 + sockets_hold // 6_000_000):  # each is about 9 MB
            complete_all(server, [{"tokens": 4000, "n": 16}] * 4)
        end = time.monotonic() + 20
        while b"event: skipped" not in data and time.monotonic() < end:
            data = data[-100:] + slow.recv(1 << 20)
        assert b"event: skipped" in data
        slow.close()


def test_http2_watches_too(model):
    with start(model, *STEP) as server:
        with httpx.Client(http1=False, http2=True) as client, \
                client.stream("GET", server.url + "/v1/engine/steps") as response:
            assert response.http_version == "HTTP/2" and response.status_code == 200
            complete(server, 3)
            text = ""
            for piece in response.iter_text():
                text += piece
                if '"ended":[[' in text:
                    break
            assert "event: step" in text


def test_only_administrators_may_watch(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    path = "/v1/engine/steps"
    with start(model, *STEP, "--api-key-file", keys) as server:
        assert server.get(path).status == 401
        reply = server.get(path, headers={"authorization": "Bearer sk-plain"})
        assert reply.status == 403 and reply.error["code"] == "not_admin"
        watcher = Watcher(server, headers={"authorization": "Bearer sk-ops"})
        keys.write_text("sk-plain name=plain\n")
        assert wait_until(lambda: watcher.is_over, 10)
    with start(model, *STEP) as server:
        for headers in ({"x-forwarded-for": "9.9.9.9"}, {"via": "1.1 proxy"},
                        {"origin": "http://evil.example"}, {"host": "evil.example"}):
            assert server.plain("GET", path, headers=headers).status == 403, headers
        watcher = Watcher(server, headers={"origin": server.url})
        watcher.close()
    with start(model, *STEP, "--no-auth", "--host", "0.0.0.0") as server:
        reply = server.plain("GET", path)
        assert reply.status == 403 and reply.error["code"] == "not_admin"


def test_a_shutdown_ends_the_streams(model):
    server = start(model, *STEP)
    watcher = Watcher(server)
    server.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: watcher.is_over, 10)
    server.stop()


# --- /v1/engine/state ---

def test_the_state_says_what_is_in_force_and_who_is_where(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    admin = {"authorization": "Bearer sk-ops"}
    with start(model, "--runner", "sim:20000", "--api-key-file", keys, "--policy", "sjf",
               "--set", "max_seqs=3", "--set", "kv_blocks=256", "--set",
               "watermark=0.25") as server:
        assert server.get("/v1/engine/state").status == 401
        assert server.get("/v1/engine/state",
                          headers={"authorization": "Bearer sk-plain"}).status == 403
        idle = server.get("/v1/engine/state", headers=admin).json
        assert idle["seats"] == [None] * 3 and idle["requests"] == []
        assert idle["policy"] == "sjf" and "fair" in [p["name"] for p in idle["policies"]]
        knobs = {knob["name"]: knob for knob in idle["knobs"]}
        assert knobs["watermark"]["value"] == 0.25 and knobs["watermark"]["live"]
        assert knobs["kv_blocks"]["value"] == 256 and not knobs["kv_blocks"]["live"]
        assert idle["blocks"]["map"] == [[0, 256]]
        assert idle["tenants"] == ["", "plain", "ops"]
        parts = idle["models"][0]["start_ms"]
        assert idle["models"][0]["state"] == "ready" and {"find", "file", "engine"} <= set(parts)
        body = json.dumps({"model": "tiny", "prompt": "a b c", "max_tokens": 2000, "stream": True,
                           "ignore_eos": True, "n": 2}).encode()
        sock = server.connect()
        sock.sendall(http_request("POST", "/v1/completions", body, authorization="Bearer sk-plain"))
        first = read_until(sock, b'"id":"').decode()
        answer = first.partition('"id":"')[2].partition('"')[0] or \
            read_until(sock, b'",').decode().partition('"')[0]

        def state():
            found = server.get("/v1/engine/state", headers=admin).json
            return found if sum(seat is not None for seat in found["seats"]) == 2 else None
        busy = wait_until(state)
        assert busy, server.get("/v1/engine/state", headers=admin).json
        seated = [seat for seat in busy["seats"] if seat]
        assert {seat["choice"] for seat in seated} == {0, 1}
        assert {busy["tenants"][seat["tenant"]] for seat in seated} == {"plain"}
        assert [r["id"] for r in busy["requests"]] == [answer]
        assert busy["requests"][0]["request"] == seated[0]["request"]
        assert sum(count for _, count in busy["blocks"]["map"]) == 256
        assert sum(count for kind, count in busy["blocks"]["map"] if kind >= 2) >= 2
        assert busy["step"] > idle["step"]
        sock.close()


def test_a_state_is_given_while_a_step_hangs(model):
    server = start(model, "--runner", "sim:0,hang-after=3", "--watchdog-s", "60")
    try:
        sock = server.connect()
        body = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 9, "ignore_eos": True})
        sock.sendall(http_request("POST", "/v1/completions", body.encode()))
        assert wait_until(lambda: server.metrics()["vllm:num_requests_running"] > 0)
        state = server.get("/v1/engine/state").json
        assert state["blocks"]["map"] == [] and state["seats"][0]
    finally:
        server.kill()


# --- /v1/engine/policy ---

def change(server, body, **how):
    return server.post("/v1/engine/policy", body, **how)


def test_policies_are_switched_under_load_and_nobody_is_dropped(model):
    with start(model, *STEP, "--set", "max_seqs=4", "--set", "kv_blocks=40", "--set",
               "spill_blocks=64") as server:
        watcher = Watcher(server)
        names = [p["name"] for p in server.get("/v1/engine/state").json["policies"]]
        bodies = [{"tokens": 40 + i, "words": 2 + i} for i in range(16)]
        load = threading.Thread(target=complete_all, args=(server, bodies))
        load.start()
        assert wait_until(watcher.steps)
        for name in names * 2:
            reply = change(server, {"policy": name})
            assert reply.status == 200 and reply.json["policy"] == name
            assert server.get("/v1/engine/state").json["policy"] == name
        load.join(60)
        complete(server, 5)
        watcher.wait_ended(17)
        assert {e["why"] for e in watcher.list("ended")} == {"length"}
        assert sum(e["generated"] for e in watcher.list("ended")) == \
            5 + sum(40 + i for i in range(16))
        assert {names[0], names[-1]} <= {step["policy"] for step in watcher.steps()}
        check_seats(watcher, 4)
        watcher.close()


def test_knobs_that_are_live_change_and_others_are_refused_by_name(model):
    with start(model, *STEP) as server:
        reply = change(server, {"knobs": {"step_target_ms": 12.5, "preempt": "swap",
                                          "chunk_tokens": 64}})
        knobs = {knob["name"]: knob["value"] for knob in reply.json["knobs"]}
        assert knobs["step_target_ms"] == 12.5 and knobs["preempt"] == "swap"
        assert knobs["chunk_tokens"] == 64 and reply.json["policy"] == "chunked"
        watcher = Watcher(server)
        complete(server, 3)
        watcher.wait_ended(1)
        assert {step["target_us"] for step in watcher.steps()} == {12500}
        watcher.close()
        for body, param in (({"policy": "best"}, "policy"), ({"policy": 3}, "policy"),
                            ({"knobs": {"max_seqs": 8}}, "knobs.max_seqs"),
                            ({"knobs": {"kv_blocks": 8}}, "knobs.kv_blocks"),
                            ({"knobs": {"watermark": 7}}, "knobs.watermark"),
                            ({"knobs": {"watermark": None}}, "knobs.watermark"),
                            ({"knobs": {"speed": 1}}, "knobs.speed"), ({"knobs": []}, "knobs")):
            reply = change(server, body)
            assert reply.status == 400 and reply.error["param"] == param, (body, reply.body)
        same = server.get("/v1/engine/state").json
        assert {knob["name"]: knob["value"] for knob in same["knobs"]} == knobs
        assert change(server, {}).status == 200
        reply = change(server, {"policy": "fair"}, headers={"x-forwarded-for": "9.9.9.9"})
        assert reply.status == 403
