"""Goal:   nothing that was acknowledged is lost, and nothing is done twice, when the server is killed
        at any instant, or when its disk loses what was not synced.
Method: a share of `make test-kill` (tests/kill/README.md): mixed durable work on one folder, kill -9
        again and again, every result compared with that of an undisturbed server."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kill"))
import kill_loop  # noqa: E402


@pytest.mark.parametrize("flags, kills", [([], 40), (["--lossy"], 12)])
def test_acknowledged_work_survives_kills(capfd, flags, kills):
    seed = random.SystemRandom().randrange(1 << 30)
    code = kill_loop.main(["--kills", str(kills), "--seconds", "25", "--seed", str(seed),
                           "--ready-s", "5", *flags])  # other tests run at the same time
    shown = capfd.readouterr().out
    if code == 77:
        pytest.skip(shown)
    assert code == 0, shown
