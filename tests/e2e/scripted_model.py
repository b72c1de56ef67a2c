"""A model that answers with a given script, token by token, whatever it is asked.

Its weights make the next token a function of the last one alone: embeddings are one-hot, attention
and MLP add nothing, and the output matrix is a table of successors. Each piece of a script is a
token of its own behind the bytes of the usual vocabulary; the template ends with a token that
begins the script. So whole answers, streams and everything that is made of them (tool calls, stop
strings) can be tested with a real model and a known text.
"""

import json
import struct

import numpy as np

from cli_lib import GOLDEN

START = "<|go|>"
END_ID = 2


def add_tokens(tokenizer, pieces):
    """The ids of `pieces`, which become tokens of the tokenizer."""
    first = len(tokenizer["model"]["vocab"])
    for i, piece in enumerate(pieces):
        tokenizer["added_tokens"].append({
            "id": first + i, "content": piece, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": piece == START})
    return list(range(first, first + len(pieces)))


def weights(vocab, width, successors):
    one_hot = np.zeros((vocab, width), np.float32)
    one_hot[np.arange(vocab), np.arange(vocab)] = 1
    head = np.zeros((vocab, width), np.float32)
    head[END_ID, :vocab] = 0.5  # whatever is not in the script is followed by its end
    for before, after in successors:
        head[END_ID, before] = 0
        head[after, before] = 1
    layer = "model.layers.0."
    zeros = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (width, width),
             "self_attn.v_proj": (width, width), "self_attn.o_proj": (width, width),
             "mlp.gate_proj": (64, width), "mlp.up_proj": (64, width),
             "mlp.down_proj": (width, 64)}
    tensors = {"model.embed_tokens.weight": one_hot, "lm_head.weight": head,
               "model.norm.weight": np.ones(width, np.float32),
               layer + "input_layernorm.weight": np.ones(width, np.float32),
               layer + "post_attention_layernorm.weight": np.ones(width, np.float32)}
    for name, shape in zeros.items():
        tensors[f"{layer}{name}.weight"] = np.zeros(shape, np.float32)
    return tensors


def write_safetensors(path, tensors):
    head, at = {}, 0
    for name, tensor in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(tensor.shape),
                      "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def scripted_model(folder, pieces, template=""):
    """A folder with a model that answers with `pieces` and ends. Each piece must be another."""
    assert len(set(pieces)) == len(pieces)
    folder.mkdir(parents=True)
    source = GOLDEN / "llama"
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    ids = add_tokens(tokenizer, [START, *pieces])
    chain = [*ids, END_ID]
    vocab = ids[-1] + 1
    width = (vocab + 63) // 64 * 64
    config = json.loads((source / "config.json").read_text())
    config |= {"vocab_size": vocab, "hidden_size": width, "intermediate_size": 64,
               "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
               "max_position_embeddings": 4096}
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings["chat_template"] = template + "{% for m in messages %}{{ m.role }}: {{ m.content }}\n" \
        "{% endfor %}" + START
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    write_safetensors(folder / "model.safetensors",
                      weights(vocab, width, list(zip(chain, chain[1:]))))
    return folder
