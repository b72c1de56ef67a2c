"""Goal:   forced calls, calls of strict tools and thoughts with a budget are the same bits alone and
        in a batch, whole and streamed, at depth 0 and 1 of the pipeline.
Method: a tiny random model whose template has a place for thoughts, temperature 1 and a seed for
        each request; every answer with its log-probabilities is first made alone and then beside all
        the others, with room for a few sequences, so that some are preempted."""

import concurrent.futures
import json

import pytest

from cli_lib import talking_model
from server_lib import Server

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12},
                                           "days": {"type": "integer", "minimum": 1, "maximum": 30}},
          "required": ["city", "days"], "additionalProperties": False}
TEMPLATE = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: "
            "{{ m.content }}\n{% endfor %}assistant: <think>\n")
BATCH = 12


def tools(strict):
    return [{"type": "function", "function": {"name": name, "parameters": SCHEMA, "strict": strict}}
            for name in ("weather", "trip")]


def body_of(number):
    body = {"messages": [{"role": "user", "content": "Tell me more. " * (1 + number % 5)}],
            "temperature": 1, "seed": number, "max_tokens": 90, "logprobs": True,
            "thinking_token_budget": 8 + number}
    kinds = ({"tools": tools(False), "tool_choice": "required"}, {"tools": tools(True)},
             {"tools": tools(True), "tool_choice": {"type": "function",
                                                    "function": {"name": "trip"}}},
             {"response_format": {"type": "json_schema",
                                  "json_schema": {"name": "n", "schema": SCHEMA}}})
    return body | kinds[number % len(kinds)]


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    folder = talking_model(tmp_path_factory.mktemp("identity") / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 2048
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def ask(server, number):
    reply = server.post("/v1/chat/completions", body_of(number))
    assert reply.status == 200, reply.body
    choice = reply.json["choices"][0]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", [])]
    return (choice["finish_reason"], message.get("reasoning_content"), message["content"], calls,
            choice["logprobs"])


def streamed(server, number):
    reply = server.post("/v1/chat/completions", {**body_of(number), "stream": True})
    choices = [chunk["choices"][0] for chunk in reply.data if chunk.get("choices")]
    deltas = [choice["delta"] for choice in choices]
    pieces = [piece["function"] for d in deltas for piece in d.get("tool_calls", [])]
    return (choices[-1]["finish_reason"], "".join(d.get("reasoning_content", "") for d in deltas),
            "".join(d.get("content") or "" for d in deltas),
            "".join(p.get("name", "") + p.get("arguments", "") for p in pieces))


@pytest.mark.parametrize("flags", [(), ("--device", "delayed")], ids=["depth 0", "depth 1"])
def test_alone_and_in_a_batch_the_answers_are_the_same(model, flags):
    with Server(model, "--served-model-name", "m", "--kv-memory", "64M", "--set", "max_seqs=8",
                "--tool-form", "hermes", *flags) as server:
        alone = [ask(server, i) for i in range(BATCH)]
        with concurrent.futures.ThreadPoolExecutor(BATCH) as pool:
            batch = list(pool.map(lambda i: ask(server, i), range(BATCH)))
        assert batch == alone
        for i in range(BATCH):
            finish, thought, text, calls = streamed(server, i)
            whole = alone[i]
            assert (finish, thought, text) == (whole[0], whole[1] or "", whole[2] or "")
            assert calls == "".join(c["name"] + c["arguments"] for c in whole[3])
    assert sum(len(a[3]) for a in alone) >= BATCH // 2  # forced calls are there
    assert all(a[1] for a in alone)  # so are thoughts, which their budget has ended
