"""Builds the wheel that `pip install ./python` installs: the package and libjitney.so (PEP 517).

The library is built in build/ of the source tree where that folder exists, else in a temporary
folder. Nothing else is written to the source tree, and nothing is downloaded.
"""

import base64
import hashlib
import re
import subprocess
import sysconfig
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SONAME = "libjitney.so.0"


def field(name):
    """The value of a line NAME = "VALUE" of pyproject.toml."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(rf'^{name} = "(.*)"$', text, re.M).group(1)


def library():
    """The bytes of libjitney.so, built from this tree."""
    if not (ROOT / "tools" / "build").exists():
        raise SystemExit(f"{ROOT} is not the source tree of jitney; install from a checkout of it")
    if (ROOT / "build" / "build.ninja").exists():
        return built_in(ROOT / "build")
    with tempfile.TemporaryDirectory() as folder:
        return built_in(Path(folder))


def built_in(folder):
    command = [str(ROOT / "tools" / "build"), str(folder), "jitney_shared"]
    if not (folder / "build.ninja").exists():
        command.append("-DCMAKE_BUILD_TYPE=Release")
    subprocess.run(command, check=True)
    return (folder / SONAME).read_bytes()


def metadata():
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    return (
        f"Metadata-Version: 2.1\nName: jitney\nVersion: {field('version')}\n"
        f"Summary: {field('description')}\nRequires-Python: {field('requires-python')}\n"
        f"License: Apache-2.0\nDescription-Content-Type: text/markdown\n\n{readme}"
    )


def write_wheel(folder, tag, files):
    """Write `files` (name -> bytes) and what describes them; returns the wheel's name."""
    info = f"jitney-{field('version')}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = metadata().encode()
    pure = str(tag.endswith("-any")).lower()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: jitney\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    ).encode()
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    rows.append(f"{info}/RECORD,,\n")
    files[f"{info}/RECORD"] = "".join(rows).encode()
    wheel = f"jitney-{field('version')}-{tag}.whl"
    with zipfile.ZipFile(Path(folder) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    package = HERE / "jitney"
    sources = sorted([*package.glob("*.py"), package / "py.typed"])
    files = {f"jitney/{path.name}": path.read_bytes() for path in sources}
    files[f"jitney/{SONAME}"] = library()
    platform = re.sub("[-.]", "_", sysconfig.get_platform())
    return write_wheel(wheel_directory, f"py3-none-{platform}", files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package stays in the source tree and finds the library in build/."""
    return write_wheel(wheel_directory, "py3-none-any", {"jitney.pth": f"{HERE}\n".encode()})


def remove_own_cache():
    """Python has compiled this file beside it when pip imported it."""
    cached = Path(globals().get("__cached__") or HERE / "none")
    if cached.exists():
        cached.unlink()
        if not any(cached.parent.iterdir()):
            cached.parent.rmdir()


remove_own_cache()


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("the Python package is built from a checkout of jitney's source tree")
