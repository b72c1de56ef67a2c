#!/usr/bin/env python3
"""Make tests/golden/tokenizer: tiny vocabularies of every family, texts, and what the
`tokenizers` and `sentencepiece` packages make of them.

  make_tokenizer_goldens.py [--out tests/golden/tokenizer]

Each NAME.json or NAME.gguf is a vocabulary; NAME.cases.json is a list of
  {"text": ... or "hex": ..., "ids": [...], "plain": [...], "special": [...],
   "decoded": ..., "skipped": ...}
where "plain" has spellings of specials as text, "special" has BOS and the like around it, and
"decoded" and "skipped" are the text of "ids" with and without special tokens. A key is absent
where the reference cannot give it, where "plain" equals "ids" or "skipped" equals "decoded", and
"special" after the first texts. index.json lists the files. The same versions of the packages
(tests/requirements.txt) give the same bytes, except where training is not deterministic.
"""

import argparse
import json
import os
import shutil
import tempfile

import diff_tokenizers as diff
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

TEXTS_EACH = 10
TABLE = [
    ("\ufb01", "fi"),
    ("\u00c5", "A"),
    ("\u2126", "\u03a9"),
    ("\u3000", " "),
    ("\t", " "),
    ("A\u0301", "a"),
]


class Small(diff.Builder):
    sizes = {"bytes": 330, "spm": 400, "unigram": 130, "wordpiece": 140, "steps": 130}
    alphabet = 60

    def __init__(self, folder):
        super().__init__(folder, [])
        self.lines = [
            "".join(
                c for c in line if c.isalnum() and ord(c) < 128 or c in " \u00e9\u00ef,.!'<>|"
            )
            for line in self.lines[:600]
        ]

    def sp_model(self, kind, **options):
        if options.get("normalization_rule_name") != "identity":
            path = os.path.join(self.folder, "table.tsv")
            with open(path, "w", encoding="utf-8") as f:
                for left, right in TABLE:
                    f.write(
                        "%s\t%s\n"
                        % tuple(" ".join("%X" % ord(c) for c in side) for side in (left, right))
                    )
            options["normalization_rule_tsv"] = path
        if not options.get("byte_fallback", True):
            options["vocab_size"] = 140
        return super().sp_model(kind, **options)

    def bytes_gguf(self):
        """Byte-level BPE as GGUF, with the pre-tokenizer by name."""
        for pre in ("llama-bpe", "smollm", "deepseek-coder"):
            tok = self.trained_bpe(
                diff.PRE[pre], **({"ignore_merges": True} if pre == "llama-bpe" else {})
            )
            tok.add_tokens(
                [
                    diff.AddedToken("<|bos|>", special=True, normalized=False),
                    diff.AddedToken("<|im_end|>", special=True, normalized=False),
                    diff.AddedToken("  \n", normalized=False),
                ]
            )
            vocab = sorted(tok.get_vocab().items(), key=lambda kv: kv[1])
            tokens = [t for t, _ in vocab]
            types = [1] * (len(tokens) - 3) + [3, 3, 4]
            bos = len(tokens) - 3
            diff.set_template(tok, "<|bos|>", bos)
            merges = [" ".join(m) for m in json.loads(tok.to_str())["model"]["merges"]]
            path = self.write_gguf(
                "bytes-" + pre,
                "gpt2",
                tokens,
                None,
                types,
                [
                    ("add_tokenizer_pre", pre),
                    ("add_token_merges", merges),
                    ("add_bos_token_id", bos),
                    ("add_eos_token_id", bos + 1),
                    ("add_add_bos_token", True),
                    ("add_chat_template", "{{ messages[0]['content'] }}"),
                ],
            )
            self.cases.setdefault("gguf", []).append(
                diff.Case(
                    "gguf/bytes-" + pre, path, diff.HF(tok), ["<|bos|>", "<|im_end|>", "  \n"]
                )
            )


def encode(case, batch, plain, special):
    return case.reference.encode(batch, plain, special)


def text_entry(raw):
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"hex": raw.hex()}


def golden(case):
    texts = diff.Texts("golden/" + case.name, case.specials)
    batch = [
        b"",
        b" ",
        b"Hello, world!",
        b"  two  blanks ",
        "na\u00efve \u4f60\u597d \U0001f600".encode(),
    ]
    batch += [texts.next()[:64] for _ in range(TEXTS_EACH)]
    batch = [b.replace(case.without, b"") if case.without else b for b in batch]
    out = [text_entry(b) for b in batch]
    keys = [("plain", True, False)]
    if not case.plain_only:
        keys += [("ids", False, False), ("special", False, True)]
    for key, plain, special in keys:
        for entry, ids in zip(out, encode(case, batch, plain, special)):
            entry[key] = ids
    if case.reference.decodes:
        for skip, key in ((False, "decoded"), (True, "skipped")):
            texts = case.reference.decode([e["ids"] for e in out], skip)
            for entry, text in zip(out, texts):
                entry[key] = text
    for i, entry in enumerate(out):
        if entry.get("plain") == entry.get("ids"):
            del entry["plain"]
        if entry.get("skipped") == entry.get("decoded"):
            entry.pop("skipped", None)
        if i >= 4:
            entry.pop("special", None)
    return out


WANTED = """
bytes/llama-bpe bytes/prefix bytes/nfc bytes/punct-first spm/gguf-sentencepiece spm/legacy
spm/first spm/always spm/unknowns unigram/gguf-nmt-nfkc unigram/nmt-nfkc unigram/no-bytes
unigram/trained-nmt wordpiece/gguf wordpiece/uncased wordpiece/words steps/split-removed-0
steps/split-merged_with_previous-0 steps/split-merged_with_next-1 steps/split-contiguous-0
steps/punct-contiguous steps/blanks steps/prefix steps/both steps/delimiter steps/digits
steps/literal steps/words steps/onig steps/groups steps/strip steps/strip-left
steps/replace steps/lower steps/byte-norm steps/roberta gguf/bytes-llama-bpe
gguf/bytes-smollm gguf/bytes-deepseek-coder
""".split()


def dump(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", default="tests/golden/tokenizer")
    options = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        b = Small(folder)
        for family in ("bytes", "spm", "unigram", "wordpiece", "steps", "bytes_gguf"):
            getattr(b, family)()
        shutil.rmtree(options.out, ignore_errors=True)
        os.makedirs(options.out)
        index = []
        for case in [c for cases in b.cases.values() for c in cases if c.name in WANTED]:
            name = case.name.replace("/", "-")
            if case.model.endswith(".gguf"):
                shutil.copy(case.model, os.path.join(options.out, name + ".gguf"))
            else:
                with open(case.model, encoding="utf-8") as f:
                    dump(os.path.join(options.out, name + ".json"), json.load(f))
            dump(os.path.join(options.out, name + ".cases.json"), golden(case))
            index.append(name + (".gguf" if case.model.endswith(".gguf") else ".json"))
        missing = set(WANTED) - {c.name for cases in b.cases.values() for c in cases}
        assert not missing, missing
        dump(os.path.join(options.out, "index.json"), index)


if __name__ == "__main__":
    main()
