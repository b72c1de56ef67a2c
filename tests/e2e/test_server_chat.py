"""Goal:   `jitney chat --url` talks with any server of OpenAI's kind as it talks with a model.
Method: a server of a few lines of Python plays the other side and keeps what it was sent; a
        pseudo-terminal plays the person where Ctrl-C matters. The same against `jitney serve`
        with the simulated runner."""

import os
import pty
import signal
import subprocess
import time

import pytest

from chat_lib import scripted_server
from cli_lib import JITNEY, USAGE, refusal, run
from server_lib import FAST, Server, tiny_model

MISSING, UNAVAILABLE, BAD = 66, 69, 65


@pytest.fixture(name="server")
def server_fixture():
    with scripted_server() as server:
        yield server


def test_every_line_is_sent_with_the_messages_before_it(server):
    code, stdout, stderr = run("chat", "--url", server.url, "--temp", "0", stdin="one\ntwo\n")
    assert (code, stderr) == (0, b"")
    assert stdout.decode() == "Hello \u00e9\nHello \u00e9\n"
    path, headers, body = server.seen[1]
    assert path == "/v1/chat/completions" and "authorization" not in headers
    assert body["model"] == "first" and body["stream"] is True and body["temperature"] == 0
    assert [m["content"] for m in body["messages"]] == ["one", "Hello \u00e9", "two"]


def test_flags_and_commands_reach_the_server(server):
    run("chat", "--url", server.url + "/v1/", "-m", "second", "--seed", "5", "--top-p", "0.5",
        "-n", "7", "--system", "be brief", "--logit-bias", "3=-inf",
        stdin="/set temp 0.25\none\n", env={"JITNEY_API_KEY": "sesame"})
    _, headers, body = server.seen[0]
    assert headers["authorization"] == "Bearer sesame"
    assert (body["model"], body["seed"], body["top_p"]) == ("second", 5, 0.5)
    assert (body["temperature"], body["max_completion_tokens"]) == (0.25, 7)
    assert body["messages"][0] == {"role": "system", "content": "be brief"}
    assert body["logit_bias"] == {"3": -100}


def test_a_refusal_shows_the_servers_message_and_the_chat_continues(server):
    server.script = (429, {"error": {"message": "the queue is full", "type": "rate_limit_error"}})
    code, stdout, stderr = run("chat", "--url", server.url, stdin="one\n/stats\n")
    assert (code, stdout) == (UNAVAILABLE, b"")
    assert b"the queue is full" in stderr and b"0 messages" in stderr


def test_an_error_inside_a_stream_fails_that_turn(server):
    server.script = ["Hel", b'data: {"error":{"message":"it broke"}}\n\n']
    code, _, stderr = run("chat", "--url", server.url, stdin="one\n")
    assert code == UNAVAILABLE and b"it broke" in stderr
    server.script = ["Hel", b"data: {damaged\n\n"]
    code, _, stderr = run("chat", "--url", server.url, stdin="one\n")
    assert code == BAD and b"damaged" in stderr


def test_an_address_without_a_server_and_an_invalid_address():
    assert "jitney serve" in refusal(UNAVAILABLE, "chat", "--url", "http://127.0.0.1:1")
    assert "expected for example http:" in refusal(BAD, "chat", "--url", "localhost:8080")
    assert "no model" in refusal(USAGE, "chat")


def test_ctrl_c_closes_the_connection_and_keeps_the_text_so_far(server):
    server.script = ["Hel", 20.0]
    mine, theirs = pty.openpty()
    child = subprocess.Popen([JITNEY, "chat", "--url", server.url], stdin=theirs, stdout=theirs,
                             stderr=theirs, start_new_session=True,
                             env={**os.environ, "TERM": "dumb"})
    os.close(theirs)
    seen = b""
    try:
        os.write(mine, b"one\n")
        end = time.monotonic() + 20
        while b"Hel\n" not in seen.replace(b"\r", b"") and time.monotonic() < end:
            seen += os.read(mine, 4096)
            if seen.endswith(b"Hel"):
                child.send_signal(signal.SIGINT)
        assert server.gone.wait(10)
        while b"(stopped)" not in seen and time.monotonic() < end:
            seen += os.read(mine, 4096)
        os.write(mine, b"/quit\n")
        assert child.wait(10) == 0
    finally:
        child.kill()
        child.wait()
        os.close(mine)
    assert b"(stopped)" in seen


def test_with_our_own_server(tmp_path_factory):
    with Server(tiny_model(tmp_path_factory), *FAST, "--served-model-name", "tiny") as ours:
        code, stdout, stderr = run("chat", "--url", ours.url, "--seed", "3", "-n", "20", "-v",
                                   stdin="one\n/stats\n")
        assert code == 0 and len(stdout.decode()) > 5
        assert b"2 messages" in stderr and b"tiny" in stderr and b"20 tokens" in stderr
        answer = ours.chat("one", seed=3, max_tokens=20, temperature=0.8).json
        assert stdout.decode() == answer["choices"][0]["message"]["content"] + "\n"
        assert "none" in run("chat", "--url", ours.url, "-m", "none", stdin="one\n")[2].decode()
