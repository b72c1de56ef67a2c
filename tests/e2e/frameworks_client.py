"""Asks a server for one object through each framework, and prints what each gives as JSON.

usage: frameworks_client.py URL MODEL

It runs in build/venv-frameworks (tests/frameworks-requirements.txt): the frameworks want other
versions of the openai package than the tests of the server."""

import asyncio
import json
import os
import sys

import agents
import instructor
import openai
import pydantic
import pydantic_ai
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

QUESTION = "Who is Ada?"


class Person(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=200)
    tags: list[str] = pydantic.Field(max_length=3)


def ask_instructor(url, model, mode):
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        return instructor.from_openai(client, mode=mode).chat.completions.create(
            model=model, messages=[{"role": "user", "content": QUESTION}], response_model=Person,
            max_retries=0, temperature=0)


async def ask_pydantic_ai(url, name, model_type, output):
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
        model = model_type(name, provider=OpenAIProvider(openai_client=client))
        agent = pydantic_ai.Agent(model, output_type=output(Person), retries=0)
        return (await agent.run(QUESTION)).output


async def ask_agents(url, name, model_type):
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
        agent = agents.Agent(name="x", model=model_type(model=name, openai_client=client),
                             output_type=Person)
        return (await agents.Runner.run(agent, QUESTION)).final_output


def main():
    url, model = sys.argv[1] + "/v1", sys.argv[2]
    agents.set_tracing_disabled(True)
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    native, prompted = pydantic_ai.NativeOutput, pydantic_ai.PromptedOutput
    asks = {
        "instructor, schema": lambda: ask_instructor(url, model, instructor.Mode.JSON_SCHEMA),
        "instructor, json": lambda: ask_instructor(url, model, instructor.Mode.JSON),
        "pydantic-ai, native": lambda: asyncio.run(
            ask_pydantic_ai(url, model, OpenAIChatModel, native)),
        "pydantic-ai, prompted": lambda: asyncio.run(
            ask_pydantic_ai(url, model, OpenAIChatModel, prompted)),
        "pydantic-ai, responses": lambda: asyncio.run(
            ask_pydantic_ai(url, model, OpenAIResponsesModel, native)),
        "openai-agents, chat": lambda: asyncio.run(
            ask_agents(url, model, agents.OpenAIChatCompletionsModel)),
        "openai-agents, responses": lambda: asyncio.run(
            ask_agents(url, model, agents.OpenAIResponsesModel)),
    }
    answers = {}
    for name, ask in asks.items():
        try:
            answers[name] = ask().model_dump()
        except Exception as error:  # the test shows it beside the other answers
            answers[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
