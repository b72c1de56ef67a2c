"""Write the tiny models as GGUF, with the names and conventions of llama.cpp's converter.

What differs from the checkpoint: llama-family query and key rows are permuted so that rope pairs
are adjacent, gemma's norm weights have one added, experts are stacked in one tensor, llama 3's
rope scaling becomes a tensor of frequency divisors.
"""

import json
import math
import re

import gguf
import numpy as np

_ARCH = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "bert": "bert",
}

_TOP = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}

_BLOCK = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}

_EXPERT = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps",
           "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}

# The key for [SEP] is misspelt in the format itself.
_BERT_IDS = {"padding": 0, "unknown": 1, "cls": 2, "seperator": 3, "mask": 4}

_FILE_TYPE = {
    "F32": gguf.LlamaFileType.ALL_F32,
    "F16": gguf.LlamaFileType.MOSTLY_F16,
    "BF16": gguf.LlamaFileType.MOSTLY_BF16,
}


def head_dim(config):
    return config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])


def _permute(rows, heads):
    """From halves to adjacent pairs: row j and j + n/2 of a head become 2j and 2j + 1."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def unpermute(rows, heads):
    """From adjacent pairs back to halves."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _convert(config, name, values):
    kind = config["model_type"]
    if kind in ("llama", "mistral", "mixtral"):
        if ".q_proj." in name:
            return _permute(values, config["num_attention_heads"])
        if ".k_proj." in name:
            return _permute(values, config["num_key_value_heads"])
    if kind.startswith("gemma") and name.endswith("norm.weight"):
        return values + np.float32(1)
    return values


def gguf_tensors(config, weights):
    """name in GGUF -> float32 array, in the order of the checkpoint."""
    gemma = config["model_type"].startswith("gemma")
    out, experts = {}, {}
    for name, values in weights.items():
        stem, _, suffix = name.rpartition(".")
        layer = re.match(r"(?:model\.layers|encoder\.layer)\.(\d+)\.(.+)", stem)
        values = _convert(config, name, values)
        if stem.startswith("pooler."):
            continue
        if layer is None:
            out[f"{_TOP[stem]}.{suffix}"] = values
            continue
        number, part = layer.groups()
        expert = re.fullmatch(r"(?:mlp|block_sparse_moe)\.experts\.\d+\.(\w+)", part)
        if expert:
            experts.setdefault(f"blk.{number}.{_EXPERT[expert[1]]}.{suffix}", []).append(values)
        elif gemma and part == "post_attention_layernorm":
            out[f"blk.{number}.post_attention_norm.{suffix}"] = values
        else:
            out[f"blk.{number}.{_BLOCK[part]}.{suffix}"] = values
    out.update({name: np.stack(parts) for name, parts in experts.items()})
    out.update(_rope_tensors(config))
    return out


def _rope_tensors(config):
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "llama3":
        return {"rope_freqs.weight": _llama3_divisors(config, scaling)}
    if kind == "longrope":
        return {"rope_factors_long.weight": np.array(scaling["long_factor"], np.float32),
                "rope_factors_short.weight": np.array(scaling["short_factor"], np.float32)}
    return {}


def _llama3_divisors(config, scaling):
    """What each rope frequency is divided by: 1 if fast, `factor` if slow, a blend between."""
    width = head_dim(config)
    context = scaling["original_max_position_embeddings"]
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    divisors = []
    for i in range(0, width, 2):
        turns = context / (2 * math.pi * config["rope_theta"] ** (i / width))
        if turns > high:
            divisors.append(1.0)
        elif turns < low:
            divisors.append(factor)
        else:
            smooth = (turns - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


def _add_rope_keys(writer, config):
    writer.add_rope_freq_base(config["rope_theta"])
    if _ARCH[config["model_type"]] in ("llama", "phi3"):  # elsewhere it is the whole head
        dims = int(head_dim(config) * config.get("partial_rotary_factor", 1.0))
        writer.add_rope_dimension_count(dims)
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    elif kind == "longrope":
        context, original = (config["max_position_embeddings"],
                             config["original_max_position_embeddings"])
        factor = math.sqrt(1 + math.log(context / original) / math.log(original))
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(factor)


def _add_decoder_keys(writer, config):
    kind = config["model_type"]
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    _add_rope_keys(writer, config)
    if kind.startswith("gemma"):
        writer.add_sliding_window(config["sliding_window"])
    if config.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if "rope_local_base_freq" in config:
        writer.add_float32("gemma3.rope.freq_base_swa", config["rope_local_base_freq"])
    if kind in ("mixtral", "qwen3_moe"):
        writer.add_expert_count(config.get("num_local_experts", config.get("num_experts")))
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if kind == "qwen3_moe":
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def _add_bert_keys(writer, config, pooling):
    writer.add_causal_attention(False)
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_pooling_type(pooling)
    writer.add_token_type_count(config["type_vocab_size"])


def _add_tokenizer(writer, config, tokenizer):
    if tokenizer is None:
        writer.add_tokenizer_model("none")
        return
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    kinds = [gguf.TokenType.CONTROL if word in special else gguf.TokenType.NORMAL
             for word, _ in vocab]
    if config["model_type"] == "bert":
        writer.add_tokenizer_model("bert")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([_bert_word(word, word in special) for word, _ in vocab])
        for name, number in _BERT_IDS.items():
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", number)
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([word for word, _ in vocab])
        writer.add_token_merges(_merges(tokenizer))
        writer.add_bos_token_id(config["bos_token_id"])
        writer.add_eos_token_id(config["eos_token_id"])
        writer.add_add_bos_token(False)
    writer.add_token_types(kinds)


def _bert_word(word, special):
    """GGUF marks the start of a word where BERT marks its continuation."""
    if special:
        return word
    return word[2:] if word.startswith("##") else "\u2581" + word


def _merges(tokenizer):
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [" ".join(pair) if isinstance(pair, list) else pair for pair in merges]


def write_gguf(path, name, config, tensors, *, file_type="F32", tokenizer=None,
               pooling=gguf.PoolingType.MEAN):
    """`tensors`: name -> array, or (raw bytes as uint8 rows, gguf type) where quantised."""
    writer = gguf.GGUFWriter(path, _ARCH[config["model_type"]])
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(file_type if isinstance(file_type, int) else _FILE_TYPE[file_type])
    if tokenizer is None or _ARCH[config["model_type"]] == "llama":
        writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    if config["model_type"] == "bert":
        _add_bert_keys(writer, config, pooling)
    else:
        _add_decoder_keys(writer, config)
    _add_tokenizer(writer, config, tokenizer)
    for tensor, values in tensors.items():
        if isinstance(values, tuple):
            writer.add_tensor(tensor, values[0], raw_dtype=values[1])
        else:
            writer.add_tensor(tensor, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def narrow(tensors, dtype):
    """Matrices in a 16-bit type, vectors left in float32, as converters do."""
    out = {}
    for name, values in tensors.items():
        if dtype == "F32" or values.ndim == 1:
            out[name] = values
        elif dtype == "F16":
            out[name] = values.astype(np.float16)
        else:
            bits = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
            out[name] = (bits, gguf.GGMLQuantizationType.BF16)
    return out
