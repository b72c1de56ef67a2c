"""Goal:   --speculate reaches the engine from flags, environment and config file, and changes no
        answer: of `jitney generate`, `jitney batch`, a server, a stored answer; what is wrong is
        refused with a sentence.
Method: the real program on a tiny random model, with its own and with simulated steps; the same
        requests with and without drafts. Answers become predictions of the same requests. The bytes
        of every dialect are compared by unit/server/test_serving_speculation.c."""

import concurrent.futures
import http.client
import json

import pytest

from cli_lib import BAD, GOLDEN, MISSING, USAGE, answer, out, refusal, talking_model
from server_lib import FAST, Server, parse_events, wait_until

TEXT = "/v1/completions"
REPEATS = "ab cd ab cd ab cd ab cd"
OFF = ("--weights-cache", "off")
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    folder = talking_model(tmp_path_factory.mktemp("speculation") / "tiny")
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 1024
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def generate(model, *flags):
    return answer("generate", model, "-p", REPEATS, "-n", "120", "--ctx", "512", *OFF, *flags)


@pytest.mark.parametrize("sampling", [("--temp", "0", "--seed", "1"), ("--temp", "1", "--seed", "5")],
                         ids=["greedy", "sampled"])
def test_generate_gives_the_same_answer(model, sampling):
    plain = generate(model, *sampling)
    assert "drafts" not in plain
    for name in ("ngram", "ngram:1-3", "suffix"):
        found = generate(model, *sampling, "--speculate", name)
        drafts = found.pop("drafts")
        assert 0 <= drafts["accepted"] <= drafts["drafted"]
        assert {**found, "timings": 0} == {**plain, "timings": 0}


def test_the_hash_of_logits_is_the_same(model):
    flags = ("--temp", "0", "--hash-logits")
    assert (generate(model, *flags)["logits_sha256"] ==
            generate(model, *flags, "--speculate", "ngram")["logits_sha256"])


def replay_counts(model, requests, answers, drafter):
    """(drafted, accepted) of a replay, which are also the sums over its answers and its steps."""
    trace = answers.with_suffix(".trace")
    got = answer("replay", "-m", model, "--requests", requests, "--ctx", "256", "--out", answers,
                 "--trace", trace, "--speculate", drafter)
    each = [json.loads(line) for line in answers.read_text().splitlines()]
    for key in ("drafted", "accepted"):
        assert got[key] == sum(item[key] for item in each)
    steps = [step["args"] for step in json.loads(trace.read_text())]
    assert got["drafted"] == sum(step["drafts"] for step in steps)
    assert got["accepted"] == sum(step["accepted"] for step in steps)
    return got["drafted"], got["accepted"]


def test_replay_counts_drafts(model, tmp_path):
    lines = [{"id": f"r{i}", "prompt": REPEATS, "max_tokens": 60, "temperature": 0,
              "ignore_eos": True} for i in range(2)]
    requests = tmp_path / "in.jsonl"
    requests.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert replay_counts(model, requests, tmp_path / "off.jsonl", "off") == (0, 0)
    # Repeated while there are no drafts, as in ask_until_accepted.
    for _ in range(30):
        drafted, accepted = replay_counts(model, requests, tmp_path / "ngram.jsonl", "ngram")
        if accepted > 0:
            break
    assert 0 < accepted <= drafted


@pytest.mark.parametrize("command", ["generate", "serve", "replay"])
def test_wrong_names_are_refused(model, command, tmp_path):
    more = {"generate": ("-p", "x"), "serve": ("--port", "0"),
            "replay": ("--requests", tmp_path / "none")}[command]
    names = {"ngran": "did you mean 'ngram'?", "eagle": "unknown name 'eagle'; known: off, ngram",
             "ngram:9-3": "out of range", "suffix:3": "takes no options", "model": "model:PATH"}
    for name, words in names.items():
        assert words in refusal(USAGE, command, "-m", model, *more, "--speculate", name)


@pytest.mark.parametrize("words", [("generate", "-p", "x"), ("replay", "--requests", "none")],
                         ids=["generate", "replay"])
def test_commands_without_a_server_have_no_prediction(model, words):
    command, *more = words
    assert "prediction" in refusal(USAGE, command, "-m", model, *more, "--speculate", "predicted")


def test_a_simulated_replay_drafts_repeated_questions(model, tmp_path):
    """Simulated tokens are random, so only recent answers to the same question are right."""
    requests = tmp_path / "in.jsonl"
    requests.write_text("".join(json.dumps(
        {"id": f"r{i}", "at_ms": 5000 * i, "prompt": REPEATS, "max_tokens": 40, "temperature": 1,
         "seed": 7, "ignore_eos": True}) + "\n" for i in range(3)))

    def replay(drafter):
        answers = tmp_path / "out.jsonl"
        got = answer("replay", "-m", model, "--sim", "this-cpu", "--requests", requests, "--out",
                     answers, "--speculate", drafter)
        found = [json.loads(line) for line in answers.read_text().splitlines()]
        return got, [(a["id"], a["tokens"], a["logprobs"]) for a in found]

    plain, tokens = replay("off")
    drafted, same = replay("suffix")
    assert same == tokens
    assert plain["drafted"] == 0 < drafted["accepted"] <= drafted["drafted"]
    assert drafted["steps"] < plain["steps"]
    assert "draft model" in refusal(USAGE, "replay", "-m", model, "--sim", "this-cpu",
                                    "--requests", requests, "--speculate", f"model:{model}")


def test_a_draft_model_that_is_not_there_is_named(model):
    for code in (MISSING, BAD):
        try:
            text = refusal(code, "generate", model, "-p", "x", "--speculate", "model:/nowhere")
            break
        except AssertionError:
            if code == BAD:
                raise
    assert "/nowhere" in text


def test_the_check_of_settings_opens_the_draft_model(model, tmp_path):
    def refused(code, draft, *flags):
        return refusal(code, "serve", "-m", model, "--check", "--speculate", f"model:{draft}", *flags)

    out("serve", "-m", model, "--check", "--speculate", f"model:{model}")
    assert "--speculate model: /nowhere" in refused(MISSING, "/nowhere")
    assert "is an encoder" in refused(BAD, GOLDEN / "bert")
    other = talking_model(tmp_path / "other")
    path = other / "tokenizer.json"
    long = "~" + 30 * "\u00e9"  # the message has its first 40 bytes at most, in whole characters
    path.write_text(path.read_text().replace('"~": 96', f'"{long}": 96'))
    assert path.read_text() != (model / "tokenizer.json").read_text()
    assert f'another vocabulary: token 96 is "{long[:20]}", in the' in refused(BAD, other)
    assert "--runner local" in refused(USAGE, model, "--runner", "sim:0")


def body_of(i, **more):
    return {"prompt": f"x{i}", "max_tokens": 60, "temperature": 1, "seed": i, **more}


def texts(server, bodies):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda b: server.post(TEXT, b), bodies))
    assert {r.status for r in replies} == {200}
    return [(r.json["choices"], r.json["usage"]["completion_tokens"]) for r in replies]


@pytest.mark.parametrize("runner", [(), ("--device", "delayed"), FAST],
                         ids=["depth 0", "depth 1", "simulated"])
def test_a_server_gives_the_same_answers(model, runner):
    """Requests at the same time, with predictions that are right, nearly right and wrong."""
    bodies = [body_of(i, **({"logprobs": 2} if i % 2 else {})) for i in range(12)]
    flags = (*runner, "--served-model-name", "m", "--kv-memory", "64M", "--set", "max_seqs=6")
    with Server(model, *flags) as server:
        plain = texts(server, bodies)
        assert server.metrics()[DRAFTED] == 0
    with Server(model, *flags, "--speculate", "suffix") as server:
        assert texts(server, bodies) == plain
        for cut in (0, 5, 400):
            predicted = [{**b, "prediction": {"type": "content", "content": p[0][0]["text"][cut:]}}
                         for b, p in zip(bodies, plain)]
            assert texts(server, predicted) == plain
        found = server.metrics()
        assert found[ACCEPTED] <= found[DRAFTED]
        if runner == FAST:
            assert found[ACCEPTED] > 0


def ask_until_accepted(server, body):
    """Accepted tokens of a request with a prediction that is right. It is repeated while it has got no
    drafts: on a busy machine steps take long by chance, and drafts then seem not to be worth it."""
    for _ in range(50):
        usage = server.post(TEXT, body).json["usage"]["completion_tokens_details"]
        if usage["accepted_prediction_tokens"] > 0:
            break
    return usage["accepted_prediction_tokens"]


def drafted_by(server):
    """Drafts for one request whose text repeats itself."""
    before = server.metrics()[DRAFTED]
    found = server.post(TEXT, {"prompt": REPEATS, "max_tokens": 100, "temperature": 0})
    assert found.status == 200
    return server.metrics()[DRAFTED] - before


def test_where_the_setting_may_come_from(model, tmp_path):
    """The knob draft_max is changed while the server runs."""
    config = tmp_path / "config"
    config.write_text("speculate = ngram\n")
    paced = ("--runner", "sim:2000", "--served-model-name", "m")
    with Server(model, *paced, "--config", config) as server:
        body = {"prompt": REPEATS, "max_tokens": 60, "seed": 1,
                "prediction": {"type": "content", "content": ""}}
        text = server.post(TEXT, body).json["choices"][0]["text"]
        body["prediction"]["content"] = text
        assert ask_until_accepted(server, body) > 0
        reply = server.post("/v1/engine/policy", {"knobs": {"draft_max": 0}})
        assert reply.status == 200, reply.body
        body["seed"] = 1
        usage = server.post(TEXT, body).json["usage"]["completion_tokens_details"]
        assert usage["accepted_prediction_tokens"] == usage["rejected_prediction_tokens"] == 0
        assert drafted_by(server) == 0
    with Server(model, *paced, env={"JITNEY_SPECULATE": "suffix"}) as server:
        assert drafted_by(server) >= 0
    code = refusal(78, "serve", model, "--port", "0", env={"JITNEY_SPECULATE": "sufix"})
    assert "did you mean 'suffix'?" in code


def events_of(server, until):
    """The data of the events of /v1/engine/steps, until the list of them satisfies `until`."""
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    connection.request("GET", "/v1/engine/steps?from=0")
    response, text = connection.getresponse(), ""
    assert response.status == 200
    try:
        while True:
            text += response.read1(65536).decode()
            whole = text.rpartition("\n\n")[0] + "\n\n"
            found = [json.loads(data) for _, _, data in parse_events(whole)]
            if until(found):
                return found
    finally:
        connection.close()


def rows_of(events):
    """Of all steps; the first event names the columns."""
    return [dict(zip(events[0]["rows"], row)) for event in events[1:]
            for row in event.get("rows", [])]


def test_rows_of_steps_say_what_was_drafted(model):
    with Server(model, "--runner", "sim:2000", "--served-model-name", "m") as server:
        body = {"prompt": "x", "max_tokens": 60, "seed": 1}
        text = server.post(TEXT, body).json["choices"][0]["text"]
        body["prediction"] = {"type": "content", "content": text}
        accepted = ask_until_accepted(server, body)
        assert accepted > 0
        rows = rows_of(events_of(server, lambda events: sum(
            row["accepted"] for row in rows_of(events)) >= accepted))
        assert sum(row["accepted"] for row in rows) == accepted
        assert sum(row["drafts"] for row in rows) >= accepted


def test_lines_of_a_batch_may_predict(model, tmp_path):
    def run(name, more, *flags):
        lines = [{"custom_id": str(i), "method": "POST", "url": TEXT, "body": {**body_of(i), **more(i)}}
                 for i in range(6)]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        out("batch", tmp_path / name, "-o", tmp_path / f"{name}.out", "-m", model, *OFF, *flags)
        found = [json.loads(t) for t in (tmp_path / f"{name}.out").read_text().splitlines()]
        return [f["response"]["body"]["choices"] for f in found]

    plain = run("plain", lambda i: {})
    for drafter in ("ngram", "suffix"):
        assert run(drafter, lambda i: {}, "--speculate", drafter) == plain
    assert run("predicted", lambda i: {"prediction": {
        "type": "content", "content": plain[i][0]["text"]}}) == plain


def test_a_stored_answer_may_have_a_prediction(model, tmp_path):
    with Server(model, *FAST, "--served-model-name", "m", "--data-dir", tmp_path / "data") as server:
        def ask(**more):
            body = {"input": "x", "seed": 3, "max_output_tokens": 50, "background": True, **more}
            made = server.post("/v1/responses", body)
            assert made.status == 200, made.body
            path = f"/v1/responses/{made.json['id']}"
            assert wait_until(lambda: server.get(path).json["status"] == "incomplete")
            done = server.get(path).json
            assert done["incomplete_details"] == {"reason": "max_output_tokens"}
            return done["output"][0]["content"], done["usage"]

        content, usage = ask()
        again, same = ask(prediction={"type": "content", "content": content[0]["text"]})
        assert again == content and same["output_tokens"] == usage["output_tokens"]
        again, same = ask(speculation={"drafter": "suffix", "max": 3})
        assert again == content and same["output_tokens"] == usage["output_tokens"]
