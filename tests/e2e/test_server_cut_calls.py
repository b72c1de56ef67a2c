"""Goal:   a tool call that max_tokens cuts is said to be cut in every API, and is given as the model
        wrote it: nobody gets arguments that the model has not written.
Method: a model that says a known call token by token (scripted_model.py); every limit of tokens, in
        four APIs, whole and streamed."""

import json

import pytest

from scripted_model import scripted_model
from server_lib import Server, parse_events

ARGUMENTS = '{"city": "Rome", "days": [1, 2]}'
PIECES = ["Look", ". ", "<tool_", "call>", '{"name": "wea', 'ther"', ', "argu', 'ments": {"ci',
          'ty": "Ro', 'me", "da', 'ys": [1', ", 2", "]}", "} ", "\n</tool", "_call>"]
LIMITS = range(1, len(PIECES) + 1)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
QUESTION = [{"role": "user", "content": "Weather?"}]


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    model = scripted_model(tmp_path_factory.mktemp("cut") / "m", PIECES)
    with Server(model, "--tool-form", "hermes", "--served-model-name", "m",
                "--kv-memory", "64M") as server:
        yield server


def written(limit):
    """What the model has written of the arguments; None: the call's name is not whole."""
    text = "".join(PIECES[:limit])
    if '"weather"' not in text:
        return None
    _, _, arguments = text.partition('"arguments": ')
    return arguments.removesuffix("\n</tool_call>").rstrip()[:len(ARGUMENTS)]


def stream_of(server, path, body):
    reply = server.post(path, {**body, "stream": True})
    assert reply.status == 200
    return [json.loads(d) for _, _, d in parse_events(reply.body.decode()) if d != "[DONE]"]


@pytest.mark.parametrize("limit", LIMITS)
def test_chat(server, limit):
    body = {"messages": QUESTION, "tools": TOOLS, "max_tokens": limit}
    choice = server.post("/v1/chat/completions", body).json["choices"][0]
    chunks = [c["choices"][0] for c in stream_of(server, "/v1/chat/completions", body)]
    assert choice["finish_reason"] == chunks[-1]["finish_reason"] == "length"
    calls = [c for chunk in chunks for c in chunk["delta"].get("tool_calls", [])]
    text = "".join(chunk["delta"].get("content") or "" for chunk in chunks)
    assert text == (choice["message"]["content"] or "")
    if written(limit) is None:
        assert not calls and "tool_calls" not in choice["message"]
        assert text == "".join(PIECES[:limit])
        return
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": written(limit)}
    assert "".join(c["function"]["arguments"] for c in calls) == written(limit)


@pytest.mark.parametrize("limit", LIMITS)
def test_responses(server, limit):
    body = {"input": "Weather?", "max_output_tokens": limit,
            "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA}]}
    whole = server.post("/v1/responses", body).json
    events = stream_of(server, "/v1/responses", body)
    assert events[-1]["type"] == "response.incomplete"
    for answer in (whole, events[-1]["response"]):
        assert answer["status"] == "incomplete"
        assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
        calls = [i for i in answer["output"] if i["type"] == "function_call"]
        assert answer["output"][-1]["status"] == "incomplete"
        assert [c["arguments"] for c in calls] == [
            a for a in (written(limit),) if a is not None]
    deltas = [e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"]
    done = [e["item"]["status"] for e in events if e["type"] == "response.output_item.done"]
    assert "".join(deltas) == (written(limit) or "")
    assert done[-1] == "incomplete"


@pytest.mark.parametrize("limit", LIMITS)
def test_anthropic(server, limit):
    body = {"messages": QUESTION, "max_tokens": limit,
            "tools": [{"name": "weather", "input_schema": SCHEMA}]}
    whole = server.post("/v1/messages", body).json
    events = stream_of(server, "/v1/messages", body)
    last = next(e for e in events if e["type"] == "message_delta")
    assert whole["stop_reason"] == last["delta"]["stop_reason"] == "max_tokens"
    uses = [b["input"] for b in whole["content"] if b["type"] == "tool_use"]
    text = "".join(b["text"] for b in whole["content"] if b["type"] == "text")
    arguments = written(limit)
    if arguments == ARGUMENTS:
        assert uses == [json.loads(ARGUMENTS)]
    else:  # an input is an object: a part of one is given as text
        assert not uses
        assert text == ("".join(PIECES[:limit]) if arguments is None
                        else f"Look. weather {arguments}")
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
    opened = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    assert [b["input"] for b in opened if b["type"] == "tool_use"] == [{}] * (arguments is not None)
    assert "".join(d.get("partial_json", "") for d in deltas) == (arguments or "")
    assert "".join(d.get("text", "") for d in deltas) == (
        "".join(PIECES[:limit]) if arguments is None else "Look. ")


@pytest.mark.parametrize("limit", LIMITS)
def test_ollama(server, limit):
    body = {"model": "m", "messages": QUESTION, "tools": TOOLS,
            "options": {"num_predict": limit, "temperature": 0, "repeat_penalty": 1}}
    whole = server.post("/api/chat", {**body, "stream": False}).json
    reply = server.post("/api/chat", {**body, "stream": True})
    lines = [json.loads(line) for line in reply.body.splitlines()]
    arguments = written(limit)
    for parts in ([whole], lines):
        assert parts[-1]["done_reason"] == "length"
        calls = [c["function"] for p in parts for c in p["message"].get("tool_calls", [])]
        text = "".join(p["message"]["content"] for p in parts)
        if arguments == ARGUMENTS:
            assert [c["arguments"] for c in calls] == [json.loads(ARGUMENTS)]
        else:
            assert not calls
            assert text == ("".join(PIECES[:limit]) if arguments is None
                            else f"Look. weather {arguments}")
