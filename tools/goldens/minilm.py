"""Sentence embeddings of the packaged all-MiniLM-L6-v2, by sentence-transformers itself."""

import json

from sentence_transformers import SentenceTransformer

from goldens import golden_file

_LONG = " ".join(
    f"On day {day} the keeper wrote that the lamp had turned {day * 17 + 3} times, that the wind "
    f"came from the {['north', 'west', 'south', 'east'][day % 4]}, and that nothing was seen."
    for day in range(1, 13))

TEXTS = [
    "The lamp over the harbour turns all night.",
    "A light at the port rotates until morning.",
    "She divided both sides by zero and was surprised.",
    "How do I reset my password?",
    "I cannot log in to my account any more.",
    "hello",
    "",
    "   spaces \t and\nnewlines   everywhere  ",
    "ALL CAPITALS, then lower case; punctuation -- of (many) kinds: \"yes\"!?",
    "na\u00efve caf\u00e9 \u00dcbergr\u00f6\u00dfe, \u00c5ngstr\u00f6m",
    "\u706f\u53f0\u306e\u5149\u304c\u6e2f\u3092\u7167\u3089\u3059\u3002",
    "\u041c\u0430\u044f\u043a \u0441\u0432\u0435\u0442\u0438\u0442 "
    "\u0432\u0441\u044e \u043d\u043e\u0447\u044c.",
    "\U0001f6a2 \U0001f4a1 \U0001f30a",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "3.14159 is not 22/7, and 1,000,000 is one million.",
    "int main(void) { return puts(\"hi\") < 0; }",
    "https://example.org/path?query=value#fragment",
    "x" * 150,
    "The committee met on Tuesday to discuss the bridge. It agreed on nothing except the date of "
    "the next meeting, which two of its members cannot attend.",
    "the the the the the the the the",
    "[CLS] is spelled like a special token, and so is [SEP].",
    _LONG,
]


def make(model_folder, out):
    """Write minilm.json (the texts) and minilm.bin (ids and vectors) into `out`."""
    model = SentenceTransformer(str(model_folder), device="cpu")
    ids = [model.preprocess([text])["input_ids"][0].tolist() for text in TEXTS]
    vectors = [model.encode([text], convert_to_numpy=True) for text in TEXTS]
    (out / "minilm.json").write_text(json.dumps({"texts": TEXTS}, indent=1) + "\n")
    golden_file.write(out / "minilm.bin", ids, vectors)
    return [len(i) for i in ids]
