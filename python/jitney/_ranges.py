"""Ranges and defaults of the sampling fields, as src/sample/ranges.def has them."""
from typing import NamedTuple, Union


class Range(NamedTuple):
    kind: type  # int or float
    least: Union[int, float]
    most: Union[int, float]  # included, as `least` is
    default: Union[int, float]


RANGES = {
    # made by tools/make_cli_docs.py
    "temperature": Range(float, 0, 10, 0.8),
    "top_k": Range(int, 0, 2147483647, 0),
    "top_p": Range(float, 0, 1, 1),
    "min_p": Range(float, 0, 1, 0),
    "typical_p": Range(float, 0, 1, 1),
    "repetition_penalty": Range(float, 0.01, 100, 1),
    "presence_penalty": Range(float, -2, 2, 0),
    "frequency_penalty": Range(float, -2, 2, 0),
    "penalty_window": Range(int, -1, 131072, 64),
    "logit_bias": Range(float, -1000000, 1000000, 0),
    "seed": Range(int, 0, 9223372036854775807, 0),
    "n": Range(int, 1, 16, 1),
    "max_tokens": Range(int, 1, 4294967295, 256),
    "top_logprobs": Range(int, 0, 20, 0),
    # end
}
