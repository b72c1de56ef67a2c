"""Goal:   docs/scheduling.md describes every knob, with its default, range and sentence, and every
        policy.
Method: the tables of the page against `jitney knobs --json`."""

import re
from pathlib import Path

from cli_lib import answer

PAGE = Path(__file__).parents[2] / "docs" / "scheduling.md"


def rows(first):
    """The cells of the table whose first heading is `first`."""
    lines = PAGE.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def table():
    return answer("knobs")


def test_the_page_lists_every_knob_as_the_program_does():
    page = {r[0].strip("`"): [c.strip("| ") for c in r[1:]] for r in rows("knob")}
    program = {
        k["name"]: [
            k["default"],
            k["range"].replace("|", ", "),
            k["unit"],
            k["policy"] or "",
            k["help"],
        ]
        for k in table()["knobs"]
    }
    assert page == program


def test_the_page_describes_every_policy():
    page = [r[0].strip("`") for r in rows("policy") if re.match(r"`[\w-]+`$", r[0])]
    assert sorted(page) == sorted(p["name"] for p in table()["policies"])
