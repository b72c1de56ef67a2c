"""From a SamplingParams and a prompt to the library's struct."""
import ctypes
import json

from . import _library
from ._ranges import RANGES
from .errors import BadRequest

SEED_MAX = 2**64 - 1  # of the struct's member; the other interfaces take 63 bits


def whole(name, value, least, most):
    """`value` as an integer; ctypes would wrap it around without an error."""
    try:
        if least <= value <= most and int(value) == value:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise BadRequest(f"{name} is {value}; it must be a whole number from {least} to {most}")


def fill_sampling(request, p):
    # The library checks the other numbers.
    for name in ("max_tokens", "n", "top_k", "penalty_window"):
        limits = RANGES[name]
        setattr(request, name, whole(name, getattr(p, name), limits.least, limits.most))
    if p.seed is not None:
        request.seed = whole("seed", p.seed, 0, SEED_MAX)
    for name in (
        "temperature",
        "top_p",
        "min_p",
        "typical_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "ttft_target_ms",
        "tpot_target_ms",
    ):
        setattr(request, name, float(getattr(p, name)))
    if p.logprobs is not None:
        limits = RANGES["top_logprobs"]
        request.logprobs = True
        request.top_logprobs = whole("logprobs", p.logprobs, limits.least, limits.most)
    if p.logit_bias:
        biases = [(whole("a biased token", t, 0, 2**31 - 1), float(b)) for t, b in p.logit_bias.items()]
        request.bias = (_library.Bias * len(biases))(*biases)
        request.bias_count = len(biases)


def fill_rest(request, p):
    stops = _library.text_list(p.stops)
    if stops:
        request.stop = stops
    request.ignore_end = bool(p.ignore_end)
    request.keep_special = bool(p.keep_special)
    request.tenant = whole("tenant", p.tenant, 0, 2**32 - 1)
    request.priority = whole("priority", p.priority, -(2**31), 2**31 - 1)
    if p.timeout_s is not None:
        if not p.timeout_s > 0:
            raise BadRequest(f"timeout_s is {p.timeout_s}; it must be more than 0")
        request.expires_ms = p.timeout_s * 1000


def schema_text(schema):
    """A JSON schema as text; a pydantic model gives its own."""
    if isinstance(schema, str):
        return schema
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    try:
        return json.dumps(schema)
    except TypeError as e:
        raise BadRequest(f"schema: expected a JSON schema or a pydantic model: {e}") from e


def fill_grammar(request, p):
    texts = {"schema": None if p.schema is None else schema_text(p.schema),
             "regex": p.regex, "grammar": p.grammar}
    for name, text in texts.items():
        if text is not None:
            setattr(request, name, _library.encode(text))


def fill_tokens(request, tokens):
    ids = [whole(f"token {i}", t, -(2**31), 2**31 - 1) for i, t in enumerate(tokens)]
    request.tokens = (ctypes.c_int32 * max(1, len(ids)))(*ids)
    request.token_count = len(ids)


def make(params):
    """A request without its prompt. ctypes keeps a reference to what its pointers point to."""
    request = _library.default(_library.Request)
    fill_sampling(request, params)
    fill_rest(request, params)
    fill_grammar(request, params)
    return request


def is_tokens(prompt):
    return not isinstance(prompt, str) and all(isinstance(t, int) for t in prompt)


def messages_json(messages):
    """A user's message, or a whole conversation, as JSON."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return json.dumps(list(messages), ensure_ascii=False)
