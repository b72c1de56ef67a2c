"""Goal:   the numbers of an answer are right in every dialect: tokens of a stopped answer, cached
        tokens of several choices, log-probabilities at any temperature; a stop token is no text.
Method: a simulated model, whose seeded answer is known token by token; a computing one for
        log-probabilities."""

import json

import pytest

from server_lib import FAST, Server, parse_events, tiny_model

ASK = [{"role": "user", "content": "Hello"}]
COUNT = 12


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


@pytest.fixture(scope="module", name="server")
def server_fixture(model):
    with Server(model, *FAST, "--served-model-name", "tiny", "--set", "max_seqs=2") as server:
        yield server


def openai(text):
    def ask(server, tokens, stop, stream):
        prompt = {"prompt": "Hello"} if text else {"messages": ASK}
        body = {**prompt, "seed": 9, "max_tokens": tokens, "stream": stream}
        body |= {"stop": stop} if stop else {}
        body |= {"stream_options": {"include_usage": True}} if stream else {}
        reply = server.post("/v1/completions" if text else "/v1/chat/completions", body)
        found = reply.data[-1] if stream else reply.json
        return answer_of(reply, stream, text), found["usage"]["completion_tokens"]
    return ask


def answer_of(reply, stream, text):
    if not stream:
        choice = reply.json["choices"][0]
        return choice["text"] if text else choice["message"]["content"]
    choices = [choice for event in reply.data for choice in event["choices"]]
    return "".join((c["text"] if text else c["delta"].get("content")) or "" for c in choices)


def anthropic(server, tokens, stop, stream):
    body = {"messages": ASK, "max_tokens": tokens, "temperature": 0, "stream": stream}
    body |= {"stop_sequences": stop} if stop else {}
    reply = server.post("/v1/messages", body)
    if not stream:
        return reply.json["content"][0]["text"], reply.json["usage"]["output_tokens"]
    events = [json.loads(data) for _, _, data in parse_events(reply.body.decode())]
    text = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
    return text, next(e for e in events if e["type"] == "message_delta")["usage"]["output_tokens"]


def ollama(server, tokens, stop, stream):
    options = {"seed": 9, "num_predict": tokens, **({"stop": stop} if stop else {})}
    reply = server.post("/api/chat", {"model": "tiny", "messages": ASK, "options": options,
                                      "stream": stream})
    lines = [json.loads(line) for line in reply.body.splitlines()]
    return "".join(line["message"]["content"] for line in lines), lines[-1]["eval_count"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("ask", [openai(True), openai(False), anthropic, ollama],
                         ids=["completions", "chat", "messages", "ollama"])
def test_the_usage_of_a_stopped_answer_ends_with_its_last_token(server, ask, stream):
    texts = [ask(server, tokens, None, False) for tokens in range(1, COUNT + 1)]
    assert [count for _, count in texts] == list(range(1, COUNT + 1))
    for tokens in (1, 2, COUNT):
        whole = texts[tokens - 1][0]
        assert ask(server, 3 * COUNT, [whole], stream) == ("", tokens)


@pytest.mark.parametrize("place", [0, 1, 5])
def test_a_stop_token_is_never_text(server, place):
    body = {"prompt": "Hello", "seed": 9, "max_tokens": COUNT, "return_token_ids": True}
    ids = server.post("/v1/completions", body).json["choices"][0]["token_ids"]
    place = ids.index(ids[place])
    before = server.post("/v1/completions", {**body, "max_tokens": place}).json if place else None
    reply = server.post("/v1/completions", {**body, "stop_token_ids": [ids[place]]}).json
    assert reply["choices"][0]["text"] == (before["choices"][0]["text"] if before else "")
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["usage"]["completion_tokens"] == place + 1


@pytest.mark.parametrize("n", [1, 2, 5])
def test_cached_tokens_count_a_prompt_once(server, n):
    """Two choices run at a time; the others wait and find the prompt in the cache."""
    body = {"prompt": [5 + n] * 50, "max_tokens": 20, "n": n}
    for cached in (0, 48):
        usage = server.post("/v1/completions", body).json["usage"]
        assert usage["prompt_tokens"] == 50 and usage["completion_tokens"] == 20 * n
        assert usage["prompt_tokens_details"]["cached_tokens"] == cached
    usage = server.post("/v1/completions", {**body, "prompt": [body["prompt"]] * 3}).json["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 3 * 48


def test_temperature_changes_no_log_probability(model):
    with Server(model, "--served-model-name", "tiny") as server:
        found = []
        for temperature in (0, 0.3, 1, 2):
            body = {"prompt": "Hello", "max_tokens": 1, "logprobs": 5, "seed": 3,
                    "temperature": temperature}
            choice = server.post("/v1/completions", body).json["choices"][0]["logprobs"]
            tops = choice["top_logprobs"][0]
            found.append({token: p for token, p in tops.items() if token != choice["tokens"][0]})
            found.append({choice["tokens"][0]: choice["token_logprobs"][0]})
    merged = {}
    for part in found:
        for token, p in part.items():
            assert merged.setdefault(token, p) == p
    assert len(merged) >= 5
