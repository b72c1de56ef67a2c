#!/usr/bin/env python3
"""Turns a .cu file into C++ for the emulator: emulate.py IN.cu OUT.cpp

Launches become calls of emu_launch, dynamic shared memory becomes a pointer.
"""
import re
import sys
from pathlib import Path

LAUNCH = re.compile(r"([A-Za-z_][\w]*(?:<[^<>;]*>)?)<<<(.*?)>>>\((.*?)\);", re.DOTALL)
DYNAMIC = re.compile(r"extern __shared__\s+(?:__align__\(\d+\)\s+)?(\w+)\s+(\w+)\[\];")


def arguments(text):
    """Splits at commas outside parentheses."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[last:i].strip())
            last = i + 1
    return parts + [text[last:].strip()]


def launch(match):
    kernel, config, args = match.groups()
    grid, block, shared, _ = arguments(config)
    return f"emu_launch({grid}, {block}, {shared}, [&] {{ {kernel}({args}); }});"


source = Path(sys.argv[1]).read_text()
source = DYNAMIC.sub(r"\1 *\2 = (\1 *)emu_dynamic_shared();", source)
source = LAUNCH.sub(launch, source)
Path(sys.argv[2]).write_text(f'#include "emulate.h"\n#line 1 "{sys.argv[1]}"\n{source}')
