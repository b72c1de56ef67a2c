"""Goal:   the time to the first token tells a client nothing about the prompts of another tenant.
Method: tests/abuse/prefix_probe.py with few trials; at length it runs 10,000."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "abuse"))
import prefix_probe  # noqa: E402


def test_the_first_token_tells_nothing_of_other_tenants():
    # The load of the machine blurs few trials.
    _, wrong = prefix_probe.judge(prefix_probe.run(None, trials=60, seed=2), least=0.75)
    assert not wrong
