"""`jitney quantize`: the files that it writes, what it needs, and what it refuses.

Files are read back by jitney and by the `gguf` package. Sources are written here with that package;
tests/tools/test_quant_quality.py compares the encoders with llama.cpp's.
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import time

import gguf
import numpy as np
import pytest

from cli_lib import BAD, CREATE, GOLDEN, IO, JITNEY, MISSING, USAGE, answer, out, refusal, run

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS",
         "F16", "BF16", "F32"]
FALLBACKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL"}
LLAMA = GOLDEN / "llama" / "model.gguf"


def write_model(path, widths=(512, 576), rows=24, seed=3, kind=np.float32, extra=()):
    """Two matrices of given widths, a norm, an embedding; not a model that can run."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint32("llama.block_count", 1)
    writer.add_array("test.words", ["a", "", "grüß"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for i, width in enumerate(widths):
        name = f"blk.{i}.ffn_up.weight"
        writer.add_tensor(name, (rng.standard_normal((rows, width)) * 0.05).astype(kind))
    writer.add_tensor("blk.0.ffn_norm.weight", np.ones(widths[0], np.float32))
    writer.add_tensor("token_embd.weight",
                      (rng.standard_normal((rows, widths[0])) * 0.02).astype(kind))
    for name, values in extra:
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors_of(path):
    return {t.name: t for t in gguf.GGUFReader(str(path)).tensors}


def values_of(tensor):
    return gguf.dequantize(tensor.data, tensor.tensor_type)


def step_of(name):
    """About the relative error of a type."""
    return {"F32": 0, "F16": 1e-3, "BF16": 5e-3, "Q8_0": 0.01, "Q6_K": 0.03}.get(
        name, 0.06 if name.startswith("Q5") else 0.11)


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_read_back_by_the_gguf_package(tmp_path, name):
    source = write_model(tmp_path / "in.gguf")
    summary = answer("quantize", source, tmp_path / "out.gguf", "--type", name.lower())
    before, after = tensors_of(source), tensors_of(tmp_path / "out.gguf")
    assert list(before) == list(after)
    assert summary["type"] == name
    assert summary["file_bytes"] == (tmp_path / "out.gguf").stat().st_size
    assert after["blk.0.ffn_up.weight"].tensor_type.name == name
    assert after["blk.1.ffn_up.weight"].tensor_type.name == FALLBACKS.get(name, name)
    assert after["blk.0.ffn_norm.weight"].tensor_type.name == "F32"
    plain = name in ("F32", "F16", "BF16", "Q8_0")
    assert after["token_embd.weight"].tensor_type.name == (name if plain else "Q6_K")
    assert summary["fallbacks"] == (1 if name in FALLBACKS else 0)
    for key, tensor in after.items():
        x, y = values_of(before[key]), values_of(tensor)
        assert x.shape == y.shape
        assert np.sqrt(np.mean((x - y) ** 2) / np.mean(x ** 2)) <= step_of(tensor.tensor_type.name)


def test_keys_are_kept_and_the_file_type_is_new(tmp_path):
    source = write_model(tmp_path / "in.gguf")
    out("quantize", source, tmp_path / "out.gguf", "--type", "Q4_0")
    fields = gguf.GGUFReader(str(tmp_path / "out.gguf")).fields
    assert fields["llama.block_count"].contents() == 1
    assert fields["test.words"].contents() == ["a", "", "grüß"]
    assert fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q4_0
    assert fields["general.quantization_version"].contents() == 2


def test_fallbacks_are_told_once_for_each_kind(tmp_path):
    source = write_model(tmp_path / "in.gguf", widths=(512, 576, 576, 40))
    code, _, stderr = run("quantize", source, tmp_path / "out.gguf", "--type", "Q4_K")
    assert code == 0
    lines = stderr.decode().splitlines()
    assert lines == [
        "jitney: 2 matrices are stored as Q5_0 instead of Q4_K, because rows of 576 elements do "
        "not divide into blocks of 256",
        "jitney: 1 matrix is stored as F16 instead of Q4_K, because rows of 40 elements do not "
        "divide into blocks of 256",
    ]


def test_the_same_bytes_with_any_number_of_threads(tmp_path):
    source = write_model(tmp_path / "in.gguf", widths=(512, 768), rows=700)
    for threads in (1, 2, 5):
        out("quantize", source, tmp_path / f"{threads}.gguf", "--type", "Q4_K", "-t", threads)
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "2.gguf").read_bytes()
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "5.gguf").read_bytes()


@pytest.mark.parametrize("name, most", [("F16", 0.001), ("Q8_0", 0.01), ("Q5_1", 0.15),
                                        ("IQ4_NL", 0.3)])
def test_a_quantised_model_predicts_about_as_before(tmp_path, name, most):
    out("quantize", LLAMA, tmp_path / "m.gguf", "--type", name)
    text = tmp_path / "text"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 40)
    args = ["-f", text, "--ctx", 32]
    before = answer("perplexity", LLAMA, *args)["perplexity"]
    after = answer("perplexity", tmp_path / "m.gguf", *args)["perplexity"]
    assert abs(after / before - 1) < most


def test_f32_to_f16_and_back_loses_nothing_more(tmp_path):
    source = write_model(tmp_path / "in.gguf", kind=np.float16)
    out("quantize", source, tmp_path / "f32.gguf", "--type", "F32")
    out("quantize", tmp_path / "f32.gguf", tmp_path / "f16.gguf", "--type", "F16")
    before, after = tensors_of(source), tensors_of(tmp_path / "f16.gguf")
    for name in before:
        assert np.array_equal(before[name].data, after[name].data), name


def test_quantised_input_needs_a_flag(tmp_path):
    source = write_model(tmp_path / "in.gguf")
    out("quantize", source, tmp_path / "q8.gguf", "--type", "Q8_0")
    message = refusal(BAD, "quantize", tmp_path / "q8.gguf", tmp_path / "q4.gguf", "--type", "Q4_0")
    assert "blk.0.ffn_up.weight: is quantised already (Q8_0)" in message
    assert "--allow-requantize" in message
    summary = answer("quantize", tmp_path / "q8.gguf", tmp_path / "q4.gguf", "--type", "Q4_0",
                     "--allow-requantize")
    assert summary["converted"] == 3
    same = answer("quantize", tmp_path / "q8.gguf", tmp_path / "q8b.gguf", "--type", "Q8_0")
    assert same["converted"] == 0
    assert (tmp_path / "q8.gguf").stat().st_size > 0


def test_bad_arguments(tmp_path):
    source = write_model(tmp_path / "in.gguf")
    assert "no output" in refusal(USAGE, "quantize", source, "--type", "Q4_0")
    assert "no type" in refusal(USAGE, "quantize", source, tmp_path / "o")
    message = refusal(USAGE, "quantize", source, tmp_path / "o", "--type", "Q3_K")
    assert 'unknown type "Q3_K"' in message and "IQ4_XS" in message
    refusal(MISSING, "quantize", tmp_path / "none.gguf", tmp_path / "o", "--type", "Q4_0")
    assert list(tmp_path.iterdir()) == [source]


def test_an_output_that_exists_is_kept(tmp_path):
    source = write_model(tmp_path / "in.gguf")
    before = source.read_bytes()
    assert "is the model itself" in refusal(CREATE, "quantize", source, source, "--type", "Q4_0")
    other = tmp_path / "other.gguf"
    other.write_text("mine")
    message = refusal(CREATE, "quantize", source, other, "--type", "Q4_0")
    assert "exists already; remove it, or give another name" in message
    assert other.read_text() == "mine" and source.read_bytes() == before
    message = refusal(CREATE, "quantize", source, tmp_path / "no" / "o.gguf", "--type", "Q4_0")
    assert "cannot create" in message


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
def test_a_folder_that_may_not_be_written(tmp_path):
    source = write_model(tmp_path / "in.gguf")
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o555)
    for path in (tmp_path, *list(tmp_path.parents)[:-1]):
        if path.stat().st_uid == os.getuid() and path != shut:
            path.chmod(path.stat().st_mode | 0o055)
    command = [JITNEY, "quantize", str(source), str(shut / "o.gguf"), "--type", "Q4_0"]
    if os.getuid() == 0:
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if b"setpriv" in done.stderr or done.returncode in (126, 127):
        pytest.skip("this user may not run the program as another")
    assert done.returncode == CREATE, done.stderr
    assert b"Permission denied" in done.stderr
    assert list(shut.iterdir()) == []


def test_damaged_input(tmp_path):
    source = write_model(tmp_path / "in.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(source.read_bytes()[:-1000])
    assert "damaged or cut short" in refusal(BAD, "quantize", cut, tmp_path / "o", "--type", "Q4_0")
    bad = np.zeros((4, 64), np.float32)
    bad[2, 7] = np.nan
    source = write_model(tmp_path / "nan.gguf", extra=[("blk.1.ffn_down.weight", bad)])
    message = refusal(BAD, "quantize", source, tmp_path / "o", "--type", "Q4_0")
    assert "tensor blk.1.ffn_down.weight: row 2, column 7 is " in message
    bad[2, 7] = 1e6
    source = write_model(tmp_path / "big.gguf", extra=[("blk.1.ffn_down.weight", bad)])
    message = refusal(BAD, "quantize", source, tmp_path / "o", "--type", "F16")
    assert "is 1e+06, expected a finite number up to 65504" in message
    out("quantize", source, tmp_path / "bf16.gguf", "--type", "BF16")
    assert not (tmp_path / "o").exists()


def test_a_limit_of_file_size(tmp_path):
    source = write_model(tmp_path / "in.gguf", rows=200)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        [JITNEY, "quantize", str(source), str(tmp_path / "o.gguf"), "--type", "Q8_0"],
        capture_output=True, check=False, timeout=60, preexec_fn=limit)
    assert done.returncode == IO, done.stderr
    assert b"o.gguf: cannot write" in done.stderr and b"File too large" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["in.gguf"]


def test_no_memory(tmp_path):
    source = write_model(tmp_path / "in.gguf")
    done = subprocess.run(
        ["bash", "-c", 'ulimit -v 30000; exec "$0" "$@"', JITNEY, "quantize", str(source),
         str(tmp_path / "o.gguf"), "--type", "Q4_0", "-t", "64"],
        capture_output=True, check=False, timeout=60)
    if b"AddressSanitizer" in done.stderr or done.returncode == 127:
        pytest.skip("the program does not start with so little memory")
    assert done.returncode in (69, 75), done.stderr
    assert b"memory" in done.stderr
    assert not (tmp_path / "o.gguf").exists()


def test_no_memory_to_map_the_input(tmp_path):
    path = write_model(tmp_path / "in.gguf")
    os.truncate(path, 1 << 36)
    done = subprocess.run(
        ["bash", "-c", 'ulimit -v 300000; exec "$0" "$@"', JITNEY, "quantize", str(path),
         str(tmp_path / "o.gguf"), "--type", "Q4_0"], capture_output=True, check=False, timeout=60)
    if b"AddressSanitizer" in done.stderr or done.returncode == 127:
        pytest.skip("the program does not start with so little memory")
    assert done.returncode == 69, done.stderr
    assert b"in.gguf: cannot map: Cannot allocate memory" in done.stderr


@pytest.fixture(scope="module")
def big_model(tmp_path_factory):
    """Three matrices of 64 MiB each."""
    path = tmp_path_factory.mktemp("big") / "big.gguf"
    rng = np.random.default_rng(5)
    part = (rng.standard_normal((4096, 4096)) * 0.02).astype(np.float32)
    writer = gguf.GGUFWriter(str(path), "llama")
    for i in range(3):
        writer.add_tensor(f"blk.{i}.ffn_up.weight", part)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_memory_stays_small(tmp_path, big_model):
    """Less than two largest tensors (64 MiB each here) and 64 MiB; in fact far less than one."""
    script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    done = subprocess.run(
        ["python3", "-c", script, JITNEY, "quantize", str(big_model), str(tmp_path / "o.gguf"),
         "--type", "Q8_0", "-t", "2"], capture_output=True, check=True, timeout=300)
    peak = int(done.stdout.split()[-1]) * 1024
    assert peak < 2 * (64 << 20) + (64 << 20)
    if "asan" not in JITNEY:
        assert peak < 64 << 20


def test_a_killed_run_leaves_nothing(tmp_path, big_model):
    target = tmp_path / "o.gguf"
    for wait in (0.05, 0.2, 0.5):
        process = subprocess.Popen(
            [JITNEY, "quantize", str(big_model), str(target), "--type", "Q4_K", "-t", "1"],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            pytest.skip("this machine is done before it can be killed")
        assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def calibration_text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("The quick brown fox jumps over the lazy dog, and then it sleeps. " * 60)
    return path


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_calibration_weighs_the_matrices(tmp_path, calibration_text, kind):
    """Of a quantised source the products read rows of 8 bits."""
    args = ["--type", "Q4_0", "--allow-requantize", "--ctx", 32]
    source = tmp_path / "source.gguf"
    out("quantize", LLAMA, source, "--type", kind)
    got = answer("quantize", source, tmp_path / "c.gguf", *args, "--calibrate", calibration_text)
    out("quantize", source, tmp_path / "n.gguf", *args)
    assert got["calibration"]["tokens"] >= 8 * 32
    before, plain = tensors_of(source), tensors_of(tmp_path / "n.gguf")
    weighed = tensors_of(tmp_path / "c.gguf")
    changed = [name for name, t in weighed.items() if not np.array_equal(t.data, plain[name].data)]
    assert len(changed) == got["calibration"]["matrices"]
    wanted = [name for name, t in weighed.items() if t.tensor_type != before[name].tensor_type
              and name != "token_embd.weight"]
    assert set(wanted) <= set(changed) and len(wanted) >= 7


def test_calibration_loses_less(tmp_path, calibration_text):
    args = ["--type", "Q4_0", "--ctx", 32, "-f", calibration_text, "--greedy", 0, "--report"]
    plain = answer("quantize", LLAMA, tmp_path / "n.gguf", *args)
    weighed = answer("quantize", LLAMA, tmp_path / "c.gguf", *args, "--calibrate",
                     calibration_text)
    assert weighed["report"]["kl_mean"] < plain["report"]["kl_mean"]


def test_calibration_is_the_same_with_any_number_of_threads(tmp_path, calibration_text):
    for threads in (1, 3):
        out("quantize", LLAMA, tmp_path / f"{threads}.gguf", "--type", "Q4_K", "--ctx", 32,
            "--calibrate", calibration_text, "-t", threads)
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "3.gguf").read_bytes()


def test_calibration_says_what_it_needs_and_how_much_text(tmp_path, calibration_text):
    short = tmp_path / "short"
    short.write_text("A short text.")
    code, _, stderr = run("quantize", LLAMA, tmp_path / "o", "--type", "Q4_0", "--calibrate", short)
    assert code == BAD
    assert b"too few for calibration: at least 4096 are needed (8 windows of 512)" in stderr
    assert not (tmp_path / "o").exists()
    code, _, stderr = run("quantize", LLAMA, tmp_path / "o", "--type", "Q4_0", "--ctx", 32,
                          "--calibrate", calibration_text)
    assert code == 0
    assert b"calibration runs the model on the CPU; it needs " in stderr
    refusal_code, _, stderr = run("quantize", LLAMA, tmp_path / "p", "--type", "Q4_0",
                                  "--calibrate", tmp_path / "none")
    assert refusal_code == MISSING and b"none" in stderr


# ---- what is found before the work ----


def broken_model(path, value=np.nan):
    """The writer refuses it: who names the tensor has begun to work."""
    shutil.copyfile(LLAMA, path)
    path.chmod(0o644)
    for tensor in gguf.GGUFReader(str(path), "r+").tensors:
        if tensor.name == "blk.1.ffn_down.weight":
            tensor.data[3, 5] = value
            tensor.data.flush()
    return path


LONG = ["--ctx", 32, "--calibrate"]


@pytest.mark.parametrize("kind", [["--type", "Q4_0"], ["--type", "gptq"], ["--type", "awq"],
                                  ["--type", "int8"], ["--budget", "40kB"], ["--bits", 5],
                                  ["--bits", 5, "--plan"]])
def test_a_short_text_for_calibration_is_found_before_the_work(tmp_path, kind):
    source, short = broken_model(tmp_path / "source"), tmp_path / "short"
    short.write_text("too short")
    message = refusal(BAD, "quantize", source, tmp_path / "o", *kind, *LONG, short)
    assert re.search(r"short: has \d+ tokens, too few for calibration: at least 256 are needed "
                     r"\(8 windows of 32\)", message)
    message = refusal(BAD, "quantize", source, tmp_path / "o", *kind, *LONG, short, "--chunks", 3)
    assert "at least 96 are needed (3 windows of 32)" in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["short", "source"]


@pytest.mark.parametrize("kind", [["Q4_0"], ["nf4"], ["gptq", "--nearest"]])
@pytest.mark.parametrize("wants", [["--report"], ["--max-kl", 1]])
def test_a_short_text_for_a_report_is_found_before_the_work(tmp_path, kind, wants):
    source, short = broken_model(tmp_path / "source"), tmp_path / "short"
    short.write_text("too short")
    message = refusal(BAD, "quantize", source, tmp_path / "o", "--type", *kind, *wants, "-f", short,
                      "--ctx", 64)
    assert re.search(r"short: has \d+ tokens, too few for a window: at least 64 are needed", message)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["short", "source"]


@pytest.mark.parametrize("kind", [["--type", "Q4_0"], ["--type", "gptq"], ["--type", "int8"],
                                  ["--bits", 5], ["--bits", 5, "--plan"]])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_a_bad_number_is_found_before_the_model_runs(tmp_path, calibration_text, kind, value):
    source = broken_model(tmp_path / "source", value)
    message = refusal(BAD, "quantize", source, tmp_path / "o", *kind, *LONG, calibration_text)
    assert re.search(r"tensor \S*down\S*: row 3, column 5 is (nan|inf|1e\+06), expected", message)
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("kind", ["Q4_0", "gptq", "awq", "int8"])
def test_a_norm_that_is_no_number_is_found_before_the_model_runs(tmp_path, calibration_text, kind):
    """It is kept as it is, but what the matrices read would not be numbers either."""
    source = tmp_path / "source"
    shutil.copyfile(LLAMA, source)
    source.chmod(0o644)
    for tensor in gguf.GGUFReader(str(source), "r+").tensors:
        if tensor.name == "blk.0.attn_norm.weight":
            tensor.data[3] = np.nan
            tensor.data.flush()
    message = refusal(BAD, "quantize", source, tmp_path / "o", "--type", kind, *LONG,
                      calibration_text)
    assert re.search(r"tensor \S+norm\S*: row 0, column 3 is nan", message)
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


def test_a_model_that_predicts_no_text_is_found_before_the_work(tmp_path, calibration_text):
    for flags in (["--report", "-f"], ["--calibrate"]):
        for kind in ("Q8_0", "int8"):
            message = refusal(BAD, "quantize", GOLDEN / "bert", tmp_path / "o", "--type", kind,
                              "--ctx", 32, *flags, calibration_text)
            assert "is an encoder, which predicts no text" in message
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_there_is_found_before_the_work(tmp_path, calibration_text):
    source = broken_model(tmp_path / "source")
    message = refusal(BAD, "quantize", source, tmp_path / "o", "--type", "Q8_0", "--ctx", 32,
                      "--device", "abacus", "--report", "-f", calibration_text)
    assert "abacus" in message
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("target", [["--budget", "40kB"], ["--bits", 7]])
def test_no_room_for_a_plan_is_found_before_the_work(tmp_path, calibration_text, target):
    """About 40 kB are wanted in both cases; the smallest file that is possible has 29 kB."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (35000, 35000))

    done = subprocess.run([JITNEY, "quantize", str(LLAMA), str(tmp_path / "o"), *map(str, target),
                           *map(str, LONG), str(calibration_text)],
                          capture_output=True, check=False, timeout=60, preexec_fn=limit)
    assert done.returncode == IO and done.stderr.count(b"\n") == 1, done.stderr
    assert b"o: cannot write" in done.stderr
    assert list(tmp_path.iterdir()) == []
