#!/usr/bin/env python3
"""OpenVINO GenAI offline, reading the GGUF itself; its own continuous batching for many."""

import math
import pathlib
import tempfile

import worker

SETTINGS = ("INFERENCE_PRECISION_HINT", "DYNAMIC_QUANTIZATION_GROUP_SIZE", "KV_CACHE_PRECISION")


class OpenVino(worker.Engine):
    name = "OpenVINO GenAI"

    def load(self, model, threads):
        import openvino
        import openvino_genai
        self.openvino, self.genai = openvino, openvino_genai
        self.version = f"openvino-genai {openvino_genai.__version__}"
        self.file, self.threads = pathlib.Path(model).resolve(), threads
        self.pipe = openvino_genai.LLMPipeline(
            model, "CPU", scheduler_config=self.scheduler(), INFERENCE_NUM_THREADS=threads)

    def scheduler(self):
        scheduler = self.genai.SchedulerConfig()
        scheduler.cache_size = 1  # GiB
        scheduler.max_num_batched_tokens = 512
        scheduler.enable_prefix_caching = False
        return scheduler

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
        """The same pipeline, asked to tell how likely it found each token of a prompt."""
        with tempfile.TemporaryDirectory() as folder:
            # It saves the model that it has made of the GGUF beside the file that it was given.
            copy = pathlib.Path(folder, "model.gguf")
            copy.symlink_to(self.file)
            pipe = self.genai.ContinuousBatchingPipeline(
                str(copy), self.scheduler(), "CPU",
                {"INFERENCE_NUM_THREADS": self.threads, "enable_save_ov_model": True})
            losses = [self.loss_with(pipe, ids) for ids in windows]
            settings = self.settings_of(pathlib.Path(folder, "openvino_model.xml"))
        total = sum(loss for loss, _ in losses) / sum(count for _, count in losses)
        return {"perplexity": math.exp(total), "settings": settings}

    def loss_with(self, pipe, ids):
        import numpy as np
        config = self.config(1)
        config.echo, config.logprobs = True, 1
        tensor = self.openvino.Tensor(np.array([ids], dtype=np.int64))
        handle = pipe.add_request(0, tensor, config)
        while pipe.has_non_finished_requests():
            pipe.step()
        (output,) = handle.read_all()
        if list(output.generated_ids[:len(ids)]) != ids:
            raise RuntimeError("it does not echo the prompt")
        scored = output.generated_log_probs[worker.SCORED_FROM + 1:len(ids)]
        return -sum(scored), len(scored)

    def settings_of(self, path):
        """What the plug-in chooses for this model on this processor."""
        if not path.exists():
            return {}
        model = self.openvino.Core().compile_model(
            str(path), "CPU", {"INFERENCE_NUM_THREADS": self.threads})
        return {name: plain(model.get_property(name)) for name in SETTINGS}


def plain(value):
    """A property as text; number types have a name."""
    return value.to_string() if hasattr(value, "to_string") else str(value)


if __name__ == "__main__":
    worker.run(OpenVino())
