"""How an answer is drawn."""
import dataclasses
from typing import Mapping, Optional, Sequence, Union


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """Ranges are checked by the library, which names the field that is out of its own."""

    max_tokens: int = 256
    temperature: float = 0.8  # 0: always the likeliest token
    n: int = 1  # answers; the i-th draws with seed + i
    seed: Optional[int] = None  # None: drawn anew for each request
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64  # last tokens that the penalties look at; -1: all of them
    logit_bias: Optional[Mapping[int, float]] = None  # -inf: never this token
    stop: Union[None, str, Sequence[str]] = None  # the text ends before the first of these
    ignore_end: bool = False  # go on past the model's end tokens
    keep_special: bool = False  # show special tokens in the text
    logprobs: Optional[int] = None  # 0: of the chosen tokens; k: and of the k likeliest
    tenant: int = 0  # requests of one tenant share prefixes and a fair share
    priority: int = 0  # larger is more important
    ttft_target_ms: float = 0.0  # time to the first token; 0: none
    tpot_target_ms: float = 0.0  # time per token; 0: none
    timeout_s: Optional[float] = None  # past it the answer ends as "expired"

    def replace(self, **changes):
        """The same with some fields changed."""
        return dataclasses.replace(self, **changes)

    @property
    def stops(self):
        """The stop strings as a list."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)
