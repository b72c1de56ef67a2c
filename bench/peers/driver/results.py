"""Results that outlive a run: one file that several runs add to.

    {"format": 2, "models": {name: cost of a token}, "sessions": [session, ...]}

A session is one line of one model with one instruction set, measured with a list of engines in
turns:

    {"model", "isa", "line", "engines": [...], "mark": {...}, "wanted": 5, "sizes": {...},
     "machine": {...}, "versions": {...}, "notes": {...}, "skipped": {engine: why},
     "repeats": [{"at", "load", "ceilings": {...}, "took_s": {engine: s}, "is_whole": true,
                  "values": {engine: {row: value}}}, ...]}

Every engine's answer is saved when it comes. A session that was cut short goes on where it ended
if nothing about it has changed (its mark); a whole one is measured anew, and takes the place of the
older one. Ratios are only ever taken within a session.
"""

import json
import os
import statistics
from pathlib import Path

FORMAT = 2


class Store:
    """The file."""

    def __init__(self, path):
        self.path = Path(path)
        self.data = {"format": FORMAT, "models": {}, "sessions": []}
        if self.path.exists():
            self.read()

    def read(self):
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError:
            found = {}
        if found.get("format") == FORMAT:
            self.data = found
        else:
            self.path.rename(self.path.with_suffix(".old.json"))

    def save(self):
        """Whole or not at all: a run that is ended while it writes loses nothing."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        with open(part, "w", encoding="utf-8") as file:
            file.write(json.dumps(self.data, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.path)

    def sessions(self, **wanted):
        return [s for s in self.data["sessions"] if all(s[k] == v for k, v in wanted.items())]

    def begin(self, session, is_fresh=False):
        """The session to add to: an unfinished one of the same mark, or `session` itself."""
        same = self.sessions(**{k: session[k] for k in ("model", "isa", "line", "engines")})
        for old in same:
            whole = [r for r in old["repeats"] if r["is_whole"]]
            goes_on = old["mark"] == session["mark"] and old["wanted"] == session["wanted"]
            if goes_on and not is_fresh and 0 < len(whole) < old["wanted"]:
                old["repeats"] = whole
                return old
        self.data["sessions"].append(session)
        return session

    def drop_older(self, session):
        """Once `session` has values: what it replaces is an older one of the same line whose
        engines it has all asked."""
        def is_replaced(old):
            same = all(old[k] == session[k] for k in ("model", "isa", "line"))
            return (old is not session and same and set(old["engines"]) <= set(session["engines"])
                    and len(session["repeats"]) >= min(len(old["repeats"]), session["wanted"]))
        self.data["sessions"] = [s for s in self.data["sessions"] if not is_replaced(s)]

    def drop_empty(self):
        self.data["sessions"] = [s for s in self.data["sessions"] if s["repeats"]]

    def seconds(self, model, line, engine):
        """What a repeat took when it was last measured, or None."""
        took = [r["took_s"][engine] for s in self.sessions(model=model, line=line)
                for r in s["repeats"] if engine in r.get("took_s", {})]
        return took[-1] if took else None


def values_of(session, engine, row):
    return [r["values"][engine][row] for r in session["repeats"]
            if row in r["values"].get(engine, {})]


class Cell:
    """One engine's row: its median, and jitney's in the same session."""

    def __init__(self, session, engine, row):
        self.session, self.engine = session, engine
        self.values = values_of(session, engine, row)
        self.value = statistics.median(self.values)
        base = values_of(session, "jitney", row)
        self.base = statistics.median(base) if base else None

    @property
    def ratio(self):
        """To jitney's; None where there is none."""
        return self.value / self.base if self.base else None


def rows_of(session):
    return {row for r in session["repeats"] for rows in r["values"].values() for row in rows}


def table_of(store, model, isa):
    """{row: {engine: Cell}}: of every engine the newest session that has the row, or an older one
    that has more repeats: a run that was cut short hides no whole one."""
    table = {}
    for session in store.sessions(model=model, isa=isa):
        for row in rows_of(session):
            cells = table.setdefault(row, {})
            for engine in session["engines"]:
                count = len(values_of(session, engine, row))
                if count and (engine not in cells or count >= len(cells[engine].values)):
                    cells[engine] = Cell(session, engine, row)
    return table


def keys_of(store):
    """(model, isa) in the order of their first measurement."""
    return list(dict.fromkeys((s["model"], s["isa"]) for s in store.data["sessions"]))
