"""Goal:   another program can be built against an installed libjitney, shared or static, and gets
        answers from it; the library shows nothing but include/jitney.h.
Method: `cmake --install` into a temporary folder, pkg-config from there, the system's compiler on
        examples/chat.c, and runs on a tiny model (SmolLM2 too where it is cached)."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cli_lib import JITNEY, ROOT, run, talking_model

BUILD = Path(JITNEY).resolve().parent
EXAMPLE = ROOT / "examples" / "chat.c"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]

pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("pkg-config")), reason="needs cc and pkg-config"
)


def call(*command, **how):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=120, check=False, **how
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module", name="stage")
def stage_fixture(tmp_path_factory):
    """A prefix that the library was installed to."""
    prefix = tmp_path_factory.mktemp("prefix with a space")
    call("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return talking_model(tmp_path_factory.mktemp("models") / "tiny")


def pkg_config(stage, *words):
    env = {**os.environ, "PKG_CONFIG_PATH": str(stage / "lib" / "pkgconfig")}
    return call("pkg-config", *words, "jitney", env=env).strip()


def flags(stage, *words):
    # pkg-config writes a space inside a path as "\ ".
    text = pkg_config(stage, *words)
    return [part.replace("\\ ", " ") for part in re.split(r"(?<!\\)\s+", text)]


@pytest.fixture(scope="module", name="chat")
def chat_fixture(stage, tmp_path_factory):
    """The example as a user would build it."""
    program = tmp_path_factory.mktemp("program") / "chat"
    call("cc", "-std=c99", *STRICT, EXAMPLE, "-o", program, *flags(stage, "--cflags", "--libs"))
    return lambda *args: subprocess.run(
        [str(program), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": str(stage / "lib")},
    )


def answers(text):
    """{question: answer} from what the example prints."""
    found = re.findall(r"^> (.*?)\n(.*?)\n\((\d+) tokens\)\n\n", text, re.DOTALL | re.MULTILINE)
    return {question: (answer, int(tokens)) for question, answer, tokens in found}


def test_what_is_installed_is_what_pkg_config_names(stage):
    assert {p.name for p in (stage / "lib").iterdir() if p.name.startswith("libjitney.")} == {
        "libjitney.so",
        "libjitney.so.0",
        "libjitney.so." + pkg_config(stage, "--modversion"),
        "libjitney.a",
    }
    assert flags(stage, "--cflags") == [f"-I{stage}/lib/pkgconfig/../../include"]
    assert flags(stage, "--libs") == [f"-L{stage}/lib/pkgconfig/../../lib", "-ljitney"]
    installed = (stage / "include" / "jitney.h").read_text()
    assert installed == (ROOT / "include" / "jitney.h").read_text()


def declared():
    header = (ROOT / "include" / "jitney.h").read_text()
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    header = re.sub(r"^static inline .*?^}", "", header, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"\b(jitney_\w+)\(", header))


def test_the_libraries_show_the_header_and_nothing_else(stage):
    if not shutil.which("nm"):
        pytest.skip("needs nm")
    for words in (["-D", "libjitney.so"], ["-g", "libjitney.a"]):
        listing = call("nm", "--defined-only", words[0], stage / "lib" / words[1])
        shown = set(re.findall(r"^[0-9a-f]+ \w (\w+)", listing, re.MULTILINE))
        assert shown == declared()


def test_the_example_answers_several_questions(chat, model):
    done = chat(model, "Hello?", "Why?", "And what about a longer one, is it read to its end?")
    assert done.returncode == 0, done.stderr
    assert list(answers(done.stdout)) != []
    assert set(answers(done.stdout)) == {
        "Hello?",
        "Why?",
        "And what about a longer one, is it read to its end?",
    }
    assert all(0 < tokens <= 64 for _, tokens in answers(done.stdout).values())


def test_an_answer_is_the_same_beside_other_requests(chat, model):
    questions = ["Hello?", "Why?", "1 2 3 4 5 6 7", "x"]
    together = answers(chat(model, *questions).stdout)
    for question in questions:
        assert answers(chat(model, question).stdout) == {question: together[question]}


def test_the_example_says_what_is_wrong(chat, model):
    done = chat("/nowhere", "Hello?")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "chat: /nowhere: no such file or folder\n"
    assert chat().returncode == 64
    bare = ROOT / "tests" / "golden" / "models" / "llama"
    done = chat(bare, "Hello?")
    assert done.returncode == 1
    assert "no chat template" in done.stderr


def test_the_static_library_makes_the_same_program(stage, chat, model, tmp_path):
    program = tmp_path / "chat"
    words = flags(stage, "--static", "--cflags", "--libs")
    words = ["-l:libjitney.a" if word == "-ljitney" else word for word in words]
    call("cc", EXAMPLE, "-o", program, *words)
    out = call(program, model, "Hello?")
    assert out == chat(model, "Hello?").stdout


def test_the_header_is_cpp_too(stage, tmp_path):
    if not shutil.which("c++"):
        pytest.skip("needs c++")
    source = tmp_path / "use.cpp"
    source.write_text(
        "#include <jitney.h>\n#include <cstdio>\n"
        "int main() {\n"
        "    struct jitney_request r = jitney_request_default();\n"
        '    return std::puts(jitney_version()) < 0 || r.n != 1;\n}\n'
    )
    program = tmp_path / "use"
    call("c++", *STRICT, source, "-o", program, *flags(stage, "--cflags", "--libs"))
    out = call(program, env={**os.environ, "LD_LIBRARY_PATH": str(stage / "lib")})
    assert out.strip() == pkg_config(stage, "--modversion")


def test_the_example_talks_to_smollm2(chat):
    if run("inspect", "smollm2")[0] != 0:
        pytest.skip("smollm2 is not cached")
    done = chat("smollm2", "Why is the sky blue?", "What is two plus two?")
    assert done.returncode == 0, done.stderr
    assert "light" in answers(done.stdout)["Why is the sky blue?"][0]
