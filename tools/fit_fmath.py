#!/usr/bin/env python3
"""Derives the polynomial coefficients of src/base/fmath_poly.h.

Each fit minimises the largest relative error of the whole function (Remez exchange, 60 digits,
mpmath), with the leading terms held at their exact values; coefficients are then rounded to
float32. Prints lines to paste and the error that remains.
"""

import struct

from mpmath import mp, mpf

mp.dps = 60


def to_f32(x):
    return struct.unpack("<f", struct.pack("<f", float(x)))[0]


def solve(rows, rhs):
    return mp.lu_solve(mp.matrix(rows), mp.matrix(rhs))


def extrema(error, lo, hi, count):
    """The `count` alternating extrema of `error` on a fine grid, largest kept."""
    points = [lo + (hi - lo) * (1 - mp.cos(mp.pi * i / 1500)) / 2 for i in range(1501)]
    values = [error(p) for p in points]
    runs = []
    for p, v in zip(points, values):
        if runs and (runs[-1][1] > 0) == (v > 0):
            if abs(v) > abs(runs[-1][1]):
                runs[-1] = (p, v)
        else:
            runs.append((p, v))
    while len(runs) > count:
        runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
    return [p for p, _ in runs]


def fit(name, target, weight, degree, lo, hi):
    """Polynomial q with q(x) ~ target(x); error measured as weight(x) * (q - target)."""
    lo, hi = mpf(lo), mpf(hi)
    count = degree + 2
    nodes = [lo + (hi - lo) * (1 - mp.cos(mp.pi * i / (count - 1))) / 2 for i in range(count)]
    for _ in range(12):
        rows = [
            [x**j for j in range(degree + 1)] + [(-1) ** i / weight(x)] for i, x in enumerate(nodes)
        ]
        sol = solve(rows, [target(x) for x in nodes])
        coef = [sol[j] for j in range(degree + 1)]
        new = extrema(lambda x: weight(x) * (mp.polyval(coef[::-1], x) - target(x)), lo, hi, count)
        if len(new) != count:
            break
        nodes = new
    rounded = [to_f32(c) for c in coef]
    grid = [lo + (hi - lo) * i / 4000 for i in range(4001)]
    worst = max(
        abs(weight(x) * (mp.polyval([mpf(c) for c in rounded[::-1]], x) - target(x))) for x in grid
    )
    print(f"{name}: relative error {mp.nstr(worst, 3)} = 2^{mp.nstr(mp.log(worst, 2), 4)}")
    for j, c in enumerate(rounded):
        print(f"    {c:.9g}f")


TINY = mpf(10) ** -12


def exp_tail(x):
    return (mp.exp(x) - 1 - x) / x**2 if abs(x) > TINY else mpf(1) / 2


def log_tail(f):
    return (mp.log(1 + f) - f + f * f / 2) / f**3 if abs(f) > TINY else mpf(1) / 3


def tanh_tail(z):
    x = mp.sqrt(z)
    return (mp.tanh(x) / x - 1) / z if z > TINY else -mpf(1) / 3


def erf_tail(z):
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1 if z > TINY else 2 / mp.sqrt(mp.pi) - 1


fit("exp: (exp(r)-1-r)/r^2", exp_tail, lambda r: r**2 / mp.exp(r), 4, "-0.3467", "0.3467")
fit(
    "log: (log(1+f)-f+f^2/2)/f^3",
    log_tail,
    lambda f: f**3 / mp.log(1 + f) if abs(f) > TINY else f**2,
    8,
    "-0.29290",
    "0.41422",
)
fit(
    "tanh: (tanh(x)/x-1)/x^2, z=x^2",
    tanh_tail,
    lambda z: z * mp.sqrt(z) / mp.tanh(mp.sqrt(z)) if z > TINY else z,
    5,
    "0.01",
    "0.4225",
)
fit(
    "erf: erf(x)/x-1, z=x^2",
    erf_tail,
    lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)) if z > TINY else mp.sqrt(mp.pi) / 2,
    6,
    "0.001",
    "0.8465",
)
fit(
    "erfc: log(erfc(a))",
    lambda a: mp.log(mp.erfc(a)),
    lambda a: mp.erfc(a) / mp.erf(a),
    8,
    "0.92",
    "4",
)
for name, value in (
    ("LN2", mp.ln(2)),
    ("LOG2E", 1 / mp.ln(2)),
    ("PI/2", mp.pi / 2),
    ("2/PI", 2 / mp.pi),
):
    print(name, mp.nstr(value, 45))
