#!/usr/bin/env python3
"""Tests and speed of every CPU table on a machine that has no compiler's libraries and no network.

    python3 bench/device_cpu.py pack BUILD OUT [WHEEL]   here: programs, their libraries, the peer
    python3 bench/device_cpu.py run OUT [flags]          there: needs Python with numpy

`run` passes the op tests and the identity tests, times the ops, makes models of random weights
and lets jitney's tables and llama.cpp (the PyPI package xllamacpp) take turns on each of them;
it prints medians and each one's multiple of llama.cpp. Full logs go to $OUT, or to OUT/logs.
"""

import argparse
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TESTS = ["test_matmul", "test_attention", "test_rows", "test_pass", "test_rides", "test_nan_row",
         "test_golden_logits", "test_identity"]
BENCHES = ["peaks", "ops", "solo"]
TABLES = {"amx": "amx_int8", "avx512": "avx512_vnni", "avx2": "avx2"}  # and the flag of each
SYSTEM = ("libc.so", "libm.so", "ld-linux", "linux-vdso", "libpthread", "libdl", "librt")
PROMPT, ANSWER = 512, 128
TEST_LIMIT_S, RUN_LIMIT_S = 300, 150
REST_S = 1.0  # for the threads of the program before to go to sleep


def libraries(program):
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    found = [line.split("=>")[1].split()[0] for line in listed.splitlines() if "=> /" in line]
    return [pathlib.Path(p) for p in found if not pathlib.Path(p).name.startswith(SYSTEM)]


def pack(args):
    build, out = pathlib.Path(args.build), pathlib.Path(args.out)
    shutil.rmtree(out, ignore_errors=True)
    (out / "lib").mkdir(parents=True)
    for program in [build / "tests" / t for t in TESTS] + [build / "bench" / b for b in BENCHES]:
        for library in libraries(program):
            shutil.copy(library, out / "lib")
        shutil.copy(program, out)
        subprocess.run(["strip", out / program.name], check=True)
    if args.wheel:
        shutil.copy(args.wheel, out)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"{out}: {size / 2**20:.1f} MiB")


def facts():
    """Print the machine; the tables that it runs."""
    wanted = ("Model name", "CPU(s)", "Thread(s) per core", "L1d", "L2", "L3", "NUMA node(s)")
    listed = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        if line.strip().startswith(wanted):
            print(" ".join(line.split()))
    flags = next((line for line in listed.splitlines() if line.startswith("Flags")), "").split()
    tables = [name for name, flag in TABLES.items() if flag in flags]
    print(platform.platform(), "- tables here:", " ".join(tables), flush=True)
    return tables


class Bundle:
    """What `pack` made, and where logs go."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.logs = pathlib.Path(os.environ.get("OUT", self.folder / "logs"))
        self.logs.mkdir(parents=True, exist_ok=True)
        self.work = self.folder / "work"
        self.work.mkdir(exist_ok=True)
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(self.folder / "lib"))

    def program(self, name):
        return str(self.folder / name)

    def unpack_peer(self):
        for wheel in self.folder.glob("xllamacpp*.whl"):
            with zipfile.ZipFile(wheel) as package:
                package.extractall(self.work / "peer")
            return True
        return False


def run_tests(bundle):
    for name in TESTS:
        begun = time.monotonic()
        with open(bundle.logs / "tests.log", "ab") as log:
            said = subprocess.run([bundle.program(name)], env=bundle.environment, cwd=ROOT,
                                  stdout=log, stderr=log, timeout=TEST_LIMIT_S, check=False)
        verdict = "pass" if said.returncode == 0 else f"FAIL ({said.returncode})"
        print(f"{name:22} {verdict:10} {time.monotonic() - begun:6.1f} s", flush=True)


def run_peaks(bundle, threads):
    for count in [1, *threads]:
        said = subprocess.run([bundle.program("peaks"), str(count)], env=bundle.environment,
                              capture_output=True, text=True, timeout=RUN_LIMIT_S, check=True)
        print(" | ".join(" ".join(line.split()) for line in said.stdout.splitlines()), flush=True)


def run_ops(bundle, tables, threads):
    for isa in tables:
        with open(bundle.logs / "ops.log", "ab") as log:
            try:
                subprocess.run([bundle.program("ops"), str(threads), isa], env=bundle.environment,
                               stdout=log, stderr=log, timeout=RUN_LIMIT_S, check=True)
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
                print(f"ops {isa}: {error}", flush=True)


class Runner:
    """A program that loads a model, says "ready" and then measures once for each line."""

    def __init__(self, bundle, name, model, threads, prompt=PROMPT, answer=ANSWER):
        self.name = name
        tail = [str(prompt), str(answer)]
        if name == "llama.cpp":
            command = [sys.executable, __file__, "peer", str(model), str(threads), *tail]
        else:
            command = [bundle.program("solo"), str(model), str(threads), name, *tail]
        environment = dict(bundle.environment, PYTHONPATH=str(bundle.work / "peer"))
        if name == "llama.cpp":
            environment.pop("LD_LIBRARY_PATH")
        self.process = subprocess.Popen(command, env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ready = self.process.stdout.readline().strip()
        self.runs = []

    def measure(self):
        time.sleep(REST_S)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.runs.append([float(n) for n in self.process.stdout.readline().split()])

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=RUN_LIMIT_S)

    def medians(self):
        return [statistics.median(column) for column in zip(*self.runs)]


def compare(bundle, model, names, threads, rounds):
    runners = [Runner(bundle, name, model, threads) for name in names]
    runners = [r for r in runners if r.ready.startswith("ready")]
    for _ in range(rounds):
        for runner in runners:
            runner.measure()
    for runner in runners:
        runner.close()
    result = {r.name: r.medians() for r in runners}
    peer = result.get("llama.cpp")
    size = pathlib.Path(model).stat().st_size
    for name, (prompt, decode) in result.items():
        ratio = (f"{prompt / peer[0]:6.2f}x {decode / peer[1]:6.2f}x" if peer else "")
        print(f"{pathlib.Path(model).stem:18} {threads:3} {name:10} {prompt:8.0f} {decode:8.1f} "
              f"{decode * size / 1e9:7.1f} {ratio}", flush=True)
    with open(bundle.logs / "runs.log", "a", encoding="utf-8") as log:
        for runner in runners:
            log.write(f"{model} {threads} {runner.name} {runner.ready} {runner.runs}\n")


def run(args):
    if not (pathlib.Path(args.out) / "solo").is_file():
        sys.exit(f"device_cpu.py: {args.out} holds no programs; `bench/device_cpu.py pack BUILD "
                 f"{args.out}` makes it")
    bundle = Bundle(args.out)
    tables = facts()
    if not args.skip_tests:
        run_tests(bundle)
    threads = [int(t) for t in args.threads.split(",")]
    run_peaks(bundle, threads)
    if not args.skip_ops:
        run_ops(bundle, tables, threads[-1])
    names = tables + (["llama.cpp"] if bundle.unpack_peer() else [])
    print(f"{'model':18} {'thr':>3} {'engine':10} {'pp tok/s':>8} {'tg tok/s':>8} {'GB/s':>7} "
          f"ratios to llama.cpp", flush=True)
    for spec in args.models.split(","):
        shape, form, head = spec.split(":")
        model = bundle.work / f"{shape}-{form}.gguf"
        subprocess.run([sys.executable, ROOT / "tools" / "make_random_model", "--shape", shape,
                        "--type", form, "--head", head, model], check=True)
        for count in threads:
            compare(bundle, model, names, count, args.rounds)
        model.unlink()


def peer(args):
    """llama.cpp behind the same lines as bench/solo."""
    sys.path.insert(0, str(ROOT / "tools"))
    sys.path.insert(0, str(ROOT / "bench"))
    from goldens import llamacpp  # pylint: disable=import-outside-toplevel
    from peer_solo import theirs  # pylint: disable=import-outside-toplevel
    import numpy as np  # pylint: disable=import-outside-toplevel
    model = llamacpp.Model(args.model, n_ctx=args.prompt + args.answer + 64,
                           threads=args.threads, kv_f32=False)
    rng = np.random.default_rng(1)

    def ids():
        return [int(i) for i in rng.integers(0, model.n_vocab, max(args.prompt, args.answer))]

    theirs(model, ids(), 4)
    print("ready llama.cpp", flush=True)
    for _ in sys.stdin:
        speeds = theirs(model, ids()[:args.prompt], args.answer)
        print(f"{speeds[0]:.2f} {speeds[1]:.3f}", flush=True)


def main():
    """Which of the three parts to play."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("pack")
    part.add_argument("build")
    part.add_argument("out")
    part.add_argument("wheel", nargs="?")
    part.set_defaults(play=pack)
    part = parts.add_parser("run")
    part.add_argument("out")
    part.add_argument("--threads", default="8,16")
    part.add_argument("--rounds", type=int, default=5)
    part.add_argument("--models", default="llama-1B:Q4_0:Q6_K,llama-1B:Q4_1:Q6_K,"
                                          "llama-1B:Q4_K:Q6_K,llama-1B:Q8_0:Q8_0")
    part.add_argument("--skip-tests", action="store_true")
    part.add_argument("--skip-ops", action="store_true")
    part.set_defaults(play=run)
    part = parts.add_parser("peer")
    part.add_argument("model")
    part.add_argument("threads", type=int)
    part.add_argument("prompt", type=int)
    part.add_argument("answer", type=int)
    part.set_defaults(play=peer)
    args = parser.parse_args()
    args.play(args)


if __name__ == "__main__":
    main()
