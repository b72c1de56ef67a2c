"""Goal:   tokenize, detokenize and template keep the contract that scripts rely on.
Method: the real program on tiny models of the tree, and on the outside vocabularies if there."""

import json

import pytest

from cli_lib import BAD, DATA, GOLDEN, MISSING, USAGE, out, refusal, run, talking_model

LLAMA = GOLDEN / "llama"
TEXTS = [
    "",
    "Hello, world",
    "a\n",
    "\n",
    " leading",
    "tab\tand  blanks ",
    "naïve café",
    "日本語",
    "🙂🙂",
    "</s> <s>",
    "x" * 5000,
    "0123456789",
    "don't\r\nstop",
]


def ids_of(text, *flags, model=LLAMA):
    stdout = out("tokenize", "-m", model, *flags, stdin=text)
    assert stdout.endswith(b"\n") and stdout.count(b"\n") == 1
    return stdout.decode().split()


@pytest.mark.parametrize("text", TEXTS)
def test_detokenize_undoes_tokenize(text):
    ids = ids_of(text)
    assert out("detokenize", "-m", LLAMA, stdin=" ".join(ids)) == text.encode()


def test_a_final_newline_is_text():
    assert ids_of("a\n") != ids_of("a")
    assert len(ids_of("a\n")) == 2


def test_empty_text_has_no_ids():
    assert out("tokenize", LLAMA, stdin=b"") == b"\n"


@pytest.mark.parametrize(
    "texts", [["one"], ["one", "two"], ["", ""], ["a\n", "b\n", ""], ["", "x", ""]]
)
def test_n_texts_have_n_minus_1_separators(texts):
    lines = out("tokenize", "-m", LLAMA, "-0", stdin="\0".join(texts)).decode().split("\n")
    assert lines.pop() == ""
    assert [line.split() for line in lines] == [ids_of(t) for t in texts]
    back = out("detokenize", "-m", LLAMA, "-0", stdin="".join(line + "\n" for line in lines))
    assert back == "\0".join(texts).encode()


def test_without_null_a_nul_byte_is_text():
    assert out("detokenize", LLAMA, stdin=out("tokenize", LLAMA, stdin=b"a\0b")) == b"a\0b"


def test_text_of_special_tokens_is_a_token_unless_switched_off():
    assert ids_of("</s>") == ["2"]
    assert len(ids_of("</s>", "--no-special")) > 1


def test_bad_utf8_becomes_replacement_characters():
    ids = out("tokenize", LLAMA, stdin=b"a\xff\xe2\x82z")
    assert out("detokenize", LLAMA, stdin=ids).decode() == "a\ufffd\ufffdz"


def test_special_tokens_can_be_left_out_of_text():
    assert out("detokenize", LLAMA, "--skip-special", stdin="1 2") == b""
    assert out("detokenize", LLAMA, stdin="1 2") == b"<s></s>"


@pytest.mark.parametrize(
    "ids, word",
    [
        ("1 288", "288"),
        ("-1", "-1"),
        ("1 x", "x"),
        ("99999999999999999999", "99999999999999999999"),
    ],
)
def test_invalid_ids_are_named(ids, word):
    assert word in refusal(BAD, "detokenize", LLAMA, stdin=ids)


def test_gguf_and_folder_tokenize_alike():
    if not (LLAMA / "model.gguf").exists():
        pytest.skip("the golden model has no GGUF")
    for text in TEXTS:
        assert ids_of(text) == ids_of(text, model=LLAMA / "model.gguf")


@pytest.mark.skipif(not (DATA / "tokenizers").exists(), reason="no outside data")
@pytest.mark.parametrize("path", sorted((DATA / "tokenizers").glob("*.gguf")), ids=lambda p: p.stem)
def test_outside_vocabularies(path):
    texts = path.with_suffix(".gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    expected = path.with_suffix(".gguf.out").read_text().split("\n")
    got = out("tokenize", "-m", path, "-0", stdin="\0".join(texts)).decode().removesuffix("\n")
    assert len(expected) == len(texts)
    assert [line.split() for line in got.split("\n")] == [line.split() for line in expected]


# ---- template ----

VARS = {"messages": [{"role": "user", "content": "hé\n"}], "add_generation_prompt": True}


def test_template_prints_exactly(tmp_path):
    model = talking_model(tmp_path / "m")
    expected = "<|user|>hé\n\n<|assistant|>".encode()
    assert out("template", "-m", model, stdin=json.dumps(VARS)) == expected
    assert out("template", model, stdin=json.dumps(VARS, ensure_ascii=False)) == expected


def test_template_from_a_file(tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text("{{ bos_token }}{% for m in messages %}[{{ m['content'] }}]{% endfor %}")
    assert (
        out(
            "template", "--file", path, stdin='{"bos_token": "<s>", "messages": [{"content": "x"}]}'
        )
        == b"<s>[x]"
    )


def test_template_errors_are_reported(tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text("{{ raise_exception('no tools here') }}")
    assert "no tools here" in refusal(BAD, "template", "--file", path, stdin="{}")
    path.write_text("{% frob %}")
    assert "t.jinja" in refusal(BAD, "template", "--file", path, stdin="{}")
    path.write_text("x")
    assert "standard input" in refusal(BAD, "template", "--file", path, stdin="{")
    assert "object" in refusal(BAD, "template", "--file", path, stdin="[]")
    refusal(MISSING, "template", "--file", tmp_path / "none", stdin="{}")
    refusal(USAGE, "template", stdin="{}")
    refusal(USAGE, "template", "-m", LLAMA, "--file", path, stdin="{}")
    assert "no chat template" in refusal(BAD, "template", "-m", LLAMA, stdin="{}")


def test_template_limits_output(tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text(
        "{% for i in range(99999) %}{% for j in range(99999) %}xxxxxxxxxx{% endfor %}{% endfor %}"
    )
    code, stdout, _ = run("template", "--file", path, stdin="{}")
    assert code == BAD and stdout == b""
