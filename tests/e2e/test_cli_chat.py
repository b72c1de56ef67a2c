"""Goal:   a conversation works from a pipe and at a terminal, and Ctrl-C stops what it should.
Method: the real program with a tiny random model that has a template; a pseudo-terminal from
        the pty module plays the person. A test with `words` runs twice: the model is in the
        program, or in a server."""

import json
import re
import signal
import subprocess
import termios
import time

import pytest

from chat_lib import Person
from cli_lib import BAD, GOLDEN, JITNEY, answer, out, refusal, run, talking_model
from server_lib import Server

STEADY = ["--seed", "3", "-n", "12"]
ENDLESS = ["--seed", "3", "--ctx", "8000"]


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return talking_model(tmp_path_factory.mktemp("chat") / "m")


@pytest.fixture(scope="module", name="server")
def server_fixture(model):
    with Server(model, "--ctx", "8000", "--kv-memory", "64M") as server:
        yield server


@pytest.fixture(name="words", params=["model", "server"])
def words_fixture(request):
    """What tells the program which of the two answers."""
    if request.param == "model":
        return [request.getfixturevalue("model")]
    return ["--url", request.getfixturevalue("server").url]


def talk(words, lines, *flags):
    words = words if isinstance(words, list) else [words]
    return run("chat", *words, *STEADY, *flags, stdin=lines)


def prompt_of(*messages):
    return "".join(f"<|{role}|>{text}\n" for role, text in messages) + "<|assistant|>"


def reply(model, prompt):
    return answer("generate", model, "-p", prompt, *STEADY)["text"]


def test_every_line_of_a_pipe_is_a_turn(model, words):
    first = reply(model, prompt_of(("user", "one")))
    second = reply(model, prompt_of(("user", "one"), ("assistant", first), ("user", "two")))
    code, stdout, stderr = talk(words, "one\n\ntwo")
    assert (code, stderr) == (0, b"")
    assert stdout.decode() == first + "\n" + second + "\n"


def test_the_system_message_comes_first(model, words):
    expected = reply(model, prompt_of(("system", "be brief"), ("user", "one")))
    assert talk(words, "one\n", "--system", "be brief")[1].decode() == expected + "\n"
    assert talk(words, "/system be brief\none\n")[1].decode() == expected + "\n"


def test_reset_forgets(model, words):
    first = reply(model, prompt_of(("user", "one"))) + "\n"
    assert talk(words, "one\n/reset\none\n")[1].decode() == first * 2


def test_a_message_of_several_lines(model, words):
    expected = reply(model, prompt_of(("user", "one\ntwo"))) + "\n"
    assert talk(words, '"""one\ntwo"""\n')[1].decode() == expected
    assert talk(words, '"""\none\ntwo\n"""\n')[1].decode() == expected
    assert talk(words, '"""one"""\n')[1].decode() == reply(model, prompt_of(("user", "one"))) + "\n"


def test_a_conversation_can_be_saved_and_loaded(words, tmp_path):
    path = tmp_path / "talk.json"
    stdout = talk(words, f"one\n/save {path}\ntwo\n")[1].decode()
    saved = json.loads(path.read_text())
    assert [m["role"] for m in saved] == ["user", "assistant"]
    second = talk(words, f"/load {path}\ntwo\n")[1].decode()
    assert stdout == saved[1]["content"] + "\n" + second
    code, _, stderr = talk(words, "/load /no/such\n/save /no/such/folder/x\n/load\n")
    assert code == 0 and stderr.count(b"\n") == 3


def test_commands_answer_on_standard_error(model):
    code, stdout, stderr = talk(
        model,
        "/help\n/stats\n/set\n/set temp 0\n/set tmp 1\n/set temp x\n"
        "/set temp 99\n/rest\n/zzz\n/quit\nnever\n",
    )
    text = stderr.decode()
    assert (code, stdout) == (0, b"")
    for part in (
        "/reset",
        "context",
        "repeat-penalty",
        "(temp is 0)",
        "did you mean temp",
        '"x" is not a value',
        "temperature is 99",
        "did you mean /reset",
        "/help lists",
    ):
        assert part in text, part


def test_set_changes_how_answers_are_drawn(model, words):
    greedy = answer("generate", model, "-p", prompt_of(("user", "one")), "-n", "12", "--temp", "0")[
        "text"
    ]
    assert talk(words, "/set temp 0\none\n")[1].decode() == greedy + "\n"


def test_a_full_context_is_told_and_nothing_is_dropped(model):
    code, stdout, stderr = run(
        "chat",
        model,
        "--seed",
        "3",
        "--ctx",
        "60",
        "-n",
        "4",
        stdin="hello\n" + "x" * 200 + "\nagain\n",
    )
    assert code == BAD
    assert b"60" in stderr and b"/reset" in stderr
    assert stdout.count(b"\n") >= 2  # the first and the third message were answered


def test_a_model_without_a_template_does_not_chat():
    assert "jitney generate" in refusal(BAD, "chat", GOLDEN / "llama")


def test_a_template_that_refuses_is_told(tmp_path):
    model = talking_model(tmp_path / "m", "{{ raise_exception('only system messages') }}")
    code, stdout, stderr = talk(model, "one\n")
    assert (code, stdout) == (BAD, b"")
    assert b"only system messages" in stderr


# ---- at a terminal ----


@pytest.fixture(name="person")
def person_fixture(model, tmp_path):
    def make(*flags, **how):
        return Person(tmp_path / "cache", model, *flags, **how)

    return make


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_person_asks_and_leaves_with_ctrl_d(person, model, term):
    expected = reply(model, prompt_of(("user", "one"))).split("\n")[0][:5]
    p = person(*STEADY, term=term)
    p.wait_for("/help")
    p.type("one\r" if term == "xterm" else "one\n")
    assert expected
    p.wait_for(re.escape(expected))
    if term == "xterm":
        p.leave()
    else:  # no prompt to wait for; the terminal keeps the Ctrl-D until it is read
        p.type("\x04")
        assert p.exit_code() == 0


def test_a_resized_window_gets_the_line_drawn_again(person):
    """Twice narrower and once wider; the cursor goes up as many rows as the terminal has wrapped."""
    p = person(*STEADY)
    termios.tcsetwinsize(p.fd, (24, 80))
    p.wait_for("> ")
    p.type("/set nosuchsetting 12345")  # with the prompt 26 columns
    p.wait_for("12345")
    for columns, drawn in ((20, r"\x1b\[1A\r\x1b\[J> /set nosuchsetting.* 12345"),
                           (10, r"\x1b\[2A\r\x1b\[J> /set nos.*uchsetting.* 12345"),
                           (60, r"\r\x1b\[J> /set nosuchsetting 12345")):
        termios.tcsetwinsize(p.fd, (24, columns))
        assert "1A" not in p.wait_for(f"(?s){drawn}") or columns == 20
    p.type("\r")
    p.wait_for("unknown setting \"nosuchsetting\"")
    p.leave()


def test_joined_emoji_leave_the_cursor_where_it_is_seen(person):
    """Left from the end is one column, wherever the emoji end; the text keeps its joiners."""
    p = person(*STEADY)
    p.wait_for("> ")
    family = "\U0001F468\u200d\U0001F469\u200d\U0001F467"
    p.type(f"/set {family}ab")
    p.wait_for("\U0001F468\\+\U0001F469\\+\U0001F467ab")
    p.type("\x1b[D")
    assert p.wait_for("\x08+") == "\x08"
    p.type("X\r")
    p.wait_for(f'"{family}aXb"')
    p.leave()


def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on(words, tmp_path):
    p = Person(tmp_path / "cache", *words, *ENDLESS, "--logit-bias", "2=-inf")
    p.wait_for("> ")
    p.type("one\r")
    p.wait_for("[^ ]{8}")
    time.sleep(0.2)
    p.type("\x03")
    p.wait_for(r"\(stopped\)", timeout=10)
    p.wait_for("> ")
    p.type("/stats\r")
    p.wait_for("2 messages")
    p.type("/quit\r")
    assert p.exit_code() == 0


def test_ctrl_c_at_the_prompt_clears_the_line_and_twice_leaves(person):
    p = person(*STEADY)
    p.wait_for("> ")
    p.type("never sent")
    p.wait_for("never sent")
    p.type("\x03")
    p.wait_for("Ctrl-C again")
    p.wait_for("> ")
    p.type("/stats\r")
    p.wait_for("0 messages")
    p.wait_for("> ")
    p.type("\x03")
    p.wait_for("Ctrl-C again")
    p.type("\x03")
    assert p.exit_code() == 0


def test_lines_are_remembered_across_runs(person, tmp_path):
    p = person(*STEADY)
    p.wait_for("> ")
    p.type("/set temp 0.25\r")
    p.wait_for("temp is 0.25")
    p.leave()
    assert "/set" in (tmp_path / "cache" / "chat_history").read_text()
    p = person(*STEADY)
    p.wait_for("> ")
    p.type("\x1b[A")
    p.wait_for("temp 0.25")
    p.type("\r")
    p.wait_for(r"\(temp is 0.25\)")
    p.leave()


def test_letters_beyond_ascii_arrive_whole(person, tmp_path):
    path = tmp_path / "talk.json"
    p = person(*STEADY)
    p.wait_for("> ")
    p.type("naïve 日本\r")
    p.wait_for("\n> ")
    p.type(f"/save {path}\r")
    p.wait_for("messages saved")
    p.leave()
    assert json.loads(path.read_text())[0]["content"] == "naïve 日本"


def test_ctrl_c_while_loading_ends_the_program(model):
    """SIGINT right after the start: whatever it is doing, it ends soon."""
    for delay in (0.0, 0.01, 0.03):
        child = subprocess.Popen(
            [JITNEY, "chat", str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=20)
        assert child.returncode in (0, 130, -signal.SIGINT)


def test_output_to_a_file_needs_no_terminal(model):
    assert out("chat", model, *STEADY, stdin="one\n")
