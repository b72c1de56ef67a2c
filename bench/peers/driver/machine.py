"""The machine: what it is, and what it gives at most in the minute of the measurement."""

import os
import platform
import re
import statistics
import subprocess
import time
from pathlib import Path

PEAKS_S = 120
# The integer products of each instruction set, as bench/peaks names them.
PRODUCTS = {"avx2": ("maddubs",), "avx512": ("maddubs", "vpdpbusd"), "portable": ("maddubs",),
            "auto": ("maddubs", "vpdpbusd", "tdpb", "dot")}


def ceilings(peaks, threads):
    """{name: rate} of bench/peaks: GB/s for reading, Gop/s for instructions; empty if it cannot
    be run."""
    try:
        done = subprocess.run([peaks, str(threads)], capture_output=True, text=True, check=False,
                              timeout=PEAKS_S)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return parse_ceilings(done.stdout)


def parse_ceilings(text):
    found = re.findall(r"^(\S.*?)\s+([\d.]+) (?:GB/s|Gop/s)$", text, re.MULTILINE)
    return {name: float(rate) for name, rate in found}


def middle(samples):
    """The median of each ceiling over a session's repeats."""
    names = {name: None for sample in samples for name in sample}
    return {name: statistics.median(s[name] for s in samples if name in s) for name in names}


def read_gbs(found):
    return found.get("memory, read")


def int_gops(found, isa):
    """The fastest integer products that kernels of `isa` can use."""
    words = PRODUCTS.get(isa, PRODUCTS["auto"])
    rates = [rate for name, rate in found.items() if any(w in name for w in words)]
    return max(rates, default=None)


def facts():
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"model name\s*:\s*(.*)", cpuinfo)
    total = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"))
    return {"cpu": model[1] if model else platform.machine(), "cores": os.cpu_count(),
            "memory_mib": int(total[1]) // 1024, "kernel": platform.release(),
            "load_before": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d %H:%M")}
