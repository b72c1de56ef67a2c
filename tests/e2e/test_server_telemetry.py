"""Goal:   operators get correct figures: metrics that their tools read, traces for a collector,
        limits of keys, and a health command that agrees with the probes.
Method: a server on the simulated runner, a collector of the test's own, and Prometheus' client
        library as the reader of /metrics where it is installed."""

import http.server
import json
import re
import threading
import time

import pytest

import cli_lib
from cli_lib import ROOT
from server_lib import FAST, Server, tiny_model, wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory)


class Collector:
    """Takes OTLP over HTTP and keeps the spans."""

    def __init__(self):
        self.spans, self.paths = [], []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                collector.paths.append(self.path)
                for resource in body["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        collector.spans += scope["spans"]
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join(5)
        self.server.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def test_a_request_becomes_spans_of_the_callers_trace(model):
    with Collector() as collector:
        with Server(model, *FAST, "--otlp-endpoint", collector.url) as server:
            reply = server.chat(max_tokens=7, temperature=0.5, headers={
                "traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine-1"})
            assert reply.status == 200
            assert wait_until(lambda: collector.spans)
        by_name = {span["name"]: span for span in collector.spans}
        root = by_name["llm_request"]
        assert root["traceId"] == TRACE and root["parentSpanId"] == PARENT
        assert set(by_name) == {"llm_request", "queue", "prefill", "decode"}
        for name in ("queue", "prefill", "decode"):
            child = by_name[name]
            assert child["parentSpanId"] == root["spanId"] and child["traceId"] == TRACE
            assert int(root["startTimeUnixNano"]) <= int(child["startTimeUnixNano"])
            assert int(child["startTimeUnixNano"]) <= int(child["endTimeUnixNano"])
            assert int(child["endTimeUnixNano"]) <= int(root["endTimeUnixNano"])
        said = attributes(root)
        usage = reply.json["usage"]
        assert said["gen_ai.request.id"] == "mine-1"
        assert int(said["gen_ai.usage.prompt_tokens"]) == usage["prompt_tokens"]
        assert int(said["gen_ai.usage.completion_tokens"]) == usage["completion_tokens"] == 7
        assert int(said["gen_ai.request.max_tokens"]) == 7
        assert said["gen_ai.request.temperature"] == 0.5
        assert int(said["http.response.status_code"]) == 200
        assert collector.paths[0] == "/v1/traces"


def test_the_parts_of_a_trace_follow_each_other(model):
    """Each step takes 20 ms or more, so the answer's eleven tokens take ten steps after the
    first."""
    with Collector() as collector:
        with Server(model, "--runner", "sim:20000", "--otlp-endpoint", collector.url) as server:
            assert server.chat(max_tokens=11, ignore_eos=True).status == 200
            assert wait_until(lambda: collector.spans)
    parts = {span["name"]: (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
             for span in collector.spans}
    request, queue, prefill, decode = (parts[name] for name in (
        "llm_request", "queue", "prefill", "decode"))
    assert request[0] == queue[0] < queue[1] == prefill[0]
    assert prefill[1] == decode[0] and decode[1] == request[1]
    assert prefill[1] - prefill[0] >= 0.02e9 and decode[1] - decode[0] >= 0.15e9


def families_of(page):
    parser = pytest.importorskip("prometheus_client.parser")
    return {family.name: family for family in parser.text_string_to_metric_families(page)}


def samples_of(page, name):
    return [s for family in families_of(page).values() for s in family.samples if s.name == name]


def test_prometheus_reads_the_page_and_finds_what_was_done(model):
    with Server(model, *FAST) as server:
        tokens = 0
        for n in range(5):
            reply = server.chat(f"question {n}", max_tokens=4 + n)
            tokens += reply.json["usage"]["completion_tokens"]
        list(server.chat("stream", max_tokens=9, stream=True).events)
        tokens += 9
        assert wait_until(lambda: server.metrics()["vllm:request_success_total"] == 6)
        page = server.plain("GET", "/metrics").body.decode()
        families_of(page)  # skips here without the reader
        found = server.metrics()
        assert found["vllm:generation_tokens_total"] == tokens
        for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds",
                     "request_queue_time_seconds", "request_prefill_time_seconds",
                     "request_decode_time_seconds", "request_prompt_tokens",
                     "request_generation_tokens"):
            assert found[f"vllm:{name}_count"] == 6, name
        assert found["vllm:iteration_tokens_total_count"] > 0
        computed = found["vllm:iteration_tokens_total_sum"] + found["vllm:prefix_cache_hits_total"]
        assert computed >= found["vllm:prompt_tokens_total"]
        assert found["jitney:http_requests_total"] >= 6
        length = [s for s in samples_of(page, "vllm:request_success_total")
                  if s.labels["finished_reason"] == "length"]
        assert [s.value for s in length] == [6.0]
        assert length[0].labels["model_name"] == server.model


def test_how_requests_end_is_counted(model, tmp_path):
    """What a client causes is no error of the server."""
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a tpm=60\n")
    with Server(model, "--runner", "sim:5000", "--api-key-file", keys, "--served-model-name",
                "m") as server:
        def ask(tokens, **headers):
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            return server.plain(
                "POST", "/v1/completions", {"prompt": [5] * 10, "max_tokens": tokens,
                                            "ignore_eos": True},
                headers={"authorization": "Bearer sk-a", **headers}).status
        assert ask(50, x_jitney_deadline_ms="20") == 504
        assert ask(2) == 200
        assert ask(49) == 429  # more than the minute has left
        assert server.plain("POST", "/v1/completions", {"prompt": [5] * 90, "max_tokens": 1},
                            headers={"authorization": "Bearer sk-a"}).status == 400
        page = server.plain("GET", "/metrics", headers={"authorization": "Bearer sk-a"}).body
        ends = dict(re.findall(r'request_success_total{.*finished_reason="(\w+)"} (\d+)',
                               page.decode()))
        assert ends == {"stop": "0", "length": "1", "abort": "3", "error": "0"}


def test_log_and_metrics_have_the_same_times(model):
    """Of four requests at once three wait in the queue; a step takes 5 ms or more."""
    with Server(model, "--runner", "sim:5000", "--set", "max_seqs=1") as server:
        name, times = server.model, []

        def ask():
            begin = time.monotonic()
            reply = server.plain("POST", "/v1/completions", {
                "model": name, "prompt": [5, 6], "max_tokens": 10, "ignore_eos": True})
            times.append((int(reply.headers["openai-processing-ms"]),
                          (time.monotonic() - begin) * 1000))
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(times) == 4 and all(45 <= said <= took for said, took in times), times

        def requests():
            return [line for line in server.lines if "event=request" in line]
        assert wait_until(lambda: len(requests()) == 4)
        found = server.metrics()
    for field, metric in (("ttft_ms", "time_to_first_token"), ("total_ms", "e2e_request_latency")):
        logged = [float(re.search(rf" {field}=(\S+)", line)[1]) for line in requests()]
        assert min(logged) >= 5
        assert abs(sum(logged) - 1000 * found[f"vllm:{metric}_seconds_sum"]) < 0.1, logged
    # Tokens that came together share their gap; the first ones of an answer have none.
    assert 0 < found["vllm:inter_token_latency_seconds_count"] <= 4 * 9
    assert found["vllm:inter_token_latency_seconds_sum"] > 0


@pytest.mark.parametrize("name", ["deploy/alerts.yml", "deploy/grafana.json"])
def test_every_metric_of_alerts_and_dashboard_is_on_the_page(model, name):
    text = (ROOT / name).read_text()
    named = set(re.findall(r"\b(?:vllm|jitney):\w+|\bprocess_\w+", text))
    with Server(model, *FAST) as server:
        server.chat(max_tokens=3)
        printed = set(server.metrics())
        assert named - printed == set()


def test_a_key_over_its_limit_gets_a_time_to_try_again(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a rpm=3\nsk-b tenant=t\nsk-c tenant=t\n@t rpm=2\n")

    def ask(server, key):
        return server.chat(max_tokens=1, headers={"authorization": f"Bearer {key}"})

    with Server(model, *FAST, "--api-key-file", str(keys), "--served-model-name", "m") as server:
        server.__dict__["model"] = "m"
        assert [ask(server, "sk-a").status for _ in range(4)] == [200, 200, 200, 429]
        refused = ask(server, "sk-a")
        assert refused.json["error"]["code"] == "rate_limit_exceeded"
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-ratelimit-limit-requests"] == "3"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert [ask(server, key).status for key in ("sk-b", "sk-c", "sk-b")] == [200, 200, 429]


@pytest.mark.parametrize("path, body", [
    ("/tokenize", {"content": "x"}), ("/detokenize", {"tokens": [5]}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}]})])
def test_work_on_tokens_counts_against_a_keys_limit_too(model, tmp_path, path, body):
    keys = tmp_path / "keys"
    keys.write_text("sk-a rpm=2\n")
    with Server(model, *FAST, "--api-key-file", str(keys), "--served-model-name", "m") as server:
        found = [server.plain("POST", path, {"model": "m", **body},
                              headers={"authorization": "Bearer sk-a"}).status for _ in range(3)]
    assert found == [200, 200, 429]


def test_health_agrees_with_the_probes(model, tmp_path):
    with Server(model, *FAST) as server:
        port = server.address[1]
        assert cli_lib.run("health", server.url)[0] == 0
        assert cli_lib.run("health", env={"JITNEY_PORT": str(port)})[0] == 0
        assert cli_lib.run("health", "--live", server.url)[0] == 0
    assert cli_lib.run("health", f"http://127.0.0.1:{port}")[0] == 69
    path = tmp_path / "s"
    with Server(model, *FAST, listen=("--uds", str(path))):
        ready = lambda: cli_lib.run("health", env={"JITNEY_UDS": str(path)})[0] == 0
        assert wait_until(ready)


def test_sighup_applies_settings_and_names_those_that_need_a_restart(model, tmp_path):
    conf = tmp_path / "conf"
    conf.write_text("log-level = warn\nbody-max = 2K\nport = 0\n")
    with Server(model, *FAST, "--config", str(conf), listen=()) as server:
        big = {"model": server.model, "prompt": "x" * 3000, "max_tokens": 1}
        assert server.plain("POST", "/v1/completions", big).status == 413
        conf.write_text("log-level = info\nbody-max = 8K\nport = 0\nctx = 100\n")
        server.process.send_signal(1)
        assert wait_until(lambda: any("event=reload" in line and "done" in line
                                      for line in server.lines))
        assert wait_until(lambda: any("need a restart" in line and "ctx" in line
                                      for line in server.lines))
        assert server.plain("POST", "/v1/completions", big).status == 200
        conf.write_text("log-level = nonsense\n")
        server.process.send_signal(1)
        assert wait_until(lambda: any("nonsense" in line for line in server.lines))
        assert server.plain("GET", "/readyz").status == 200
