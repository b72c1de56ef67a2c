"""What is measured: each line asks one engine once and gives {row: value}.

Rows have short names; label() and unit() say them in full. Rates are tokens a second.
"""

import json
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from .common import Skip
from .engines import LONG_PROMPTS, WORK_S
from .servers import Server

FIRST_ID, LAST_ID = 1000, 40000
AZURE_SEED = 1000000  # other prompts than those of fixed length: servers remember them
WARM_SEED = 500000
IMAGE_S = 30  # within which packed weights have been written
METRICS = {"output": "output_throughput", "ttft_p50": "median_ttft_ms", "ttft_p99": "p99_ttft_ms",
           "tpot_p50": "median_tpot_ms", "tpot_p99": "p99_tpot_ms"}
SHAPES = ("fixed", "azure")


def random_prompts(seed, count, tokens):
    rng = random.Random(seed)
    return [[rng.randrange(FIRST_ID, LAST_ID) for _ in range(tokens)] for _ in range(count)]


def ask_single(engine, seed, model):
    (prompt,) = random_prompts(seed, 1, model.single[0])
    return engine.ask(do="single", prompt=prompt, output=model.single[1])


def ask_batch(engine, seed, model):
    count, tokens, output = model.batch
    return engine.ask(do="batch", prompts=random_prompts(1000 + seed, count, tokens),
                      output=output)


def warm(engine, letter, ask, model):
    """One question that is not counted, before the first of each kind that is: memory is touched,
    code is compiled, caches are filled. The same for every engine."""
    if letter not in engine.is_warm:
        ask(engine, WARM_SEED, model)
        engine.is_warm.add(letter)


def line_single(engine, repeat, options):
    warm(engine, "s", ask_single, options.model)
    found = ask_single(engine, repeat, options.model)
    rows = {"prompt": found["prompt_tok_s"], "decode": found["decode_tok_s"]}
    if getattr(engine, "worker", None):
        rows["offline_ready_s"] = engine.worker.start_s
        rows["offline_peak_mib"] = engine.worker.peak_mib()
        if "kv_int8_share" in engine.worker.ready:
            rows["kv_int8_share"] = engine.worker.ready["kv_int8_share"]
    return rows


def line_long(engine, repeat, _options):
    """One prompt of each length; two tokens out, because some engines count the first as decoding."""
    rows = {}
    for tokens in LONG_PROMPTS:
        (prompt,) = random_prompts(2000 + repeat, 1, tokens)
        found = engine.ask(do="single", prompt=prompt, output=2)
        rows[f"prompt/{tokens}"] = found["prompt_tok_s"]
    return rows


def line_batch(engine, repeat, options):
    warm(engine, "b", ask_batch, options.model)
    return {"batch": ask_batch(engine, repeat, options.model)["output_tok_s"]}


def load(engine, server, options, *flags):
    done = subprocess.run(
        [options.jitney, "bench", server.url, "--json", *map(str, flags)], text=True,
        capture_output=True, check=False, timeout=WORK_S)
    if done.returncode:
        raise Skip(f"{engine.name}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)["runs"][0]


def http_rows(shape, clients, run):
    return {f"http/{shape}/{clients}/{name}": run[key] for name, key in METRICS.items()}


def line_http(engine, repeat, options):
    _, tokens_in, tokens_out = options.model.batch
    with Server(engine, max(options.clients)) as server:
        rows = {"all_ready_s": server.ready_s, "all_rss_mib": server.ready_mib}
        for clients in options.clients:
            seed = repeat * 100 + clients
            common = ("--clients", clients, "--requests",
                      max(options.rounds * clients, options.requests_min))
            run = load(engine, server, options, *common, "--seed", seed, "--prompt-tokens",
                       tokens_in, "--output-tokens", tokens_out)
            rows.update(http_rows("fixed", clients, run))
            if options.trace:
                run = load(engine, server, options, *common, "--seed", seed + AZURE_SEED,
                           "--trace", options.trace, "--divide", 8, "--prompt-max", 640,
                           "--output-max", 128)
                rows.update(http_rows("azure", clients, run))
        rows["all_peak_mib"] = server.peak_mib()
    return rows


def wait_for_image(cache):
    """Until the packed weights lie there whole, under their own name. Without them the second
    start is as cold as the first, and its time says so."""
    end = time.monotonic() + IMAGE_S
    while time.monotonic() < end and not any(Path(cache, "images").glob("*.jpk")):
        time.sleep(0.1)


def line_slot(engine, _repeat, options):
    """jitney starts twice: with nothing kept, and with the packed weights of the first start."""
    rows, more, cache = {}, {}, None
    if engine.name == "jitney":
        cache = tempfile.mkdtemp(prefix="cold-", dir=options.folder)
        more = {"cache": cache}
    try:
        if cache:
            with Server(engine, 1, **more) as server:
                rows["slot_cold_s"] = server.ready_s
                wait_for_image(cache)
        with Server(engine, 1, **more) as server:
            rows.update(slot_ready_s=server.ready_s, slot_rss_mib=server.ready_mib,
                        slot_peak_mib=server.peak_mib())
    finally:
        if cache:
            shutil.rmtree(cache, ignore_errors=True)
    return rows


def line_perplexity(engine, _repeat, options):
    if not options.text:
        raise Skip("there is no text")
    found = engine.ask(do="perplexity", windows=options.window_ids)
    if "settings" in found:
        options.notes[engine.name] = found["settings"]
    return {k: v for k, v in found.items() if k.startswith("perplexity")}


LINES = {"s": line_single, "l": line_long, "b": line_batch, "m": line_slot, "h": line_http,
         "p": line_perplexity}
ONCE = "p"  # the same every time


# --- what rows are called ---

LABELS = {
    "offline_ready_s": "offline: ready after",
    "offline_peak_mib": "offline: peak memory",
    "kv_int8_share": "KV memory, int8 by f16",
    "slot_ready_s": "server, one slot: ready after",
    "slot_cold_s": "the same, nothing kept from before",
    "slot_rss_mib": "server, one slot: memory at ready",
    "slot_peak_mib": "server, one slot: peak memory",
    "all_ready_s": "server, all slots: ready after",
    "all_rss_mib": "server, all slots: memory at ready",
    "all_peak_mib": "server, all slots: peak memory after the clients",
    "perplexity": "perplexity",
    "perplexity_int8": "perplexity, KV in int8",
}
METRIC_LABELS = {"output": "output", "ttft_p50": "TTFT p50", "ttft_p99": "TTFT p99",
                 "tpot_p50": "TPOT p50", "tpot_p99": "TPOT p99"}


def label(row, sizes):
    """A row in words; sizes: what was asked, as the results keep it."""
    single, batch = sizes["single"], sizes["batch"]
    if row == "prompt":
        return f"one sequence: prompt of {single[0]}"
    if row.startswith("prompt/"):
        return f"one sequence: prompt of {int(row.split('/')[1]):,}"
    if row == "decode":
        return f"one sequence: {single[1]} tokens, one by one"
    if row == "batch":
        return f"{batch[0]} x ({batch[1]} in, {batch[2]} out) offline: output"
    if row.startswith("http/"):
        _, shape, clients, metric = row.split("/")
        shape = f"{batch[1]}/{batch[2]}" if shape == "fixed" else "azure/8"
        return f"{clients} client{'s' * (clients != '1')}, {shape}: {METRIC_LABELS[metric]}"
    return LABELS.get(row, row)


def unit(row):
    if row in ("decode", "batch") or row.startswith("prompt") or row.endswith("/output"):
        return "tok/s"
    if row.startswith("http/"):
        return "ms"
    if row.endswith("_mib"):
        return "MiB"
    return "s" if row.endswith("_s") else ""


def place(row):
    """Where a row stands in the table, whatever order it was measured in."""
    order = ["prompt", "decode", "batch", "http", "slot_ready_s", "slot_cold_s", "slot_rss_mib",
             "slot_peak_mib", "all_ready_s", "all_rss_mib", "all_peak_mib", "offline_ready_s",
             "offline_peak_mib", "kv_int8_share", "perplexity", "perplexity_int8"]
    if row.startswith("http/"):
        _, shape, clients, metric = row.split("/")
        return (order.index("http"), SHAPES.index(shape), int(clients),
                list(METRICS).index(metric))
    if row.startswith("prompt/"):
        return (order.index("prompt"), 0, int(row.split("/")[1]), 0)
    return (order.index(row) if row in order else len(order), 0, 0, 0)
