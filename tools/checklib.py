"""What the check_* tools share: which files there are, and C source without its comments."""
import re
import subprocess
import sys
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


def report(tool, problems, checked):
    """Print what was found, in the form editors can follow, and give the exit status."""
    for problem in problems:
        print(problem)
    if problems:
        print(f"{tool}: {len(problems)} problems in {checked}")
        return 1
    print(f"{tool}: {checked}, no problems")
    return 0
