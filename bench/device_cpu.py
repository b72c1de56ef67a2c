#!/usr/bin/env python3
"""Tests and speed of every CPU table on a machine that has no compiler's libraries and no network.

    python3 bench/device_cpu.py pack BUILD OUT [WHEEL]   here: programs, their libraries, the peer
    python3 bench/device_cpu.py run OUT [flags]          there: needs Python with numpy

`run` passes the op tests and the identity tests, times the ops, makes models of random weights
and lets jitney's tables and llama.cpp (the PyPI package xllamacpp), each with every number of
threads that was asked for, take turns on each of them. It prints medians, least and most, and each
one's multiple of llama.cpp with the number of threads that serves llama.cpp best. It makes as many
rounds as the time allows. Full logs go to $OUT, or to OUT/logs.
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
TESTS = ["test_matmul", "test_attention", "test_rows", "test_pass", "test_stages", "test_generations",
         "test_nan_row", "test_golden_logits", "test_identity"]
BENCHES = ["peaks", "ops", "solo"]
TABLES = {"amx": "amx_int8", "avx512": "avx512_vnni", "avx2": "avx2"}  # and the flag of each
SYSTEM = ("libc.so", "libm.so", "ld-linux", "linux-vdso", "libpthread", "libdl", "librt")
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

    def __init__(self, bundle, name, model, threads, tokens):
        self.name, self.threads = name, threads
        tail = [str(count) for count in tokens]
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

    def column(self, idx):
        return [run[idx] for run in self.runs]

    def prompt(self):
        return statistics.median(self.column(0))

    def decode(self):
        return statistics.median(self.column(1))


def take_turns(runners, rounds, deadline):
    """Round by round, each beginning with another one, as long as the next fits before the end."""
    longest = 0.0
    for i in range(rounds):
        begun = time.monotonic()
        if i > 0 and begun + longest > deadline:
            break
        for k in range(len(runners)):
            runners[(i + k) % len(runners)].measure()
        longest = max(longest, time.monotonic() - begun)


def compare(bundle, model, names, args, deadline):
    tokens = (args.prompt, args.answer)
    runners = [Runner(bundle, name, model, count, tokens)
               for name in names for count in args.counts]
    runners = [r for r in runners if r.ready.startswith("ready")]
    take_turns(runners, args.rounds, deadline)
    for runner in runners:
        runner.close()
    peers = [r for r in runners if r.name == "llama.cpp"]
    best = [max(p.prompt() for p in peers), max(p.decode() for p in peers)] if peers else None
    size = pathlib.Path(model).stat().st_size
    for r in runners:
        prompt, decode = r.prompt(), r.decode()
        ratio = f"{prompt / best[0]:6.2f}x {decode / best[1]:6.2f}x" if best else ""
        print(f"{pathlib.Path(model).stem:18} {r.threads:3} {r.name:10} "
              f"{prompt:6.0f} ({min(r.column(0)):.0f}-{max(r.column(0)):.0f}) "
              f"{decode:7.1f} ({min(r.column(1)):.1f}-{max(r.column(1)):.1f}) "
              f"{decode * size / 1e9:6.1f} {ratio} of {len(r.runs)}", flush=True)
    with open(bundle.logs / "runs.log", "a", encoding="utf-8") as log:
        for r in runners:
            log.write(f"{model} {r.threads} {r.name} {r.ready} {r.runs}\n")


def run(args):
    if not (pathlib.Path(args.out) / "solo").is_file():
        sys.exit(f"device_cpu.py: {args.out} holds no programs; `bench/device_cpu.py pack BUILD "
                 f"{args.out}` makes it")
    begun = time.monotonic()
    bundle = Bundle(args.out)
    tables = [name for name in facts() if name in args.tables.split(",")]
    if not args.skip_tests:
        run_tests(bundle)
    args.counts = [int(t) for t in args.threads.split(",")]
    run_peaks(bundle, args.counts)
    if not args.skip_ops:
        run_ops(bundle, tables, args.counts[-1])
    names = tables + (["llama.cpp"] if bundle.unpack_peer() else [])
    print("model, threads, engine, prompt tok/s (least-most), decode tok/s (least-most), GB/s, "
          "multiples of llama.cpp's best, rounds", flush=True)
    specs = args.models.split(",")
    for i, spec in enumerate(specs):
        shape, form, head = spec.split(":")
        model = bundle.work / f"{shape}-{form}.gguf"
        subprocess.run([sys.executable, ROOT / "tools" / "make_random_model", "--shape", shape,
                        "--type", form, "--head", head, model], check=True)
        now = time.monotonic()
        share = (begun + args.limit - now) / (len(specs) - i)
        compare(bundle, model, names, args, now + share)
        model.unlink()
    print(f"{time.monotonic() - begun:.0f} s", flush=True)


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
    part.add_argument("--threads", default="15,16", help="numbers of threads that take turns")
    part.add_argument("--rounds", type=int, default=9, help="at most")
    part.add_argument("--limit", type=int, default=450, metavar="SECONDS",
                      help="for everything; rounds that would last longer are left out")
    part.add_argument("--prompt", type=int, default=512, metavar="TOKENS")
    part.add_argument("--answer", type=int, default=128, metavar="TOKENS")
    part.add_argument("--tables", default=",".join(TABLES))
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
