"""How an answer is sampled."""
import dataclasses
from typing import Mapping, Optional, Sequence, Union


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """Ranges stand in _ranges.py; a field outside its own raises BadRequest, which names it."""

    max_tokens: int = 256
    temperature: float = 0.8  # 0: always the most likely token
    n: int = 1  # answers; answer i is sampled with seed + i
    seed: Optional[int] = None  # None: a random seed for each request
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64  # how many of the last tokens the penalties count; -1: all
    logit_bias: Optional[Mapping[int, float]] = None  # -inf: never this token
    stop: Union[None, str, Sequence[str]] = None  # the text ends before the first of these
    ignore_end: bool = False  # continue past the model's end tokens
    keep_special: bool = False  # show special tokens in the text
    logprobs: Optional[int] = None  # 0: of the sampled tokens; k: also of the k most likely
    tenant: int = 0  # requests of one tenant share cached prefixes and one fair share
    priority: int = 0  # larger is more important
    ttft_target_ms: float = 0.0  # target for the time to the first token; 0: no target
    tpot_target_ms: float = 0.0  # target for the time per output token; 0: no target
    timeout_s: Optional[float] = None  # after it the answer ends as "expired"
    # At most one of these three: what the answer must be.
    schema: Union[None, str, bool, Mapping, type] = None  # a JSON schema, or a pydantic model
    regex: Optional[str] = None  # the whole answer matches it
    grammar: Optional[str] = None  # GBNF, or Lark's notation

    def replace(self, **changes):
        """The same with some fields changed."""
        return dataclasses.replace(self, **changes)

    @property
    def stops(self):
        """The stop strings as a list."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)
