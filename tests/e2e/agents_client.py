"""Runs the same two-tool loop through each framework, and prints what each gives as JSON.

usage: agents_client.py URL MODEL

The model finds a person's city, asks for the weather there, and says it. An answer has the calls in
their order, the ids of calls and results, the last text and, where the framework counts them, the
tokens. It runs in build/venv-frameworks (tests/frameworks-requirements.txt)."""

import asyncio
import json
import logging
import os
import sys
import warnings

os.environ |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false",
               "HF_HUB_OFFLINE": "1"}
warnings.simplefilter("ignore")

import agents
import instructor
import openai
import pydantic
import pydantic_ai
import smolagents
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

QUESTION = "How is the weather where Ada is?"
CITIES = {"Ada": "Rome"}
WEATHER = {"Rome": "sunny"}


class Log:
    """The tools, and the calls that were made."""

    def __init__(self):
        self.calls = []

    def tools(self):
        def find_city(person: str) -> str:
            """The city where a person is.

            Args:
                person: the person's name
            """
            self.calls.append(["find_city", {"person": person}])
            return CITIES[person]

        def weather(city: str) -> str:
            """The weather in a city.

            Args:
                city: the city's name
            """
            self.calls.append(["weather", {"city": city}])
            return WEATHER[city]

        return find_city, weather

    def answer(self, text, ids=None, tokens=None):
        return {"calls": self.calls, "text": text, "ids": ids, "tokens": tokens}


def openai_client(url):
    return openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0)


# --- openai-agents ---


async def run_agents(url, name, model_type, stream):
    log = Log()
    async with openai_client(url) as client:
        agent = agents.Agent(name="x", model=model_type(model=name, openai_client=client),
                             tools=[agents.function_tool(f) for f in log.tools()],
                             model_settings=agents.ModelSettings(include_usage=True))
        if stream:
            done = agents.Runner.run_streamed(agent, QUESTION)
            async for _ in done.stream_events():
                pass
        else:
            done = await agents.Runner.run(agent, QUESTION)
    items = done.to_input_list()
    ids = [[i["call_id"] for i in items if i.get("type") == kind]
           for kind in ("function_call", "function_call_output")]
    return log.answer(done.final_output, ids, done.context_wrapper.usage.output_tokens)


# --- langgraph ---


def run_langgraph(url, name, stream, **options):
    log = Log()
    model = ChatOpenAI(base_url=url, api_key="any", model=name, max_retries=0, stream_usage=True,
                       **options)
    agent = create_react_agent(model, list(log.tools()))
    question = {"messages": [{"role": "user", "content": QUESTION}]}
    if stream:
        pieces = []
        for mode, piece in agent.stream(question, stream_mode=["messages", "values"]):
            if mode == "messages" and isinstance(piece[0], AIMessageChunk):
                pieces.append(piece[0].text)
            elif mode == "values":
                messages = piece["messages"]
    else:
        messages = agent.invoke(question)["messages"]
    said = [m for m in messages if isinstance(m, AIMessage)]
    if stream:
        assert "".join(pieces) == "".join(m.text for m in said) and len(pieces) > 9, pieces
    ids = [[c["id"] for m in said for c in m.tool_calls],
           [m.tool_call_id for m in messages if isinstance(m, ToolMessage)]]
    return log.answer(messages[-1].text, ids, sum(m.usage_metadata["output_tokens"] for m in said))


# --- pydantic-ai ---


async def read_events(_, events):
    async for _ in events:
        pass


async def run_pydantic_ai(url, name, model_type, stream):
    log = Log()
    async with openai_client(url) as client:
        model = model_type(name, provider=OpenAIProvider(openai_client=client))
        agent = pydantic_ai.Agent(model, tools=list(log.tools()), retries=0)
        done = await agent.run(QUESTION, event_stream_handler=read_events if stream else None)
    parts = [p for m in done.all_messages() for p in m.parts]
    ids = [[p.tool_call_id for p in parts if isinstance(p, kind)]
           for kind in (ToolCallPart, ToolReturnPart)]
    return log.answer(done.output, ids, done.usage.output_tokens)


# --- smolagents, which ends with a call of its own tool ---


def run_smolagents(url, name, stream):
    log = Log()
    model = smolagents.OpenAIServerModel(name, api_base=url, api_key="any",
                                         client_kwargs={"max_retries": 0})
    agent = smolagents.ToolCallingAgent([smolagents.tool(f) for f in log.tools()], model,
                                        stream_outputs=stream, max_steps=4,
                                        verbosity_level=smolagents.LogLevel.OFF)
    text = agent.run(QUESTION)
    made = [c for s in agent.memory.steps for c in getattr(s, "tool_calls", None) or []]
    tokens = sum(s.token_usage.output_tokens for s in agent.memory.steps
                 if getattr(s, "token_usage", None))
    ids = [c.id for c in made]
    return log.answer(text, [ids, ids], tokens)


# --- instructor: each step asks for the arguments of one tool ---


class find_city(pydantic.BaseModel):
    """The city where a person is."""
    person: str


class weather(pydantic.BaseModel):
    """The weather in a city."""
    city: str


def instructor_step(ask, options, stream):
    """The object, and the call as the next request has to repeat it."""
    if stream:  # instructor calls its tool Partial.., and keeps no id
        got = list(ask.create_partial(**options))[-1]
        function = {"name": "Partial" + options["response_model"].__name__,
                    "arguments": got.model_dump_json()}
        return got, {"id": "call_own", "type": "function", "function": function}
    got, whole = ask.create_with_completion(**options)
    call, = whole.choices[0].message.tool_calls
    return got, call.model_dump()


def run_instructor(url, name, stream):
    log = Log()
    mark = "partial" if stream else "object"  # the model's scripts name other tools
    messages = [{"role": "user", "content": f"{QUESTION} ({mark})"}]
    ids = [[], []]
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        ask = instructor.from_openai(client, mode=instructor.Mode.TOOLS).chat.completions
        for wanted, run in zip((find_city, weather), log.tools()):
            options = {"model": name, "messages": list(messages), "response_model": wanted,
                       "max_retries": 0}
            got, call = instructor_step(ask, options, stream)
            messages += [{"role": "assistant", "content": None, "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": call["id"],
                          "content": f"{mark}: {run(**got.model_dump())}"}]
            ids[0].append(call["id"])
            ids[1].append(messages[-1]["tool_call_id"])
        last = client.chat.completions.create(model=name, messages=messages)
    return log.answer(last.choices[0].message.content, ids)


def main():
    url, model = sys.argv[1] + "/v1", sys.argv[2]
    logging.disable(logging.CRITICAL)
    agents.set_tracing_disabled(True)
    runs = {}
    for stream in (False, True):
        word = "streamed" if stream else "whole"
        runs |= {
            f"openai-agents, chat, {word}": lambda s=stream: asyncio.run(
                run_agents(url, model, agents.OpenAIChatCompletionsModel, s)),
            f"openai-agents, responses, {word}": lambda s=stream: asyncio.run(
                run_agents(url, model, agents.OpenAIResponsesModel, s)),
            f"langgraph, chat, {word}": lambda s=stream: run_langgraph(url, model, s),
            f"langgraph, responses, {word}": lambda s=stream: run_langgraph(
                url, model, s, use_responses_api=True),
            f"pydantic-ai, chat, {word}": lambda s=stream: asyncio.run(
                run_pydantic_ai(url, model, OpenAIChatModel, s)),
            f"pydantic-ai, responses, {word}": lambda s=stream: asyncio.run(
                run_pydantic_ai(url, model, OpenAIResponsesModel, s)),
            f"smolagents, {word}": lambda s=stream: run_smolagents(url, model, s),
            f"instructor, tools, {word}": lambda s=stream: run_instructor(url, model, s),
        }
    answers = {}
    for name, run in runs.items():
        try:
            answers[name] = run()
        except Exception as error:  # the test shows it beside the other answers
            answers[name] = f"{type(error).__name__}: {error}"
    print()  # behind what smolagents has shown
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
