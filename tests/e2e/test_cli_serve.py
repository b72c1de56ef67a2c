"""Goal:   `jitney serve` takes its settings from the right origin and reports errors before it
        starts; `health` and `completion` work; the files in deploy/ are valid.
Method: the program itself, up to the point where it would listen; files made for the test."""

import json
import platform
import re
import shutil
import socket
import subprocess
import threading
from collections import namedtuple

import pytest

import cli_lib
from cli_lib import ROOT

MODEL = str(ROOT / "tests/golden/models/llama")
FOREIGN_ISA = "avx2" if platform.machine() == "aarch64" else "neon"


Run = namedtuple("Run", "code out err")


def run(*words, env=None):
    code, out, err = cli_lib.run(*words, env=env)
    return Run(code, out.decode(), err.decode())


def serve(*words, env=None):
    return run("serve", *words, env=env)


def config_of(text):
    """{name: [value]} of what --print-config says, and {name: origin}."""
    values, origins = {}, {}
    for line in text.splitlines():
        match = re.match(r"([a-z-]+) = (.*?) +# (\w+)$", line)
        if match:
            values.setdefault(match[1], []).append(match[2])
            origins[match[1]] = match[3]
    return values, origins


def test_a_flag_overrides_the_environment_which_overrides_the_file(tmp_path):
    conf = tmp_path / "jitney.conf"
    conf.write_text("port = 1\nhost = 127.0.0.2\nkeep-s = 5\nmodel = a\nmodel = b\n")
    env = {"JITNEY_PORT": "2", "JITNEY_HOST": "127.0.0.3", "JITNEY_MODEL": "c,d"}
    got = serve("--print-config", "--config", str(conf), "--port", "3", env=env)
    assert got.code == 0
    values, origins = config_of(got.out)
    assert values["port"] == ["3"] and origins["port"] == "flag"
    assert values["host"] == ["127.0.0.3"] and origins["host"] == "environment"
    assert values["keep-s"] == ["5"] and origins["keep-s"] == "file"
    assert values["model"] == ["c", "d"]
    assert values["body-max"] == ["8M"] and origins["body-max"] == "default"


def test_the_output_of_print_config_is_a_config_file(tmp_path):
    conf = tmp_path / "again.conf"
    first = serve("--print-config", "--port", "0", "x # y", "--kv-memory=3G", "--no-auth").out
    conf.write_text(first)
    second = serve("--print-config", "--config", str(conf)).out
    strip = [re.sub(r" +# \w+$", "", line) for line in first.splitlines() if "config" not in line]
    again = [re.sub(r" +# \w+$", "", line) for line in second.splitlines() if "config" not in line]
    assert strip == again


def test_operands_and_flags_name_models():
    got = serve("--print-config", "one", "-m", "two", "three")
    assert config_of(got.out)[0]["model"] == ["two", "one", "three"]


@pytest.mark.parametrize("words, code, sentence", [
    (["--port", "65536"], 64, "--port"),
    (["--kv-memory", "much"], 64, "a size such as 512, 64K or 2G"),
    (["--prot", "1"], 64, "did you mean --port?"),
    (["--host", "0.0.0.0", MODEL], 64, "--api-key-file"),
    (["--host", "::", MODEL], 64, "--no-auth"),
    (["--host", "example.com", MODEL], 64, "other machines"),
    (["--tls-cert", "x", MODEL], 64, "--tls-cert needs --tls-key, too"),
    (["--tls-key", "x", MODEL], 64, "--tls-key needs --tls-cert, too"),
    (["--tls-key", "x", "--tls-cert", "/nowhere/cert.pem", MODEL], 64, "/nowhere/cert.pem"),
    (["--api-key-file", "/nowhere/keys", MODEL], 64, "/nowhere/keys"),
    (["--policy", "hope", MODEL], 64, "unknown policy"),
    (["--set", "max_seqs=0", MODEL], 64, "max_seqs"),
    (["--runner", "magic", MODEL], 64, "sim:STEP_US"),
    (["--isa", FOREIGN_ISA, MODEL], 64, "this processor can run: "),
    (["--config", "/nowhere/conf", MODEL], 78, "/nowhere/conf"),
    (["/nowhere/model.gguf"], 66, "/nowhere/model.gguf"),
    (["no-such-model-here"], 66, "no-such-model-here"),
    (["--served-model-name", "a", "--served-model-name", "b", MODEL], 64, "2 names for 1 models"),
])
def test_invalid_settings_are_reported_before_the_start(words, code, sentence):
    got = serve(*words, "--check")
    assert (got.code, got.out) == (code, "")
    assert sentence in got.err and got.err.count("\n") == 1


def test_mistakes_in_file_and_environment_are_config_errors(tmp_path):
    conf = tmp_path / "c"
    conf.write_text("\nprot = 80\n")
    got = serve("--check", "--config", str(conf), MODEL)
    assert got.code == 78 and f"{conf}:2: unknown setting" in got.err
    got = serve("--check", MODEL, env={"JITNEY_PORT": "http"})
    assert got.code == 78 and "JITNEY_PORT is" in got.err
    got = serve("--check", MODEL, env={"JITNEY_ISA": FOREIGN_ISA})
    assert got.code == 78 and "use auto" in got.err
    conf.write_text(f"isa = {FOREIGN_ISA}\n")
    assert serve("--check", "--config", str(conf), MODEL).code == 78
    keys = tmp_path / "keys"
    keys.write_text("secret rpm=fast\n")
    got = serve("--check", MODEL, env={"JITNEY_API_KEY_FILE": str(keys)})
    assert got.code == 78 and f"{keys}:1:" in got.err and "secret" not in got.err


def test_check_accepts_valid_settings_and_models(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-1 name=a rpm=60\n")
    got = serve("--check", MODEL, "--host", "0.0.0.0", "--api-key-file", str(keys))
    assert (got.code, got.out, got.err) == (0, "settings and models are valid\n", "")
    assert serve("--check", MODEL, "--uds", "/tmp/x.sock", "--host", "0.0.0.0").code == 0
    assert serve("--check", MODEL, "--host", "[::1]").code == 0
    assert serve("--check", MODEL, "--host", "0.0.0.0", "--no-auth").code == 0


@pytest.mark.parametrize("host, flags, code", [
    ("127.0.0.1", [], 0), ("0.0.0.0", [], 64), ("0.0.0.0", ["--no-auth"], 0)])
def test_a_socket_of_the_service_manager_needs_keys_too(host, flags, code):
    """The shell puts the socket at descriptor 3 and tells its own id, which the program keeps."""
    with socket.create_server((host, 0)) as listener:
        words = " ".join([cli_lib.JITNEY, "serve", "--check", MODEL, *flags])
        script = f"exec 3<&{listener.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec {words}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True,
                              pass_fds=[listener.fileno()])
    assert done.returncode == code, done.stderr
    assert code == 0 or "other machines can reach a socket of the service manager" in done.stderr


def test_sockets_of_another_process_do_not_replace_the_check():
    got = serve("--check", MODEL, "--host", "0.0.0.0", env={"LISTEN_FDS": "1", "LISTEN_PID": "1"})
    assert got.code == 64 and "other machines can reach --host 0.0.0.0" in got.err


def test_check_opens_models(tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\xff" * 100)
    got = serve("--check", str(bad))
    assert got.code == 65 and str(bad) in got.err


@pytest.fixture
def answering():
    """A server that answers one request at a time with the status that the test puts in."""
    state = {"status": "200 OK", "paths": []}
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            with conn:
                state["paths"].append(conn.recv(4096).split()[1].decode())
                body = '{"status":"loading"}'
                conn.sendall(f"HTTP/1.1 {state['status']}\r\nContent-Length: {len(body)}\r\n"
                             f"Connection: close\r\n\r\n{body}".encode())

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    state["port"] = listener.getsockname()[1]
    yield state
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def test_health_exits_with_the_state_of_the_server(answering):
    url = f"http://127.0.0.1:{answering['port']}"
    assert run("health", url).code == 0
    assert run("health", url + "/", "--live").code == 0
    assert answering["paths"] == ["/readyz", "/livez"]
    answering["status"] = "503 Service Unavailable"
    got = run("health", env={"JITNEY_PORT": str(answering["port"]), "JITNEY_HOST": "0.0.0.0"})
    assert got.code == 69 and "503" in got.err and "loading" in got.err
    got = run("health", "http://127.0.0.1:1")
    assert got.code == 69 and got.err.count("\n") == 1
    assert run("health", "ftp://x").code == 64


def complete_in_bash(script, line):
    words = line.split(" ")
    program = (f"{script}\nCOMP_WORDS=({' '.join(repr(w) for w in words)})\n"
               f"COMP_CWORD={len(words) - 1}\n_jitney\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n")
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_flags_and_words():
    script = run("completion", "bash").out
    assert complete_in_bash(script, "jitney se") == ["serve"]
    assert "--kv-memory" in complete_in_bash(script, "jitney serve --k")
    assert complete_in_bash(script, "jitney serve --log-format ") == ["logfmt", "json"]
    assert complete_in_bash(script, "jitney serve --log-format j") == ["json"]
    assert "--url" not in complete_in_bash(script, "jitney tokenize --")


def test_bash_completes_policies_and_models(tmp_path, monkeypatch):
    script = run("completion", "bash").out
    policies = json.loads(run("knobs", "--json").out)["policies"]
    for command in ("serve", "replay"):
        assert complete_in_bash(script, f"jitney {command} --policy ") == [
            p["name"] for p in policies]
    assert complete_in_bash(script, "jitney pull sm") == ["smollm2"]
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "x.gguf").write_bytes(b"GGUF")
    (folder / "jitney.json").write_text(json.dumps(
        {"name": "mine", "source": "", "entry": "x.gguf",
         "files": [{"path": "x.gguf", "bytes": 4, "sha256": "", "mtime_ns": 0}]}))
    monkeypatch.setenv("JITNEY_CACHE", str(tmp_path))
    assert run("list", "--names").out == "mine\n"
    for line in ("chat ", "serve m", "rm ", "generate -m ", "chat --model mi"):
        assert complete_in_bash(script, f"{cli_lib.JITNEY} {line}") == ["mine"], line
    assert complete_in_bash(script, f"{cli_lib.JITNEY} chat -n ") == []
    assert run("list", "--names", "--json").code == 64


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_scripts_of_their_shell(shell, tmp_path):
    got = run("completion", shell)
    assert got.code == 0 and "serve" in got.out
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(got.out)
    subprocess.run([shell, "-n", str(path)], check=True)


def test_completion_of_an_unknown_shell_is_a_usage_error():
    assert run("completion").code == 64
    assert run("completion", "tcsh").code == 64


def test_the_example_config_is_valid():
    got = serve("--print-config", "--config", str(ROOT / "deploy/jitney.conf"))
    assert got.code == 0 and config_of(got.out)[0]["log-format"] == ["json"]


def metrics_named_in(text):
    names = set(re.findall(r"\b(?:vllm|jitney):\w+|\bprocess_\w+", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


@pytest.mark.parametrize("name", ["deploy/alerts.yml", "deploy/grafana.json", "docs/operation.md"])
def test_every_metric_in_the_dashboard_is_exported(name):
    source = (ROOT / "src/report/server_metrics.c").read_text()
    named = metrics_named_in(source)
    assert metrics_named_in((ROOT / name).read_text()) - named == set()


def test_the_dashboard_is_json_and_its_panels_do_not_overlap():
    board = json.loads((ROOT / "deploy/grafana.json").read_text())
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(places) == len(set(places)) > 10


def test_the_unit_does_not_restart_after_permanent_errors():
    unit = (ROOT / "deploy/jitney.service").read_text()
    assert "RestartPreventExitStatus=64 66 78" in unit
    header = (ROOT / "src/cli/cli.h").read_text()
    for name, code in (("USAGE", 64), ("MISSING", 66), ("CONFIG", 78)):
        assert re.search(rf"EXIT_{name} = {code}\b", header)


def test_systemd_accepts_the_units(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    for name in ("jitney.service", "jitney.socket"):
        text = (ROOT / "deploy" / name).read_text()
        # The program is not installed here, and neither is its manual page.
        text = re.sub(r"=jitney serve", "=/bin/true serve", text)
        (tmp_path / name).write_text(text.replace("Documentation=man:jitney(1)\n", ""))
    done = subprocess.run(["systemd-analyze", "verify", *map(str, tmp_path.iterdir())],
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_has_every_library_of_the_program():
    """What CMake asks for by pkg-config is in the list of the building stage."""
    docker = (ROOT / "deploy/Dockerfile").read_text()
    setup = (ROOT / "tools/setup").read_text()
    packages = re.findall(r"^run +(?:module|file) +\S+ +(\S+)", setup, re.MULTILINE)
    assert len(packages) > 8
    assert [p for p in packages if p not in docker] == []
