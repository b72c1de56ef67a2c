"""The database between two processes: is it whole, and do its rows agree with each other?

A copy is read, so that opening it changes nothing for the next start. The rules are written here
once more, apart from those of the server (src/jobs/verify.c).
"""

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

OPEN_BATCH = "b.state IN (0, 2, 3, 6)"  # validating, in progress, finalizing, cancelling

OUTPUT_RULE = "the output of a batch is not there"
# Each statement gives the rows that break the rule.
RULES = {
    "a batch has other counts than its lines have results": f"""
        SELECT b.id, b.total, b.completed, b.failed, count(r.number), sum(r.state = 1),
               sum(r.state = 2)
        FROM batches b LEFT JOIN results r ON r.line_set = b.line_set WHERE {OPEN_BATCH}
        GROUP BY b.number
        HAVING b.completed <> coalesce(sum(r.state = 1), 0)
            OR b.failed <> coalesce(sum(r.state = 2), 0)""",
    "a batch has ended with other counts than lines": """
        SELECT b.id, b.state, b.total, b.completed, b.failed, b.cancelled, b.expired FROM batches b
        WHERE b.state IN (4, 5, 7) AND b.in_progress_s <> 0
          AND b.completed + b.failed + b.cancelled + b.expired <> b.total""",
    "a batch under way has other lines than it says": f"""
        SELECT b.id, b.total, count(l.number) FROM batches b
        LEFT JOIN lines l ON l.line_set = b.line_set
        WHERE {OPEN_BATCH} AND b.in_progress_s <> 0
        GROUP BY b.number HAVING b.total <> count(l.number)""",
    "a line has two results": """
        SELECT line_set, number, count(*) FROM results GROUP BY line_set, number
        HAVING count(*) > 1""",
    "an answer has ended without an output": """
        SELECT a.id, a.state FROM answers a LEFT JOIN answer_outputs o USING (number)
        WHERE a.state <> 0 AND o.number IS NULL""",
    "an answer is open with an output": """
        SELECT a.id FROM answers a JOIN answer_outputs o USING (number) WHERE a.state = 0""",
    "an answer has no input": """
        SELECT a.id FROM answers a LEFT JOIN answer_inputs i USING (number)
        WHERE i.number IS NULL""",
    "a ready file has other bytes than it says": """
        SELECT f.id, f.bytes, sum(length(c.bytes)) FROM files f
        LEFT JOIN chunks c ON c.file = f.number WHERE f.id IS NOT NULL AND f.is_ready = 1
        GROUP BY f.number HAVING f.bytes <> coalesce(sum(length(c.bytes)), 0)""",
    OUTPUT_RULE: """
        SELECT b.id, b.output_file FROM batches b WHERE b.state = 4 AND b.output_file <> ''
          AND NOT EXISTS (SELECT 1 FROM files f WHERE f.id = b.output_file AND f.is_ready = 1)""",
}
TABLES = ("answers", "answer_inputs", "answer_outputs", "conversations", "items", "files", "chunks",
          "batches", "line_sets", "lines", "results")


@contextlib.contextmanager
def opened(folder):
    """A connection to a copy of the database of a data folder."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("jitney.db", "jitney.db-wal"):
            if (folder / name).exists():
                shutil.copy(folder / name, Path(place) / name)
        with contextlib.closing(sqlite3.connect(Path(place) / "jitney.db")) as db:
            yield db


def check(folder, deletes_outputs=False):
    """What is wrong with the database of a data folder; [] if nothing is. `deletes_outputs`: clients
    delete the output of batches."""
    if not (folder / "jitney.db").exists():
        return []
    problems = []
    with opened(folder) as db:
        for (line,) in db.execute("PRAGMA integrity_check(5)"):
            if line != "ok":
                problems.append(f"integrity_check: {line}")
        if problems or db.execute("PRAGMA user_version").fetchone() == (0,):
            return problems
        for what, sql in RULES.items():
            if deletes_outputs and what == OUTPUT_RULE:
                continue
            rows = db.execute(sql).fetchmany(3)
            if rows:
                problems.append(f"{what}: {rows}")
    return problems


def files(folder):
    """The rows of files without their bytes."""
    with opened(folder) as db:
        return list(db.execute("SELECT id, owner, filename, purpose, bytes, created_s, is_ready FROM files"))


def counts(folder):
    """The rows of each table."""
    with opened(folder) as db:
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}
