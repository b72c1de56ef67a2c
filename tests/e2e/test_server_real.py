"""Goal:   real models behind the server give the same bytes whatever else is in the batch, and what the
        server prints at its start works when it is pasted.
Method: SmolLM2 and MiniLM from the cache in one server; the same request alone and among 31
        others; vectors against `jitney embed`. Skipped where a model is not in the cache."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from cli_lib import JITNEY, ROOT, out
from server_lib import Server, checking_hook, has_model, parse_events, wait_until

pytestmark = pytest.mark.skipif(not has_model("smollm2"), reason="smollm2 is not in the cache")
needs_minilm = pytest.mark.skipif(not has_model("minilm"), reason="minilm is not in the cache")


@pytest.fixture(scope="module", name="server")
def server_fixture():
    models = ["smollm2"] + (["minilm"] if has_model("minilm") else [])
    with Server(models, "--ctx", "1024") as server:
        yield server


def answer(server, body):
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    if not body.get("stream"):
        choice = reply.json["choices"][0]
        return choice["message"]["content"], json.dumps(choice["logprobs"])
    events = [json.loads(d) for _, _, d in parse_events(reply.body.decode()) if d != "[DONE]"]
    return "".join(c["delta"].get("content") or "" for e in events for c in e["choices"]), ""


@pytest.mark.parametrize("how", [{"temperature": 0}, {"temperature": 1, "seed": 42}],
                         ids=["greedy", "seeded"])
def test_a_request_among_31_others_gets_the_same_bytes(server, how):
    body = {"model": "smollm2", "max_tokens": 12, "logprobs": True, "top_logprobs": 2, **how,
            "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    alone = answer(server, body)
    assert alone[0]
    found = [None] * 32

    def ask(i):
        if i == 17:
            found[i] = answer(server, body)
        else:
            found[i] = answer(server, {**body, "stream": i % 2 == 0, "seed": i, "messages": [
                {"role": "user", "content": f"Tell me about the number {i}. " * (i % 7 + 1)}]})
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[17] == alone
    assert answer(server, {**body, "stream": True})[0] == alone[0]
    assert wait_until(server.is_quiet, 15)


def test_the_lines_of_the_start_work_when_pasted(server):
    assert wait_until(lambda: any("client.chat" in line for line in server.lines), 60)
    text = "\n".join(server.lines)
    curl = re.search(r"^curl .*\\\n.*$", text, re.MULTILINE)[0]
    done = subprocess.run(["/bin/sh", "-c", curl], capture_output=True, timeout=120, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]
    pytest.importorskip("openai", reason="the package openai is not installed")
    script = re.search(r"^from openai .*\n(.+\n)*", text, re.MULTILINE)[0]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120,
                          check=True)
    assert done.stdout.strip()


@pytest.mark.skipif(Path(JITNEY) != ROOT / "build" / "jitney" or
                    not (ROOT / "build" / "stamps" / "run").exists(),
                    reason="another program than make's is tested")
def test_make_run_serves_until_sigterm():
    child = subprocess.Popen(["make", "run", "FLAGS=--port 0"], cwd=ROOT, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             start_new_session=True)
    try:
        url = next(m[1] for line in child.stderr if (m := re.search(r"listening on (\S+)", line)))
        assert wait_until(lambda: is_ready(url), 60)
        assert child.poll() is None
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(30)
        assert not is_ready(url)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.stderr.close()
        child.wait()


def is_ready(url):
    try:
        with urllib.request.urlopen(url + "/readyz", timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def test_a_conversation_remembers_its_prefix(server):
    messages = [{"role": "user", "content": "Remember this: " + "blue " * 200}]
    body = {"model": "smollm2", "max_tokens": 2, "messages": messages}
    server.post("/v1/chat/completions", body)
    usage = server.post("/v1/chat/completions", body).json["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 100
    salted = server.post("/v1/chat/completions", {**body, "cache_salt": "mine"}).json["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0


def resident_of_file_kb(pid, ending):
    """What is in memory of mappings of files whose names end so."""
    found, counts = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="ascii").splitlines():
        if re.match(r"[0-9a-f]+-", line):
            counts = line.endswith(ending)
        elif counts and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def test_lookups_of_tokens_bring_no_pages_of_the_file_back(server):
    """Its embedding is its head: packed once, it is read from there."""
    ids = [i * 97 % 49000 + 100 for i in range(1000)]
    reply = server.post("/v1/completions", {"model": "smollm2", "prompt": ids, "max_tokens": 1})
    assert reply.status == 200, reply.body
    assert resident_of_file_kb(server.pid, ".gguf") < 8 << 10  # of 30 MB


def vectors(server, model, texts, **fields):
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    import httpx2
    http = httpx2.Client(event_hooks={"response": [checking_hook(server)]})
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", http_client=http) as client:
        found = client.embeddings.create(model=model, input=texts, **fields)
    assert [d.index for d in found.data] == list(range(len(texts)))
    return [d.embedding for d in found.data]


@needs_minilm
def test_vectors_of_an_encoder_are_those_of_the_command_line(server):
    texts = ["a sentence", "another one, a little longer", "third"]
    found = vectors(server, "minilm", texts)
    floats = vectors(server, "minilm", texts, encoding_format="float")
    lines = out("embed", "-m", "minilm", "-0", stdin="\0".join(texts)).decode().splitlines()
    assert len(lines) == len(texts)
    for packed, plain, line in zip(found, floats, lines):
        assert packed == pytest.approx(plain, abs=1e-6)
        assert plain == pytest.approx([float(word) for word in line.split()], abs=1e-5)


@needs_minilm
def test_fewer_dimensions_are_scaled_again(server):
    whole, = vectors(server, "minilm", ["a sentence"])
    short, = vectors(server, "minilm", ["a sentence"], dimensions=16)
    length = sum(v * v for v in whole[:16]) ** 0.5
    assert short == pytest.approx([v / length for v in whole[:16]], abs=1e-5)


def test_a_decoder_gives_vectors_too(server):
    one, two = vectors(server, "smollm2", ["a sentence", "another"])
    alone, = vectors(server, "smollm2", ["a sentence"])
    assert one == alone and one != two
    assert sum(v * v for v in one) == pytest.approx(1, abs=1e-3)


@needs_minilm
def test_an_encoder_refuses_chat(server):
    reply = server.post("/v1/chat/completions", {
        "model": "minilm", "messages": [{"role": "user", "content": "x"}]})
    assert reply.status in (400, 404) and "minilm" in reply.error["message"]
    assert {m["id"] for m in server.get("/v1/models").json["data"]} == {"smollm2", "minilm"}
