"""`jitney quantize` to a folder: what it writes, what it needs, and what it refuses.

Folders are read back by jitney and by numpy readers of the published layouts (folder_lib.py); the
logits of jitney are compared with a forward pass in numpy on the numbers that those give.
tests/tools/test_quant_folders.py asks bitsandbytes and transformers.
"""

import json
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cli_lib import BAD, CREATE, GOLDEN, IO, JITNEY, MISSING, ROOT, USAGE, answer, out, refusal, run
from folder_lib import config_of, gptq_parts, nf4_absmax, nf4_state, read_folder, read_tensors

sys.path.insert(0, str(ROOT / "tools"))
from goldens import foreign, llama_numpy  # noqa: E402
from goldens.specs import llama_config  # noqa: E402
from goldens.weights import make_weights  # noqa: E402

LLAMA = GOLDEN / "llama"
FLAGS = {"gptq": ["--nearest"], "awq": ["--nearest"], "nf4": [], "int8": []}
# What rounding to nearest may be off, relative to the root mean square of a matrix.
STEPS = {"gptq": 0.13, "awq": 0.13, "nf4": 0.1, "int8": 0.012}
BESIDE = ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]


def write_source(folder, change=None, like=None, **config):
    """A llama with random weights, or a model like a golden one; the tokenizer of the tiny llama."""
    if like:
        config = {**config_of(GOLDEN / like), "vocab_size": 288, **config}
    else:
        config = llama_config(**{"vocab_size": 288, "num_hidden_layers": 2, "hidden_size": 64,
                                 "intermediate_size": 192, **config})
    tensors = make_weights("quantize", config)
    if change:
        change(tensors)
    folder.mkdir()
    foreign.save(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    for name in BESIDE:
        shutil.copy(LLAMA / name, folder / name)
    return folder


@pytest.fixture(name="source", scope="module")
def source_fixture(tmp_path_factory):
    return write_source(tmp_path_factory.mktemp("source") / "model")


@pytest.fixture(name="text", scope="module")
def text_fixture(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("The quick brown fox jumps over the lazy dog, and then it sleeps. " * 60)
    return path


def relative_error(a, b):
    return np.sqrt(np.mean((a - b) ** 2) / np.mean(b ** 2))


def quantize(source, folder, kind, *flags):
    return answer("quantize", source, folder, "--type", kind, *FLAGS[kind], *flags)


@pytest.mark.parametrize("kind", FLAGS)
@pytest.mark.parametrize("name", ["llama", "phi3", "qwen2-bf16", "mixtral", "gemma3"])
def test_the_matrices_of_layers_are_packed_and_the_rest_is_kept(tmp_path, name, kind):
    before = read_tensors(GOLDEN / name)
    summary = quantize(GOLDEN / name, tmp_path / "q", kind)
    after, packed = read_folder(tmp_path / "q", kind)
    assert sorted(before) == sorted(after)
    wanted = sorted(n for n, t in before.items() if t.ndim == 2 and ".layers." in n
                    and not n.endswith("gate.weight"))
    assert packed == wanted and len(packed) >= 8
    assert summary["type"] == kind and summary["fallbacks"] == 0
    files = (tmp_path / "q").glob("*.safetensors")
    assert summary["file_bytes"] == sum(path.stat().st_size for path in files)
    plain = "bfloat16" if "bf16" in name else "float16"
    assert config_of(tmp_path / "q")["torch_dtype"] == plain
    for key, values in before.items():
        limit = STEPS[kind] if key in packed else 0.0004
        assert after[key].shape == values.shape
        assert relative_error(after[key], values) <= limit, key


def test_the_small_files_are_copied_and_the_config_is_changed(tmp_path, source):
    quantize(source, tmp_path / "q", "gptq", "--group", "32")
    names = sorted(path.name for path in (tmp_path / "q").iterdir())
    assert names == sorted([*BESIDE, "config.json", "model.safetensors"])
    for name in BESIDE:
        assert (tmp_path / "q" / name).read_bytes() == (source / name).read_bytes()
    before, after = config_of(source), config_of(tmp_path / "q")
    assert after.pop("quantization_config")["quant_method"] == "gptq"
    assert {**before, "torch_dtype": "float16"} == after


@pytest.mark.parametrize("kind", ["bert", "bert-cls"])
def test_an_encoder_keeps_its_pooling(tmp_path, kind):
    source, target = GOLDEN / kind, tmp_path / "q"
    quantize(source, target, "int8")
    pooling = "1_Pooling/config.json"
    assert (target / pooling).read_bytes() == (source / pooling).read_bytes()
    ours, theirs = (np.array(out("embed", model, stdin="ABC abc").split(), np.float64)
                    for model in (target, source))
    assert np.linalg.norm(ours - theirs) < 0.02 * np.linalg.norm(theirs)


@pytest.mark.parametrize("kind, worst", [("gptq", 0.06), ("awq", 0.06), ("nf4", 0.06),
                                         ("int8", 0.06)])
def test_jitney_computes_with_the_numbers_of_the_folder(tmp_path, source, text, kind, worst):
    """Activations are rounded to 8 bits, which the bound is for (docs/decisions/0020)."""
    quantize(source, tmp_path / "q", kind)
    values, _ = read_folder(tmp_path / "q", kind)
    out("perplexity", tmp_path / "q", "-f", text, "--ctx", 32, "--chunks", 1, "--dump-logits",
        tmp_path / "logits")
    ids = list(map(int, out("tokenize", tmp_path / "q", stdin=text.read_bytes()).split()))[:32]
    raw = (tmp_path / "logits").read_bytes()
    rows, cols = np.frombuffer(raw[:8], "<i4")
    got = np.frombuffer(raw[8:], np.float32).reshape(rows, cols)
    config = config_of(source)
    want = llama_numpy.logits(config, values, [ids])[0][16:16 + rows]
    assert np.sqrt(np.mean((got - want) ** 2)) < worst


def test_a_zero_point_of_gptq_is_never_zero(tmp_path):
    """Its first version stores zero points less one."""
    def make_positive(tensors):
        name = "model.layers.0.mlp.up_proj.weight"
        tensors[name] = np.abs(tensors[name])

    source = write_source(tmp_path / "source", make_positive)
    quantize(source, tmp_path / "q", "gptq")
    values, _ = read_folder(tmp_path / "q", "gptq")
    name = "model.layers.0.mlp.up_proj"
    _, zeros, _, _ = gptq_parts(read_tensors(tmp_path / "q"), name)
    assert zeros.min() == 1
    before = read_tensors(source)[name + ".weight"]
    assert relative_error(values[name + ".weight"], before) < 0.1


def test_groups(tmp_path, source):
    for flags, size in ([], 64), (["--group", 32], 32), (["--group", 64, "--symmetric"], 64):
        folder = tmp_path / "-".join(map(str, ["q", *flags]))
        quantize(source, folder, "gptq", *flags)
        config = config_of(folder)["quantization_config"]
        assert config["group_size"] == size and config["sym"] == ("--symmetric" in flags)
        read_folder(folder, "gptq")
        if "--symmetric" in flags:
            _, zeros, _, _ = gptq_parts(read_tensors(folder), "model.layers.1.mlp.down_proj")
            assert set(zeros.reshape(-1)) == {8}


def test_rows_that_do_not_divide_into_groups_are_refused(tmp_path, source):
    message = refusal(BAD, "quantize", source, tmp_path / "q", "--type", "awq", "--nearest",
                      "--group", 128)
    assert "_proj.weight: (" in message and "does not divide into groups of 128 columns" in message
    assert message.endswith("; give --group 64\n")
    odd = write_source(tmp_path / "odd", intermediate_size=200)
    message = refusal(BAD, "quantize", odd, tmp_path / "q", "--type", "gptq", "--nearest")
    assert "down_proj.weight: (64, 200) does not divide into groups of 32" in message
    assert "give --type nf4 or int8" in message
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("kind, key", [("nf4", "llm_int8_skip_modules"), ("int8", "ignore")])
def test_rows_that_do_not_divide_into_32_stay_and_are_told(tmp_path, kind, key):
    odd = write_source(tmp_path / "odd", intermediate_size=200)
    code, stdout, stderr = run("quantize", odd, tmp_path / "q", "--type", kind, "--json")
    assert code == 0
    assert stderr.decode() == (
        "jitney: 2 matrices are not quantised, because rows of 200 elements do not divide into "
        "blocks of 32; the first is model.layers.0.mlp.down_proj.weight\n")
    assert json.loads(stdout)["fallbacks"] == 2
    skipped = config_of(tmp_path / "q")["quantization_config"][key]
    assert skipped == ["lm_head", *(f"model.layers.{i}.mlp.down_proj" for i in range(2))]
    _, packed = read_folder(tmp_path / "q", kind)
    assert len(packed) == 12


def test_the_state_of_nf4(tmp_path, source):
    quantize(source, tmp_path / "q", "nf4")
    before, tensors = read_tensors(source), read_tensors(tmp_path / "q")
    name = "model.layers.0.self_attn.k_proj.weight"
    state = nf4_state(tensors, name)
    absmax = np.abs(before[name].reshape(-1, 64)).max(axis=1)
    assert state == {"quant_type": "nf4", "blocksize": 64, "dtype": "float16",
                     "shape": list(before[name].shape), "nested_blocksize": 256,
                     "nested_dtype": "float32", "nested_offset": state["nested_offset"]}
    assert state["nested_offset"] == np.float32(absmax.astype(np.float64).mean())
    assert relative_error(nf4_absmax(tensors, name, state), absmax) < 0.01


def test_the_same_bytes_again(tmp_path, source):
    for kind in FLAGS:
        for threads in (1, 3):
            quantize(source, tmp_path / f"{kind}{threads}", kind, "-t", threads)
        for path in (tmp_path / f"{kind}1").iterdir():
            assert path.read_bytes() == (tmp_path / f"{kind}3" / path.name).read_bytes(), path


def test_report_and_max_kl(tmp_path, source, text):
    args = ["--ctx", 32, "--chunks", 4, "--greedy", 0, "-f", text]
    got = quantize(source, tmp_path / "q", "int8", "--report", *args)
    assert 0 < got["report"]["kl_mean"] < 0.01
    code, _, stderr = run("quantize", source, tmp_path / "r", "--type", "nf4", "--max-kl",
                          "0.000001", *args)
    assert code == 1 and b"nothing was kept" in stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q"]


def test_a_model_without_predictions_is_not_kept(tmp_path, text):
    def heat(tensors):
        for name, tensor in tensors.items():
            if "proj" in name:
                tensors[name] = (np.sign(tensor) * 6e4).astype(np.float32)

    bad = write_source(tmp_path / "bad", heat)
    code, _, stderr = run("quantize", bad, tmp_path / "q", "--type", "nf4", "--max-kl", 1000, "-f",
                          text, "--ctx", 32, "--chunks", 2, "--greedy", 0)
    assert code == 1 and b"the mean KL is inf, more than --max-kl 1000" in stderr, stderr
    assert [p.name for p in tmp_path.iterdir()] == ["bad"]


def test_what_a_report_needs_is_looked_for_before_the_work(tmp_path, source, text):
    """The input has a number that the writer refuses: who gets that far has begun to work."""
    def break_one(tensors):
        tensors["model.layers.1.mlp.up_proj.weight"][2, 7] = np.nan

    bad = write_source(tmp_path / "bad", break_one)
    args = [bad, tmp_path / "q", "--type", "nf4", "--ctx", 32, "-f"]
    assert "up_proj" in refusal(BAD, "quantize", *args, text, "--report")
    message = refusal(MISSING, "quantize", *args, tmp_path / "none", "--report")
    assert "none: cannot open: No such file" in message
    assert "is a folder" in refusal(BAD, "quantize", *args, tmp_path, "--max-kl", 1)
    message = refusal(CREATE, "quantize", *args, text, "--report", "--svg", tmp_path / "no" / "x")
    assert "no/x: cannot create" in message
    message = refusal(USAGE, "quantize", source, tmp_path / "q", "--type", "gptq", "--calibrate",
                      "-", "--report", "-f", "-", stdin=text.read_bytes())
    assert "both read standard input" in message
    assert [p.name for p in tmp_path.iterdir()] == ["bad"]


def test_layers_of_a_gguf_and_a_folder_are_not_exchanged(tmp_path, text):
    args = ["--report", "-f", text, "--ctx", 32, "--greedy", 0, "--svg", tmp_path / "x.svg"]
    for source, kind in ((LLAMA, "F16"), (LLAMA / "model.gguf", "nf4")):
        message = refusal(BAD, "quantize", source, tmp_path / "q", "--type", kind, *args)
        assert "--svg" in message and "in different orders" in message
    assert list(tmp_path.iterdir()) == []
    out("quantize", LLAMA, tmp_path / "q", "--type", "nf4", *args)
    assert (tmp_path / "x.svg").exists()


def test_bad_arguments(tmp_path, source):
    target = tmp_path / "q"
    message = refusal(USAGE, "quantize", source, target, "--type", "gptq")
    assert "gptq needs a text; give --calibrate TEXT, or --nearest" in message
    for flags in (["nf4", "--group", 32], ["nf4", "--nearest"], ["awq", "--nearest", "--symmetric"],
                  ["int8", "--symmetric"], ["Q4_0", "--group", 32], ["Q4_0", "--nearest"]):
        message = refusal(USAGE, "quantize", source, target, "--type", *flags)
        assert " is for " in message, message
    assert "unknown type" in refusal(USAGE, "quantize", source, target, "--type", "gptq2")
    refusal(MISSING, "quantize", tmp_path / "none", target, "--type", "nf4")
    assert list(tmp_path.iterdir()) == []


def test_quantised_input_needs_a_flag(tmp_path):
    for name in ("llama-awq", "llama-nf4", "llama-w8a8"):
        message = refusal(BAD, "quantize", GOLDEN / name, tmp_path / "q", "--type", "nf4")
        assert "is quantised already" in message and "--allow-requantize" in message
        answer("quantize", GOLDEN / name, tmp_path / name, "--type", "int8", "--allow-requantize")
        read_folder(tmp_path / name, "int8")
    message = refusal(BAD, "quantize", GOLDEN / "llama-gptq-order", tmp_path / "q", "--type", "nf4",
                      "--allow-requantize")
    assert "act order, which is not converted" in message


def test_an_output_that_exists_is_kept(tmp_path, source):
    (tmp_path / "q").mkdir()
    message = refusal(CREATE, "quantize", source, tmp_path / "q", "--type", "nf4")
    assert "exists already; remove it, or give another name" in message
    assert list((tmp_path / "q").iterdir()) == []
    message = refusal(CREATE, "quantize", source, source, "--type", "nf4")
    assert "is the model itself" in message
    message = refusal(CREATE, "quantize", source, tmp_path / "no" / "q", "--type", "nf4")
    assert "cannot create" in message
    assert [p.name for p in tmp_path.iterdir()] == ["q"]


def test_damaged_input(tmp_path, source):
    cut = tmp_path / "cut"
    shutil.copytree(source, cut)
    raw = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(raw[:-1000])
    message = refusal(BAD, "quantize", cut, tmp_path / "q", "--type", "nf4")
    assert "damaged or cut short" in message

    def break_one(tensors):
        tensors["model.layers.1.mlp.up_proj.weight"][2, 7] = np.nan

    bad = write_source(tmp_path / "bad", break_one)
    for kind, flags in FLAGS.items():
        message = refusal(BAD, "quantize", bad, tmp_path / "q", "--type", kind, *flags)
        assert "model.layers.1.mlp.up_proj.weight: row 2, column 7 is " in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad", "cut"]


@pytest.mark.parametrize("kind", ["nf4", "gptq"])
@pytest.mark.parametrize("values, sentence", [
    ({"hidden_size": 128}, "model.embed_tokens.weight has shape"),
    ({"num_hidden_layers": 3}, "model.layers.2.self_attn.q_proj.weight is missing"),
    ({"num_hidden_layers": 1}, "is of layer 1 (the first is 0), but num_hidden_layers"),
    ({"num_hidden_layers": -1}, "num_hidden_layers: is -1"),
    ({"vocab_size": 300}, "has 288 rows, expected 300"),
    ({"model_type": "mamba"}, 'architecture "mamba" is not supported'),
])
def test_config_and_tensors_disagree(tmp_path, source, kind, values, sentence):
    shutil.copytree(source, tmp_path / "bad")
    config = {**config_of(source), **values}
    (tmp_path / "bad" / "config.json").write_text(json.dumps(config))
    message = refusal(BAD, "quantize", tmp_path / "bad", tmp_path / "q", "--type", kind,
                      *FLAGS[kind])
    assert str(tmp_path / "bad") in message and sentence in message, message
    assert [p.name for p in tmp_path.iterdir()] == ["bad"]


def test_a_full_disk_leaves_nothing(tmp_path, source):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run([JITNEY, "quantize", str(source), str(tmp_path / "q"), "--type", "int8"],
                          capture_output=True, check=False, timeout=60, preexec_fn=limit)
    assert done.returncode == IO, done.stderr
    assert b"cannot write" in done.stderr and b"File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(name="big", scope="module")
def big_fixture(tmp_path_factory):
    """A matrix of 64 MiB, one that the model does not use."""
    def enlarge(tensors):
        some = np.random.default_rng(5).standard_normal((64, 4096)).astype(np.float32)
        tensors["model.layers.0.mlp.more_proj.weight"] = np.tile(some, (64, 1))

    return write_source(tmp_path_factory.mktemp("big") / "model", enlarge)


def test_a_killed_run_leaves_a_part_that_the_next_one_takes_over(tmp_path, big, source):
    target = tmp_path / "q"
    for wait in (0.05, 0.2, 0.4):
        process = subprocess.Popen([JITNEY, "quantize", str(big), str(target), "--type", "nf4",
                                    "-t", "1"], stderr=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            pytest.skip("this machine is done before it can be killed")
        assert not target.exists()
    (tmp_path / "q.part").mkdir(exist_ok=True)
    (tmp_path / "q.part" / "rest").write_text("of a killed run")
    quantize(source, target, "nf4")
    assert [p.name for p in tmp_path.iterdir()] == ["q"]
    assert not (target / "rest").exists()


def test_memory_stays_small(tmp_path, big):
    """Less than two largest tensors (64 MiB each here) and 64 MiB; in fact less than one."""
    script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    for kind, flags in FLAGS.items():
        done = subprocess.run(
            ["python3", "-c", script, JITNEY, "quantize", str(big), str(tmp_path / kind), "--type",
             kind, *flags, "-t", "2"], capture_output=True, check=True, timeout=300)
        peak = int(done.stdout.split()[-1]) * 1024
        assert peak < 2 * (64 << 20) + (64 << 20)
        if "asan" not in JITNEY:
            assert peak < 64 << 20, kind


CALIBRATED = {"gptq": [], "awq": [], "int8": ["--smooth", 0.5]}
SHORT = ["--ctx", 32, "--chunks", 12]


def same_tensors(a, b):
    a, b = read_tensors(a), read_tensors(b)
    return sorted(a) == sorted(b) and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("kind", CALIBRATED)
@pytest.mark.parametrize("name", ["llama", "phi3", "qwen2", "qwen3", "gemma2"])
def test_a_gguf_and_its_folder_give_the_same_tensors(tmp_path, text, name, kind):
    """Also where a GGUF has rows in another order, or norms with 1 added."""
    args = ["--type", kind, "--calibrate", text, *SHORT, *CALIBRATED[kind]]
    folder = write_source(tmp_path / "source", like=name)
    out("quantize", folder, tmp_path / "source.gguf", "--type", "F32")
    out("quantize", folder, tmp_path / "a", *args)
    out("quantize", tmp_path / "source.gguf", tmp_path / "b", *args)
    a, packed = read_folder(tmp_path / "a", kind)
    b, packed_b = read_folder(tmp_path / "b", kind)
    assert packed == packed_b and sorted(a) == sorted(b)
    for key in a:  # scaled norms of gemma: 1 added and taken away again
        assert np.array_equal(a[key], b[key]) or (
            kind != "gptq" and np.abs(a[key] - b[key]).max() < 0.002), key


@pytest.mark.parametrize("kind", CALIBRATED)
def test_calibration_loses_less_than_rounding_to_nearest(tmp_path, source, text, kind):
    args = ["--type", kind, "-f", text, "--greedy", 0, "--report", *SHORT]
    nearest = answer("quantize", source, tmp_path / "n", *args, *FLAGS[kind])
    better = answer("quantize", source, tmp_path / "c", *args, *CALIBRATED[kind], "--calibrate",
                    text)
    # Keys and values of several heads: the input of o is not a multiple of the rows of v.
    matrices = {"gptq": 14, "awq": 12, "int8": 10}[kind]
    assert better["calibration"] == {"tokens": 12 * 32, "matrices": matrices}
    # int8 is as good as exact here: what is left is jitney's rounding of activations.
    share = {"gptq": 0.9, "awq": 1, "int8": 1.2}[kind]
    assert better["report"]["kl_mean"] < share * nearest["report"]["kl_mean"]


def test_scaled_inputs_compute_the_same(tmp_path, source, text):
    """Scales that are multiplied into a matrix are divided out of what makes its input."""
    args = ["--type", "int8", "--calibrate", text, *SHORT]
    out("quantize", source, tmp_path / "q", *args, "--smooth", 0.8)
    before, _ = read_folder(tmp_path / "q", "int8")
    plain = read_tensors(source)
    norm, matrix = "model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.weight"
    scales = plain[norm] / before[norm]
    assert scales.max() / scales.min() > 2
    assert relative_error(before[matrix], plain[matrix] * scales) < 0.015
    other = "model.layers.0.self_attn.o_proj.weight"
    assert relative_error(before[other], plain[other]) < 0.012


def test_act_order(tmp_path, source, text):
    args = ["--type", "gptq", "--group", 32, "--calibrate", text, *SHORT]
    out("quantize", source, tmp_path / "q", *args, "--act-order", "--damp", "0.05", "--symmetric")
    assert config_of(tmp_path / "q")["quantization_config"]["desc_act"] is True
    tensors = read_tensors(tmp_path / "q")
    values, _ = read_folder(tmp_path / "q", "gptq")
    stem = "model.layers.1.mlp.down_proj"
    g_idx = tensors[stem + ".g_idx"]
    assert np.any(np.diff(g_idx) < 0)
    before = read_tensors(source)[stem + ".weight"]
    assert relative_error(values[stem + ".weight"], before) < 0.25
    kl = answer("compare", source, tmp_path / "q", "-f", text, "--greedy", 0, *SHORT)["kl_mean"]
    assert kl < 0.1


@pytest.mark.parametrize("kind", CALIBRATED)
@pytest.mark.parametrize("matrix, value", [("self_attn.v_proj", np.nan), ("mlp.up_proj", np.inf),
                                           ("mlp.down_proj", 1e6)])
def test_numbers_that_a_scale_cannot_hold(tmp_path, text, kind, matrix, value):
    def break_one(tensors):
        tensors[f"model.layers.1.{matrix}.weight"][2, 7] = value

    bad = write_source(tmp_path / "bad", break_one)
    code, _, stderr = run("quantize", bad, tmp_path / "q", "--type", kind, "--calibrate", text,
                          *SHORT)
    assert code == BAD, stderr
    assert f"model.layers.1.{matrix}.weight: row 2, column 7 is ".encode() in stderr
    assert [p.name for p in tmp_path.iterdir()] == ["bad"]


def test_calibration_has_the_same_bytes_with_any_number_of_threads(tmp_path, source, text):
    for kind, flags in CALIBRATED.items():
        for threads in (1, 3):
            out("quantize", source, tmp_path / f"{kind}{threads}", "--type", kind, *flags,
                "--calibrate", text, *SHORT, "-t", threads)
        assert same_tensors(tmp_path / f"{kind}1", tmp_path / f"{kind}3")


def test_calibration_says_what_it_needs_and_what_it_cannot_do(tmp_path, source, text):
    target, args = tmp_path / "q", ["--type", "gptq", "--ctx", 32]
    code, _, stderr = run("quantize", source, target, *args, "--calibrate", text)
    assert code == 0 and b"layer by layer; it needs " in stderr
    short = tmp_path / "short"
    short.write_text("A short text.")
    code, _, stderr = run("quantize", source, tmp_path / "r", *args, "--calibrate", short)
    assert code == BAD and b"short: has 11 tokens, too few for calibration: at least 256 are" in stderr
    experts = write_source(tmp_path / "experts", like="mixtral")
    code, _, stderr = run("quantize", experts, tmp_path / "r", *args, "--calibrate", text)
    assert code == BAD and b"experts" in stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["experts", "q", "short"]
    for flags in (["nf4", "--calibrate", text], ["gptq", "--nearest", "--calibrate", text],
                  ["int8", "--smooth", 0.5], ["gptq", "--nearest", "--act-order"],
                  ["awq", "--calibrate", text, "--damp", 0.1]):
        assert " is for " in refusal(USAGE, "quantize", source, tmp_path / "r", "--type", *flags)


def test_a_killed_calibration_leaves_nothing_but_a_part(tmp_path, source):
    long = tmp_path / "long"
    long.write_text("The quick brown fox jumps over the lazy dog. " * 20000)
    process = subprocess.Popen([JITNEY, "quantize", str(source), str(tmp_path / "q"), "--type",
                                "gptq", "--calibrate", str(long), "--chunks", "400"],
                               stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    if process.wait() == 0:
        pytest.skip("this machine is done before it can be killed")
    assert not (tmp_path / "q").exists()
    quantize(source, tmp_path / "q", "nf4")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["long", "q"]
