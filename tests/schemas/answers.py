#!/usr/bin/env python3
"""Do answers keep to their schemas? A real model, many requests at once, temperature 1.

usage: answers.py [--requests N] [--schemas N] [--concurrent N] [--seed N] [--server PROGRAM]
                  [--model MODEL]

Makes bounded schemas (every text, list and object has a largest size), and asks the model for
values of them: half of the requests are streamed. An answer has finished if its last token is
within the limit of tokens. Every finished answer must be JSON, and valid by the `jsonschema`
package with its checks of formats; an answer that was cut must be the beginning of one.

Exit code 0: at least 95 % have finished, and every finished one is valid.
"""
import argparse
import collections
import concurrent.futures
import decimal
import json
import random
import sys
import time
from pathlib import Path

import jsonschema

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from cli_lib import JITNEY  # noqa: E402
from server_lib import Server  # noqa: E402

TOKENS_MAX = 512
FINISHED_LEAST = 0.95
NAMES = ("name title city colour price amount active status tags owner address phone date id note "
         "score kind level items unit email weight height start end reason code currency").split()
SUBJECTS = ("a hotel", "a bicycle", "a train journey", "an invoice", "a patient", "a film",
            "a weather report", "a software release", "a recipe", "a football match")


class Bounded:
    """Draws schemas whose values have a largest size."""

    def __init__(self, rng):
        self.rng = rng
        self.kinds = (self.text, self.text, self.integer, self.decimal, self.flag, self.choice,
                      self.formatted, self.patterned, self.optional, self.constant)

    def text(self):
        return {"type": "string", "minLength": self.rng.choice((0, 0, 1, 3)),
                "maxLength": self.rng.choice((5, 12, 24, 40))}

    def integer(self):
        least = self.rng.choice((0, 1, -40, 1900))
        return {"type": "integer", "minimum": least,
                "maximum": least + self.rng.choice((3, 99, 1250, 100000))}

    def decimal(self):
        return {"type": "number", "minimum": 0, "exclusiveMaximum": self.rng.choice((1, 90, 1000)),
                "multipleOf": self.rng.choice((0.5, 0.01, 0.25))}

    def flag(self):
        return {"type": "boolean"}

    def choice(self):
        return {"enum": self.rng.choice((["low", "medium", "high"], ["EUR", "USD", "GBP"],
                                         [1, 2, 4, 8], ["yes", "no", None], ["draft", "done"]))}

    def formatted(self):
        return {"type": "string",
                "format": self.rng.choice(("date", "date-time", "time", "uuid", "ipv4"))}

    def patterned(self):
        return {"type": "string",
                "pattern": self.rng.choice(("^[A-Z]{2}-[0-9]{4}$", "^#[0-9a-f]{6}$", "^[a-z]{1,10}$",
                                            "^v[0-9]{1,2}\\.[0-9]{1,2}$", "^(red|green|blue)$"))}

    def optional(self):
        return {"anyOf": [self.text(), {"type": "null"}]}

    def constant(self):
        return {"const": self.rng.choice(("v1", 7, True, None, "Zürich"))}

    def list_of(self, depth):
        least = self.rng.choice((0, 1, 2))
        return {"type": "array", "items": self.value(depth - 1), "minItems": least,
                "maxItems": least + self.rng.choice((0, 1, 2))}

    def record(self, depth):
        names = self.rng.sample(NAMES, self.rng.randint(1, 5 if depth > 1 else 3))
        required = [name for name in names if self.rng.random() < 0.7]
        return {"type": "object", "properties": {name: self.value(depth - 1) for name in names},
                "required": required, "additionalProperties": False}

    def value(self, depth):
        pick = self.rng.random()
        if depth > 0 and pick < 0.2:
            return self.list_of(depth)
        if depth > 0 and pick < 0.35:
            return self.record(depth)
        return self.rng.choice(self.kinds)()

    def schema(self):
        whole = self.record(3)
        if self.rng.random() < 0.2:
            whole["$defs"] = {"part": self.record(1)}
            whole["properties"]["part"] = {"$ref": "#/$defs/part"}
        return whole


def ask(server, schema, number):
    """Returns (finish reason, text)."""
    body = {
        "model": server.model,
        "messages": [{"role": "user",
                      "content": f"Describe {SUBJECTS[number % len(SUBJECTS)]} as JSON."}],
        "temperature": 1, "seed": number, "max_tokens": TOKENS_MAX,
        "response_format": {"type": "json_schema",
                            "json_schema": {"name": "answer", "schema": schema}},
    }
    if number % 2 == 0:
        choice = server.post("/v1/chat/completions", body, timeout=600).json["choices"][0]
        return choice["finish_reason"], choice["message"]["content"]
    reply = server.post("/v1/chat/completions", {**body, "stream": True}, timeout=600)
    choices = [chunk["choices"][0] for chunk in reply.data if chunk.get("choices")]
    return choices[-1]["finish_reason"], "".join(c["delta"].get("content") or "" for c in choices)


def number(text):
    value = decimal.Decimal(text)
    return int(value) if value == int(value) else value


def exact(text):
    """Decimals as they are written: as a float 1.12 is no multiple of 0.01."""
    return json.loads(text, parse_float=number)


def fault_of(schema, text):
    """What is wrong with a finished answer; "" if nothing."""
    try:
        value = exact(text)
    except json.JSONDecodeError as error:
        return f"not JSON: {error}"
    checker = jsonschema.Draft202012Validator(
        exact(json.dumps(schema)), format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    return "; ".join(error.message for error in checker.iter_errors(value))


def run(server, schemas, options):
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.concurrent) as pool:
        waiting = {pool.submit(ask, server, schemas[i % len(schemas)], i): i
                   for i in range(options.requests)}
        for future in concurrent.futures.as_completed(waiting):
            number = waiting[future]
            schema = schemas[number % len(schemas)]
            reason, text = future.result()
            counts[reason] += 1
            fault = fault_of(schema, text) if reason == "stop" else ""
            counts["invalid"] += fault != ""
            if fault or reason != "stop":
                print(f"request {number}: {fault or reason}\n  schema {json.dumps(schema)}\n"
                      f"  answer {text}")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--concurrent", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", default=str(JITNEY))
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    maker = Bounded(random.Random(options.seed))
    schemas = [maker.schema() for _ in range(options.schemas)]
    began = time.monotonic()
    with Server(options.model, "--set", f"max_seqs={options.concurrent}",
                program=options.server) as server:
        counts = run(server, schemas, options)
    share = counts["stop"] / options.requests
    print(f"{options.requests} requests, {options.schemas} schemas, seed {options.seed}, "
          f"{time.monotonic() - began:.0f} s: {counts['stop']} finished ({share:.1%}), "
          f"{counts['length']} cut at {TOKENS_MAX} tokens, {counts['invalid']} invalid")
    return 0 if share >= FINISHED_LEAST and counts["invalid"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
