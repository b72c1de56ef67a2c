"""Goal:   `tool_choice` is kept to: a call that must be made is made, also by a model that would say
        something else; its arguments are as the tool's schema says; the answer ends behind it. A
        schema that cannot be kept is refused for a strict tool and reported for others.
Method: a model that says a known text (scripted_model.py) and no call. Where the schema leaves one
        possibility, the answer is known whatever the model would say."""

import contextlib
import functools
import json

import pytest

from scripted_model import scripted_model
from server_lib import Server

PLAIN = ["The ", "weather ", "in ", "Rome ", "is ", "fine."]
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"],
        "additionalProperties": False}
REMOTE = {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}}
QUESTION = [{"role": "user", "content": "How is the weather in Rome?"}]
NAMED = {"type": "function", "function": {"name": "weather"}}


def tool(name="weather", schema=None, **more):
    return {"type": "function", "function": {"name": name, "parameters": schema or CITY, **more}}


FORMS = ["deepseek", "gemma", "glm4", "granite", "hermes", "json", "kimi", "llama3", "mistral",
         "phi4", "pythonic", "qwen3_coder"]


@pytest.fixture(scope="module", name="models")
def models_fixture(tmp_path_factory):
    return scripted_model(tmp_path_factory.mktemp("choice") / "plain", PLAIN)


@pytest.fixture(scope="module", name="servers")
def servers_fixture(models):
    """A server for each form, started when it is first asked for."""
    with contextlib.ExitStack() as stack:
        @functools.cache
        def server_of(form):
            return stack.enter_context(Server(models, "--tool-form", form, "--served-model-name",
                                              "m", "--kv-memory", "64M"))
        yield server_of


@pytest.fixture(name="server")
def server_fixture(servers):
    return servers("hermes")


def ask(server, **fields):
    return server.post("/v1/chat/completions", {"messages": QUESTION, **fields})


def test_without_a_choice_it_is_text(server):
    message = ask(server, tools=[tool()]).json["choices"][0]["message"]
    assert message["content"] == "".join(PLAIN)
    assert "tool_calls" not in message


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("choice, others", [("required", 0), (NAMED, 0), (NAMED, 2)])
def test_a_call_is_made_and_ends_the_answer(servers, form, choice, others):
    tools = [tool(), *(tool(f"other{i}", {"type": "object"}) for i in range(others))]
    answer = ask(servers(form), tools=tools, tool_choice=choice, max_tokens=400).json
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}


def test_the_other_dialects_force_calls_as_well(server):
    anthropic = server.post("/v1/messages", {
        "max_tokens": 100, "messages": QUESTION, "tool_choice": {"type": "any"},
        "tools": [{"name": "weather", "input_schema": CITY}]}).json
    assert anthropic["stop_reason"] == "tool_use"
    assert [(b["type"], b.get("input")) for b in anthropic["content"]] == [
        ("tool_use", {"city": "Rome"})]
    responses = server.post("/v1/responses", {
        "input": "x", "tool_choice": {"type": "function", "name": "weather"},
        "tools": [{"type": "function", "name": "weather", "parameters": CITY}]}).json
    (item,) = responses["output"]
    assert (item["type"], item["name"], responses["status"]) == (
        "function_call", "weather", "completed")
    assert json.loads(item["arguments"]) == {"city": "Rome"}


def test_a_call_that_is_cut_says_length(server):
    forced = {"tools": [tool()], "tool_choice": "required", "temperature": 0}
    whole = ask(server, **forced).json["usage"]["completion_tokens"]
    for tokens in (whole - 1, whole // 2):
        answer = ask(server, **forced, max_tokens=tokens)
        if answer.status == 400:  # the text before the arguments does not fit
            assert "tokens" in answer.error["message"]
        else:
            assert answer.json["choices"][0]["finish_reason"] == "length"


def test_a_strict_schema_that_cannot_be_kept_is_refused_by_name(server):
    for choice in ("auto", "required"):
        answer = ask(server, tools=[tool(), tool("b", REMOTE, strict=True)], tool_choice=choice)
        assert (answer.status, answer.error["param"]) == (400, "tools")
        assert "tools[1].function.parameters#/properties/a" in answer.error["message"]
        assert "$ref" in answer.error["message"]
    answer = server.post("/v1/responses", {
        "input": "x", "tools": [{"type": "function", "name": "b", "parameters": REMOTE,
                                 "strict": True}]})
    assert "tools[0].parameters#/properties/a" in answer.error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_cannot_be_kept_is_reported_in_a_header(server, stream):
    forced = {"tool_choice": "required", "stream": stream, "max_tokens": 60}
    answer = ask(server, tools=[tool(), tool("b", REMOTE)], **forced)
    assert answer.status == 200
    assert answer.headers["x-jitney-warning"].startswith(
        "tools[1].function.parameters#/properties/a: ")
    assert "x-jitney-warning" not in ask(server, tools=[tool()], **forced).headers


def test_tools_and_a_format_work_together(server):
    """The answer is a call, or what the format says."""
    format_of = {"type": "json_schema", "json_schema": {"name": "n", "schema": CITY}}
    answer = ask(server, tools=[tool(strict=True)], response_format=format_of,
                 temperature=0, max_tokens=100).json["choices"][0]
    message = answer["message"]
    if "tool_calls" in message:
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}
    else:
        assert json.loads(message["content"]) == {"city": "Rome"}
    forced = ask(server, tools=[tool()], response_format=format_of, tool_choice="required")
    assert forced.json["choices"][0]["finish_reason"] == "tool_calls"


def test_forced_calls_of_the_simulated_model_are_refused(models):
    with Server(models, "--runner", "sim:100", "--served-model-name", "m") as server:
        answer = ask(server, tools=[tool()], tool_choice="required")
        assert (answer.status, answer.error["param"]) == (400, "tool_choice")
        assert ask(server, tools=[tool()]).status == 200
