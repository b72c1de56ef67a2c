"""Goal:   jitney's tokenizers agree with the tokenizers and sentencepiece packages.

Method: a small share of tools/diff_tokenizers.py: 2,000 random strings for each family, over
        vocabularies trained on the spot. `make diff` runs 100,000.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(os.environ.get("TOK_DRIVER", ROOT / "build" / "tests" / "tok_driver"))
DATA = Path(os.environ.get("JITNEY_TEST_DATA", ROOT.parent / "shared" / "data"))


def diff(*args):
    if not DRIVER.exists():
        pytest.skip(f"no {DRIVER}")
    pytest.importorskip("tokenizers")
    pytest.importorskip("sentencepiece")
    pytest.importorskip("gguf")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "diff_tokenizers.py", "--driver", DRIVER, *args],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 differences" in done.stdout


@pytest.mark.parametrize("family", ["bytes", "spm", "unigram", "wordpiece", "steps"])
def test_a_family_agrees_with_the_packages(family):
    diff("--count", "2000", "--family", family)


def test_published_vocabularies_agree_with_the_packages():
    if not (DATA / "tokenizers").is_dir():
        pytest.skip(f"no {DATA}/tokenizers")
    diff(
        "--count", "1000", "--family", "gguf", "--gguf", "gpt-2", "llama-spm", "--data", str(DATA)
    )
