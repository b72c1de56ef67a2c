"""Results as a picture: bars for what is asked offline, lines over the number of clients. Plain
SVG, written by hand: what a page needs and no more."""

import math
from xml.sax.saxutils import escape

from .report import engines_in
from .results import table_of

WIDTH, PANEL_W, PANEL_H, GAP = 980, 270, 190, 50
LEFT, TOP = 50, 84
COLORS = {"jitney": "#d55e00", "llamacpp": "#0072b2", "llamacpp-q4_0": "#56b4e9",
          "openvino": "#009e73", "openvino-q4_0": "#8fd3b6", "vllm": "#cc79a7",
          "transformers": "#999999"}
OTHER = "#555555"
BARS = [("prompt", "prompt, tok/s"), ("decode", "one sequence, tok/s"),
        ("batch", "all at once, output tok/s")]
LINES = [("output", "clients: output tok/s", False), ("ttft_p50", "clients: TTFT p50, ms", True),
         ("tpot_p50", "clients: TPOT p50, ms", True)]


def text(x, y, what, size=12, anchor="start", **more):
    extra = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items())
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{extra}>'
            f"{escape(str(what))}</text>")


def line(x1, y1, x2, y2, color="#dddddd", width=1):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
            f'stroke-width="{width}"/>')


def short(value):
    if value >= 10000:
        return f"{value / 1000:.0f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def round_steps(top):
    """A few round values up to `top`."""
    raw = top / 5
    base = 10 ** math.floor(math.log10(raw))
    step = next(base * f for f in (1, 2, 2.5, 5, 10) if base * f >= raw)
    return [step * i for i in range(int(top / step + 1e-9) + 1)]


def decades(low, high):
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0 ** i for i in range(first, max(last, first + 1) + 1)]


def frame(x, y, title, ticks, height_of):
    parts = [text(x, y - 12, title, 13, font_weight="bold")]
    for tick in ticks:
        at = y + PANEL_H - height_of(tick)
        parts += [line(x, at, x + PANEL_W, at), text(x - 5, at + 4, short(tick), 10, "end",
                                                     fill="#666666")]
    return parts


def bar_panel(x, y, title, cells, names):
    """One bar for each engine, its value above it."""
    top = max(c.value for c in cells.values()) * 1.12
    def height_of(value):
        return value / top * PANEL_H
    parts = frame(x, y, title, round_steps(top), height_of)
    present = [n for n in names if n in cells]
    slot = PANEL_W / max(len(present), 1)
    for i, name in enumerate(present):
        height = height_of(cells[name].value)
        left, wide = x + slot * (i + 0.14), slot * 0.72
        parts.append(f'<rect x="{left:.1f}" y="{y + PANEL_H - height:.1f}" width="{wide:.1f}" '
                     f'height="{height:.1f}" fill="{COLORS.get(name, OTHER)}"/>')
        parts.append(text(left + wide / 2, y + PANEL_H - height - 4, short(cells[name].value), 10,
                          "middle"))
    return parts


def series_of(table, metric):
    """{engine: [(clients, value)]} of requests with fixed lengths."""
    found = {}
    for row, cells in table.items():
        kind = row.split("/")
        if len(kind) == 4 and kind[1] == "fixed" and kind[3] == metric:
            for name, cell in cells.items():
                found.setdefault(name, []).append((int(kind[2]), cell.value))
    return {name: sorted(points) for name, points in found.items()}


def line_panel(x, y, title, series, is_log):
    clients = sorted({c for points in series.values() for c, _ in points})
    values = [max(v, 1e-3) for points in series.values() for _, v in points]
    if is_log:
        ticks = decades(min(values), max(values))
        low, span = math.log10(ticks[0]), math.log10(ticks[-1] / ticks[0])
        def height_of(value):
            return (math.log10(max(value, ticks[0])) - low) / span * PANEL_H
    else:
        top = max(values) * 1.08
        ticks = round_steps(top)
        def height_of(value):
            return value / top * PANEL_H
    parts = frame(x, y, title, ticks, height_of)
    step = PANEL_W / max(len(clients) - 1, 1)
    for i, count in enumerate(clients):
        parts.append(text(x + step * i, y + PANEL_H + 15, count, 10, "middle", fill="#666666"))
    for name, points in sorted(series.items(), key=lambda item: item[0] == "jitney"):
        color, width = COLORS.get(name, OTHER), 3 if name == "jitney" else 1.8
        spots = [(x + step * clients.index(c), y + PANEL_H - height_of(v)) for c, v in points]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" '
                     f'stroke-width="{width}" stroke-linejoin="round"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.8" fill="{color}"/>' for a, b in spots]
    return parts


def legend(names, y):
    parts, x = [], LEFT
    for name in names:
        parts.append(f'<rect x="{x}" y="{y - 9}" width="11" height="11" '
                     f'fill="{COLORS.get(name, OTHER)}"/>')
        parts.append(text(x + 16, y, name, 12))
        x += 34 + 7 * len(name)
    return parts


def draw(store, model, isa):
    """The picture as SVG text; ValueError if there is nothing to show."""
    table = table_of(store, model, isa)
    names = engines_in(table)
    panels = [("bar", row, title) for row, title in BARS if row in table]
    rows = [panels] if panels else []
    over = [("line", metric, title, is_log) for metric, title, is_log in LINES
            if series_of(table, metric)]
    rows += [over] if over else []
    if not rows:
        raise ValueError(f"no results of {model} with {isa} kernels")
    height = TOP + len(rows) * (PANEL_H + 60) - 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             f'width="{WIDTH}" height="{height}" font-family="sans-serif">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    facts = store.sessions(model=model, isa=isa)[-1]
    kernels = "" if isa == "auto" else f", jitney with {isa} kernels"
    parts.append(text(LEFT, 26, f"{model}, {facts['mark']['threads']} threads, "
                                f"{facts['machine']['cpu']}{kernels}: medians", 15,
                      font_weight="bold"))
    parts += legend(names, 48)
    for r, row in enumerate(rows):
        y = TOP + r * (PANEL_H + 60)
        for i, panel in enumerate(row):
            x = LEFT + i * (PANEL_W + GAP)
            if panel[0] == "bar":
                parts += bar_panel(x, y, panel[2], table[panel[1]], names)
            else:
                parts += line_panel(x, y, panel[2], series_of(table, panel[1]), panel[3])
    return "\n".join([*parts, "</svg>"]) + "\n"
