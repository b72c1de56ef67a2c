#!/usr/bin/env python3
"""Writes the tables of fields in docs/api.md from a server's /openapi.json.

usage: make_api_docs.py DOCUMENT [--check]

DOCUMENT is a file or an address. What stands between the marks in docs/api.md is replaced; with
--check nothing is written and the exit status is 1 if it would change.
"""
import json
import sys
import urllib.request
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
BEGIN, END = "<!-- fields: made by tools/make_api_docs.py -->\n", "<!-- end of fields -->\n"
SHOWN = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings",
         "/v1/messages", "/api/chat", "/api/generate", "/api/embed", "/tokenize", "/detokenize",
         "/apply-template"]


def read(place):
    if "://" in place:
        with urllib.request.urlopen(place) as reply:
            return json.load(reply)
    return json.loads(Path(place).read_text())


def options(schema):
    return [o for o in schema.get("anyOf", []) if o.get("type") != "null"]


def kinds(schema):
    words = {"boolean": "true or false", "integer": "whole number", "number": "number",
             "string": "text", "array": "list", "object": "object"}
    return " or ".join(words[o["type"]] for o in options(schema)) or "anything"


def plain(number):
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


def limits(schema):
    found = []
    for option in options(schema):
        for low, high, unit in (("minimum", "maximum", ""), ("minItems", "maxItems", " members"),
                                ("minLength", "maxLength", " bytes"),
                                ("minProperties", "maxProperties", " members")):
            if high in option and abs(option[high]) < 2**31 - 1:
                found.append(f"{plain(option.get(low, 0))} to {plain(option[high])}{unit}")
        if "enum" in option:
            found.append(", ".join(f"`{word}`" for word in option["enum"]))
    return "; ".join(dict.fromkeys(found))


def rows(schema, prefix=""):
    """(path, schema, required) of every field, depth first."""
    for name, field in schema.get("properties", {}).items():
        yield prefix + name, field, name in schema.get("required", [])
        for option in options(field):
            yield from rows(option, f"{prefix}{name}.")
            for inner in options(option.get("items", {})):
                yield from rows(inner, f"{prefix}{name}[].")


def table(document, path):
    body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    schema = document["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]
    lines = [f"\n### POST {path}\n", "| field | is | limits | what it does |", "|---|---|---|---|"]
    ignored, refused = [], []
    for name, field, required in rows(schema):
        about = field["description"]
        if about.startswith("Refused: "):
            refused.append(f"`{name}`")
        elif about.startswith("Without effect: "):
            ignored.append(f"`{name}`")
        else:
            if "default" in field:
                about += f" Default {json.dumps(field['default'])}."
            mark = " **required**" if required else ""
            lines.append(f"| `{name}`{mark} | {kinds(field)} | {limits(field)} | {about} |")
    if ignored:
        lines.append(f"\nTaken without effect: {', '.join(ignored)}.")
    if refused:
        lines.append(f"\nRefused by name: {', '.join(refused)}.")
    return "\n".join(lines) + "\n"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    if len(arguments) != 1:
        sys.exit(__doc__.strip())
    document = read(arguments[0])
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = before + BEGIN + "".join(table(document, path) for path in SHOWN) + "\n" + END + after
    if "--check" in sys.argv:
        if made != page:
            sys.exit("make_api_docs: docs/api.md does not say what the server's document says; "
                     "tools/make_api_docs.py writes it anew")
        return
    PAGE.write_text(made)


if __name__ == "__main__":
    main()
