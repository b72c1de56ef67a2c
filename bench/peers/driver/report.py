"""The table and the comparisons, for a terminal and as Markdown."""

from . import lines, machine
from .common import number
from .comparison import compare_all
from .engines import ENGINES
from .results import keys_of, table_of

ISA_NOTE = ("jitney computes with its {isa} kernels; the peers cannot be held back and use all that "
            "the processor has.")


def engines_in(table):
    found = {engine for cells in table.values() for engine in cells}
    return [name for name in ENGINES if name in found] + sorted(found - set(ENGINES))


def sizes_of(cells):
    return next(iter(cells.values())).session["sizes"]


def label_of(row, cells):
    return lines.label(row, sizes_of(cells))


def heading(store, model, isa):
    """Facts of the machine and of the sessions, a sentence each."""
    sessions = store.sessions(model=model, isa=isa)
    facts, newest = sessions[-1]["machine"], sessions[-1]
    whole = {s["line"]: len(s["repeats"]) for s in sessions}
    dates = sorted({s["machine"]["date"] for s in sessions})
    loads = sorted(r["load"] for s in sessions for r in s["repeats"])
    yield (f"{model}, {newest['mark']['threads']} threads of {facts['cores']} cores ({facts['cpu']}, "
           f"{facts['memory_mib']:,} MiB, Linux {facts['kernel']}); {dates[0]}"
           + (f" to {dates[-1]}" if len(dates) > 1 else ""))
    yield ("medians; repeats by line: " + ", ".join(f"{k} {n}" for k, n in whole.items())
           + (f"; load before the repeats {loads[0]:.1f} to {loads[-1]:.1f}" if loads else ""))
    if isa != "auto":
        yield ISA_NOTE.format(isa=isa)
    found = machine.middle([r["ceilings"] for s in sessions for r in s["repeats"]
                            if r.get("ceilings")])
    if found:
        yield "ceilings: " + ", ".join(
            f"{name} {rate:,.1f} {'GB/s' if 'read' in name else 'Gop/s'}"
            for name, rate in found.items())


def endings(store, model, isa):
    """What is missing and why, what was said of itself, versions."""
    why, notes, versions = {}, {}, {}
    for session in store.sessions(model=model, isa=isa):
        for engine, text in session["skipped"].items():
            why.setdefault((engine, text), []).append(session["line"])
        notes.update(session["notes"])
        versions.update({k: v for k, v in session["versions"].items() if v})
    for (engine, text), letters in why.items():
        yield f"{engine}: skipped ({''.join(letters)}): {text}"
    for engine, settings in notes.items():
        yield f"{engine}: " + ", ".join(f"{k} {v}" for k, v in settings.items())
    if versions:
        yield "versions: " + "; ".join(f"{k}: {v}" for k, v in versions.items())


def put_table(store, model, isa, put):
    table = table_of(store, model, isa)
    names = engines_in(table)
    for line in heading(store, model, isa):
        put(line)
    width = max((len(label_of(r, c)) for r, c in table.items()), default=10) + 2
    put(f"{'':<{width}}{'':<6}" + "".join(f"{name:>22}" for name in names))
    for row in sorted(table, key=lines.place):
        cells = []
        for name in names:
            cell = table[row].get(name)
            if not cell:
                cells.append(f"{'-':>22}")
                continue
            has_ratio = cell.ratio is not None and name != "jitney"
            cells.append(f"{number(cell.value):>14}"
                         + (f" {cell.ratio:6.2f}x" if has_ratio else " " * 8))
        put(f"{label_of(row, table[row]):<{width}}{lines.unit(row):<6}" + "".join(cells))
    for line in endings(store, model, isa):
        put(line)


def put_comparisons(found, put):
    if not found:
        return
    width = max(len(c.what) for c in found) + 2
    put("jitney and the best other engine:")
    for c in found:
        put(f"  {c.what:<{width}}{c.text}")


def put_all(store, put=print):
    for model, isa in keys_of(store):
        put_table(store, model, isa, put)
        put_comparisons(compare_all(store, model, isa), put)
        put("")
    put("ratios are to jitney's value in the same session: of a rate, above 1.00 is faster than "
        "jitney; of a time or memory, more")


# --- Markdown ---

def markdown_table(table, rows, names):
    yield "| | " + " | ".join(names) + " |"
    yield "|---|" + "---:|" * len(names)
    for row in rows:
        cells = []
        for name in names:
            cell = table[row].get(name)
            text = number(cell.value) if cell else "-"
            if cell and name != "jitney" and cell.ratio is not None:
                text += f" ({cell.ratio:.2f})"
            cells.append(text)
        unit = lines.unit(row)
        label = label_of(row, table[row]) + (f", {unit}" if unit else "")
        yield f"| {label} | " + " | ".join(cells) + " |"


def markdown_comparisons(found):
    yield "| | jitney and the best other engine |"
    yield "|---|---|"
    for c in found:
        yield f"| {c.what} | {c.text} |"


def command_of(store, model, isa):
    """What measures it again."""
    sessions = store.sessions(model=model, isa=isa)
    names = dict.fromkeys(name for s in sessions for name in s["engines"])
    only = "" if set(names) >= set(ENGINES) else f" --only {','.join(names)}"
    letters = "".join(dict.fromkeys(s["line"] for s in sessions))
    kernels = "" if isa == "auto" else f" --isa {isa}"
    return f"tools/bench_peers --model {model}{kernels} --lines {letters}{only}"


def markdown_of(store):
    yield ("In brackets: the value divided by jitney's in the same interleaved run. Of a rate, above "
           "1.00 is faster than jitney; of a time or memory, more.")
    for model, isa in keys_of(store):
        table = table_of(store, model, isa)
        rows = sorted(table, key=lines.place)
        over_http = [r for r in rows if r.startswith("http/")]
        yield ""
        yield f"### {model}" + (f", {isa} kernels" if isa != "auto" else "")
        yield ""
        yield f"`{command_of(store, model, isa)}`"
        yield ""
        yield from (f"- {line}" for line in heading(store, model, isa))
        for part in ([r for r in rows if r not in over_http], over_http):
            if part:
                names = engines_in({r: table[r] for r in part})
                yield ""
                yield from markdown_table(table, part, names)
        yield ""
        yield from (f"- {line}" for line in endings(store, model, isa))
        found = compare_all(store, model, isa)
        if found:
            yield ""
            yield from markdown_comparisons(found)
