#!/usr/bin/env python3
"""Writes what `jitney COMMAND --help` says into docs/cli.md and docs/jitney.1, the table of
settings into docs/configuration.md, and the ranges of sampling into python/jitney/_ranges.py.

usage: make_cli_docs.py [--check] [JITNEY]

The tables in src/cli/, src/config/settings.def and src/sample/ranges.def are the source; the parts
between the markers in the files follow from them. --check changes nothing and fails if a document is not up to
date.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def help_of(jitney, *words):
    return subprocess.run(
        [jitney, *words, "--help"], check=True, capture_output=True, text=True
    ).stdout


def commands_of(jitney):
    """[(name, summary)] as the program's help lists them."""
    listing = help_of(jitney).split("commands:\n")[1].split("\n\n")[0]
    return [line.split(None, 1) for line in listing.splitlines()]


def parse_help(text):
    """(usage, [paragraph], [(spelling, sentences)]) of a command's help."""
    head, flags = text.split("\nflags:\n")
    usage, *paragraphs = head.strip().split("\n\n")
    rows = []
    for line in flags.splitlines():
        match = re.match(r"  (?:(-\w),|   ) (--[\w-]+)( [^ ]+)?(?:\s{2,}(.*))?$", line)
        if match:
            letter, name, value, rest = match.groups()
            rows.append([(letter, name, (value or "").strip()), rest or ""])
        elif line.startswith(" "):  # what does not is the title of a section
            rows[-1][1] = (rows[-1][1] + " " + line.strip()).strip()
    return usage.removeprefix("usage: "), [" ".join(p.split()) for p in paragraphs], rows


def markdown(jitney, commands):
    parts = []
    for name, summary in commands:
        parts.append(f"## jitney {name}\n\n{summary}.\n\n```\n{help_of(jitney, name)}```\n")
    return "\n".join(parts)


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def man_flag(spelling):
    letter, name, value = spelling
    text = (f"\\fB{roff(letter)}\\fR, " if letter else "") + f"\\fB{roff(name)}\\fR"
    return text + (f" \\fI{roff(value)}\\fR" if value else "")


def man(jitney, commands):
    lines = []
    for name, _ in commands:
        usage, paragraphs, rows = parse_help(help_of(jitney, name))
        lines += [f".SS {usage.removesuffix(' [flags]')}".replace("-", "\\-")]
        for i, paragraph in enumerate(paragraphs):
            lines += ([".PP"] if i else []) + [roff(paragraph)]
        for spelling, sentences in rows:
            lines += [".TP", man_flag(spelling), roff(sentences)]
    return "\n".join(lines) + "\n"


SETTING = re.compile(
    r'SETTING\((\w+), (\w+), [^,]+, "([^"]+)",\s+(NULL|"[^"]*"(?:\s+"[^"]*")*),\s+'
    r'(NULL|"[^"]*"), (.*?), (.*?), '
    r'(true|false),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)'
)
SECTION = re.compile(r'SECTION\("([^"]+)"\)')


def table_text(path):
    """The text of a table, with that of the tables that it includes."""
    return re.sub(r'#include "([^"]+)"', lambda match: table_text(ROOT / "src" / match[1]),
                  path.read_text())


def settings_of(text):
    """[(title, [row])] of src/config/settings.def; a row is a dict."""
    sections = []
    for match in re.finditer(f"{SECTION.pattern}|{SETTING.pattern}", text):
        title, field, kind, flag, value, fallback, low, high, reloads, sentences = match.groups()
        if title:
            sections.append((title, []))
            continue
        words = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', sentences)).replace('\\"', '"')
        sections[-1][1].append({
            "kind": kind, "flag": flag, "value": re.sub(r'"\s*"?', "", value), "low": low, "high": high,
            "fallback": "" if fallback == "NULL" else fallback.strip('"'),
            "reloads": reloads == "true", "help": words,
        })
    return sections


def size_name(text):
    """A bound of the table, which may be written as a shift, in the units of the config file."""
    match = re.fullmatch(r"1(?:ull)? << (\d+)", text)
    number = 1 << int(match.group(1)) if match else int(text)
    for unit in ("", "K", "M", "G"):
        if number == 0 or number % 1024:
            return f"{number}{unit}"
        number //= 1024
    return f"{number}T"


def range_of(row):
    if row["kind"] == "BOOL":
        return "true, false"
    if row["kind"] == "WORD":
        return row["value"].replace("|", ", ")
    if row["kind"] == "SIZE":
        return f"{size_name(row['low'])} to {size_name(row['high'])}"
    if row["kind"] in ("INT", "REAL"):
        return f"{row['low']} to {row['high']}"
    return "texts" if row["kind"] == "LIST" else "text"


def settings_markdown(sections):
    lines = []
    for title, rows in sections:
        lines += [f"## {title}", "", "| setting | environment | default | values | reloads | |",
                  "|---|---|---|---|---|---|"]
        for row in rows:
            env = "JITNEY_" + row["flag"].upper().replace("-", "_")
            fallback = row["fallback"] or ("false" if row["kind"] == "BOOL" else "")
            help_text = row["help"].replace("|", "\\|")
            lines.append(f"| `{row['flag']}` | `{env}` | {fallback} | {range_of(row)} "
                         f"| {'yes' if row['reloads'] else ''} | {help_text} |")
        lines.append("")
    return "\n".join(lines)


RANGE = re.compile(r"#define SAMPLE_\w+\(X\) X\((\w+), (INT|REAL), ([^,]+), ([^,]+), ([^,]+), \\")


def ranges_python(text):
    """The rows of src/sample/ranges.def as members of a Python dict."""
    lines = []
    for name, kind, least, most, fallback in RANGE.findall(text):
        kind = "int" if kind == "INT" else "float"
        lines.append(f'    "{name}": Range({kind}, {least}, {most}, {fallback}),\n')
    return "".join(lines)


def between(text, begin, end, inside):
    head, rest = text.split(begin)
    return head + begin + inside + end + rest.split(end)[1]


def main():
    words = [w for w in sys.argv[1:] if w != "--check"]
    jitney = words[0] if words else str(ROOT / "build/jitney")
    commands = commands_of(jitney)
    stale = []
    for path, begin, end, inside in (
        (
            "docs/cli.md",
            "<!-- made by tools/make_cli_docs.py -->\n",
            "<!-- end -->\n",
            "\n" + markdown(jitney, commands) + "\n",
        ),
        (
            "docs/jitney.1",
            '.\\" made by tools/make_cli_docs.py\n',
            '.\\" end\n',
            man(jitney, commands),
        ),
        (
            "docs/configuration.md",
            "<!-- made by tools/make_cli_docs.py -->\n",
            "<!-- end -->\n",
            "\n" + settings_markdown(settings_of(table_text(ROOT / "src/config/settings.def"))),
        ),
        (
            "python/jitney/_ranges.py",
            "    # made by tools/make_cli_docs.py\n",
            "    # end\n",
            ranges_python((ROOT / "src/sample/ranges.def").read_text()),
        ),
    ):
        old = (ROOT / path).read_text()
        new = between(old, begin, end, inside)
        if new != old:
            stale.append(path)
            if "--check" not in sys.argv:
                (ROOT / path).write_text(new)
    if stale and "--check" in sys.argv:
        sys.exit(f"{', '.join(stale)}: not what the tables say; run tools/make_cli_docs.py")


if __name__ == "__main__":
    main()
