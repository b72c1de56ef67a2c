"""The recorded answers of the peers' codecs, read with the peers' own packages.

Goal:   what tests/unit/api/test_codec_*.c hold the codecs to is what the official clients can read:
        every object fits its model, and a stream adds up to the whole answer.
Method: parse tests/golden/api/*.txt (see tests/unit/api/codec_case.h for its form) and validate
        each line with the pydantic models of openai, anthropic and ollama.
"""

import json
import pathlib

import pytest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "api"


def read_cases(name, chapter=None):
    """{case: {"whole": object or None, "stream": [(name, object)]}} of a chapter ("=== chapter")."""
    cases, case, part, here = {}, None, None, None
    for line in (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("=== "):
            here = line[4:]
        elif here != chapter:
            continue
        elif line.startswith("== "):
            case, part = cases.setdefault(line[3:], {"whole": None, "stream": []}), None
        elif line.startswith("-- "):
            part = line[3:]
        elif part == "stream":
            kind, brace, rest = line.partition("{")
            case["stream"].append((kind.strip(), json.loads(brace + rest)))
        else:
            case["whole"] = json.loads(line)
    return cases


def params(name, chapter=None):
    return [pytest.param(case, id=key) for key, case in read_cases(name, chapter).items()]


@pytest.mark.parametrize("case", params("responses"))
def test_responses_fit_openai_s_models(case):
    responses = pytest.importorskip("openai.types.responses")
    pydantic = pytest.importorskip("pydantic")
    if case["whole"]:
        whole = responses.Response.model_validate(case["whole"])
        assert whole.output_text == "".join(
            part["text"] for item in case["whole"]["output"] if item["type"] == "message"
            for part in item["content"])
    adapter = pydantic.TypeAdapter(responses.ResponseStreamEvent)
    events = [adapter.validate_python(event) for _, event in case["stream"]]
    assert [event.type for event in events] == [name for name, _ in case["stream"]]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = case["stream"][-1][1]["response"]
    assert case["whole"] is None or last == case["whole"]


@pytest.mark.parametrize("case", params("responses"))
def test_a_responses_stream_adds_up_to_the_response(case):
    items = {}
    for name, event in case["stream"]:
        if name == "response.output_item.added":
            items[event["output_index"]] = event["item"]
        elif name == "response.content_part.added":
            items[event["output_index"]]["content"].append(event["part"])
        elif name in ("response.output_text.delta", "response.reasoning_text.delta"):
            items[event["output_index"]]["content"][event["content_index"]]["text"] += event["delta"]
        elif name == "response.function_call_arguments.delta":
            items[event["output_index"]]["arguments"] += event["delta"]
        elif name == "response.output_item.done":
            item = items[event["output_index"]]
            assert item["status"] == "in_progress"
            assert event["item"]["status"] in ("completed", "incomplete")
            item["status"] = event["item"]["status"]
            assert item == event["item"]
    output = case["stream"][-1][1]["response"]["output"]
    if case["stream"][-1][0] == "response.failed":
        items[len(items) - 1]["status"] = "incomplete"
    assert [items[i] for i in range(len(items))] == output


@pytest.mark.parametrize("case", [p for p in params("anthropic") if p.id != "count"])
def test_messages_fit_anthropic_s_models(case):
    anthropic = pytest.importorskip("anthropic")
    pydantic = pytest.importorskip("pydantic")
    types = anthropic.types
    adapter = pydantic.TypeAdapter(types.RawMessageStreamEvent)
    blocks, message = [], None
    for name, event in case["stream"]:
        assert event["type"] == name
        if name == "ping":
            continue
        if name == "error":
            assert case["whole"] is None
            anthropic.types.shared.ErrorResponse.model_validate(event)
            continue
        adapter.validate_python(event)
        if name == "message_start":
            message = event["message"]
        elif name == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(dict(event["content_block"], json=""))
        elif name == "content_block_delta":
            delta = event["delta"]
            blocks[event["index"]]["json"] += delta.get("partial_json", "")
            for part in ("text", "thinking", "signature"):
                if delta["type"] == part + "_delta":
                    blocks[event["index"]][part] += delta[part]
        elif name == "message_delta":
            message.update(event["delta"])
            message["usage"].update(event["usage"])
    if case["whole"] is None:
        return
    whole = types.Message.model_validate(case["whole"])
    for sent, block in zip(blocks, whole.content, strict=True):
        if block.type == "text" and sent["type"] == "tool_use":  # a call that was cut is text
            assert whole.stop_reason == "max_tokens"
            assert block.text == f"{sent['name']} {sent['json']}"
        elif block.type == "text":
            assert sent["text"] == block.text
        elif block.type == "thinking":
            assert sent["thinking"] == block.thinking and sent["signature"] == block.signature
        else:
            assert json.loads(sent["json"]) == block.input and sent["id"] == block.id
    assert {**message, "content": case["whole"]["content"]} == case["whole"]


def test_a_count_of_tokens_fits_anthropic_s_model():
    anthropic = pytest.importorskip("anthropic")
    case = read_cases("anthropic")["count"]
    assert anthropic.types.MessageTokensCount.model_validate(case["whole"]).input_tokens == 12


@pytest.mark.parametrize("chapter, model", [("chat", "ChatResponse"), ("generate", "GenerateResponse")])
def test_lines_fit_ollama_s_models(chapter, model):
    ollama = pytest.importorskip("ollama")
    for case in read_cases("ollama", chapter).values():
        lines = [line for _, line in case["stream"]]
        if case["whole"] is None:
            assert isinstance(lines[-1]["error"], str)
            continue
        parse = getattr(ollama, model)
        whole, sent = parse(**case["whole"]), [parse(**line) for line in lines]
        assert [line.done for line in sent] == [False] * (len(sent) - 1) + [True]
        assert sent[-1].done_reason == whole.done_reason
        assert sent[-1].eval_count == whole.eval_count
        message = (lambda line: line) if chapter == "generate" else (lambda line: line.message)
        thoughts = [message(line).thinking or "" for line in sent]
        assert "".join(thoughts) == (message(whole).thinking or "")
        if chapter == "generate":
            assert "".join(line.response for line in sent) == whole.response
            continue
        assert "".join(line.message.content for line in sent) == whole.message.content
        calls = [call for line in sent for call in line.message.tool_calls or []]
        assert calls == list(whole.message.tool_calls or [])


def test_small_bodies_fit_ollama_s_models():
    ollama = pytest.importorskip("ollama")
    bodies = {name: case["whole"] for name, case in read_cases("ollama", "bodies").items()}
    tags = ollama.ListResponse(**bodies["tags"])
    assert [m.model for m in tags.models] == ["tiny", "minilm"]
    assert tags.models[0].details.parameter_size == "134.52M"
    assert tags.models[0].modified_at.year == 2023
    assert ollama.ProcessResponse(**bodies["ps"]).models[0].context_length == 2048
    show = ollama.ShowResponse(**bodies["show"])
    assert show.capabilities == ["completion", "tools", "thinking"]
    assert show.modelinfo["llama.context_length"] == 2048
    assert ollama.ShowResponse(**bodies["show_embedder"]).capabilities == ["embedding"]
    assert isinstance(bodies["version"]["version"], str)
