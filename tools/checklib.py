"""What the check_* tools share: which files there are, C source without its comments,
and the functions in it."""
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def set_up():
    """The tree to check: the first argument, or the one this tool lies in."""
    return Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT


def files_of(root):
    """Every file that is, or could be, under version control; paths relative to root."""
    try:
        listing = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"],
            check=True, capture_output=True).stdout.decode()
        names = [name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):  # a tarball, or a machine without git
        names = [str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()]
        names = [n for n in names if not n.startswith(("build/", ".git/"))]
    return sorted(Path(n) for n in set(names) if (root / n).is_file())


TOKEN = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def blank(text):
    """C source with comments and the insides of literals gone and every line in its place."""
    def replace(match):
        token = match.group()
        if token.startswith('"'):
            return '""'
        if token.startswith("'"):
            return "' '"
        return " " + "\n" * token.count("\n")
    return TOKEN.sub(replace, text)


@dataclass
class Function:
    name: str
    first_line: int
    lines: int
    parameters: int
    signature: str
    body: str  # comments and literals blanked


def parameter_count(signature):
    """Parameters in the last pair of parentheses that is not an attribute's."""
    signature = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", signature, flags=re.DOTALL)
    inside = signature[signature.index("(") + 1:signature.rindex(")")].strip()
    if inside in ("", "void"):
        return 0
    depth = commas = 0
    for c in inside:
        depth += (c in "([") - (c in ")]")
        commas += c == "," and depth == 0
    return commas + 1


def functions_of(source):
    """Yields every function of blanked C source."""
    lines = source.split("\n")
    i = 0
    while i < len(lines):
        if not re.match(r"[A-Za-z_]", lines[i]) or lines[i].startswith(("typedef", "extern \"")):
            i += 1
            continue
        start = i
        while i < len(lines) and not re.search(r"[{;]\s*$|\}\s*$", lines[i]):
            i += 1
        head = "\n".join(lines[start:i + 1])
        match = re.match(r"[^=;{]*?(\w+)\s*\([^;={]*\)[^;={]*\{", head)
        if not match:
            i += 1
            continue
        end = i
        if not re.search(r"\}\s*$", lines[i]):
            while end + 1 < len(lines) and not lines[end].startswith("}"):
                end += 1
        signature = head[:head.index("{")]
        text = "\n".join(lines[start:end + 1])
        yield Function(match.group(1), start + 1, end - start + 1, parameter_count(signature),
                       signature, text[text.index("{"):])
        i = end + 1


def report(tool, problems, checked):
    """Print what was found, in the form editors can follow, and give the exit status."""
    for problem in problems:
        print(problem)
    if problems:
        print(f"{tool}: {len(problems)} problems in {checked}")
        return 1
    print(f"{tool}: {checked}, no problems")
    return 0
