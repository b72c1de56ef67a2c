"""Goal: the real models answer as their makers' and peers' programs say.

Method: SmolLM2 against llama.cpp's distributions on a text of our own (tests/golden/smollm2_*),
its perplexity on WikiText-2 where that is at hand, and MiniLM against sentence-transformers'
vectors. Skipped where a model is not in the cache.
"""

import json
import math
import struct

import pytest
from cli_lib import DATA, ROOT, answer, out, run

GOLDEN = ROOT / "tests" / "golden"


def has(model):
    return run("inspect", model)[0] == 0


def read_excerpt():
    blob = (GOLDEN / "smollm2_llamacpp.bin").read_bytes()
    magic, version, _, context, rows, best = struct.unpack_from("<4s5I", blob)
    assert (magic, version) == (b"JTOP", 1)
    at = 24 + 8 * rows  # the tokens that follow and their log-probabilities
    count = rows * best
    tokens = struct.unpack_from(f"<{count}i", blob, at)
    logprobs = struct.unpack_from(f"<{count}f", blob, at + 4 * count)
    return context, rows, best, tokens, logprobs


def log_softmax_at(row, tokens):
    top = max(row)
    total = math.log(math.fsum(math.exp(v - top) for v in row)) + top
    return [row[t] - total for t in tokens]


def kl(theirs, ours):
    """Of the listed tokens, and all others as one more."""
    p, q = [math.exp(v) for v in theirs], [math.exp(v) for v in ours]
    p.append(max(1 - math.fsum(p), 1e-12))
    q.append(max(1 - math.fsum(q), 1e-12))
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q) if a > 0)


@pytest.mark.skipif(not has("smollm2"), reason="smollm2 is not in the cache")
def test_smollm2_agrees_with_llamacpp_on_our_text(tmp_path):
    context, rows, best, tokens, logprobs = read_excerpt()
    dump = tmp_path / "logits"
    said = answer("perplexity", "-m", "smollm2", "-f", GOLDEN / "smollm2_llamacpp.txt",
                  "-c", context, "--chunks", 3, "--dump-logits", dump)
    assert abs(said["perplexity"] / 29.8043 - 1) < 0.02  # 381 positions: a coarse check
    blob = dump.read_bytes()
    got_rows, vocab = struct.unpack_from("<2i", blob)
    assert got_rows == rows
    total = 0.0
    for i in range(0, rows, 4):  # plain Python: a quarter of them is enough
        row = struct.unpack_from(f"<{vocab}f", blob, 8 + 4 * vocab * i)
        part = slice(i * best, (i + 1) * best)
        total += kl(logprobs[part], log_softmax_at(row, tokens[part]))
    assert total / len(range(0, rows, 4)) < 0.01


@pytest.mark.skipif(not has("smollm2"), reason="smollm2 is not in the cache")
@pytest.mark.skipif(not (DATA / "text").exists(), reason="WikiText-2 is not at hand")
def test_smollm2_perplexity_is_llamacpps():
    said = answer("perplexity", "-m", "smollm2", "-f", DATA / "text" / "wikitext2.test.raw",
                  "--chunks", 20, timeout=600)
    assert (said["tokens"], said["chunks"]) == (5100, 20)
    assert abs(said["perplexity"] / 27.9727 - 1) < 0.005


@pytest.mark.skipif(not has("minilm"), reason="minilm is not in the cache")
def test_minilm_vectors_are_those_of_sentence_transformers():
    texts = json.loads((GOLDEN / "minilm.json").read_text())["texts"]
    said = json.loads(out("embed", "-m", "minilm", "-0", "--json", stdin="\0".join(texts)))
    blob = (GOLDEN / "minilm.bin").read_bytes()
    magic, version, count, width = struct.unpack_from("<4s3I", blob)
    assert (magic, version, count, width) == (b"JGLD", 1, len(texts), said["dims"])
    at = 16
    for text, got in zip(texts, said["embeddings"]):
        tokens, rows = struct.unpack_from("<2I", blob, at)
        assert rows == 1
        at += 8 + 4 * tokens
        want = struct.unpack_from(f"<{width}f", blob, at)
        at += 4 * width
        dot = math.fsum(a * b for a, b in zip(got, want))
        size = math.sqrt(math.fsum(a * a for a in got) * math.fsum(b * b for b in want))
        assert 1 - dot / size < 1e-3, text[:60]
