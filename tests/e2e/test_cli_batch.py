"""Goal:   `jitney batch` answers every line once and in order, as a server would; a run that was
        stopped at any moment continues to the same output; bad input and other people's partial
        results are refused with a sentence, before anything is computed.
Method: the real program on a tiny model of the tree, mostly with simulated steps; runs are stopped
        by signals, limits on files and a full disk. What a server answers is asked of one."""

import json
import os
import random
import resource
import signal
import subprocess
import time

import pytest

from cli_lib import BAD, CREATE, IO, JITNEY, MISSING, USAGE, answer, out, refusal, run, talking_model
from server_lib import Server, has_model, wait_until

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
OFF = ("--weights-cache", "off")
SIM = (*OFF, "--runner", "sim:0")
FAILED, INTERRUPTED = 1, 130


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return talking_model(tmp_path_factory.mktemp("batch") / "tiny")


def body_of(i, url):
    """The body of line i; each third line has no seed of its own."""
    body = {"temperature": 1, "model": f"some-{i}"}
    if i % 3:
        body["seed"] = i
    if url == CHAT:
        return {**body, "messages": [{"role": "user", "content": f"say {i}"}], "max_tokens": 6}
    if url == TEXT:
        return {**body, "prompt": f"once {i}", "max_tokens": 6}
    body.pop("seed", None)
    return {**body, "input": f"hello {i}", "max_output_tokens": 6}


def line(i, url=CHAT, **changes):
    return {"custom_id": f"id-{i}", "method": "POST", "url": url, "body": body_of(i, url), **changes}


def lines_of(count):
    return [line(i, (CHAT, TEXT, RESPONSES)[i % 3]) for i in range(count)]


def write(path, lines):
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


def read(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def partial(path):
    return path.with_name(path.name + ".partial")


def results(path):
    """How many results a partial file has."""
    try:
        return max(partial(path).read_bytes().count(b"\n") - 1, 0)
    except FileNotFoundError:
        return 0


def bare(objects):
    """Without what depends on the clock and on the state of the prefix cache."""
    for item in objects:
        body = item["response"]["body"]
        for name in ("created", "created_at", "completed_at"):
            body.pop(name, None)
        for name in ("prompt_tokens_details", "input_tokens_details"):
            body.get("usage", {}).pop(name, None)
    return objects


def start(model, source, target, *flags, **how):
    return subprocess.Popen(
        [JITNEY, "batch", str(source), "-o", str(target), "-m", str(model), *map(str, flags)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


def batch(model, source, target, *flags, **how):
    return answer("batch", source, "-o", target, "-m", model, *flags, **how)


# --- answers ---

def test_the_input_is_not_overwritten(model, tmp_path):
    source = write(tmp_path / "in", lines_of(2))
    text = source.read_text()
    (tmp_path / "link").symlink_to(source)
    for target in (source, tmp_path / "link"):
        process = start(model, source, target, *SIM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 73 and b"is the input" in errors, errors
    assert source.read_text() == text


def test_an_output_that_is_a_link_stays_one(model, tmp_path):
    source, link = write(tmp_path / "in", lines_of(2)), tmp_path / "link"
    (tmp_path / "far").mkdir()
    link.symlink_to("far/out")
    for _ in range(2):  # first it points at nothing
        batch(model, source, link, *SIM)
        assert link.is_symlink() and len(read(tmp_path / "far" / "out")) == 2
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["far", "in", "link", "out"]


def test_results_come_in_the_order_of_the_lines(model, tmp_path):
    source, target = write(tmp_path / "in", lines_of(50)), tmp_path / "out"
    summary = batch(model, source, target, *SIM)
    got = read(target)
    assert [x["custom_id"] for x in got] == [f"id-{i}" for i in range(50)]
    assert list(got[0]) == ["id", "custom_id", "response", "error"]
    assert list(got[0]["response"]) == ["status_code", "request_id", "body"]
    assert {x["response"]["status_code"] for x in got} == {200}
    assert all(x["error"] is None and x["id"].startswith("batch_req_") for x in got)
    assert len({x["id"] for x in got}) == 50
    assert [x["response"]["body"]["object"] for x in got[:3]] == \
        ["chat.completion", "text_completion", "response"]
    assert not partial(target).exists() and sorted(os.listdir(tmp_path)) == ["in", "out"]
    assert list(summary) == ["lines", "completed", "failed", "resumed_lines", "prompt_tokens",
                             "cached_tokens", "completion_tokens", "seconds", "tokens_per_s"]
    assert (summary["lines"], summary["completed"], summary["failed"]) == (50, 50, 0)
    usage = [x["response"]["body"]["usage"] for x in got]
    assert summary["prompt_tokens"] == sum(
        u.get("prompt_tokens", u.get("input_tokens")) for u in usage)
    assert summary["completion_tokens"] == sum(
        u.get("completion_tokens", u.get("output_tokens")) for u in usage)


def test_answers_are_those_of_a_server(model, tmp_path):
    lines = [x for x in lines_of(24) if "seed" in x["body"]] + [
        line(90, body={"messages": [{"role": "user", "content": "hi"}], "temperature": 0,
                       "logprobs": True, "top_logprobs": 3, "max_tokens": 9, "n": 2})]
    target = tmp_path / "out"
    batch(model, write(tmp_path / "in", lines), target, *OFF)
    with Server(model) as server:
        for item, got in zip(lines, bare(read(target)), strict=True):
            body = {k: v for k, v in item["body"].items() if k != "model"}
            asked = server.request("POST", item["url"], body)
            want = bare([{"response": {"body": asked.json}}])[0]["response"]["body"]
            mine = got["response"]["body"]
            assert {**mine, "id": 0} == {**want, "id": 0}, item


def test_the_seed_decides_lines_that_have_none(model, tmp_path):
    source = write(tmp_path / "in", [line(i, body={"prompt": "a", "temperature": 1}, url=TEXT)
                                     for i in range(6)])
    texts = []
    for name, flags in (("a", ("--seed", 5)), ("b", ("--seed", 5)), ("c", ("--seed", 6)), ("d", ())):
        batch(model, source, tmp_path / name, *OFF, "--ctx", 64, *flags)
        texts.append([x["response"]["body"]["choices"][0]["text"] for x in read(tmp_path / name)])
    assert texts[0] == texts[1] != texts[2]
    assert len(set(texts[0])) > 1  # each line has a seed of its own
    assert texts[3] not in texts[:3]


def test_the_input_may_have_a_byte_order_mark_and_lines_of_windows(model, tmp_path):
    source, target = write(tmp_path / "in", lines_of(3)), tmp_path / "out"
    source.write_bytes(b"\xef\xbb\xbf" + source.read_bytes().replace(b"\n", b"\r\n"))
    batch(model, source, target, *SIM)
    assert [x["custom_id"] for x in read(target)] == [f"id-{i}" for i in range(3)]


def test_a_line_that_fails_does_not_stop_the_others(model, tmp_path):
    lines = lines_of(5)
    lines[2]["body"] = {"input": "x", "max_output_tokens": -4}
    lines[4]["body"] = {"prompt": "word " * 5000, "max_tokens": 3}
    target = tmp_path / "out"
    code, stdout, stderr = run("batch", write(tmp_path / "in", lines), "-o", target, "-m", model,
                               *SIM, "--json")
    assert code == FAILED, stderr
    assert b"2 of 5 lines failed" in stderr
    assert json.loads(stdout)["failed"] == 2
    got = read(target)
    assert [x["response"]["status_code"] for x in got] == [200, 200, 400, 200, 400]
    assert got[2]["response"]["body"]["error"]["message"]


def test_lines_with_more_choices_than_the_queue_holds_wait(model, tmp_path):
    lines = [line(i) for i in range(40)]
    for item in lines:
        item["body"]["n"] = 16
    target = tmp_path / "out"
    summary = batch(model, write(tmp_path / "in", lines), target, *SIM, "--set", "queue_max=64",
                    "--set", "max_seqs=16")
    assert summary["completed"] == 40
    assert all(len(x["response"]["body"]["choices"]) == 16 for x in read(target))


def test_standard_input_and_output(model, tmp_path):
    text = "".join(json.dumps(x) + "\n\n" for x in lines_of(4))
    got = [json.loads(x) for x in
           out("batch", "-", "-o", "-", "-m", model, *SIM, stdin=text).splitlines()]
    assert [x["custom_id"] for x in got] == [f"id-{i}" for i in range(4)]
    assert "standard output" in refusal(USAGE, "batch", "-", "-o", "-", "-m", model, "--json")
    out("batch", write(tmp_path / "in", lines_of(3)), "-o", "/dev/null", "-m", model, *SIM)
    assert not os.path.exists("/dev/null.partial")


@pytest.mark.skipif(not has_model("minilm"), reason="minilm is not in the cache")
def test_embeddings(tmp_path):
    lines = [line(i, EMBEDDINGS, body={"input": [f"text {i}", "other"]}) for i in range(4)]
    lines.append(line(4))
    code, stdout, _ = run("batch", write(tmp_path / "in", lines), "-o", tmp_path / "out", "-m",
                          "minilm", *OFF, "--json")
    assert code == FAILED  # the last one asks for text
    got = read(tmp_path / "out")
    assert [x["response"]["status_code"] for x in got] == [200] * 4 + [400]
    assert len(got[0]["response"]["body"]["data"][1]["embedding"]) == 384
    assert got[0]["response"]["body"]["data"][1] == got[3]["response"]["body"]["data"][1]
    assert json.loads(stdout)["prompt_tokens"] > 0


# --- stopping and continuing ---


@pytest.fixture(scope="module", name="whole")
def whole_fixture(model, tmp_path_factory):
    """80 lines, and their results without an interruption."""
    folder = tmp_path_factory.mktemp("whole")
    source = write(folder / "in", lines_of(80))
    batch(model, source, folder / "out", *SIM, "--seed", 11)
    return source, bare(read(folder / "out"))


SLOW = (*OFF, "--runner", "sim:4000", "--set", "max_seqs=4")


def test_an_interrupted_run_continues(model, whole, tmp_path):
    source, want = whole
    target = tmp_path / "out"
    process = start(model, source, target, *SLOW, "--seed", 11)
    assert wait_until(lambda: results(target) >= 9)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == INTERRUPTED
    done = results(target)
    assert 9 <= done < 80 and not target.exists()
    assert f"{done} of 80 lines are done; the same command continues" in stderr.decode()
    summary = batch(model, source, target, *SIM)  # the seed is in the partial file
    assert summary["resumed_lines"] == done
    assert bare(read(target)) == want
    assert not partial(target).exists()


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_run_continues_to_the_same_output(model, whole, tmp_path, seed):
    source, want = whole
    target, chance = tmp_path / "out", random.Random(seed)
    resumed = []
    for _ in range(3):
        process = start(model, source, target, *SLOW, "--seed", 11)
        enough = results(target) + chance.randrange(0, 25)
        wait_until(lambda enough=enough, process=process:
                   results(target) >= enough or process.poll() is not None, pause=0.001)
        time.sleep(chance.random() * 0.01)
        process.kill()
        process.communicate()
        if partial(target).exists() and chance.random() < 0.5:  # a torn end, as after a power loss
            with open(partial(target), "ab") as file:
                file.write(chance.choice([b"\0" * 700, b"0123456789abcdef 3 200 1 0", b"\n\n{}\n"]))
        resumed.append(results(target))
    summary = batch(model, source, target, *SIM, "--seed", 11)
    assert summary["lines"] == 80 and summary["completed"] == 80
    assert bare(read(target)) == want


def test_a_line_with_a_result_is_not_run_again(model, whole, tmp_path):
    source, want = whole
    target = tmp_path / "out"
    process = start(model, source, target, *SLOW, "--seed", 11)
    assert wait_until(lambda: results(target) >= 20)
    process.kill()
    process.communicate()
    kept = partial(target).read_bytes()
    kept = kept[:kept.rindex(b"\n") + 1]
    partial(target).write_bytes(kept + kept.splitlines()[-1][:40])  # torn
    process = start(model, source, target, *SLOW, "--seed", 11)
    assert wait_until(lambda: results(target) >= 40)
    process.kill()
    process.communicate()
    more = partial(target).read_bytes()
    assert more.startswith(kept)
    numbers = [entry.split(b" ")[1] for entry in more.split(b"\n")[1:-1]]
    assert len(numbers) == len(set(numbers))
    batch(model, source, target, *SIM)
    assert bare(read(target)) == want


@pytest.fixture(name="stopped")
def stopped_fixture(model, whole, tmp_path):
    """(input, output) of a run that was stopped."""
    source = write(tmp_path / "in", whole[0].read_text().splitlines())
    target = tmp_path / "out"
    process = start(model, source, target, *SLOW, "--seed", 11)
    assert wait_until(lambda: results(target) >= 5)
    process.terminate()
    process.communicate()
    return source, target


def test_results_of_other_work_are_refused(model, stopped, tmp_path):
    source, target = stopped
    kept = partial(target).read_bytes()

    def refused(*flags, source=source):
        text = refusal(BAD, "batch", source, "-o", target, "-m", model, *SIM, *flags)
        assert "--restart" in text and "out.partial" in text
        assert partial(target).read_bytes() == kept
        return text

    assert "another seed, 11" in refused("--seed", 12)
    assert "fingerprint" in refused("--ctx", 64)
    longer = write(tmp_path / "longer", [*source.read_text().splitlines(), line(99)])
    assert "another input, which has" in refused(source=longer)
    other = tmp_path / "other"
    other.write_text(source.read_text().replace("say 3", "say 4", 1))
    assert "as many bytes but differs" in refused(source=other)
    assert batch(model, other, target, *SIM, "--restart")["resumed_lines"] == 0
    assert len(read(target)) == 80


def test_a_file_that_is_no_partial_result_is_left_alone(model, tmp_path):
    source, target = write(tmp_path / "in", lines_of(3)), tmp_path / "out"
    partial(target).write_text("my notes\n")
    assert "is not a file of partial results" in refusal(
        BAD, "batch", source, "-o", target, "-m", model, *SIM)
    assert partial(target).read_text() == "my notes\n"
    partial(target).write_text('{"jitney_ba')  # its first line was being written
    assert batch(model, source, target, *SIM)["resumed_lines"] == 0


def test_two_processes_do_not_share_an_output(model, whole, tmp_path):
    source, target = whole[0], tmp_path / "out"
    process = start(model, source, target, *SLOW, "--seed", 11)
    assert wait_until(lambda: results(target) >= 1)
    assert "another process" in refusal(75, "batch", source, "-o", target, "-m", model, *SIM)
    process.kill()
    process.communicate()


# --- trouble ---


def test_invalid_lines_are_listed_and_nothing_is_computed(model, tmp_path):
    lines = lines_of(30)
    lines[1] = '{"custom_id": "x", '
    lines[3]["url"] = "/v1/audio"
    lines[4]["method"] = "GET"
    lines[5]["custom_id"] = "id-0"
    lines[6]["body"]["stream"] = True
    lines[7] = "[]"
    del lines[8]["body"]
    lines[9]["custom_id"] = 7
    source, target = write(tmp_path / "in", lines), tmp_path / "out"
    code, stdout, stderr = run("batch", source, "-o", target, "-m", model, *SIM)
    assert (code, stdout) == (BAD, b"")
    found = stderr.decode().splitlines()
    for number, words in ((2, "The line is not valid JSON"),
                          (4, "The url is '/v1/audio'; expected /v1/chat/completions"),
                          (5, "The method is 'GET'; expected POST"),
                          (6, "The custom_id 'id-0' is already used on line 1"),
                          (7, "A line of a batch cannot stream"),
                          (8, "The line is not a JSON object"),
                          (9, "The required parameter 'body' is missing"),
                          (10, "Invalid type for 'custom_id': expected a string")):
        assert any(x.startswith(f"{source}:{number}: {words}") for x in found), (number, found)
    assert found[-1].endswith("8 of 30 lines are invalid; nothing was computed")
    assert len(found) == 9
    assert sorted(os.listdir(tmp_path)) == ["in"]
    write(source, ["x"] * 50)
    _, _, stderr = run("batch", source, "-o", target, "-m", model, *SIM)
    assert stderr.count(b"\n") == 21 and b"50 of 50 lines" in stderr


def test_wrong_arguments(model, tmp_path):
    source = write(tmp_path / "in", lines_of(2))
    assert "no input" in refusal(USAGE, "batch", "-m", model, "-o", "x")
    assert "give -o OUT" in refusal(USAGE, "batch", source, "-m", model)
    assert "give -o OUT" in refusal(USAGE, "batch", source, "-m", model, "-o", "")
    assert "folder" in refusal(USAGE, "batch", source, "-m", model, "-o", tmp_path)
    refusal(MISSING, "batch", tmp_path / "none", "-m", model, "-o", tmp_path / "out", *SIM)
    refusal(MISSING, "batch", source, "-m", "no-such-model", "-o", tmp_path / "out", *SIM)
    refusal(CREATE, "batch", source, "-m", model, "-o", tmp_path / "none" / "out", *SIM)
    refusal(USAGE, "batch", source, "-m", model, "-o", tmp_path / "out", "--policy", "none")
    write(source, [""])
    assert "no lines" in refusal(BAD, "batch", source, "-m", model, "-o", tmp_path / "out", *SIM)
    assert sorted(os.listdir(tmp_path)) == ["in"]


def limit_files(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def check_full(model, whole, target, process):
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (IO, b""), stderr
    assert "cannot write" in stderr.decode() and "of 80 lines are done" in stderr.decode()
    assert not target.exists()
    assert partial(target).read_bytes().endswith(b"\n")


def test_a_file_that_cannot_grow_ends_the_run_and_it_continues(model, whole, tmp_path):
    source, want = whole
    target = tmp_path / "out"
    process = start(model, source, target, *SIM, "--seed", 11, preexec_fn=limit_files(20000))
    check_full(model, whole, target, process)
    done = results(target)
    assert 0 < done < 80
    assert batch(model, source, target, *SIM)["resumed_lines"] == done
    assert bare(read(target)) == want


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")
def test_a_full_disk_ends_the_run_and_it_continues(model, whole, tmp_path):
    source, want = whole
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk cannot be made here")
    try:
        target = disk / "out"
        check_full(model, whole, target, start(model, source, target, *SIM, "--seed", 11))
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        assert 0 < batch(model, source, target, *SIM)["resumed_lines"] <= 80
        assert bare(read(target)) == want
    finally:
        subprocess.run(["umount", disk], check=True)


def test_an_engine_that_fails_ends_the_run(model, whole, tmp_path):
    source, want = whole
    target = tmp_path / "out"
    code, stdout, stderr = run("batch", source, "-o", target, "-m", model, *OFF, "--runner",
                               "sim:0,fail-after=12", "--set", "max_seqs=4", "--seed", 11)
    assert (code, stdout) == (70, b""), stderr
    assert b"every step of the engine fails" in stderr
    summary = batch(model, source, target, *SIM)
    assert summary["completed"] == 80  # lines that the failure had ended were run again
    assert [x["custom_id"] for x in read(target)] == [x["custom_id"] for x in want]
