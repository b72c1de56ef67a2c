"""jitney beside the best other engine, row by row, in sentences.

Of a rate the best other engine is the fastest one in the same session; of a time or of memory the
one that takes least. Where the machine's ceiling was measured in that session, jitney's share of it
is given with the arithmetic.
"""

from dataclasses import dataclass

from . import lines, machine
from .common import number
from .results import table_of

REPEATS_MIN = 5
EXACT_WITHIN = 0.02  # of jitney's perplexity: an engine that computes the same model

SIZES = ["slot_ready_s", "slot_rss_mib", "all_ready_s", "all_rss_mib", "all_peak_mib",
         "offline_ready_s", "offline_peak_mib"]


@dataclass
class Comparison:
    row: str
    what: str  # the row's label
    ratio: float  # jitney's value divided by the other engine's
    text: str


def best_peer(cells, among=lambda name: True, is_small=False):
    """The other engine with the best value, by its ratio to jitney in the same session."""
    peers = [c for name, c in cells.items() if name != "jitney" and among(name) and c.ratio]
    if not peers:
        return None
    return min(peers, key=lambda c: c.ratio) if is_small else max(peers, key=lambda c: c.ratio)


def is_exact(table):
    """Which engines compute the same model: by perplexity, where it is known."""
    cells = table.get("perplexity", {})

    def among(name):
        cell = cells.get(name)
        return not cell or not cell.ratio or cell.ratio <= 1 + EXACT_WITHIN
    return among


def few(count):
    return f"; {count} repeat{'s' * (count != 1)} only" if count < REPEATS_MIN else ""


class Comparer:
    """Comparisons of one model and instruction set."""

    def __init__(self, store, model, isa):
        self.isa = isa
        self.table = table_of(store, model, isa)
        self.cost = store.data["models"].get(model, {})

    def ceiling(self, row, session):
        """(tokens a second that the machine allows, the arithmetic), or (None, "")."""
        found = machine.middle([r["ceilings"] for r in session["repeats"] if r.get("ceilings")])
        read, gops = machine.read_gbs(found), machine.int_gops(found, self.isa)
        cost = self.cost
        if row == "decode" and read and cost:
            return (read * 1e9 / cost["bytes"],
                    f"{read:.1f} GB/s read / {cost['bytes'] / 1e6:.1f} MB a token")
        if row == "prompt" and gops and cost:
            return (gops * 1e9 / cost["layer_ops"],
                    f"{gops:.0f} Gop/s / {cost['layer_ops'] / 1e9:.3f} Gop a token")
        if row == "batch" and gops and cost:
            _, tokens_in, tokens_out = session["sizes"]["batch"]
            ops = cost["layer_ops"] * (tokens_in + tokens_out) / tokens_out + cost["head_ops"]
            return gops * 1e9 / ops, f"{gops:.0f} Gop/s / {ops / 1e9:.3f} Gop an output token"
        return None, ""

    def share_text(self, row, best):
        most, arithmetic = self.ceiling(row, best.session)
        if not most:
            return ""
        return f"; {best.base / most:.0%} of the ceiling {number(most)} = {arithmetic}"

    def exact_text(self, row, best):
        """Beside the ratio, that to the best engine which computes the model as exactly."""
        exact = best_peer(self.table[row], is_exact(self.table))
        if is_exact(self.table)(best.engine) or not exact:
            return ""
        worse = self.table["perplexity"][best.engine].ratio
        return (f"; {best.engine}'s perplexity is {worse:.2f} times jitney's, the best engine as "
                f"exact is {exact.engine}: {1 / exact.ratio:.2f} times")

    def compare(self, row, is_small):
        cells = self.table.get(row, {})
        best = best_peer(cells, is_small=is_small)
        if not best:
            return None
        ratio, unit = 1 / best.ratio, lines.unit(row)
        values = f"({number(best.base)} and {number(best.value)} {unit})".replace(" )", ")")
        text = (f"{ratio:.2f} of {best.engine}'s {values}" if is_small else
                f"{ratio:.2f} times {best.engine} {values}")
        if not is_small:
            text += self.share_text(row, best) + self.exact_text(row, best)
        what = lines.label(row, best.session["sizes"])
        return Comparison(row, what, ratio, text + few(len(best.values)))

    def all(self):
        for row in sorted(self.table, key=lines.place):
            is_rate = lines.unit(row) == "tok/s"
            if is_rate or row in SIZES or "/ttft_" in row or "/tpot_" in row:
                found = self.compare(row, not is_rate)
                if found:
                    yield found


def compare_all(store, model, isa):
    """Every row that jitney and another engine have values of, in the table's order."""
    return list(Comparer(store, model, isa).all())
