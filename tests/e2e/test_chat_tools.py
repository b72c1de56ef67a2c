"""Goal:   `jitney chat` shows thoughts and tool calls, runs the commands of --tools only with the
        user's permission, and gives the model their results.
Method: a server that answers with a script and keeps what it was sent; a pseudo-terminal plays the
        person. A test with a `way` runs twice: with that server, and with a model in the program
        that writes the same answer as text. Then `jitney serve` with such a model, and the tools
        of examples/tools.json."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from chat_lib import ModelWay, Person, ServerWay, call, calls, scripted_server
from cli_lib import BAD, MISSING, ROOT, USAGE, refusal, run
from scripted_model import end_prompt_with, scripted_model
from server_lib import Server, wait_until

ASKED = r"Run it\? \[y/N, a: always this tool\] "
EXAMPLE = ROOT / "examples" / "tools.json"
needs_bc = pytest.mark.skipif(not shutil.which("bc"), reason="bc is not installed")


@pytest.fixture(name="server")
def server_fixture():
    with scripted_server() as server:
        server.script = ["Done."]
        yield server


@pytest.fixture(name="person")
def person_fixture(server, tmp_path):
    def make(*flags, **how):
        return Person(tmp_path / "cache", "--url", server.url, *flags, **how)

    return make


@pytest.fixture(name="way", params=["server", "model"])
def way_fixture(request, tmp_path):
    if request.param == "model":
        yield ModelWay(tmp_path)
        return
    with scripted_server() as server:
        yield ServerWay(server)


@pytest.fixture(name="someone")
def someone_fixture(way, tmp_path):
    """A person who talks with what the way has been told to say."""
    def make(*flags, **how):
        return Person(tmp_path / "cache", *way.words, *flags, **how)

    return make


def tools_file(folder, **commands):
    path = folder / "tools.json"
    path.write_text(json.dumps([
        {"name": name, "description": f"It is {name}.",
         "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
         "command": command} for name, command in commands.items()]))
    return path


def results_of(messages):
    """The contents of the tool messages in a conversation."""
    return [message["content"] for message in messages if message["role"] == "tool"]


def save(person, path):
    """The conversation that a person saves."""
    person.wait_for("> ")
    person.type(f"/save {path}\r")
    person.wait_for("messages saved")
    return json.loads(path.read_text())


def results(server, request=-1):
    """The contents of the tool messages at the end of a request."""
    found = []
    for message in reversed(server.seen[request][2]["messages"]):
        if message["role"] != "tool":
            break
        found.insert(0, message["content"])
    return found


def run_one(server, tmp_path, command, *flags, **arguments):
    """What the model is told about one call without a person, and standard error."""
    server.scripts = [calls(call("it", **arguments))]
    code, _, stderr = run("chat", "--url", server.url, "--tools", tools_file(tmp_path, it=command),
                          "--run-tools", *flags, stdin="go\n")
    assert code == 0, stderr
    result, = results(server)
    return result, stderr.decode()


# ---- thoughts ----


THOUGHTS = [{"reasoning_content": "I thi"}, {"reasoning_content": "nk\x1b[31m so"}, "Ye", "s."]


def test_thoughts_are_dimmed_on_a_terminal_and_cannot_control_it(way, someone):
    way.says(*THOUGHTS)
    p = someone()
    p.wait_for("> ")
    p.type("one\r")
    shown = p.wait_for(r"Yes\.\r\n")
    assert "\x1b[2mI thi\x1b[22m\x1b[2mnk\\x1b[31m so\x1b[22m\r\n\r\nYes.\r\n" in shown
    assert "<think>" not in shown
    p.leave()


@pytest.mark.parametrize("how", [{"env": {"NO_COLOR": "1"}}, {"term": "dumb"}])
def test_thoughts_are_marked_where_nothing_can_be_dimmed(server, person, how):
    server.script = THOUGHTS
    p = person(**how)
    p.wait_for("/help")
    p.type("one\n")
    shown = p.wait_for(r"Yes\.\r\n")
    assert "<think>\r\nI think\\x1b[31m so\r\n</think>\r\n\r\nYes." in shown
    assert "\x1b[2m" not in shown
    p.type("/quit\n")
    assert p.exit_code() == 0


def test_thoughts_are_kept_in_the_conversation_and_in_saved_ones(way, tmp_path):
    way.says({"reasoning_content": "I think"}, "Yes.", then=None)
    path = tmp_path / "talk.json"
    code, stdout, _ = run("chat", *way.words, stdin=f"one\n/save {path}\ntwo\n")
    assert code == 0
    assert stdout.decode() == "<think>\nI think\n</think>\n\nYes.\n" * 2
    kept = {"role": "assistant", "reasoning_content": "I think", "content": "Yes."}
    assert json.loads(path.read_text())[1] == kept
    run("chat", *way.words, stdin=f"/load {path}\nthree\n/save {path}\n")
    assert [m for m in json.loads(path.read_text()) if m["role"] == "assistant"] == [kept] * 2
    if isinstance(way, ServerWay):
        assert way.server.seen[1][2]["messages"][1] == kept
        assert way.server.seen[2][2]["messages"][1] == kept


# ---- calls ----


def test_calls_are_shown_compactly_one_a_line(server):
    server.script = ["Let me look."] + calls(
        call("get_weather", city="Paris", days=3, deep={"a": [1, None]}),
        call("note", index=1, text="x" * 1234, list=list(range(100))),
        call("now", index=2))
    code, stdout, stderr = run("chat", "--url", server.url, stdin="one\ntwo\n")
    assert code == 0 and b"--tools FILE" in stderr
    lines = stdout.decode().splitlines()
    assert lines[:2] == ["Let me look.",
                         '-> get_weather(city="Paris", days=3, deep={"a":[1,null]})']
    assert lines[2].startswith('-> note(text="' + "x" * 60 + '..." (1234 bytes), list=[0,1,2')
    assert lines[2].endswith("... (291 bytes))") and len(lines[2]) < 200
    assert lines[3] == "-> now()"
    # Calls that were not run are not part of the conversation.
    assert server.seen[1][2]["messages"][1] == {"role": "assistant", "content": "Let me look."}


def test_a_call_cannot_look_like_other_lines(server):
    name = "now()\n   Run it? "
    server.script = [{"tool_calls": [{"index": 0, "id": "a", "function": {
        "name": name, "arguments": '{"a\\n-> b": "\\u001b[2J\\r"}'}}]}, ("tool_calls",)]
    stdout = run("chat", "--url", server.url, stdin="one\n")[1].decode()
    assert stdout == '-> now()\\n   Run it? (a\\n-> b="\\u001b[2J\\r")\n'


def test_a_call_that_is_cut_says_so_and_is_not_run(server, tmp_path):
    tools = tools_file(tmp_path, it=["touch", str(tmp_path / "ran")])
    server.script = [*call("it"), {"tool_calls": [{"index": 1, "id": "b", "function": {
        "name": "it", "arguments": '{"city": "Par'}}]}, ("length",)]
    code, stdout, stderr = run("chat", "--url", server.url, "--tools", tools, "--run-tools",
                               stdin="one\n")
    assert code == 0
    assert stdout.decode() == '-> it()\n-> it({\\"city\\": \\"Par (cut)\n'
    assert b"maximum of tokens inside a call" in stderr
    assert not (tmp_path / "ran").exists() and len(server.seen) == 1


def test_a_damaged_call_fails_the_turn(server):
    server.script = [{"tool_calls": [{"index": 7, "function": {"name": "it"}}]}]
    code, _, stderr = run("chat", "--url", server.url, stdin="one\n")
    assert code == BAD and b"a tool call with index 7 after 0 calls; expected indexes" in stderr


# ---- asking ----


def test_the_tools_are_sent_with_every_request(server, tmp_path):
    tools = tools_file(tmp_path, it=["cat"])
    run("chat", "--url", server.url, "--tools", tools, stdin="one\ntwo\n")
    expected = json.loads(tools.read_text())[0]
    del expected["command"]
    for _, _, body in server.seen:
        assert body["tools"] == [{"type": "function", "function": expected}]
    run("chat", "--url", server.url, stdin="one\n")
    assert "tools" not in server.seen[-1][2]


def test_a_person_is_asked_with_the_exact_command(way, someone, tmp_path):
    way.says(call("it", city="Paris"))
    p = someone("--tools", tools_file(tmp_path, it=["cat", "-", "a b"]))
    p.wait_for("> ")
    p.type("one\r")
    shown = p.wait_for(ASKED)
    assert '-> it(city="Paris")\r\n   command: cat - "a b" (the arguments' in shown
    p.type("y\r")
    shown = p.wait_for("Done")
    assert '<- exit status 1, 18 bytes: {\\"city\\": \\"Paris\\"}' in shown
    assert "error output: cat" in shown
    messages = save(p, tmp_path / "talk.json")
    result, = results_of(messages)
    assert result.startswith('{"city": "Paris"}\n[exit status 1]\n[error output]\ncat: ')
    assert messages[1]["role"] == "assistant" and messages[1]["content"] == ""
    made, = messages[1]["tool_calls"]
    assert made == {"id": made["id"], "type": "function", "function": {
        "name": "it", "arguments": '{"city": "Paris"}'}}
    assert (messages[2]["tool_call_id"], messages[2]["name"]) == (made["id"], "it")
    if isinstance(way, ServerWay):
        assert made["id"] == "id0" and way.server.seen[1][2]["messages"] == messages[:3]
    p.leave()
    history = (tmp_path / "cache" / "chat_history").read_text()
    assert "\none" in history and "\ny" not in history


@pytest.mark.parametrize("reply", ["\r", "n\r", "maybe\r", "\x04"])
def test_a_refusal_goes_back_as_a_sentence(way, someone, tmp_path, reply):
    way.says(call("it"))
    p = someone("--tools", tools_file(tmp_path, it=["touch", str(tmp_path / "ran")]))
    p.wait_for("> ")
    p.type("one\r")
    p.wait_for(ASKED)
    p.type(reply)
    p.wait_for("not run")
    p.wait_for("Done")
    assert results_of(save(p, tmp_path / "talk.json")) == [
        "The user refused this call, so the tool was not run."]
    assert not (tmp_path / "ran").exists()
    p.leave()


def test_always_is_for_one_tool_and_lasts(server, person, tmp_path):
    server.scripts = [calls(call("it")), calls(call("it"), call("other", index=1))]
    p = person("--tools", tools_file(tmp_path, it=["echo", "hello"], other=["echo", "world"]))
    p.wait_for("> ")
    p.type("one\r")
    p.wait_for(ASKED)
    p.type("a\r")
    shown = p.wait_for(ASKED)  # the second answer: it runs, and only the other is asked about
    assert shown.count("6 bytes: hello") == 2 and "-> other()" in shown
    p.type("n\r")
    p.wait_for("Done")
    assert results(server) == ["hello\n", "The user refused this call, so the tool was not run."]
    server.scripts = [calls(call("it"))]
    p.wait_for("> ")
    p.type("two\r")
    assert "Run it?" not in p.wait_for("Done")
    p.leave()


def test_what_was_typed_before_the_question_is_no_answer(server, person, tmp_path):
    server.scripts = [["Wait", 1.0, *calls(call("it"))]]
    p = person("--tools", tools_file(tmp_path, it=["touch", str(tmp_path / "ran")]))
    p.wait_for("> ")
    p.type("one\r")
    p.wait_for("Wait")
    p.type("y\n")
    p.wait_for(ASKED)
    time.sleep(0.3)
    p.type("\r")
    p.wait_for("Done")
    assert not (tmp_path / "ran").exists()
    p.leave()


def test_long_arguments_can_be_seen_whole_before_the_answer(server, person, tmp_path):
    text = "x" * 100 + "the end"
    server.scripts = [calls(call("it", city=text))]
    p = person("--tools", tools_file(tmp_path, it=["wc", "-c"]))
    p.wait_for("> ")
    p.type("one\r")
    assert "the end" not in p.wait_for("s: show all arguments] ")
    p.type("s\r")
    p.wait_for("the end")
    p.wait_for("s: show all arguments] ")
    p.type("y\r")
    p.wait_for("Done")
    assert int(results(server)[0]) == len(json.dumps({"city": text}) + "\n")
    p.leave()


def test_ctrl_c_at_the_question_ends_the_turn(way, someone, tmp_path):
    way.says(call("it"), call("it", index=1))
    p = someone("--tools", tools_file(tmp_path, it=["touch", str(tmp_path / "ran")]))
    p.wait_for("> ")
    p.type("one\r")
    p.wait_for(ASKED)
    p.type("\x03")
    p.wait_for(r"\(stopped\)")
    roles = [m["role"] for m in save(p, tmp_path / "talk.json")]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    p.wait_for("> ")
    p.type("two\r")
    p.wait_for("Done|Run it")  # the model in the program calls again
    if isinstance(way, ServerWay):
        assert [m["role"] for m in way.server.seen[1][2]["messages"]] == roles + ["user"]
    else:
        p.type("\x03")
    assert not (tmp_path / "ran").exists()
    p.leave()


def test_without_a_terminal_nothing_runs_unless_the_flag_says_so(way, tmp_path):
    tools, path = tools_file(tmp_path, it=["touch", str(tmp_path / "ran")]), tmp_path / "talk.json"
    way.says(call("it"))
    code, stdout, stderr = run("chat", *way.words, "--tools", tools, stdin=f"one\n/save {path}\ny\n")
    assert code == 0 and stdout.decode().startswith("-> it()\nDone.\n")
    assert b"--run-tools" in stderr and not (tmp_path / "ran").exists()
    assert "no terminal to ask" in results_of(json.loads(path.read_text()))[0]
    if isinstance(way, ServerWay):
        assert stdout.decode() == "-> it()\nDone.\nDone.\n"
        way.says(call("it"))
    run("chat", *way.words, "--tools", tools, "--run-tools", stdin=f"one\n/save {path}\n")
    assert (tmp_path / "ran").exists()
    assert results_of(json.loads(path.read_text())) == ["[no output]"]


# ---- running ----


def test_a_command_gets_the_arguments_and_no_shell_no_terminal_no_keys(way, tmp_path):
    code = ("import os, sys; print(sys.argv[1:], repr(sys.stdin.read()), os.environ.get('JITNEY_API_KEY'),"
            " os.environ.get('HF_TOKEN'), os.environ.get('OTHER'), os.getsid(0) == os.getpid(),"
            " len(os.listdir('/proc/self/fd')))")
    way.says(call("it", city="$(id)"))
    path = tmp_path / "talk.json"
    tools = tools_file(tmp_path, it=[sys.executable, "-c", code, "$HOME", "a;b"])
    run("chat", *way.words, "--tools", tools, "--run-tools", stdin=f"one\n/save {path}\n",
        env={"JITNEY_API_KEY": "sesame", "HF_TOKEN": "secret", "OTHER": "kept"})
    assert results_of(json.loads(path.read_text())) == [
        "['$HOME', 'a;b'] '{\"city\": \"$(id)\"}\\n' None None kept True 4\n"]
    if isinstance(way, ServerWay):
        assert [head["authorization"] for _, head, _ in way.server.seen] == ["Bearer sesame"] * 2


def test_a_signal_and_a_missing_program_are_told(server, tmp_path):
    result, stderr = run_one(server, tmp_path, ["sh", "-c", "echo before; kill -9 $$"])
    assert result == "before\n[ended by signal 9 (Killed)]" and "signal 9" in stderr
    result, stderr = run_one(server, tmp_path, ["/no/such/program"])
    assert result == "[the command could not be started: No such file or directory]"


def test_a_command_that_does_not_read_its_input_is_no_error(server, tmp_path):
    assert run_one(server, tmp_path, ["true"], city="x" * 300000)[0] == "[no output]"
    assert run_one(server, tmp_path, ["wc", "-c"], city="x" * 300000)[0] == "300013\n"


def test_the_time_limit_ends_the_command_and_all_it_started(server, tmp_path):
    mark = f"{time.time():.6f}"
    command = ["sh", "-c", f"echo begun; trap '' TERM; sleep 1000{mark} & sleep 1000{mark}; wait"]
    begin = time.monotonic()
    result, _ = run_one(server, tmp_path, command, "--tool-seconds", "1")
    assert result == "begun\n[ended after 1 seconds, the time limit]"
    assert 1 <= time.monotonic() - begin < 10
    found = subprocess.run(["pgrep", "-f", f"sleep 1000{mark}"], capture_output=True, check=False)
    assert found.stdout == b""


def test_a_process_left_behind_is_not_waited_for(server, tmp_path):
    begin = time.monotonic()
    result, _ = run_one(server, tmp_path, ["sh", "-c", "sleep 8 & echo done"])
    assert result == "done\n" and time.monotonic() - begin < 6


def test_a_big_output_is_cut_and_says_so(server, tmp_path):
    code = "import sys; sys.stdout.write('a' + '\\u00e9' * 500000); sys.stderr.write('e' * 100000)"
    result, stderr = run_one(server, tmp_path, [sys.executable, "-c", "# é\n" + code])
    assert result == "a" + "é" * 32767 + "\n[output cut: 65535 of 1000001 bytes]\n"
    assert "1000001 bytes" in stderr and len(stderr) < 2000
    result, _ = run_one(server, tmp_path, [sys.executable, "-c", code + "; sys.exit(3)"])
    assert "[exit status 3]" in result and "[output cut: 4096 of 100000 bytes]" in result


def test_the_error_output_of_a_command_without_output_is_told(server, tmp_path):
    result, stderr = run_one(server, tmp_path, ["sh", "-c", "echo what went wrong >&2"])
    assert result == "[no output]\n[error output]\nwhat went wrong\n"
    assert "error output: what went wrong" in stderr
    assert run_one(server, tmp_path, ["sh", "-c", "echo a warning >&2; echo fine"])[0] == "fine\n"


def test_an_output_cannot_control_the_terminal(server, person, tmp_path):
    server.scripts = [calls(call("it"))]
    p = person("--run-tools", "--tools",
               tools_file(tmp_path, it=["printf", r"\033[2J\tx\nsecond"]))
    p.wait_for("> ")
    p.type("one\r")
    shown = p.wait_for("Done")
    assert r"\u001b[2J\tx\nsecond" in shown and "\x1b[2J" not in shown
    assert results(server) == ["\x1b[2J\tx\nsecond"]
    p.leave()


def test_an_unknown_tool_and_invalid_arguments_are_told_to_the_model(server, tmp_path):
    tools = tools_file(tmp_path, it=["cat"], other=["cat"])
    server.scripts = [calls(call("that"), [{"tool_calls": [{"index": 1, "id": "b", "function": {
        "name": "it", "arguments": "[1]"}}]}])]
    code, stdout, _ = run("chat", "--url", server.url, "--tools", tools, "--run-tools",
                          stdin="one\n")
    assert code == 0
    assert stdout.decode() == "-> that()\n-> it([1]) (the arguments are not a JSON object)\nDone.\n"
    assert results(server) == [
        'There is no tool "that". The tools are: it, other.',
        "The arguments are not a JSON object, so the tool was not run."]


def test_rounds_of_calls_are_limited(way, tmp_path):
    way.says(call("it"), then=None)
    path = tmp_path / "talk.json"
    code, stdout, stderr = run("chat", *way.words, "--run-tools", "--tools",
                               tools_file(tmp_path, it=["cat"]),
                               stdin=f"one\n/stats\n/save {path}\n")
    assert code == 0
    if isinstance(way, ServerWay):
        assert len(way.server.seen) == 17
    else:  # ids of calls are unique in a conversation
        ids = [m["tool_call_id"] for m in json.loads(path.read_text()) if m["role"] == "tool"]
        assert len(set(ids)) == 16 and all(re.fullmatch(r"call_\w{24}", one) for one in ids)
    assert stderr.count(b"<- exit status 0") == 16 and stdout.count(b"-> it()") == 17
    assert b"called tools 16 times in a row" in stderr
    assert b"34 messages" in stderr  # of the user, 16 calls with results, the last without its call


@pytest.mark.parametrize("ignores", ["", "trap '' TERM INT; "])
def test_ctrl_c_ends_the_command_and_the_turn_but_not_the_program(way, someone, tmp_path, ignores):
    pid_file = tmp_path / "pid"
    way.says(call("it"))
    command = ["sh", "-c", f"{ignores}echo begun; echo $$ > {pid_file}.new; "
               f"mv {pid_file}.new {pid_file}; while true; do sleep 0.1; done"]
    p = someone("--run-tools", "--tools", tools_file(tmp_path, it=command))
    p.wait_for("> ")
    p.type("one\r")
    assert wait_until(pid_file.exists, 20)
    p.type("\x03")
    p.wait_for("<- stopped by the user, 6 bytes: begun", timeout=10)
    p.wait_for(r"\(stopped\)")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    messages = save(p, tmp_path / "talk.json")
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2]["content"] == "begun\n[stopped by the user]"
    p.leave()


def test_a_failure_of_the_server_between_rounds_leaves_the_conversation_unchanged(server, tmp_path):
    server.scripts = [calls(call("it")), (500, {"error": {"message": "it broke"}})]
    code, _, stderr = run("chat", "--url", server.url, "--run-tools", "--tools",
                          tools_file(tmp_path, it=["cat"]), stdin="one\n/stats\n")
    assert code == 69 and b"it broke" in stderr and b"0 messages" in stderr


def test_a_conversation_with_calls_can_be_saved_and_loaded(way, tmp_path):
    tools, path = tools_file(tmp_path, it=["echo", "hello"]), tmp_path / "talk.json"
    again = tmp_path / "again.json"
    way.says(call("it", city="Rome"))
    run("chat", *way.words, "--run-tools", "--tools", tools, stdin=f"one\n/save {path}\ntwo\n")
    code = run("chat", *way.words, "--tools", tools, stdin=f"/load {path}\ntwo\n/save {again}\n")[0]
    assert code == 0
    messages = json.loads(path.read_text())
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert json.loads(again.read_text())[:4] == messages
    if isinstance(way, ServerWay):
        assert len(way.server.seen[3][2]["messages"]) == 5
        assert way.server.seen[3][2]["messages"] == way.server.seen[2][2]["messages"]
    path.write_text('[{"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}]')
    stderr = run("chat", *way.words, stdin=f"/load {path}\n")[2]
    assert b"message 0: tool_calls is not a list of" in stderr


# ---- files and flags ----


GOOD = '{"name": "it", "command": ["cat"]}'


@pytest.mark.parametrize("text, said", [
    ("[\n{]", "line 2 column 2"),
    ("", "tools.json: "),
    ('{"name": "it"}', "expected a list of tools, [{\"name\": ...}], found an object"),
    ("[]", "expected 1 to 128 tools, found 0"),
    ("[" + ",".join(['{"name": "it%d", "command": ["a"]}' % i for i in range(129)]) + "]",
     "found 129"),
    ("[3]", "[0]: expected an object with name, description, parameters and command, found a num"),
    (f'[{GOOD}, {{"name": "b", "comand": ["cat"]}}]',
     '[1]: unknown field "comand"; did you mean "command"?'),
    ('[{"type": "function", "function": {"name": "it"}}]',
     '[0]: unknown field "type"; a tool has name, description, parameters and command, without'),
    (f"[{GOOD}, {GOOD}]", '[1].name: duplicate name "it"; [0] has it already'),
    ('[{"command": ["cat"]}]', "[0].name: expected a text, found nothing"),
    ('[{"name": "a b", "command": ["cat"]}]', '[0].name: invalid name "a b"; expected 1 to 64'),
    ('[{"name": "it"}]', '[0].command: expected the program and its arguments as a list of texts, '
                         'such as ["date", "-u"], found nothing'),
    ('[{"name": "it", "command": "cat"}]', "found a text"),
    ('[{"name": "it", "command": []}]', "found an empty list"),
    ('[{"name": "it", "command": [""]}]', "[0].command[0]: expected the name of a program, found"),
    ('[{"name": "it", "command": ["a", 1]}]', "[0].command[1]: expected a text, found a number"),
    ('[{"name": "it", "command": ["a\\u0000"]}]', "tools.json"),
    ('[{"name": "it", "command": ["a"], "description": 1}]', "[0].description: expected a text"),
    ('[{"name": "it", "command": ["a"], "parameters": []}]', "[0].parameters: expected a JSON Sch"),
    ('[{"name": "it", "name": "b", "command": ["a"]}]', "name"),
])
def test_a_wrong_file_is_refused_with_its_place(tmp_path, text, said):
    path = tmp_path / "tools.json"
    path.write_text(text)
    line = refusal(BAD, "chat", "--url", "http://127.0.0.1:1", "--tools", path)
    assert f"{path}: " in line and said in line


def test_flags_that_do_not_go_together_are_refused(tmp_path):
    url = ("--url", "http://127.0.0.1:1")
    assert "need --tools" in refusal(USAGE, "chat", *url, "--run-tools")
    assert "need --tools" in refusal(USAGE, "chat", *url, "--tool-seconds", "5")
    assert "standard input" in refusal(USAGE, "chat", *url, "--tools", "-")
    assert "/no/such" in refusal(MISSING, "chat", *url, "--tools", "/no/such")
    assert "tool-seconds" in refusal(USAGE, "chat", *url, "--tools", EXAMPLE, "--tool-seconds", "0")


# ---- with a model of this tree, in a server and in the program ----


@needs_bc
@pytest.mark.parametrize("is_served", [True, False])
def test_the_example_with_our_own_server_and_without(tmp_path, is_served):
    """Two calls in one answer, asked about; the model goes on when it has the results."""
    model = scripted_model(tmp_path / "m", [
        "I will", " compute.\n", "<tool_call>\n", '{"name": "calculate", ', '"arguments": {"expr',
        'ession": "6', ' * 7"}}', "\n</tool_call>", "\n<tool_call>\n{",
        '"name": "now", "arguments"', ": {}}\n", "</tool_call> "],
        template="{# <tool_call> #}{% if tools %}{{ tools | tojson }}\n{% endif %}",
        after_tool=["Here", " you", " are."])
    path = tmp_path / "talk.json"
    ours = Server(model, "--kv-memory", "64M") if is_served else contextlib.nullcontext()
    with ours:
        words = ["--url", ours.url] if is_served else [model]
        p = Person(tmp_path / "cache", *words, "--tools", EXAMPLE, "--temp", "0")
        p.wait_for("> ")
        p.type("one\r")
        shown = p.wait_for(ASKED)
        assert "I will compute." in shown
        assert '-> calculate(expression="6 * 7")\r\n-> now()\r\n' in shown
        p.type("y\r")
        p.wait_for("<- exit status 0, 3 bytes: 42")
        p.wait_for("command: date -u ")
        p.wait_for(ASKED)
        p.type("a\r")
        p.wait_for(r"bytes: \w+day, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
        p.wait_for(r"Here you are\.")
        p.wait_for("> ")
        p.type(f"/save {path}\r")
        p.wait_for("5 messages saved")
        p.leave()
    saved = json.loads(path.read_text())
    assert [m["role"] for m in saved] == ["user", "assistant", "tool", "tool", "assistant"]
    assert saved[2]["content"] == "42\n" and saved[4]["content"] == "Here you are."


@needs_bc
def test_the_calculator_of_the_example_computes():
    tool = next(t for t in json.loads(EXAMPLE.read_text()) if t["name"] == "calculate")
    for args, said in (('{"expression": "(2 + 3) * 4.5"}', "22.5\n"),
                       ('{"expression":"2^64"}', "18446744073709551616\n"),
                       ('{\n  "expression": "-1"\n}', "-1\n")):
        done = subprocess.run(tool["command"], input=args + "\n", capture_output=True, text=True,
                              check=True)
        assert done.stdout == said


def test_an_answer_that_is_stopped_inside_a_call_runs_nothing(server, person, tmp_path):
    server.scripts = [[*call("it"), 20.0]]
    p = person("--run-tools", "--tools",
               tools_file(tmp_path, it=["touch", str(tmp_path / "ran")]))
    p.wait_for("> ")
    p.type("one\r")
    assert wait_until(lambda: server.seen, 10)
    time.sleep(0.3)
    os.kill(p.pid, signal.SIGINT)
    shown = p.wait_for(r"\(stopped\)")
    assert re.search(r"-> it\(\)", shown)
    p.wait_for("> ")
    p.type("two\r")
    p.wait_for("Done")
    assert server.seen[1][2]["messages"][1] == {"role": "assistant", "content": ""}
    assert not (tmp_path / "ran").exists()
    p.leave()


# ---- with a model in the program ----


def test_a_thought_that_the_prompt_has_opened_is_a_thought(tmp_path):
    model = scripted_model(tmp_path / "m", ["<think>", "I think", "</think>", "Yes."],
                           "{# <think> #}")
    end_prompt_with(model, "<think>")
    stdout = run("chat", model, "--temp", "0", stdin="one\n")[1].decode()
    assert stdout == "<think>\nI think\n</think>\n\nYes.\n"


def test_a_thought_that_is_cut_is_a_thought(tmp_path):
    way = ModelWay(tmp_path).says({"reasoning_content": "I thi"}, {"reasoning_content": "nk"}, "Yes.")
    path = tmp_path / "talk.json"
    stdout = run("chat", *way.words, "-n", "2", stdin=f"one\n/save {path}\n")[1].decode()
    assert stdout == "<think>\nI thi\n</think>\n\n"
    assert json.loads(path.read_text())[1] == {
        "role": "assistant", "reasoning_content": "I thi", "content": ""}


def test_a_call_of_a_model_that_is_cut_is_not_run(tmp_path):
    way = ModelWay(tmp_path).says(call("it"), call("it", index=1, city="Paris"))
    tools = tools_file(tmp_path, it=["touch", str(tmp_path / "ran")])
    code, stdout, stderr = run("chat", *way.words, "--tools", tools, "--run-tools", "-n", "3",
                               stdin="one\n")
    assert code == 0 and stdout.decode() == '-> it()\n-> it({\\"cit (cut)\n'
    assert b"maximum of tokens inside a call" in stderr and not (tmp_path / "ran").exists()


def test_without_tools_a_call_of_a_model_is_text(tmp_path):
    way = ModelWay(tmp_path).says(call("it"))
    stdout = run("chat", *way.words, stdin="one\n")[1].decode()
    assert stdout == '<tool_call>\n{"name": "it", "arguments": {}}\n</tool_call>\n'


def test_the_template_of_a_model_gets_tools_and_arguments_as_an_object(tmp_path):
    """Also those of a conversation that a server's chat has saved, without --tools."""
    check = "{% for m in messages %}{% for c in m.tool_calls or [] %}" \
            "{% if c.function.arguments.city != 'Rome' %}" \
            "{{ raise_exception('arguments: ' ~ c.function.arguments) }}{% endif %}" \
            "{% endfor %}{% endfor %}"
    listed = "{% if messages[-1].content == 'listed' and tools[0].function.name != 'it' %}" \
             "{{ raise_exception('tools: ' ~ tools) }}{% endif %}"
    way = ModelWay(tmp_path)
    way.template = "{# <tool_call> #}" + check + listed
    way.says(call("it", city="Rome"))
    tools, path = tools_file(tmp_path, it=["cat"]), tmp_path / "talk.json"
    with scripted_server() as server:
        ServerWay(server).says(call("it", city="Rome"))
        run("chat", "--url", server.url, "--run-tools", "--tools", tools,
            stdin=f"one\n/save {path}\n")
    for message, flags in (("two", ()), ("listed", ("--run-tools", "--tools", tools))):
        code, _, stderr = run("chat", *way.words, *flags, stdin=f"/load {path}\n{message}\n")
        assert code == 0, stderr
    assert "arguments" in path.read_text()
    path.write_text(path.read_text().replace("Rome", "Oslo"))
    code, _, stderr = run("chat", *way.words, stdin=f"/load {path}\ntwo\n")
    assert code == BAD and b"Oslo" in stderr  # the check works


def test_a_template_without_a_place_for_tools_gets_them_as_text(tmp_path):
    """The system message has the tools, and results are messages of the user."""
    check = "{% if messages[0].role != 'system' or '<tools>' not in messages[0].content %}" \
            "{{ raise_exception('not listed') }}{% endif %}" \
            "{% for m in messages if m.role == 'tool' %}{{ raise_exception('a result') }}{% endfor %}"
    way = ModelWay(tmp_path)
    way.template = check.replace("<tools>", "<tool' ~ 's>")  # the word itself would be a place
    way.says(call("it", city="Rome"), then=None)
    code, stdout, stderr = run("chat", *way.words, "--run-tools", "--tools",
                               tools_file(tmp_path, it=["cat"]), stdin="one\n")
    assert code == 0 and stdout.decode() == '-> it(city="Rome")\n' * 17, stderr


def test_ids_of_calls_are_those_that_the_template_demands(tmp_path):
    way, path = ModelWay(tmp_path), tmp_path / "talk.json"
    way.template += "{% for m in messages if m.role == 'tool' %}" \
                    "{% if m.tool_call_id | length != 9 %}" \
                    "{{ raise_exception(m.tool_call_id) }}{% endif %}{% endfor %}"
    way.says(call("it"))
    code, stdout, stderr = run("chat", *way.words, "--run-tools", "--tools",
                               tools_file(tmp_path, it=["cat"]), stdin=f"one\n/save {path}\n")
    assert code == 0 and stdout.decode() == "-> it()\nDone.\n", stderr


def test_tools_for_a_model_whose_calls_no_form_reads_are_refused(tmp_path):
    way = ModelWay(tmp_path)
    way.template = "{# <|channel|> #}{{ tools }}"
    way.says("Yes.")
    line = refusal(BAD, "chat", *way.words, "--tools", EXAMPLE, stdin="one\n")
    assert f"{way.words[0]} writes tool calls in a form" in line and "leave out --tools" in line
    assert run("chat", *way.words, stdin="one\n")[1] == b"Yes.\n"


def test_a_role_that_no_template_knows_fails_the_turn(tmp_path):
    way, path = ModelWay(tmp_path).says("Yes."), tmp_path / "talk.json"
    path.write_text('[{"role": "nobody", "content": "x"}]')
    code, stdout, stderr = run("chat", *way.words, stdin=f"/load {path}\none\n/stats\n")
    assert code == BAD and stdout == b""
    assert b"messages[0].role" in stderr and b"1 messages" in stderr
