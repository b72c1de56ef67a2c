#!/usr/bin/env python3
"""llama.cpp's HTTP server, as xllamacpp carries it: MODEL PORT THREADS SLOTS TOKENS_A_SLOT."""

import signal
import sys

import xllamacpp


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
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while not stopped:
        signal.pause()


if __name__ == "__main__":
    main()
