"""Goal:   bench_peers asks engines in turns, leaves out what cannot be measured and says why, keeps
        what it has measured through anything, divides by jitney's value of the same session, and
        compares jitney with the best other engine of each row.
Method: engines that answer from a list in place of real ones; a worker process that speaks the
        protocol of bench/peers/worker.py; a file of results as three runs would leave it.
"""
import copy
import json
import re
import subprocess
import sys
import xml.dom.minidom
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "peers"))

from driver import comparison, engines, lines, machine, plot, report, run  # noqa: E402
from driver.common import Skip  # noqa: E402
from driver.models import Model  # noqa: E402
from driver.results import Store, table_of  # noqa: E402


class Scripted:
    """An engine whose n-th answer is the n-th of a list; an exception is raised."""
    worker = None

    def __init__(self, name, log, answers):
        self.name, self.version, self.log, self.answers = name, "1", log, list(answers)
        self.is_warm, self.closed = {"b"}, 0

    def ask(self, **_):
        self.log.append(self.name)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return {"output_tok_s": answer}

    def close(self):
        self.closed += 1


def options_with(**more):
    found = SimpleNamespace(
        lines="b", repeats=3, threads=1, isa="auto", jitney="/nonexistent", worker="/nonexistent",
        peaks="/nonexistent", fresh=False, notes={}, failed=set(), only=["jitney"],
        model=Model("toy", batch=(2, 4, 8), gguf="toy.gguf"))
    found.__dict__.update(more)
    return found


@pytest.fixture(name="store")
def store_fixture(tmp_path):
    return Store(tmp_path / "results.json")


def measure(store, found, options=None, minutes=None):
    return run.run_line(store, "b", found, options or options_with(), run.Budget(minutes))


def batch_values(store, engine):
    return table_of(store, "toy", "auto")["batch"][engine].values


# --- turns ---

def test_engines_take_turns_and_ratios_are_of_medians(store):
    log, said = [], []
    measure(store, [Scripted("jitney", log, [10, 30, 20]), Scripted("slow", log, [5, 50, 4])])
    assert log == ["jitney", "slow"] * 3
    report.put_all(store, said.append)
    row = next(l for l in said if l.startswith("2 x (4 in"))
    assert row.split()[-4:] == ["tok/s", "20", "5", "0.25x"]


def test_what_is_skipped_is_said_once_and_not_asked_again(store):
    log, said = [], []
    measure(store, [Scripted("jitney", log, [1, 1, 1]), Scripted("absent", log, [Skip("no wheel")])])
    assert log.count("absent") == 1
    report.put_all(store, said.append)
    assert said.count("absent: skipped (b): no wheel") == 1


def test_the_first_question_of_each_kind_is_not_counted():
    log, found = [], Scripted("x", [], [99, 7, 8])
    found.log, found.is_warm = log, set()
    values = [lines.line_batch(found, i, options_with())["batch"] for i in range(2)]
    assert values == [7, 8] and len(log) == 3


def test_prompts_are_the_same_for_every_engine():
    assert lines.random_prompts(3, 2, 5) == lines.random_prompts(3, 2, 5)
    assert lines.random_prompts(3, 2, 5) != lines.random_prompts(4, 2, 5)


# --- results that outlive a run ---

def test_every_answer_is_on_disk_before_the_next_question(store):
    found = Scripted("jitney", [], [1, 2, KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        measure(store, [found, Scripted("other", [], [4, 5, 6])])
    assert batch_values(Store(store.path), "jitney") == [1, 2]
    assert batch_values(Store(store.path), "other") == [4, 5]


def test_a_line_that_was_cut_short_goes_on_where_it_ended(store):
    with pytest.raises(KeyboardInterrupt):
        measure(store, [Scripted("jitney", [], [1, 2, KeyboardInterrupt()])])
    again = Store(store.path)
    measure(again, [Scripted("jitney", [], [3])])
    assert batch_values(Store(store.path), "jitney") == [1, 2, 3]


def test_a_whole_line_is_measured_anew_and_replaced(store):
    measure(store, [Scripted("jitney", [], [1, 2, 3])])
    measure(store, [Scripted("jitney", [], [7, 8, 9])])
    assert batch_values(store, "jitney") == [7, 8, 9]
    assert len(store.data["sessions"]) == 1


def test_another_program_does_not_go_on_with_what_an_older_one_began(store, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measure(store, [Scripted("jitney", [], [1, 2, KeyboardInterrupt()])])
    other = tmp_path / "jitney"
    other.write_text("another build")
    measure(store, [Scripted("jitney", [], [7, 8, 9])], options_with(jitney=str(other)))
    assert batch_values(store, "jitney") == [7, 8, 9]


def test_a_run_that_was_cut_short_hides_no_whole_one(store):
    measure(store, [Scripted("jitney", [], [1, 2, 3])])
    with pytest.raises(KeyboardInterrupt):
        measure(store, [Scripted("jitney", [], [9, KeyboardInterrupt()])])
    assert batch_values(store, "jitney") == [1, 2, 3]


def test_engines_of_two_runs_stand_in_one_table_each_with_its_own_ratio(store):
    measure(store, [Scripted("jitney", [], [10] * 3), Scripted("a", [], [5] * 3)])
    measure(store, [Scripted("jitney", [], [20] * 3), Scripted("b", [], [5] * 3)])
    cells = table_of(store, "toy", "auto")["batch"]
    assert (cells["a"].ratio, cells["b"].ratio, cells["jitney"].value) == (0.5, 0.25, 20)


def test_instruction_sets_and_models_are_kept_apart(store):
    measure(store, [Scripted("jitney", [], [1, 2, 3])])
    measure(store, [Scripted("jitney", [], [7, 8, 9])], options_with(isa="avx2"))
    assert batch_values(store, "jitney") == [1, 2, 3]
    assert len(store.data["sessions"]) == 2


def test_a_file_of_another_form_is_put_aside(tmp_path):
    path = tmp_path / "results.json"
    path.write_text('{"rows": []}')
    assert Store(path).data["sessions"] == []
    assert (tmp_path / "results.old.json").read_text() == '{"rows": []}'


def test_no_repeat_begins_that_the_time_does_not_allow(store):
    found = [Scripted("jitney", [], [1, 2, 3])]
    assert measure(store, found, minutes=1e-9) is False
    assert store.data["sessions"] == []
    assert measure(store, found, minutes=60) is True


def test_the_estimate_uses_what_was_measured(store):
    options = options_with()
    guessed = run.estimate_s(options, store)
    measure(store, [Scripted("jitney", [], [1, 2, 3])])
    assert run.estimate_s(options, store) < guessed


# --- workers ---

WORKER = """
import sys
sys.path.insert(0, {folder!r})
import worker
class Fake(worker.Engine):
    version = "fake 1"
    def load(self, model, threads):
        print("a library that talks")
        self.threads = threads
    def single(self, prompt, output):
        return {{"prompt_tok_s": len(prompt), "decode_tok_s": output * self.threads}}
    def loss_of(self, ids):
        return 2.0 * len(ids), len(ids)
worker.run(Fake())
"""


def test_a_worker_answers_and_says_what_it_cannot(tmp_path):
    script = tmp_path / "fake.py"
    script.write_text(WORKER.format(folder=str(ROOT / "bench/peers")))
    worker = engines.Worker([sys.executable, script, "model", 2])
    try:
        assert worker.ready["version"] == "fake 1"
        assert worker.ask(do="single", prompt=[1, 2, 3], output=4) == {
            "prompt_tok_s": 3, "decode_tok_s": 8}
        found = worker.ask(do="perplexity", windows=[[1] * 9])["perplexity"]
        assert found == pytest.approx(7.389, 1e-3)
        with pytest.raises(Skip, match="batch"):
            worker.ask(do="batch", prompts=[[1]], output=1)
    finally:
        worker.close()


def test_a_worker_that_ends_is_skipped():
    with pytest.raises(Skip, match="ended with 3"):
        engines.Worker([sys.executable, "-c", "import sys; sys.exit(3)"])


def test_a_worker_that_does_not_answer_is_ended():
    with pytest.raises(Skip, match="no answer after 0.2 s"):
        engines.Worker([sys.executable, "-c", "import time; time.sleep(60)"], limit_s=0.2)


# --- the table, comparisons and plot of a file ---

OFFLINE = {"jitney": (1800, 300, 400), "llamacpp": (300, 120, 80), "openvino": (1500, 110, 160)}


def session(line, values, **more):
    repeat = {"at": "", "load": 0.1, "took_s": {}, "is_whole": True, "values": values,
              "ceilings": {"memory, read": 40.0, "vpdpbusd 512": 900.0, "maddubs 256": 450.0}}
    return {"model": "smollm2", "isa": "auto", "line": line, "engines": list(values),
            "mark": {"threads": 2}, "wanted": 5, "skipped": {}, "notes": {}, "versions": {},
            "sizes": {"single": [512, 128], "batch": [32, 128, 64]},
            "machine": {"cpu": "A processor", "cores": 2, "memory_mib": 1, "kernel": "6",
                        "date": "2026-11-15 12:00"},
            "repeats": [copy.deepcopy(repeat) for _ in range(5)], **more}


@pytest.fixture(name="recorded")
def recorded_fixture(tmp_path):
    found = Store(tmp_path / "recorded.json")
    http = {f"http/fixed/{n}/{m}": v for n in (1, 8, 16, 32)
            for m, v in (("output", 250), ("ttft_p50", 40), ("ttft_p99", 90), ("tpot_p50", 9),
                         ("tpot_p99", 12))}
    slow = {k: v / 2.5 if k.endswith("output") else v * 2 for k, v in http.items()}
    found.data["models"]["smollm2"] = {"bytes": 100e6, "layer_ops": 0.2e9, "head_ops": 0.05e9}
    found.data["sessions"] = [
        session("s", {k: {"prompt": v[0], "decode": v[1]} for k, v in OFFLINE.items()}),
        session("b", {k: {"batch": v[2]} for k, v in OFFLINE.items()}),
        session("p", {"jitney": {"perplexity": 28.0, "perplexity_int8": 28.01},
                      "llamacpp": {"perplexity": 28.0}, "openvino": {"perplexity": 35.0}}),
        session("m", {"jitney": {"slot_ready_s": 0.1, "slot_cold_s": 0.7, "slot_rss_mib": 150},
                      "llamacpp": {"slot_ready_s": 0.6, "slot_rss_mib": 190}}),
        session("h", {"jitney": {**http, "all_peak_mib": 500},
                      "llamacpp": {**slow, "all_peak_mib": 1500}}),
    ]
    return found


def by_row(store):
    return {c.row: c for c in comparison.compare_all(store, "smollm2", "auto")}


def test_the_best_other_engine_is_the_fastest_one_of_each_row(recorded):
    found = by_row(recorded)
    assert found["prompt"].text.startswith("1.20 times openvino (1,800 and 1,500 tok/s)")
    assert found["decode"].text.startswith("2.50 times llamacpp (300 and 120 tok/s)")


def test_an_engine_that_is_less_exact_is_named_with_the_best_one_that_is_not(recorded):
    text = by_row(recorded)["prompt"].text
    assert "1.25 times jitney's" in text and "as exact is llamacpp: 6.00 times" in text


def test_every_row_with_two_engines_is_compared_and_no_other(recorded):
    found = by_row(recorded)
    assert found["batch"].ratio == 2.5  # 400 / 160
    assert found["http/fixed/8/output"].ratio == 2.5
    assert found["http/fixed/8/ttft_p50"].text == "0.50 of llamacpp's (40 and 80 ms)"
    assert found["slot_rss_mib"].text == "0.79 of llamacpp's (150 and 190 MiB)"
    assert found["all_peak_mib"].ratio == pytest.approx(1 / 3)
    assert found["slot_ready_s"].text == "0.17 of llamacpp's (0.1 and 0.6 s)"
    assert not {"slot_cold_s", "perplexity_int8", "kv_int8_share"} & set(found)


def test_the_share_of_the_ceiling_shows_its_arithmetic(recorded):
    single = recorded.data["sessions"][0]
    for repeat in single["repeats"]:
        repeat["ceilings"]["vpdpbusd 512"] = 400.0
        repeat["ceilings"]["maddubs 256"] = 100.0
    assert "90% of the ceiling 2,000 = 400 Gop/s / 0.200 Gop" in by_row(recorded)["prompt"].text


def test_the_share_of_the_read_bandwidth_shows_its_arithmetic(recorded):
    text = by_row(recorded)["decode"].text
    assert "75% of the ceiling 400 = 40.0 GB/s read / 100.0 MB a token" in text


def test_fewer_repeats_than_wanted_are_said(recorded):
    recorded.data["sessions"][1]["repeats"] = recorded.data["sessions"][1]["repeats"][:2]
    assert "2 repeats only" in by_row(recorded)["batch"].text


def test_markdown_tables_have_as_many_cells_in_every_row(recorded):
    text = "\n".join(report.markdown_of(recorded))
    tables = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"\|", row)) for row in table.strip().splitlines()}) == 1
    assert "`tools/bench_peers --model smollm2 --lines sbpmh --only jitney,llamacpp,openvino`" in text
    assert "| one sequence: prompt of 512, tok/s | 1,800 | 300 (0.17) | 1,500 (0.83) |" in text


def test_rows_stand_in_one_order_whatever_was_measured_first(recorded):
    rows = sorted(table_of(recorded, "smollm2", "auto"), key=lines.place)
    assert rows[:3] == ["prompt", "decode", "batch"]
    assert [r for r in rows if r.endswith("/output")] == [
        f"http/fixed/{n}/output" for n in (1, 8, 16, 32)]


def test_other_kernels_are_named_as_jitney_s_alone(recorded):
    for one in recorded.data["sessions"]:
        one["isa"] = "avx2"
    said = []
    report.put_all(recorded, said.append)
    assert any("avx2 kernels; the peers cannot be held back" in line for line in said)


def test_the_plot_is_whole_svg_with_every_engine_and_panel(recorded, tmp_path):
    recorded.save()
    out = tmp_path / "peers.svg"
    subprocess.run([sys.executable, ROOT / "tools/plot_peers", recorded.path, out], check=True)
    picture = xml.dom.minidom.parse(str(out))
    said = [n.firstChild.data for n in picture.getElementsByTagName("text")]
    assert {"jitney", "llamacpp", "openvino"} <= set(said)
    bars = [r for r in picture.getElementsByTagName("rect") if r.getAttribute("fill") != "white"]
    assert len(bars) == 3 * 3 + 3  # three panels, and the legend
    assert len(picture.getElementsByTagName("polyline")) == 3 * 2
    with pytest.raises(ValueError, match="no results of other"):
        plot.draw(recorded, "other", "auto")


def test_ceilings_are_read_as_the_program_prints_them():
    found = machine.parse_ceilings("2 threads\nmemory, read              38.2 GB/s\n"
                                   "maddubs 256             941.9 Gop/s\n"
                                   "vpdpbusd 512           1027.8 Gop/s\n")
    assert machine.read_gbs(found) == 38.2
    assert machine.int_gops(found, "auto") == 1027.8
    assert machine.int_gops(found, "avx2") == 941.9


# --- the program ---

def test_the_help_names_every_line():
    said = subprocess.run([sys.executable, ROOT / "tools/bench_peers", "--help"], check=True,
                          capture_output=True, text=True).stdout
    for letter in lines.LINES:
        assert f"\n    {letter}  " in said


def test_report_shows_what_a_file_holds(recorded, tmp_path):
    recorded.save()
    done = subprocess.run(
        [sys.executable, ROOT / "tools/bench_peers", "--report", "--json", recorded.path,
         "--folder", tmp_path, "--markdown", tmp_path / "out.md"], check=True,
        capture_output=True, text=True)
    assert "jitney and the best other engine:" in done.stdout and "openvino" in done.stdout
    assert "FAIL" not in done.stdout
    assert "### smollm2" in (tmp_path / "out.md").read_text()
    assert json.loads(recorded.path.read_text())["format"] == 2


def test_report_without_results_names_the_file_and_what_makes_it(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "tools/bench_peers", "--report", "--folder",
                           tmp_path], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and str(tmp_path) in said and "make bench-peers" in said


@pytest.mark.parametrize("flag,value", [("--only", "jitney,nobody"), ("--lines", "sx"),
                                        ("--isa", "mmx")])
def test_what_is_not_known_is_refused(flag, value):
    done = subprocess.run([sys.executable, ROOT / "tools/bench_peers", flag, value],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "unknown" in done.stderr
