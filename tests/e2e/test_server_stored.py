"""Goal:   a stored answer outlives its connection, its process and its client: it is there after
        kill -9, with the same events under the same numbers; without --data-dir every wish for
        storage is refused by name.
Method: `jitney serve` with a simulated runner and a folder of its own; OpenAI's package; kills in
        the middle of answers; the same request undisturbed as the reference."""

import contextlib
import json
import os
import re
import sqlite3
import stat
import time

import pytest

from cli_lib import GOLDEN
from server_lib import (FAST, Server, http_request, parse_events, read_all, read_until, statuses,
                        tiny_model, wait_until)

openai = pytest.importorskip("openai", reason="the package openai is not installed")

PACED = ("--runner", "sim:5000")  # 200 tokens a second
KEYS = "sesame name=alice\nother name=bob\n"
EVENTS = {"accept": "text/event-stream"}


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return tiny_model(tmp_path_factory)


def serve(model, folder, *flags, runner=FAST):
    return Server(model, *runner, "--served-model-name", "tiny", "--data-dir", folder / "data",
                  *flags)


@contextlib.contextmanager
def crashing(model, folder, *flags, runner=PACED):
    """A server that ends by kill -9."""
    server = serve(model, folder, *flags, runner=runner)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module", name="server")
def server_fixture(model, tmp_path_factory):
    with serve(model, tmp_path_factory.mktemp("stored")) as server:
        yield server


@pytest.fixture(name="client")
def client_fixture(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
        yield client


def response_body(tokens=12, **fields):
    return {"model": "tiny", "input": "Hello", "max_output_tokens": tokens, "seed": 9,
            "store": True, **fields}


def chat_body(tokens=12, **fields):
    return {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": tokens, "seed": 9, **fields}


def same(value):
    """A value without what may differ: ids, times, cached tokens."""
    if isinstance(value, dict):
        return {k: same(v) for k, v in value.items()
                if not re.search(r"(^|_)id$|created|_at$|cached_tokens", k)}
    return [same(v) for v in value] if isinstance(value, list) else value


def plain(events):
    """Events as they must be equal: number, type, data."""
    return [(number, name, data if data == "[DONE]" else same(json.loads(data)))
            for name, number, data in events]


# --- without a folder ---

@pytest.mark.parametrize("field, value", [
    ("store", True), ("background", True), ("previous_response_id", "resp_1"),
    ("conversation", "conv_1")])
def test_without_a_folder_storing_is_refused_by_name(model, field, value):
    with Server(model, *FAST, "--served-model-name", "tiny") as server:
        body = {"model": "tiny", "input": "Hello", field: value}
        reply = server.post("/v1/responses", body)
        assert reply.status == 400
        assert reply.error["param"] == field and "--data-dir" in reply.error["message"]
        assert server.post("/v1/responses", {**body, field: None}).status == 200
        if field != "store":
            return
        assert server.post("/v1/responses", {**body, "store": False}).status == 200
        reply = server.post("/v1/chat/completions", chat_body(store=True))
        assert reply.status == 400 and reply.error["param"] == "store"
        reply = server.post("/v1/chat/completions", chat_body(),
                            headers={"x-jitney-keep": "durable"})
        assert reply.status == 400 and "x-jitney-keep" in reply.error["message"]
        for path in ("/v1/responses/resp_1", "/v1/chat/completions", "/v1/conversations/conv_1"):
            reply = server.get(path)
            assert reply.status == 400 and "--data-dir" in reply.error["message"], path


# --- responses ---

def test_a_stored_response_is_found_and_deleted(client, server):
    made = client.responses.create(model="tiny", input="Hello", max_output_tokens=8, store=True,
                                   metadata={"a": "b"})
    assert made.store is True and made.metadata == {"a": "b"}
    found = client.responses.retrieve(made.id)
    assert same(found.to_dict()) == same(made.to_dict()) and found.id == made.id
    items = client.responses.input_items.list(made.id)
    assert [item.content[0].text for item in items] == ["Hello"]
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_what_is_not_stored_is_not_found(client):
    made = client.responses.create(model="tiny", input="Hello", max_output_tokens=8)
    assert made.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_background_response_is_queued_and_completes(client):
    made = client.responses.create(model="tiny", input="Hello", max_output_tokens=8,
                                   background=True)
    assert made.status == "queued" and made.background is True and made.output == []
    found = wait_until(lambda: (lambda r: r.status == "incomplete" and r)(  # at 8 tokens
        client.responses.retrieve(made.id)))
    assert found.output_text and found.usage.output_tokens == 8


def test_wishes_that_contradict_each_other_are_refused(server):
    reply = server.post("/v1/responses", response_body(background=True, store=False))
    assert reply.status == 400 and reply.error["param"] == "store"
    reply = server.post("/v1/chat/completions", chat_body(), headers={"x-jitney-keep": "durabel"})
    assert reply.status == 400 and "durabel" in reply.error["message"]
    reply = server.get("/v1/chat/completions?metadata%5Bk%5D=v")
    assert reply.status == 400 and reply.error["param"] == "metadata"


def test_items_of_input_and_output_have_ids_of_their_own(client):
    made = client.responses.create(model="tiny", input="Hello", max_output_tokens=4, store=True)
    items = client.responses.input_items.list(made.id).data
    assert {i.id for i in items}.isdisjoint({o.id for o in made.output})


def test_a_background_response_can_be_cancelled(model, tmp_path):
    with crashing(model, tmp_path) as server, openai.OpenAI(
            base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
        made = client.responses.create(model="tiny", input="Hello", max_output_tokens=4000,
                                       background=True)
        assert client.responses.cancel(made.id).status == "cancelled"
        assert client.responses.retrieve(made.id).status == "cancelled"
        assert wait_until(server.is_quiet)
    with serve(model, tmp_path) as server:
        assert server.get(f"/v1/responses/{made.id}").json["status"] == "cancelled"


def test_a_stream_of_a_stored_response_continues_after_a_number(server):
    whole = server.post("/v1/responses", response_body(stream=True)).events
    id_ = json.loads(whole[0][2])["response"]["id"]
    for after in (0, 3, len(whole) - 2):
        reply = server.get(f"/v1/responses/{id_}?stream=true&starting_after={after}")
        assert plain(reply.events) == plain(whole[after + 1:])
        assert json.loads(reply.events[0][2])["sequence_number"] == after + 1
    assert plain(server.get(f"/v1/responses/{id_}?stream=true").events) == plain(whole)
    for beyond in (len(whole) - 1, 1 << 31, (1 << 64) - 1):
        assert not server.get(f"/v1/responses/{id_}?stream=true&starting_after={beyond}").events


def test_the_cached_tokens_of_a_prompt_that_ends_first_count_once(model, tmp_path):
    def cached(prompt, **headers):
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 2, "seed": 5}
        reply = server.request("POST", "/v1/completions", body, headers)
        return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    flags = ("--policy", "sjf", "--set", "max_step_tokens=64")  # the short prompt ends first
    with serve(model, tmp_path, *flags, runner=PACED) as server:
        short = "b" * 70
        assert cached(short) == 0
        assert cached(["a" * 3000, short], **{"x-jitney-keep": "durable"}) == cached(short) > 0


# --- conversations ---

def test_a_response_continues_the_previous_one(client, server):
    first = client.responses.create(model="tiny", input="My name is Ann.", max_output_tokens=6,
                                    store=True, temperature=0)
    second = client.responses.create(model="tiny", input="What is it?", max_output_tokens=6,
                                     previous_response_id=first.id, temperature=0)
    assert second.previous_response_id == first.id
    told = client.responses.create(model="tiny", max_output_tokens=6, temperature=0, input=[
        {"role": "user", "content": "My name is Ann."},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "What is it?"}])
    assert second.output_text == told.output_text
    assert second.usage.input_tokens == told.usage.input_tokens
    with pytest.raises(openai.NotFoundError) as e:
        client.responses.create(model="tiny", input="x", previous_response_id="resp_none")
    assert "resp_none" in str(e.value)
    reply = server.post("/v1/responses", {"model": "tiny", "input": "x", "previous_response_id":
                                          first.id, "conversation": "conv_1"})
    assert reply.status == 400


def test_the_result_of_a_call_continues_the_response_that_made_it(server):
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
    made = server.post("/v1/conversations", {"items": [
        {"type": "message", "role": "user", "content": "Call f."}, call]}).json
    body = {"model": "tiny", "max_output_tokens": 4, "temperature": 0, "store": True}
    reply = server.post("/v1/responses", {**body, "conversation": made["id"], "input": [result]})
    assert reply.status == 200, reply.json
    whole = server.post("/v1/responses", {**body, "input": [
        {"role": "user", "content": "Call f."}, call, result]}).json
    assert reply.json["output"][0]["content"] == whole["output"][0]["content"]
    first = server.post("/v1/responses", {**body, "input": [
        {"role": "user", "content": "Call f."}, call, result]}).json
    again = {**result, "call_id": "call_2"}
    reply = server.post("/v1/responses", {**body, "previous_response_id": first["id"], "input": [
        {**call, "call_id": "call_2"}, again]})
    assert reply.status == 200, reply.json
    reply = server.post("/v1/responses", {**body, "previous_response_id": first["id"],
                                          "input": [{**result, "call_id": "call_9"}]})
    assert reply.status == 400 and "call_id" in reply.error["param"]


def test_a_conversation_grows_with_its_responses(client):
    made = client.conversations.create(metadata={"topic": "t"}, items=[
        {"type": "message", "role": "user", "content": "My name is Ann."}])
    assert made.id.startswith("conv_") and made.metadata == {"topic": "t"}
    answer = client.responses.create(model="tiny", input="Hello", max_output_tokens=6,
                                     conversation=made.id)
    assert answer.conversation.id == made.id
    items = client.conversations.items.list(made.id, order="asc").data
    assert [i.role for i in items] == ["user", "user", "assistant"]
    assert items[2].content[0].text == answer.output_text
    more = client.conversations.items.create(made.id, items=[
        {"type": "message", "role": "user", "content": "More."}])
    assert len(more.data) == 1
    one = client.conversations.items.retrieve(items[0].id, conversation_id=made.id)
    assert one.content[0].text == "My name is Ann."
    client.conversations.items.delete(items[0].id, conversation_id=made.id)
    assert len(client.conversations.items.list(made.id).data) == 3
    missing = items[0].id
    for ask in (lambda: client.conversations.items.retrieve(missing, conversation_id=made.id),
                lambda: client.conversations.items.delete(missing, conversation_id=made.id),
                lambda: client.conversations.items.list(made.id, after=missing)):
        with pytest.raises(openai.NotFoundError, match=f"has no item .*{missing}"):
            ask()
    assert client.conversations.update(made.id, metadata={"x": "y"}).metadata == {"x": "y"}
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)


def test_one_response_at_a_time_extends_a_conversation(model, tmp_path):
    with serve(model, tmp_path, runner=PACED) as server:
        made = server.post("/v1/conversations", {}).json["id"]
        body = json.dumps(response_body(40, conversation=made)).encode()
        socks = [server.connect() for _ in range(6)]
        for sock in socks:
            sock.sendall(http_request("POST", "/v1/responses", body, connection="close"))
        answers = [read_all(sock) for sock in socks]
        assert sorted(statuses(answer)[0] for answer in answers) == [200] + [409] * 5
        assert sum(b"conversation_locked" in answer for answer in answers) == 5
        items = server.plain("GET", f"/v1/conversations/{made}/items").json
        assert len(items["data"]) == 2
        assert server.post("/v1/responses", response_body(conversation=made)).status == 200


def test_a_response_is_refused_if_its_conversation_changes_before_it_is_stored(model, tmp_path):
    """Between reading the items and storing its row, the request parses 7 MiB again. Other requests
    add items during all of that time."""
    with serve(model, tmp_path) as server:
        made = server.post("/v1/conversations", {}).json["id"]
        path = f"/v1/conversations/{made}/items"
        one = {"items": [{"type": "message", "role": "user", "content": "a"}]}
        body = response_body(4, conversation=made, padding="x" * (7 << 20))
        sock = server.connect()
        sock.sendall(http_request("POST", "/v1/responses", json.dumps(body).encode(),
                                  connection="close"))
        sock.setblocking(False)
        answer = b""
        while not answer:
            assert server.plain("POST", path, one).status == 200
            with contextlib.suppress(BlockingIOError):
                answer = sock.recv(1 << 16)
        sock.setblocking(True)
        answer += read_all(sock)
        assert statuses(answer) == [409] and b"conversation_locked" in answer
        assert b"has changed since" in answer
        seen = server.plain("GET", f"{path}?limit=100").json["data"]
        assert all(item["role"] == "user" for item in seen)
        assert server.post("/v1/responses", response_body(4, conversation=made)).status == 200


# --- chats ---

def test_the_messages_of_a_stored_chat_are_listed(client):
    parts = [{"type": "text", "text": "three"}]
    made = client.chat.completions.create(
        model="tiny", max_tokens=4, store=True,
        messages=[{"role": "system", "content": "one"}, {"role": "user", "content": "two"},
                  {"role": "assistant", "content": "x"}, {"role": "user", "content": parts}])
    found = list(client.chat.completions.messages.list(made.id, limit=3))
    assert [m.id for m in found] == [f"{made.id}-{n}" for n in range(4)]
    assert [m.role for m in found] == ["system", "user", "assistant", "user"]
    assert [m.content for m in found] == ["one", "two", "x", None]
    assert found[0].content_parts is None and found[3].content_parts[0].text == "three"
    page = client.chat.completions.messages.list(made.id, limit=1, order="desc")
    assert [m.id for m in page.data] == [f"{made.id}-3"] and page.has_more
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.messages.list("chatcmpl-0")


def test_stored_chats_are_listed_changed_and_deleted(client):
    def make(n):
        return client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": f"{n}"}], max_tokens=4,
            store=True, metadata={"n": str(n)})
    ids = [make(n).id for n in range(5)]
    listed = [c.id for c in client.chat.completions.list(limit=2)]
    assert [i for i in listed if i in ids] == ids
    found = client.chat.completions.retrieve(ids[0])
    assert found.metadata == {"n": "0"} and found.choices[0].message.content is not None
    assert client.chat.completions.update(ids[0], metadata={"n": "z"}).metadata == {"n": "z"}
    assert client.chat.completions.delete(ids[0]).deleted
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve(ids[0])


# --- a crash ---

def ended(server, name):
    """A response, once it has ended."""
    def look():
        reply = server.get(f"/v1/responses/{name}").json
        return reply if reply["status"] not in ("queued", "in_progress") else None
    return wait_until(look)


def open_durable(server, path, body, name):
    body = json.dumps({**body, "stream": True}).encode()
    sock = server.connect()
    sock.sendall(http_request("POST", path, body, x_jitney_keep="durable", x_request_id=name))
    return sock


@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", chat_body(60, logprobs=True, top_logprobs=2)),
    ("/v1/chat/completions", chat_body(40, n=3)),
    ("/v1/completions", {"model": "tiny", "prompt": ["one", "two"], "max_tokens": 40, "seed": 4}),
    ("/v1/responses", {"model": "tiny", "input": "Hello", "max_output_tokens": 60, "seed": 4}),
    ("/v1/messages", {"model": "tiny", "max_tokens": 60,
                      "messages": [{"role": "user", "content": "Hi"}], "temperature": 0})])
def test_a_durable_stream_continues_after_kill(model, tmp_path, path, body):
    with crashing(model, tmp_path) as server:
        whole = server.post(path, {**body, "stream": True},
                            headers={"x-jitney-keep": "durable"}).events
        with open_durable(server, path, body, "mine") as sock:
            seen = parse_events(read_until(sock, b"id: 9\n").partition(b"\r\n\r\n")[2].decode(
                errors="ignore"))
    with crashing(model, tmp_path) as server:
        reply = wait_until(lambda: (lambda r: r.status == 200 and r)(server.get(
            "/v1/requests/mine", headers={**EVENTS, "last-event-id": "8"})))
        assert plain(reply.events) == plain(whole[8:])
        again = server.get("/v1/requests/mine", headers=EVENTS)
        assert plain(again.events) == plain(whole)
        poll = server.get("/v1/requests/mine?after=3").json
        assert poll["done"] and [e["id"] for e in poll["events"]] == \
            [int(e[1]) for e in whole[3:]]
    with serve(model, tmp_path) as server:
        assert plain(server.get("/v1/requests/mine", headers=EVENTS).events) == plain(whole)
        poll = server.get("/v1/requests/mine?after=3").json
        assert poll["done"] and poll["next"] == len(whole) and poll["status"] == "completed"
        assert server.request("DELETE", "/v1/requests/mine").status == 200
        assert server.get("/v1/requests/mine").status == 404
    assert seen


def test_a_random_seed_is_kept_over_a_crash(model, tmp_path):
    body = {"model": "tiny", "input": "Hello", "max_output_tokens": 40, "temperature": 1}
    with crashing(model, tmp_path) as server:
        with open_durable(server, "/v1/responses", body, "mine") as sock:
            data = read_until(sock, b"id: 20\n").partition(b"\r\n\r\n")[2]
    text = re.sub(rb"\r\n[0-9a-f]+\r\n|^[0-9a-f]+\r\n", b"", data).decode()
    seen = parse_events(text.rpartition("\n\n")[0] + "\n\n")
    with serve(model, tmp_path) as server:
        wait_until(lambda: server.get("/v1/requests/mine").json.get("done"))
        whole = server.get("/v1/requests/mine", headers=EVENTS).events
    assert plain(seen) == plain(whole[:len(seen)]) and len(seen) >= 15


def test_a_response_in_the_background_survives_kill(model, tmp_path):
    with crashing(model, tmp_path) as server:
        made = server.post("/v1/responses", response_body(60, background=True)).json
    with serve(model, tmp_path) as server:
        reply = ended(server, made["id"])
        assert reply["usage"]["output_tokens"] == 60
        other = server.post("/v1/responses", response_body(60)).json
        assert other["output"][0]["content"] == reply["output"][0]["content"]


def test_an_orderly_end_leaves_the_rest_for_the_next_start(model, tmp_path):
    with serve(model, tmp_path, "--drain-s", "0.2", runner=PACED) as server:
        made = server.post("/v1/responses", response_body(300, background=True)).json
        server.stop()
    with serve(model, tmp_path) as server:
        reply = ended(server, made["id"])
        assert reply["usage"]["output_tokens"] == 300


def test_an_answer_that_loses_the_engine_each_time_ends(model, tmp_path):
    flags = ("--watchdog-s", "0.2")
    made = None
    for _ in range(3):
        server = serve(model, tmp_path, *flags, runner=("--runner", "sim:1000,hang-after=5"))
        try:
            if not made:
                made = server.plain("POST", "/v1/responses", response_body(300, background=True)).json
            assert server.process.wait(20) == 70, server.lines
        finally:
            server.kill()
    with serve(model, tmp_path) as server:
        reply = ended(server, made["id"])
        assert reply["status"] == "failed" and "3 times" in reply["error"]["message"]
        assert server.post("/v1/responses", response_body()).status == 200


def test_another_model_ends_the_answer_with_a_named_error(model, tmp_path, tmp_path_factory):
    with crashing(model, tmp_path) as server:
        made = server.post("/v1/responses", response_body(300, background=True)).json
        with server.connect() as sock:
            body = json.dumps(chat_body(300, stream=True)).encode()
            sock.sendall(http_request("POST", "/v1/chat/completions", body, x_request_id="mine",
                                      x_jitney_keep="durable"))
            read_until(sock, b"id: 2\n")
    other = tiny_model(tmp_path_factory, ctx=4096)
    with serve(other, tmp_path) as server:
        reply = ended(server, made["id"])
        assert reply["status"] == "failed"
        assert "fingerprint has changed" in reply["error"]["message"]
        stream = server.get(f"/v1/responses/{made['id']}?stream=true&starting_after=20").events
        assert stream and "fp_" in stream[-1][2]
        for after in ("0", "1", "2", "200"):
            events = server.get("/v1/requests/mine",
                                headers={**EVENTS, "last-event-id": after}).events
            assert [json.loads(data)["error"]["code"] for _, _, data in events[:-1]] == \
                ["fingerprint_changed"] and events[-1][2] == "[DONE]"
    with serve(model, tmp_path, "--keep-s", "0") as server:  # it has ended for good
        assert server.get(f"/v1/responses/{made['id']}").json["status"] == "failed"


def test_an_answer_whose_key_was_removed_ends_in_its_own_format(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    with crashing(model, tmp_path, "--api-key-file", keys) as server:
        server.key = "sesame"
        made = server.post("/v1/responses", response_body(300, background=True)).json
    keys.write_text("other name=bob\n")
    with serve(model, tmp_path, "--api-key-file", keys) as server:
        assert wait_until(lambda: any("event=resumed" in line for line in server.lines))
    keys.write_text(KEYS)
    with serve(model, tmp_path, "--api-key-file", keys) as server:
        server.key = "sesame"
        reply = ended(server, made["id"])
        assert (reply["id"], reply["status"]) == (made["id"], "failed")
        assert "was removed" in reply["error"]["message"]
        events = server.get(f"/v1/responses/{made['id']}?stream=true").events
        assert events[-1][0] == "response.failed" and "was removed" in events[-1][2]


def test_answers_end_in_their_own_formats_where_no_model_writes_text(model, tmp_path):
    bodies = {"/v1/responses": response_body(300, background=True, instructions="Be brief.",
                                             include=["message.output_text.logprobs"]),
              "/v1/chat/completions": chat_body(300, stream=True, logprobs=True),
              "/v1/completions": {"model": "tiny", "prompt": "a", "max_tokens": 300, "echo": True},
              "/v1/messages": chat_body(300, stream=True),
              "/api/chat": chat_body(stream=True, options={"num_predict": 300})}
    with crashing(model, tmp_path) as server, contextlib.ExitStack() as stack:
        for path, body in bodies.items():
            sock = stack.enter_context(server.connect())
            sock.sendall(http_request("POST", path, json.dumps(body).encode(),
                                      x_request_id=path.replace("/", "-"), x_jitney_keep="durable"))
        with sqlite3.connect(tmp_path / "data" / "jitney.db") as db:
            assert wait_until(lambda: db.execute("SELECT count(*) FROM answers").fetchone()[0] == 5)
    with Server(GOLDEN / "bert", "--data-dir", tmp_path / "data") as server:
        assert wait_until(lambda: sum("event=resumed" in line for line in server.lines) == 5)

        def last(path):
            return server.get("/v1/requests/" + path.replace("/", "-"), headers=EVENTS).events
        assert wait_until(lambda: server.plain("GET", "/v1/requests/-api-chat").status == 200)
        name, _, data = last("/v1/responses")[-1]
        reply = json.loads(data)["response"]
        assert name == "response.failed" and reply["id"].startswith("resp_")
        assert (reply["status"], reply["model"]) == ("failed", "tiny")
        assert reply["instructions"] == "Be brief."
        assert "not served any more" in reply["error"]["message"]
        found = server.get(f"/v1/responses/{reply['id']}").json
        assert found["status"] == "failed" and found["error"] == reply["error"]
        for path in ("/v1/chat/completions", "/v1/completions"):
            events = last(path)
            assert json.loads(events[0][2])["error"]["code"] == "model_not_found"
            assert events[-1][2] == "[DONE]"
        name, _, data = last("/v1/messages")[-1]
        assert name == "error" and json.loads(data)["type"] == "error"
        reply = server.plain("GET", "/v1/requests/-api-chat", headers=EVENTS)
        assert "not served any more" in reply.json["error"]


# --- owners and the folder ---

def test_a_key_sees_its_own(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    with serve(model, tmp_path, "--api-key-file", keys, runner=PACED) as server:
        server.key = "sesame"
        made = server.post("/v1/responses", response_body()).json
        chat = server.post("/v1/chat/completions", chat_body(store=True)).json
        talk = server.post("/v1/conversations", {}).json
        busy = response_body(400, conversation=talk["id"], background=True)
        assert server.post("/v1/responses", busy).status == 200
        server.key = "other"
        assert server.post("/v1/responses", busy).status == 404
        for path in (f"/v1/responses/{made['id']}", f"/v1/chat/completions/{chat['id']}",
                     f"/v1/conversations/{talk['id']}", f"/v1/requests/{made['id']}"):
            assert server.get(path).status == 404, path
            assert server.request("DELETE", path).status == 404, path
        assert server.get("/v1/chat/completions").json["data"] == []
        body = {"model": "tiny", "input": "x", "previous_response_id": made["id"]}
        assert server.post("/v1/responses", body).status == 404
    keys.write_text(KEYS.replace("sesame", "renewed"))  # the name decides, not the secret
    with serve(model, tmp_path, "--api-key-file", keys) as server:
        server.key = "renewed"
        assert server.get(f"/v1/responses/{made['id']}").status == 200


def test_an_answer_under_way_belongs_to_the_name_of_its_key(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sesame name=alice\nsecond name=alice\n")
    with serve(model, tmp_path, "--api-key-file", keys, runner=PACED) as server:
        server.key = "sesame"
        made = server.post("/v1/responses", response_body(400, background=True)).json
        server.key = "second"
        assert server.get(f"/v1/responses/{made['id']}").json["status"] != "failed"
        assert server.post(f"/v1/responses/{made['id']}/cancel", {}).json["status"] == "cancelled"


def test_a_response_that_was_deleted_while_it_ran_is_gone(model, tmp_path):
    with serve(model, tmp_path, runner=PACED) as server:
        made = server.post("/v1/responses", response_body(400, background=True)).json
        assert server.request("DELETE", f"/v1/responses/{made['id']}").status == 200
        assert server.get(f"/v1/responses/{made['id']}").status == 404


def test_what_is_deleted_while_it_is_resumed_is_gone(model, tmp_path):
    with crashing(model, tmp_path) as server:
        ids = [server.post("/v1/responses", response_body(8000, background=True)).json["id"]
               for _ in range(100)]
    with Server(model, *PACED, "--served-model-name", "tiny", "--data-dir", tmp_path / "data",
                ready=False) as server, server.connect() as sock:
        sock.sendall(b"".join(http_request("DELETE", f"/v1/responses/{made}") for made in ids))
        data = b""
        while data.count(b'"deleted":true') < len(ids):
            data += sock.recv(65536)
        server.wait_ready()
        assert wait_until(server.is_quiet, 10)
        for made in ids:
            assert server.plain("GET", f"/v1/responses/{made}").status == 404
            assert server.plain("GET", f"/v1/requests/{made}").status == 404


def test_a_request_id_that_is_used_again_deletes_what_it_finds(model, tmp_path):
    """The older one is in memory, the newer one is not any more."""
    with serve(model, tmp_path, "--keep-s", "0", runner=PACED) as server:
        mine = {"x-request-id": "mine"}
        older, newer = [server.post("/v1/responses", response_body(tokens, background=True),
                                    headers=mine).json["id"] for tokens in (2000, 2)]
        assert wait_until(lambda: server.get("/v1/requests/mine").json["id"] in older)
        assert server.request("DELETE", "/v1/requests/mine").json["id"] in older
        assert server.get(f"/v1/responses/{older}").status == 404
        assert server.get(f"/v1/responses/{newer}").status == 200


def test_a_request_id_may_look_like_an_id_of_ours(model, tmp_path):
    with serve(model, tmp_path, "--keep-s", "0") as server:
        reply = server.post("/v1/chat/completions", chat_body(4), headers={
            "x-jitney-keep": "durable", "x-request-id": "msg_foo"})
        assert reply.status == 200
        assert wait_until(lambda: server.get("/v1/requests/msg_foo").status == 200)


def test_the_folder_is_private_and_has_one_server(model, tmp_path):
    with serve(model, tmp_path) as server:
        folder = tmp_path / "data"
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        for path in folder.iterdir():
            assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, path
        with pytest.raises(AssertionError) as e:
            serve(model, tmp_path)
        assert str(server.pid) in str(e.value)


def test_a_damaged_database_is_reported_and_moved_only_when_told(model, tmp_path):
    with serve(model, tmp_path) as server:
        server.post("/v1/responses", response_body())
    path = tmp_path / "data" / "jitney.db"
    data = bytearray(path.read_bytes())
    data[100:4096] = os.urandom(3996)
    path.write_bytes(data)
    with pytest.raises(AssertionError) as e:
        serve(model, tmp_path)
    assert "--jobs-recover" in str(e.value)
    with serve(model, tmp_path, "--jobs-recover") as server:
        assert server.post("/v1/responses", response_body()).status == 200
    assert list(path.parent.glob("jitney.db.damaged-*"))


def test_nothing_of_a_plain_request_reaches_the_database(model, tmp_path):
    with serve(model, tmp_path) as server:
        server.post("/v1/responses", {"model": "tiny", "input": "secretword"})
        server.chat("secretword", stream=True)
        time.sleep(0.1)
    for path in (tmp_path / "data").iterdir():
        assert b"secretword" not in path.read_bytes()
    with sqlite3.connect(tmp_path / "data" / "jitney.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
