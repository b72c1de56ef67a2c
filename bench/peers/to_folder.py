#!/usr/bin/env python3
"""Writes a GGUF as a folder of Hugging Face's form in float32, for engines that read no GGUF:
FROM.gguf TO."""

import pathlib
import sys

import torch
import transformers


def main():
    source, target = pathlib.Path(sys.argv[1]), sys.argv[2]
    name = {"gguf_file": source.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, **name)
    read = transformers.AutoModelForCausalLM.from_pretrained(
        source.parent, dtype=torch.float32, **name)
    # What was read from GGUF counts as quantized and refuses to be saved; a plain model with the
    # same numbers does not.
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main()
