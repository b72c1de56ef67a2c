"""Goal:   `tool_choice` is kept to: a call that must be made is made, also by a model that would not
        have begun one by itself.
Method: a model that says a known text (scripted_model.py), which is the rest of a call: only behind
        the beginning of one it makes sense. OpenAI's and Anthropic's shapes."""

import json

import pytest

from scripted_model import scripted_model
from server_lib import Server

SCRIPT = ['weather", "arguments": {', '"city"', ': "Rome"', "}}", "\n</tool_call>"]
PLAIN = "".join(SCRIPT)
TOOL = {"name": "weather", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": TOOL}]
NAMED = {"type": "function", "function": {"name": "weather"}}
OTHER = [{"type": "function", "function": {"name": "clock"}}]
QUESTION = [{"role": "user", "content": "How is the weather in Rome?"}]


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    model = scripted_model(tmp_path_factory.mktemp("choice") / "hermes", SCRIPT)
    with Server(model, "--tool-form", "hermes", "--served-model-name", "m",
                "--kv-memory", "64M") as server:
        yield server


def ask(server, **fields):
    answer = server.post("/v1/chat/completions", {"messages": QUESTION, **fields})
    assert answer.status == 200
    return answer.json


def test_without_a_choice_it_is_text(server):
    message = ask(server, tools=TOOLS)["choices"][0]["message"]
    assert message["content"] == PLAIN
    assert "tool_calls" not in message


@pytest.mark.parametrize("choice, tools", [
    ("required", TOOLS), (NAMED, TOOLS), (NAMED, TOOLS + OTHER)])
def test_a_tool_call_is_made(server, choice, tools):
    choice = ask(server, tools=tools, tool_choice=choice)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}


def test_anthropic_s_tool_is_used(server):
    answer = server.post("/v1/messages", {
        "max_tokens": 50, "messages": QUESTION, "tool_choice": {"type": "tool", "name": "weather"},
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}]}).json
    assert answer["stop_reason"] == "tool_use"
    assert [(b["type"], b.get("input")) for b in answer["content"]] == [
        ("tool_use", {"city": "Rome"})]
