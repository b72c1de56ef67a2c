#!/usr/bin/env python3
"""llama.cpp's HTTP server, as xllamacpp carries it: MODEL PORT THREADS SLOTS TOKENS_A_SLOT
[SPECULATION], where SPECULATION is draft:PATH or one of its names for guesses from text: ngram_cache,
ngram_simple, ngram_map_k, ngram_map_k4v, ngram_mod; behind it any NAME=NUMBER of that mode."""

import signal
import sys

import xllamacpp


def speculate(params, text, settings):
    name, _, path = text.partition(":")
    kinds = xllamacpp.common_speculative_type
    speculative = params.speculative
    kind = "DRAFT_SIMPLE" if name == "draft" else name.upper()
    speculative.types = [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{kind}")]
    if name == "draft":
        speculative.draft.mparams.path = path
        speculative.draft.n_gpu_layers = 0
    for setting in settings:
        key, value = setting.split("=")
        setattr(getattr(speculative, name), key, int(value))


def main():
    model, port, threads, slots, tokens = sys.argv[1], *map(int, sys.argv[2:6])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * tokens
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cont_batching = True
    params.n_gpu_layers = 0
    if len(sys.argv) > 6:
        speculate(params, sys.argv[6], sys.argv[7:])
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while not stopped:
        signal.pause()


if __name__ == "__main__":
    main()
