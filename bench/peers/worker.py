"""What the engines of bench/peers have in common: a process that loads a model, then carries
out commands from standard input, one JSON object a line, and answers with one a line.

    {"do": "single", "prompt": [ids], "output": 128}   -> {"prompt_tok_s": ..., "decode_tok_s": ...}
    {"do": "batch", "prompts": [[ids], ...], "output": 64}                 -> {"output_tok_s": ...}
    {"do": "perplexity", "windows": [[ids], ...]}                          -> {"perplexity": ...}

Its first line is {"ready": {"version", "load_s", ...}}. Between two commands it sleeps, so that
several engines can be loaded and asked in turns.
"""

import json
import math
import os
import sys
import time

SCORED_FROM = 256  # of a window, as llama.cpp counts: the second half, without the last position


def window_loss(logits, ids):
    """Sum and count of -log p of the scored tokens; logits: (tokens, vocabulary) in numpy."""
    import numpy as np
    rows = np.asarray(logits[SCORED_FROM:len(ids) - 1], dtype=np.float64)
    top = rows.max(axis=1)
    total = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
    chosen = rows[np.arange(len(rows)), np.asarray(ids[SCORED_FROM + 1:])]
    return float((total - chosen).sum()), len(rows)


class Engine:
    """To be filled: load() and whatever of single, batch and window_loss the engine can do."""
    name = version = ""

    def load(self, model, threads):
        raise NotImplementedError

    def loss_of(self, ids):
        """Sum and count of the losses of a window's scored tokens."""
        raise NotImplementedError

    def perplexity(self, windows):
        losses = [self.loss_of(ids) for ids in windows]
        return {"perplexity": math.exp(sum(s for s, _ in losses) / sum(n for _, n in losses))}


def timed(function, *args):
    begun = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - begun, result


def run(engine):
    """The process: MODEL THREADS on the command line, commands on standard input."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers

    def say(value):
        out.write(json.dumps(value) + "\n")
        out.flush()

    begun = time.perf_counter()
    engine.load(sys.argv[1], int(sys.argv[2]))
    say({"ready": {"version": engine.version, "load_s": time.perf_counter() - begun}})
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if command["do"] == "single":
                say(engine.single(command["prompt"], command["output"]))
            elif command["do"] == "batch":
                say(engine.batch(command["prompts"], command["output"]))
            elif command["do"] == "perplexity":
                say(engine.perplexity(command["windows"]))
        except (NotImplementedError, AttributeError, RuntimeError, AssertionError) as fault:
            say({"skipped": f"{type(fault).__name__}: {fault}"[:300]})
