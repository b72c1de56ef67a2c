"""Goal:   set-up installs just what is missing, and says what to ask for where it may not.

Method: a copy of tools/setup in an empty tree, with stand-ins for id, sudo, apt-get and
        pkg-config first on PATH. The stand-in for apt-get notes its arguments and, if the
        test asks for it, makes what it "installs" appear.
"""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EX_USAGE, EX_UNAVAILABLE = 64, 69


class Machine:
    def __init__(self, path):
        self.path = path
        self.bin = path / "bin"
        self.bin.mkdir()
        (path / "lists").mkdir()
        (path / "lists/debian_Packages").touch()
        (path / "tools").mkdir()
        shutil.copy(ROOT / "tools/setup", path / "tools/setup")
        self.script("id", "echo 0")
        self.script("sudo", "exit 1")
        self.script("apt-get", f'echo "$@" >>{path}/apt.log\nrm -f {path}/lack-*')
        self.script("pkg-config", f"[ ! -e {path}/lack-$2 ]")

    def script(self, name, body):
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)

    def lack(self, *modules):
        for module in modules:
            (self.path / f"lack-{module}").touch()

    def setup(self, *arguments):
        env = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}",
               "JITNEY_APT_LISTS": str(self.path / "lists")}
        return subprocess.run([self.path / "tools/setup", *arguments], env=env, text=True,
                              capture_output=True, timeout=60, stdin=subprocess.DEVNULL)

    def apt_calls(self):
        log = self.path / "apt.log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_nothing_missing_installs_nothing(machine):
    done = machine.setup("run")
    assert (done.returncode, done.stdout) == (0, "setup: ready to run\n")
    assert machine.apt_calls() == []


def test_root_installs_what_is_missing_and_no_more(machine):
    machine.lack("jansson", "libzip")
    done = machine.setup("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installing libjansson-dev libzip-dev\n" in done.stdout
    (call,) = machine.apt_calls()
    assert call.endswith("install --no-install-recommends libjansson-dev libzip-dev")


def test_empty_package_lists_are_read_first(machine):
    (machine.path / "lists/debian_Packages").unlink()
    machine.lack("jansson")
    assert machine.setup("run").returncode == 0
    first, second = machine.apt_calls()
    assert first.endswith("update")
    assert " install " in second


def test_a_failed_install_reads_the_lists_and_tries_once_more(machine):
    machine.lack("jansson")
    machine.script("apt-get", f'echo "$@" >>{machine.path}/apt.log\n'
                   f'case "$*" in *install*) [ "$(grep -c install {machine.path}/apt.log)" = 2 ] '
                   f'&& rm {machine.path}/lack-jansson;; esac')
    assert machine.setup("run").returncode == 0
    assert [call.split()[4] for call in machine.apt_calls()] == ["install", "update", "install"]


def test_without_root_it_prints_the_command_to_run(machine):
    machine.script("id", "echo 1000")
    machine.lack("jansson", "cmocka")
    done = machine.setup("run")
    assert done.returncode == EX_UNAVAILABLE
    assert "    apt-get install -y --no-install-recommends libjansson-dev\n" in done.stdout
    assert machine.apt_calls() == []


def test_sudo_without_a_password_is_used(machine):
    machine.script("id", "echo 1000")
    machine.script("sudo", f'shift\n[ "$1" = true ] || echo used >{machine.path}/sudo.log\n"$@"')
    machine.lack("jansson")
    assert machine.setup("run").returncode == 0
    assert (machine.path / "sudo.log").read_text() == "used\n"


def test_a_package_that_does_not_help_is_reported(machine):
    machine.script("apt-get", "exit 0")
    machine.lack("jansson")
    done = machine.setup("run")
    assert done.returncode == EX_UNAVAILABLE
    assert "not found afterwards: libjansson-dev" in done.stdout


def test_a_failing_apt_is_reported_with_its_output(machine):
    machine.script("apt-get", "echo no space left on device; exit 100")
    machine.lack("jansson")
    done = machine.setup("run")
    assert done.returncode == EX_UNAVAILABLE
    assert "no space left on device" in done.stderr


def test_levels_contain_each_other(machine):
    machine.lack("jansson", "cmocka")
    assert machine.setup("--dry-run", "run").stdout == "setup: missing: libjansson-dev\n"
    both = "setup: missing: libjansson-dev libcmocka-dev\n"
    assert machine.setup("--dry-run", "test").stdout == both
    assert machine.setup("--dry-run", "check").stdout.startswith(both.rstrip())
    assert machine.apt_calls() == []


def test_only_the_level_arm_needs_its_compiler_and_emulator(machine):
    ours = {"gcc-aarch64-linux-gnu", "qemu-user"}
    machine.lack("cmocka")
    asked = machine.setup("--dry-run", "arm").stdout.split("missing: ")[1].split()
    assert asked[0] == "libcmocka-dev" and set(asked[1:]) <= ours
    for name in ("aarch64-linux-gnu-gcc", "qemu-aarch64"):
        machine.script(name, "exit 0")
    for level in ("test", "arm"):
        done = machine.setup("--dry-run", level)
        assert done.stdout == "setup: missing: libcmocka-dev\n"


def system_python_has(module):
    try:
        return subprocess.run(["/usr/bin/python3", "-c", f"import {module}"],
                              capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not system_python_has("pip"), reason="/usr/bin/python3 has no pip")
def test_a_broken_python_on_path_is_skipped(machine):
    machine.script("python3", "echo 'pyenv: python3: command not found' >&2; exit 127")
    assert machine.setup("--dry-run", "run").stdout == "setup: missing: nothing\n"


@pytest.mark.parametrize("arguments", [(), ("all",), ("run", "test"), ("--dry-run",)])
def test_wrong_arguments_get_the_usage(machine, arguments):
    done = machine.setup(*arguments)
    assert done.returncode == EX_USAGE
    assert "usage: tools/setup" in done.stderr
