"""Goal:   a key with ten times the connections of another gets no more of the machine, and no key can
        take the places of another in the queue.
Method: tests/abuse/fairness.py, in small."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "abuse"))

import fairness  # noqa: E402  pylint: disable=wrong-import-position


def test_two_keys_get_equal_shares_of_tokens_and_of_the_queue():
    assert fairness.run(small=True)
