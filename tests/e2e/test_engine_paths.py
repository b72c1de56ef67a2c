"""Goal:   /v1/engine/steps tells what each step did, by sequence, completely and to administrators
        only, to several watchers at a time, also to slow ones and to those that come back. state,
        policy and whatif say, change and simulate what the engine does.
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

from cli_lib import answer
from server_lib import (Server, http_request, parse_events, read_all, read_until, tiny_model,
                        wait_until)

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


def test_watchers_have_a_limit_and_give_back_their_places(model):
    with start(model, *STEP) as server:
        socks = []

        def watch():
            socks.append(server.connect())
            socks[-1].sendall(http_request("GET", "/v1/engine/steps"))
            return read_until(socks[-1], b"\r\n\r\n")
        assert all(b" 200 OK" in watch() for _ in range(64))
        refusal = watch()
        assert b" 503 " in refusal
        assert b"64 clients" in read_until(socks[-1], b"too_many_watchers", refusal)
        socks[0].close()
        assert wait_until(lambda: b" 200 OK" in watch())
        for sock in socks:
            sock.close()


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
        found_id = first.partition('"id":"')[2].partition('"')[0] or \
            read_until(sock, b'",').decode().partition('"')[0]

        def state():
            found = server.get("/v1/engine/state", headers=admin).json
            return found if sum(seat is not None for seat in found["seats"]) == 2 else None
        busy = wait_until(state)
        assert busy, server.get("/v1/engine/state", headers=admin).json
        seated = [seat for seat in busy["seats"] if seat]
        assert {seat["choice"] for seat in seated} == {0, 1}
        assert {busy["tenants"][seat["tenant"]] for seat in seated} == {"plain"}
        assert [r["id"] for r in busy["requests"]] == [found_id]
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
    with start(model, *STEP, "--set", "max_step_tokens=256", "--set", "queue_max=50") as server:
        reply = change(server, {"knobs": {"step_target_ms": 12.5, "preempt": "swap",
                                          "chunk_tokens": 64, "max_step_tokens": 100,
                                          "queue_max": 5}})
        assert change(server, {"knobs": {"max_step_tokens": 9}}).status == 200
        reply = change(server, {"knobs": {"max_step_tokens": 256}})
        knobs = {knob["name"]: knob["value"] for knob in reply.json["knobs"]}
        assert knobs["step_target_ms"] == 12.5 and knobs["preempt"] == "swap"
        assert knobs["chunk_tokens"] == 64 and reply.json["policy"] == "chunked"
        assert knobs["max_step_tokens"] == 256 and knobs["queue_max"] == 5
        watcher = Watcher(server)
        complete(server, 3)
        watcher.wait_ended(1)
        assert {step["target_us"] for step in watcher.steps()} == {12500}
        watcher.close()
        for body, param in (({"policy": "best"}, "policy"), ({"policy": 3}, "policy"),
                            ({"knobs": {"max_seqs": 8}}, "knobs.max_seqs"),
                            ({"knobs": {"kv_blocks": 8}}, "knobs.kv_blocks"),
                            ({"knobs": {"max_step_tokens": 257}}, "knobs.max_step_tokens"),
                            ({"knobs": {"queue_max": 51}}, "knobs.queue_max"),
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


def test_a_lower_queue_max_refuses_newcomers_only(model):
    body = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 5000, "ignore_eos": True})
    with start(model, "--runner", "sim:20000", "--set", "max_seqs=1") as server:
        watcher = Watcher(server)
        socks = [server.connect() for _ in range(4)]
        for sock in socks:
            sock.sendall(http_request("POST", "/v1/completions", body.encode()))
        assert wait_until(lambda: len(watcher.list("arrived")) == 4, 60)
        assert change(server, {"knobs": {"queue_max": 1}}).status == 200
        reply = server.post("/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1})
        assert reply.status == 429 and reply.error["code"] == "queue_full", reply.body
        assert watcher.list("ended") == []
        for sock in socks:
            sock.close()
        watcher.wait_ended(4)
        assert wait_until(server.is_quiet, 60)
        assert complete(server, 1)["usage"]["completion_tokens"] == 1
        watcher.close()


# --- /v1/engine/whatif ---

def record(server, bodies):
    """Send the bodies, and give the recording of them."""
    watcher = Watcher(server, "?from=0")
    complete_all(server, bodies)
    watcher.wait_ended(sum(body.get("n", 1) for body in bodies))
    recording = {"jitney_recording": 1, "hello": watcher.events()[0][2], "state": {},
                 "steps": watcher.steps()}
    watcher.close()
    return recording


def made_up(arrived, ended=()):
    """A recording of one step, with the columns that are read and in another order."""
    hello = {"arrived": ["max", "prompt", "at_us", "tenant", "choice", "request"],
             "ended": ["generated", "request", "choice"]}
    return {"jitney_recording": 1, "hello": hello, "state": {}, "steps": [
        {"step": 1, "at_us": 0, "arrived": [list(row) for row in arrived],
         "ended": [list(row) for row in ended]}]}


def whatif(server, recording, *policies, **fields):
    return server.post("/v1/engine/whatif",
                       {"recording": recording, "policies": list(policies), **fields})


def replay_figures(what, policy, requests, tmp_path):
    """`jitney replay --sim` with the cost profile, the context and the knobs of the answer."""
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(what["profile"]))
    knobs = [f"--set={name}={value}" for name, value in what["knobs"].items()
             if name != "queue_max"]
    return measured(answer("replay", "--sim", profile, "--requests", requests, "--policy", policy,
                           "--ctx", str(what["ctx_tokens"]), *knobs))


def measured(figures):
    """Without the time that the scheduler took, which is measured and differs from run to run."""
    assert figures.pop("sched_us_per_step") >= 0
    return figures


def replay_lines(recording):
    """The same requests, written by hand from the recording, as lines for `jitney replay`."""
    at = {name: recording["hello"][name].index for name in ("arrived", "ended")}
    rows = {name: [row for step in recording["steps"] for row in step.get(name, [])]
            for name in ("arrived", "ended")}
    ended = {(row[at["ended"]("request")], row[at["ended"]("choice")]): row[at["ended"]("generated")]
             for row in rows["ended"]}
    requests = {}
    for row in rows["arrived"]:
        requests.setdefault(row[at["arrived"]("request")], []).append(row)
    begin = min(row[at["arrived"]("at_us")] for row in rows["arrived"])
    return "".join(json.dumps({
        "id": number, "at_ms": (found[0][at["arrived"]("at_us")] - begin) / 1000,
        "prompt_len": found[0][at["arrived"]("prompt")], "max_tokens": found[0][at["arrived"]("max")],
        "n": len(found), "ignore_eos": True,
        "stop_after": [ended[number, choice] for choice in range(len(found))]}) + "\n"
        for number, found in sorted(requests.items()))


def test_whatif_gives_the_figures_of_replay_sim_to_the_digit(model, tmp_path):
    bodies = [{"tokens": 30, "words": 2 + 7 * i, "n": 1 + i % 3, "stop": "e" if i % 2 else None}
              for i in range(10)]
    with start(model, *STEP, "--set", "max_seqs=4", "--set", "kv_blocks=64", "--set",
               "step_target_ms=3") as server:
        recording = record(server, bodies)
        reply = whatif(server, recording, "chunked", "static", "fair")
        assert reply.status == 200, reply.body
        what = reply.json
        short = dict(recording, steps=[{name: step[name] for name in ("arrived", "ended")
                                        if name in step} for step in recording["steps"]])
        again = whatif(server, short, "fair", profile=what["profile"]).json
    assert what["model"] == "tiny" and what["knobs"]["max_seqs"] == 4
    files = {"json": json.dumps(recording), "jsonl": replay_lines(recording),
             "html": "<!doctype html><p>x</p><script type=\"application/json\" id=\"recording\">" +
             json.dumps(recording).replace("<", "\\u003c") + "</script>"}
    for kind, text in files.items():
        (tmp_path / kind).write_text(text)
    seen = []
    for result in what["results"]:
        figures = measured(result["figures"])
        assert figures["output_tokens"] == sum(
            row[3] for step in recording["steps"] for row in step.get("ended", []))
        assert figures["requests"] == 10 and figures["choices"] == 19
        for kind in files:
            assert replay_figures(what, result["policy"], tmp_path / kind, tmp_path) == figures
        assert {step["policy"] for step in result["steps"]} == {result["policy"]}
        rows = [row for step in result["steps"] for row in step.get("rows", [])]
        assert sum(row[7] for row in rows) == figures["output_tokens"]
        assert max(row[0] for row in rows) < 4
        seen.append(figures)
    assert seen[0]["ttft_ms"] != seen[1]["ttft_ms"]
    assert measured(again["results"][0]["figures"]) == seen[2]


def test_whatif_takes_lengths_from_the_recording(model):
    with start(model, *STEP, "--set", "max_seqs=2") as server:
        # Three of four are used: one arrived before, one ended without a token, one had not ended
        # and gets the mean length of the others.
        arrived = [(50, 10, 900, 0, 0, 7), (50, 10, 500, 0, 0, 8), (50, 20, 700, 0, 0, 9),
                   (50, 30, 800, 0, 0, 10)]
        ended = [(5, 7, 0), (0, 8, 0), (7, 9, 0), (9, 3, 0)]
        figures = whatif(server, made_up(arrived, ended), "chunked").json["results"][0]["figures"]
        assert figures["requests"] == 3 and figures["prompt_tokens"] == 60
        assert figures["output_tokens"] == 5 + 7 + 6
        assert figures["finish_reasons"]["stop"] == 3


HOSTILE = [
    ({"policies": ["fair"]}, "recording"),
    ({"recording": 3, "policies": ["fair"]}, "recording"),
    ({"recording": {}, "policies": ["fair"]}, "recording.steps"),
    ({"recording": {"steps": []}, "policies": ["fair"]}, "recording.hello.arrived"),
    ({"recording": dict(made_up([]), hello=[]), "policies": ["fair"]}, "recording.hello.arrived"),
    ({"recording": made_up([]), "policies": ["fair"]}, "recording.steps"),
    ({"recording": dict(made_up([]), steps=[{}, 7]), "policies": ["fair"]}, "recording.steps[1]"),
    ({"recording": dict(made_up([]), steps=[{"arrived": 7}]), "policies": ["fair"]},
     "recording.steps[0].arrived"),
    ({"recording": made_up([(1, 2)]), "policies": ["fair"]}, "recording.steps[0].arrived[0][5]"),
    ({"recording": made_up([(9, 0, 0, 0, 0, 1)]), "policies": ["fair"]},
     "recording.steps[0].arrived[0][1]"),
    ({"recording": made_up([(9, 9, 1e300, 0, 0, 1)]), "policies": ["fair"]},
     "recording.steps[0].arrived[0][2]"),
    ({"recording": made_up([(9, 9, 0, 0, 0, 1)] * 2), "policies": ["fair"]}, "recording.steps"),
    ({"recording": made_up([(9, 9, 0, 0, 0, 1)], [("x", 1, 0)]), "policies": ["fair"]},
     "recording.steps[0].ended[0][0]"),
    ({"recording": made_up([(2**31, 9, 0, 0, 0, 1)]), "policies": ["fair"]},
     "recording.steps[0].arrived[0]"),
    ({"recording": made_up([(1, 1, 0, 0, 0, i + 1) for i in range(8193)]), "policies": ["fair"]},
     "recording.steps[0].arrived[8192]"),
    ({"recording": made_up([(9, 9, 0, 0, 0, 1)]), "policies": []}, "policies"),
    ({"recording": made_up([(9, 9, 0, 0, 0, 1)]), "policies": ["fair"] * 5}, "policies"),
    ({"recording": made_up([(9, 9, 0, 0, 0, 1)]), "policies": ["fair", "x" * 99]}, "policies[1]"),
    ({"recording": made_up([(9, 9, 0, 0, 0, 1)]), "policies": ["fair", 3]}, "policies[1]"),
    ({"recording": made_up([(9, 9, 0, 0, 0, 1)]), "policies": ["fair"], "profile": "/etc/passwd"},
     "profile"),
    ({"recording": made_up([(9, 9, 0, 0, 0, 1)]), "policies": ["fair"],
      "profile": {"fixed_us": -1}}, "profile"),
]


def test_whatif_refuses_hostile_bodies_by_the_path_of_what_is_wrong(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    admin = {"authorization": "Bearer sk-ops"}
    good = {"recording": made_up([(9, 9, 0, 0, 0, 1)]), "policies": ["fair"]}
    with start(model, *STEP, "--api-key-file", keys, "--memory-max", "64M", "--body-max",
               "1M", "--set", "kv_blocks=256") as server:
        for body, param in HOSTILE:
            reply = server.post("/v1/engine/whatif", body, headers=admin)
            assert reply.status == 400 and reply.error["param"] == param, (param, reply.body)
        reply = server.post("/v1/engine/whatif", good, headers=admin)
        assert reply.status == 200, reply.body
        plain = {"authorization": "Bearer sk-plain"}
        assert server.post("/v1/engine/whatif", good, headers=plain).status == 403
        large = {"recording": made_up([(3000, 5000, 0, 0, 0, i + 1) for i in range(4000)]),
                 "policies": ["fair"]}
        reply = server.post("/v1/engine/whatif", large, headers=admin)
        assert reply.status == 413, reply.body
        found = server.plain("GET", "/metrics", headers=admin).body
        assert b"\njitney:work_bytes 0\n" in found and b"\njitney:work_items 0\n" in found


def test_whatif_ends_when_its_client_disconnects(model):
    endless = made_up([(4000, 16, 0, 0, 0, i + 1) for i in range(7000)])
    body = json.dumps({"recording": endless, "policies": ["fair"]}).encode()
    with start(model, *STEP, "--set", "max_seqs=1", "--log-format", "json") as server:
        sock = server.connect()
        sock.sendall(http_request("POST", "/v1/engine/whatif", body))
        # The simulation holds more memory than the body that is read before it.
        assert wait_until(lambda: server.metrics()["jitney:work_bytes"] > 1e8, 60)
        # A long text of another client does not wait for it.
        reply = server.post("/tokenize", {"model": server.model, "prompt": "a " * 40000})
        assert reply.status == 200, reply.body[:200]
        assert server.metrics()["jitney:work_bytes"] > 1e8
        sock.close()
        assert wait_until(lambda: server.metrics()["jitney:work_bytes"] == 0, 60)
        assert wait_until(lambda: any('"whatif"' in line for line in server.lines), 60)
        line = json.loads(next(line for line in server.lines if '"whatif"' in line))
        assert line["outcome"] == "client_gone" and line["turns"] < 10000000


def test_a_shutdown_does_not_wait_for_whatif(model):
    endless = made_up([(4000, 16, 0, 0, 0, i + 1) for i in range(7000)])
    body = json.dumps({"recording": endless, "policies": ["fair"]}).encode()
    with start(model, *STEP, "--set", "max_seqs=1") as server:
        sock = server.connect(timeout=60)
        sock.sendall(http_request("POST", "/v1/engine/whatif", body))
        assert wait_until(lambda: server.metrics()["jitney:work_bytes"] > 1e8, 60)
        server.process.send_signal(signal.SIGTERM)
        reply = read_all(sock)
        assert reply.startswith(b"HTTP/1.1 503 ") and b'"shutting_down"' in reply, reply[:500]
