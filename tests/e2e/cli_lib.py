"""What the end-to-end tests of the command line share: running the program, small models."""

import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JITNEY = os.environ.get("JITNEY", str(ROOT / "build" / "jitney"))
GOLDEN = ROOT / "tests" / "golden" / "models"
DATA = Path(os.environ.get("JITNEY_TEST_DATA", ROOT.parent / "shared" / "data"))

USAGE, BAD, MISSING, CREATE, IO = 64, 65, 66, 73, 74

CHATML = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def run(*args, stdin=b"", env=None, cwd=None, timeout=120):
    """(exit code, standard output, standard error) of one run, as bytes."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    done = subprocess.run(
        [JITNEY, *map(str, args)],
        input=stdin,
        capture_output=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def out(*args, **how):
    """Standard output of a run that must succeed."""
    code, stdout, stderr = run(*args, **how)
    assert code == 0, (args, code, stderr)
    return stdout


def answer(*args, **how):
    """The JSON object of a run that must succeed."""
    return json.loads(out(*args, "--json", **how))


def refusal(code, *args, **how):
    """The one line of a run that must fail with `code` and print nothing else."""
    got, stdout, stderr = run(*args, **how)
    assert got == code, (args, got, stderr)
    assert stdout == b"", args
    assert stderr.startswith(b"jitney: ") and stderr.endswith(b"\n"), stderr
    assert stderr.count(b"\n") == 1, stderr
    return stderr.decode()


def talking_model(folder, template=CHATML):
    """A tiny model with random weights and a chat template, in `folder`."""
    shutil.copytree(GOLDEN / "llama", folder, ignore=shutil.ignore_patterns("*.gguf", "goldens*"))
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["chat_template"] = template
    path.write_text(json.dumps(config))
    return folder
