"""Goal:   nobody can talk the server down: what `make test-abuse` tries at length, in small.
Method: a server with keys, and one with TLS; each attack of tests/abuse runs against it for a moment,
        without a key if it makes sense without one, else with one. The victim is always answered,
        /livez is, memory stays below --memory-max, and soon after the attacker has left nothing is
        left of it. The bars on time are wide here, because other tests run at the same
        moment, and the attacker is not at nice 19, to be quick."""

import shutil
import sys
from pathlib import Path

import pytest

from cli_lib import GOLDEN
from server_lib import tiny_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "abuse"))
from abuse import How, Watched, try_attack  # noqa: E402
from attacks import ATTACKS  # noqa: E402

MOMENT = How(requests=12, seconds=15.0, tolerance=60.0, first_wave_s=0.15, after_s=20.0)
TLS = [name for name in ATTACKS if ATTACKS[name].tls]


@pytest.fixture(scope="module", name="models")
def models_fixture(tmp_path_factory):
    return [tiny_model(tmp_path_factory), GOLDEN / "bert"]


@pytest.fixture(scope="module", name="watched")
def watched_fixture(models):
    watched = Watched(models, "--runner", "sim:500", "--set", "kv_blocks=2048", nice=0)
    yield watched
    watched.close()


@pytest.fixture(scope="module", name="secure")
def secure_fixture(models):
    watched = Watched(models, "--runner", "sim:500", tls=True, nice=0)
    yield watched
    watched.close()


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in TLS])
def test_other_clients_do_not_suffer(watched, name):
    outcome = try_attack(watched, name, ATTACKS[name].only_keyed, MOMENT)
    assert not outcome.problems and not outcome.late, outcome.row


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
@pytest.mark.parametrize("name", TLS)
def test_other_clients_of_tls_do_not_suffer(secure, name):
    outcome = try_attack(secure, name, False, MOMENT)
    assert not outcome.problems and not outcome.late, outcome.row
