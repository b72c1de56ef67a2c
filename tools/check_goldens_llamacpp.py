#!/usr/bin/env python3
"""Hold every golden GGUF against llama.cpp: does a second implementation agree?

    python tools/check_goldens_llamacpp.py [tests/golden/models]

Prints, for each model, the largest and the root mean square difference between llama.cpp's
logits and the goldens, and at how many positions the best token is the same. llama.cpp rounds
activations for quantised and 16-bit weights and keeps gelu in a table of float16, so those models
differ by more than the others do.
"""

import pathlib
import sys

import numpy as np

from goldens import golden_file, llamacpp

# llama.cpp gives pooled vectors only, and chooses the long rope factors by the size of its
# context, which it rounds up past the tiny original one.
_SKIPPED = ("goldens-hidden.bin", "goldens-short.bin")


def check_file(path, goldens):
    prompts, expected = golden_file.read(goldens)
    encoder = path.parent.name.startswith("bert")
    model = llamacpp.Model(path, n_ctx=64, embeddings=encoder)
    worst, same, rows, squares, count = 0.0, 0, 0, 0.0, 0
    for ids, want in zip(prompts, expected, strict=True):
        if encoder:
            got = model.embedding(ids)
            want, got = (v / np.linalg.norm(v) for v in (want, got))
        else:
            got = model.logits(ids)
        worst = max(worst, float(np.abs(got - want).max()))
        squares, count = squares + float(np.square(got - want).sum()), count + want.size
        same, rows = same + int((got.argmax(1) == want.argmax(1)).sum()), rows + len(want)
    model.close()
    return worst, (squares / count) ** 0.5, f"{same} of {rows}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/models")
    for path in sorted(root.glob("*/model.gguf")):
        for goldens in sorted(path.parent.glob("goldens*.bin")):
            if goldens.name in _SKIPPED:
                continue
            try:
                worst, rms, same = check_file(path, goldens)
                verdict = f"largest {worst:.1e}  rms {rms:.1e}  same best {same}"
            except RuntimeError as error:
                verdict = str(error)
            print(f"{path.parent.name:16} {goldens.name:18} {verdict}", flush=True)


if __name__ == "__main__":
    main()
