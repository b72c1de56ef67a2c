"""Goal:   tool calls in a model's answer are sent in each API's format, the same in a stream as in
        a whole answer.
Method: models that say a known text token by token (scripted_model.py), one for each spelling,
        behind one server; OpenAI's, Anthropic's and Ollama's packages ask."""

import json

import pytest

from scripted_model import scripted_model
from server_lib import Server, checking_hook

pytest.importorskip("openai", reason="the package openai is not installed")

SCRIPTS = {
    "hermes": ["Let me", " look. ", "<tool_", "call>", '{"name": "wea', 'ther", "argu',
               'ments": {"ci', 'ty": "Ro', 'me"}}', "</tool_", "call> "],
    "llama3": ['{"na', 'me": "weather", ', '"para', 'meters": {"city"', ': "Rome"', "}}"],
    "mistral": ["[TOOL", "_CALLS]", '[{"name": "weath', 'er", "arguments"', ': {"city": ', '"Rome"}',
                "}]"],
    "gemma": ["Let me look.", "\n```tool", "_code\nweather", '(city="Ro', 'me"', ")\n", "```"],
    "granite": ["<|tool", "_call|>[", '{"name": "weather", "argu', 'ments": {"city"', ': "Rome"}',
                "}]"],
    "phi4": ["<|tool_", "call|>[", '{"name": "weather",', ' "arguments": {"ci', 'ty": "Rome"}', "}]",
             "<|/tool_call|>"],
    "pythonic": ["[weat", "her(ci", "ty='Ro", "me'", ")]"],
    "json": ['{"name"', ': "weather", "arguments', '": {"city": "', 'Rome"}', "} "],
}
BEFORE = {"hermes": "Let me look.", "gemma": "Let me look."}  # what is said before the call, without its blanks
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
QUESTION = [{"role": "user", "content": "How is the weather in Rome?"}]


@pytest.fixture(scope="module", name="servers")
def servers_fixture(tmp_path_factory):
    found = {}
    folder = tmp_path_factory.mktemp("tools")
    try:
        for form, pieces in SCRIPTS.items():
            model = scripted_model(folder / form, pieces)
            found[form] = Server(model, "--tool-form", form, "--served-model-name", "m",
                                 "--kv-memory", "64M")
        yield found
        for server in found.values():
            server.stop()
    finally:
        for server in found.values():
            server.kill()


def openai_client(server):
    import httpx2
    import openai
    http = httpx2.Client(event_hooks={"response": [checking_hook(server)]})
    return openai.OpenAI(base_url=server.url + "/v1", api_key="any", http_client=http)


def check_call(name, arguments):
    assert name == "weather"
    assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == {"city": "Rome"}


@pytest.mark.parametrize("form", SCRIPTS)
def test_openai_chat(servers, form):
    with openai_client(servers[form]) as client:
        whole = client.chat.completions.create(model="m", messages=QUESTION, tools=TOOLS)
        stream = list(client.chat.completions.create(model="m", messages=QUESTION, tools=TOOLS,
                                                     stream=True))
    choice = whole.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert (choice.message.content or "").strip() == BEFORE.get(form, "")
    call, = choice.message.tool_calls
    assert call.type == "function" and call.id
    check_call(call.function.name, call.function.arguments)

    pieces = [p for c in stream for ch in c.choices for p in ch.delta.tool_calls or []]
    assert pieces[0].id and pieces[0].function.name == "weather"
    assert all(p.index == 0 and not p.id for p in pieces[1:])
    assert len(pieces) > 2  # arguments come as they are made
    assert "".join(p.function.arguments or "" for p in pieces) == call.function.arguments
    text = "".join(ch.delta.content or "" for c in stream for ch in c.choices)
    assert text == (choice.message.content or "")
    assert stream[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("form", SCRIPTS)
def test_without_tools_it_is_text(servers, form):
    with openai_client(servers[form]) as client:
        for extra in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            answer = client.chat.completions.create(model="m", messages=QUESTION, **extra)
            assert answer.choices[0].message.content == "".join(SCRIPTS[form])
            assert answer.choices[0].message.tool_calls is None
            assert answer.choices[0].finish_reason == "stop"


def test_openai_responses(servers):
    tools = [{"type": "function", **TOOLS[0]["function"]}]
    with openai_client(servers["hermes"]) as client:
        whole = client.responses.create(model="m", input="Weather?", tools=tools)
        events = list(client.responses.create(model="m", input="Weather?", tools=tools,
                                              stream=True))
    call = next(item for item in whole.output if item.type == "function_call")
    check_call(call.name, call.arguments)
    assert whole.output_text.strip() == BEFORE["hermes"]
    done = next(e for e in events if e.type == "response.function_call_arguments.done")
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert done.arguments == "".join(deltas) == call.arguments
    final = next(i for i in events[-1].response.output if i.type == "function_call")
    assert (final.name, final.arguments) == (call.name, call.arguments)


def test_anthropic_messages(servers):
    anthropic = pytest.importorskip("anthropic", reason="the package anthropic is not installed")
    tools = [{"name": "weather", "input_schema": TOOLS[0]["function"]["parameters"]}]
    server = servers["hermes"]
    with anthropic.Anthropic(base_url=server.url, api_key="any") as client:
        whole = client.messages.create(model="m", max_tokens=100, messages=QUESTION, tools=tools)
        with client.messages.stream(model="m", max_tokens=100, messages=QUESTION,
                                    tools=tools) as stream:
            streamed = stream.get_final_message()
    for answer in (whole, streamed):
        assert answer.stop_reason == "tool_use"
        text, call = answer.content
        assert text.type == "text" and text.text.strip() == BEFORE["hermes"]
        assert call.type == "tool_use"
        check_call(call.name, call.input)


def test_ollama_chat(servers):
    ollama = pytest.importorskip("ollama", reason="the package ollama is not installed")
    client = ollama.Client(host=servers["hermes"].url)
    whole = client.chat(model="m", messages=QUESTION, tools=TOOLS)
    call, = whole.message.tool_calls
    check_call(call.function.name, dict(call.function.arguments))
    parts = list(client.chat(model="m", messages=QUESTION, tools=TOOLS, stream=True))
    calls = [c for p in parts for c in p.message.tool_calls or []]
    assert len(calls) == 1
    check_call(calls[0].function.name, dict(calls[0].function.arguments))


def test_a_stop_string_across_tokens(servers):
    with openai_client(servers["hermes"]) as client:
        for stream in (False, True):
            answer = client.chat.completions.create(model="m", messages=QUESTION, stop="me lo",
                                                    stream=stream)
            if stream:
                text = "".join(c.choices[0].delta.content or "" for c in answer)
            else:
                text = answer.choices[0].message.content
            assert text == "Let "
