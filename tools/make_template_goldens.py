#!/usr/bin/env python3
"""Write golden files for the chat-template language, with Python's jinja2 as the reference.

usage: make_template_goldens.py                     the committed goldens, from our own templates
       make_template_goldens.py --outside OUT DIR [GGUF]
                                                     OUT/outside.json, from the *.jinja of DIR and
                                                     the chat template inside a GGUF file

Needs jinja2 3.1 (the committed files were made with 3.1.6 on Python 3.11). The environment is set
up as the transformers library does it. A golden file is one JSON object:

  {"now": seconds, "vars": {name: {...}}, "templates": {name: source},
   "cases": [{"t": source or "T": template name, "v": vars name, "w": expected text}]}

A case without "w" must be an error. The C test tests/unit/text/test_template_golden.c replays
every file here and in the folder that JITNEY_TEMPLATE_GOLDENS names.
"""

import datetime
import json
import os
import struct
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

import template_cases

NOW = 1721000000
HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "tests", "golden", "template")


class AssistantTracker(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_generation_support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    def _generation_support(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(format):
        utc = datetime.timezone.utc
        return datetime.datetime.fromtimestamp(NOW, utc).replace(tzinfo=None).strftime(format)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[AssistantTracker, jinja2.ext.loopcontrols],
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


ENV = environment()


def render(source, variables):
    """The rendered text, or None for any error. A copy: templates must not share state."""
    try:
        text = ENV.from_string(source).render(**json.loads(json.dumps(variables)))
        text.encode("utf-8")
        return text
    except Exception:
        return None


def case(source, vars_name, variables, template_name=None):
    made = {"T": template_name} if template_name else {"t": source}
    made["v"] = vars_name
    text = render(source, variables)
    if text is not None:
        made["w"] = text
    return made


def write(path, variables, templates, cases):
    errors = sum("w" not in c for c in cases)
    with open(path, "w", encoding="utf-8") as out:
        out.write('{"now": %d,\n"vars": {\n' % NOW)
        rows = [json.dumps(k) + ": " + json.dumps(v, ensure_ascii=False) for k, v in variables.items()]
        out.write(",\n".join(rows) + '},\n"templates": {\n')
        rows = [json.dumps(k) + ": " + json.dumps(v, ensure_ascii=False) for k, v in templates.items()]
        out.write(",\n".join(rows) + '},\n"cases": [\n')
        out.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "]}\n")
    print("%s: %d cases, %d of them errors" % (os.path.basename(path), len(cases), errors))


def conversations_over(templates):
    return [
        case(source, vars_name, variables, template_name=name)
        for name, source in templates.items()
        for vars_name, variables in template_cases.CONVERSATIONS.items()
    ]


def gguf_chat_template(path):
    """tokenizer.chat_template, read with just as much of the format as that takes."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    with open(path, "rb") as file:

        def number(fmt):
            return struct.unpack("<" + fmt, file.read(struct.calcsize(fmt)))[0]

        def text():
            return file.read(number("Q"))

        def skip(kind):
            if kind == 8:
                text()
            elif kind == 9:
                of, count = number("I"), number("Q")
                for _ in range(count):
                    skip(of)
            else:
                file.read(sizes[kind])

        file.read(8)
        number("Q")
        for _ in range(number("Q")):
            key, kind = text(), number("I")
            if key == b"tokenizer.chat_template":
                return text().decode("utf-8")
            skip(kind)
    return None


def outside(out, folder, gguf):
    templates = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jinja"):
            with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
                templates[name] = file.read()
    if gguf:
        templates[os.path.basename(gguf)] = gguf_chat_template(gguf)
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, "outside.json")
    write(path, template_cases.CONVERSATIONS, templates, conversations_over(templates))


def main():
    if len(sys.argv) >= 4 and sys.argv[1] == "--outside":
        outside(sys.argv[2], sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
        return
    os.makedirs(GOLDEN, exist_ok=True)
    cases = [case(source, "std", template_cases.STANDARD) for source in template_cases.SNIPPETS]
    write(os.path.join(GOLDEN, "language.json"), {"std": template_cases.STANDARD}, {}, cases)
    families = template_cases.FAMILIES
    path = os.path.join(GOLDEN, "families.json")
    write(path, template_cases.CONVERSATIONS, families, conversations_over(families))


if __name__ == "__main__":
    main()
