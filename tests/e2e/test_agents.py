"""Goal:   agents of openai-agents, langgraph, pydantic-ai, smolagents, instructor, anthropic and
        ollama run a loop in which the second call needs the result of the first one, streamed and
        not, with nothing but the server's address changed.
Method: a model whose answer is chosen by the last message (scripted_model.py), so that a lost or
        misplaced result changes it; its template refuses results without their call. Calls, ids,
        order, last text and counted tokens are compared."""

import json
import subprocess

import pytest

from cli_lib import ROOT
from scripted_model import turns_model
from server_lib import Server

PYTHON = ROOT / "build" / "venv-frameworks" / "bin" / "python"
QUESTION = "How is the weather where Ada is?"
CALLS = [["find_city", {"person": "Ada"}], ["weather", {"city": "Rome"}]]
FINAL = "It is sunny in Rome."
RESULTS = {"find_city": "Rome", "weather": "sunny"}


def call_text(name, **arguments):
    call = {"name": name, "arguments": arguments}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


TURNS = {
    # smolagents must call a tool in every turn, and sends results as text
    "Observation:\nsunny": call_text("final_answer", answer=FINAL),
    "Observation:\nRome": call_text("weather", city="Rome"),
    # instructor names the tool of each turn
    "(partial)": call_text("Partialfind_city", person="Ada"),
    "partial: Rome": call_text("Partialweather", city="Rome"),
    "object: Rome": call_text("weather", city="Rome"),
    # both calls at once
    "both": call_text("find_city", person="Ada") + "\n" + call_text("weather", city="Rome"),
    "sunny": FINAL,
    "Rome": "Now the weather. " + call_text("weather", city="Rome"),
    "": call_text("find_city", person="Ada"),
}
AUTO = ("", "Rome", "sunny")  # the turns of agents that may answer with text
SMOL = ("", "Observation:\nRome", "Observation:\nsunny")
PARAMETERS = {name: {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
              for name, key in (("find_city", "person"), ("weather", "city"))}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}}
         for name, schema in PARAMETERS.items()]


@pytest.fixture(scope="module", name="scripted")
def scripted_fixture(tmp_path_factory):
    model, scripts = turns_model(tmp_path_factory.mktemp("agents") / "m", TURNS)
    with Server(model, "--tool-form", "hermes", "--served-model-name", "m",
                "--kv-memory", "64M") as server:
        yield server, scripts


def tokens_of(scripts, turns, are_forced=False):
    """With the token that ends an answer; behind a call that must be made nothing else can come, so
    it ends without one."""
    return sum(len(scripts[turn]) + (not are_forced) for turn in turns)


@pytest.mark.skipif(not PYTHON.exists(), reason="build/venv-frameworks is not made (make test)")
def test_frameworks_run_the_loop(scripted):
    server, scripts = scripted
    client = ROOT / "tests" / "e2e" / "agents_client.py"
    said = subprocess.run([PYTHON, client, server.url, "m"], capture_output=True, text=True,
                          timeout=300, check=False)
    assert said.returncode == 0, said.stderr
    answers = json.loads(said.stdout.splitlines()[-1])
    assert len(answers) == 16
    for name, answer in answers.items():
        assert isinstance(answer, dict), f"{name}: {answer}"
        assert (answer["calls"], answer["text"]) == (CALLS, FINAL), name
        made, returned = answer["ids"]
        assert made == returned and len(made) >= 2, name
        if name != "instructor, tools, streamed":
            assert len(set(made)) == len(made) and all(i.startswith("call_") for i in made), name
        if answer["tokens"] is not None:
            are_forced = name.startswith("smolagents")
            turns = SMOL if are_forced else AUTO
            assert answer["tokens"] == tokens_of(scripts, turns, are_forced), name


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_s_tool_runner_goes_on_without_threads(scripted, stream):
    anthropic = pytest.importorskip("anthropic", reason="the package anthropic is not installed")
    server, _ = scripted
    made = []

    @anthropic.beta_tool
    def find_city(person: str) -> str:
        """The city of a person."""
        made.append(["find_city", {"person": person}])
        return RESULTS["find_city"]

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """The weather in a city."""
        made.append(["weather", {"city": city}])
        return RESULTS["weather"]

    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=100, tools=[find_city, weather], stream=stream,
            messages=[{"role": "user", "content": QUESTION}])
        last = runner.until_done()
    assert made == CALLS
    assert [b.text for b in last.content] == [FINAL]


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_runs_the_loop(scripted, stream):
    anthropic = pytest.importorskip("anthropic", reason="the package anthropic is not installed")
    server, scripts = scripted
    tools = [{"name": name, "input_schema": schema} for name, schema in PARAMETERS.items()]
    messages = [{"role": "user", "content": QUESTION}]
    made, tokens = [], 0
    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as client:
        for _ in range(len(CALLS) + 1):
            options = {"model": "m", "max_tokens": 100, "messages": messages, "tools": tools}
            if stream:
                with client.messages.stream(**options) as events:
                    answer = events.get_final_message()
            else:
                answer = client.messages.create(**options)
            tokens += answer.usage.output_tokens
            messages.append({"role": "assistant", "content": answer.content})
            uses = [b for b in answer.content if b.type == "tool_use"]
            made += [[b.name, b.input] for b in uses]
            assert answer.stop_reason == ("tool_use" if uses else "end_turn")
            messages.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": b.id, "content": RESULTS[b.name]}
                for b in uses]})
    assert made == CALLS
    assert [b.text for b in answer.content] == [FINAL]
    assert tokens == tokens_of(scripts, AUTO)


@pytest.mark.parametrize("stream", [False, True])
def test_ollama_runs_the_loop(scripted, stream):
    ollama = pytest.importorskip("ollama", reason="the package ollama is not installed")
    server, scripts = scripted
    client = ollama.Client(host=server.url)
    messages = [{"role": "user", "content": QUESTION}]
    made, tokens = [], 0
    for _ in range(len(CALLS) + 1):
        options = {"model": "m", "messages": messages, "tools": TOOLS,
                   "options": {"temperature": 0, "repeat_penalty": 1}}
        parts = list(client.chat(**options, stream=True)) if stream else [client.chat(**options)]
        text = "".join(p.message.content or "" for p in parts)
        calls = [c for p in parts for c in p.message.tool_calls or []]
        assert parts[-1].done_reason == "stop"
        tokens += parts[-1].eval_count
        made += [[c.function.name, dict(c.function.arguments)] for c in calls]
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        messages += [{"role": "tool", "tool_name": c.function.name,
                      "content": RESULTS[c.function.name]} for c in calls]
    assert (made, text) == (CALLS, FINAL)
    assert tokens == tokens_of(scripts, AUTO)


# --- two calls in one answer, and both results ---


def chat_turn(server, messages):
    answer = server.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS}).json
    choice = answer["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
    results = [{"role": "tool", "tool_call_id": c["id"], "content": RESULTS[c["function"]["name"]]}
               for c in calls]
    return (choice["message"]["content"],
            [[c["function"]["name"], json.loads(c["function"]["arguments"])] for c in calls],
            [choice["message"]], results)


def responses_turn(server, items):
    tools = [{"type": "function", "name": name, "parameters": schema}
             for name, schema in PARAMETERS.items()]
    answer = server.post("/v1/responses", {"input": items, "tools": tools}).json
    assert answer["status"] == "completed"
    calls = [i for i in answer["output"] if i["type"] == "function_call"]
    text = "".join(p["text"] for i in answer["output"] if i["type"] == "message"
                   for p in i["content"])
    results = [{"type": "function_call_output", "call_id": c["call_id"],
                "output": RESULTS[c["name"]]} for c in calls]
    return (text, [[c["name"], json.loads(c["arguments"])] for c in calls], answer["output"],
            results)


def anthropic_turn(server, messages):
    tools = [{"name": name, "input_schema": schema} for name, schema in PARAMETERS.items()]
    answer = server.post("/v1/messages", {"messages": messages, "tools": tools,
                                          "max_tokens": 100}).json
    uses = [b for b in answer["content"] if b["type"] == "tool_use"]
    assert answer["stop_reason"] == ("tool_use" if uses else "end_turn")
    text = "".join(b["text"] for b in answer["content"] if b["type"] == "text")
    results = [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": b["id"], "content": RESULTS[b["name"]],
         "is_error": False} for b in uses]}]
    return (text, [[b["name"], b["input"]] for b in uses],
            [{"role": "assistant", "content": answer["content"]}], results)


def ollama_turn(server, messages):
    answer = server.post("/api/chat", {"model": "m", "messages": messages, "tools": TOOLS,
                                       "stream": False, "options": {
                                           "temperature": 0, "repeat_penalty": 1}}).json
    calls = answer["message"].get("tool_calls") or []
    assert answer["done_reason"] == "stop"
    results = [{"role": "tool", "content": RESULTS[c["function"]["name"]]} for c in calls]
    return (answer["message"]["content"],
            [[c["function"]["name"], c["function"]["arguments"]] for c in calls],
            [answer["message"]], results)


@pytest.mark.parametrize("turn", [chat_turn, responses_turn, anthropic_turn, ollama_turn])
def test_two_calls_at_once_and_both_results(scripted, turn):
    server, _ = scripted
    history = [{"role": "user", "content": "Find both."}]
    _, calls, said, results = turn(server, history)
    assert calls == CALLS
    text, calls, _, _ = turn(server, history + said + results)
    assert (text, calls) == (FINAL, [])


@pytest.mark.parametrize("path, body, place", [
    ("/v1/chat/completions", {"messages": [
        {"role": "assistant", "tool_calls": [
            {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_x", "content": "1"}]}, "messages[1].tool_call_id"),
    ("/v1/responses", {"input": [
        {"type": "function_call", "call_id": "call_a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_x", "output": "1"}]}, "input[1].call_id"),
    ("/v1/messages", {"max_tokens": 9, "messages": [
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "call_a", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_x", "content": "1"}]}]},
     "messages[1].content[0].tool_use_id"),
])
def test_an_unknown_id_is_refused_with_its_place(scripted, path, body, place):
    server, _ = scripted
    reply = server.post(path, {"model": "m", **body})
    assert reply.status == 400
    assert reply.error["message"].startswith(
        f"Invalid '{place}': no tool call that awaits a result has the id 'call_x'")
    assert "'call_a'" in reply.error["message"]
