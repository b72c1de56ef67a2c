"""`jitney quantize FOLDER OUT.gguf`: the file is the folder's model, or a sentence says why not.

Files are read back by jitney and by the `gguf` package. tests/unit/translate compares the logits of
every architecture.
"""

import json
import shutil

import gguf
import pytest

from cli_lib import BAD, GOLDEN, answer, out, refusal, talking_model

PROMPTS = ["Hello there", "The quick brown fox ", "1234, 5: naïve?\n\n"]


@pytest.fixture
def folder(tmp_path):
    return talking_model(tmp_path / "tiny")


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def greedy(model, prompt):
    got = answer("generate", model, "-p", prompt, "-n", 24, "--temp", 0, "--ignore-eos")
    return got["tokens"]


def fields_of(path):
    return gguf.GGUFReader(str(path)).fields


@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_a_folder_and_its_gguf_give_the_same_tokens(tmp_path, folder, kind):
    got = answer("quantize", folder, tmp_path / "m.gguf", "--type", kind)
    assert got["tensors"] == 21
    for prompt in PROMPTS:
        assert greedy(folder, prompt) == greedy(tmp_path / "m.gguf", prompt)


@pytest.mark.parametrize("source, kind, file_type", [
    ("llama-bf16", "BF16", "MOSTLY_BF16"), ("llama-f16", "F16", "MOSTLY_F16")])
def test_matrices_of_16_bits_are_copied(tmp_path, folder, source, kind, file_type):
    """Reordered ones too: their bits are those of the golden file."""
    shutil.copy(GOLDEN / source / "model.safetensors", folder)
    shutil.copy(GOLDEN / source / "config.json", folder)
    small_tokenizer(folder)
    out("quantize", folder, tmp_path / "m.gguf", "--type", kind)
    theirs = {t.name: t for t in gguf.GGUFReader(str(GOLDEN / source / "model.gguf")).tensors}
    ours = {t.name: t for t in gguf.GGUFReader(str(tmp_path / "m.gguf")).tensors}
    assert set(ours) == set(theirs)
    for name, tensor in ours.items():
        assert tensor.tensor_type == theirs[name].tensor_type
        assert tensor.data.tobytes() == theirs[name].data.tobytes()
    fields = fields_of(tmp_path / "m.gguf")
    assert fields["general.file_type"].contents() == gguf.LlamaFileType[file_type]


def small_tokenizer(folder):
    """As many tokens as the models of 64 rows have."""
    path = folder / "tokenizer.json"
    doc = json.loads(path.read_text())
    vocab = doc["model"]["vocab"]
    doc["model"]["vocab"] = {word: i for word, i in vocab.items() if i < 60}
    doc["model"]["merges"] = []
    path.write_text(json.dumps(doc, ensure_ascii=False))


def test_keys_of_the_tokenizer(tmp_path, folder):
    out("quantize", folder, tmp_path / "m.gguf", "--type", "Q8_0")
    fields = fields_of(tmp_path / "m.gguf")
    assert fields["general.architecture"].contents() == "llama"
    assert fields["general.name"].contents() == "tiny"
    assert fields["tokenizer.ggml.model"].contents() == "gpt2"
    assert fields["tokenizer.ggml.pre"].contents() == "gpt-2"
    assert fields["tokenizer.ggml.eos_token_id"].contents() == 2
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert fields["tokenizer.chat_template"].contents() == config["chat_template"]
    assert len(fields["tokenizer.ggml.tokens"].contents()) == 288
    text = "A line,\n  another one: 12 345 don't 你好 <s>x</s>"
    both = [out("tokenize", model, stdin=text) for model in (tmp_path / "m.gguf", folder)]
    assert both[0] == both[1]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("The quick brown fox jumps over the lazy dog, and then it sleeps. " * 60)
    return path


def test_what_was_measured_for_a_folder_weighs_its_gguf(tmp_path, folder, text):
    """Calibrated from the folder as from its GGUF: the matrices have the same importance."""
    out("quantize", folder, tmp_path / "plain.gguf", "--type", "F32")
    args = ["--type", "Q4_0", "--ctx", 32, "--calibrate", text]
    ours = answer("quantize", folder, tmp_path / "a.gguf", *args)
    theirs = answer("quantize", tmp_path / "plain.gguf", tmp_path / "b.gguf", *args)
    assert ours["calibration"] == theirs["calibration"]
    assert ours["calibration"]["matrices"] == 15
    plain = answer("quantize", folder, tmp_path / "n.gguf", "--type", "Q4_0")
    assert plain["bytes_out"] == ours["bytes_out"]
    assert (tmp_path / "a.gguf").read_bytes() != (tmp_path / "n.gguf").read_bytes()
    kl = [answer("compare", folder, tmp_path / name, "-f", text, "--ctx", 32,
                 "--greedy", 0)["kl_mean"] for name in ("a.gguf", "b.gguf", "n.gguf")]
    assert kl[0] < kl[2]
    assert kl[0] == pytest.approx(kl[1], rel=0.05)


def test_a_report_of_a_folder(tmp_path, folder, text):
    got = answer("quantize", folder, tmp_path / "m.gguf", "--type", "Q8_0", "--report", "-f", text,
                 "--ctx", 32, "--greedy", 0)
    assert 0 < got["report"]["kl_mean"] < 0.01


def test_a_folder_that_another_tool_quantised(tmp_path, folder):
    """Codes that GGUF has too are copied, others only if they may be quantised again."""
    for name in ("model.safetensors", "config.json"):
        shutil.copy(GOLDEN / "llama-gptq" / name, folder)
    small_tokenizer(folder)
    line = refusal(BAD, "quantize", folder, tmp_path / "m.gguf", "--type", "Q8_0")
    assert "model.layers.0.self_attn.q_proj.weight: is quantised already (INT4)" in line
    out("quantize", folder, tmp_path / "m.gguf", "--type", "F32", "--allow-requantize")
    assert len(greedy(tmp_path / "m.gguf", "ABC")) == 24


def test_a_damaged_folder(tmp_path, folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    line = refusal(BAD, "quantize", folder, tmp_path / "m.gguf", "--type", "Q8_0")
    assert "model.safetensors" in line
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize("values, sentence", [
    ({"hidden_size": 64}, "tensor model.embed_tokens.weight has shape (288, 32), "
                          "expected rows of 64"),
    ({"num_hidden_layers": 3}, "tensor model.layers.2.self_attn.q_proj.weight is missing"),
    ({"num_hidden_layers": 1}, "is of layer 1 (the first is 0), but num_hidden_layers"),
    ({"num_key_value_heads": 2}, "tensor model.layers.0.self_attn.k_proj.weight has shape"),
    ({"vocab_size": 300}, "has 288 rows, expected 300 (vocab_size)"),
    ({"model_type": "mamba"}, 'architecture "mamba" is not supported'),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 'rope scaling "dynamic"'),
    ({"hidden_act": "gelu"}, "the number of the activation function"),
])
def test_config_and_tensors_disagree_or_a_gguf_cannot_say_it(tmp_path, folder, values, sentence):
    change_config(folder, **values)
    line = refusal(BAD, "quantize", folder, tmp_path / "m.gguf", "--type", "Q8_0")
    assert str(folder) in line and sentence in line, line
    assert not (tmp_path / "m.gguf").exists()


def test_a_tokenizer_that_a_gguf_cannot_say(tmp_path, folder):
    path = folder / "tokenizer.json"
    doc = json.loads(path.read_text())
    doc["normalizer"] = {"type": "Lowercase"}
    path.write_text(json.dumps(doc))
    line = refusal(BAD, "quantize", folder, tmp_path / "m.gguf", "--type", "Q8_0")
    assert "normalizer: other than NFC" in line
    doc["normalizer"] = None
    doc["added_tokens"][1]["rstrip"] = doc["added_tokens"][2]["lstrip"] = True
    path.write_text(json.dumps(doc))
    line = refusal(BAD, "quantize", folder, tmp_path / "m.gguf", "--type", "Q8_0")
    assert "this text would have other tokens" in line
    path.unlink()
    line = refusal(BAD + 1, "quantize", folder, tmp_path / "m.gguf", "--type", "Q8_0")
    assert "no tokenizer.json in this folder" in line
