"""Goal:   OpenAI's own Python package drives the server unchanged.
Method: the package against `jitney serve` with a simulated runner, so that every answer
        is long and quick; each whole answer is checked against /openapi.json on its way."""

import asyncio
import base64
import struct
import threading
import time

import pytest

from server_lib import FAST, Server, checking_hook, tiny_model

openai = pytest.importorskip("openai", reason="the package openai is not installed")
import httpx2  # noqa: E402 (what openai is built on)

KEYS = """
sesame name=alice
slow name=bob rpm=2
single name=carol concurrent=1
"""


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    with Server(tiny_model(tmp_path_factory), *FAST, "--served-model-name", "tiny") as server:
        yield server


@pytest.fixture(name="client")
def client_fixture(server):
    http = httpx2.Client(event_hooks={"response": [checking_hook(server)]})
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", http_client=http,
                       max_retries=0) as client:
        yield client


def ask(client, text="Hello", **fields):
    return client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": text}], **fields)


def test_chat_whole(client):
    answer = ask(client, max_completion_tokens=8, temperature=0)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8
    assert answer._request_id


def test_chat_streamed_is_the_whole_answer_in_pieces(client):
    whole = ask(client, max_completion_tokens=20, seed=3)
    chunks = list(ask(client, max_completion_tokens=20, seed=3, stream=True,
                      stream_options={"include_usage": True}))
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert {chunk.created for chunk in chunks} == {chunks[0].created}
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert chunks[-2].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_stream_has_no_usage_unless_it_is_requested(client):
    chunks = list(ask(client, max_tokens=3, stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_several_choices_have_their_own_seeds(client):
    many = ask(client, n=4, max_tokens=12, seed=7, temperature=1)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    assert many.usage.completion_tokens == 4 * 12
    for i in range(4):
        alone = ask(client, max_tokens=12, seed=7 + i, temperature=1)
        assert alone.choices[0].message.content == many.choices[i].message.content
    chunks = ask(client, n=4, max_tokens=12, seed=7, temperature=1, stream=True)
    texts = [""] * 4
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [c.message.content for c in many.choices]


def test_logprobs(client):
    answer = ask(client, max_tokens=4, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == 4
    for token in content:
        assert token.logprob <= 0
        assert bytes(token.bytes).decode(errors="replace")
        assert len(token.top_logprobs) <= 3
    streamed = ask(client, max_tokens=4, logprobs=True, stream=True, seed=1)
    count = sum(len(c.choices[0].logprobs.content) for c in streamed
                if c.choices and c.choices[0].logprobs)
    assert count == 4


def test_stop_strings_end_the_answer_and_are_not_shown(client):
    text = ask(client, max_tokens=60, seed=5).choices[0].message.content
    stop = text[20:22]
    answer = ask(client, max_tokens=60, seed=5, stop=[stop, "never to be seen"])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == text[:text.index(stop)]
    shown = ask(client, max_tokens=60, seed=5, stop=stop,
                extra_body={"include_stop_str_in_output": True})
    assert shown.choices[0].message.content == text[:text.index(stop) + len(stop)]


def test_a_seed_makes_answers_repeat(client):
    one, two, other = (ask(client, max_tokens=16, seed=s).choices[0].message.content
                       for s in (11, 11, 12))
    assert one == two
    assert one != other


def test_tools_are_accepted_and_invalid_ones_refused(client):
    tool = {"type": "function", "function": {
        "name": "weather", "description": "The weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
    answer = ask(client, max_tokens=4, tools=[tool], tool_choice="none")
    assert answer.choices[0].finish_reason in ("length", "stop")
    described = ask(client, max_tokens=4, tools=[tool])  # its template has no place for tools
    assert described.usage.prompt_tokens > answer.usage.prompt_tokens + 50
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tools=[{"type": "function", "function": {"description": "no name"}}])
    assert caught.value.param == "tools[0].function.name"


def test_a_conversation_with_tool_messages(client):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "How is"},
                                     {"type": "text", "text": " it?"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function",
             "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=3)
    assert answer.usage.completion_tokens == 3


@pytest.mark.parametrize("fields, param", [
    ({"temperature": 3}, "temperature"),
    ({"top_p": -1}, "top_p"),
    ({"n": 0}, "n"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"logprobs": "yes"}, "logprobs"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
     "response_format.json_schema.schema"),
    ({"extra_body": {"guided_json": {"$ref": "http://x"}}}, "guided_json"),
    ({"extra_body": {"guided_json": {}, "guided_regex": "a+"}}, "guided_regex"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]}, None),
])
def test_a_bad_request_names_the_field(client, fields, param):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], **fields}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**body)
    assert caught.value.type == "invalid_request_error"
    assert param is None or caught.value.param == param
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_unknown_fields_are_ignored(client):
    assert ask(client, max_tokens=1, extra_body={"no_such_field": {"x": [1]}}).choices


def test_an_unknown_model_is_404(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_a_prompt_that_is_too_long_is_refused_with_the_numbers(client):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, "word " * 9000)
    assert caught.value.code == "context_length_exceeded"
    assert "8192" in caught.value.message


def test_models(client):
    listed = client.models.list().data
    assert [model.id for model in listed] == ["tiny"]
    assert client.models.retrieve("tiny") == listed[0]


def test_completions(client):
    answer = client.completions.create(model="tiny", prompt="Once upon", max_tokens=6, seed=2)
    assert answer.object == "text_completion" and answer.choices[0].finish_reason == "length"
    streamed = client.completions.create(model="tiny", prompt="Once upon", max_tokens=6, seed=2,
                                         stream=True)
    assert "".join(c.choices[0].text for c in streamed if c.choices) == answer.choices[0].text
    default = client.completions.create(model="tiny", prompt="Once upon")
    assert default.usage.completion_tokens == 16


def test_completions_of_many_prompts(client):
    prompts = ["one", "two", "three"]
    answer = client.completions.create(model="tiny", prompt=prompts, max_tokens=5, seed=2, n=2)
    assert [c.index for c in answer.choices] == list(range(6))
    alone = client.completions.create(model="tiny", prompt="two", max_tokens=5, seed=2, n=2)
    assert [c.text for c in answer.choices[2:4]] == [c.text for c in alone.choices]
    ids = client.completions.create(model="tiny", prompt=[[40, 41], [42]], max_tokens=5)
    assert len(ids.choices) == 2 and ids.usage.prompt_tokens >= 3


def test_completions_echo_and_logprobs(client):
    answer = client.completions.create(model="tiny", prompt="abc", max_tokens=2, echo=True)
    assert answer.choices[0].text.startswith("abc")
    answer = client.completions.create(model="tiny", prompt="abc", max_tokens=3, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == 3
    assert "".join(logprobs.tokens) == answer.choices[0].text


def test_completions_how_likely_a_prompt_is(client):
    answer = client.completions.create(model="tiny", prompt="abc", max_tokens=0, echo=True,
                                       logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text == "abc" and answer.usage.completion_tokens == 0
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == answer.usage.prompt_tokens
    assert logprobs.token_logprobs[0] is None
    assert all(p <= 0 for p in logprobs.token_logprobs[1:])


def test_responses_whole_and_streamed(client):
    whole = client.responses.create(model="tiny", input="Hello", max_output_tokens=9,
                                    instructions="Be brief.", extra_body={"seed": 4})
    assert whole.object == "response" and whole.status in ("completed", "incomplete")
    assert whole.output_text
    assert whole.usage.output_tokens == 9
    events = list(client.responses.create(model="tiny", input="Hello", max_output_tokens=9,
                                          instructions="Be brief.", stream=True,
                                          extra_body={"seed": 4}))
    assert events[0].type == "response.created"
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == \
        whole.output_text
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[-1].response.output_text == whole.output_text


def test_responses_items(client):
    answer = client.responses.create(
        model="tiny", max_output_tokens=3,
        input=[{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
               {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go on"}])
    assert answer.output_text
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="tiny", input="x", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"


def test_a_client_in_asyncio(server):
    async def main():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="any") as client:
            async def one(i):
                stream = await client.chat.completions.create(
                    model="tiny", messages=[{"role": "user", "content": f"Number {i}"}],
                    max_tokens=30, stream=True, seed=i)
                return "".join([c.choices[0].delta.content or "" async for c in stream
                                if c.choices])
            return await asyncio.gather(*(one(i) for i in range(16)))
    texts = asyncio.run(main())
    assert len(texts) == 16 and all(texts)


def test_a_stream_that_is_closed_early_frees_its_request(server, client):
    with ask(client, max_tokens=8000, stream=True) as stream:
        next(iter(stream))
    deadline = time.monotonic() + 5
    while not server.is_quiet() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert server.is_quiet()


@pytest.fixture(scope="module", name="guarded")
def guarded_fixture(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(KEYS)
    with Server(tiny_model(tmp_path_factory), "--runner", "sim:2000", "--served-model-name", "tiny",
                "--api-key-file", path) as server:
        yield server


def client_with(server, key, **how):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, **how)


def test_a_key_is_required(guarded):
    assert ask(client_with(guarded, "sesame"), max_tokens=1).choices
    with pytest.raises(openai.AuthenticationError) as caught:
        ask(client_with(guarded, "wrong"), max_tokens=1)
    assert caught.value.code == "invalid_api_key"


def test_too_many_requests_are_429(guarded):
    client = client_with(guarded, "slow", max_retries=0)
    for _ in range(2):
        ask(client, max_tokens=1)
    with pytest.raises(openai.RateLimitError) as caught:
        ask(client, max_tokens=1)
    headers = caught.value.response.headers
    assert int(headers["retry-after"]) >= 1 and int(headers["retry-after-ms"]) >= 1
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert caught.value.code == "rate_limit_exceeded"


def test_the_client_tries_again_when_it_may(guarded):
    tries = []
    http = httpx2.Client(event_hooks={"request": [tries.append]})
    client = client_with(guarded, "single", http_client=http, max_retries=4)
    with ask(client, max_tokens=300, stream=True) as stream:  # 0.6 s
        chunks = iter(stream)
        next(chunks)
        rest = threading.Thread(target=lambda: list(chunks))
        rest.start()
        tries.clear()
        assert ask(client, max_tokens=1).choices
        rest.join()
    assert len(tries) >= 2


def test_a_vector_comes_in_both_encodings(tmp_path_factory):
    """The decoder's own vectors; the package requests base64 by default."""
    with Server(tiny_model(tmp_path_factory), "--served-model-name", "tiny") as server:
        with client_with(server, "any") as client:
            compare_encodings(client)


def compare_encodings(client):
    plain = client.embeddings.create(model="tiny", input="Hello", encoding_format="float")
    packed = client.embeddings.create(model="tiny", input="Hello")
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, rel=1e-5)
    raw = client.embeddings.with_raw_response.create(model="tiny", input="Hello",
                                                     encoding_format="base64")
    blob = raw.parse().data[0].embedding
    if isinstance(blob, str):
        blob = list(struct.unpack(f"<{len(base64.b64decode(blob)) // 4}f",
                                  base64.b64decode(blob)))
    assert blob == pytest.approx(plain.data[0].embedding, rel=1e-5)


def test_a_failure_in_the_middle_of_a_stream_is_raised(tmp_path_factory):
    server = Server(tiny_model(tmp_path_factory), "--runner", "sim:1000,hang-after=30",
                    "--watchdog-s", "0.5", "--served-model-name", "tiny")
    try:
        with client_with(server, "any", max_retries=0) as client:
            with pytest.raises(openai.APIError) as caught:
                for chunk in ask(client, max_tokens=500, stream=True):
                    assert chunk.choices
        assert "engine" in caught.value.message
    finally:
        server.kill()
