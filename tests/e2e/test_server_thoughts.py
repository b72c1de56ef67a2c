"""Goal:   a model's thoughts are a part of their own in each API's format, the same in a stream as in
        a whole answer; requests hide them, keep them in the text and limit them.
Method: models that say a known text token by token (scripted_model.py): one writes the opening mark,
        the prompt of the other ends with it; OpenAI's, Anthropic's and Ollama's packages ask."""

import json

import pytest

from scripted_model import end_prompt_with, scripted_model
from server_lib import Server, checking_hook

pytest.importorskip("openai", reason="the package openai is not installed")

# The mark is cut between tokens, and the blanks around the thought are tokens of their own.
PIECES = ["<think>", "\n ", "ab", "cd", " ef", "\n</th", "ink>", "\n\n", "ans", "wer"]
THOUGHT, TEXT = "abcd ef", "answer"
THOUGHT_TOKENS = {"writes": 7, "prompted": 6}  # with the marks that the model writes
SIGN = "{% if false %}<think>{% endif %}"
QUESTION = [{"role": "user", "content": "Why?"}]
KINDS = ("writes", "prompted")


@pytest.fixture(scope="module", name="servers")
def servers_fixture(tmp_path_factory):
    found = {}
    folder = tmp_path_factory.mktemp("thoughts")
    try:
        for kind in KINDS:
            model = scripted_model(folder / kind, PIECES, SIGN)
            if kind == "prompted":
                end_prompt_with(model, "<think>")
            found[kind] = Server(model, "--served-model-name", "m", "--kv-memory", "64M")
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


def ask(server, **fields):
    """The parts of a chat's answer, whole and streamed, which must agree."""
    with openai_client(server) as client:
        whole = client.chat.completions.create(model="m", messages=QUESTION, **fields)
        chunks = list(client.chat.completions.create(
            model="m", messages=QUESTION, stream=True, stream_options={"include_usage": True},
            **fields))
    message = whole.choices[0].message
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    thought = "".join(getattr(d, "reasoning_content", None) or "" for d in deltas)
    assert thought == (getattr(message, "reasoning_content", None) or "")
    assert "".join(d.content or "" for d in deltas) == message.content
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == whole.choices[0].finish_reason
    usage = whole.usage.completion_tokens_details
    assert chunks[-1].usage.completion_tokens_details == usage
    return whole.choices[0], usage.reasoning_tokens


@pytest.mark.parametrize("kind", KINDS)
def test_openai_chat(servers, kind):
    choice, tokens = ask(servers[kind])
    assert choice.message.reasoning_content == THOUGHT
    assert choice.message.content == TEXT
    assert choice.finish_reason == "stop"
    assert tokens == THOUGHT_TOKENS[kind]


def test_an_answer_without_thoughts_has_no_member_for_them(servers):
    with openai_client(servers["writes"]) as client:
        answer = client.chat.completions.create(
            model="m", messages=QUESTION, extra_body={"include_reasoning": False})
    assert not hasattr(answer.choices[0].message, "reasoning_content")
    assert answer.choices[0].message.content == TEXT
    assert answer.usage.completion_tokens_details.reasoning_tokens == THOUGHT_TOKENS["writes"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_thought_is_a_thought(servers, kind):
    choice, tokens = ask(servers[kind], max_tokens=3)
    assert choice.message.reasoning_content == {"writes": "ab", "prompted": "abcd"}[kind]
    assert choice.message.content == ""
    assert choice.finish_reason == "length"
    assert tokens == 3


@pytest.mark.parametrize("kind", KINDS)
def test_thoughts_in_the_text_keep_their_marks(servers, kind):
    choice, tokens = ask(servers[kind], extra_body={"reasoning_format": "none"})
    assert choice.message.content == "".join(PIECES[kind == "prompted":])
    assert tokens == 0
    choice, tokens = ask(servers[kind], extra_body={"reasoning_format": "deepseek"})
    assert (choice.message.reasoning_content, choice.message.content) == (THOUGHT, TEXT)


def test_every_token_has_its_log_probability_once(servers):
    for hidden in (False, True):
        choice, _ = ask(servers["writes"], logprobs=True,
                        extra_body={"include_reasoning": not hidden})
        assert "".join(p.token for p in choice.logprobs.content).startswith("".join(PIECES))
        with openai_client(servers["writes"]) as client:
            chunks = list(client.chat.completions.create(
                model="m", messages=QUESTION, stream=True, logprobs=True,
                extra_body={"include_reasoning": not hidden}))
        probs = [c.choices[0].logprobs for c in chunks]
        tokens = [p.token for some in probs if some for p in some.content]
        assert "".join(tokens).startswith("".join(PIECES))


def test_completions_have_no_thoughts(servers):
    with openai_client(servers["writes"]) as client:
        answer = client.completions.create(model="m", prompt="<|go|>", max_tokens=20)
    assert answer.choices[0].text == "".join(PIECES)
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


BUDGETS = ({"thinking_token_budget": 3}, {"thinking_budget_tokens": 3},
           {"reasoning": {"max_tokens": 3}})


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_closes_the_thought(servers, kind, budget):
    choice, _ = ask(servers[kind], extra_body=budget)
    assert choice.message.reasoning_content == "abcd"
    assert choice.message.content == TEXT


def test_a_budget_holds_in_every_choice_and_beside_others(servers):
    with openai_client(servers["prompted"]) as client:
        for tokens, thought in ((-1, THOUGHT), (0, None), (2, "ab"), (100, THOUGHT)):
            answer = client.chat.completions.create(
                model="m", messages=QUESTION, n=3, extra_body={"thinking_token_budget": tokens})
            for choice in answer.choices:
                assert getattr(choice.message, "reasoning_content", None) == thought
                assert choice.message.content == TEXT


@pytest.mark.parametrize("kind", KINDS)
def test_a_grammar_holds_behind_a_thought_with_a_budget(servers, kind):
    for budget, thought in ((-1, THOUGHT), (2, "ab")):
        choice, _ = ask(servers[kind], extra_body={
            "thinking_token_budget": budget, "structured_outputs": {"choice": ["answer!", "no"]}})
        assert choice.message.reasoning_content == thought
        assert choice.message.content == "answer!"


@pytest.mark.parametrize("kind", KINDS)
def test_openai_responses(servers, kind):
    with openai_client(servers[kind]) as client:
        whole = client.responses.create(model="m", input="Why?")
        events = list(client.responses.create(model="m", input="Why?", stream=True))
        short = client.responses.create(model="m", input="Why?",
                                        extra_body={"reasoning": {"max_tokens": 2}})
        again = client.responses.create(model="m", input=[*QUESTION, *whole.model_dump()["output"],
                                                          *QUESTION])
    for answer in (whole, events[-1].response, again):
        reasoning, message = answer.output
        assert reasoning.type == "reasoning" and reasoning.id.startswith("rs_")
        assert reasoning.summary == [] and reasoning.status == "completed"
        assert [(p.type, p.text) for p in reasoning.content] == [("reasoning_text", THOUGHT)]
        assert message.type == "message" and answer.output_text == TEXT
        assert answer.usage.output_tokens_details.reasoning_tokens == THOUGHT_TOKENS[kind]
    assert short.output[0].content[0].text == "ab" and short.output_text == TEXT
    kinds = [e.type for e in events]
    assert [e.sequence_number for e in events] == list(range(len(events)))
    deltas = [e.delta for e in events if e.type == "response.reasoning_text.delta"]
    done = next(e for e in events if e.type == "response.reasoning_text.done")
    assert "".join(deltas) == done.text == THOUGHT and len(deltas) > 1
    last = kinds.index("response.reasoning_text.done")
    assert kinds[2:4] == ["response.output_item.added", "response.content_part.added"]
    assert kinds[last + 1:last + 5] == ["response.content_part.done", "response.output_item.done",
                                        "response.output_item.added", "response.content_part.added"]


@pytest.mark.parametrize("kind", KINDS)
def test_anthropic_messages(servers, kind):
    anthropic = pytest.importorskip("anthropic", reason="the package anthropic is not installed")
    fields = {"model": "m", "max_tokens": 100, "messages": QUESTION}
    thinking = {"type": "enabled", "budget_tokens": 50}
    with anthropic.Anthropic(base_url=servers[kind].url, api_key="any") as client:
        whole = client.messages.create(**fields, thinking=thinking)
        with client.messages.stream(**fields, thinking=thinking) as stream:
            deltas = [e.thinking for e in stream if e.type == "thinking"]
            streamed = stream.get_final_message()
        short = client.messages.create(**fields, thinking={"type": "enabled", "budget_tokens": 3})
        silent = client.messages.create(**fields)
        again = client.messages.create(
            **fields | {"messages": [*QUESTION, {"role": "assistant", "content": whole.content},
                                     *QUESTION]}, thinking=thinking)
    for answer in (whole, streamed, again):
        thought, text = answer.content
        assert (thought.type, thought.thinking, thought.signature) == ("thinking", THOUGHT, "")
        assert (text.type, text.text) == ("text", TEXT)
        assert answer.stop_reason == "end_turn"
    assert "".join(deltas) == THOUGHT and len(deltas) > 1
    assert short.content[0].thinking == "abcd" and short.content[1].text == TEXT
    block, = silent.content
    assert block.text == TEXT
    assert silent.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("kind", KINDS)
def test_ollama(servers, kind):
    ollama = pytest.importorskip("ollama", reason="the package ollama is not installed")
    client = ollama.Client(host=servers[kind].url)
    everything = "".join(PIECES[kind == "prompted":])
    for think, thought, text in ((None, THOUGHT, TEXT), (True, THOUGHT, TEXT),
                                 (False, "", everything)):
        whole = client.chat(model="m", messages=QUESTION, think=think)
        lines = list(client.chat(model="m", messages=QUESTION, think=think, stream=True))
        assert (whole.message.thinking or "", whole.message.content) == (thought, text)
        assert "".join(p.message.thinking or "" for p in lines) == thought
        assert "".join(p.message.content or "" for p in lines) == text
        made = client.generate(model="m", prompt="Why?", think=think)
        parts = list(client.generate(model="m", prompt="Why?", think=think, stream=True))
        assert (made.thinking or "", made.response) == (thought, text)
        assert "".join(p.thinking or "" for p in parts) == thought
        assert "".join(p.response or "" for p in parts) == text
