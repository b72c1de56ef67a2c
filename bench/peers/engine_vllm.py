#!/usr/bin/env python3
"""vLLM's CPU back end offline, float32 (bfloat16 is five times slower without AVX-512)."""

import worker


class Vllm(worker.Engine):
    name = "vLLM"

    def load(self, model, threads):
        import vllm
        self.vllm = vllm
        self.version = f"vllm {vllm.__version__}"
        self.engine = vllm.LLM(model=model, dtype="float32", max_model_len=2048, max_num_seqs=64,
                               enable_prefix_caching=False, enforce_eager=False)

    def generate(self, prompts, output, **options):
        params = self.vllm.SamplingParams(max_tokens=output, temperature=0, ignore_eos=True,
                                          detokenize=False, **options)
        return self.engine.generate([{"prompt_token_ids": ids} for ids in prompts], params,
                                    use_tqdm=False)

    def single(self, prompt, output):
        first_s, _ = worker.timed(self.generate, [prompt], 1)
        all_s, _ = worker.timed(self.generate, [prompt], output + 1)
        return {"prompt_tok_s": len(prompt) / first_s, "decode_tok_s": output / (all_s - first_s)}

    def batch(self, prompts, output):
        took, _ = worker.timed(self.generate, prompts, output)
        return {"output_tok_s": len(prompts) * output / took}

    def loss_of(self, ids):
        (result,) = self.generate([ids], 1, prompt_logprobs=0)
        scored = range(worker.SCORED_FROM + 1, len(ids))
        return -sum(result.prompt_logprobs[i][ids[i]].logprob for i in scored), len(scored)


if __name__ == "__main__":
    worker.run(Vllm())
