"""`jitney template` prints what jinja2 renders, for the templates that model families ship.

The templates come from the test data outside the tree and from the default model, if they are
there; each is rendered over every conversation of tools/template_cases.py.
"""

import json
import sys
import time

import pytest

from cli_lib import BAD, DATA, ROOT, run

sys.path.insert(0, str(ROOT / "tools"))

import make_template_goldens as goldens  # noqa: E402
import template_cases  # noqa: E402

TEMPLATES = sorted((DATA / "templates").glob("*.jinja"))
ZONE = {"TZ": "UTC"}


@pytest.fixture(autouse=True)
def clock():
    """jinja2 sees the time that the program sees; templates show no more of it than the day."""
    goldens.NOW = int(time.time())


def compare(source, *args):
    for name, variables in template_cases.CONVERSATIONS.items():
        want = goldens.render(source, variables)
        code, got, said = run("template", *args, stdin=json.dumps(variables), env=ZONE)
        if want is None:
            assert (code, got) == (BAD, b""), (name, code, got)
            assert said.startswith(b"jitney: ") and said.count(b"\n") == 1, (name, said)
        else:
            assert (code, said) == (0, b""), (name, said)
            assert got.decode() == want, name


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_template_of_a_family_over_all_conversations(path):
    with open(path, encoding="utf-8", newline="") as file:
        compare(file.read(), "--file", path)


def test_template_of_the_default_model_over_all_conversations():
    code, found, _ = run("inspect", "smollm2", "--json")
    if code != 0:
        pytest.skip("smollm2 is not in the cache")
    source = goldens.gguf_chat_template(json.loads(found)["path"])
    compare(source, "-m", "smollm2")
