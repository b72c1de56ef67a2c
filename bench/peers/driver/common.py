"""What all parts share."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PEERS = ROOT / "bench" / "peers"


class Skip(Exception):
    """An engine, or one of its lines, that cannot be measured here, and why."""


def say(text):
    print(f"bench_peers: {text}", file=sys.stderr, flush=True)


def number(value):
    """Four digits, thousands marked."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
