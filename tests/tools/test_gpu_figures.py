"""tests/gpu/figures.py, as far as it goes without a GPU: its requests, and what it reads in steps."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("figures", ROOT / "tests" / "gpu" / "figures.py")
figures = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(figures)


def step(rows, tokens, us):
    return {"dur": us, "args": {"rows": rows, "tokens": tokens, "sched_us": 3, "submit_us": 5}}


def test_requests_of_decoding_end_in_groups_so_that_fewer_and_fewer_go_on():
    requests = figures.decode_requests(False)
    assert len(requests) == 256
    longest = [r["max_tokens"] for r in requests]
    for left in (128, 32, 8, 1):
        assert sum(tokens > sorted(longest, reverse=True)[left] for tokens in longest) == left
    for request in requests:
        middle = request["prompt_len"] + request["max_tokens"] - figures.PHASE // 2
        assert 448 <= middle <= 576, request


def test_only_steps_of_that_many_decoding_sequences_count():
    steps = [step(4, 9, 900), *[step(4, 4, 100)] * 10, step(3, 3, 50)]
    found = figures.step_rate(steps, 4)
    assert found["tokens_per_s"] == 40000.0
    assert found["steps"] == 6  # without two at each end
    assert found["sched_us"] == 3 and found["submit_us"] == 5
    assert figures.step_rate(steps, 2) is None


def test_every_part_that_is_listed_exists():
    for part in figures.PARTS:
        assert callable(getattr(figures, f"part_{part}"))


def test_lengths_are_the_same_in_every_run_and_within_their_range():
    lengths = figures.lognormal_requests(256)
    assert lengths == figures.lognormal_requests(256)
    assert all(4 <= n <= 1024 for pair in lengths for n in pair)


def test_the_table_has_the_figures_that_have_a_bar():
    text = figures.table({"decode_b1": {"bf16": 122.5, "q8_0": 700}, "seconds": {"bare": 1.0},
                          "http_128": {"ttft_ms": {"p99": 3}}})
    lines = [line.split() for line in text.splitlines()[1:]]
    assert lines == [["decode_b1", "bf16", "122.5", "245", "0.50"],
                     ["decode_b1", "q8_0", "700.0", "350", "2.00"]]
