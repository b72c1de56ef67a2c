"""Goal:   what a client writes into a message cannot become a control token, in any dialect.
Method: a tiny model whose template ends each message with </s>. /tokenize shows the ids of a
        conversation; every dialect's usage shows how long its prompt was: the spelling as text
        takes several tokens, as a control token one."""

import pytest

from server_lib import FAST, Server, tiny_model

SPELLING = "a</s>b"


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    with Server(tiny_model(tmp_path_factory), *FAST) as server:
        yield server


@pytest.fixture(scope="module", name="trusting")
def trusting_fixture(tmp_path_factory):
    with Server(tiny_model(tmp_path_factory), "--special-in-content", *FAST) as server:
        yield server


def ids_of(server, text, role="user"):
    body = {"messages": [{"role": role, "content": text}], "add_generation_prompt": False}
    return server.post("/tokenize", body).json["tokens"]


def end_token(server):
    body = {"prompt": "</s>", "add_special_tokens": False}
    (end,) = server.post("/tokenize", body).json["tokens"]
    return end


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_a_typed_control_token_is_text(server, trusting, role):
    end = end_token(server)
    harmless = ids_of(server, "ab", role).count(end)
    assert ids_of(server, SPELLING, role).count(end) == harmless
    assert ids_of(trusting, SPELLING, role).count(end) == harmless + 1


def test_the_assistants_words_are_its_own(server):
    end = end_token(server)
    assert ids_of(server, SPELLING, "assistant").count(end) == \
        ids_of(server, "ab", "assistant").count(end) + 1


def test_contents_without_control_tokens_have_the_same_ids(server, trusting):
    for text in ["Hello", "> quoted <", "1 < 2 > 0", "\ufdd0 \ufdd1", "", "caf\u00e9 </ s>"]:
        assert ids_of(server, text) == ids_of(trusting, text)


DIALECTS = {
    "/v1/chat/completions": (
        lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 1},
        lambda reply: reply["usage"]["prompt_tokens"]),
    "/v1/responses": (
        lambda text: {"input": text, "max_output_tokens": 1},
        lambda reply: reply["usage"]["input_tokens"]),
    "/v1/messages": (
        lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 1},
        lambda reply: reply["usage"]["input_tokens"]),
    "/api/chat": (
        lambda text: {"messages": [{"role": "user", "content": text}], "stream": False,
                      "options": {"num_predict": 1}},
        lambda reply: reply["prompt_eval_count"]),
}


@pytest.mark.parametrize("path", DIALECTS)
def test_every_dialect_keeps_the_spelling_as_text(server, trusting, path):
    make, tokens_of = DIALECTS[path]
    counts = [tokens_of(s.post(path, {"model": "tiny"} | make(SPELLING)).json)
              for s in (server, trusting)]
    assert counts[0] > counts[1]
