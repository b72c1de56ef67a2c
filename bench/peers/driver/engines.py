"""The engines: what each needs, how its offline worker and its server are started."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import models
from .common import PEERS, Skip, say

LOAD_S, WORK_S, STOP_S = 900, 1800, 30
SLOT_TOKENS = 1024
LONG_PROMPTS = (2000, 7500)  # of line l


# --- what each engine needs ---

def environment(options, name):
    """The python of an engine's virtual environment, made if it is not there."""
    folder = options.folder / name
    needs = PEERS / f"requirements-{name}.txt"
    python, stamp = folder / "bin" / "python", folder / "installed"
    if stamp.exists() and stamp.read_text() == needs.read_text():
        return python
    if options.no_install:
        raise Skip(f"build/peers/{name} is not installed")
    say(f"installing {name}; details in {folder}.log")
    with open(f"{folder}.log", "w", encoding="utf-8") as log:
        def call(*command):
            if subprocess.run(list(map(str, command)), stdout=log, stderr=log,
                              check=False).returncode:
                raise Skip(f"cannot be installed: {Path(log.name).name} says why")
        call(sys.executable, "-m", "venv", folder)
        # A line "--no-deps X" of the file is a package whose own wishes the index cannot fulfil.
        lines = needs.read_text().splitlines()
        plain = [line for line in lines if line and not line.startswith(("#", "--no-deps "))]
        alone = [line.removeprefix("--no-deps ") for line in lines
                 if line.startswith("--no-deps ")]
        call(python, "-m", "pip", "install", *plain)
        if alone:
            call(python, "-m", "pip", "install", "--no-deps", *alone)
    stamp.write_text(needs.read_text())
    return python


def made(options, name, python, script):
    """A file or folder made from the model by a script of bench/peers, once."""
    target = options.folder / "models" / name
    if target.exists():
        return target
    say(f"making {name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name("part-" + target.name)
    done = subprocess.run([python, PEERS / script, options.model.gguf, part], check=False,
                          capture_output=True, text=True)
    if done.returncode:
        raise Skip(f"{script} failed: {(done.stderr.strip() or '?').splitlines()[-1][:200]}")
    part.rename(target)
    return target


def family(pid):
    """A process and its children; an engine's memory is that of all."""
    pids = [pid]
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit():
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == pid:
                    pids += family(int(entry.name))
    return pids


def memory_mib(pid, key):
    total = 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{one}/status").read_text().splitlines():
                if line.startswith(key + ":"):
                    total += int(line.split()[1])
    return total / 1024


# --- offline ---

class Worker:
    """A process of bench/peers/worker.py's form, loaded once and asked in turns. It never holds
    the benchmark up: one that does not answer in time is ended."""

    def __init__(self, command, environ=None, limit_s=LOAD_S):
        begun = time.monotonic()
        self.unread = b""
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, **(environ or {})},
            start_new_session=True)
        self.ready = self.answer(limit_s).get("ready", {})
        self.start_s = time.monotonic() - begun

    def answer(self, limit_s):
        end = time.monotonic() + limit_s
        while b"\n" not in self.unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.kill()
                raise Skip(f"no answer after {limit_s} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise Skip(f"the process ended with {self.process.wait(STOP_S)}")
            self.unread += more
        line, self.unread = self.unread.split(b"\n", 1)
        return json.loads(line)

    def ask(self, limit_s=WORK_S, **command):
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as fault:
            raise Skip("the process has ended") from fault
        found = self.answer(limit_s)
        if "skipped" in found:
            raise Skip(found["skipped"])
        return found

    def peak_mib(self):
        return memory_mib(self.process.pid, "VmHWM")

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        self.kill()
        self.process.stdout.close()

    def kill(self):
        """It and whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Engine:
    """What can be asked of every engine; Skip where it has no such thing."""
    can_random = False  # reads the files with random weights

    def __init__(self, options, name):
        self.options, self.name, self.version = options, name, ""
        self.worker, self.is_warm = None, set()

    def command(self):
        """(command, environment) of its offline worker."""
        raise Skip("it has no offline mode")

    def server(self, port, slots):
        """(command, environment, path that answers 200 when it is ready)."""
        raise Skip("it has no server")

    def open(self):
        if self.worker is None:
            self.worker = Worker(*self.command())
            self.version = self.worker.ready.get("version", "")

    def ask(self, **command):
        self.open()
        return self.worker.ask(**command)

    def close(self):
        """End the worker; the next question starts another."""
        worker, self.worker, self.is_warm = self.worker, None, set()
        if worker:
            worker.close()


class Jitney(Engine):
    can_random = True

    def command(self):
        seqs = max(self.options.model.batch[0], 8)
        tokens = 2 * SLOT_TOKENS
        if "l" in (self.options.lines or ""):
            tokens = max(LONG_PROMPTS) + 16
        return [self.options.worker, self.options.model.gguf, self.options.threads,
                self.options.isa, seqs, tokens], {}

    def ask(self, **command):
        return self.perplexity() if command["do"] == "perplexity" else super().ask(**command)

    def perplexity(self):
        found = {kind: self.perplexity_with(kind) for kind in ("f16", "int8")}
        return {"perplexity": found["f16"], "perplexity_int8": found["int8"]}

    def perplexity_with(self, kv_type):
        done = subprocess.run(
            [self.options.jitney, "perplexity", "-m", self.options.model.gguf, "-f",
             self.options.text, "--chunks", str(self.options.windows), "--threads",
             str(self.options.threads), "--isa", self.options.isa, "--kv-type", kv_type, "--json"],
            text=True, capture_output=True, check=False, timeout=WORK_S)
        if done.returncode:
            raise Skip(done.stderr.strip()[-300:])
        return json.loads(done.stdout)["perplexity"]

    def server(self, port, slots, cache=None):
        # Packed weights are kept in a folder of the benchmark's own, so that what users have
        # there neither helps nor suffers.
        environ = {"JITNEY_CACHE": str(cache or self.options.folder / "cache")}
        return [self.options.jitney, "serve", self.options.model.gguf, "--port", port, "--isa",
                self.options.isa, "--set", f"threads={self.options.threads}", "--set",
                f"max_seqs={slots}", "--ctx", 8192 if slots > 1 else SLOT_TOKENS], environ, "/readyz"


class LlamaCpp(Engine):
    """The file as it is, or its 4-bit matrices as Q4_0."""

    def __init__(self, options, name, is_q4_0):
        super().__init__(options, name)
        self.is_q4_0, self.can_random = is_q4_0, not is_q4_0

    def model(self):
        return file_of(self.options, self.is_q4_0)

    def command(self):
        return [environment(self.options, "xllamacpp"), PEERS / "engine_llamacpp.py", self.model(),
                self.options.threads], {}

    def server(self, port, slots):
        return [environment(self.options, "xllamacpp"), PEERS / "serve_llamacpp.py", self.model(),
                port, self.options.threads, slots, SLOT_TOKENS], {}, "/health"


def file_of(options, is_q4_0):
    if not is_q4_0:
        return options.model.gguf
    name = f"{options.model.name}-q4_0.gguf".replace("/", "_")
    return made(options, name, environment(options, "xllamacpp"), "requantize.py")


class OpenVino(Engine):
    """The file, or Q4_0, which it reads more exactly than Q4_1 (docs/benchmarking.md)."""

    def __init__(self, options, name, is_q4_0):
        super().__init__(options, name)
        self.is_q4_0, self.can_random = is_q4_0, not is_q4_0

    def command(self):
        return [environment(self.options, "openvino"), PEERS / "engine_openvino.py",
                file_of(self.options, self.is_q4_0), self.options.threads], {}


class FolderEngine(Engine):
    def folder(self):
        name = f"{self.options.model.name}-float32".replace("/", "_")
        return made(self.options, name, environment(self.options, "torch"), "to_folder.py")


class Transformers(FolderEngine):
    def command(self):
        return [environment(self.options, "torch"), PEERS / "engine_transformers.py",
                self.folder(), self.options.threads], {}


class Vllm(FolderEngine):
    def environ(self):
        # It would keep one core for itself.
        return {"VLLM_CPU_OMP_THREADS_BIND": f"0-{self.options.threads - 1}",
                "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_LOGGING_LEVEL": "ERROR",
                "HF_HUB_OFFLINE": "1"}

    def command(self):
        return [environment(self.options, "vllm"), PEERS / "engine_vllm.py", self.folder(),
                self.options.threads], self.environ()

    def server(self, port, slots):
        return [environment(self.options, "vllm"), "-m", "vllm.entrypoints.openai.api_server",
                "--model", self.folder(), "--dtype", "float32", "--host", "127.0.0.1",
                "--port", port, "--max-model-len", 2 * SLOT_TOKENS, "--max-num-seqs",
                slots], self.environ(), "/health"


ENGINES = {
    "jitney": lambda o: Jitney(o, "jitney"),
    "llamacpp": lambda o: LlamaCpp(o, "llamacpp", False),
    "llamacpp-q4_0": lambda o: LlamaCpp(o, "llamacpp-q4_0", True),
    "openvino": lambda o: OpenVino(o, "openvino", False),
    "openvino-q4_0": lambda o: OpenVino(o, "openvino-q4_0", True),
    "vllm": lambda o: Vllm(o, "vllm"),
    "transformers": lambda o: Transformers(o, "transformers"),
}


def chosen(options):
    """The engines that were asked for and can read the model."""
    engines = [ENGINES[name](options) for name in options.only]
    return [e for e in engines if e.can_random or not options.model.shape]


def prepare(options, name):
    """The model `name` with its file, made or found."""
    if name in models.RANDOM:
        model = models.RANDOM[name]
        python = environment(options, "xllamacpp")  # which has numpy
        model.gguf = str(models.make_random(model, options.folder, python))
        return model
    return models.Model(Path(name).stem if name.endswith(".gguf") else name,
                        gguf=models.find_gguf(options.jitney, name))
