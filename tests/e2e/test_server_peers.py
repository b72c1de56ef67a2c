"""Goal:   clients of Anthropic's and Ollama's API, and LangChain, work unchanged.
Method: their own Python packages against `jitney serve` with a simulated runner; each whole
        answer is checked against /openapi.json."""

import pytest

from server_lib import FAST, Server, checking_hook, tiny_model


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    with Server(tiny_model(tmp_path_factory), *FAST, "--served-model-name", "tiny", "--tool-form",
                "hermes") as server:
        yield server


@pytest.fixture(name="claude")
def claude_fixture(server):
    anthropic = pytest.importorskip("anthropic", reason="the package anthropic is not installed")
    import httpx2
    http = httpx2.Client(event_hooks={"response": [checking_hook(server)]})
    with anthropic.Anthropic(base_url=server.url, api_key="any", http_client=http,
                             max_retries=0) as client:
        yield client


HELLO = [{"role": "user", "content": "Hello"}]
STEADY = {"temperature": 0}  # the package has no such argument, the API has


def test_anthropic_whole_and_streamed(claude):
    whole = claude.messages.create(model="tiny", max_tokens=12, messages=HELLO, system="Be brief.",
                                   extra_body=STEADY)
    assert whole.type == "message" and whole.role == "assistant"
    assert whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 12
    with claude.messages.stream(model="tiny", max_tokens=12, messages=HELLO, system="Be brief.",
                                extra_body=STEADY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.usage.output_tokens == 12 and final.stop_reason == "max_tokens"


def test_anthropic_events_come_in_order(claude):
    events = list(claude.messages.create(model="tiny", max_tokens=3, messages=HELLO, stream=True))
    kinds = [e.type for e in events if e.type != "ping"]
    assert kinds[0] == "message_start" and kinds[1] == "content_block_start"
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


def test_anthropic_stop_sequences(claude):
    text = claude.messages.create(model="tiny", max_tokens=60, messages=HELLO,
                                  extra_body=STEADY).content[0].text
    answer = claude.messages.create(model="tiny", max_tokens=60, messages=HELLO,
                                    extra_body=STEADY, stop_sequences=[text[20:22]])
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == text[20:22]
    assert answer.content[0].text == text[:text.index(text[20:22])]


def test_anthropic_counts_and_refusals(claude):
    import anthropic
    count = claude.messages.count_tokens(model="tiny", messages=HELLO).input_tokens
    answer = claude.messages.create(model="tiny", max_tokens=1, messages=HELLO)
    assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens == count
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(model="tiny", max_tokens=0, messages=HELLO)
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="none", max_tokens=1, messages=HELLO)


def test_anthropic_blocks_and_tools(claude):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}]},
    ]
    tools = [{"name": "weather", "description": "The weather.",
              "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
    assert claude.messages.create(model="tiny", max_tokens=2, messages=messages, tools=tools,
                                  tool_choice={"type": "none"}).usage.output_tokens == 2


@pytest.fixture(name="llama")
def llama_fixture(server):
    ollama = pytest.importorskip("ollama", reason="the package ollama is not installed")
    return ollama.Client(host=server.url,
                         event_hooks={"response": [checking_hook(server)]})


def test_ollama_chat(llama):
    options = {"num_predict": 10, "seed": 3}
    whole = llama.chat(model="tiny", messages=HELLO, options=options)
    assert whole.done and whole.done_reason == "length" and whole.eval_count == 10
    assert whole.message.role == "assistant" and whole.total_duration > 0
    parts = list(llama.chat(model="tiny", messages=HELLO, options=options, stream=True))
    assert "".join(p.message.content for p in parts) == whole.message.content
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]


def test_ollama_generate(llama):
    options = {"num_predict": 10, "seed": 3}
    whole = llama.generate(model="tiny", prompt="Once", options=options)
    parts = list(llama.generate(model="tiny", prompt="Once", options=options, stream=True))
    assert "".join(p.response for p in parts) == whole.response
    raw = llama.generate(model="tiny", prompt="Once", raw=True, options=options)
    assert raw.prompt_eval_count < whole.prompt_eval_count


def test_ollama_models(llama, server):
    assert [m.model for m in llama.list().models][0].startswith("tiny")
    shown = llama.show("tiny")
    assert shown.details is not None and shown.modelinfo
    assert "version" in server.get("/api/version").json
    assert llama.ps().models


def test_ollama_refusals(llama):
    import ollama
    with pytest.raises(ollama.ResponseError) as caught:
        llama.chat(model="none", messages=HELLO)
    assert caught.value.status_code == 404 and "none" in caught.value.error
    with pytest.raises(ollama.ResponseError) as caught:
        llama.generate(model="tiny", prompt="x", options={"temperature": -1})
    assert caught.value.status_code == 400


def test_ollama_embeddings(tmp_path_factory):
    ollama = pytest.importorskip("ollama", reason="the package ollama is not installed")
    with Server(tiny_model(tmp_path_factory), "--served-model-name", "tiny") as server:
        client = ollama.Client(host=server.url,
                               event_hooks={"response": [checking_hook(server)]})
        vectors = client.embed(model="tiny", input=["Hello", "world"]).embeddings
        assert len(vectors) == 2 and len(vectors[0]) == len(vectors[1]) > 1
        old = client.embeddings(model="tiny", prompt="Hello").embedding
        assert old == pytest.approx(vectors[0], abs=1e-5)


def test_a_langchain_chain(server):
    langchain = pytest.importorskip("langchain_openai",
                                    reason="the package langchain-openai is not installed")
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    model = langchain.ChatOpenAI(model="tiny", base_url=server.url + "/v1", api_key="any",
                                 max_tokens=12, seed=4, max_retries=0)
    prompt = ChatPromptTemplate.from_messages([("system", "Be brief."), ("user", "{question}")])
    chain = prompt | model | StrOutputParser()
    whole = chain.invoke({"question": "Why?"})
    assert whole and "".join(chain.stream({"question": "Why?"})) == whole
    assert len(chain.batch([{"question": "a"}, {"question": "b"}])) == 2
