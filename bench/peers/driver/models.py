"""The models: one that people use, and large shapes with random weights, with what is asked of
each. What is asked is part of the results, so that a table says what it holds."""

import json
import subprocess
from dataclasses import dataclass

from .common import ROOT, Skip, say

MAKER = ROOT / "tools" / "make_random_model"


@dataclass
class Model:
    """name; file; what is asked of it."""
    name: str
    shape: str = ""       # of a model with random weights
    form: str = ""        # its number format
    lines: str = "sbpmh"
    single: tuple = (512, 128)     # tokens in, out
    batch: tuple = (32, 128, 64)   # requests, tokens in, out
    repeats: int = 5
    is_large: bool = False  # several engines that hold it do not fit into memory together
    gguf: str = ""

    def sizes(self):
        return {"single": list(self.single), "batch": list(self.batch)}


RANDOM = {
    "llama-1b-q4_k": Model("llama-1b-q4_k", "llama-1B", "Q4_K", "sb", batch=(8, 128, 64)),
    "llama-1b-q4_0": Model("llama-1b-q4_0", "llama-1B", "Q4_0", "sb", batch=(8, 128, 64)),
    "llama-8b-q4_k": Model("llama-8b-q4_k", "llama-8B", "Q4_K", "s", single=(128, 32), repeats=3,
                           is_large=True),
}


def make_random(model, folder, python):
    """The file of a model with random weights, written once. The output matrix (and with it a
    tied embedding) is Q6_K, as llama.cpp's quantizer has it."""
    target = folder / "models" / f"{model.name}.gguf"
    if target.exists():
        return target
    say(f"writing {target.name}: {model.shape}, {model.form}, random weights")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name("part-" + target.name)
    done = subprocess.run([python, MAKER, "--shape", model.shape, "--type", model.form, "--head",
                           "Q6_K", part], check=False, capture_output=True, text=True)
    if done.returncode:
        part.unlink(missing_ok=True)
        raise Skip(f"{target.name} cannot be written: {(done.stderr.strip() or '?')[-300:]}")
    part.rename(target)
    return target


def find_gguf(jitney, name):
    """The file of a model in the cache."""
    if name.endswith(".gguf"):
        return name
    done = subprocess.run([jitney, "list", "--json"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Skip(f"jitney list: {done.stderr.strip()[-300:]}")
    listed = json.loads(done.stdout)
    rows = listed["models"] if isinstance(listed, dict) else listed
    for row in rows:
        if row["name"] == name:
            return row["path"]
    raise Skip(f"there is no model \"{name}\": pull it, name a .gguf file, or one of "
               + ", ".join(RANDOM))


def cost_of(jitney, gguf):
    """Bytes of weights that a token reads, and operations that it costs, by the file's tensors: in
    the layers, and in the head, which only a token that is wanted needs."""
    done = subprocess.run([jitney, "inspect", "-m", gguf, "--tensors", "--json"], check=False,
                          capture_output=True, text=True)
    if done.returncode:
        return {}
    tensors = json.loads(done.stdout).get("tensors", [])
    by_name = {t["name"]: t for t in tensors}
    head = by_name.get("output.weight") or by_name.get("token_embd.weight")
    inside = [t for t in tensors if t["name"].startswith("blk.")]
    if not head or not inside:
        return {}
    return {"bytes": sum(t["bytes"] for t in inside) + head["bytes"],
            "layer_ops": 2 * sum(count(t) for t in inside if len(t["shape"]) > 1),
            "head_ops": 2 * count(head)}


def count(tensor):
    product = 1
    for size in tensor["shape"]:
        product *= size
    return product

