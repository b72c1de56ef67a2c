"""A llama-family GGUF in transformers: weights decoded, everything computed in float32.

What an engine without any rounding of activations would give; it tells how much of a difference
between two engines is the arithmetic's and how much is a mistake.
"""

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from goldens import llamacpp
from goldens.gguf_export import unpermute

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _config(reader, tied):
    def fact(name):
        return reader.fields["llama." + name].contents()

    return LlamaConfig(
        vocab_size=fact("vocab_size"), hidden_size=fact("embedding_length"),
        intermediate_size=fact("feed_forward_length"), num_hidden_layers=fact("block_count"),
        num_attention_heads=fact("attention.head_count"),
        num_key_value_heads=fact("attention.head_count_kv"),
        rms_norm_eps=fact("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=fact("context_length"), tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": fact("rope.freq_base")})


def _checkpoint_tensor(config, tensor):
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    parts = tensor.name.split(".")
    if parts[0] != "blk":
        name = _TOP[parts[0]]
    else:
        name = f"model.layers.{parts[1]}.{_BLOCK[parts[2]]}"
        if parts[2] == "attn_q":
            values = unpermute(values, config.num_attention_heads)
        elif parts[2] == "attn_k":
            values = unpermute(values, config.num_key_value_heads)
    return name + ".weight", torch.from_numpy(np.ascontiguousarray(values))


class Model:
    """The same questions as llamacpp.Model, which also does the tokenizing."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
        config = _config(reader, tied)
        weights = dict(_checkpoint_tensor(config, tensor) for tensor in reader.tensors)
        if tied:
            weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        self.model = LlamaForCausalLM(config).eval()
        self.model.load_state_dict(weights, strict=True)
        self.n_vocab = config.vocab_size
        self.tokenize = llamacpp.Model(path).tokenize

    @torch.no_grad()
    def logits(self, ids):
        return self.model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
