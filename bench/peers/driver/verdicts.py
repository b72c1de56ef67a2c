"""The bars that the project sets itself, and how the measured ratios stand to them.

A ratio is jitney's median by the best peer's in the same session; for times and memory jitney's
must be the smaller. Where a ratio is out of reach because the machine's ceiling, measured in that
session, forbids it, a share of that ceiling counts instead, and the arithmetic is shown.
"""

from dataclasses import dataclass

from . import machine
from .common import number
from .results import table_of

REPEATS_MIN = 5
CEILING_SHARE = 0.85
PERPLEXITY, PERPLEXITY_OFF = 27.9727, 0.005
EXACT_WITHIN = 0.02  # of jitney's perplexity: a peer that computes the same model


@dataclass
class Verdict:
    """passed: None where it was not measured. reached and bar are texts."""
    line: str
    what: str
    reached: str
    bar: str
    passed: object
    how: str = ""

    def word(self):
        return {None: "not measured", True: "pass", False: "FAIL"}[self.passed]


def is_llamacpp(name):
    return name.startswith("llamacpp")


def best_peer(cells, among=lambda name: True, is_small=False):
    """The peer that is hardest to beat: by its ratio to jitney in the same session."""
    peers = [c for name, c in cells.items() if name != "jitney" and among(name) and c.ratio]
    if not peers:
        return None
    return min(peers, key=lambda c: c.ratio) if is_small else max(peers, key=lambda c: c.ratio)


def is_exact(table):
    """Which peers compute the same model: by perplexity, where it is known."""
    cells = table.get("perplexity", {})

    def among(name):
        cell = cells.get(name)
        return not cell or not cell.ratio or cell.ratio <= 1 + EXACT_WITHIN
    return among


class Judge:
    """Verdicts on one model and instruction set."""

    def __init__(self, store, model, isa):
        self.model, self.isa = model, isa
        self.table = table_of(store, model, isa)
        self.cost = store.data["models"].get(model, {})
        self.found = []

    def add(self, *args, **more):
        self.found.append(Verdict(*args, **more))

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

    def faster(self, line, what, row, bar, aim=None, among=lambda name: True, either=False):
        """jitney's rate by the best peer's is at least `bar`; `either`: or the share of the
        ceiling, also where that does not forbid the ratio."""
        text = f">= {bar:g}x" + (f" (aim {aim:g}x)" if aim else "")
        best = best_peer(self.table.get(row, {}), among)
        if not best:
            self.add(line, what, "-", text, None)
            return
        ratio, count = 1 / best.ratio, len(best.values)
        how = f"{number(best.base)} / {number(best.value)} tok/s of {best.engine}" + few(count)
        passed = ratio >= bar
        most, sum_text = self.ceiling(row, best.session)
        if most:
            share = best.base / most
            how += f"; {share:.0%} of the ceiling {number(most)} = {sum_text}"
            forbids = either or bar * best.value > most
            if not passed and forbids and share >= CEILING_SHARE:
                passed, text = True, text + f" or {CEILING_SHARE:.0%} of the ceiling"
        how += self.exact_ratio(row, best)
        self.add(line, what, f"{ratio:.2f}x", text, passed, how)

    def exact_ratio(self, row, best):
        """Beside the ratio, that to the best peer which computes the model as exactly."""
        exact = best_peer(self.table[row], is_exact(self.table))
        if is_exact(self.table)(best.engine) or not exact:
            return ""
        worse = self.table["perplexity"][best.engine].ratio
        return (f"; {best.engine}'s perplexity is {worse:.2f} times jitney's, the best peer as "
                f"exact is {exact.engine}: {1 / exact.ratio:.2f}x")

    def share_of_read(self, line, bar, aim):
        cell = self.table.get("decode", {}).get("jitney")
        most, text = self.ceiling("decode", cell.session) if cell else (None, "")
        bar_text = f">= {bar:.0%} (aim {aim:.0%})"
        if not most:
            self.add(line, "decode, share of the read bandwidth", "-", bar_text, None)
            return
        share = cell.value / most
        self.add(line, "decode, share of the read bandwidth", f"{share:.0%}", bar_text,
                 share >= bar, f"{number(cell.value)} tok/s of {number(most)} = {text}")

    def smaller(self, line, what, row, bar, among=is_llamacpp, peer_row=None):
        """jitney's time or memory is at most `bar` of the best peer's, that of `peer_row`."""
        text, cells = f"<= {bar:g}x", self.table.get(row, {})
        jitney = cells.get("jitney")
        peers = [c for name, c in self.table.get(peer_row or row, {}).items()
                 if name != "jitney" and among(name)]
        if not jitney or not peers:
            self.add(line, what, "-", text, None)
            return
        best = min(peers, key=lambda c: c.value)
        base = best.base if best.base and not peer_row else jitney.value
        ratio = base / best.value
        self.add(line, what, f"{ratio:.2f}x", text, ratio <= bar,
                 f"{number(base)} / {number(best.value)} of {best.engine}" + few(len(best.values)))

    def at_most(self, line, what, row, limit, unit):
        cell = self.table.get(row, {}).get("jitney")
        text = f"<= {limit:g} {unit}".strip()
        if not cell:
            self.add(line, what, "-", text, None)
            return
        self.add(line, what, f"{cell.value:.4g} {unit}".strip(), text, cell.value <= limit,
                 few(len(cell.values)).strip(" ()"))

    def near(self, line, what, row, wanted, off):
        cell = self.table.get(row, {}).get("jitney")
        if not cell or not wanted:
            self.add(line, what, "-", f"within {off:.1%}", None)
            return
        far = cell.value / wanted - 1
        self.add(line, what, f"{far:+.3%}", f"within {off:.1%} of {wanted:.4f}",
                 abs(far) <= off, f"{cell.value:.4f}")


def few(count):
    return f" ({count} repeat{'s' * (count != 1)})" if count < REPEATS_MIN else ""


def judge_main(judge):
    judge.faster("1", "one sequence, decode", "decode", 1.7, 2)
    judge.share_of_read("1", 0.75, 0.85)
    judge.faster("2", "prompt", "prompt", 1.75, 2.2)
    judge.faster("3", "all at once, offline", "batch", 2, 2.5)
    for clients in (8, 16, 32):
        row = f"http/fixed/{clients}"
        judge.faster("3", f"{clients} clients, output", f"{row}/output", 2.3, 2.8, is_llamacpp)
        for share in ("p50", "p99"):
            judge.smaller("3", f"{clients} clients, TTFT {share}", f"{row}/ttft_{share}", 0.4)
    judge.smaller("4", "memory at ready, one slot", "slot_rss_mib", 1)
    judge.smaller("4", "peak memory after the clients", "all_peak_mib", 0.5)
    judge.at_most("4", "KV memory, int8 by f16", "kv_int8_share", 0.53, "")
    base = judge.table.get("perplexity", {}).get("jitney")
    judge.near("4", "perplexity, KV in int8", "perplexity_int8", base and base.value, 0.001)
    judge.at_most("5", "start to ready, warm", "slot_ready_s", 0.15, "s")
    judge.smaller("5", "start to ready, cold", "slot_cold_s", 1, peer_row="slot_ready_s")
    judge.add("7", "AVX-512 and AMX on 16 threads", "-", ">= 1.3x llama.cpp", None,
              "bench/device_cpu.py measures it on such a machine")
    judge.near("8", "perplexity", "perplexity", PERPLEXITY, PERPLEXITY_OFF)


def judge_1b(judge):
    judge.faster("6", "one sequence, decode", "decode", 1.3)
    judge.faster("6", "prompt", "prompt", 1.3)
    judge.faster("6", "all at once, offline", "batch", 1.5)


def judge_8b(judge):
    judge.faster("6", "one sequence, decode", "decode", 1.15, either=True)
    judge.faster("6", "prompt", "prompt", 1.15, either=True)


JUDGES = {"smollm2": judge_main, "llama-1b-q4_k": judge_1b, "llama-1b-q4_0": judge_1b,
          "llama-8b-q4_k": judge_8b}


def judge_all(store, model, isa):
    """Every verdict on a model; none on one without bars."""
    judge = Judge(store, model, isa)
    if model in JUDGES and judge.table:
        JUDGES[model](judge)
    return judge.found
