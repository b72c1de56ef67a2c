"""Run language models inside your own program.

    from jitney import LLM

    with LLM("smollm2") as llm:
        for answer in llm.generate(["The sky is", "The sea is"], max_tokens=16, temperature=0):
            print(answer.text)
        print(llm.chat("Why is the sky blue?").text)

        async for piece in llm.stream("Tell me a story."):
            print(piece.text, end="")

Requests that run at the same time share the steps of the model, and no request changes the answer of
another.
"""
from ._library import version
from .errors import (
    BadRequest,
    Closed,
    JitneyError,
    LibraryNotFound,
    ModelNotFound,
    OutOfMemory,
    QueueFull,
    RequestFailed,
    SystemFailure,
)
from .llm import LLM, Stats, Stream
from .params import SamplingParams
from .results import Answer, Piece, TokenLogprob

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "BadRequest",
    "Closed",
    "JitneyError",
    "LLM",
    "LibraryNotFound",
    "ModelNotFound",
    "OutOfMemory",
    "Piece",
    "QueueFull",
    "RequestFailed",
    "SamplingParams",
    "Stats",
    "Stream",
    "SystemFailure",
    "TokenLogprob",
    "version",
]
