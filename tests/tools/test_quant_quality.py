"""The encoders against llama.cpp's: the same numbers, the same importance, the error of both.

llama.cpp's encoder is `ggml_quantize_chunk`, which the package `xllamacpp` exports from its shared
library; without that package (tools/goldens-requirements.txt has it) those tests are skipped.
Numbers: random ones, and SmolLM2's weights with noise (tools/make_noised_model.py) where `jitney
pull smollm2` has fetched them. -s prints the table.
"""

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from make_noised_model import noised  # noqa: E402

BUILD = Path(os.environ.get("JITNEY", str(ROOT / "build" / "jitney"))).parent
DRIVER = BUILD / "tests" / "encode_driver"
MODEL = Path(os.environ.get("JITNEY_CACHE", Path.home() / ".cache" / "jitney"))
MODEL = MODEL / "models" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]
MOST = 1.01  # times llama.cpp's error
SEED = 7

needs_driver = pytest.mark.skipif(not DRIVER.exists(), reason=f"{DRIVER} is not built")
pytestmark = needs_driver


@pytest.fixture(scope="module")
def ggml():
    found = importlib.util.find_spec("xllamacpp")
    if not found:
        pytest.skip("xllamacpp is not installed")
    library = next(Path(found.submodule_search_locations[0]).glob("xllamacpp*.so"))
    ggml = ctypes.CDLL(str(library))
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                         ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
                                         ctypes.c_void_p]
    return ggml


def theirs(ggml, name, x, importance):
    kind = gguf.GGMLQuantizationType[name]
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((x.shape[0], x.shape[1] // elems * size), np.uint8)
    used = ggml.ggml_quantize_chunk(int(kind), x.ctypes.data, out.ctypes.data, 0, *x.shape,
                                    importance.ctypes.data if importance is not None else None)
    assert used == out.nbytes
    return gguf.dequantize(out, kind)


def ours(name, x, importance):
    """(decoded by the gguf package, megabytes of float32 a second on one thread)."""
    command = [str(DRIVER), name]
    data = x.tobytes()
    if importance is not None:
        command.append(str(x.shape[1]))
        data = importance.tobytes() + data
    done = subprocess.run(command, input=data, capture_output=True, check=True, timeout=300)
    kind = gguf.GGMLQuantizationType[name]
    values = gguf.dequantize(np.frombuffer(done.stdout, np.uint8).reshape(x.shape[0], -1), kind)
    return values, x.nbytes / 1e6 / float(done.stderr)


def error_of(x, y, importance):
    weights = np.ones(x.shape[1]) if importance is None else importance.astype(np.float64)
    return np.sqrt((weights * (x.astype(np.float64) - y) ** 2).mean() / weights.mean())


def random_rows():
    rng = np.random.default_rng(SEED)
    normal = rng.standard_normal((48, 1024)) * 0.05
    heavy = rng.standard_t(3, (48, 1024)) * 0.02
    return {"normal": normal.astype(np.float32), "heavy-tailed": heavy.astype(np.float32)}


def real_rows():
    if not MODEL.exists():
        pytest.skip(f"{MODEL} is not there; `jitney pull smollm2` fetches it")
    rng = np.random.default_rng(SEED)
    reader = gguf.GGUFReader(str(MODEL))
    wanted = ("blk.0.attn_k.weight", "blk.14.ffn_down.weight", "blk.29.attn_v.weight")
    rows = {t.name: noised(t, rng) for t in reader.tensors if t.name in wanted}
    assert len(rows) == len(wanted)
    return {name: np.ascontiguousarray(x.reshape(-1, 256)[:384]) for name, x in rows.items()}


def compare(ggml, name, label, x):
    importance = np.random.default_rng(SEED).lognormal(0, 1, x.shape[1]).astype(np.float32)
    for weights in (None, importance):
        own, rate = ours(name, x, weights)
        mine = error_of(x, own, weights)
        other = error_of(x, theirs(ggml, name, x, weights), weights)
        kind = "with" if weights is not None else "without"
        print(f"{name:7} {label:24} {kind:8} importance: {mine:.6g}, llama.cpp {other:.6g}, "
              f"ratio {mine / other:.4f}; {rate:.0f} MB/s")
        assert mine <= MOST * other, (name, label, kind)


@pytest.mark.parametrize("name", TYPES)
def test_random_numbers_lose_no_more_than_with_llamacpp(ggml, name):
    for label, x in random_rows().items():
        compare(ggml, name, label, x)


@pytest.mark.parametrize("name", TYPES)
def test_real_weights_lose_no_more_than_with_llamacpp(ggml, name):
    for label, x in real_rows().items():
        compare(ggml, name, label, x)


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_plain_types_are_those_of_the_gguf_package(name):
    x = random_rows()["heavy-tailed"]
    done = subprocess.run([str(DRIVER), name], input=x.tobytes(), capture_output=True, check=True)
    wanted = gguf.quantize(x, gguf.GGMLQuantizationType[name])
    assert done.stdout == wanted.tobytes()
