"""Goal: `jitney bench` reports the server's counts, and counts failures separately.

Method: against `jitney serve` with a runner that takes a known time for each step, whose own
numbers (usage, /metrics) are the reference; against a small server in Python that fails in the usual
ways."""

import http.server
import json
import threading

import pytest

from cli_lib import answer, out, refusal, run
from server_lib import Server, tiny_model

UNAVAILABLE, USAGE = 69, 64
STEP_US = 500


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    with Server(tiny_model(tmp_path_factory), "--runner", f"sim:{STEP_US}") as started:
        yield started


def bench(server, *args):
    return answer("bench", server.url, *args)["runs"]


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("mode", [(), ("--no-stream",)])
def test_lengths_are_those_of_the_flags(server, api, mode):
    (found,) = bench(server, "--api", api, "--clients", 4, "--requests", 12, "--prompt-tokens", 100,
                     "--output-tokens", 20, "--seed", 5, *mode)
    assert found["completed"] == 12 and found["failed"] == 0
    assert found["total_output_tokens"] == 12 * 20
    # The words of the model in use need not be one token each: near is what is promised.
    assert abs(found["total_input_tokens"] / 1200 - 1) < 0.05


def test_ids_are_exact(server):
    (found,) = bench(server, "--prompt", "ids", "--vocab", 256, "--requests", 3, "--prompt-tokens",
                     77, "--output-tokens", 5)
    assert found["total_input_tokens"] == 3 * 77


def test_times_are_those_of_the_runner(server):
    (found,) = bench(server, "--requests", 4, "--output-tokens", 40)
    step_ms = STEP_US / 1000
    assert found["median_tpot_ms"] >= 0.98 * step_ms
    assert found["median_itl_ms"] >= 0.9 * step_ms
    assert found["median_ttft_ms"] <= found["median_e2el_ms"]
    assert found["median_e2el_ms"] >= 40 * 0.98 * step_ms
    assert found["median_ttft_ms"] <= found["p90_ttft_ms"] <= found["p99_ttft_ms"]
    assert 0 < found["client_cpu_share"] < 1


def test_each_number_of_clients_is_a_run_with_prompts_of_its_own(server):
    runs = bench(server, "--clients", "1,2,3", "--requests", 6, "--output-tokens", 4, "--seed", 9)
    assert [r["max_concurrency"] for r in runs] == [1, 2, 3]
    assert all(r["completed"] == 6 for r in runs)
    assert all(r["cached_input_tokens"] == 0 for r in runs)


def test_shared_prefixes_are_found_in_the_cache(server):
    (found,) = bench(server, "--clients", 2, "--requests", 8, "--shared-prefix", 96,
                     "--prompt-tokens", 128, "--output-tokens", 2, "--prompt", "ids", "--vocab", 256,
                     "--seed", 11)
    assert found["cached_input_tokens"] >= 8 * 80


def test_lengths_come_from_a_trace(server, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01,80,8\n2023-01-02,400,40\n")
    (found,) = bench(server, "--trace", trace, "--divide", 4, "--output-max", 6, "--prompt", "ids",
                     "--vocab", 256, "--requests", 40, "--clients", 4)
    short = (40 * 100 - found["total_input_tokens"]) / 80  # prompts of 20 and of 100
    assert short == int(short) and 8 <= short <= 32
    assert found["total_output_tokens"] == short * 2 + (40 - short) * 6


def test_an_open_loop_keeps_its_rate(server):
    (found,) = bench(server, "--rate", 100, "--seconds", 1, "--clients", 64, "--output-tokens", 4)
    assert found["request_rate"] == 100
    assert 60 <= found["completed"] <= 140


def test_the_table_is_for_people(server):
    text = out("bench", server.url, "--requests", 2, "--output-tokens", 4).decode()
    assert "Successful requests:                     2" in text
    for name in ("TTFT", "TPOT", "ITL", "E2EL"):
        assert f"Median {name} (ms):" in text and f"P99 {name} (ms):" in text


def test_a_server_that_does_not_listen_is_reported(server):
    line = refusal(UNAVAILABLE, "bench", "http://127.0.0.1:1")
    assert "127.0.0.1:1" in line and "refused" in line
    assert "nobody" in refusal(UNAVAILABLE, "bench", server.url, "--model", "nobody")


@pytest.mark.parametrize("args", [
    (), ("https://",), ("nonsense",), ("http://h", "--clients", "1,0"),
    ("http://h", "--clients", "x"), ("http://h", "--fields", "[1]"),
    ("http://h", "--api", "chat", "--prompt", "ids")])
def test_invalid_flags_are_refused(args):
    refusal(USAGE, "bench", *args)


class Peer(http.server.BaseHTTPRequestHandler):
    """Answers every third request as asked, and fails the others in two ways."""
    protocol_version = "HTTP/1.1"
    count = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(200, json.dumps({"data": [{"id": "peer"}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert body["extra"] == 7
        kind = Peer.count % 3 if body["max_tokens"] > 1 else 0
        Peer.count += body["max_tokens"] > 1
        if kind == 1:
            self.reply(429, json.dumps({"error": {"message": "too many"}}))
        elif kind == 2:
            self.stream(['{"choices":[{"text":"a"}]}', '{"error":{"message":"it broke"}}'])
        else:
            self.stream(['{"choices":[{"text":"a"}]}', '{"choices":[{"text":"b"}]}', "[DONE]"])

    def reply(self, status, text):
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def stream(self, events):
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            data = f"data: {event}\r\n\r\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")


def test_failures_are_counted_by_what_went_wrong():
    peer = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Peer)
    threading.Thread(target=peer.serve_forever, daemon=True).start()
    try:
        code, stdout, stderr = run(
            "bench", f"http://127.0.0.1:{peer.server_port}/v1", "--requests", 9, "--warmup", 0,
            "--fields", '{"extra": 7}', "--json")
    finally:
        peer.shutdown()
        peer.server_close()
    assert code == UNAVAILABLE and b"6 requests failed" in stderr
    (found,) = json.loads(stdout)["runs"]
    assert found["completed"] == 3 and found["failed"] == 6
    # This server counts no tokens, so its events are.
    assert found["counted_by_events"] == 3 and found["total_output_tokens"] == 6
    assert sorted((f["status"], f["count"], f["why"]) for f in found["failures"]) == [
        (200, 3, "it broke"), (429, 3, "too many")]
