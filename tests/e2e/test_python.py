"""Goal:   the Python package works as documented: answers, streams, concurrent requests, errors as
        exceptions with the library's message, and no leaks.
Method: the package of the tree over the built library, on tiny models; the same request through the
        command line must give the same bits."""

import asyncio
import ctypes
import ctypes.util
import gc
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Literal

import pytest

from cli_lib import GOLDEN, JITNEY, ROOT, answer, run, talking_model

BUILT = Path(JITNEY).resolve().parent / "libjitney.so"
if not os.environ.get("JITNEY_LIBRARY"):
    os.environ["JITNEY_LIBRARY"] = str(BUILT)
sys.path.insert(0, str(ROOT / "python"))

import jitney  # noqa: E402
from jitney import LLM, SamplingParams, _library  # noqa: E402
from jitney._ranges import RANGES  # noqa: E402

LLAMA = GOLDEN / "llama"
STEADY = SamplingParams(max_tokens=24, seed=7, ignore_end=True, logprobs=0)
PROMPTS = ["Hello", "The quick brown fox jumps over the lazy dog.", "A", "1 2 3 4 5 6 7 8"]


@pytest.fixture(scope="module", name="llm")
def llm_fixture():
    with LLM(LLAMA, threads=2) as llm:
        yield llm


@pytest.fixture(scope="module", name="talker")
def talker_fixture(tmp_path_factory):
    with LLM(talking_model(tmp_path_factory.mktemp("models") / "tiny"), threads=2) as llm:
        yield llm


def bits(got):
    return got.tokens, [row.logprob for row in got.logprobs], got.text, got.finish_reason


def wait_until(fact, seconds=20):
    end = time.monotonic() + seconds
    while not fact() and time.monotonic() < end:
        time.sleep(0.005)
    return fact()


# --- the library


def test_the_structs_are_those_of_the_header(tmp_path):
    if not shutil.which("cc"):
        pytest.skip("needs cc")
    structs = {
        "options": _library.Options,
        "info": _library.Info,
        "logprob": _library.Logprob,
        "bias": _library.Bias,
        "request": _library.Request,
        "event": _library.Event,
        "stats": _library.RawStats,
    }
    lines, mine = [], []
    for name, struct in structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct jitney_{name}));')
        mine.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof(struct jitney_{name}, {field}));')
            mine.append(f"{name}.{field} {getattr(struct, field).offset}")
    source = tmp_path / "layout.c"
    body = "\n".join(lines)
    source.write_text(f"#include <jitney.h>\n#include <stdio.h>\nint main(void) {{\n{body}\n}}\n")
    program = tmp_path / "layout"
    subprocess.run(["cc", f"-I{ROOT / 'include'}", source, "-o", program], check=True)
    theirs = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert theirs.split("\n")[:-1] == mine


def python(code, **env):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **env},
    )
    return done


def test_a_missing_library_is_named():
    done = python("import jitney; jitney.LLM('x')", JITNEY_LIBRARY="/nowhere/libjitney.so")
    assert done.returncode == 1
    assert "LibraryNotFound" in done.stderr
    assert "JITNEY_LIBRARY" in done.stderr and "/nowhere/libjitney.so" in done.stderr


def test_another_library_is_refused():
    libm = ctypes.util.find_library("m")
    done = python("import jitney; jitney.version()", JITNEY_LIBRARY=libm)
    assert "LibraryNotFound" in done.stderr and "has no jitney_" in done.stderr


def test_the_library_is_found_under_an_installed_prefix(tmp_path):
    """As after `make install` into the environment: no variable, no source tree around it."""
    prefix = tmp_path / "prefix"
    package = tmp_path / "site"
    (prefix / "lib").mkdir(parents=True)
    shutil.copy(BUILT, prefix / "lib" / "libjitney.so.0")
    shutil.copytree(ROOT / "python" / "jitney", package / "jitney")
    code = f"import sys; sys.prefix = {str(prefix)!r}; import jitney; print(jitney.version())"
    done = python(code, JITNEY_LIBRARY="", PYTHONPATH=str(package))
    assert done.stdout.strip() == jitney.version(), done.stderr


@pytest.mark.skipif(not (ROOT / "build" / "build.ninja").exists(),
                    reason="build/ is not configured: pip would compile the whole library")
def test_pip_installs_the_library_and_leaves_the_tree_as_it_was(tmp_path):
    def files():
        own = ROOT / "python" / "jitney" / "__pycache__"
        return sorted(p for p in (ROOT / "python").rglob("*") if own not in (p, p.parent))

    before = files()
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--disable-pip-version-check", "--target", str(site), str(ROOT / "python")],
        capture_output=True, text=True, check=False)
    if "No module named pip" in done.stderr:
        pytest.skip("pip is not installed")
    assert done.returncode == 0, done.stderr
    assert files() == before
    assert (site / "jitney" / "libjitney.so.0").exists()
    code = "import jitney; print(jitney.version(), jitney.__file__)"
    done = python(code, JITNEY_LIBRARY="", PYTHONPATH=str(site))
    assert done.stdout.split() == [jitney.version(), str(site / "jitney" / "__init__.py")]


def test_versions_agree():
    version = jitney.version()
    assert jitney.__version__ == version
    assert f'version = "{version}"' in (ROOT / "python" / "pyproject.toml").read_text()
    assert run("--version")[1].decode().split()[-1] == version


# --- answers


def test_one_prompt_gives_one_answer_and_a_list_a_list(llm):
    one = llm.generate("Hello", STEADY)
    assert one.finish_reason == "length"
    assert len(one.tokens) == len(one.logprobs) == one.completion_tokens == 24
    assert llm.detokenize(one.tokens) == one.text
    several = llm.generate(PROMPTS, STEADY)
    assert len(several) == len(PROMPTS)
    assert bits(several[0]) == bits(one)
    assert llm.generate([], STEADY) == []
    assert llm.generate([PROMPTS[0]], STEADY)[0].text == one.text
    assert llm.generate((p for p in PROMPTS), STEADY)[2].text == several[2].text


def test_answers_are_those_of_the_command_line(llm):
    for prompt in PROMPTS[:2]:
        got = llm.generate(prompt, STEADY)
        same = answer("generate", LLAMA, "-p", prompt, "-n", "24", "--ignore-eos", "--seed", "7")
        assert (got.tokens, got.text, got.finish_reason) == (
            same["tokens"],
            same["text"],
            same["finish_reason"],
        )
        assert [row.logprob for row in got.logprobs] == pytest.approx(same["logprobs"], abs=1e-6)


def test_other_requests_change_no_bit(llm):
    requests = [(p, STEADY.replace(seed=i, temperature=0.3 * (i % 3))) for i, p in enumerate(PROMPTS * 4)]
    alone = [bits(llm.generate(p, params)) for p, params in requests]
    streams = [llm.stream(p, params) for p, params in requests]
    for stream in streams:
        for _ in stream:
            pass
    assert [bits(s.answer) for s in streams] == alone


def test_tokens_are_a_prompt_too(llm):
    ids = llm.tokenize("Hello")
    assert bits(llm.generate(ids, STEADY)) == bits(llm.generate("Hello", STEADY))
    both = llm.generate([ids, "Hello"], STEADY)
    assert bits(both[0]) == bits(both[1])


def test_n_answers_use_the_seeds_that_follow(llm):
    several = llm.generate("Hello", STEADY, n=3)
    assert [a.choice for a in several] == [0, 1, 2]
    for got in several:
        assert bits(llm.generate("Hello", STEADY, seed=got.seed)) == bits(got)


def test_a_random_seed_is_reported(llm):
    got, other = (llm.generate("Hello", STEADY, seed=None) for _ in range(2))
    assert got.seed != other.seed
    assert bits(llm.generate("Hello", STEADY, seed=got.seed)) == bits(got)


def test_the_most_likely_tokens_have_their_logprobs(llm):
    got = llm.generate("Hello", STEADY, temperature=0, logprobs=3)
    for token, row in zip(got.tokens, got.logprobs):
        assert row.token == token
        assert row.top[0] == (token, row.logprob)
        assert len(row.top) == 3
        assert [p for _, p in row.top] == sorted((p for _, p in row.top), reverse=True)
    assert llm.generate("Hello", STEADY, logprobs=None).logprobs is None


def test_a_stop_string_ends_the_text(llm):
    whole = llm.generate("Hello", STEADY)
    stop = whole.text[5:8]
    cut = llm.generate("Hello", STEADY, stop=stop)
    assert cut.finish_reason == "stop"
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert llm.generate("Hello", STEADY, stop=["surely not in it", stop]).text == cut.text


def test_a_bias_forbids_a_token(llm):
    first = llm.generate("Hello", temperature=0, max_tokens=1).tokens[0]
    other = llm.generate("Hello", temperature=0, max_tokens=1, logit_bias={first: float("-inf")})
    assert other.tokens[0] != first


def test_more_prompts_than_the_queue_holds_are_all_answered():
    with LLM(LLAMA, knobs={"queue_max": 8, "max_seqs": 4, "prefix_cache": False}) as llm:
        got = llm.generate([PROMPTS[i % 4] for i in range(50)], STEADY, max_tokens=5, n=2)
        assert all(bits(pair[0]) == bits(got[i % 4][0]) for i, pair in enumerate(got))


def test_a_queue_filled_by_others_delays_and_does_not_fail():
    with LLM(LLAMA, knobs={"queue_max": 8, "max_seqs": 1, "prefix_cache": False}) as llm:
        alone = llm.generate("Hello", STEADY, max_tokens=5)
        others = [llm.stream("A", STEADY, max_tokens=100) for _ in range(4)]
        got = llm.generate(["Hello"] * 20, STEADY, max_tokens=5)
        assert all(bits(one) == bits(alone) for one in got)
        assert [len(list(stream)) > 0 for stream in others] == [True] * 4


def test_text_keeps_every_character(llm):
    text = "Grüße 🚐 \0 and more"
    assert llm.detokenize(llm.tokenize(text)) == text
    assert llm.tokenize("", special=False) == []
    assert llm.detokenize([]) == ""
    assert llm.generate(text, STEADY).prompt_tokens == len(llm.tokenize(text))


def test_facts_about_the_model(llm, talker):
    assert (llm.has_chat, talker.has_chat) == (False, True)
    assert llm.threads == 2 and llm.vocab_size > 0 and llm.context_tokens > 0
    before = llm.stats().finished
    llm.generate(PROMPTS, STEADY)
    stats = llm.stats()
    assert stats.finished == before + len(PROMPTS)
    assert stats.kv_blocks_free <= stats.kv_blocks


# --- conversations


def test_a_message_is_a_conversation_of_one(talker):
    message = talker.chat("Hello", STEADY)
    conversation = [{"role": "user", "content": "Hello"}]
    assert bits(talker.chat(conversation, STEADY)) == bits(message)
    several = talker.chat([conversation, "Why?"], STEADY)
    assert bits(several[0]) == bits(message)
    assert bits(several[1]) == bits(talker.chat("Why?", STEADY))


def test_a_longer_conversation_is_another_prompt(talker):
    longer = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ]
    assert talker.chat(longer, STEADY).prompt_tokens > talker.chat("Hello", STEADY).prompt_tokens
    pieces = list(talker.stream_chat(longer, STEADY))
    assert "".join(p.text for p in pieces) == talker.chat(longer, STEADY).text


def test_an_invalid_conversation_is_refused(llm, talker):
    with pytest.raises(jitney.BadRequest, match="message 0 has no role"):
        talker.chat([{"content": "Hello"}])
    with pytest.raises(jitney.BadRequest, match="no chat template"):
        llm.chat("Hello")


# --- streams


def test_the_pieces_of_a_stream_are_the_answer(llm):
    stream = llm.stream("Hello", STEADY)
    pieces = list(stream)
    whole = llm.generate("Hello", STEADY)
    assert "".join(p.text for p in pieces) == whole.text == stream.answer.text
    assert sum((p.tokens for p in pieces), []) == whole.tokens
    assert [p.finish_reason for p in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert list(stream) == []


@pytest.fixture(scope="module", name="slow")
def slow_fixture():
    """A model whose answers take their time: 400 tokens are at least four seconds."""
    with LLM(LLAMA, pretend_step_us=10000) as llm:
        yield llm


@pytest.fixture(name="cancelled")
def cancelled_fixture(slow, monkeypatch):
    """The ids that were cancelled, and cancelled they are."""
    ids = []
    real = slow._engine.cancel
    monkeypatch.setattr(slow._engine, "cancel", lambda request_id: (ids.append(request_id), real(request_id)))
    return ids


def test_a_simulated_model_answers_with_words_and_takes_its_time(slow):
    began = time.monotonic()
    got = slow.generate("Hello", STEADY, max_tokens=20)
    assert time.monotonic() - began >= 0.2
    assert got.finish_reason == "length"
    assert len(got.tokens) == 20
    assert got.text
    with pytest.raises(ValueError, match="pretend_step_us"):
        LLM(LLAMA, pretend_step_us=-1)


def test_leaving_a_stream_cancels_its_request(slow, cancelled):
    streams = [slow.stream("Hello", STEADY, max_tokens=400) for _ in range(3)]
    for _ in streams[0]:
        break
    gc.collect()  # the loop's iterator, where it is not counted
    with streams[1]:
        pass
    with pytest.raises(RuntimeError, match="by the reader"):
        for _ in streams[2]:
            raise RuntimeError("by the reader")
    gc.collect()
    assert set(cancelled) == {s.id for s in streams}
    assert wait_until(lambda: slow.stats().running == 0)


@pytest.fixture(name="held")
def held_fixture():
    """A model that begins when four requests are there, and not before."""
    with LLM(LLAMA, policy="dynamic", knobs={"dynamic_batch": 4, "dynamic_window_ms": 600000}) as llm:
        yield llm


def test_a_cancelled_stream_ends_with_a_cancelled_piece(held):
    stream = held.stream("Hello", STEADY)
    stream.cancel()
    assert [p.finish_reason for p in stream] == ["cancelled"]
    stream.cancel()


def test_async_streams_run_side_by_side(llm, held):
    async def read(prompt):
        stream = held.stream(prompt, STEADY)
        async for _ in stream:
            pass
        return stream.answer

    async def read_all():
        return await asyncio.wait_for(asyncio.gather(*(read(p) for p in PROMPTS)), 60)

    got = asyncio.run(read_all())
    assert [bits(a) for a in got] == [bits(a) for a in llm.generate(PROMPTS, STEADY)]


def test_leaving_an_async_stream_cancels_its_request(slow, cancelled):
    async def main():
        left = slow.stream("Hello", STEADY, max_tokens=400)
        async for piece in left:
            assert piece.tokens
            break
        return left.id

    left_id = asyncio.run(main())
    gc.collect()
    assert cancelled == [left_id]
    assert wait_until(lambda: slow.stats().running == 0)


def test_a_cancelled_task_cancels_its_request(held):
    async def read_for_ever():
        async for _ in held.stream("Hello", STEADY):
            pass

    async def main():
        tasks = [
            asyncio.create_task(read_for_ever()),
            asyncio.create_task(held.generate_async("Hello", STEADY)),
        ]
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert wait_until(lambda: held.stats().finished == 2)


def test_answers_can_be_awaited(llm, talker):
    async def ask():
        return await asyncio.gather(
            llm.generate_async(PROMPTS, STEADY),
            talker.chat_async("Hello", STEADY),
            llm.generate_async("Hello", STEADY, n=2),
        )

    several, chat, pair = asyncio.run(ask())
    assert [bits(a) for a in several] == [bits(a) for a in llm.generate(PROMPTS, STEADY)]
    assert bits(chat) == bits(talker.chat("Hello", STEADY))
    assert bits(pair[0]) == bits(several[0])


def test_threads_share_a_model(llm):
    expected = [bits(a) for a in llm.generate(PROMPTS, STEADY)]
    wrong = []

    def ask(i):
        for k in range(5):
            at = (i + k) % len(PROMPTS)
            if bits(llm.generate(PROMPTS[at], STEADY)) != expected[at]:
                wrong.append(at)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- what goes wrong


def test_a_missing_model_is_an_exception(tmp_path):
    with pytest.raises(jitney.ModelNotFound, match="no such file or folder"):
        LLM(tmp_path / "nothing")
    with pytest.raises(jitney.BadRequest, match="unknown policy"):
        LLM(LLAMA, policy="fifo")
    with pytest.raises(jitney.BadRequest, match="1 to 4096"):
        LLM(LLAMA, knobs={"max_seqs": 0})
    with pytest.raises(jitney.JitneyError, match="embeddings"):
        LLM(GOLDEN / "bert")


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"temperature": 11}, "temperature is 11; it must be a number from 0 to 10"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5"),
        ({"max_tokens": 2**32}, "max_tokens is 4294967296"),
        ({"n": 17}, "n is 17"),
        ({"seed": -1}, "seed is -1"),
        ({"logprobs": 21}, "logprobs is 21"),
        ({"stop": ""}, "stop string 0 has 0 bytes"),
        ({"stop": ["a"] * 17}, "more than 16 stop strings"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"top_p": float("nan")}, "top_p"),
    ],
)
def test_a_bad_request_says_the_field_and_its_range(llm, changes, sentence):
    with pytest.raises(jitney.BadRequest, match=sentence):
        llm.generate("Hello", **changes)


FIELD_OF_RANGE = {"top_logprobs": "logprobs"}  # the others have their own name


def with_value(name, value):
    if name == "logit_bias":
        return {"logit_bias": {7: value}}
    return {FIELD_OF_RANGE.get(name, name): value}


@pytest.mark.parametrize("name", RANGES)
def test_python_has_the_ranges_and_defaults_of_the_table(llm, name):
    limits = RANGES[name]
    step = 1 if limits.kind is int else 1e-3 * (1 + abs(limits.most))
    most = 2**64 - 1 if name == "seed" else limits.most  # the library takes any 64 bits
    for value in (limits.least, most):
        llm.generate([1, 2], **{"max_tokens": 1, **with_value(name, value)})
    bad = [limits.least - step, most + step, math.nan, math.inf, -math.inf]
    if name == "logit_bias":
        bad.remove(-math.inf)  # it forbids the token
    for value in bad:
        with pytest.raises(jitney.BadRequest, match=FIELD_OF_RANGE.get(name, name)):
            llm.generate([1, 2], **with_value(name, value))
    default = getattr(SamplingParams(), FIELD_OF_RANGE.get(name, name))
    assert default in (limits.default, None)


def test_other_mistakes_are_pythons_own(llm):
    with pytest.raises(TypeError, match="temprature"):
        llm.generate("Hello", temprature=1)
    with pytest.raises(jitney.BadRequest, match="token 1 is -5"):
        llm.generate([1, -5])
    with pytest.raises(jitney.BadRequest, match="maximum context length"):
        llm.generate([1] * llm.context_tokens)


def test_a_request_that_cannot_be_served_raises_and_spares_the_others():
    with LLM(LLAMA, knobs={"kv_blocks": 2}) as llm:
        with pytest.raises(jitney.RequestFailed, match="the pool has 2") as caught:
            llm.generate("Hello", STEADY, max_tokens=100)
        assert caught.value.answer.text == ""
        assert llm.generate("A", STEADY, max_tokens=4).completion_tokens == 4


def test_an_answer_ends_at_its_deadline(llm):
    assert llm.generate("Hello", STEADY, max_tokens=400, timeout_s=1e-6).finish_reason == "expired"


def test_after_close_every_call_says_so():
    llm = LLM(LLAMA)
    llm.close()
    llm.close()
    for use in (lambda: llm.generate("Hello"), llm.stats, lambda: llm.tokenize("x"), lambda: llm.stream("x")):
        with pytest.raises(jitney.Closed):
            use()


def test_close_wakes_waiting_threads():
    # A batch that never fills: the request waits, and so does who asked.
    llm = LLM(LLAMA, policy="dynamic", knobs={"dynamic_batch": 8, "dynamic_window_ms": 600000})
    caught = []

    def ask():
        try:
            llm.generate("Hello")
        except jitney.Closed as why:
            caught.append(why)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert wait_until(lambda: llm.stats().waiting == 3)
    llm.close()
    for thread in threads:
        thread.join(20)
    assert len(caught) == 3


def test_close_in_the_middle_of_streams_is_safe():
    for _ in range(5):
        llm = LLM(LLAMA)
        streams = [llm.stream("Hello", STEADY, max_tokens=400) for _ in range(4)]
        next(iter(streams[0]))
        llm.close()
        for stream in streams[1:]:
            with pytest.raises(jitney.Closed):
                for _ in stream:
                    pass


def test_a_model_without_references_is_closed():
    llm = LLM(LLAMA)
    engine = llm._engine
    gone = weakref.ref(llm)
    llm.generate("Hello", STEADY)
    del llm
    gc.collect()
    assert gone() is None
    assert engine.is_closed


def test_a_stream_keeps_its_model():
    stream = LLM(LLAMA).stream("Hello", STEADY)
    gc.collect()
    assert len(list(stream)) > 0
    assert stream.answer.finish_reason == "length"


def test_a_program_that_forgets_to_close_ends_cleanly():
    done = python(
        f"import jitney; llm = jitney.LLM({str(LLAMA)!r}); s = llm.stream('Hello', max_tokens=400);"
        "print(len(next(iter(s)).tokens) > 0)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_loading_reports_its_progress():
    shares = []
    LLM(LLAMA, on_progress=shares.append).close()
    assert shares == sorted(shares) and shares[-1] == 1


def test_smollm2_answers():
    if run("inspect", "smollm2")[0] != 0:
        pytest.skip("smollm2 is not cached")
    with LLM("smollm2") as llm:
        got = llm.chat(["Why is the sky blue?", "What is water?"], temperature=0, max_tokens=48)
        assert "light" in got[0].text
        assert got[1].finish_reason in ("stop", "length")


def test_answers_keep_to_a_schema_an_expression_or_a_grammar(llm):
    pydantic = pytest.importorskip("pydantic")

    class Thing(pydantic.BaseModel):
        model_config = {"extra": "forbid"}
        kind: Literal["one", "two"]
        parts: list[bool] = pydantic.Field(max_length=2)

    for schema in (Thing, Thing.model_json_schema(), json.dumps(Thing.model_json_schema())):
        got = llm.generate("A", max_tokens=80, seed=3, schema=schema)
        assert got.finish_reason == "stop"
        Thing.model_validate_json(got.text)
    assert llm.generate("A", regex="(yes|no)!", seed=1).text in ("yes!", "no!")
    assert llm.generate("A", grammar='root ::= "<" [a] ">"').text == "<a>"
    with pytest.raises(jitney.BadRequest, match="#/properties/a"):
        llm.generate("A", schema={"properties": {"a": {"pattern": "("}}})
    with pytest.raises(jitney.BadRequest, match="expected a JSON schema"):
        llm.generate("A", schema=object())
    with pytest.raises(jitney.BadRequest, match="may have one"):
        llm.generate("A", regex="a", grammar="b")
