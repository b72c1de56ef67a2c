"""A recording of steps in the form of docs/page.md, made up: seats, blocks and a queue that add up.

It stands in for a long and busy run of an engine where a test needs a picture of a known size."""

import random

ROWS = ["seat", "request", "choice", "tenant", "first", "count", "cached", "sampled", "drafts"]
HELLO = {
    "jitney": "0.1.0", "model": "made-up", "epoch_ms": 1_790_000_000_000, "block_tokens": 16, "rows": ROWS,
    "waiting": ["request", "choice", "tenant", "why"],
    "arrived": ["request", "choice", "tenant", "at_us", "prompt", "max"],
    "admitted": ["request", "choice", "tenant", "seat", "waited_us", "cached"],
    "preempted": ["request", "choice", "why", "how", "for_request", "for_choice"],
    "ended": ["request", "choice", "why", "generated", "at_us"],
}


class Run:
    """One sequence that may be in a seat."""

    def __init__(self, request, at_us, rng):
        self.request, self.at_us = request, at_us
        self.prompt, self.max = rng.choice([24, 60, 400, 900]), rng.randint(8, 160)
        self.cached = rng.choice([0, 0, 16, 48]) if self.prompt > 48 else 0
        self.done, self.written, self.is_new = self.cached, 0, True

    def blocks(self):
        return (self.done + 15) // 16


def made_recording(seats=16, steps=400, blocks=600, load=1.0, seed=1):
    rng = random.Random(seed)
    waiting, seated, at_us, request, out = [], {}, 0, 0, []
    for number in range(1, steps + 1):
        step = {"step": number, "at_us": at_us, "policy": "chunked", "predicted_us": 19000, "target_us": 25000, "sched_us": 40}
        while rng.random() < min(0.9, load * seats / 100) and len(waiting) < 40:
            request += 1
            run = Run(request, at_us, rng)
            waiting.append(run)
            step.setdefault("arrived", []).append([request, 0, 0, at_us, run.prompt, run.max])
        used = sum(r.blocks() for r in seated.values())
        if used > blocks * 0.95 and len(seated) > 1:
            seat = max(seated, key=lambda s: seated[s].request)
            run, winner = seated.pop(seat), min(r.request for r in seated.values())
            run.is_new = False
            waiting.insert(0, run)
            how = rng.choice(["swap", "recompute"])
            step["preempted"] = [[run.request, 0, "memory", how, winner, 0]]
        while waiting and not step.get("preempted") and len(seated) < seats and sum(r.blocks() for r in seated.values()) < blocks * 0.9:
            run = waiting.pop(0)
            seat = min(set(range(seats)) - set(seated))
            seated[seat] = run
            step.setdefault("admitted", []).append([run.request, 0, 0, seat, at_us - run.at_us, run.cached])
        budget, rows = 512, []
        for seat, run in sorted(seated.items()):
            if run.done < run.prompt:
                count = min(budget, run.prompt - run.done, 256)
                if not count:
                    continue
                sampled = int(run.done + count == run.prompt)
                rows.append([seat, run.request, 0, 0, run.done, count, run.cached if run.is_new else 0, sampled, 0])
            else:
                count, sampled = 1, 1
                rows.append([seat, run.request, 0, 0, run.done, 1, 0, 1, 0])
            run.is_new = False
            run.done += count
            run.written += sampled
            budget -= count
        us = 6000 + sum(r[5] for r in rows) * 30 + rng.randint(0, 2000)
        for seat in [s for s, r in seated.items() if r.written >= r.max]:
            run = seated.pop(seat)
            step.setdefault("ended", []).append([run.request, 0, "length", run.written, at_us + us])
        if waiting:
            why = "seat" if len(seated) >= seats else "blocks"
            step["waiting"] = [[r.request, 0, 0, why] for r in waiting[:32]]
        used = sum(r.blocks() for r in seated.values())
        step |= {"us": us, "rows": rows, "waiting_count": len(waiting), "running": len(seated), "swapped": 0,
                 "blocks": {"used": used * 3 // 4, "shared": used // 4, "cached": min(blocks - used, 90),
                            "free": max(0, blocks - used - 90)}}
        out.append(step)
        at_us += us
    state = {"jitney": "0.1.0", "model": "made-up", "policy": "chunked", "policies": [], "knobs": [], "tenants": [""],
             "blocks": {"total": blocks, "block_tokens": 16,
                        "map": [[2, blocks // 3], [3, blocks // 8], [2, 20], [1, 90], [0, blocks - blocks // 3 - blocks // 8 - 110]]},
             "step": steps}
    return {"jitney_recording": 1, "hello": {**HELLO, "seats": seats, "blocks": blocks}, "state": state, "steps": out}
