#!/usr/bin/env python3
"""Makes realistic JSON Schemas with labelled instances, for `jitney grammar bench`.

usage: make_schemas.py FOLDER [COUNT] [SEED]

Three families in turn: signatures of tools, configuration files, nested records. Each file is
{"schema": ..., "tests": [{"valid": bool, "data": ...}]}; instances are drawn from the schema in canonical
property order, and copies of them are damaged. The `jsonschema` package labels all of them, so an instance
that a mistake here makes invalid is labelled invalid. The same seed gives the same files.
"""
import copy
import json
import random
import sys
from pathlib import Path

import jsonschema

WORDS = ("account action address amount author available body brand budget cache category channel city client code "
         "color comment company config content context count country created currency customer data date debug "
         "delay depth description device discount domain duration email enabled end endpoint entry environment "
         "event expires field file filter flags folder format frequency group height hidden history host icon id "
         "image index input interval invoice item key label language latitude level limit line link list locale "
         "location log longitude mode model name namespace note number offset option order output owner page "
         "parameter parent path payload percent phone policy port price priority product profile project protocol "
         "provider quantity query range rating reason record region replicas report request resource result role "
         "rule sampling scale schedule schema scope score section secret service session severity shape size slug "
         "source stage start state status step storage street style subject summary tags target template tenant "
         "text threshold timeout timestamp title token total type unit update url user value variant vendor "
         "version view visibility volume weight width window zone").split()
CHOICES = (["low", "medium", "high"], ["asc", "desc"], ["GET", "POST", "PUT", "DELETE"], ["celsius", "fahrenheit"],
           ["debug", "info", "warning", "error"], ["draft", "published", "archived"], ["EUR", "USD", "GBP", "JPY"],
           ["tcp", "udp"], ["linear", "exponential", None], [1, 2, 4, 8, 16], ["small", "large"])
FORMATS = {"date": "2024-02-29", "date-time": "2023-11-05T08:15:30Z", "time": "08:15:30Z",
           "email": "ada@example.org", "uuid": "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "ipv4": "192.0.2.17",
           "uri": "https://example.org/a/b?c=d", "hostname": "db-1.example.org"}
PATTERNS = (("^[a-z][a-z0-9_]{2,15}$", "some_name1"), ("^[A-Z]{2}-[0-9]{4}$", "AB-1234"),
            ("^#[0-9a-fA-F]{6}$", "#c0ffee"), ("^v?[0-9]+\\.[0-9]+\\.[0-9]+$", "v1.20.3"), ("^\\+?[0-9]{6,14}$", "+4912345678"),
            ("[0-9]", "room 12"), ("^/", "/usr/share"))
TEXTS = ("", "a", "The quick brown fox.", "Zürich — Höhe 408 m", "line one\nline two", "\"quoted\" \\ back", "日本語",
         "x" * 40, "Please send it to the usual address; thank you!", "0")


class Maker:
    """Draws schemas; each draw returns the schema and a function that draws an instance of it."""

    def __init__(self, rng):
        self.rng = rng

    def name(self, taken):
        while True:
            word = "_".join(self.rng.sample(WORDS, self.rng.choice((1, 1, 2))))
            if word not in taken:
                return word

    def described(self, schema):
        if self.rng.random() < 0.6:
            schema["description"] = " ".join(self.rng.sample(WORDS, 5)).capitalize() + "."
        return schema

    def text(self):
        rng, kind = self.rng, self.rng.random()
        if kind < 0.45:
            return {"type": "string"}, lambda: rng.choice(TEXTS)
        if kind < 0.6:
            high = rng.choice((20, 64, 200))
            return {"type": "string", "minLength": 1, "maxLength": high}, lambda: rng.choice(TEXTS[1:])[:high]
        if kind < 0.8:
            name = rng.choice(list(FORMATS))
            return {"type": "string", "format": name}, lambda: FORMATS[name]
        pattern, sample = rng.choice(PATTERNS)
        return {"type": "string", "pattern": pattern}, lambda: sample

    def number(self):
        rng, kind = self.rng, self.rng.random()
        if kind < 0.4:
            return {"type": "integer"}, lambda: rng.choice((0, 7, -12, 123456))
        if kind < 0.65:
            low, high = rng.choice(((0, 100), (1, 65535), (-90, 90), (1, 10)))
            return {"type": "integer", "minimum": low, "maximum": high}, lambda: rng.randint(low, high)
        if kind < 0.8:
            return {"type": "number", "exclusiveMinimum": 0, "maximum": 1}, lambda: rng.choice((0.5, 1, 0.125))
        if kind < 0.9:
            return {"type": "number", "minimum": 0, "multipleOf": 0.25}, lambda: rng.choice((0, 19.75, 3.5))
        return {"type": "number"}, lambda: rng.choice((0.5, -2.25, 1e3, 42))

    def scalar(self):
        rng, kind = self.rng, self.rng.random()
        if kind < 0.45:
            return self.text()
        if kind < 0.7:
            return self.number()
        if kind < 0.8:
            return {"type": "boolean"}, lambda: rng.random() < 0.5
        if kind < 0.93:
            values = rng.choice(CHOICES)
            return {"enum": values}, lambda: rng.choice(values)
        schema, draw = self.text()
        return {"anyOf": [schema, {"type": "null"}]}, lambda: None if rng.random() < 0.4 else draw()

    def value(self, depth):
        kind = self.rng.random()
        if depth <= 0 or kind < 0.6:
            return self.scalar()
        if kind < 0.78:
            return self.array(depth)
        if kind < 0.95:
            return self.record(depth - 1)
        return self.variants(depth - 1)

    def array(self, depth):
        rng = self.rng
        schema, draw = self.value(depth - 1)
        made = {"type": "array", "items": schema}
        low = rng.choice((0, 0, 1))
        high = rng.choice((3, 5, 20))
        if low:
            made["minItems"] = low
        if rng.random() < 0.4:
            made["maxItems"] = high
        return made, lambda: [draw() for _ in range(rng.randint(low, 3))]

    def record(self, depth, count=None):
        rng = self.rng
        parts, required = {}, []
        for _ in range(count or rng.randint(2, 6)):
            name = self.name(parts)
            parts[name] = self.value(depth)
            if rng.random() < 0.6:
                required.append(name)
        made = {"type": "object", "properties": {k: self.described(dict(s)) for k, (s, _) in parts.items()}}
        if required:
            made["required"] = rng.sample(required, len(required))
        closed = rng.random() < 0.6
        if closed:
            made["additionalProperties"] = False
        elif rng.random() < 0.3:
            made["additionalProperties"] = {"type": "string"}

        def draw():
            out = {k: d() for k, (_, d) in parts.items() if k in required or rng.random() < 0.6}
            if not closed and rng.random() < 0.4:
                out["x-" + rng.choice(WORDS)] = "more"
            return out
        return made, draw

    def variants(self, depth):
        rng = self.rng
        parts = []
        for kind in rng.sample(("create", "update", "delete", "move"), rng.randint(2, 3)):
            schema, draw = self.record(depth, rng.randint(1, 3))
            schema["properties"] = {"kind": {"const": kind}, **schema["properties"]}
            schema["required"] = ["kind", *schema.get("required", [])]
            parts.append((schema, kind, draw))

        def one():
            _, kind, draw = rng.choice(parts)
            return {"kind": kind, **draw()}
        return {rng.choice(("oneOf", "anyOf")): [p[0] for p in parts]}, one

    def tool(self):
        schema, draw = self.record(1, self.rng.randint(1, 8))
        return schema, draw

    def configuration(self):
        schema, draw = self.record(3, self.rng.randint(4, 10))
        schema["$schema"] = self.rng.choice(("http://json-schema.org/draft-07/schema#",
                                             "https://json-schema.org/draft/2020-12/schema"))
        labels = {"type": "object", "patternProperties": {"^[a-z][a-z0-9.-]*$": {"type": "string", "maxLength": 63}},
                  "additionalProperties": False}
        schema["properties"]["labels"] = labels
        rng = self.rng

        def full():
            out = draw()
            extra = {k: v for k, v in out.items() if k not in schema["properties"]}
            out = {k: v for k, v in out.items() if k in schema["properties"]}
            if rng.random() < 0.7:
                out["labels"] = {rng.choice(WORDS): "blue" for _ in range(rng.randint(0, 3))}
            return {**out, **extra}
        return schema, full

    def nested(self):
        rng = self.rng
        leaf, draw = self.record(1)
        key = self.name(leaf["properties"])
        node = copy.deepcopy(leaf)
        node["properties"][key] = {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 4}
        schema = {"$defs": {"node": node}, "type": "object",
                  "properties": {"root": {"$ref": "#/$defs/node"}, "total": {"type": "integer", "minimum": 0}},
                  "required": ["root"], "additionalProperties": False}

        def tree(depth):
            out = draw()
            own = {k: v for k, v in out.items() if k in leaf["properties"]}
            if depth and rng.random() < 0.8:
                own[key] = [tree(depth - 1) for _ in range(rng.randint(0, 2))]
            return {**own, **{k: v for k, v in out.items() if k not in leaf["properties"]}}
        return schema, lambda: {"root": tree(2), **({"total": 3} if rng.random() < 0.5 else {})}


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


def damage(rng, value):
    """A copy with one place changed, removed or added."""
    out = copy.deepcopy(value)
    path = rng.choice(list(places(out)))
    if not path:
        return rng.choice((None, [], "text", 5)) if rng.random() < 0.3 else {**out, "unexpected": 1}
    at = out
    for key in path[:-1]:
        at = at[key]
    if rng.random() < 0.3:
        del at[path[-1]]
    elif at[path[-1]] in FORMATS.values():  # the package does not check every format
        at[path[-1]] = rng.choice((None, 7, [], {}))
    else:
        at[path[-1]] = rng.choice((None, True, -1, 1.5, 10 ** 9, "", "zzz", [], {}, [[]], {"a": 1}, "x" * 300))
    return out


def is_valid(schema, data):
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER).is_valid(data)


def main():
    folder = Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        maker = Maker(rng)
        schema, draw = (maker.tool, maker.configuration, maker.nested)[i % 3]()
        drawn = [draw() for _ in range(4)]
        drawn += [damage(rng, d) for d in drawn for _ in range(2)]
        tests = [{"valid": is_valid(schema, data), "data": data} for data in drawn]
        (folder / f"{i:04}.json").write_text(json.dumps({"schema": schema, "tests": tests}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
