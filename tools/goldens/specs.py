"""The table of tiny models: what each one is there to catch.

A spec is plain data. `config` is written to config.json as it stands, in the spelling that
published models use today; the reference implementation reads it back from there.
"""

from dataclasses import dataclass, field

VOCAB = 64  # enough for ids; models with a tokenizer need every byte
VOCAB_TEXT = 288
VOCAB_BERT = 128


@dataclass
class Spec:
    name: str
    config: dict
    lengths: tuple = (14, 33)  # prompt lengths of goldens.bin
    extra: dict = field(default_factory=dict)  # other golden files: name -> prompt lengths
    tokenizer: str = ""  # "", "bpe" or "wordpiece"
    dtype: str = "F32"
    pooling: str = ""  # encoders: "mean" (then normalised) or "cls" (as it is)
    gguf: bool = True  # False where GGUF cannot say what this config says
    why: str = ""


def _decoder(model_type, arch, **changes):
    base = {
        "architectures": [arch],
        "model_type": model_type,
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    base.update(changes)
    return {key: value for key, value in base.items() if value is not ...}


def llama_config(**changes):
    return _decoder("llama", "LlamaForCausalLM", **changes)


def _mistral(**changes):
    return _decoder("mistral", "MistralForCausalLM", **changes)


def _qwen2(**changes):
    return _decoder("qwen2", "Qwen2ForCausalLM", rms_norm_eps=1e-6, **changes)


def _qwen3(**changes):
    changes = {"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "head_dim": 16} | changes
    return _decoder("qwen3", "Qwen3ForCausalLM", **changes)


def _gemma2(**changes):
    changes = {
        "rms_norm_eps": 1e-6,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 7,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 6.0,
        "tie_word_embeddings": ...,
    } | changes
    return _decoder("gemma2", "Gemma2ForCausalLM", **changes)


def _gemma3(**changes):
    changes = {
        "rms_norm_eps": 1e-6,
        "hidden_act": ...,
        "hidden_activation": "gelu_pytorch_tanh",
        "num_hidden_layers": 7,
        "intermediate_size": 32,
        "head_dim": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "query_pre_attn_scalar": 16,
        "sliding_window": 7,
        "sliding_window_pattern": 6,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "tie_word_embeddings": ...,
    } | changes
    return _decoder("gemma3_text", "Gemma3ForCausalLM", **changes)


def _phi3(**changes):
    changes = {
        "original_max_position_embeddings": 128,
        "rope_scaling": None,
        "sliding_window": None,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "pad_token_id": 0,
    } | changes
    return _decoder("phi3", "Phi3ForCausalLM", **changes)


def _mixtral(**changes):
    changes = {
        "intermediate_size": 32,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    } | changes
    return _decoder("mixtral", "MixtralForCausalLM", **changes)


def _qwen3moe(**changes):
    changes = {
        "rms_norm_eps": 1e-6,
        "head_dim": 24,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    } | changes
    return _decoder("qwen3_moe", "Qwen3MoeForCausalLM", **changes)


def _bert():
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": VOCAB_BERT,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_act": "gelu",
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "torch_dtype": "float32",
    }


# For models that differ from their family in one detail that a single layer shows.
_THIN = {"num_hidden_layers": 1, "intermediate_size": 32}
_LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 26,
    "rope_type": "llama3",
}
_YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "rope_type": "yarn"}
_LONG = [1.1, 1.5, 2.0, 3.0, 5.0, 7.5, 8.0, 9.25]
_SHORT = [1.0, 1.02, 1.05, 1.1, 1.15, 1.3, 1.35, 1.4]

SPECS = [
    Spec("llama", llama_config(vocab_size=VOCAB_TEXT, num_key_value_heads=4), lengths=(12, 24),
         tokenizer="bpe", why="every head its own key head, separate output matrix"),
    Spec("llama-f16", llama_config(torch_dtype="float16"), lengths=(12, 24), dtype="F16",
         why="float16 weights; the reference computes in float32 with the rounded weights"),
    Spec("llama-bf16", llama_config(torch_dtype="bfloat16"), lengths=(12, 24), dtype="BF16",
         why="bfloat16 weights, likewise"),
    Spec("llama-tied", llama_config(tie_word_embeddings=True, num_key_value_heads=1, head_dim=16),
         why="output matrix shared with the embedding, one key head, wider than hidden/heads"),
    Spec("llama-llama3", llama_config(rope_scaling=_LLAMA3, head_dim=16, **_THIN),
         why="the three bands of llama 3.1's rope, positions past the original context"),
    Spec("llama-linear", llama_config(rope_scaling={"type": "linear", "factor": 4.0}, **_THIN),
         why="positions divided by a factor; the older key `type`"),
    Spec("llama-yarn", llama_config(rope_scaling=_YARN, head_dim=16, **_THIN),
         why="the yarn ramp and its attention factor"),
    Spec("llama-dynamic", llama_config(rope_scaling={"rope_type": "dynamic", "factor": 2.0},
                                       max_position_embeddings=24, **_THIN),
         lengths=(12, 24), extra={"goldens-beyond.bin": (33,)}, gguf=False,
         why="base grows with the sequence, but only past max_position_embeddings"),
    Spec("llama-bias", llama_config(attention_bias=True, mlp_bias=True, **_THIN), gguf=False,
         why="biases on every projection"),
    Spec("llama-v5", llama_config(rope_theta=..., torch_dtype=..., dtype="float32", head_dim=8,
                                  rope_parameters={"rope_type": "linear", "factor": 2.0,
                                                   "rope_theta": 5000.0}, **_THIN),
         lengths=(14, 24), gguf=False,
         why="rope_parameters and dtype, the newer spelling of config.json"),
    Spec("mistral", _mistral(sliding_window=9), gguf=False,
         why="sliding window shorter than the prompts"),
    Spec("mistral-full", _mistral(sliding_window=None, head_dim=16, rope_theta=1000000.0, **_THIN),
         why="no window, heads wider than hidden/heads; arch llama in GGUF"),
    Spec("qwen2", _qwen2(vocab_size=VOCAB_TEXT, rope_theta=1000000.0, tie_word_embeddings=True,
                         use_sliding_window=False, sliding_window=9, max_window_layers=1),
         lengths=(12, 24), tokenizer="bpe",
         why="biases on q, k and v; a window that is switched off"),
    Spec("qwen2-f16", _qwen2(torch_dtype="float16"), lengths=(12, 24), dtype="F16",
         why="float16 weights and biases"),
    Spec("qwen2-bf16", _qwen2(torch_dtype="bfloat16"), lengths=(12, 24), dtype="BF16",
         why="bfloat16 weights and biases"),
    Spec("qwen2-window", _qwen2(use_sliding_window=True, sliding_window=9, max_window_layers=1,
                                intermediate_size=32),
         gguf=False, why="window on the layers from max_window_layers on"),
    Spec("qwen3", _qwen3(),
         why="norm of each query and key head, head_dim other than hidden/heads"),
    Spec("qwen3-yarn", _qwen3(rope_scaling=_YARN, tie_word_embeddings=True, **_THIN),
         why="yarn with half-split rope"),
    Spec("gemma2", _gemma2(), why="soft caps, alternating windows, norms after each part"),
    Spec("gemma2-scalar", _gemma2(query_pre_attn_scalar=40, final_logit_softcapping=None,
                                  **_THIN), gguf=False,
         why="query scale other than head_dim, no cap on the logits"),
    Spec("gemma3", _gemma3(rope_scaling={"rope_type": "linear", "factor": 8.0}),
         why="five local layers to one global, two rope bases, scaling on the global layers only"),
    Spec("gemma3-v5", _gemma3(
        rope_theta=..., rope_local_base_freq=..., sliding_window_pattern=...,
        num_hidden_layers=3, torch_dtype=..., dtype="float32", query_pre_attn_scalar=24,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}}),
         gguf=False, why="layer_types and nested rope_parameters"),
    Spec("phi3", _phi3(), why="fused q/k/v and gate/up"),
    Spec("phi3-window", _phi3(sliding_window=9, **_THIN), gguf=False, why="sliding window"),
    Spec("phi3-partial", _phi3(partial_rotary_factor=0.75, **_THIN),
         why="rotation of the first three quarters of a head"),
    Spec("phi3-longrope", _phi3(original_max_position_embeddings=16,
                                rope_scaling={"type": "longrope", "long_factor": _LONG,
                                              "short_factor": _SHORT}, **_THIN),
         lengths=(24, 33), extra={"goldens-short.bin": (10, 16)},
         why="long factors past the original context (goldens-short.bin: short factors within it)"),
    Spec("mixtral", _mixtral(rope_theta=1000000.0), why="the two best of four experts"),
    Spec("qwen3moe", _qwen3moe(), why="three of five experts, weights renormalised"),
    Spec("qwen3moe-mixed", _qwen3moe(mlp_only_layers=[0], norm_topk_prob=False),
         gguf=False, why="weights not renormalised, one dense layer"),
    Spec("bert", _bert(), lengths=(5, 16, 40), tokenizer="wordpiece", pooling="mean",
         why="encoder: learned positions, token types, norm after each part; mean, unit length"),
    Spec("bert-cls", _bert(), lengths=(5, 16, 40), tokenizer="wordpiece", pooling="cls",
         why="the first token's vector, length as it comes"),
]
