"""A model that answers with a given script, token by token, whatever it is asked.

Its weights make the next token a function of the last one alone: embeddings are one-hot, attention
and MLP add nothing, and the output matrix is a table of successors. Each piece of a script is a
token of its own behind the bytes of the usual vocabulary; the template ends with a token that
begins the script. A model with several scripts has such a token for each; the template chooses it
by the last message, so the answer depends on what the server has put there. So whole answers, streams and everything that is made of them (tool calls, stop
strings) can be tested with a real model and a known text.
"""

import json
import struct

import numpy as np

from cli_lib import GOLDEN

START = "<|go|>"
START_AFTER_TOOL = "<|go_on|>"
TURN_START = "<|turn"
END_ID = 2


def add_tokens(tokenizer, pieces):
    """The ids of `pieces`, which become tokens of the tokenizer."""
    first = max(len(tokenizer["model"]["vocab"]),
                1 + max((token["id"] for token in tokenizer["added_tokens"]), default=0))
    for i, piece in enumerate(pieces):
        tokenizer["added_tokens"].append({
            "id": first + i, "content": piece, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False,
            "special": piece in (START, START_AFTER_TOOL) or piece.startswith(TURN_START)})
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


def write_model(folder, chains, template):
    """A folder with a model in which each text of a chain is a token that the next one follows."""
    texts = [text for chain in chains for text in chain]
    assert len(set(texts)) == len(texts)
    folder.mkdir(parents=True)
    source = GOLDEN / "llama"
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    assert not set(texts) & set(tokenizer["model"]["vocab"])  # a second token would have no text
    ids = dict(zip(texts, add_tokens(tokenizer, texts)))
    successors = []
    for chain in chains:
        numbers = [*(ids[text] for text in chain), END_ID]
        successors += zip(numbers, numbers[1:])
    vocab = max(ids.values()) + 1
    width = (vocab + 63) // 64 * 64
    config = json.loads((source / "config.json").read_text())
    config |= {"vocab_size": vocab, "hidden_size": width, "intermediate_size": 64,
               "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
               "max_position_embeddings": 16384}
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings["chat_template"] = template
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    write_safetensors(folder / "model.safetensors", weights(vocab, width, successors))
    return folder


MESSAGES = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def scripted_model(folder, pieces, template="", after_tool=()):
    """A folder with a model that answers with `pieces` and ends; with `after_tool`, if given, when
    the last message is the result of a tool. Each piece must be another."""
    chains, start = [[START, *pieces]], START
    if after_tool:
        chains.append([START_AFTER_TOOL, *after_tool])
        start = "{% if messages[-1].role == 'tool' %}" + START_AFTER_TOOL + "{% else %}" + START + \
            "{% endif %}"
    return write_model(folder, chains, template + MESSAGES + start)


def cut(text, used, size=7):
    """The text in pieces of about `size` characters, none of which is in `used`; adds them to it."""
    pieces, at = [], 0
    while at < len(text):
        end = at + size
        while end < len(text) and text[at:end] in used:
            end += 1
        pieces.append(text[at:end])
        at = end
        while pieces[-1] in used:  # the end of the text joins the piece before it
            last = pieces.pop()
            used.discard(pieces[-1])
            pieces[-1] += last
        used.add(pieces[-1])
    return pieces


# A template with a place for tools, so that results stay messages of the role tool. Each must have
# the id and the name of a call of the message before the results.
CHECKED_RESULTS = """{%- if tools -%}{{- tools | length -}}{{- '\\n' -}}{%- endif -%}
{%- set ns = namespace(calls=[]) -%}
{%- for m in messages -%}
  {%- if m.role == 'assistant' -%}{%- set ns.calls = m.tool_calls or [] -%}{%- endif -%}
  {%- if m.role == 'tool' -%}
    {%- set own = ns.calls | selectattr('id', 'equalto', m.tool_call_id) | list -%}
    {%- if own | length != 1 or own[0].function.name != m.name -%}
      {{- raise_exception('a result without its call') -}}
    {%- endif -%}
  {%- endif -%}
{%- endfor -%}
"""


def turns_model(folder, turns):
    """A folder with a model that answers with turns[key], where `key` is the first one that the last
    message contains; "" is in every message. Returns it and the pieces of every turn."""
    used = set(json.loads((GOLDEN / "llama" / "tokenizer.json").read_text())["model"]["vocab"])
    scripts = {key: cut(text, used) for key, text in turns.items()}
    starts = [f"{TURN_START}{i}|>" for i in range(len(turns))]
    choice = "".join(f"{{%- {'elif' if i else 'if'} {json.dumps(key)} in messages[-1].content %}}"
                     f"{{{{- '{start}' -}}}}" for i, (key, start) in enumerate(zip(turns, starts)))
    chains = [[start, *pieces] for start, pieces in zip(starts, scripts.values())]
    write_model(folder, chains, CHECKED_RESULTS + MESSAGES + choice + "{%- endif -%}")
    return folder, scripts


def end_prompt_with(folder, mark):
    """The prompt ends with `mark`, a piece of the script, and the answer begins behind it."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["chat_template"] += mark
    path.write_text(json.dumps(settings))
