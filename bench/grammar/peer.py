#!/usr/bin/env python3
"""Times another grammar engine for compare.py; runs inside its virtual environment.

usage: peer.py llguidance|xgrammar VOCABULARY.json CASES.jsonl

VOCABULARY.json: {"tokens": [hexadecimal bytes, "" for a special one], "eos": id}. Each line of CASES.jsonl:
{"file": ..., "schema": ..., "tests": [[token ids], ...]}. One line of output for each case: {"file", "compile_us" (until the
first mask is ready), "mask_us" (all other masks), "accepted"}, or {"file", "error"}. The vocabulary is prepared once. Each case
runs in a process of its own, forked from the one that has it.

xgrammar's package imports torch and transformers, of which this use needs only an array type. Small modules with their names
stand in for them; its own code is the same.
"""
import json
import os
import sys
import time
import types

import numpy as np

SECONDS_MAX = 60


class Llguidance:
    def __init__(self, tokens, eos):
        import llguidance
        self.module = llguidance
        special = [i for i, t in enumerate(tokens) if not t]
        wrapper = types.SimpleNamespace(eos_token_id=eos, bos_token_id=None, special_token_ids=special,
                                        tokens=[t or b"<special_%d>" % i for i, t in enumerate(tokens)])
        wrapper_class = type("Tokens", (), {"__call__": lambda self, text: []})
        tokenizer = wrapper_class()
        tokenizer.__dict__.update(wrapper.__dict__)
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(tokenizer), n_vocab=len(tokens),
                                                slices=llguidance.LLTokenizer.json_slices())
        self.mask = np.zeros((len(tokens) + 31) // 32, dtype=np.int32)
        self.place, self.bytes = self.mask.ctypes.data, self.mask.nbytes

    def compile(self, schema):
        compact = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        grammar = self.module.LLMatcher.grammar_from_json_schema(schema, defaults=compact)
        self.matcher = self.module.LLMatcher(self.tokenizer, grammar)
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())

    def restart(self):
        self.matcher.reset()

    def compute(self):
        self.matcher.unsafe_compute_mask_ptr(self.place, self.bytes)

    def accept(self, token):
        return self.matcher.try_consume_tokens([token]) == 1

    def is_complete(self):
        return self.matcher.is_accepting()


class Xgrammar:
    def __init__(self, tokens, eos):
        import tvm_ffi  # noqa: F401  before the stand-ins: it would look into them
        torch = types.ModuleType("torch")
        torch.int32, torch.Tensor = np.int32, np.ndarray
        torch.tensor = lambda value, dtype=None: np.array(value, dtype=dtype)
        transformers = types.ModuleType("transformers")
        transformers.PreTrainedTokenizerBase = transformers.PreTrainedTokenizerFast = object
        contrib, hf = types.ModuleType("xgrammar.contrib"), types.ModuleType("xgrammar.contrib.hf")
        contrib.hf = hf
        sys.modules.update({"torch": torch, "transformers": transformers, "xgrammar.contrib": contrib,
                            "xgrammar.contrib.hf": hf})
        import xgrammar
        self.module = xgrammar
        info = xgrammar.TokenizerInfo([t or b"" for t in tokens], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[eos])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = np.zeros((1, (len(tokens) + 31) // 32), dtype=np.int32)

    def compile(self, schema):
        self.grammar = self.compiler.compile_json_schema(schema, any_whitespace=False, separators=(",", ":"))
        self.restart()

    def restart(self):
        self.matcher = self.module.GrammarMatcher(self.grammar, terminate_without_stop_token=False)

    def compute(self):
        self.matcher.fill_next_token_bitmask(self.mask)

    def accept(self, token):
        return self.matcher.accept_token(token)

    def is_complete(self):
        return self.matcher.is_completed()


def elapsed_us(function):
    start = time.perf_counter_ns()
    function()
    return (time.perf_counter_ns() - start) / 1000


def run_case(engine, case):
    engine.mask[...] = 1  # the pages of the mask are touched before the clock starts
    schema = json.dumps(case["schema"])

    def until_first_mask():
        engine.compile(schema)
        engine.compute()

    compile_us, masks, accepted = elapsed_us(until_first_mask), [], []
    for n, tokens in enumerate(case["tests"]):
        if n:
            engine.restart()
        fits = True
        for i, token in enumerate(tokens):
            if n or i:
                masks.append(round(elapsed_us(engine.compute), 2))
            fits = engine.accept(token)
            if not fits:
                break
        accepted.append(bool(fits and engine.is_complete()))
    return {"file": case["file"], "compile_us": round(compile_us, 2), "mask_us": masks, "accepted": accepted}


def in_child(engine, case):
    """One line of JSON from a forked process; an engine that takes a minute is stopped."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        import signal
        signal.alarm(SECONDS_MAX)
        try:
            line = json.dumps(run_case(engine, case))
        except Exception as error:  # what the engine refuses
            line = json.dumps({"file": case["file"], "error": str(error)[:200]})
        with os.fdopen(writer, "w") as out:
            out.write(line)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as source:
        line = source.read()
    os.waitpid(child, 0)
    return line or json.dumps({"file": case["file"], "error": f"stopped after {SECONDS_MAX} s, or crashed"})


def main():
    name, vocabulary_path, cases_path = sys.argv[1:]
    with open(vocabulary_path) as source:
        vocabulary = json.load(source)
    tokens = [bytes.fromhex(t) for t in vocabulary["tokens"]]
    engine = {"llguidance": Llguidance, "xgrammar": Xgrammar}[name](tokens, vocabulary["eos"])
    with open(cases_path) as source:
        for line in source:
            print(in_child(engine, json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
