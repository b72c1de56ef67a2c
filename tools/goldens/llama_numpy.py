"""A llama's forward pass in numpy, in float64: the reference where torch is not wanted.

make_foreign_goldens.py compares it with a golden of `transformers` before it uses it.
"""

import numpy as np


def _norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def _rope(x, theta):
    """x: (tokens, heads, width); halves are rotated."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[0])[:, None] / theta ** (np.arange(half) / half)
    cosine, sine = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


def _attention(config, w, prefix, x):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    tokens = x.shape[0]
    q, k, v = (
        (x @ w[f"{prefix}{name}_proj.weight"].T).reshape(tokens, count, -1)
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
    q, k = _rope(q, config["rope_theta"]), _rope(k, config["rope_theta"])
    k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    out = np.einsum("hqk,khd->qhd", scores, v).reshape(tokens, -1)
    return out @ w[prefix + "o_proj.weight"].T


def layer(config, w, prefix, x):
    """A layer; without input_layernorm, attention reads x as it is."""
    eps, first = config["rms_norm_eps"], w.get(prefix + "input_layernorm.weight")
    x = x + _attention(config, w, prefix + "self_attn.",
                       x if first is None else _norm(x, first, eps))
    y = _norm(x, w[prefix + "post_attention_layernorm.weight"], eps)
    gate = y @ w[prefix + "mlp.gate_proj.weight"].T
    gate = gate / (1 + np.exp(-gate)) * (y @ w[prefix + "mlp.up_proj.weight"].T)
    return x + gate @ w[prefix + "mlp.down_proj.weight"].T


def hidden(config, w, ids):
    """What the output matrix reads, after the last norm: (tokens, hidden_size) in float64."""
    x = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        x = layer(config, w, f"model.layers.{i}.", x)
    return _norm(x, w["model.norm.weight"], config["rms_norm_eps"])


def logits(config, weights, prompts):
    """One (tokens, vocabulary) float32 array for each list of ids."""
    w = {name: values.astype(np.float64) for name, values in weights.items()}
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return [(hidden(config, w, ids) @ head.T).astype(np.float32) for ids in prompts]
