"""Random weights under the names that published checkpoints use.

Scales are chosen so that a wrong detail shows: attention far from uniform, logits of several
units, norm weights away from one, every bias away from zero. Each tensor has its own random
stream, named after model and tensor, so adding a tensor changes no other.
"""

import hashlib

import numpy as np


def _normal(model, name, shape):
    seed = int.from_bytes(hashlib.sha256(f"{model}/{name}".encode()).digest()[:8], "little")
    return np.random.Generator(np.random.Philox(seed)).standard_normal(shape)


class _Maker:
    def __init__(self, model):
        self.model = model
        self.tensors = {}

    def put(self, name, shape, scale, centre=0.0):
        values = centre + scale * _normal(self.model, name, shape)
        self.tensors[name] = values.astype(np.float32)

    def matrix(self, name, rows, columns, gain=1.0, bias=False):
        self.put(name + ".weight", (rows, columns), gain / np.sqrt(columns))
        if bias:
            self.put(name + ".bias", (rows,), 0.3)


def _attention(make, config, prefix):
    hidden = config["hidden_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    head = config.get("head_dim", hidden // heads)
    kind = config["model_type"]
    bias = config.get("attention_bias", False)
    if kind == "phi3":
        make.matrix(prefix + "qkv_proj", (heads + 2 * kv_heads) * head, hidden, 1.5)
        make.matrix(prefix + "o_proj", hidden, heads * head)
        return
    qkv_bias = bias or kind == "qwen2"
    make.matrix(prefix + "q_proj", heads * head, hidden, 1.6, qkv_bias)
    make.matrix(prefix + "k_proj", kv_heads * head, hidden, 1.6, qkv_bias)
    make.matrix(prefix + "v_proj", kv_heads * head, hidden, 1.0, qkv_bias)
    make.matrix(prefix + "o_proj", hidden, heads * head, 1.0, bias)
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        centre = 0.5 if kind == "gemma3_text" else 1.5
        make.put(prefix + "q_norm.weight", (head,), 0.2, centre)
        make.put(prefix + "k_norm.weight", (head,), 0.2, centre)


def _dense(make, config, prefix):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    bias = config.get("mlp_bias", False)
    if config["model_type"] == "phi3":
        make.matrix(prefix + "gate_up_proj", 2 * inner, hidden)
    else:
        make.matrix(prefix + "gate_proj", inner, hidden, 1.0, bias)
        make.matrix(prefix + "up_proj", inner, hidden, 1.0, bias)
    make.matrix(prefix + "down_proj", hidden, inner, 1.5, bias)


def _experts(make, config, prefix, count, inner, names):
    hidden = config["hidden_size"]
    make.matrix(prefix + "gate", count, hidden, 2.0)
    gate, up, down = names
    for i in range(count):
        make.matrix(f"{prefix}experts.{i}.{gate}", inner, hidden)
        make.matrix(f"{prefix}experts.{i}.{up}", inner, hidden)
        make.matrix(f"{prefix}experts.{i}.{down}", hidden, inner, 1.5)


def _feed_forward(make, config, layer, prefix):
    kind = config["model_type"]
    if kind == "mixtral":
        _experts(make, config, prefix + "block_sparse_moe.", config["num_local_experts"],
                 config["intermediate_size"], ("w1", "w3", "w2"))
    elif kind == "qwen3_moe" and layer not in config["mlp_only_layers"]:
        _experts(make, config, prefix + "mlp.", config["num_experts"],
                 config["moe_intermediate_size"], ("gate_proj", "up_proj", "down_proj"))
    else:
        _dense(make, config, prefix + "mlp.")


def _decoder(make, config):
    kind, hidden = config["model_type"], config["hidden_size"]
    gemma = kind.startswith("gemma")
    centre = 0.0 if gemma else 1.0  # gemma adds one to its norm weights
    tied = config.get("tie_word_embeddings", gemma)
    norms = ["input_layernorm", "post_attention_layernorm"]
    if gemma:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    vocab = config["vocab_size"]
    make.put("model.embed_tokens.weight", (vocab, hidden), 2 / np.sqrt(hidden) if tied else 1.0)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        _attention(make, config, prefix + "self_attn.")
        _feed_forward(make, config, layer, prefix)
        for norm in norms:
            make.put(f"{prefix}{norm}.weight", (hidden,), 0.2, centre)
    make.put("model.norm.weight", (hidden,), 0.2, centre)
    if not tied:
        make.matrix("lm_head", vocab, hidden, 2.0)


def _layer_norm(make, name, hidden):
    make.put(name + ".weight", (hidden,), 0.2, 1.0)
    make.put(name + ".bias", (hidden,), 0.3)


def _bert(make, config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    rows = {
        "word_embeddings": config["vocab_size"],
        "position_embeddings": config["max_position_embeddings"],
        "token_type_embeddings": config["type_vocab_size"],
    }
    for name, count in rows.items():
        make.put(f"embeddings.{name}.weight", (count, hidden), 1.0)
    _layer_norm(make, "embeddings.LayerNorm", hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        for part, gain in (("query", 1.6), ("key", 1.6), ("value", 1.0)):
            make.matrix(f"{prefix}attention.self.{part}", hidden, hidden, gain, True)
        make.matrix(prefix + "attention.output.dense", hidden, hidden, 1.0, True)
        _layer_norm(make, prefix + "attention.output.LayerNorm", hidden)
        make.matrix(prefix + "intermediate.dense", inner, hidden, 1.0, True)
        make.matrix(prefix + "output.dense", hidden, inner, 1.5, True)
        _layer_norm(make, prefix + "output.LayerNorm", hidden)
    make.matrix("pooler.dense", hidden, hidden, 1.0, True)


def make_weights(model, config):
    """All tensors of a model, name -> float32 array, matrices as (outputs, inputs)."""
    make = _Maker(model)
    if config["model_type"] == "bert":
        _bert(make, config)
    else:
        _decoder(make, config)
    return make.tensors


def head_weights(model, config):
    """All tensors of a draft head in the layout of EAGLE-1, whose first layer has one norm. With
    "bias" it also has an embedding of its own."""
    make = _Maker(model)
    hidden = config["hidden_size"]
    make.matrix("fc", hidden, 2 * hidden, 0.7, config["bias"])
    if config["bias"]:
        make.put("embed_tokens.weight", (config["vocab_size"], hidden), 1.0)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"layers.{layer}."
        _attention(make, config, prefix + "self_attn.")
        _dense(make, config, prefix + "mlp.")
        if layer > 0:
            make.put(prefix + "input_layernorm.weight", (hidden,), 0.2, 1.0)
        make.put(prefix + "post_attention_layernorm.weight", (hidden,), 0.2, 1.0)
    return make.tensors


def make_prompts(model, vocab, lengths):
    """Random token ids; the stream depends on model and length only."""
    prompts = []
    for length in lengths:
        seed = hashlib.sha256(f"{model}/prompt/{length}".encode()).digest()[:8]
        rng = np.random.Generator(np.random.Philox(int.from_bytes(seed, "little")))
        prompts.append(rng.integers(3, vocab, length).tolist())
    return prompts
