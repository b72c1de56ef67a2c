"""Goal:   answers keep to the schema, expression or grammar that a request gives, in each API's
        spelling and through the clients that people use; refusals name the place.
Method: a model that says a known JSON text (scripted_model.py) for exact answers, and one with
        random weights, whose answers are anything that the grammar allows."""

import json
import re

import jsonschema
import pytest

from cli_lib import talking_model
from scripted_model import scripted_model
from server_lib import Server, checking_hook

openai = pytest.importorskip("openai", reason="the package openai is not installed")
pydantic = pytest.importorskip("pydantic", reason="the package pydantic is not installed")

PIECES = ['{"na', 'me":"', "Ada", '","age"', ":36", ',"tags":["x', '","y', '"]}']
TEXT = "".join(PIECES)
QUESTION = [{"role": "user", "content": "Who is Ada?"}]


class Person(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=200)
    tags: list[str] = pydantic.Field(max_length=3)


ADA = Person(name="Ada", age=36, tags=["x", "y"])
SCHEMA = Person.model_json_schema()
BOUNDED = {"type": "object", "properties": {
    "kind": {"enum": ["one", "two"]}, "count": {"type": "integer", "minimum": 3, "maximum": 77},
    "note": {"type": "string", "pattern": "^[a-c]{1,6}$"}, "on": {"type": "boolean"}},
    "required": ["kind", "count", "note", "on"], "additionalProperties": False}


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    """Serves `ada`, which says TEXT, and `wild`, which says anything."""
    folder = tmp_path_factory.mktemp("grammar")
    ada = scripted_model(folder / "ada", PIECES)
    wild = talking_model(folder / "wild")
    with Server(ada, wild, "--kv-memory", "64M", "--grammar-seconds", "5",
                "--grammar-bytes", "8M") as server:
        yield server


@pytest.fixture(name="client")
def client_fixture(server):
    import httpx2
    http = httpx2.Client(event_hooks={"response": [checking_hook(server)]})
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", http_client=http,
                       max_retries=0) as client:
        yield client


def ask(client, model="wild", **fields):
    body = {"max_tokens": 100, "seed": 5, **fields}
    return client.chat.completions.create(model=model, messages=QUESTION, **body).choices[0]


def test_openai_parse(client):
    answer = client.chat.completions.parse(model="ada", messages=QUESTION, response_format=Person)
    assert answer.choices[0].message.parsed == ADA
    assert answer.choices[0].message.content == TEXT
    answer = client.responses.parse(model="ada", input="Who is Ada?", text_format=Person)
    assert answer.output_parsed == ADA and answer.text.format.type == "json_schema"
    with client.chat.completions.stream(model="ada", messages=QUESTION,
                                        response_format=Person) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == ADA


def test_a_schema_is_kept_by_a_model_that_says_anything(client):
    seen = set()
    for seed in range(4):
        choice = ask(client, seed=seed, response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": BOUNDED}})
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), BOUNDED)
        seen.add(choice.message.content)
    assert len(seen) > 1


@pytest.mark.parametrize("fields, expression", [
    ({"structured_outputs": {"regex": "(left|right) [0-9]{3}"}}, "(left|right) [0-9]{3}"),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
    ({"structured_outputs": {"grammar": 'root ::= "<" [ab]{2} ">"'}}, "<[ab]{2}>"),
    ({"guided_json": json.dumps({"const": [1, True]})}, r"\[1,true\]"),
    ({"guided_regex": "x{2}"}, "xx"),
    ({"guided_choice": ["only"]}, "only"),
    ({"guided_grammar": 'start: "a" /[0-9]/ "z"'}, "a[0-9]z"),
    ({"grammar": 'root ::= "q" [uv]'}, "q[uv]"),
    ({"json_schema": {"enum": ["a", True]}}, '"a"|true'),
    ({"regex": "k[0-9]"}, "k[0-9]"),
    ({"ebnf": 'root ::= "w"'}, "w"),
])
def test_the_spellings_of_other_servers(client, fields, expression):
    choice = ask(client, extra_body=fields)
    assert choice.finish_reason == "stop"
    assert re.fullmatch(expression, choice.message.content)


def test_json_objects_and_cut_answers(client):
    fields = {"model": "ada", "response_format": {"type": "json_object"}, "temperature": 0}
    choice = ask(client, **fields)
    assert json.loads(choice.message.content) == json.loads(TEXT)
    choice = ask(client, **fields, max_tokens=3)
    assert choice.finish_reason == "length" and choice.message.content == "".join(PIECES[:3])


def test_logprobs_stop_strings_choices_and_biases_go_with_a_grammar(client):
    fields = {"extra_body": {"guided_regex": "[a-d]{20,30}"}, "n": 3, "logprobs": True,
              "top_logprobs": 2, "logit_bias": {"100": -100}}
    answer = client.chat.completions.create(model="wild", messages=QUESTION, seed=1, **fields)
    texts = [c.message.content for c in answer.choices]
    assert all(re.fullmatch("[a-d]{20,30}", t) for t in texts) and len(set(texts)) == 3
    assert len(answer.choices[0].logprobs.content) > 2
    stop = texts[0][6:9]
    answer = client.chat.completions.create(model="wild", messages=QUESTION, seed=1, stop=[stop],
                                            **fields)
    assert answer.choices[0].message.content == texts[0][:texts[0].index(stop)]


def test_a_grammar_whose_next_token_passes_the_budget_is_the_requests_fault(client):
    ways = " | ".join(f'[a-z{chr(65 + i % 26)}]{{1,9}} "{i:04}"' for i in range(1500))
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, extra_body={"grammar": "root ::= " + ways})
    assert caught.value.param == "grammar" and "budget" in caught.value.message
    assert caught.value.type == "invalid_request_error"
    assert caught.value.code == "invalid_grammar"


@pytest.mark.parametrize("fields, param, words", [
    ({"extra_body": {"guided_json": {"properties": {"a": {"pattern": "("}}}}}, "guided_json",
     "#/properties/a"),
    ({"extra_body": {"grammar": "root ::= nothing"}}, "grammar", "nothing"),
    ({"extra_body": {"guided_json": False}}, "guided_json", "boolean"),
    ({"extra_body": {"guided_json": "false"}}, "guided_json", "no text satisfies it"),
])
def test_refusals_say_where_and_why(client, fields, param, words):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert caught.value.param == param and words in caught.value.message
    assert ask(client, extra_body={"regex": "still[0-9]"}).message.content[:5] == "still"


def test_forced_text_keeps_to_the_schema(tmp_path):
    ada = scripted_model(tmp_path / "ada", PIECES)
    with Server(ada, "--kv-memory", "64M", "--forced-text") as server:
        body = {"messages": QUESTION, "temperature": 0, "max_tokens": 200, "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": BOUNDED}}}
        choice = server.post("/v1/chat/completions", body).json["choices"][0]
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), BOUNDED)
        wanted = {"const": {"a long key of an object": ["a long text", True]}}
        body["response_format"]["json_schema"]["schema"] = wanted
        choice = server.post("/v1/chat/completions", body).json["choices"][0]
        assert json.loads(choice["message"]["content"]) == wanted["const"]


def test_langchain(server):
    chat = pytest.importorskip("langchain_openai").ChatOpenAI(
        base_url=server.url + "/v1", api_key="any", model="ada", temperature=0, max_retries=0)
    assert chat.with_structured_output(Person, method="json_schema").invoke("Who?") == ADA
    got = chat.with_structured_output(SCHEMA, method="json_mode").invoke("Who? JSON.")
    assert got == ADA.model_dump()


def test_ollama_and_anthropic(server):
    client = pytest.importorskip("ollama").Client(host=server.url)
    answer = client.chat(model="ada", messages=QUESTION, format=SCHEMA)
    assert Person.model_validate_json(answer.message.content) == ADA
    answer = client.generate(model="ada", prompt="Who?", format="json", options={"temperature": 0})
    assert json.loads(answer.response) == ADA.model_dump()
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as client:
        answer = client.messages.create(
            model="ada", max_tokens=50, messages=QUESTION,
            extra_body={"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
    assert Person.model_validate_json(answer.content[0].text) == ADA


def test_grammars_of_requests_under_way_have_a_bound(tmp_path):
    wild = talking_model(tmp_path / "wild")
    body = {"model": "wild", "messages": QUESTION, "max_tokens": 9}
    words = [f"{i * 7919:x} word" for i in range(3000)]
    with Server(wild, "--kv-memory", "64M", "--grammar-memory", "100K") as server:
        large = server.post("/v1/chat/completions", {**body, "guided_choice": words})
        assert large.status == 503 and large.error["code"] == "memory_full"
        assert "--grammar-memory" in large.error["message"] and large.headers["retry-after"] == "1"
        small = server.post("/v1/chat/completions", {**body, "regex": "[ab]{2}"})
        assert small.status == 200, small.body
