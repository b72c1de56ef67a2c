#!/usr/bin/env python3
"""Compare jitney's tokenizers with the `tokenizers` and `sentencepiece` packages.

Random strings (scripts, emoji, combining marks, controls, runs, kinds of blanks, spellings of
special tokens, bytes that are not UTF-8) are encoded and decoded by both; any difference is
printed with what reproduces it, and the exit status is 1.

Vocabularies: the GGUF files under DATA/tokenizers rebuilt with the `tokenizers` package (left
out where they are absent), and small ones trained on the spot for every family:

  bytes      byte-level BPE with the usual pre-tokenizers
  spm        SentencePiece BPE with byte fallback, as tokenizer.json and as GGUF
  unigram    by sentencepiece and by tokenizers, as tokenizer.json and as GGUF
  wordpiece  BERT's, as tokenizer.json and as GGUF
  steps      every other normalizer, pre-tokenizer, decoder and added-token flag
  gguf       the files of DATA/tokenizers

  diff_tokenizers.py [--driver build/tests/tok_driver] [--count 100000] [--family bytes ...]
  diff_tokenizers.py --jitney build/jitney ...       (the `tokenize` command; no decoding)

Needs the packages of tests/requirements.txt.
"""

import argparse
import base64
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

import gguf
import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

MARK = "\u2581"

# ---- texts ----

WORDS = """the quick brown fox jumps over lazy dog don't we've I'm they'll She'd it's naïve café
façade über Straße señor Привет мир Ελληνικά κόσμος שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดี
你好 世界 こんにちは 世界 カタカナ 안녕하세요 세계 hello world function return int main void struct
while for import def class print 3.14159 1234567 0x1F 2024 42 ½ ² Ⅷ ٣٤ १२३ HTTPServer getElementById
snake_case CamelCase UPPER lower MiXeD e.g. i.e. http://example.com/a?b=c&d=e foo@bar.com
ﬁne ﬂow Å K Ω ǅ ſ İ ı ß ŉ ẞ Σας ΣΑΣ""".split()

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "áéíóúñçøåßœæþðšžčřůÀÉÎÕÜÇ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяАБВГД",
    "αβγδεζηθικλμνξοπρστυφχψωΑΒΓΔάέήίόύώ",
    "אבגדהוזחטיכלמנסעפצקרשת",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "अआइईउऊऋएऐओऔकखगघङचछजझञ",
    "กขคงจฉชซญดตถทธนบปผฝพฟภมยรลวศษสหอฮ",
    "一丁七万三上下不与专且世丘丙业丛东丝中丰临丸丹为主",
    "あいうえおかきくけこさしすせそアイウエオカキクケコ",
    "가각간갈감갑값강개거건걸검게겨결경계고",
    "😀😁😂🤣😃😄😅😆🚀🌍👍🏽👨\u200d👩\u200d👧🇫🇷❤️☃",
    "²³¹¼½¾ⅠⅡⅢ①②③٠١٢٣४५६",
    "“”‘’«»‹›—–…•·¿¡§¶†‡",
    "€£¥¢₹©®™°±×÷≠≤≥∞∑∏√∂∫",
    "ﬁﬂﬃ㍿㈱Ａｂｃ１２３ｱｲｳ",
    "ạảấầẩẫậắằẳẵặẹẻẽếềểễệ",
]
MARKS = (
    "\u0300\u0301\u0302\u0303\u0308\u030a\u0316\u0323\u0327\u0328\u0345"
    "\u05b0\u064b\u093c\u0e31\u20dd\u3099"
)
BLANKS = " \t\n\r\u00a0\u2003\u2009\u202f\u3000\u2028\x0b\x0c\x85\u1680\u200a\u205f"
CONTROLS = (
    "\x01\x02\x07\x08\x1b\x1f\x7f\x80\x9f\u200b\u200c\u200d\u200e\u2060"
    "\ufeff\ufffd\ufffc\ue000\u00ad"
)
RUNS = list("a eE\n7.!-=_*#/<>\t '\"") + [
    "中",
    "é",
    "😀",
    " \n",
    "\r\n",
    "ab",
    "12",
    "  x",
    MARK,
    "’s",
]
CONTRACTIONS = ["'s", "'T", "'re", "'VE", "'m", "'Ll", "'d", "'ſ", "’s", "''s", " 's"]


class Texts:
    """Random bytes, mostly text. `specials` are spellings worth trying."""

    def __init__(self, seed, specials):
        self.r = random.Random(seed)
        self.specials = specials or ["<s>"]

    def chunk(self):
        r = self.r
        kind = r.randrange(18)
        if kind < 4:
            return r.choice(WORDS)
        if kind < 8:
            letters = r.choice(ALPHABETS)
            return "".join(r.choice(letters) for _ in range(r.randint(1, 8)))
        if kind < 10:
            return "".join(
                r.choice(BLANKS if r.random() < 0.3 else " \n") for _ in range(r.randint(1, 4))
            )
        if kind == 10:
            return r.choice(RUNS) * r.choice([2, 3, 4, 5, 7, 8, 16, 17, 31, 50])
        if kind == 11:
            return r.choice("aeouAEOUnc日") + "".join(
                r.choice(MARKS) for _ in range(r.randint(1, 4))
            )
        if kind == 12:
            return r.choice(CONTROLS)
        if kind == 13:
            return r.choice(self.specials)
        if kind == 14:
            return r.choice(CONTRACTIONS)
        if kind == 15:
            s = r.choice(self.specials)
            return s[: r.randint(1, len(s))]
        if kind == 16:
            return unicodedata.normalize(r.choice(["NFD", "NFKD", "NFC"]), r.choice(WORDS))
        return r.choice(MARK + "#_" + "Ġ" + "Ċ") * r.randint(1, 3)

    def bad_bytes(self):
        r = self.r
        return r.choice(
            [
                b"\xff",
                b"\xc0\x80",
                b"\xe2\x82",
                b"\xf0\x9f\x98",
                b"\xed\xa0\x80",
                b"\x80",
                b"\xf4\x90\x80\x80",
                b"\xe2\x28\xa1",
                bytes([r.randrange(128, 256)]),
            ]
        )

    def next(self):
        r = self.r
        out = b""
        for _ in range(r.choice([0, 1, 1, 2, 3, 4, 6, 10, 16])):
            out += self.chunk().encode("utf-8", "replace")
            if r.random() < 0.5:
                out += b" "
            if r.random() < 0.02:
                out += self.bad_bytes()
        return out.replace(b"\0", b"")


# ---- the two sides ----


class Ours:
    def __init__(self, options):
        self.options = options

    def run(self, args, data):
        p = subprocess.run(args, input=data, capture_output=True)
        if p.returncode:
            raise SystemExit("%s: %s" % (" ".join(args), p.stderr.decode(errors="replace")))
        return p.stdout

    def encode(self, model, texts, no_special, add_special):
        flags = ["--no-special"] * no_special + ["--add-special"] * add_special
        if self.options.driver:
            out = self.run([self.options.driver, model] + flags, b"\0".join(texts))
        else:
            if model.endswith("tokenizer.json"):
                model = os.path.dirname(model)
            out = self.run(
                [self.options.jitney, "tokenize", "-m", model, "-0"] + flags, b"\0".join(texts)
            )
        lines = out.decode().split("\n")[:-1]
        return [[int(x) for x in line.split()] for line in lines]

    def decode(self, model, lists, skip):
        data = "".join(" ".join(map(str, ids)) + "\n" for ids in lists).encode()
        args = [self.options.driver, model, "--decode"] + ["--skip-special"] * skip
        out, pos, texts = self.run(args, data), 0, []
        while pos < len(out):
            end = out.index(b"\n", pos)
            size = int(out[pos:end])
            texts.append(out[end + 1 : end + 1 + size].decode())
            pos = end + 1 + size
        return texts


class HF:
    def __init__(self, tok):
        self.tok = tok
        self.decodes = True

    def encode(self, texts, no_special, add_special):
        self.tok.encode_special_tokens = no_special
        out = self.tok.encode_batch_fast(
            [t.decode("utf-8", "replace") for t in texts], add_special_tokens=add_special
        )
        return [e.ids for e in out]

    def decode(self, lists, skip):
        return [self.tok.decode(ids, skip_special_tokens=skip) for ids in lists]

    def size(self):
        return self.tok.get_vocab_size()


class SP:
    """sentencepiece itself; it knows no special spellings, so texts with them are plain."""

    def __init__(self, proto):
        self.sp = sentencepiece.SentencePieceProcessor(model_proto=proto)
        self.decodes = False

    def encode(self, texts, no_special, add_special):
        assert no_special and not add_special
        return self.sp.encode([t.decode("utf-8", "replace") for t in texts])


class Case:
    def __init__(self, name, model, reference, specials, plain_only=False):
        self.name, self.model, self.reference = name, model, reference
        self.specials, self.plain_only = specials, plain_only
        self.without = b""  # a character that this file cannot tell from something else


def compare(case, ours, count, seed):
    texts = Texts("%s/%s" % (case.name, seed), case.specials)
    modes = [(1, 0)] if case.plain_only else [(0, 0), (1, 0), (0, 1)]
    shares = [count] if case.plain_only else [count - 2 * (count // 5), count // 5, count // 5]
    bad = 0
    lists = []
    for (no_special, add_special), share in zip(modes, shares):
        done = 0
        while done < share:
            batch = [texts.next() for _ in range(min(20000, share - done))]
            if case.without:
                batch = [t.replace(case.without, b"") for t in batch]
            done += len(batch)
            want = case.reference.encode(batch, bool(no_special), bool(add_special))
            got = ours.encode(case.model, batch, no_special, add_special)
            if len(got) != len(want):
                raise SystemExit("%s: %d lines for %d texts" % (case.name, len(got), len(want)))
            for text, w, g in zip(batch, want, got):
                if w != g:
                    bad += 1
                    if bad <= 3:
                        report(
                            case,
                            "encode no_special=%d add_special=%d" % (no_special, add_special),
                            text,
                            w,
                            g,
                        )
            lists += want
    if case.reference.decodes and ours.options.driver:
        bad += compare_decode(case, ours, lists, texts.r)
    return bad


def report(case, what, text, want, got):
    print(
        "DIFFERENT %s: %s\n  input %r\n  want  %r\n  got   %r"
        % (case.name, what, text, want, got)
    )


def compare_decode(case, ours, lists, r):
    size = case.reference.size()
    lists = list(lists)
    for _ in range(len(lists) // 4):
        lists.append([r.randrange(size) for _ in range(r.randint(0, 12))])
    bad = 0
    for skip in (0, 1):
        half = lists[skip::2]
        want = case.reference.decode(half, bool(skip))
        got = ours.decode(case.model, half, skip)
        for ids, w, g in zip(half, want, got):
            if w != g:
                bad += 1
                if bad <= 3:
                    report(case, "decode skip=%d" % skip, ids, w, g)
    return bad


# ---- vocabularies from GGUF files ----

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANK_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
ONE = r"[^\r\n\p{L}\p{N}]?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
LLAMA3 = "|".join([SUFFIX, ONE + r"\p{L}+", r"\p{N}{1,3}", SYMBOLS, BLANK_TAIL])
QWEN2 = "|".join([SUFFIX, ONE + r"\p{L}+", r"\p{N}", SYMBOLS, BLANK_TAIL])
GPT4O = "|".join(
    [
        ONE + UPPER + "*" + LOWER + "+" + SUFFIX + "?",
        ONE + UPPER + "+" + LOWER + "*" + SUFFIX + "?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        BLANK_TAIL,
    ]
)
DEEPSEEK3 = "|".join(
    [
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+",
        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
        r" ?[\p{P}\p{S}]+[\r\n]*",
        BLANK_TAIL,
    ]
)
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def raw_bytes():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


PRE = {
    "gpt-2": [split(GPT2), raw_bytes()],
    "llama-bpe": [split(LLAMA3), raw_bytes()],
    "qwen2": [split(QWEN2), raw_bytes()],
    "starcoder": [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "gpt-4o": [split(GPT4O), raw_bytes()],
    "deepseek-v3": [
        split(r"\p{N}{1,3}"),
        split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
        split(DEEPSEEK3),
        raw_bytes(),
    ],
    "deepseek-coder": [
        split("[\r\n]"),
        split(r"\s?\p{L}+"),
        split(r"\s?\p{P}+"),
        split(CJK),
        pre_tokenizers.Digits(True),
        raw_bytes(),
    ],
}


def merges_from_scores(vocab, scores):
    """What Hugging Face's converter does: a merge for every way to cut a piece in two."""
    merges = []
    for piece, score in scores.items():
        for i in range(1, len(piece)):
            left, right = piece[:i], piece[i:]
            if left in vocab and right in vocab:
                merges.append((left, right, score))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [(m[0], m[1]) for m in merges]


def spm_tokenizer(tokens, scores, types, add_prefix=True):
    vocab = {t: i for i, t in enumerate(tokens)}
    pieces = {t: scores[i] for i, t in enumerate(tokens) if types[i] == 1}
    tok = Tokenizer(
        models.BPE(
            vocab,
            merges_from_scores(vocab, pieces),
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps = [normalizers.Prepend(MARK)] * add_prefix + [normalizers.Replace(" ", MARK)]
    tok.normalizer = normalizers.Sequence(steps)
    strip = [decoders.Strip(" ", 1, 0)] * add_prefix
    tok.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()] + strip
    )
    return tok


def added_of(tokens, types, rstrip=()):
    return [
        AddedToken(t, special=k in (2, 3), normalized=False, rstrip=t in rstrip)
        for t, k in zip(tokens, types)
        if k in (2, 3, 4)
    ]


def gguf_case(path):
    fields = gguf.GGUFReader(path).fields
    get = lambda k: (
        fields["tokenizer.ggml." + k].contents() if "tokenizer.ggml." + k in fields else None
    )
    tokens, types, pre = get("tokens"), get("token_type"), get("pre")
    name = os.path.basename(path)
    specials = [t for t, k in zip(tokens, types) if k in (3, 4)][:400]
    rstrip = ()
    if get("model") == "llama":
        tok = spm_tokenizer(tokens, get("scores"), types)
        if "phi" in name:
            rstrip = set(specials) | {t for t, k in zip(tokens, types) if k == 2}
            rstrip -= {"<unk>", "<s>", "<|endoftext|>"}
    else:
        vocab = {t: i for i, t in enumerate(tokens)}
        merges = [tuple(m.split(" ")) for m in get("merges")]
        tok = Tokenizer(models.BPE(vocab, merges, ignore_merges=pre == "llama-bpe"))
        tok.pre_tokenizer = pre_tokenizers.Sequence(PRE[pre])
        tok.decoder = decoders.ByteLevel()
    tok.add_tokens(added_of(tokens, types, rstrip))
    bos = get("bos_token_id")
    add_bos = get("add_bos_token") if get("add_bos_token") is not None else pre == "llama-bpe"
    if add_bos:
        set_template(tok, tokens[bos], bos)
    return Case("gguf/" + name, path, HF(tok), specials)


def set_template(tok, bos, bos_id):
    tok.post_processor = processors.TemplateProcessing(
        single="%s $A" % bos, special_tokens=[(bos, bos_id)]
    )


# ---- vocabularies trained here ----


def corpus(lines, seed=7):
    texts = Texts(seed, ["zebra"])
    out = []
    for _ in range(lines):
        line = " ".join(texts.r.choice(WORDS) for _ in range(12))
        out.append(line + " " + texts.next().decode("utf-8", "ignore").replace("\n", " "))
    return out


ADDED = [
    AddedToken("<|plain|>", special=True, normalized=False),
    AddedToken("<|left|>", special=True, normalized=False, lstrip=True),
    AddedToken("<|right|>", special=True, normalized=False, rstrip=True),
    AddedToken("<|both|>", special=False, normalized=False, lstrip=True, rstrip=True),
    AddedToken("Word", special=False, normalized=False, single_word=True),
    AddedToken("  ", special=False, normalized=False),
    AddedToken("    ", special=False, normalized=False),
    AddedToken("naïve", special=False, normalized=True),
    AddedToken("LOUD", special=False, normalized=True, single_word=True, lstrip=True),
    AddedToken("<|plain", special=False, normalized=False),
    AddedToken("plain|>", special=False, normalized=False, rstrip=True),
]
ADDED_TEXTS = [t.content for t in ADDED] + [
    "Wordy",
    "_Word",
    "Word Word",
    "LOUDER LOUD",
    "naïve",
    "NAÏVE",
    " <|left|>",
    "<|right|> \n ",
    "\t<|both|>\u3000",
    "Word\u0301",
]


class Builder:
    sizes = {"bytes": 700, "spm": 850, "unigram": 900, "wordpiece": 900, "steps": 600}
    alphabet = 200

    def __init__(self, folder, names, lines=4000):
        self.folder, self.names, self.cases = folder, names, {}
        self.lines = corpus(lines)

    def want(self, family):
        return not self.names or family in self.names

    def add(self, family, name, tok, plain_only=False, reference=None, path=None):
        if path is None:
            folder = os.path.join(self.folder, family + "-" + name.replace("/", "-"))
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, "tokenizer.json")
            tok.save(path)
            tok = Tokenizer.from_file(path)
        self.cases.setdefault(family, []).append(
            Case(family + "/" + name, path, reference or HF(tok), ADDED_TEXTS, plain_only)
        )

    # byte-level BPE

    def trained_bpe(self, steps, normalizer=None, **options):
        tok = Tokenizer(models.BPE())
        tok.pre_tokenizer = pre_tokenizers.Sequence(steps)
        if normalizer:
            tok.normalizer = normalizer
        trainer = trainers.BpeTrainer(
            vocab_size=self.sizes["bytes"],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        tok.train_from_iterator(self.lines, trainer)
        if options:
            data = json.loads(tok.to_str())
            data["model"].update(options)
            tok = Tokenizer.from_str(json.dumps(data))
        tok.decoder = decoders.ByteLevel()
        return tok

    def bytes(self):
        level = pre_tokenizers.ByteLevel
        plans = [(name, steps, None, {}) for name, steps in PRE.items()]
        plans += [
            ("prefix", [level(add_prefix_space=True)], None, {}),
            ("nfc", [split(QWEN2), raw_bytes()], normalizers.NFC(), {}),
            ("ignore-merges", [split(LLAMA3), raw_bytes()], None, {"ignore_merges": True}),
            ("no-split", [raw_bytes()], None, {}),
            (
                "punct-first",
                [
                    pre_tokenizers.Punctuation("contiguous"),
                    level(add_prefix_space=False),
                    pre_tokenizers.Digits(False),
                    split("[0-9][0-9][0-9]"),
                ],
                None,
                {},
            ),
        ]
        for name, steps, normalizer, options in plans:
            tok = self.trained_bpe(steps, normalizer, **options)
            tok.add_tokens(ADDED)
            set_template(tok, "<|plain|>", tok.token_to_id("<|plain|>"))
            self.add("bytes", name, tok)

    # SentencePiece BPE

    def sp_model(self, kind, **options):
        prefix = os.path.join(self.folder, "sp-%s-%d" % (kind, len(os.listdir(self.folder))))
        with open(prefix + ".txt", "w", encoding="utf-8") as f:
            f.write("\n".join(l.replace("\n", " ") for l in self.lines))
        args = dict(
            input=prefix + ".txt",
            model_prefix=prefix,
            model_type=kind,
            vocab_size=self.sizes["spm"],
            character_coverage=0.98,
            byte_fallback=True,
            minloglevel=2,
            num_threads=1,
        )
        args.update(options)
        sentencepiece.SentencePieceTrainer.train(**args)
        with open(prefix + ".model", "rb") as f:
            return f.read()

    def sp_parts(self, proto):
        sp = sentencepiece.SentencePieceProcessor(model_proto=proto)
        n = sp.get_piece_size()
        kinds = []
        for i in range(n):
            kinds.append(
                2
                if sp.is_unknown(i)
                else (
                    3 if sp.is_control(i) else 5 if sp.is_unused(i) else 6 if sp.is_byte(i) else 1
                )
            )
        return [sp.id_to_piece(i) for i in range(n)], [sp.get_score(i) for i in range(n)], kinds

    def write_gguf(self, name, model, tokens, scores, types, extra):
        path = os.path.join(self.folder, name + ".gguf")
        w = gguf.GGUFWriter(path, "llama")
        w.add_tokenizer_model(model)
        w.add_token_list(tokens)
        if scores:
            w.add_token_scores(scores)
        w.add_token_types(types)
        for call, value in extra:
            getattr(w, call)(value)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.close()
        return path

    def spm(self):
        proto = self.sp_model(
            "bpe", normalization_rule_name="identity", remove_extra_whitespaces=False
        )
        tokens, scores, types = self.sp_parts(proto)
        path = self.write_gguf("spm", "llama", tokens, scores, types, [("add_unk_token_id", 0)])
        self.add("spm", "gguf-sentencepiece", None, True, SP(proto), path)
        for name, scheme in (
            ("legacy", None),
            ("first", "first"),
            ("always", "always"),
            ("never", "never"),
        ):
            tok = spm_tokenizer(tokens, scores, types)
            if scheme:
                tok.normalizer = normalizers.Sequence([])
                tok.pre_tokenizer = pre_tokenizers.Metaspace(
                    MARK, scheme, split=scheme == "always"
                )
                tok.decoder = (
                    decoders.Metaspace(MARK, scheme) if scheme != "first" else tok.decoder
                )
            tok.add_tokens(added_of(tokens, types) + ADDED)
            set_template(tok, "<s>", 1)
            self.add("spm", name, tok)
        tok = spm_tokenizer(tokens, scores, types, add_prefix=False)
        data = json.loads(tok.to_str())
        data["model"].update({"byte_fallback": False, "fuse_unk": False})
        self.add("spm", "unknowns", Tokenizer.from_str(json.dumps(data)))

    # unigram

    def charsmap(self, proto):
        """The precompiled table out of the model file: field 3 (normalizer_spec), then field 2."""

        def field(data, want):
            pos = 0
            while pos < len(data):
                key = shift = 0
                while True:
                    b = data[pos]
                    pos += 1
                    key |= (b & 127) << shift
                    shift += 7
                    if b < 128:
                        break
                kind, number = key & 7, key >> 3
                if kind == 2:
                    size = shift = 0
                    while True:
                        b = data[pos]
                        pos += 1
                        size |= (b & 127) << shift
                        shift += 7
                        if b < 128:
                            break
                    if number == want:
                        return data[pos : pos + size]
                    pos += size
                elif kind == 0:
                    while data[pos] >= 128:
                        pos += 1
                    pos += 1
                elif kind == 5:
                    pos += 4
                else:
                    pos += 8
            return b""

        return field(field(proto, 3), 2)

    def unigram(self):
        for name, options in (
            ("nmt-nfkc", {}),
            (
                "identity",
                {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
            ),
            ("no-bytes", {"byte_fallback": False}),
        ):
            proto = self.sp_model("unigram", **options)
            tokens, scores, types = self.sp_parts(proto)
            table = self.charsmap(proto)
            extra = [
                ("add_unk_token_id", 0),
                ("add_remove_extra_whitespaces", name != "identity"),
                ("add_add_space_prefix", True),
            ]
            if table:
                extra.append(("add_precompiled_charsmap", table))
            path = self.write_gguf("unigram-" + name, "t5", tokens, scores, types, extra)
            self.add("unigram", "gguf-" + name, None, True, SP(proto), path)
            tok = Tokenizer(models.Unigram(list(zip(tokens, scores)), 0, name != "no-bytes"))
            data = json.loads(tok.to_str())
            data["normalizer"] = (
                {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}
                if table
                else None
            )
            tok = Tokenizer.from_str(json.dumps(data))
            tok.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always")
            tok.decoder = decoders.Metaspace(MARK, "always")
            tok.add_tokens(added_of(tokens, types) + ADDED)
            tok.post_processor = processors.TemplateProcessing(
                single="$A </s>", special_tokens=[("</s>", 2)]
            )
            self.add("unigram", name, tok)
        for name, normalizer in (
            ("trained", normalizers.NFKC()),
            (
                "trained-nmt",
                normalizers.Sequence(
                    [
                        normalizers.Nmt(),
                        normalizers.NFKC(),
                        normalizers.Replace(Regex(" {2,}"), " "),
                    ]
                ),
            ),
        ):
            tok = Tokenizer(models.Unigram())
            tok.normalizer = normalizer
            tok.pre_tokenizer = pre_tokenizers.Metaspace(
                MARK, "first" if name == "trained" else "always"
            )
            tok.decoder = decoders.Metaspace(MARK, "always")
            tok.train_from_iterator(
                self.lines,
                trainers.UnigramTrainer(
                    vocab_size=self.sizes["unigram"],
                    show_progress=False,
                    unk_token="<unk>",
                    special_tokens=["<unk>", "<s>"],
                ),
            )
            tok.add_tokens(ADDED)
            self.add("unigram", name, tok)

    # WordPiece

    def trained_wordpiece(self, normalizer, pretok):
        tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tok.normalizer = normalizer
        tok.pre_tokenizer = pretok
        names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tok.train_from_iterator(
            self.lines,
            trainers.WordPieceTrainer(
                vocab_size=self.sizes["wordpiece"], show_progress=False, special_tokens=names
            ),
        )
        tok.decoder = decoders.WordPiece()
        tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        return tok

    def wordpiece(self):
        bert = normalizers.BertNormalizer
        plans = [
            ("uncased", bert(), pre_tokenizers.BertPreTokenizer()),
            ("cased", bert(lowercase=False), pre_tokenizers.BertPreTokenizer()),
            ("accents", bert(strip_accents=False), pre_tokenizers.BertPreTokenizer()),
            (
                "dirty",
                bert(clean_text=False, handle_chinese_chars=False),
                pre_tokenizers.BertPreTokenizer(),
            ),
            (
                "words",
                normalizers.Sequence(
                    [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]
                ),
                pre_tokenizers.Whitespace(),
            ),
        ]
        for name, normalizer, pretok in plans:
            tok = self.trained_wordpiece(normalizer, pretok)
            if name == "uncased":
                self.wordpiece_gguf(tok)
            tok.add_tokens(ADDED)
            self.add("wordpiece", name, tok)

    def wordpiece_gguf(self, tok):
        vocab = sorted(tok.get_vocab().items(), key=lambda kv: kv[1])
        tokens, types = [], []
        for text, i in vocab:
            control = i < 5
            types.append(3 if control else 1)
            tokens.append(text if control else text[2:] if text.startswith("##") else MARK + text)
        path = self.write_gguf(
            "bert",
            "bert",
            tokens,
            None,
            types,
            [("add_unk_token_id", 1), ("add_sep_token_id", 3), ("add_bos_token_id", 2)],
        )
        plain = Tokenizer.from_str(tok.to_str())
        reference = HF(plain)
        reference.decodes = False
        case = Case("wordpiece/gguf", path, reference, ADDED_TEXTS)
        case.without = MARK.encode()
        self.cases.setdefault("wordpiece", []).append(case)

    # every other step

    def word_bpe(self, pretok, normalizer=None, **model):
        tok = Tokenizer(models.BPE(unk_token="[UNK]", **model))
        tok.pre_tokenizer = pretok
        if normalizer:
            tok.normalizer = normalizer
        options = {k: v for k, v in model.items() if k != "fuse_unk"}
        trainer = trainers.BpeTrainer(
            vocab_size=self.sizes["steps"],
            limit_alphabet=self.alphabet,
            show_progress=False,
            special_tokens=["[UNK]"],
            **options
        )
        tok.train_from_iterator(self.lines, trainer)
        tok.add_tokens(ADDED)
        return tok

    def steps(self):
        pre, n, d = pre_tokenizers, normalizers, decoders
        for behavior in (
            "removed",
            "isolated",
            "merged_with_previous",
            "merged_with_next",
            "contiguous",
        ):
            for invert in (False, True):
                self.add(
                    "steps",
                    "split-%s-%d" % (behavior, invert),
                    self.word_bpe(split(r"\s|[aeiou]+", behavior, invert)),
                )
            self.add("steps", "punct-" + behavior, self.word_bpe(pre.Punctuation(behavior)))
        plans = [
            ("whitespace", pre.Whitespace(), None, d.BPEDecoder(), {}),
            (
                "blanks",
                pre.WhitespaceSplit(),
                None,
                d.BPEDecoder("</w>"),
                {"end_of_word_suffix": "</w>"},
            ),
            (
                "prefix",
                pre.WhitespaceSplit(),
                None,
                d.WordPiece("##", False),
                {"continuing_subword_prefix": "##"},
            ),
            (
                "both",
                pre.Whitespace(),
                None,
                None,
                {"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"},
            ),
            ("delimiter", pre.CharDelimiterSplit("e"), None, d.CTC("[UNK]", "a"), {}),
            (
                "digits",
                pre.Sequence([pre.Digits(False), pre.Whitespace()]),
                None,
                d.Fuse(),
                {"fuse_unk": True},
            ),
            ("literal", pre.Split("th", "isolated"), None, d.Strip("e", 2, 0), {}),
            ("words", split(r"\w+\b|\h|\d|[^\w\s]", "isolated"), None, None, {}),
            (
                "onig",
                split(r"^\s*|\p{Han}+|[\p{L}&&[^a-d]]+|[[:digit:]]|\s+$", "isolated"),
                None,
                None,
                {},
            ),
            (
                "groups",
                pre.Sequence([split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))")]),
                None,
                None,
                {},
            ),
            (
                "strip",
                pre.Whitespace(),
                n.Sequence([n.Strip(), n.NFKD(), n.StripAccents()]),
                d.BPEDecoder(),
                {},
            ),
            (
                "strip-left",
                pre.Metaspace(MARK, "first", split=False),
                n.Sequence([n.Strip(left=True, right=False), n.NFC()]),
                d.Metaspace(),
                {},
            ),
            (
                "replace",
                pre.Whitespace(),
                n.Sequence([n.Replace(Regex(r"\s+"), " "), n.Replace("e", "ee"), n.Prepend("x")]),
                d.Sequence([d.Replace("e", "E"), d.Replace(Regex("[aA]+"), "@")]),
                {},
            ),
            ("lower", pre.Whitespace(), n.Sequence([n.Lowercase(), n.NFKC()]), None, {}),
            ("byte-norm", split(r"[^Ġ]+|Ġ+"), n.ByteLevel(), d.ByteLevel(), {}),
        ]
        for name, pretok, normalizer, decoder, model in plans:
            tok = self.word_bpe(pretok, normalizer, **model)
            if decoder:
                tok.decoder = decoder
            self.add("steps", name, tok)
        tok = self.word_bpe(pre.Whitespace())
        tok.post_processor = processors.Sequence(
            [
                processors.ByteLevel(),
                processors.RobertaProcessing(("[UNK]", 0), ("Word", tok.token_to_id("Word"))),
            ]
        )
        self.add("steps", "roberta", tok)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--driver", help="path of tok_driver (build/tests/tok_driver)")
    p.add_argument("--jitney", help="path of jitney; instead of --driver")
    p.add_argument("--count", type=int, default=100000, help="strings for each family")
    p.add_argument("--seed", default="1")
    p.add_argument("--gguf", nargs="*", help="which files of DATA/tokenizers; all")
    p.add_argument("--family", nargs="*", default=[])
    p.add_argument("--data", default=os.environ.get("JITNEY_TEST_DATA", "../shared/data"))
    p.add_argument("--keep", help="folder for the trained vocabularies")
    options = p.parse_args()
    if options.driver and options.jitney:
        p.error("--driver or --jitney, not both")
    if not options.driver and not options.jitney:
        options.driver = "build/tests/tok_driver"
    with tempfile.TemporaryDirectory() as folder:
        return run(options, options.keep or folder)


def run(options, folder):
    os.makedirs(folder, exist_ok=True)
    builder = Builder(folder, options.family, 4000 if options.count > 5000 else 1000)
    for family in ("bytes", "spm", "unigram", "wordpiece", "steps"):
        if builder.want(family):
            getattr(builder, family)()
    if builder.want("gguf"):
        data = os.path.join(options.data, "tokenizers")
        paths = sorted(os.listdir(data)) if os.path.isdir(data) else []
        if options.gguf:
            paths = [p for p in paths if p[: -len(".gguf")] in options.gguf]
        builder.cases["gguf"] = [
            gguf_case(os.path.join(data, f)) for f in paths if f.endswith(".gguf")
        ]
    ours = Ours(options)
    total = wrong = 0
    for family, cases in builder.cases.items():
        share = -(-options.count // max(1, len(cases)))
        for case in cases:
            bad = compare(case, ours, share, options.seed)
            total += share
            wrong += bad
            print("%-40s %7d strings  %d different" % (case.name, share, bad), flush=True)
    print(
        "%d strings, %d differences (tokenizers %s, sentencepiece %s)"
        % (total, wrong, tokenizers.__version__, sentencepiece.__version__)
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
