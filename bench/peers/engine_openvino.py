#!/usr/bin/env python3
"""OpenVINO GenAI offline, reading the GGUF itself; its own continuous batching for many."""

import worker


class OpenVino(worker.Engine):
    name = "OpenVINO GenAI"

    def load(self, model, threads):
        import openvino
        import openvino_genai
        self.openvino, self.genai = openvino, openvino_genai
        self.version = f"openvino-genai {openvino_genai.__version__}"
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 1  # GiB
        scheduler.max_num_batched_tokens = 512
        scheduler.enable_prefix_caching = False
        self.pipe = openvino_genai.LLMPipeline(
            model, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=threads)
        self.tokenizer = self.pipe.get_tokenizer()

    def config(self, output):
        config = self.genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = output
        config.ignore_eos = True
        config.do_sample = False
        return config

    def inputs(self, prompts):
        import numpy as np
        ids = np.array(prompts, dtype=np.int64)
        return self.genai.TokenizedInputs(self.openvino.Tensor(ids),
                                          self.openvino.Tensor(np.ones_like(ids)))

    def single(self, prompt, output):
        result = self.pipe.generate(self.inputs([prompt]), self.config(output + 1))
        metrics = result.perf_metrics
        return {"prompt_tok_s": len(prompt) / (metrics.get_ttft().mean / 1e3),
                "decode_tok_s": 1e3 / metrics.get_tpot().mean}

    def batch(self, prompts, output):
        took, _ = worker.timed(self.pipe.generate, self.inputs(prompts), self.config(output))
        return {"output_tok_s": len(prompts) * output / took}

    def perplexity(self, windows):
        return {"skipped": "it gives no logits of prompts"}


if __name__ == "__main__":
    worker.run(OpenVino())
