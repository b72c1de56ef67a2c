"""The measurement: every repeat asks every engine once, and every answer is saved at once."""

import hashlib
import os
import subprocess
import time
from pathlib import Path

from . import engines, lines, machine, models
from .common import Skip, say

# Seconds of one repeat with smollm2 on two cores, for the estimate before anything was measured.
ESTIMATE_S = {
    "s": {"jitney": 2, "llamacpp": 4, "llamacpp-q4_0": 3, "openvino": 3, "openvino-q4_0": 3,
          "vllm": 10, "transformers": 13},
    "l": {"jitney": 16, "llamacpp": 70, "llamacpp-q4_0": 46, "openvino": 30, "openvino-q4_0": 30,
          "vllm": 60, "transformers": 120},
    "b": {"jitney": 6, "llamacpp": 32, "llamacpp-q4_0": 16, "openvino": 14, "openvino-q4_0": 14,
          "vllm": 20, "transformers": 27},
    "m": {"jitney": 3, "llamacpp": 2, "llamacpp-q4_0": 2, "vllm": 40},
    "h": {"jitney": 100, "llamacpp": 600, "llamacpp-q4_0": 330, "vllm": 400},
    "p": {"jitney": 20, "llamacpp": 30, "llamacpp-q4_0": 25, "openvino": 40, "openvino-q4_0": 40,
          "vllm": 60, "transformers": 40},
}
PEAKS_S = 3
ESTIMATE_BYTES = 96.6e6  # of the weights that the estimates are for
ESTIMATE_REQUESTS = 3 * (1 + 4 + 8 + 16 + 32)  # of line h


class Budget:
    """Minutes that a run may take; it ends between two repeats."""

    def __init__(self, minutes):
        self.begun, self.limit_s = time.monotonic(), minutes * 60 if minutes else None

    def allows(self, seconds):
        return self.limit_s is None or time.monotonic() - self.begun + seconds <= self.limit_s


def digest(path):
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]
    except OSError:
        return ""


def mark_of(options, letter):
    """What must be the same for a session that was cut short to go on."""
    mark = {"jitney": digest(options.jitney), "worker": digest(options.worker),
            "threads": options.threads, "file": Path(options.model.gguf).name}
    if letter == "h":
        mark["clients"], mark["rounds"] = options.clients, options.rounds
    return mark


def new_session(options, letter, names, wanted):
    return {"model": options.model.name, "isa": options.isa, "line": letter, "engines": names,
            "mark": mark_of(options, letter), "wanted": wanted, "sizes": options.model.sizes(),
            "machine": machine.facts(), "versions": {}, "notes": {}, "skipped": {}, "repeats": []}


def seconds_of(options, store, letter, name):
    """What one engine's part of a repeat takes, as measured before or guessed."""
    known = store.seconds(options.model.name, letter, name)
    if known is not None:
        return known
    cost = store.data["models"].get(options.model.name, {})
    scale = max(cost.get("bytes", ESTIMATE_BYTES) / ESTIMATE_BYTES, 1)
    sizes = options.model
    if letter == "s":
        scale *= sum(sizes.single) / 640
    if letter == "b":
        scale *= sizes.batch[0] / 32
    if letter == "h":
        scale *= options.rounds * sum(options.clients) / ESTIMATE_REQUESTS
    return ESTIMATE_S[letter].get(name, 0) * scale


def repeats_of(options, letter):
    return 1 if letter in lines.ONCE else options.repeats or options.model.repeats


def lines_of(options):
    return options.lines or options.model.lines


def estimate_s(options, store):
    """Of all lines of one model."""
    return sum(repeats_of(options, letter)
               * (PEAKS_S + sum(seconds_of(options, store, letter, name)
                                for name in options.only
                                if options.model.shape == ""
                                or engines.ENGINES[name](options).can_random))
               for letter in lines_of(options))


def window_ids(options):
    if not options.text or "p" not in lines_of(options):
        return []
    data = Path(options.text).read_bytes()[:options.windows * 512 * 8]
    done = subprocess.run([options.jitney, "tokenize", "-m", options.model.gguf], input=data,
                          check=False, capture_output=True)
    if done.returncode:
        raise Skip(f"jitney tokenize: {done.stderr.decode().strip()[-300:]}")
    ids = list(map(int, done.stdout.split()))
    return [ids[i * 512:(i + 1) * 512] for i in range(options.windows)]


def ask_one(session, record, engine, letter, repeat, options):
    """One engine's part of a repeat; one that cannot do it is not asked again."""
    say(f"{session['model']}, line {letter}, repeat {repeat + 1} of {session['wanted']}: "
        f"{engine.name}")
    begun = time.monotonic()
    try:
        record["values"][engine.name] = lines.LINES[letter](engine, repeat, options)
        record["took_s"][engine.name] = round(time.monotonic() - begun, 1)
        session["versions"][engine.name] = engine.version
    except (Skip, OSError, ValueError, KeyError, subprocess.SubprocessError) as why:
        say(f"skipped: {why}")
        session["skipped"][engine.name] = str(why) or type(why).__name__
        options.failed.add(engine.name)
        engine.close()
    if options.model.is_large:
        engine.close()


def run_repeat(store, session, found, repeat, options):
    letter = session["line"]
    record = {"at": time.strftime("%Y-%m-%d %H:%M:%S"), "load": os.getloadavg()[0],
              "ceilings": machine.ceilings(options.peaks, options.threads), "took_s": {},
              "values": {}, "is_whole": False}
    session["repeats"].append(record)
    for engine in found:
        if engine.name not in session["skipped"]:
            ask_one(session, record, engine, letter, repeat, options)
            session["notes"].update(options.notes)
            store.save()
    record["is_whole"] = True
    store.drop_older(session)
    store.save()


def run_line(store, letter, found, options, budget):
    """All repeats of a line; False if the time was up."""
    wanted = repeats_of(options, letter)
    names = [e.name for e in found]
    session = store.begin(new_session(options, letter, names, wanted), options.fresh)
    session["skipped"] = {}
    if session["repeats"]:
        say(f"line {letter}: {len(session['repeats'])} of {wanted} repeats are there already")
    for repeat in range(len(session["repeats"]), wanted):
        needs = PEAKS_S + sum(seconds_of(options, store, letter, n) for n in names
                              if n not in session["skipped"])
        if not budget.allows(needs):
            say(f"line {letter}: the time is up after {repeat} of {wanted} repeats")
            store.drop_empty()
            return False
        run_repeat(store, session, found, repeat, options)
    return True


def run_model(store, options, budget):
    """All lines of one model with one instruction set; False if the time was up."""
    cost = models.cost_of(options.jitney, options.model.gguf)
    if cost:
        store.data["models"][options.model.name] = cost
    options.notes = {}
    options.window_ids = window_ids(options)
    found = engines.chosen(options)
    try:
        for letter in lines_of(options):
            if letter in "mh":
                close_all(found)  # servers have the memory for themselves
            if not run_line(store, letter, found, options, budget):
                return False
    finally:
        close_all(found)
    return True


def close_all(found):
    for engine in found:
        engine.close()
