"""Goal:   a model file that is cut while it is served fails that model and nothing else.
Method: copies of a tiny model under `--isa ref`, which reads all weights from the mapped file;
        the file is cut to nothing, to one page and within its last page, while the server is
        idle and while it writes an answer. The requests end with an error, the server and a
        second model go on, and SIGTERM still ends it with 0."""

import os
import threading

import pytest

from server_lib import Server, tiny_model, wait_until

CHAT = "/v1/chat/completions"


def weights_of(folder):
    return next(folder.glob("*.safetensors"))


def ask(server, model, **fields):
    body = {"model": model, "max_tokens": 8, "temperature": 0,
            "messages": [{"role": "user", "content": "Hello"}]}
    return server.post(CHAT, body | fields)


@pytest.fixture
def models(tmp_path_factory):
    """Two folders with the same model under different names."""
    first, second = tiny_model(tmp_path_factory), tiny_model(tmp_path_factory)
    return first, second.rename(second.with_name("other"))


@pytest.mark.parametrize("length", ["nothing", "a page", "within its last page"])
def test_a_model_whose_file_is_cut_fails_and_the_other_goes_on(models, length):
    first, second = models
    path = weights_of(first)
    with Server(first, second, "--isa", "ref", "--weights-cache", "off") as server:
        before = ask(server, "other").json["choices"][0]["message"]["content"]
        assert ask(server, "tiny").status == 200
        left = {"nothing": 0, "a page": 4096, "within its last page": path.stat().st_size - 1}
        os.truncate(path, left[length])
        refused = ask(server, "tiny")
        assert refused.status == 503
        assert refused.error["code"] == "model_failed"
        states = {m["id"]: m for m in server.get("/v1/models").json["data"]}
        assert "failed" in str(states["tiny"]) and "ready" in str(states["other"])
        assert server.get("/livez").status == 200
        assert server.get("/readyz").status == 200
        assert ask(server, "other").json["choices"][0]["message"]["content"] == before


def test_an_answer_under_way_ends_with_an_error_that_names_the_file(models):
    first = models[0]
    path = weights_of(first)
    with Server(first, "--isa", "ref", "--weights-cache", "off") as server:
        replies = []
        fields = {"max_tokens": 7000, "ignore_eos": True}
        asking = threading.Thread(target=lambda: replies.append(ask(server, "tiny", **fields)))
        asking.start()
        assert wait_until(lambda: server.metrics()["vllm:num_requests_running"] >= 1)
        os.truncate(path, 0)
        asking.join(timeout=30)
        assert not asking.is_alive()
        assert replies[0].status >= 500
        assert str(first) in replies[0].error["message"]
        assert "shorter" in replies[0].error["message"]
        # The server stays, says that it is alive, and that it has nothing to serve.
        assert server.get("/livez").status == 200
        assert server.get("/readyz").status == 503
        assert ask(server, "tiny").error["code"] == "model_failed"
