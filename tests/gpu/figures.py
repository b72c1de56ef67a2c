#!/usr/bin/env python3
"""Measures jitney on a GPU through the program itself, and writes the figures as JSON.

usage: figures.py --out FILE [--budget SECONDS] [--device cuda:0] [--only PART,...] [--tiny]

Runs beside what tools/gpu_check has packed (`DIR/run --json FILE` calls it). Models with random
weights are made on the spot, by several processes while the checks run. A part that finds too
little time left is skipped and says so; a part that fails says why, and the others go on. Each
figure is an object by weight type, as docs/gpu.md describes.

--tiny measures nothing of use: small models and few requests, to try the script itself, also with
--device cpu.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BEGAN = time.time()


class Skipped(Exception):
    """There is no time left for a part."""


class Bench:
    """What the parts share: arguments, models under construction, figures found so far."""

    def __init__(self, args):
        self.args = args
        self.work = args.work
        self.figures = {}
        self.notes = []
        self.makers = {}
        os.makedirs(self.work, exist_ok=True)

    def left(self):
        return self.args.budget - (time.time() - BEGAN)

    def keep(self, key, kind, value):
        """Keep a figure and write all of them: what is known survives a later failure."""
        self.figures.setdefault(key, {})[kind] = value
        print(f"  {key} {kind}: {value}", flush=True)
        with open(self.args.out + ".part", "w", encoding="utf-8") as file:
            json.dump({**self.figures, "notes": self.notes}, file, indent=1)
        os.replace(self.args.out + ".part", self.args.out)

    def note(self, text):
        self.notes.append(text)
        print(f"  {text}", flush=True)

    # ---- programs ----

    def environment(self):
        env = dict(os.environ)
        env["LD_LIBRARY_PATH"] = os.path.join(HERE, "lib")
        env["JITNEY_CACHE"] = os.path.join(self.work, "cache")
        return env

    def run(self, *command, limit=120):
        """Runs a program of the pack; its standard output."""
        limit = min(limit, self.left())
        if limit < 3:
            raise Skipped(f"{limit:.0f} s are left")
        path = os.path.join(HERE, "bin", command[0])
        done = subprocess.run([path, *map(str, command[1:])], env=self.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit,
                              check=False)
        if done.returncode != 0:
            tail = (done.stderr.decode(errors="replace") or done.stdout.decode(errors="replace"))
            raise RuntimeError(f"{' '.join(map(str, command[:3]))}: exit status "
                               f"{done.returncode}: {tail.strip()[-400:]}")
        return done.stdout.decode()

    # ---- models ----

    def path(self, shape, kind):
        return os.path.join(self.work, f"{shape}-{kind}.gguf")

    def make(self, shape, kind):
        """Begins to write a model in a process of its own."""
        path = self.path(shape, kind)
        if os.path.exists(path) or (shape, kind) in self.makers:
            return
        self.makers[shape, kind] = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "make_random_model"), "--shape", shape, "--type",
             kind, "--context", "131072", path + ".part"], stderr=subprocess.PIPE)

    def model(self, shape, kind):
        """The path of a model, when it is complete."""
        path = self.path(shape, kind)
        self.make(shape, kind)
        maker = self.makers.get((shape, kind))
        if maker and not os.path.exists(path):
            if maker.wait(timeout=max(1, self.left())) != 0:
                raise RuntimeError(maker.stderr.read().decode(errors="replace")[-400:])
            os.replace(path + ".part", path)
        return path

    # ---- a list of requests through the engine ----

    def replay(self, model, requests, knobs, ctx, limit=120, weights="auto", options=""):
        """`jitney replay`: its summary, its answers by id, its steps. `options` of the device."""
        base = os.path.join(self.work, "replay")
        with open(base + ".requests", "w", encoding="utf-8") as file:
            for i, request in enumerate(requests):
                file.write(json.dumps({"id": f"r{i}", "ignore_eos": True, **request}) + "\n")
        sets = [word for name, value in knobs.items() for word in ("--set", f"{name}={value}")]
        text = self.run("jitney", "replay", "-m", model, "--requests", base + ".requests",
                        "--device", self.args.device + options, "--json",
                        "--out", base + ".answers",
                        "--trace", base + ".steps", "-c", ctx, "--weights", weights, *sets,
                        limit=limit)
        with open(base + ".answers", encoding="utf-8") as file:
            answers = {a["id"]: a for a in map(json.loads, file)}
        with open(base + ".steps", encoding="utf-8") as file:
            steps = json.load(file)
        bad = [a for a in answers.values() if a["finish_reason"] not in ("length", "cancelled")]
        if bad:
            raise RuntimeError(f"{len(bad)} requests ended with {bad[0]['finish_reason']}: "
                               f"{bad[0].get('error', '')}")
        return json.loads(text), answers, steps


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


# ---- parts ----

PHASE = 64  # decoding steps of each number of sequences


def decode_requests(tiny):
    """Requests of which 256, then 128, 32, 8 and 1 decode, each phase near 512 tokens of context.

    Prompts are computed before or beside the first decoding steps, so the first group has answers
    that last until all have begun."""
    groups = [(128, 128), (96, 64), (24, 64), (7, 64), (1, 64)]
    if tiny:
        groups = [(4, 8), (3, 4), (1, 4)]
    begin = groups[0][1]
    requests, tokens = [], begin
    for i, (count, phase) in enumerate(groups):
        if i > 0:
            tokens += phase
        middle = tokens - phase // 2  # of the phase at whose end the group ends
        prompt = max(8, (32 if tiny else 512) - middle)
        requests += [{"prompt_len": prompt, "max_tokens": tokens}] * count
    return requests


def step_rate(steps, rows):
    """Tokens a second of steps in which exactly so many sequences decode, and their host work."""
    chosen = [s for s in steps
              if s["args"]["rows"] == rows and s["args"]["tokens"] == rows]
    chosen = chosen[2:-2] if len(chosen) > 8 else chosen
    if not chosen:
        return None
    times = [s["dur"] for s in chosen]
    mean = sum(times) / len(times)
    args = [s["args"] for s in chosen]
    sched = sum(a["sched_us"] for a in args) / len(args)
    submit = sum(a.get("submit_us", 0) for a in args) / len(args)
    return {"tokens_per_s": round(rows * 1e6 / median(times), 1), "step_us": round(mean, 1),
            "median_us": median(times), "steps": len(times), "sched_us": round(sched, 1),
            "submit_us": round(submit, 1)}


def weights_of(bench, is_fp8):
    """What --weights says, which --tiny leaves alone: it may run on a CPU."""
    return "fp8" if is_fp8 and not bench.args.tiny else "auto"


def part_decode(bench, kinds=(("llama-8B", "BF16"),), kv_type="f16", is_fp8=False):
    """Decoding steps through the engine, 512 tokens of context."""
    for shape, kind in kinds:
        knobs = {"max_seqs": 256, "max_step_tokens": 8192, "prefix_cache": "off",
                 "waiting_served_ratio": 0, "kv_type": kv_type}
        of = "fp8" if is_fp8 else kind.lower()
        name = of if shape == "llama-8B" else f"{shape}-{of}"
        name += "" if kv_type == "f16" else f"-kv-{kv_type}"
        if bench.args.tiny:
            shape, kind = "llama-135M", "BF16"
        _, _, steps = bench.replay(bench.model(shape, kind), decode_requests(bench.args.tiny),
                                   knobs, 1024, weights=weights_of(bench, is_fp8))
        for rows in (8, 4, 1) if bench.args.tiny else (256, 128, 32, 8, 1):
            rate = step_rate(steps, rows)
            if not rate:
                bench.note(f"decode {name}: no step of {rows} sequences")
                continue
            bench.keep(f"decode_b{rows}", name, rate["tokens_per_s"])
            bench.keep("steps", f"{name}_b{rows}", rate)


def part_prompt(bench, is_fp8=False):
    """Prompts of 2k and 32k tokens, one at a time: tokens a second until the first token."""
    sizes = ((2048, 5, 400), (32768, 3, 4000))
    shape, kind, name = "llama-8B", "BF16", "fp8" if is_fp8 else "bf16"
    if bench.args.tiny:
        sizes, shape, kind = ((64, 3, 500), (256, 2, 1000)), "llama-135M", "BF16"
    requests, at = [], 0
    for tokens, count, gap in sizes:
        for _ in range(count):
            requests.append({"prompt_len": tokens, "max_tokens": 1, "at_ms": at})
            at += gap
    knobs = {"max_seqs": 4, "max_step_tokens": 8192, "prefix_cache": "off"}
    _, answers, _ = bench.replay(bench.model(shape, kind), requests, knobs, sizes[1][0] + 1024,
                                 weights=weights_of(bench, is_fp8))
    first = 0
    for key, (tokens, count, _) in zip(("prompt_2k", "prompt_32k"), sizes):
        times = [answers[f"r{first + i}"]["ttft_ms"] for i in range(1, count)]
        first += count
        bench.keep(key, name, round(tokens * 1000 / median(times), 1))


def offline(bench, key, prompt, answer, count, seqs, is_fp8=False):
    """With fp8 weights the cache has fp8, too."""
    shape, kind, name = "llama-8B", "BF16", "fp8" if is_fp8 else "bf16"
    if bench.args.tiny:
        shape, kind, count, seqs = "llama-135M", "BF16", 4, 4
        prompt, answer = prompt // 16, answer // 16
    knobs = {"max_seqs": seqs, "max_step_tokens": 8192 if prompt > 500 else 4096,
             "prefix_cache": "off", "kv_type": "fp8" if is_fp8 else "f16"}
    summary, _, steps = bench.replay(bench.model(shape, kind),
                                     [{"prompt_len": prompt, "max_tokens": answer}] * count, knobs,
                                     prompt + answer + 16, limit=150,
                                     weights=weights_of(bench, is_fp8))
    bench.keep(key, name, round(summary["output_tokens_per_s"], 1))
    full = step_rate(steps, seqs)
    bench.keep("offline_details", f"{key}_{name}", {
        "requests": count, "max_seqs": seqs, "elapsed_s": summary["elapsed_s"],
        "steps": summary["steps"], "preemptions": summary["preemptions"], "full_steps": full})


def part_offline_128_128(bench):
    offline(bench, "offline_128_128", 128, 128, 2048, 1024)


def part_offline_1000_1000(bench):
    offline(bench, "offline_1000_1000", 1000, 1000, 384, 384)


def part_offline_128_2048(bench):
    offline(bench, "offline_128_2048", 128, 2048, 384, 384)


def part_decode_fp8(bench):
    part_decode(bench, is_fp8=True)


def part_decode_fp8_kv_fp8(bench):
    part_decode(bench, kv_type="fp8", is_fp8=True)


def part_prompt_fp8(bench):
    part_prompt(bench, is_fp8=True)


def part_offline_fp8(bench):
    """Three lists of requests with fp8 weights and an fp8 cache."""
    offline(bench, "offline_128_128", 128, 128, 4096, 1024, is_fp8=True)
    offline(bench, "offline_1000_1000", 1000, 1000, 768, 768, is_fp8=True)
    offline(bench, "offline_128_2048", 128, 2048, 768, 768, is_fp8=True)


# What `offline_ways` compares: sequences at once, tokens of a step, options of the device. The first
# is how offline_128_128 was measured so far.
OFFLINE_WAYS = [(1024, 4096, ""), (1024, 4096, ",timed=early"), (1024, 8192, ",timed=early"),
                (2048, 8192, ",timed=early"),
                (1024, 4096, ",timed=early,dense=on,e4m3=card")]


def part_offline_ways(bench):
    """2,048 requests of 128 + 128 tokens, fp8 weights and cache: which settings are the fastest."""
    tiny = bench.args.tiny
    model = bench.model("llama-135M" if tiny else "llama-8B", "BF16")
    prompt, answer, count = (8, 8, 8) if tiny else (128, 128, 2048)
    for seqs, tokens, options in OFFLINE_WAYS:
        if not bench.args.device.startswith("cuda"):
            options = ""
        seqs, tokens = (seqs // 256, tokens // 64) if tiny else (seqs, tokens)
        knobs = {"max_seqs": seqs, "max_step_tokens": tokens, "prefix_cache": "off",
                 "kv_type": "fp8"}
        summary, _, steps = bench.replay(
            model, [{"prompt_len": prompt, "max_tokens": answer}] * count, knobs,
            prompt + answer + 16, limit=60, weights=weights_of(bench, True), options=options)
        bench.keep("offline_ways", f"{seqs} sequences, {tokens} tokens{options}", {
            "output_tokens_per_s": round(summary["output_tokens_per_s"], 1),
            "steps": summary["steps"], "full_steps": step_rate(steps, seqs)})


def profile_steps(bench, key, kind, batch, context, prompt, is_fp8):
    """`jitney profile` of the 8B shape: a step of one sequence, of a batch and of a prompt; 0: not."""
    if bench.args.tiny:
        kind, batch, context, prompt = "BF16", batch // 128, context // 16, prompt // 32
    model = bench.model("llama-135M" if bench.args.tiny else "llama-8B", kind)
    text = bench.run("jitney", "profile", "-m", model, "--device", bench.args.device, "--json",
                     "--weights", weights_of(bench, is_fp8), "--kv-type",
                     "fp8" if is_fp8 else "f16", "--batch", batch, "--ctx-fill", context,
                     "--prompt", prompt)
    for step in json.loads(text)["steps"]:
        bench.keep(key, f"{step['sequences']}x{step['rows']}, context {context}", {
            "step_us": step["step_us"], "tokens_per_second": step["tokens_per_second"],
            "parts": {p["op"]: round(p["us"], 1) for p in step["parts"]}})


def part_profile_fp8(bench):
    """Where the time of fp8 steps goes: 1, 256 and 1,024 sequences, a prompt of 2,048."""
    profile_steps(bench, "profile_fp8", "BF16", 256, 512, 0, True)
    profile_steps(bench, "profile_fp8", "BF16", 1024, 192, 2048, True)


def part_profile_q8_0(bench):
    """Where the time of a step of one sequence goes, Q8_0."""
    profile_steps(bench, "profile_q8_0", "Q8_0", 0, 512, 0, False)


def part_profile_q4_0(bench):
    """The same of Q4_0, and of 256 sequences."""
    profile_steps(bench, "profile_q4_0", "Q4_0", 256, 512, 0, False)


def part_options(bench):
    """Options that are off, in turns with the usual device: which of them make steps faster."""
    check_suites(bench, ["options"], 150)


def part_ready_early(bench):
    """Start to ready with products timed at the start, 8B: the first start, and those after it."""
    model, tiny = big_model(bench), bench.args.tiny
    flags = ["--set", f"max_seqs={4 if tiny else 256}", "--set",
             f"max_step_tokens={512 if tiny else 2048}", "-c", "1024" if tiny else "4096"]
    early = ",timed=early" if bench.args.device.startswith("cuda") else ""
    shutil.rmtree(os.path.join(bench.work, "cache", "images"), ignore_errors=True)
    starts = []
    for _ in range(3):
        with Server(bench, model, *flags, options=early) as server:
            starts.append(round(server.ready_s, 3))
        time.sleep(1)  # the driver still frees the memory of a process that has ended
    bench.keep("ready_s", "early_starts", starts)


def part_fp8(bench):
    """fp8 products against the CPU and against cuBLASLt, and rows of whole steps."""
    check_suites(bench, ["fp8"], 60)
    check_suites(bench, ["steps"], 60, "--shape", "fp8")


def part_trace_256(bench):
    """256 requests with prompts and answers of 100 to 1,024 tokens, uniform; 0.6B shape.

    `first`: the card's algorithms are timed while requests wait, `bf16`: when the model is loaded,
    as a second start finds them."""
    rng = random.Random(0)
    count, low, high = (6, 8, 32) if bench.args.tiny else (256, 100, 1024)
    requests = [{"prompt_len": rng.randint(low, high), "max_tokens": rng.randint(low, high)}
                for _ in range(count)]
    shape, kind = ("llama-135M", "BF16") if bench.args.tiny else ("qwen3-0.6B", "BF16")
    knobs = {"max_seqs": 256, "max_step_tokens": 8192, "prefix_cache": "off"}
    early = ",timed=early" if bench.args.device.startswith("cuda") else ""
    for name, options in (("first", ""), ("bf16", early)):
        summary, _, _ = bench.replay(bench.model(shape, kind), requests, knobs, 2 * high + 16,
                                     options=options)
        bench.keep("trace_256", name, round(summary["output_tokens_per_s"], 1))


def lognormal_requests(count):
    rng = random.Random(1)
    draw = lambda: int(min(1024, max(4, rng.lognormvariate(4.9, 0.9))))
    return [(draw(), draw()) for _ in range(count)]


def part_hf_ratio(bench):
    """256 requests of lognormal lengths, against transformers with static batches of 32."""
    lengths = lognormal_requests(8 if bench.args.tiny else 256)
    if bench.args.tiny:
        lengths = [(p // 16 + 1, a // 16 + 1) for p, a in lengths]
    shape, kind = ("llama-135M", "BF16") if bench.args.tiny else ("llama-8B", "BF16")
    knobs = {"max_seqs": 256, "max_step_tokens": 8192, "prefix_cache": "off"}
    summary, _, _ = bench.replay(bench.model(shape, kind),
                                 [{"prompt_len": p, "max_tokens": a} for p, a in lengths], knobs,
                                 2064)
    bench.keep("hf_ratio", "jitney_tokens_per_s", round(summary["output_tokens_per_s"], 1))
    limit = min(100, bench.left() - 5)
    if limit < 20:
        raise Skipped(f"{limit:.0f} s are left for transformers")
    done = subprocess.run([sys.executable, os.path.join(HERE, "transformers_compare.py"), "speed",
                           "--lengths", json.dumps(lengths), "--limit", str(int(limit - 15))]
                          + (["--tiny"] if bench.args.tiny else []),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace")[-600:])
    theirs = json.loads(done.stdout.decode().splitlines()[-1])
    bench.keep("hf_ratio", "transformers", theirs)
    bench.keep("hf_ratio", "bf16",
               round(summary["output_tokens_per_s"] / theirs["tokens_per_s"], 2))


def part_logits(bench):
    """Logits of several architectures against transformers."""
    limit = min(170, bench.left() - 3)
    if limit < 20:
        raise Skipped(f"{limit:.0f} s are left")
    out = os.path.join(bench.work, "logits.json")
    command = [sys.executable, os.path.join(HERE, "transformers_compare.py"), "logits", "--device",
               bench.args.device, "--work", os.path.join(bench.work, "hf"), "--out", out,
               "--limit", str(int(limit - 3))] + (["--tiny"] if bench.args.tiny else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit,
                          check=False)
    print(done.stdout.decode(errors="replace")[-3000:], flush=True)
    with open(out, encoding="utf-8") as file:
        for name, value in json.load(file).items():
            bench.keep("logits", name, value)
    if done.returncode != 0:
        raise RuntimeError(f"transformers_compare.py: exit status {done.returncode}")


# ---- a server ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
        return reply.read().decode()


class Server:
    """`jitney serve`, ended when the block ends. `options` of the device."""

    def __init__(self, bench, model, *flags, options=""):
        self.bench, self.port = bench, free_port()
        self.log = open(os.path.join(bench.work, "server.log"), "wb")  # pylint: disable=consider-using-with
        self.began = time.time()
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            [os.path.join(HERE, "bin", "jitney"), "serve", "-m", model, "--port", str(self.port),
             "--device", bench.args.device + options, *flags], env=bench.environment(), stdout=self.log,
            stderr=self.log)

    def __enter__(self):
        while True:
            try:
                get(self.port, "/readyz")
                break
            except OSError:
                pass
            if self.process.poll() is not None or time.time() - self.began > 120:
                self.stop()
                raise RuntimeError("the server is not ready: " + self.tail())
            time.sleep(0.01)
        self.ready_s = time.time() - self.began
        return self

    def tail(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()

    def __exit__(self, *_):
        self.stop()

    def metric(self, name):
        text = get(self.port, "/metrics")
        return sum(float(v) for v in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))


DRIVER_CODE = """
import ctypes, json, time
def timed(call):
    begin = time.time()
    assert call() == 0
    return round(time.time() - begin, 3)
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
found = {"driver_init": timed(lambda: cuda.cuInit(0) or
                              cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))}
cuda.cuCtxSetCurrent(context)
size, pinned = ctypes.c_size_t(100 << 30), ctypes.c_size_t(512 << 20)
found["driver_alloc_100g"] = timed(lambda: cuda.cuMemAlloc_v2(ctypes.byref(memory), size))
found["driver_clear_100g"] = timed(lambda: cuda.cuMemsetD8_v2(memory, 0, size) or
                                   cuda.cuCtxSynchronize())
found["driver_pin_512m"] = timed(lambda: cuda.cuMemHostAlloc(ctypes.byref(memory), pinned, 0))
print(json.dumps(found))
"""


def driver_times():
    """How long the driver takes by itself, in a process that does nothing else."""
    done = subprocess.run([sys.executable, "-c", DRIVER_CODE], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, timeout=60, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {"driver_init": 0.0}


def big_model(bench):
    return bench.model(*(("llama-135M", "BF16") if bench.args.tiny else ("llama-8B", "BF16")))


def part_http(bench):
    """Start to ready, then 128 clients with 128 tokens of prompt and of answer."""
    model, tiny = big_model(bench), bench.args.tiny
    flags = ["--set", f"max_seqs={4 if tiny else 256}", "--set",
             f"max_step_tokens={512 if tiny else 2048}", "-c", "1024" if tiny else "4096"]
    driver = driver_times()
    for name, seconds in driver.items():
        bench.keep("ready_s", name, seconds)
    starts = []
    for _ in range(3):
        with Server(bench, model, *flags) as server:
            starts.append(round(server.ready_s, 3))
        time.sleep(1)  # the driver still frees the memory of a process that has ended
    bench.keep("ready_s", "starts", starts)
    bench.keep("ready_s", "bf16", round(median(starts[1:]) - driver["driver_init"], 3))
    with Server(bench, model, *flags) as server:
        lines = [line for line in server.tail().splitlines() if "kv_mib" in line]
        bench.note(f"server: {lines[-1][:300] if lines else 'no line with kv_mib'}")
        clients, tokens = (2, 16) if tiny else (128, 128)
        text = bench.run("jitney", "bench", f"http://127.0.0.1:{server.port}", "--clients", clients,
                         "--requests", clients * 6, "--prompt-tokens", tokens, "--output-tokens",
                         tokens, "--json")
        run = json.loads(text)["runs"][0]
        bench.keep("http_128", "bf16", round(run["output_throughput"], 1))
        bench.keep("http_128", "ttft_ms", {k: round(v, 1) for k, v in run.items()
                                           if "ttft" in k and isinstance(v, (int, float))})
        bench.keep("http_128", "ttft_ms_after_first", first_token_ms(
            server.port, os.path.basename(model)[:-len(".gguf")], clients, 4, tokens))
        bench.keep("http_128", "tpot_ms", {k: round(v, 2) for k, v in run.items()
                                           if "tpot" in k and isinstance(v, (int, float))})


def first_token_ms(port, model, clients, requests, tokens):
    """Times to the first token of clients that send one request after another, without each
    client's first: those arrive all at once."""
    times, failures = [], []

    def client(seed):
        rng = random.Random(seed)
        for i in range(requests):
            body = {"prompt": [rng.randrange(256) for _ in range(tokens)], "max_tokens": tokens,
                    "stream": True, "ignore_eos": True, "model": model}
            began, first = time.time(), None
            try:
                for _ in events_of(port, body):
                    first = first or time.time()
            except OSError as error:
                failures.append(str(error))
            if first and i > 0:
                times.append(1000 * (first - began))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures or not times:
        raise RuntimeError(f"{len(failures)} requests failed: {failures[:1]}")
    ordered = sorted(times)
    return {"p50": round(ordered[len(ordered) // 2], 1),
            "p99": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 1),
            "requests": len(ordered)}


def events_of(port, body):
    """Pieces of a streamed answer, as they arrive; the head and the first event come first."""
    data = json.dumps(body).encode()
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"
            f"\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(head + data)
        seen = b""
        while b"data: " not in seen:
            piece = s.recv(65536)
            if not piece:
                raise OSError(f"no event came: {seen[-200:]!r}")
            seen += piece
        yield seen
        while piece := s.recv(65536):
            yield piece


def gpu_memory_mib():
    """Memory in use on the first card; 0 if that cannot be told."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.check_output(command, stderr=subprocess.DEVNULL).split()[0])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return 0


def one_request(port, rng, failures):
    """A streamed answer; three in ten clients disconnect early."""
    body = {"prompt": [rng.randrange(256) for _ in range(rng.randint(4, 300))],
            "max_tokens": rng.randint(4, 120), "stream": True, "ignore_eos": True,
            "model": "leak"}
    cancels = rng.random() < 0.3
    stop_after = rng.randint(1, 3000)
    data = b""
    try:
        with contextlib.closing(events_of(port, body)) as events:
            for piece in events:
                data += piece
                if cancels and len(data) > stop_after:
                    break
        if not cancels and b"[DONE]" not in data:
            failures.append(data[-300:].decode(errors="replace"))
    except OSError as error:
        failures.append(str(error))


def part_leak(bench):
    """1,000 requests with cancels, preemption and swap; blocks and device memory come back."""
    tiny = bench.args.tiny
    model = bench.model(*(("llama-135M", "BF16") if tiny else ("qwen3-0.6B", "BF16")))
    count, clients = (20, 4) if tiny else (1000, 48)
    flags = ["--served-model-name", "leak", "-c", "512", "--set", "max_seqs=32", "--set",
             "kv_blocks=200", "--set", "spill_blocks=400", "--set", "preempt=swap"]
    with Server(bench, model, *flags) as server:
        failures = []

        def client(seed, requests):
            rng = random.Random(seed)
            for _ in range(requests):
                one_request(server.port, rng, failures)

        def send_all(requests, seed):
            each = -(-requests // clients)
            threads = [threading.Thread(target=client, args=(seed + i, each))
                       for i in range(clients)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()

        send_all(clients * 2, 1)  # graphs and kernels are loaded
        time.sleep(0.5)
        before = gpu_memory_mib()
        began = time.time()
        send_all(count, 1000)
        end = time.time() + 10
        while server.metric("jitney:kv_blocks_held") > 0 and time.time() < end:
            time.sleep(0.1)
        bench.keep("leak", "requests", count)
        bench.keep("leak", "seconds", round(time.time() - began, 1))
        bench.keep("leak", "failed", len(failures))
        bench.keep("leak", "blocks_held_after", server.metric("jitney:kv_blocks_held"))
        bench.keep("leak", "blocks_spilled_after", server.metric("jitney:kv_blocks_spilled"))
        bench.keep("leak", "preemptions", server.metric("vllm:num_preemptions_total"))
        bench.keep("leak", "device_mib_before", before)
        bench.keep("leak", "device_mib_after", gpu_memory_mib())
        send_all(count, 5000)
        time.sleep(0.5)
        bench.keep("leak", "device_mib_after_twice", gpu_memory_mib())
        if failures:
            bench.note(f"leak: {failures[0]}")


def part_full(bench):
    """Too little memory is told with numbers; the server says so and does not crash."""
    server = Server(bench, big_model(bench), "--gpu-memory", "0.02", "-c", "8192")
    end = time.time() + 25
    while time.time() < end and "--gpu-memory" not in server.tail():
        time.sleep(0.2)
    server.stop()
    lines = [line for line in server.tail().splitlines() if "--gpu-memory" in line]
    bench.keep("messages", "gpu_memory", lines[0][:600] if lines else "no message")
    bench.keep("messages", "exit_status", server.process.returncode)


def part_profile(bench):
    """`jitney profile`: ceilings, and where the time of a step goes."""
    model = big_model(bench)
    text = bench.run("jitney", "profile", "-m", model, "--device", bench.args.device, "--json",
                     "--batch", 4 if bench.args.tiny else 256, "--prompt",
                     64 if bench.args.tiny else 2048, "--ctx-fill",
                     32 if bench.args.tiny else 512)
    report = json.loads(text)
    for name, value in report["ceilings"].items():
        bench.keep("ceilings", name, value)
    for step in report["steps"]:
        bench.keep("profile", step["kind"], {
            "sequences": step["sequences"], "rows": step["rows"], "step_us": step["step_us"],
            "tokens_per_second": step["tokens_per_second"],
            "parts": {p["op"]: round(p["us"], 1) for p in step["parts"]}})


def check_suites(bench, suites, limit, *flags):
    """Suites of gpu_check: their figures, and how many checks passed."""
    out = os.path.join(bench.work, "check.json")
    if os.path.exists(out):
        os.remove(out)
    try:
        text = bench.run("gpu_check", *suites, "--device", bench.args.device, "--models",
                         os.path.join(HERE, "models"), "--json", out, *flags, limit=limit)
        print(text[-2500:], flush=True)
    finally:
        if os.path.exists(out):
            with open(out, encoding="utf-8") as file:
                found = json.load(file)
            checks = found.pop("checks")
            found.pop("device")
            bench.keep("checks", "+".join(suites), checks)
            for key, values in found.items():
                for kind, value in values.items():
                    bench.keep(f"bare_{key}" if key.startswith(("decode", "prompt")) else key, kind,
                               value)


def part_checks(bench):
    check_suites(bench, ["rows", "products", "attention", "sampling", "models"], 150)


def part_steps(bench):
    check_suites(bench, ["steps"], 60)


def part_batches(bench):
    check_suites(bench, ["batches"], 120)


def part_attention(bench):
    check_suites(bench, ["attention_speed"], 40)


def part_bare(bench):
    """Steps without an engine: the graph's own time."""
    check_suites(bench, ["compare"], 60)


def part_promise(bench):
    """What the fixed order of sums costs: the same steps with cuBLASLt's fastest algorithms."""
    kept = {k: dict(v) for k, v in bench.figures.items() if k.startswith("bare_")}
    out = os.path.join(bench.work, "check.json")
    bench.run("gpu_check", "compare", "--device", bench.args.device, "--variants", ",sums=any",
              "--json", out, limit=40)
    with open(out, encoding="utf-8") as file:
        free = json.load(file)
    for key in ("decode_b32", "decode_b128", "decode_b256", "prompt_2k"):
        fixed = kept.get(f"bare_{key}", {}).get("bf16")
        if fixed and free.get(key, {}).get("bf16"):
            bench.keep("promise", key, {"fixed_order": fixed, "any_order": free[key]["bf16"],
                                        "cost_percent":
                                            round(100 * (free[key]["bf16"] / fixed - 1), 2)})


def part_decode_q8_0(bench):
    part_decode(bench, (("llama-8B", "Q8_0"),))


def part_decode_q4_0(bench):
    part_decode(bench, (("llama-8B", "Q4_0"),))


def part_decode_q4_k(bench):
    part_decode(bench, (("llama-8B", "Q4_K"),))


def part_decode_kv_fp8(bench):
    part_decode(bench, kv_type="fp8")


def part_decode_06b(bench):
    part_decode(bench, (("qwen3-0.6B", "BF16"),))


def part_host(bench):
    """How far the engine's steps are from the graph's own time, at 256 sequences."""
    engine = bench.figures.get("steps", {}).get("bf16_b256")
    bare = bench.figures.get("bare_decode_b256", {}).get("bf16")
    if not engine or not bare:
        raise Skipped("needs the parts decode and bare")
    bare_us = 256e6 / bare
    bench.keep("host", "bf16_b256", {
        "engine_step_us": engine["step_us"], "bare_step_us": round(bare_us, 1),
        "engine_over_bare": round(engine["step_us"] / bare_us, 4),
        "sched_us": engine["sched_us"], "submit_us": engine["submit_us"]})


# The most important first; a smoke test of the server before what takes long.
PARTS = ["profile", "decode", "http", "prompt", "offline_128_128", "trace_256", "steps", "batches",
         "logits", "bare", "promise", "host", "attention", "decode_kv_fp8", "fp8", "decode_fp8",
         "decode_fp8_kv_fp8", "prompt_fp8", "offline_fp8", "options", "profile_fp8",
         "offline_ways", "ready_early", "profile_q8_0", "profile_q4_0", "decode_06b",
         "decode_q8_0", "decode_q4_k", "decode_q4_0", "leak", "offline_1000_1000", "hf_ratio",
         "full", "offline_128_2048", "checks"]


# What the project aims at on one H200, by key and kind.
BARS = {
    "decode_b1": {"bf16": 245, "q8_0": 350, "q4_k": 400, "fp8": 330, "qwen3-0.6B-bf16": 1300},
    "decode_b8": {"bf16": 1720},
    "decode_b32": {"bf16": 5750},
    "decode_b128": {"bf16": 16900},
    "decode_b256": {"bf16": 21000, "fp8-kv-fp8": 34000, "qwen3-0.6B-bf16": 48500},
    "prompt_2k": {"bf16": 40000},
    "prompt_32k": {"bf16": 22000},
    "offline_128_128": {"bf16": 15351, "fp8": 27911},
    "offline_128_2048": {"bf16": 14422, "fp8": 26221},
    "offline_1000_1000": {"bf16": 9759, "fp8": 17744},
    "trace_256": {"bf16": 24500},
    "http_128": {"bf16": 12000},
    "hf_ratio": {"bf16": 24},
    "attention": {"decode_b32_4k_percent": 82, "chunk_2k_tflops": 365, "chunk_8k_tflops": 480,
                  "chunk_2k_after_4k_tflops": 450, "decode_b32_4k_fp8_percent": 72},
}


def table(figures):
    """Figures beside their bars, a line each."""
    lines = [f"{'figure':<20}{'of':<26}{'measured':>10}{'bar':>9}{'ratio':>7}"]
    for key, values in figures.items():
        for kind, value in values.items() if isinstance(values, dict) else ():
            bar = BARS.get(key, {}).get(kind)
            if bar and isinstance(value, (int, float)):
                lines.append(f"{key:<20}{kind:<26}{value:>10.1f}{bar:>9}{value / bar:>7.2f}")
    return "\n".join(lines)


def begin_models(bench, parts):
    """Models are written while other parts run, the first that is needed first."""
    if bench.args.tiny:
        bench.make("llama-135M", "BF16")
        return
    bench.make("llama-8B", "BF16")
    if any(p in parts for p in ("trace_256", "leak", "decode_06b")):
        bench.make("qwen3-0.6B", "BF16")
    for kind in ("q8_0", "q4_k", "q4_0"):
        if f"decode_{kind}" in parts or f"profile_{kind}" in parts:
            bench.make("llama-8B", kind.upper())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--budget", type=float, default=520.0)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", help="parts, with commas between: " + ",".join(PARTS))
    parser.add_argument("--work", default="/tmp/jitney-figures")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    parts = args.only.split(",") if args.only else PARTS
    unknown = [p for p in parts if f"part_{p}" not in globals()]
    if unknown:
        parser.error(f"unknown part {unknown[0]}; known: {', '.join(PARTS)}")
    bench = Bench(args)
    begin_models(bench, parts)
    failed = 0
    for name in parts:
        began = time.time()
        print(f"== {name}, {bench.left():.0f} s left", flush=True)
        try:
            globals()[f"part_{name}"](bench)
        except Skipped as why:
            bench.note(f"{name} skipped: {why}")
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            bench.note(f"{name} FAILED: {type(error).__name__}: {error}")
        bench.keep("seconds", name, round(time.time() - began, 1))
    for maker in bench.makers.values():
        if maker.poll() is None:
            maker.kill()
    print(json.dumps(bench.figures))
    print(table(bench.figures), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
