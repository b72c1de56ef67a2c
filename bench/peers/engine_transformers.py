#!/usr/bin/env python3
"""torch + transformers offline, float32, one static batch."""

import worker


class Transformers(worker.Engine):
    name = "transformers"

    def load(self, model, threads):
        import torch
        import transformers
        torch.set_num_threads(threads)
        self.torch = torch
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self.model.eval()

    def forward(self, ids, cache=None):
        with self.torch.inference_mode():
            return self.model(input_ids=self.torch.tensor(ids), past_key_values=cache,
                              use_cache=True, logits_to_keep=1)

    def single(self, prompt, output):
        prompt_s, state = worker.timed(self.forward, [prompt])
        decode_s = 0.0
        for i in range(output):
            took, state = worker.timed(self.forward, [[prompt[i % len(prompt)]]],
                                       state.past_key_values)
            decode_s += took
        return {"prompt_tok_s": len(prompt) / prompt_s, "decode_tok_s": output / decode_s}

    def batch(self, prompts, output):
        took, state = worker.timed(self.forward, prompts)
        for step in range(output - 1):
            more, state = worker.timed(self.forward, [[ids[step % len(ids)]] for ids in prompts],
                                       state.past_key_values)
            took += more
        return {"output_tok_s": len(prompts) * output / took}

    def loss_of(self, ids):
        with self.torch.inference_mode():
            logits = self.model(input_ids=self.torch.tensor([ids])).logits[0]
        return worker.window_loss(logits.numpy(), ids)


if __name__ == "__main__":
    worker.run(Transformers())
