#!/usr/bin/env python3
"""Random templates, rendered by jinja2, as a golden file for tests/unit/text/test_template_golden.c.

usage: random_templates.py OUT COUNT [SEED]

Most are single expressions, of one type or of any; a third are small programs whose blocks set and read the same few names, so
that the rules of scope meet. Results that show a memory address are left out, and so are those
with numbers past 64 bits, which the C version refuses.
"""

import os
import random
import re
import sys

import make_template_goldens as goldens
import template_cases

NAMES = ["a", "b", "f", "s", "u", "e", "n", "t", "fl", "l", "ls", "el", "d", "m", "x", "y", "z", "html", "neg", "text", "quote", "mixed", "third"]
TEXTS = ["''", "'a'", "'Hello World'", "'a,b,,c'", "'  x '", "'äß日😀'", "'<b>&'", "'%s-%s'", "'%5.1f|'", "'{}:{!r}'", "'{0:>4}|'", "'1_0'", "'0x1f'", "'-12.50'", "'A b-c (d'", "'x\\ny\\r\\nz'", "\"it's\""]
NUMBERS = ["0", "1", "2", "3", "-1", "7", "10", "100", "255", "1.5", "0.1", "2.0", "-0.5", "1e3", "1e17", "0.30000000000000004", "true", "false"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]
TESTS = ["defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence", "iterable", "callable", "odd", "even", "lower", "upper", "escaped", "divisibleby 2", "eq 1", "ne 1", "lt 2", "ge 2", "in [1, 'a']", "sameas none", "filter", "test"]
FILTERS = [
    "abs", "attr('upper')", "attr('x')", "batch(2)|list", "batch(3, 'z')|list", "capitalize", "center(9)", "count", "default('D')",
    "default('D', true)", "dictsort", "dictsort(false, 'value')", "e", "escape", "first", "float", "float(1.5)", "forceescape", "format(1, 'b')",
    "format(2.5)", "groupby('age')", "groupby('city', default='?')", "indent", "indent(2, true)", "indent(1, blank=true)", "int", "int(5)", "int(0, 16)", "items|list", "join",
    "join(', ')", "join('-', attribute='name')", "last", "length", "list", "lower", "map('upper')|list", "map(attribute='name')|list",
    "map(attribute='name', default='?')|list", "map('length')|list", "max", "min", "max(attribute='age')", "reject|list", "reject('odd')|list",
    "rejectattr('age')|list", "replace('a', 'b')", "replace('o', '0', 1)", "reverse", "reverse|list", "round", "round(1)", "round(1, 'floor')", "round(0, 'ceil')",
    "round(-1)", "safe", "select|list", "select('string')|list", "select('defined')|list", "selectattr('name', 'equalto', 'ann')|list",
    "selectattr('age', 'gt', 25)|list", "slice(2)|list", "slice(3, 'f')|list", "sort", "sort(reverse=true)", "sort(attribute='age')", "sort(true, true)", "string",
    "striptags", "sum", "sum(attribute='age')", "sum(start=5)", "title", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)",
    "trim", "trim('a')", "truncate(5)", "truncate(4, true, '..', 0)", "unique|list", "unique(attribute='age')|list", "upper", "urlencode", "wordcount",
    "wordwrap(5)", "wordwrap(4, false)", "xmlattr",
]
METHODS = [
    "upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "lstrip()", "rstrip()", "strip('a ')", "lstrip('Hx')", "split()",
    "split(',')", "split(' ', 1)", "rsplit(none, 1)", "rsplit(',', 1)", "splitlines()", "splitlines(true)", "startswith('a')", "endswith(('d', ' '))", "replace('a', 'XX')",
    "replace('', '.')", "replace('l', '', 1)", "find('o')", "rfind('o', 2)", "find('l', -5, -1)", "index('a')", "count('l')", "count('')", "join(ls)", "join(l)", "format(1, 'z')", "format(x=1)",
    "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "istitle()", "isnumeric()", "isdecimal()", "isidentifier()", "isascii()", "isprintable()",
    "removeprefix('He')", "removesuffix('d')", "zfill(6)", "center(7, '*')", "ljust(7)", "rjust(7, '-')", "partition(',')", "rpartition(' ')", "expandtabs(3)",
    "items()", "keys()|list", "values()|list", "get('x')", "get('q', 0)", "get(1)", "copy()", "index(1)", "count(1)", "append(1)", "pop()", "is_integer()", "bit_length()",
]
ATTRIBUTES = ["x", "y", "name", "age", "items", "upper", "nope", "real", "0", "1", "first"]


def literal(r, depth):
    kind = r.randrange(8)
    if kind < 2:
        return r.choice(TEXTS)
    if kind < 4:
        return r.choice(NUMBERS)
    if kind == 4 and depth > 0:
        return "[" + ", ".join(expression(r, depth - 2) for _ in range(r.randrange(4))) + "]"
    if kind == 5 and depth > 0:
        items = [expression(r, depth - 2) for _ in range(r.randrange(4))]
        return "(" + ", ".join(items) + (",)" if len(items) == 1 else ")")
    if kind == 6 and depth > 0:
        pairs = [r.choice(TEXTS + NUMBERS + ["none"]) + ": " + expression(r, depth - 2) for _ in range(r.randrange(4))]
        return "{" + ", ".join(pairs) + "}"
    return r.choice(["none", "true", "range(%d)" % r.randrange(5), "range(5, %d, -2)" % r.randrange(5), "namespace(x=1)", "dict(x=1, y='b')"])


def subscript(r, depth):
    def part():
        return r.choice(["", "", "0", "1", "2", "-1", "-2", "5"])

    kind = r.randrange(4)
    if kind == 0:
        return "[" + part() + ":" + part() + "]"
    if kind == 1:
        return "[" + part() + ":" + part() + ":" + r.choice(["", "1", "2", "-1", "-2"]) + "]"
    if kind == 2:
        return "[" + expression(r, depth - 2) + "]"
    return "[" + r.choice(["0", "-1", "1", "'x'", "'name'", "'upper'"]) + "]"


def expression(r, depth):
    if depth <= 0:
        return r.choice(NAMES) if r.randrange(2) else r.choice(TEXTS + NUMBERS)
    kind = r.randrange(14)
    if kind == 0:
        return literal(r, depth)
    if kind == 1:
        return r.choice(NAMES)
    if kind in (2, 3):
        return expression(r, depth - 1) + " " + r.choice(BINARY) + " " + expression(r, depth - 1)
    if kind == 4:
        return "(" + expression(r, depth - 1) + ")"
    if kind == 5:
        return r.choice(["not ", "-", "+"]) + expression(r, depth - 1)
    if kind in (6, 7, 8):
        return "(" + expression(r, depth - 1) + ")|" + r.choice(FILTERS)
    if kind == 9:
        return expression(r, depth - 1) + r.choice([" is ", " is not "]) + r.choice(TESTS)
    if kind == 10:
        return "(" + expression(r, depth - 1) + ")." + r.choice(METHODS)
    if kind == 11:
        # jinja2 folds a slice of a constant by other rules than it runs one; slice only variables.
        return r.choice(NAMES) + subscript(r, depth)
    if kind == 12:
        return "(" + expression(r, depth - 1) + ")." + r.choice(ATTRIBUTES)
    otherwise = " else " + expression(r, depth - 1) if r.randrange(4) else ""
    return expression(r, depth - 1) + " if " + expression(r, depth - 1) + otherwise


TEXT_FILTERS = ["capitalize", "center(9)", "e", "forceescape", "indent", "indent(2, true)", "lower", "replace('a', 'b')", "reverse", "safe", "string", "striptags", "title", "tojson", "trim", "trim('aH ')", "truncate(5)", "truncate(7, true)", "truncate(6, false, '-', 0)", "upper", "urlencode", "wordwrap(6)", "wordwrap(9, false, '|')", "default('D', true)"]
TEXT_METHODS = [m for m in METHODS if m.split("(")[0] in ("upper", "lower", "title", "capitalize", "swapcase", "casefold", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "zfill", "center", "ljust", "rjust", "expandtabs") or m.startswith("replace")]
LIST_FILTERS = ["list", "reverse|list", "select|list", "reject('string')|list", "map('string')|list", "map('upper')|list", "map('tojson')|list", "unique|list", "batch(2)|list", "slice(2)|list", "map('default', 0)|list", "map('trim')|map('length')|list"]


def text_of(r, depth):
    """An expression that is a text."""
    if depth <= 0:
        return r.choice(["s", "u", "e", "html", "text", "quote", "csv", "ctl", "sp", "y"] + TEXTS)
    kind = r.randrange(11)
    if kind < 2:
        return "(" + text_of(r, depth - 1) + " " + r.choice(["+", "~"]) + " " + text_of(r, depth - 1) + ")"
    if kind < 4:
        return text_of(r, depth - 1) + "|" + r.choice(TEXT_FILTERS)
    if kind < 6:
        return "(" + text_of(r, depth - 1) + ")." + r.choice(TEXT_METHODS)
    if kind == 6:
        return "(" + text_of(r, depth - 1) + " if " + number_of(r, depth - 1) + " else " + text_of(r, depth - 1) + ")"
    if kind == 7:
        return "(" + list_of(r, depth - 1) + ")|" + r.choice(["join", "join(',')", "tojson", "string", "join(' - ')"])
    if kind == 8:
        part = r.choice(["[1:]", "[:-1]", "[::2]", "[::-1]", "[-3:]", "[2:5]"])
        return r.choice(["s", "u", "html", "text", "quote"]) + part
    if kind == 9:
        return "('%s|%5s|%-4s|%r' % (" + ", ".join(r.choice([text_of, number_of, list_of])(r, depth - 2) for _ in range(4)) + "))"
    return "('{}|{:>6}|{!r}'.format(" + ", ".join([list_of(r, depth - 2), text_of(r, depth - 2), text_of(r, depth - 2)]) + "))"


def number_of(r, depth):
    if depth <= 0:
        return r.choice(["a", "b", "neg", "f", "fneg", "third", "x"] + NUMBERS)
    kind = r.randrange(9)
    if kind < 3:
        return "(" + number_of(r, depth - 1) + " " + r.choice(["+", "-", "*", "/", "//", "%", "<", ">", "==", "!=", "<=", "and", "or"]) + " " + number_of(r, depth - 1) + ")"
    if kind == 3:
        return r.choice([text_of, list_of])(r, depth - 1) + "|length"
    if kind == 4:
        return "(" + number_of(r, depth - 1) + ")|" + r.choice(["abs", "round", "round(2)", "round(1, 'ceil')", "int", "float", "round(-1)"])
    if kind == 5:
        return "(" + text_of(r, depth - 1) + ")." + r.choice(["find('a')", "rfind('l')", "count('l')", "count('')", "isalpha()", "isupper()", "startswith('H')", "isspace()", "istitle()", "isprintable()"])
    if kind == 6:
        return "(" + text_of(r, depth - 1) + r.choice([" in ", " not in ", " == ", " < "]) + text_of(r, depth - 1) + ")"
    if kind == 7:
        return "(" + r.choice([text_of, list_of, number_of])(r, depth - 1) + " is " + r.choice(TESTS[:15]) + ")"
    return text_of(r, depth - 1) + "|" + r.choice(["int", "float", "wordcount", "int(7)", "length"])


def list_of(r, depth):
    if depth <= 0:
        return r.choice(["l", "ls", "el", "mixed", "m", "range(4)", "d", "keys", "[1, 2]", "('a', 'B')"])
    kind = r.randrange(8)
    if kind < 2:
        return "[" + ", ".join(r.choice([text_of, number_of, list_of])(r, depth - 1) for _ in range(r.randrange(4))) + "]"
    if kind == 2:
        return "(" + list_of(r, depth - 1) + "|list + " + list_of(r, depth - 1) + "|list)"
    if kind == 3:
        return "(" + text_of(r, depth - 1) + ")." + r.choice(["split()", "split('a')", "split(' ', 1)", "rsplit('l', 1)", "splitlines()", "partition('l')", "rsplit(none, 1)"])
    if kind in (4, 5):
        return "(" + list_of(r, depth - 1) + ")|" + r.choice(LIST_FILTERS)
    if kind == 6:
        return r.choice(["l", "ls", "m", "mixed"]) + r.choice(["[1:]", "[:-1]", "[::-1]", "[::2]", "[-2:]"])
    return r.choice(["m|map(attribute='name')|list", "m|selectattr('tags')|list", "d.items()|list", "keys|dictsort", "m|groupby('age')", "ls|sort", "m|sort(attribute='city,age')", "m|rejectattr('age', 'lt', 30)|list", "d.values()|list"])


def tag(r, text):
    left, right = r.choice(["", "", "", "-", "+"]), r.choice(["", "", "", "-", "+"])
    return "{%" + left + " " + text + " " + right + "%}"


def variable(r):
    return r.choice(["x", "y", "z", "a", "ns"])


def body(r, depth, in_loop):
    return "".join(statement(r, depth, in_loop) for _ in range(r.randrange(1, 4)))


def space(r):
    return r.choice(["", "", " ", "\n", "\n  ", "  \n", "t", " u\n", "\r\n"])


def short(r):
    return r.choice(["x", "y", "z", "a", "ns.x", "loop.index", "loop.last", "x + 1", "x ~ y", "a", "b", "caller()", "m(1)", "m(x, 2)", "m()", "varargs", "kwargs", "loop.previtem", "loop.length", "loop.changed(x)", "loop.cycle(1, 2)", "'s'", "1", expression(r, 2)])


def statement(r, depth, in_loop):
    kind = r.randrange(15) if depth > 0 else r.randrange(6)
    if kind < 3:
        return space(r) + r.choice(["{{ %s }}", "{{- %s }}", "{{ %s -}}"]) % short(r) + space(r)
    if kind == 3:
        return space(r) + r.choice(["text", "{# c #}", "{#- c -#}", "\n", "{% raw %}{{ r }}{% endraw %}", "[]"]) + space(r)
    if kind == 4:
        return tag(r, "set %s = %s" % (variable(r) if r.randrange(6) else "ns.x", short(r))) + space(r)
    if kind == 5:
        if in_loop and r.randrange(2):
            return tag(r, "if loop.index is even") + tag(r, r.choice(["break", "continue"])) + tag(r, "endif")
        return tag(r, "set ns = namespace(x=0)")
    inner = space(r) + body(r, depth - 1, in_loop) + space(r)
    if kind in (6, 7):
        out = tag(r, "if " + short(r)) + inner
        if r.randrange(2):
            out += tag(r, "elif " + short(r)) + body(r, depth - 1, in_loop)
        if r.randrange(2):
            out += tag(r, "else") + body(r, depth - 1, in_loop)
        return out + tag(r, "endif")
    if kind in (8, 9, 10):
        over = r.choice(["l", "ls", "el", "d.items()", "'ab'", "range(3)", "m", "nope", "l|map('string')", "[[1, 2], [3, 4]]", "x", "tree"])
        target = r.choice(["x", "y", "x, y"]) if over in ("d.items()", "[[1, 2], [3, 4]]") else r.choice(["x", "y", "a"])
        test = r.choice(["", "", " if x", " if x != 1", " if y"])
        recursive = " recursive" if r.randrange(8) == 0 else ""
        out = tag(r, "for %s in %s%s%s" % (target, over, test, recursive)) + space(r) + body(r, depth - 1, True) + space(r)
        if r.randrange(3) == 0:
            out += tag(r, "else") + body(r, depth - 1, in_loop and not recursive)
        return out + tag(r, "endfor")
    if kind == 11:
        params = r.choice(["", "x", "x, y=2", "x=1, y=x", "z=a"])
        return tag(r, "macro m(%s)" % params) + space(r) + body(r, depth - 1, False) + space(r) + tag(r, "endmacro") + space(r)
    if kind == 12:
        block = r.choice(["with x = %s" % short(r), "with x = 1, y = x", "filter upper", "filter replace('t', x) | trim", "set x", "set y | upper"])
        return tag(r, block) + inner + tag(r, "end" + block.split()[0])
    if kind == 13:
        return tag(r, r.choice(["call m()", "call m(1)", "call(x) m(2)", "call(x, y=1) m()"])) + body(r, depth - 1, False) + tag(r, "endcall")
    return tag(r, "generation") + body(r, depth - 1, False) + tag(r, "endgeneration")


UNSTABLE = re.compile(r"0x[0-9a-f]{6,}|object at|<built-in|<function|<class|\d{19,}|<generator|<bound|memory")


def make(r):
    kind = r.randrange(6)
    if kind == 0:
        return "{{ " + expression(r, r.randrange(1, 5)) + " }}"
    if kind < 4:
        return "{{ " + r.choice([text_of, number_of, list_of])(r, r.randrange(1, 5)) + " }}"
    return body(r, 3, False)


def main():
    out, count = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    r = random.Random(seed)
    variables = dict(template_cases.STANDARD, x=5, y="why")
    cases = []
    while len(cases) < count:
        made = goldens.case(make(r), "std", variables)
        if not UNSTABLE.search(made.get("w", "")):
            cases.append(made)
    os.makedirs(out, exist_ok=True)
    print("seed %d" % seed)
    goldens.write(os.path.join(out, "random.json"), {"std": variables}, {}, cases)


if __name__ == "__main__":
    main()
