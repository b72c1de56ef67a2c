"""Results: pieces while an answer is generated, and the complete answer."""
import dataclasses
from typing import List, Optional

FINISH = (None, "stop", "length", "cancelled", "expired", "refused", "error")


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
    """A token with the natural logarithm of its probability, by the model's own distribution."""

    token: int
    logprob: float
    top: tuple = ()  # the most likely tokens, as (token, logprob)


@dataclasses.dataclass(frozen=True)
class Piece:
    """The new part of one answer."""

    choice: int
    text: str
    tokens: List[int]
    logprobs: Optional[List[TokenLogprob]]
    finish_reason: Optional[str]  # None: not finished
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    error: Optional[str] = None


@dataclasses.dataclass
class Answer:
    """One answer. `finish_reason` is "stop", "length", "cancelled" or "expired"."""

    choice: int = 0
    text: str = ""
    tokens: List[int] = dataclasses.field(default_factory=list)
    logprobs: Optional[List[TokenLogprob]] = None
    finish_reason: Optional[str] = None
    seed: int = 0  # the seed with which this answer was sampled
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    def add(self, piece):
        self.text += piece.text
        self.tokens += piece.tokens
        if piece.logprobs is not None:
            self.logprobs = (self.logprobs or []) + piece.logprobs
        self.finish_reason = piece.finish_reason
        self.prompt_tokens = piece.prompt_tokens
        self.completion_tokens = piece.completion_tokens
        self.cached_tokens = piece.cached_tokens


def rows_of(event, top_count):
    """The logprobs of an event, one TokenLogprob for each token; None: not requested."""
    if not event.logprobs:
        return None
    rows = []
    for i in range(event.token_count):
        base = i * top_count
        top = tuple(
            (event.top_logprobs[base + k].token, event.top_logprobs[base + k].logprob)
            for k in range(top_count)
            if event.top_logprobs[base + k].token >= 0
        )
        rows.append(TokenLogprob(event.logprobs[i].token, event.logprobs[i].logprob, top))
    return rows


def piece_of(event, text):
    """A Piece with copies of the event's data."""
    return Piece(
        choice=event.choice,
        text=text,
        tokens=event.tokens[: event.token_count] if event.token_count else [],
        logprobs=rows_of(event, event.top_count),
        finish_reason=FINISH[event.finish],
        prompt_tokens=event.prompt_tokens,
        completion_tokens=event.completion_tokens,
        cached_tokens=event.cached_tokens,
        error=event.error.decode("utf-8", "replace") if event.error else None,
    )
