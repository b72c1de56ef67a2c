#!/usr/bin/env python3
"""Is a call that must be made always made, and are its arguments valid? A real model, temperature 1.

usage: calls.py [--requests N] [--concurrent N] [--seed N] [--server PROGRAM] [--model MODEL]

Each request has three tools with bounded schemas (answers.py) and demands a call: of any of them or
of a named one, in OpenAI's chat, responses and Anthropic's messages, some of them streamed. Every
answer must be exactly one call of a tool of the request, with arguments that are valid by the
`jsonschema` package, and must say that it ended with a call.

Exit code 0: all of them are.
"""
import argparse
import concurrent.futures
import json
import random
import sys
import time

from answers import TOKENS_MAX, Bounded, fault_of
from cli_lib import JITNEY
from server_lib import Server

NAMES = ("get_weather", "book_train", "send_mail", "find_hotel", "make_note", "add_event")


def ask_chat(server, tools, name, number):
    body = {
        "model": server.model, "messages": [{"role": "user", "content": "Please use a tool."}],
        "temperature": 1, "seed": number, "max_tokens": TOKENS_MAX,
        "tools": [{"type": "function", "function": {"name": n, "parameters": s, "strict": True}}
                  for n, s in tools.items()],
        "tool_choice": {"type": "function", "function": {"name": name}} if name else "required"}
    if number % 2:
        choice = server.post("/v1/chat/completions", body, timeout=600).json["choices"][0]
        calls = [c["function"] for c in choice["message"].get("tool_calls", [])]
        return choice["finish_reason"], [(c["name"], c["arguments"]) for c in calls]
    reply = server.post("/v1/chat/completions", {**body, "stream": True}, timeout=600)
    choices = [chunk["choices"][0] for chunk in reply.data if chunk.get("choices")]
    pieces = [c["function"] for choice in choices for c in choice["delta"].get("tool_calls", [])]
    names = [p["name"] for p in pieces if "name" in p]
    return choices[-1]["finish_reason"], [(names[0], "".join(p["arguments"] for p in pieces))]


def ask_responses(server, tools, name, number):
    reply = server.post("/v1/responses", {
        "model": server.model, "input": "Please use a tool.", "temperature": 1, "seed": number,
        "max_output_tokens": TOKENS_MAX,
        "tools": [{"type": "function", "name": n, "parameters": s, "strict": True}
                  for n, s in tools.items()],
        "tool_choice": {"type": "function", "name": name} if name else "required"}, timeout=600).json
    calls = [(i["name"], i["arguments"]) for i in reply["output"] if i["type"] == "function_call"]
    return "tool_calls" if reply["status"] == "completed" else "length", calls


def ask_anthropic(server, tools, name, number):
    reply = server.post("/v1/messages", {
        "model": server.model, "messages": [{"role": "user", "content": "Please use a tool."}],
        "temperature": 1, "max_tokens": TOKENS_MAX, "seed": number,
        "tools": [{"name": n, "input_schema": s} for n, s in tools.items()],
        "tool_choice": {"type": "tool", "name": name} if name else {"type": "any"}},
        timeout=600).json
    calls = [(b["name"], json.dumps(b["input"])) for b in reply["content"]
             if b["type"] == "tool_use"]
    return "tool_calls" if reply["stop_reason"] == "tool_use" else "length", calls


def fault_in(server, number, rng):
    """What is wrong with the answer to request `number`; "" if nothing."""
    maker = Bounded(rng)
    tools = {name: maker.record(2) for name in rng.sample(NAMES, 3)}
    named = rng.choice(list(tools)) if number % 3 == 0 else ""
    ask = (ask_chat, ask_responses, ask_chat, ask_anthropic)[number // 2 % 4]
    reason, calls = ask(server, tools, named, number)
    if reason != "tool_calls" or len(calls) != 1:
        return f"{reason}, {len(calls)} calls: {calls}"
    name, arguments = calls[0]
    if name not in tools or (named and name != named):
        return f"calls {name}, asked for {named or list(tools)}"
    fault = fault_of(tools[name], arguments)
    return f"{fault}\n  schema {json.dumps(tools[name])}\n  arguments {arguments}" if fault else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--concurrent", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", default=str(JITNEY))
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    began, right = time.monotonic(), 0
    with Server(options.model, "--set", f"max_seqs={options.concurrent}",
                program=options.server) as server:
        with concurrent.futures.ThreadPoolExecutor(options.concurrent) as pool:
            jobs = {pool.submit(fault_in, server, i, random.Random(f"{options.seed} {i}")): i
                    for i in range(options.requests)}
            for job in concurrent.futures.as_completed(jobs):
                right += job.result() == ""
                if job.result():
                    print(f"request {jobs[job]}: {job.result()}")
    print(f"forced calls, seed {options.seed}, {time.monotonic() - began:.0f} s: "
          f"{right} of {options.requests} are one valid call")
    return 0 if right == options.requests else 1


if __name__ == "__main__":
    sys.exit(main())
