"""Run a folder through transformers in float32 and give back its outputs."""

import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM


def load(folder, encoder=False):
    """The model of a folder; every tensor of the file must be used and none be missing."""
    kind = AutoModel if encoder else AutoModelForCausalLM
    model, info = kind.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[problem], (folder, problem, info[problem])
    return model.eval()


@torch.no_grad()
def logits(model, prompts):
    """One (tokens, vocabulary) array for each prompt, each prompt run whole and alone."""
    return [model(torch.tensor([ids]), use_cache=False).logits[0].numpy() for ids in prompts]


@torch.no_grad()
def hidden(model, prompts):
    """The encoder's last layer, one (tokens, hidden) array for each prompt."""
    return [model(torch.tensor([ids])).last_hidden_state[0].numpy() for ids in prompts]


def pool(rows, pooling):
    """One (1, hidden) array for each (tokens, hidden) array."""
    if pooling == "cls":
        return [r[:1] for r in rows]
    means = [r.mean(axis=0, keepdims=True, dtype=np.float64) for r in rows]
    return [(m / np.linalg.norm(m)).astype(np.float32) for m in means]
