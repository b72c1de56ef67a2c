"""Two tokenizers small enough to commit: byte-level BPE of 288 tokens, WordPiece of 128."""

import string

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

_TEXT = """
The lamp over the harbour turns all night, and the boats that come in late steer by it. A child on
the hill counts the turns: one, two, three, and then the dark. In the morning there are 12 boats at
the wall and the nets are full of small bright fish. They are sorted by size, weighed and sold
before the sun is over the roofs. When the market is done the men mend what is torn, the women add
up the day's numbers, and the child, who has slept through all of it, asks how many turns the lamp
made. Nobody knows. Nobody has ever counted them to the end, although everybody has started to.
"""


def bpe(vocab_size):
    """Byte-level BPE in GPT-2's style; ids 0 to 2 are <unk>, <s>, </s>."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT.strip().splitlines(), trainer)
    assert tokenizer.get_vocab_size() == vocab_size
    return tokenizer


def wordpiece(vocab_size):
    """BERT's: lower case, accents off, [CLS] text [SEP]."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = string.ascii_lowercase + string.digits
    words += list(letters) + ["##" + c for c in letters] + list(".,!?-'")
    words += "the lamp boat boats child turn ##ing ##ed ##er night day fish hill sea".split()
    words += "one two three man men of and in to is it all are at day's".split()
    words = list(dict.fromkeys(words))
    words += [f"[unused{i}]" for i in range(vocab_size - len(words))]
    assert len(words) == vocab_size
    vocab = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(words[:5])
    return tokenizer
