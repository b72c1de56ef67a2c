#!/usr/bin/env python3
"""llama.cpp offline, through its C interface: no Python between two tokens but for one call, no
sampling at all (the tokens that are fed are chosen beforehand), which favours it."""

import ctypes
import pathlib
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

import worker  # noqa: E402
from goldens import llamacpp  # noqa: E402

SEQUENCES_AT = 12  # n_seq_max in llama_context_params
BATCH, MICRO_BATCH = 2048, 512


class Model(llamacpp.Model):
    """With a number of sequences."""

    def __init__(self, path, threads):
        self.sequences, self.opened = 1, None
        super().__init__(path, n_ctx=1024, threads=threads, kv_f32=False)
        self.threads = threads

    def _context_params(self, n_ctx, threads, kv_f32, embeddings):
        params = super()._context_params(n_ctx, threads, kv_f32, embeddings)
        found = struct.unpack_from("<i", params.bytes, SEQUENCES_AT)[0]
        assert found == 1, f"llama_context_params.n_seq_max is {found}: another version?"
        struct.pack_into("<i", params.bytes, SEQUENCES_AT, self.sequences)
        return params

    def open_context(self, sequences, tokens_each):
        """An empty context of that size; the one that is there if it fits, so that its memory has
        been touched before."""
        if (sequences, tokens_each) == self.opened:
            self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), False)
            return
        self.lib.llama_free(self.context)
        self.sequences, self.opened = sequences, (sequences, tokens_each)
        params = self._context_params(sequences * tokens_each, self.threads, False, False)
        for at, value in ((4, BATCH), (8, MICRO_BATCH)):
            struct.pack_into("<i", params.bytes, at, value)
        self.context = self.lib.llama_init_from_model(self.model, params)
        assert self.context, "no context"

    def decode(self, rows):
        """rows: (token, position, sequence, wanted)."""
        batch = self.lib.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wanted
        begun = time.perf_counter()
        assert self.lib.llama_decode(self.context, batch) == 0
        logits = self.lib.llama_get_logits_ith(self.context, len(rows) - 1)
        ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))[0]
        took = time.perf_counter() - begun
        self.lib.llama_batch_free(batch)
        return took


class LlamaCpp(worker.Engine):
    name = "llama.cpp"

    def load(self, model, threads):
        import xllamacpp
        self.version = f"xllamacpp {xllamacpp.__version__}"
        self.model = Model(model, threads)

    def single(self, prompt, output):
        self.model.open_context(1, len(prompt) + output + 16)
        rows = [(t, i, 0, i == len(prompt) - 1 or i % BATCH == BATCH - 1)
                for i, t in enumerate(prompt)]
        prompt_s = sum(self.model.decode(rows[i:i + BATCH]) for i in range(0, len(rows), BATCH))
        decode_s = sum(self.model.decode([(prompt[i % len(prompt)], len(prompt) + i, 0, True)])
                       for i in range(output))
        return {"prompt_tok_s": len(prompt) / prompt_s, "decode_tok_s": output / decode_s}

    def batch(self, prompts, output):
        """Prompts in batches as its own batched benchmark does, then all sequences together."""
        longest = max(map(len, prompts))
        self.model.open_context(len(prompts), longest + output + 16)
        rows = [(t, i, s, i == len(ids) - 1) for s, ids in enumerate(prompts)
                for i, t in enumerate(ids)]
        took = sum(self.model.decode(rows[i:i + BATCH]) for i in range(0, len(rows), BATCH))
        for step in range(output - 1):
            took += self.model.decode([(ids[step % len(ids)], len(ids) + step, s, True)
                                       for s, ids in enumerate(prompts)])
        return {"output_tok_s": len(prompts) * output / took}

    def loss_of(self, ids):
        self.model.open_context(1, len(ids))
        return worker.window_loss(self.model.logits(ids), ids)


if __name__ == "__main__":
    worker.run(LlamaCpp())
