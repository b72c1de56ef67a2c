"""Goal:   `jitney replay` and `jitney knobs` keep the contract that scripts rely on: fields, finish
        reasons, exit codes, and answers that do not depend on policy, knobs or company.
Method: the real program on a tiny random model of the tree; on SmolLM2 too where it is cached."""

import json
import re
from pathlib import Path

import pytest

from cli_lib import BAD, CREATE, GOLDEN, MISSING, USAGE, answer, out, refusal, run

LLAMA = GOLDEN / "llama"
LIST = Path(__file__).parents[2] / "src" / "sched" / "policy_list.c"
POLICIES = [n.replace("_", "-") for n in re.findall(r"&sched_policy_(\w+)", LIST.read_text())]
KNOBS = [
    "kv_blocks",
    "block_size",
    "max_seqs",
    "max_step_tokens",
    "step_target_ms",
    "prefix_cache",
    "kv_type",
    "preempt",
    "threads",
]
REQUESTS = [
    {"id": "greedy", "prompt": "Hello there", "max_tokens": 12, "ignore_eos": True},
    {"id": "warm", "prompt_len": 40, "max_tokens": 20, "temperature": 0.9, "seed": 5},
    {"id": "four", "prompt_tokens": [5, 6, 7, 8], "max_tokens": 9, "n": 4, "temperature": 1},
    {"id": 7, "prompt_len": 60, "max_tokens": 30, "at_ms": 5, "priority": 3, "tenant": "b"},
    {"id": "late", "prompt_len": 25, "max_tokens": 8, "at_ms": 30, "tenant": 2},
]


def models():
    found = [LLAMA]
    if run("inspect", "smollm2")[0] == 0:
        found.append("smollm2")
    return found


@pytest.fixture(params=models(), ids=str, name="model")
def model_fixture(request):
    return request.param


def write(path, lines):
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


def replay(tmp_path, lines, *flags, model=LLAMA):
    """{(id, choice): object} of a run that must succeed."""
    text = out(
        "replay", "-m", model, "--requests", write(tmp_path / "in.jsonl", lines), *flags
    ).decode()
    objects = [json.loads(line) for line in text.splitlines()]
    return {(x["id"], x["choice"]): x for x in objects}


def bits(results):
    return {key: (x["tokens"], x["logprobs"]) for key, x in results.items()}


def test_an_answer_has_the_promised_fields(tmp_path, model):
    got = replay(tmp_path, REQUESTS, model=model)
    assert list(got) == [
        ("greedy", 0),
        ("warm", 0),
        ("four", 0),
        ("four", 1),
        ("four", 2),
        ("four", 3),
        (7, 0),
        ("late", 0),
    ]
    for item in got.values():
        assert list(item) == [
            "id",
            "choice",
            "tokens",
            "logprobs",
            "finish_reason",
            "ttft_ms",
            "tpot_ms",
            "preempted",
            "cached_tokens",
            "drafted",
            "accepted",
        ]
        assert item["finish_reason"] in ("stop", "length")
        assert len(item["tokens"]) == len(item["logprobs"]) > 0
        assert item["ttft_ms"] > 0
        assert all(p <= 0 for p in item["logprobs"])
    assert len(got["greedy", 0]["tokens"]) == 12


def test_the_summary_has_the_promised_fields(tmp_path, model):
    path = write(tmp_path / "in.jsonl", REQUESTS)
    answers = tmp_path / "out.jsonl"
    got = answer("replay", "-m", model, "--requests", path, "--out", answers)
    for key in (
        "output_tokens_per_s",
        "ttft_ms",
        "tpot_ms",
        "preemptions",
        "kv_waste",
        "steps",
        "sched_us_per_step",
        "drafted",
        "accepted",
    ):
        assert key in got
    assert set(got["ttft_ms"]) == set(got["tpot_ms"]) == {"p50", "p99"}
    assert 0 < got["ttft_ms"]["p50"] <= got["ttft_ms"]["p99"]
    assert got["output_tokens_per_s"] > 0 and got["steps"] > 0
    assert 0 <= got["kv_waste"] < 1
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    assert sum(len(x["tokens"]) for x in lines) == got["output_tokens"]


def test_generate_says_the_same(tmp_path, model):
    got = replay(tmp_path, REQUESTS, model=model)["greedy", 0]
    alone = answer(
        "generate", "-m", model, "-p", "Hello there", "-n", "12", "--ignore-eos", "--temp", "0"
    )
    assert got["tokens"] == alone["tokens"]
    assert got["logprobs"] == alone["logprobs"]


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_change_no_answer(tmp_path, policy):
    want = bits(replay(tmp_path, REQUESTS))
    tight = ["--set", "kv_blocks=8", "--set", "max_seqs=3", "--set", "static_wait_ms=1"]
    assert bits(replay(tmp_path, REQUESTS, "--policy", policy)) == want
    assert bits(replay(tmp_path, REQUESTS, "--policy", policy, *tight)) == want


@pytest.mark.parametrize(
    "knobs",
    [
        ["max_step_tokens=1"],
        ["chunk_tokens=3", "threads=1"],
        ["block_size=64", "prefix_cache=off"],
        ["preempt=swap", "kv_blocks=7"],
        ["preempt=recompute", "kv_blocks=7"],
        ["step_target_ms=1", "threads=2"],
        ["max_seqs=1"],
    ],
    ids=" ".join,
)
def test_knobs_change_no_answer(tmp_path, knobs):
    flags = [flag for knob in knobs for flag in ("--set", knob)]
    assert bits(replay(tmp_path, REQUESTS, *flags)) == bits(replay(tmp_path, REQUESTS))


def test_choices_are_the_requests_of_the_following_seeds(tmp_path):
    four = {"id": "x", "prompt": "abc", "max_tokens": 10, "temperature": 1, "seed": 20, "n": 4}
    each = [dict(four, id=i, seed=20 + i, n=1) for i in range(4)]
    got = bits(replay(tmp_path, [four]))
    alone = bits(replay(tmp_path, each))
    assert [got["x", i] for i in range(4)] == [alone[i, 0] for i in range(4)]


def test_prompts_of_a_length_follow_from_the_id(tmp_path):
    line = {"prompt_len": 30, "max_tokens": 8, "ignore_eos": True}
    got = bits(replay(tmp_path, [dict(line, id="a"), dict(line, id="b")]))
    again = bits(replay(tmp_path, [dict(line, id="b")]))
    assert got["a", 0] != got["b", 0]
    assert got["b", 0] == again["b", 0]


def test_a_prefix_is_found_again(tmp_path):
    ids = [(i * 37) % 250 for i in range(64)]
    lines = [
        {"id": i, "prompt_tokens": ids, "max_tokens": 4, "at_ms": 100 * i} for i in range(2)
    ]
    got = replay(tmp_path, lines)
    assert got[0, 0]["cached_tokens"] == 0
    assert got[1, 0]["cached_tokens"] == 48
    other = [dict(line, tenant=f"t{line['id']}") for line in lines]
    assert replay(tmp_path, other)[1, 0]["cached_tokens"] == 0


def test_requests_arrive_and_are_cancelled_in_time(tmp_path):
    lines = [
        {"id": "stays", "prompt_len": 5, "max_tokens": 3, "at_ms": 800},
        {
            "id": "goes",
            "prompt_len": 5,
            "max_tokens": 1000000,
            "ignore_eos": True,
            "cancel_after_ms": 0,
        },
    ]
    path = write(tmp_path / "in.jsonl", lines)
    answers = tmp_path / "out.jsonl"
    got = answer("replay", LLAMA, "--requests", path, "--out", answers, "--ctx", "100000")
    ends = {x["id"]: x for x in map(json.loads, answers.read_text().splitlines())}
    assert ends["goes"]["finish_reason"] == "cancelled"
    assert ends["goes"]["tpot_ms"] is None
    assert ends["stays"]["finish_reason"] in ("stop", "length")
    assert got["elapsed_s"] >= 0.8
    assert ends["stays"]["ttft_ms"] < 700  # counted from its arrival


def test_what_can_never_fit_is_refused_with_the_numbers(tmp_path):
    lines = [
        {"id": "long", "prompt_len": 500, "max_tokens": 5},
        {"id": "wide", "prompt_len": 60, "max_tokens": 60},
        {"id": "fits", "prompt_len": 5, "max_tokens": 5, "ignore_eos": True},
    ]
    got = replay(tmp_path, lines, "--ctx", "200", "--set", "kv_blocks=4")
    assert got["long", 0]["finish_reason"] == got["wide", 0]["finish_reason"] == "refused"
    assert got["long", 0]["ttft_ms"] is None
    assert "500" in got["long", 0]["error"] and "200" in got["long", 0]["error"]
    assert "8 KV blocks" in got["wide", 0]["error"] and "4" in got["wide", 0]["error"]
    assert len(got["fits", 0]["tokens"]) == 5


def test_a_queue_that_is_said_to_be_short_refuses(tmp_path):
    lines = [{"id": i, "prompt_len": 5, "max_tokens": 40, "ignore_eos": True} for i in range(40)]
    got = replay(tmp_path, lines, "--set", "queue_max=2", "--set", "max_seqs=1")
    ends = [x["finish_reason"] for x in got.values()]
    assert "refused" in ends and "length" in ends
    assert {x["finish_reason"] for x in replay(tmp_path, lines).values()} == {"length"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("not json", "invalid"),
        ("[1]", "must be a JSON object"),
        ({"prompt_len": 5}, "max_tokens"),
        ({"max_tokens": 5}, "give exactly one of"),
        ({"max_tokens": 5, "prompt": "a", "prompt_len": 3}, "give exactly one of"),
        ({"max_tokens": 0, "prompt": "a"}, "from 1 to"),
        ({"max_tokens": 2.5, "prompt": "a"}, "whole number"),
        ({"max_tokens": 5, "prompt": 3}, '"prompt" must be a string'),
        ({"max_tokens": 5, "prompt_tokens": [1, 100000]}, "must be a token id from 0 to"),
        ({"max_tokens": 5, "prompt_tokens": []}, "list of 1 to"),
        ({"max_tokens": 5, "prompt_len": -1}, "prompt_len"),
        ({"max_tokens": 5, "prompt": "a", "n": 17}, "from 1 to 16"),
        ({"max_tokens": 5, "prompt": "a", "temperature": "hot"}, "temperature"),
        ({"max_tokens": 5, "prompt": "a", "seed": -1}, "seed"),
        ({"max_tokens": 5, "prompt": "a", "ignore_eos": 1}, "ignore_eos"),
        ({"max_tokens": 5, "prompt": "a", "id": [1]}, "id"),
        ({"max_tokens": 5, "prompt": "a", "tenant": {}}, "tenant"),
        ('{"max_tokens":5,"prompt":"a","prompt":"b"}', "duplicate"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_the_rest_runs(tmp_path, line, reason):
    good = {"id": "good", "prompt_len": 5, "max_tokens": 3, "ignore_eos": True}
    path = write(tmp_path / "in.jsonl", ["", dict(good, id="first"), line, good])
    code, stdout, stderr = run("replay", LLAMA, "--requests", path)
    assert code == BAD
    first, last = stderr.decode().splitlines()
    assert first.startswith(f"jitney: {path}:3: ") and reason in first
    assert last == f"jitney: {path}: 1 line could not be used"
    assert [json.loads(x)["id"] for x in stdout.splitlines()] == ["first", "good"]


def test_an_unknown_key_is_remarked_and_ignored(tmp_path):
    line = {"prompt_len": 5, "max_tokens": 3, "colour": "red"}
    code, stdout, stderr = run(
        "replay", LLAMA, "--requests", write(tmp_path / "in.jsonl", [line])
    )
    assert code == 0
    assert stderr.count(b"\n") == 1 and b'"colour" is ignored' in stderr
    assert json.loads(stdout)["id"] == 1


def test_the_list_can_come_from_a_pipe():
    got = out("replay", LLAMA, "--requests", "-", stdin='{"prompt_len":4,"max_tokens":2}\n')
    assert json.loads(got)["id"] == 1
    assert out("replay", LLAMA, "--requests", "-", stdin="") == b""


def test_usage_is_checked_before_anything_is_loaded(tmp_path):
    path = write(tmp_path / "in.jsonl", [])
    assert "--requests" in refusal(USAGE, "replay", LLAMA)
    assert "-m MODEL" in refusal(USAGE, "replay", "--requests", path)
    assert "knobs" in refusal(USAGE, "replay", LLAMA, "--requests", path, "--policy", "best")
    said = refusal(USAGE, "replay", LLAMA, "--requests", path, "--set", "max_seqs=0")
    assert "1 to 4096" in said
    assert "block_size" in refusal(USAGE, "replay", LLAMA, "--requests", path, "--set", "blok_size=1")
    assert "NAME=VALUE" in refusal(USAGE, "replay", LLAMA, "--requests", path, "--set", "x")
    assert "none" in refusal(MISSING, "replay", LLAMA, "--requests", tmp_path / "none")
    said = refusal(BAD, "replay", LLAMA, "--requests", path, "--set", "block_size=24")
    assert "multiple of 16" in said
    for flag in ("--out", "--trace", "--record"):
        where = tmp_path / "no" / "file"
        said = refusal(CREATE, "replay", "nothing", "--requests", path, flag, where)
        assert str(where.parent) in said


def test_the_trace_is_json_with_every_step(tmp_path):
    path = write(tmp_path / "in.jsonl", REQUESTS)
    trace = tmp_path / "trace.json"
    got = answer("replay", LLAMA, "--requests", path, "--trace", trace)
    steps = json.loads(trace.read_text())
    assert len(steps) == got["steps"]
    assert {"ts", "dur", "args"} <= set(steps[0])
    assert sum(x["args"]["samples"] for x in steps) == got["output_tokens"]


def test_a_recording_has_every_row_as_json_and_as_a_page(tmp_path):
    path = write(tmp_path / "in.jsonl", REQUESTS)
    file, page = tmp_path / "r.json", tmp_path / "r.html"
    got = answer("replay", LLAMA, "--requests", path, "--record", file)
    recording = json.loads(file.read_text())
    assert recording["jitney_recording"] == 1 and recording["hello"]["model"] == str(LLAMA)
    sampled = recording["hello"]["rows"].index("sampled")
    assert sum(row[sampled] for s in recording["steps"] for row in s.get("rows", [])) == got["output_tokens"]
    assert sum(len(s.get("ended", [])) for s in recording["steps"]) == got["choices"]
    answer("replay", LLAMA, "--requests", path, "--record", page)
    text = page.read_text()
    data = re.search(r'<script type="application/json" id="recording">(.*?)</script>', text, re.S)[1]
    assert "<" not in data and json.loads(data)["hello"] == {
        **recording["hello"], "epoch_ms": json.loads(data)["hello"]["epoch_ms"]}
    assert "script-src 'sha256-" in text and "<link" not in text


def test_swapped_blocks_go_to_the_folder_that_the_environment_names(tmp_path):
    path = write(tmp_path / "in.jsonl", REQUESTS)
    gone = str(tmp_path / "gone")
    said = refusal(CREATE, "replay", LLAMA, "--requests", path, env={"TMPDIR": gone})
    assert gone in said
    flags = ["--requests", path, "--set", "spill_blocks=0"]
    assert run("replay", LLAMA, *flags, env={"TMPDIR": gone})[0] == 0


# ---- simulated ----

SIM = [
    {"id": i, "prompt_len": 200 + 10 * i, "max_tokens": 50, "at_ms": 20 * i} for i in range(20)
]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_simulated_run_is_the_same_every_time(tmp_path, policy):
    path = write(tmp_path / "in.jsonl", SIM)
    flags = ["--sim", "h200-8b", "--policy", policy, "--requests", path]
    one, two = (answer("replay", *flags) for _ in range(2))
    one.pop("sched_us_per_step")
    two.pop("sched_us_per_step")
    assert one == two
    assert one["output_tokens"] == 1000
    assert one["finish_reasons"]["length"] == 20


def lines_of(count, **more):
    return [
        {"id": f"line{i}", "prompt_len": 40, "max_tokens": 20, "ignore_eos": True, **more}
        for i in range(count)
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_batch_lines_delay_other_requests_by_a_few_steps(tmp_path, policy):
    others = [
        {"id": f"r{i}", "at_ms": 200 * i, "prompt_len": 60, "max_tokens": 10, "ignore_eos": True}
        for i in range(10)
    ]
    flags = ["--sim", "h200-8b", "--policy", policy, "--set", "max_seqs=8", "--json"]
    flags += ["--set", "dynamic_batch=1", "--set", "static_wait_ms=0"]
    alone = answer("replay", *flags, "--requests", write(tmp_path / "a.jsonl", others))
    mixed = [*lines_of(300, batch=True), *others]
    got = answer("replay", *flags, "--requests", write(tmp_path / "b.jsonl", mixed))
    assert got["finish_reasons"]["length"] == 310  # more than may be in the engine at one time
    assert (got["batch_choices"], got["batch_output_tokens"]) == (300, 6000)
    assert got["ttft_ms"]["p99"] < alone["ttft_ms"]["p99"] + 60
    assert got["tpot_ms"]["p99"] < 1.5 * alone["tpot_ms"]["p99"]


def test_a_recording_knows_batch_lines(tmp_path):
    one = {"id": "r", "at_ms": 20, "prompt_len": 9, "max_tokens": 5}
    requests = [*lines_of(30, batch=True), one]
    path, recording = write(tmp_path / "in.jsonl", requests), tmp_path / "recording.json"
    flags = ["--sim", "h200-8b", "--set", "max_seqs=4", "--json", "--requests"]
    answer("replay", *flags, path, "--record", recording)
    got = json.loads(recording.read_text())
    column = got["hello"]["rows"].index("batch")
    rows = [row for step in got["steps"] for row in step.get("rows", [])]
    assert {row[column] for row in rows} == {0, 1}
    preempted = [entry for step in got["steps"] for entry in step.get("preempted", [])]
    assert [entry[2] for entry in preempted] == ["batch"]
    again = answer("replay", *flags, recording)
    assert (again["choices"], again["batch_choices"]) == (31, 30)


def test_batch_lines_have_the_same_answers_as_requests(tmp_path):
    plain = replay(tmp_path, [*REQUESTS, *lines_of(6)], "--set", "max_seqs=4")
    batch = replay(tmp_path, [*REQUESTS, *lines_of(6, batch=True)], "--set", "max_seqs=4")
    assert bits(plain) == bits(batch)


def test_a_profile_can_be_a_file(tmp_path):
    path = write(tmp_path / "in.jsonl", SIM[:1])
    profile = {"fixed_us": 1000, "per_token_us": 10, "per_attended_us": 0, "per_move_us": 1}
    slow = dict(profile, fixed_us=100000)
    quick_s, slow_s = (
        answer("replay", "--sim", write(tmp_path / "p.json", [p]), "--requests", path)["elapsed_s"]
        for p in (profile, slow)
    )
    assert slow_s > 20 * quick_s
    said = refusal(MISSING, "replay", "--sim", tmp_path / "none", "--requests", path)
    assert "none" in said
    bad = write(tmp_path / "p.json", ["{"])
    refusal(BAD, "replay", "--sim", bad, "--requests", path)


def test_a_simulated_run_reads_text_with_the_model_it_is_given(tmp_path):
    line = {"prompt": "Hello there", "max_tokens": 3}
    path = write(tmp_path / "in.jsonl", [line])
    assert run("replay", "--sim", "this-cpu", "--requests", path)[0] == BAD
    got = json.loads(out("replay", LLAMA, "--sim", "this-cpu", "--requests", path))
    assert len(got["tokens"]) == 3


# ---- knobs ----


def test_knobs_are_listed_with_default_range_and_meaning():
    got = answer("knobs")
    names = [k["name"] for k in got["knobs"]]
    assert set(KNOBS) <= set(names)
    assert len(names) == len(set(names))
    assert all(k["default"] and k["range"] and k["help"] for k in got["knobs"])
    assert [p["name"] for p in got["policies"]] == POLICIES
    assert len(POLICIES) >= 10
    assert all(p["help"] for p in got["policies"])
    assert {k["policy"] for k in got["knobs"]} <= set(POLICIES) | {None}
    text = out("knobs").decode()
    for name in names + POLICIES:
        assert f"\n{name} " in text or text.startswith(f"{name} ")


def test_every_default_is_accepted(tmp_path):
    path = write(tmp_path / "in.jsonl", [{"prompt_len": 4, "max_tokens": 2}])
    flags = [f for k in answer("knobs")["knobs"] for f in ("--set", f"{k['name']}={k['default']}")]
    assert run("replay", LLAMA, "--requests", path, *flags)[0] == 0
