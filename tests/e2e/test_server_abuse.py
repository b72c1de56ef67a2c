"""Goal:   nobody can talk the server down: what `make test-abuse` tries at length, in small.
Method: one server with keys; each attack of tests/abuse runs against it for a moment, without a key
        if it makes sense without one, else with one. The victim is always answered, /livez is, memory
        stays below --memory-max, and five seconds after the attacker has left nothing is left of it.
        The bars on time are wide here, because other tests run at the same moment."""

import sys
from pathlib import Path

import pytest

from server_lib import tiny_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "abuse"))
from abuse import How, Watched, try_attack  # noqa: E402
from attacks import ATTACKS  # noqa: E402

MOMENT = How(requests=20, seconds=0.6, tolerance=20.0)
# A full batch makes others wait for a place, by the policy: how long is for `make test-abuse`.
FULL_BATCH = How(requests=20, seconds=0.6, tolerance=float("inf"))


@pytest.fixture(scope="module", name="watched")
def watched_fixture(tmp_path_factory):
    watched = Watched(tiny_model(tmp_path_factory), "--runner", "sim:500")
    yield watched
    watched.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_other_clients_do_not_suffer(watched, name):
    how = FULL_BATCH if ATTACKS[name].line == "the queue" else MOMENT
    outcome = try_attack(watched, name, ATTACKS[name].only_keyed, how)
    assert not outcome.problems, outcome.row
