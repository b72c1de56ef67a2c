#!/usr/bin/env python3
"""Hold every golden GGUF against llama.cpp: does a second implementation agree?

    python tools/check_goldens_llamacpp.py [tests/golden/models]

Prints, for each model, the largest and the root mean square difference between llama.cpp's
logits and the goldens, and whether the best token is the same wherever the top two are clearly
apart. llama.cpp rounds activations for quantised and 16-bit weights and keeps gelu in a table of
float16, so those models differ by more than the others do.
"""

import pathlib
import sys

import numpy as np

from goldens import golden_file, llamacpp

# llama.cpp gives pooled vectors only, and chooses the long rope factors by the size of its
# context, which it rounds up past the tiny original one.
_SKIPPED = ("goldens-hidden.bin", "goldens-short.bin")


def same_best(ours, theirs, margin):
    top = np.sort(ours, axis=1)
    clear = top[:, -1] - top[:, -2] > margin
    return bool((ours.argmax(1) == theirs.argmax(1))[clear].all())


def check_file(path, goldens):
    prompts, expected = golden_file.read(goldens)
    encoder = path.parent.name.startswith("bert")
    model = llamacpp.Model(path, n_ctx=64, embeddings=encoder)
    worst, same, squares, count = 0.0, True, 0.0, 0
    for ids, want in zip(prompts, expected, strict=True):
        if encoder:
            got = model.embedding(ids)
            want, got = (v / np.linalg.norm(v) for v in (want, got))
        else:
            got = model.logits(ids)
        worst = max(worst, float(np.abs(got - want).max()))
        squares, count = squares + float(np.square(got - want).sum()), count + want.size
        same = same and same_best(want, got, 2 * worst)
    model.close()
    return worst, (squares / count) ** 0.5, same


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/models")
    for path in sorted(root.glob("*/model.gguf")):
        for goldens in sorted(path.parent.glob("goldens*.bin")):
            if goldens.name in _SKIPPED:
                continue
            try:
                worst, rms, same = check_file(path, goldens)
                verdict = (f"largest {worst:.1e}  rms {rms:.1e}  "
                           f"{'same best' if same else 'OTHER BEST'}")
            except RuntimeError as error:
                verdict = str(error)
            print(f"{path.parent.name:16} {goldens.name:18} {verdict}", flush=True)


if __name__ == "__main__":
    main()
