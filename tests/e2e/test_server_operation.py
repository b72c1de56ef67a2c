"""Goal:   the server starts, reports its state, drains and ends as operators expect.
Method: the real program with a simulated runner, signals, sockets of a service manager
        played by the test, a key file that changes, headers as browsers send them, and a hang
        that is asked for."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from cli_lib import BAD, JITNEY, MISSING, USAGE, refusal, run
from server_lib import (FAST, SERVE_LOAD, Server, http_request, parse_events, read_all, read_until,
                        statuses, tiny_model, wait_until)

UNAVAILABLE = 69


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


def body_of(tokens=5, **fields):
    return {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": tokens, **fields}


def start(model, *flags, **how):
    return Server(model, "--served-model-name", "tiny", *flags, **how)


# --- starting ---

def test_the_text_at_the_start_has_an_address_and_examples(model):
    with start(model, *FAST) as server:
        assert wait_until(lambda: any("client.chat" in line for line in server.lines))
        text = "\n".join(server.lines)
    assert "listening on http://127.0.0.1:" in text
    assert f"curl -s {server.url}/v1/chat/completions" in text
    assert f'base_url="{server.url}/v1"' in text


def test_it_listens_before_the_model_is_loaded(model):
    # The tiny model loads in no time, so this only sees that early requests get a clear answer.
    server = start(model, *FAST, ready=False)
    try:
        reply = server.plain("GET", "/livez")
        assert reply.status == 200
        reply = server.plain("POST", "/v1/chat/completions", body_of())
        assert reply.status in (200, 503)
        if reply.status == 503:
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.error["code"] == "model_loading"
        assert server.plain("GET", "/v1/models").status == 200
        server.wait_ready()
        server.stop()
    finally:
        server.kill()


def test_a_server_that_cannot_start_says_why(model, tmp_path):
    assert "none-such" in refusal(MISSING, "serve", "none-such", "--port", "0")
    assert "--no-auth" in refusal(USAGE, "serve", model, "--host", "0.0.0.0", "--port", "0")
    assert "--runner" in refusal(USAGE, "serve", model, "--runner", "fast", "--port", "0")
    assert "--ctx" in refusal(USAGE, "serve", model, "--ctx", "-1")
    assert "did you mean --port" in refusal(USAGE, "serve", model, "--prot", "0")
    assert refusal(USAGE, "serve", model, "--tls-cert", tmp_path / "none", "--port", "0")
    with start(model, *FAST) as server:
        port = str(server.address[1])
        code, _, stderr = run("serve", model, *FAST, "--port", port)
        assert code == UNAVAILABLE and port in stderr.decode()


def test_settings_come_from_flags_environment_and_file(model, tmp_path):
    path = tmp_path / "jitney.conf"
    path.write_text("# a comment\nkeep-s = 7\ndrain-s = 8\nn-max = 3\n")
    code, stdout, _ = run("serve", model, "--config", path, "--n-max", "4", "--print-config",
                          env={"JITNEY_DRAIN_S": "9"})
    text = stdout.decode()
    assert code == 0
    for name, value in (("keep-s", "7"), ("drain-s", "9"), ("n-max", "4")):
        assert any(line.split("#")[0].replace(" ", "") == f"{name}={value}"
                   for line in text.splitlines()), text
    assert run("serve", model, "--check")[0] == 0
    path.write_text("no-such = 1\n")
    code, _, stderr = run("serve", model, "--config", path)
    assert code in (USAGE, BAD, 78) and b"no-such" in stderr


# --- health ---

def test_probes_and_versions(model):
    with start(model, *FAST) as server:
        for path in ("/livez", "/readyz", "/health", "/version"):
            assert server.get(path).status == 200
        metrics = server.metrics()
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting",
                     "vllm:kv_cache_usage_perc"):
            assert metrics[name] == 0
        server.post("/v1/chat/completions", body_of(7))
        assert server.metrics()["vllm:generation_tokens_total"] == 7


def test_an_engine_that_hangs_fails_livez_and_ends_the_process(model):
    server = start(model, "--runner", "sim:1000,hang-after=40", "--watchdog-s", "0.5")
    try:
        sock = server.connect()
        sock.sendall(http_request("POST", "/v1/chat/completions",
                                  json.dumps(body_of(1000, stream=True)).encode()))
        data = read_until(sock, b"data: ")
        begin = time.monotonic()
        assert wait_until(lambda: server.plain("GET", "/livez").status == 503)
        assert time.monotonic() - begin < 15
        assert b"error" in read_until(sock, b'"error"', data)  # the client gets an error event
        assert server.process.wait(15) not in (0, None)
        assert wait_until(lambda: any("hang" in line for line in server.lines))
    finally:
        server.kill()


def ask_ending(server, method, path, body=None, since=None):
    """The reply of a server that ends two seconds after it has failed; None: it has ended, which may
    only be if the test itself was held up."""
    try:
        return server.plain(method, path, body)
    except (OSError, http.client.HTTPException):
        assert since is None or time.monotonic() - since > 1.5
        return None


def test_an_engine_whose_steps_all_fail_fails_livez_and_ends_the_process(model, tmp_path):
    path = tmp_path / "s"
    server = start(model, "--runner", "sim:0,fail-after=3", "--uds", path)
    try:
        for _ in range(6):  # each fails in its first step, which is not enough to give up
            assert server.plain("POST", "/v1/chat/completions", body_of()).status == 500
        assert server.plain("GET", "/livez").status == 200
        begin = time.monotonic()
        for _ in range(3):
            ask_ending(server, "POST", "/v1/chat/completions", body_of(), begin)
        reply = ask_ending(server, "GET", "/livez", since=begin)
        assert not reply or (reply.status == 503 and b"every step" in reply.body)
        reply = ask_ending(server, "GET", "/readyz", since=begin)
        assert not reply or reply.status == 503
        assert server.process.wait(60) not in (0, None)
        assert wait_until(lambda: any("every step of the engine fails" in line
                                      for line in list(server.lines)))
        assert not path.exists()
    finally:
        server.kill()


def test_a_lost_device_fails_requests_with_a_sentence_and_ends_the_process(model):
    server = start(model, "--device", "delayed:lose=4,jitter=0")
    try:
        failed = [ask_ending(server, "POST", "/v1/chat/completions", body_of()) for _ in range(9)]
        assert {reply.status for reply in failed if reply} <= {500, 503}
        assert "step" in failed[0].error["message"]
        assert server.process.wait(60) not in (0, None)
        assert wait_until(lambda: any("every step of the engine fails" in line
                                      for line in list(server.lines)))
    finally:
        server.kill()


def kv_mib(server):
    assert wait_until(lambda: any("kv_mib=" in line for line in server.lines), 60)
    line = next(line for line in server.lines if "kv_mib=" in line)
    return int(line.rpartition("kv_mib=")[2].split()[0])


def test_the_kv_cache_takes_what_gpu_memory_leaves(model):
    flags = ("--device", "delayed:memory=400000000,jitter=0", "--set", "max_seqs=1024")
    with start(model, *flags) as server:
        usual = kv_mib(server)
        assert 0 < usual < 381 * 0.9 - 256  # MiB of the device, and the reserve
        assert server.post("/v1/chat/completions", body_of()).status == 200
    with start(model, *flags, env={"JITNEY_GPU_MEMORY": "1"}) as server:
        assert usual + 30 < kv_mib(server) < 381 - 256
    code, _, stderr = run("serve", model, *flags, "--port", "0", "--gpu-memory", "0.67")
    assert code == UNAVAILABLE
    assert "--gpu-memory 0.67 of that is 255; weights take 0" in stderr.decode()


# --- draining ---

def status_of(server, path):
    """0 if the connection was closed as idle just then, which may happen as a drain begins."""
    try:
        return server.plain("GET", path).status
    except (OSError, http.client.HTTPException):
        return 0


def test_sigterm_finishes_64_streams_and_refuses_new_ones(model):
    server = start(model, "--runner", "sim:20000", "--set", "max_seqs=64")
    found, threads = [None] * 64, []

    def ask(i):
        found[i] = server.plain("POST", "/v1/chat/completions", body_of(60, stream=True, seed=i))
    try:
        for i in range(64):
            threads.append(threading.Thread(target=ask, args=(i,)))
            threads[-1].start()
        idle = server.connect()
        assert wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 64)
        server.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: status_of(server, "/readyz") == 503)
        assert server.plain("GET", "/livez").status == 200
        refused = server.plain("POST", "/v1/chat/completions", body_of())
        assert refused.status == 503 and int(refused.headers["retry-after"]) >= 1
        assert refused.headers["connection"] == "close"
        for thread in threads:
            thread.join(30)
        assert server.process.wait(10) == 0
        idle.close()
    finally:
        server.kill()
    for reply in found:
        events = parse_events(reply.body.decode())
        assert reply.status == 200 and events[-1][2] == "[DONE]"
        assert any('"finish_reason":"length"' in data for _, _, data in events)


def test_a_second_sigterm_ends_at_once(model):
    server = start(model, "--runner", "sim:20000")
    try:
        sock = server.connect()
        sock.sendall(http_request("POST", "/v1/chat/completions",
                                  json.dumps(body_of(5000, stream=True)).encode()))
        read_until(sock, b"data: ")
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert time.monotonic() - begin < 15
        assert b"shutting_down" in read_all(sock)  # the answer under way was failed
        sock.close()
    finally:
        server.kill()


def test_a_poll_does_not_wait_during_a_drain(model):
    with start(model, "--runner", "sim:20000", "--drain-s", "30") as server:
        reply = server.plain("POST", "/v1/chat/completions", body_of(5000, ignore_eos=True),
                             headers={"prefer": "respond-async"})
        server.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: status_of(server, "/readyz") == 503)
        found = server.plain("GET", f"{reply.headers['location']}?after=100000&wait_ms=60000").json
        assert (found["events"], found["done"]) == ([], False)  # with a wait it would be done
        server.process.send_signal(signal.SIGTERM)


def test_a_drain_has_an_end(model):
    server = start(model, "--runner", "sim:20000", "--drain-s", "0.5")
    try:
        sock = server.connect()
        sock.sendall(http_request("POST", "/v1/chat/completions",
                                  json.dumps(body_of(5000, stream=True)).encode()))
        data = read_until(sock, b"data: ")
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        data = read_until(sock, b'"error"', data)
        assert server.process.wait(30) == 0
        assert 0.4 < time.monotonic() - begin < 15
        sock.close()
    finally:
        server.kill()


# --- limits ---

def test_a_full_queue_is_429_with_a_time(model):
    with start(model, "--runner", "sim:10000", "--set", "max_seqs=2", "--set",
               "queue_max=3") as server:
        socks, body = [], json.dumps(body_of(2000)).encode()
        for count in range(1, 6):  # two run, three wait
            socks.append(server.connect())
            socks[-1].sendall(http_request("POST", "/v1/chat/completions", body))
            assert wait_until(lambda: server.metrics()["vllm:num_requests_running"] +
                              server.metrics()["vllm:num_requests_waiting"] == count, 10)
        begin = time.monotonic()
        reply = server.post("/v1/chat/completions", body_of())
        assert reply.status == 429 and time.monotonic() - begin < 10
        # The prediction changes with every step; the metric is its value in seconds.
        predicted = server.metrics()["jitney:queue_predicted_wait_seconds"]
        assert predicted > 0.1
        assert predicted / 10 < int(reply.headers["retry-after-ms"]) / 1000 < predicted * 10
        assert reply.headers["x-should-retry"] == "true"
        for sock in socks:
            sock.close()
        assert wait_until(server.is_quiet, 15)
        assert server.post("/v1/chat/completions", body_of()).status == 200


def test_a_burst_at_an_idle_server_is_accepted_up_to_max_seqs_and_queue_max(model):
    with start(model, "--runner", "sim:2000", "--set", "max_seqs=1", "--set",
               "queue_max=1") as server:
        for path, body in (("/v1/chat/completions", body_of(30)),
                           ("/v1/completions", {"prompt": "a", "max_tokens": 30})):
            data = http_request("POST", path, json.dumps(body).encode())
            for _ in range(3):
                assert wait_until(server.is_quiet, 15)
                socks = [server.connect() for _ in range(6)]
                for sock in socks:
                    sock.sendall(data)
                found = [statuses(read_until(sock, b"\r\n\r\n"))[0] for sock in socks]
                assert sorted(found) == [200] * 2 + [429] * 4
                for sock in socks:
                    sock.close()


def test_a_deadline_ends_a_request(model):
    with start(model, "--runner", "sim:10000") as server:
        begin = time.monotonic()
        reply = server.post("/v1/chat/completions", body_of(1000),
                            headers={"x-jitney-deadline-ms": "300"})
        assert time.monotonic() - begin < 8
        assert (reply.status, reply.error["code"]) == (504, "deadline_exceeded")
        bad = server.post("/v1/chat/completions", body_of(), headers={"x-jitney-ttft-ms": "soon"})
        assert bad.status == 400 and bad.error["param"] == "x-jitney-ttft-ms"
        fine = server.post("/v1/chat/completions", body_of(), headers={
            "x-jitney-priority": "3", "x-jitney-ttft-ms": "500", "x-jitney-tpot-ms": "50"})
        assert fine.status == 200


@pytest.mark.parametrize("server_s, client_ms", [("0.3", "60000"), ("60", "300")])
def test_of_two_deadlines_the_earlier_one_counts(model, server_s, client_ms):
    with start(model, "--runner", "sim:10000", "--request-timeout-s", server_s) as server:
        reply = server.post("/v1/chat/completions", body_of(2000),
                            headers={"x-jitney-deadline-ms": client_ms})
        assert (reply.status, reply.error["code"]) == (504, "deadline_exceeded")


@pytest.mark.skipif(not SERVE_LOAD.exists(), reason="bench/serve_load was not built")
@pytest.mark.parametrize("after", [3, 0])
def test_hundreds_of_clients_that_disconnect_leave_nothing_behind(model, after):
    """With 3 they go in the middle of an answer, with 0 while most still wait in the queue."""
    with start(model, "--runner", "sim:2000", "--set", "queue_max=4096") as server:
        server.get("/livez")
        before = server.descriptors()
        code, stdout, _ = run_load(server, "--vanish", "300", "--after", str(after), "--linger",
                                   "0.7", "--tokens", "5000")
        assert code == 0 and json.loads(stdout)["vanished"] == 300
        assert wait_until(server.is_quiet, 15)
        assert wait_until(lambda: server.descriptors() <= before, 15)


def run_load(server, *flags):
    done = subprocess.run([str(SERVE_LOAD), "--port", str(server.address[1]), "--model", "tiny",
                           "--json", *flags], capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


# --- access ---

def test_keys_are_required_and_the_key_file_may_change(model, tmp_path):
    path = tmp_path / "keys"
    path.write_text("first name=a\n# second\n")
    bearer = {"authorization": "Bearer first"}
    with start(model, *FAST, "--api-key-file", path) as server:
        assert server.plain("GET", "/livez").status == 200
        assert server.plain("GET", "/v1/models").status == 401
        assert server.plain("GET", "/v1/models", headers=bearer).status == 200
        assert server.plain("GET", "/v1/models", headers={"x-api-key": "first"}).status == 200
        refused = server.plain("POST", "/v1/chat/completions", body_of())
        assert refused.status == 401 and refused.error["code"] == "missing_api_key"
        assert refused.headers["www-authenticate"].startswith("Bearer")
        path.write_text("second\n")
        server.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: server.plain(
            "GET", "/v1/models", headers=bearer).status == 401, 5)
        assert server.plain("GET", "/v1/models",
                            headers={"authorization": "Bearer second"}).status == 200
        path.write_text("third rpm=nonsense\n")
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert server.plain("GET", "/v1/models",
                            headers={"authorization": "Bearer second"}).status == 200
        assert not any("second" in line for line in server.lines)  # secrets stay out of logs


def begin_request(server, body, **headers):
    """Send a head and the first byte of its body; the head has been checked when this returns."""
    head, rest = http_request("POST", "/v1/chat/completions", body, expect="100-continue",
                              **headers).split(b"\r\n\r\n", 1)
    sock = server.connect()
    sock.sendall(head + b"\r\n\r\n")
    assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
    sock.sendall(rest[:1])
    return sock, rest[1:]


def finish_request(sock, rest):
    sock.sendall(rest)
    data = read_until(sock, b"}}")
    sock.close()
    return data


def test_a_key_that_is_removed_while_the_body_arrives_is_refused(model, tmp_path):
    path = tmp_path / "keys"
    path.write_text("first\nother\n")
    body = json.dumps(body_of()).encode()
    with start(model, *FAST, "--api-key-file", path) as server:
        slow = [begin_request(server, body, authorization=f"Bearer {key}")
                for key in ("first", "other")]
        path.write_text("other\n")
        server.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: server.plain(
            "GET", "/v1/models", headers={"x-api-key": "first"}).status == 401, 5)
        removed, stays = (finish_request(*request) for request in slow)
        assert removed.startswith(b"HTTP/1.1 401 ") and b"invalid_api_key" in removed
        assert stays.startswith(b"HTTP/1.1 200 ")


def test_work_whose_body_arrives_after_the_drain_began_is_refused(model):
    body = json.dumps(body_of()).encode()
    with start(model, "--runner", "sim:20000") as server:
        under_way = server.connect()
        under_way.sendall(http_request("POST", "/v1/chat/completions",
                                       json.dumps(body_of(100, stream=True)).encode()))
        assert b"data:" in read_until(under_way, b"data:")
        sock, rest = begin_request(server, body)
        server.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: status_of(server, "/readyz") == 503)
        refused = finish_request(sock, rest)
        assert refused.startswith(b"HTTP/1.1 503 ") and b"shutting_down" in refused
        under_way.close()


def test_clients_that_disconnect_before_their_body_is_complete_leave_nothing_behind(model):
    body = json.dumps(body_of()).encode()
    with start(model, *FAST, "--body-timeout-s", "1") as server:
        before = server.descriptors()
        for _ in range(50):
            begin_request(server, body)[0].close()
        sock, _ = begin_request(server, body)
        assert read_until(sock, b"\r\n").startswith(b"HTTP/1.1 408 ")  # it was too slow
        sock.close()
        assert wait_until(lambda: server.descriptors() <= before, 15)
        assert server.plain("POST", "/v1/chat/completions", body_of()).status == 200
    # The server has ended with 0: under the address sanitizer a leak would end it otherwise.


def test_a_request_of_another_key_is_not_found(model, tmp_path):
    path = tmp_path / "keys"
    path.write_text("first\nother\n")
    with start(model, "--runner", "sim:5000", "--api-key-file", path) as server:
        first = {"authorization": "Bearer first"}
        other = {"authorization": "Bearer other"}
        reply = server.plain("POST", "/v1/chat/completions", body_of(200),
                             headers={**first, "prefer": "respond-async"})
        place = reply.headers["location"]
        assert server.plain("GET", place, headers=other).status == 404
        assert server.plain("DELETE", place, headers=other).status == 404
        assert server.plain("DELETE", place, headers=first).status == 200


def test_foreign_pages_may_not_call_a_server_on_loopback(model):
    with start(model, *FAST) as server:
        assert server.plain("GET", "/v1/models", headers={"host": "evil.example"}).status == 403
        assert server.plain("GET", "/v1/models", headers={"host": "localhost"}).status == 200
        assert server.plain("GET", "/v1/models",
                            headers={"origin": "https://evil.example"}).status == 403
        assert server.plain("GET", "/v1/models",
                            headers={"origin": server.url}).status in (200, 403)
        preflight = server.plain("OPTIONS", "/v1/chat/completions", headers={
            "origin": "https://evil.example", "access-control-request-method": "POST"})
        assert "access-control-allow-origin" not in preflight.headers


def test_cors_is_for_the_listed_origins(model):
    page = "https://page.example"
    with start(model, *FAST, "--cors-origin", page) as server:
        reply = server.plain("POST", "/v1/chat/completions", body_of(), headers={"origin": page})
        assert reply.status == 200 and reply.headers["access-control-allow-origin"] == page
        preflight = server.plain("OPTIONS", "/v1/chat/completions", headers={
            "origin": page, "access-control-request-method": "POST",
            "access-control-request-headers": "content-type, authorization"})
        assert preflight.status in (200, 204)
        assert preflight.headers["access-control-allow-origin"] == page
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        assert server.plain("GET", "/v1/models",
                            headers={"origin": "https://evil.example"}).status == 403


def test_every_answer_names_its_request(model):
    with start(model, *FAST) as server:
        for path in ("/livez", "/v1/models", "/nowhere"):
            assert server.plain("GET", path).headers["x-request-id"]
        reply = server.plain("POST", "/v1/chat/completions", body_of(),
                             headers={"x-request-id": "abc-123"})
        assert reply.headers["x-request-id"] == "abc-123"
        assert wait_until(lambda: any("abc-123" in line for line in server.lines))
        odd = server.plain("GET", "/livez", headers={"x-request-id": "a b\tc"})
        assert " " not in odd.headers["x-request-id"]
        for length, is_used in ((128, True), (129, False), (3000, False)):  # never a part of it
            given = "x" * length
            found = server.plain("GET", "/livez", headers={"x-request-id": given}).headers
            assert (found["x-request-id"] == given) == is_used
            assert is_used or "x" not in found["x-request-id"]


def test_logs_are_lines_without_prompts(model):
    secret = "a secret that must not be logged"
    with start(model, *FAST, "--log-format", "json") as server:
        server.plain("POST", "/v1/chat/completions", body_of() | {
            "messages": [{"role": "user", "content": secret}]})
        assert wait_until(lambda: any('"request"' in line for line in server.lines))
        lines = [line for line in server.lines if line.startswith("{")]
        assert lines and all(json.loads(line) for line in lines)
        assert not any(secret in line for line in server.lines)


# --- service managers ---

def test_a_socket_passed_by_the_service_manager_is_used(model):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    port = listener.getsockname()[1]
    # The socket must be descriptor 3 and LISTEN_PID the server's own, which only a process
    # between us and it can see to.
    wrap = [sys.executable, "-c", "import os, sys; os.dup2(int(sys.argv[1]), 3); "
            "os.environ['LISTEN_PID'] = str(os.getpid()); os.execv(sys.argv[2], sys.argv[2:])",
            str(listener.fileno())]
    server = Server(model, "--served-model-name", "tiny", *FAST, listen=(), wrap=wrap, ready=False,
                    env={"LISTEN_FDS": "1"}, pass_fds=(listener.fileno(),))
    try:
        server.url = f"http://127.0.0.1:{port}"
        server.wait_ready()
        assert server.plain("POST", "/v1/chat/completions", body_of()).status == 200
        server.stop()
    finally:
        server.kill()
        listener.close()


def test_a_service_manager_gets_the_state_of_the_server(model, tmp_path):
    path = tmp_path / "notify"
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.bind(str(path))
    inbox.settimeout(10)
    messages = []

    def wait_for(word):
        while not any(word in m for m in messages):
            messages.append(inbox.recv(4096).decode())
    server = start(model, *FAST, env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "300000"})
    try:
        wait_for("READY=1")
        wait_for("WATCHDOG=1")
        first = time.monotonic()
        for _ in range(9):  # at least one in each third of 300 ms, so this takes 0.9 s
            messages.clear()
            wait_for("WATCHDOG=1")
        assert time.monotonic() - first < 8
        messages.clear()
        server.process.send_signal(signal.SIGHUP)
        wait_for("RELOADING=1")
        wait_for("READY=1")
        server.process.send_signal(signal.SIGTERM)
        wait_for("STOPPING=1")
        server.stop()
    finally:
        server.kill()
        inbox.close()


def test_the_limit_of_descriptors_is_raised_and_logged(model):
    with start(model, *FAST, wrap=["/bin/sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh"]) as server:
        assert wait_until(lambda: any("descriptors" in line and "256" in line
                                      for line in server.lines))
        with open(f"/proc/{server.pid}/limits", encoding="ascii") as limits:
            row = next(line for line in limits if line.startswith("Max open files"))
        soft, hard = row.split()[3:5]
        assert soft == hard


def processor_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))


def test_an_idle_model_uses_no_processor(model):
    with start(model, "--set", "threads=2") as server:  # the runner that computes
        assert server.post("/v1/chat/completions", body_of()).status == 200
        time.sleep(0.2)
        before = processor_ticks(server.pid)
        time.sleep(1.5)
        assert processor_ticks(server.pid) - before <= 1  # of 10 ms; timers may take one


def test_the_placement_of_threads_is_logged(model):
    allowed = os.sched_getaffinity(0)
    flags = ("--placement", "on", "--set", "threads=1")
    with start(model, *flags) as server:
        assert server.post("/v1/chat/completions", body_of()).status == 200
        assert wait_until(lambda: any("event=placement" in line for line in server.lines))
        line = next(line for line in server.lines if "event=placement" in line)
        if "hwloc" in line:
            pytest.skip("built without hwloc")
        cpu = int(line.rpartition("processors=")[2])
        assert cpu in allowed
        masks = [os.sched_getaffinity(int(task)) for task in os.listdir(f"/proc/{server.pid}/task")]
        assert {cpu} in masks  # the thread that computes
        assert os.sched_getaffinity(server.pid) == allowed  # the thread of connections does not
    with start(model, "--placement", "off") as server:
        assert not any("event=placement" in line for line in server.lines)


def test_a_placement_that_is_not_possible_is_logged(model):
    flags = ("--placement", "on", "--set", f"threads={len(os.sched_getaffinity(0)) + 1}")
    with start(model, *flags) as server:
        assert wait_until(lambda: any("event=placement" in line and "level=warn" in line
                                      and "no thread is bound" in line for line in server.lines))


def test_a_closed_standard_error_does_not_stop_it(model, tmp_path):
    reader, writer = os.pipe()
    path = tmp_path / "s"
    child = subprocess.Popen([JITNEY, "serve", str(model), *FAST, "--uds", str(path)],
                             stderr=writer, stdin=subprocess.DEVNULL)
    os.close(writer)
    try:
        os.read(reader, 4096)
        os.close(reader)
        assert wait_until(path.exists)
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(path))
                sock.settimeout(10)
                sock.sendall(http_request("GET", "/nowhere", connection="close"))
                assert statuses(sock.recv(65536)) == [404]
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
    finally:
        child.kill()
        child.wait()
