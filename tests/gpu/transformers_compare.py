#!/usr/bin/env python3
"""Compares jitney with transformers on the same random weights: logits, and throughput.

usage: transformers_compare.py logits --work DIR --out FILE [--device cuda:0] [--limit SECONDS]
       transformers_compare.py speed --lengths JSON [--limit SECONDS]

logits: models of several architectures, tiny and of about 1B parameters, are made by transformers
and saved in bf16. 32 prompts are followed by 64 given tokens; the logits of these positions are
computed by transformers in float32 and in bf16, and by jitney (`gpu_check logits`). jitney agrees
if its largest error against float32 is at most twice that of transformers in bf16, and if its best
token is the reference's wherever the reference's first two differ by more than that. Vectors of
encoders are compared by their cosine.

speed: the 8B shape generates the given (prompt, answer) lengths in static batches of 32, each to
the end of its longest answer. Prints one line of JSON; tokens of answers beyond their own length
do not count.

Needs torch and transformers. --tiny: small sizes, to try the script without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np
import torch
import transformers as tf

tf.utils.logging.disable_progress_bar()
HERE = os.path.dirname(os.path.abspath(__file__))
BEGAN = time.time()
SEQS, TOKENS, WANTED = 32, 128, 64
BATCH = 32


def llama(hidden, layers, heads, kv, ffn, vocab):
    return tf.LlamaForCausalLM, tf.LlamaConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv, intermediate_size=ffn, vocab_size=vocab, tie_word_embeddings=True,
        max_position_embeddings=2048)


def qwen3(hidden, layers, heads, kv, ffn, vocab):
    return tf.Qwen3ForCausalLM, tf.Qwen3Config(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv, intermediate_size=ffn, vocab_size=vocab, head_dim=128,
        tie_word_embeddings=True, max_position_embeddings=2048)


def gemma3(hidden, layers, heads, kv, ffn, vocab):
    return tf.Gemma3ForCausalLM, tf.Gemma3TextConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv, intermediate_size=ffn, vocab_size=vocab, head_dim=256,
        sliding_window=64, max_position_embeddings=2048, query_pre_attn_scalar=256)


def moe(hidden, layers, heads, kv, ffn, vocab):
    return tf.Qwen3MoeForCausalLM, tf.Qwen3MoeConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv, intermediate_size=ffn, moe_intermediate_size=ffn, vocab_size=vocab,
        head_dim=128, num_experts=16, num_experts_per_tok=4, decoder_sparse_step=1,
        norm_topk_prob=True, tie_word_embeddings=False, max_position_embeddings=2048)


def bert(hidden, layers, heads, _, ffn, vocab):
    return tf.BertModel, tf.BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=ffn, vocab_size=vocab, max_position_embeddings=512)


# name, maker, hidden width, layers, heads, KV heads, inner width, vocabulary
TINY = [
    ("llama-tiny", llama, 256, 4, 4, 2, 512, 1000),
    ("qwen3-tiny", qwen3, 256, 4, 4, 2, 512, 1000),
    ("gemma3-tiny", gemma3, 256, 6, 4, 2, 512, 1000),
    ("qwen3moe-tiny", moe, 256, 4, 4, 2, 256, 1000),
    ("bert-tiny", bert, 128, 4, 4, 4, 512, 1000),
]
LARGE = [
    ("llama-1B", llama, 2048, 16, 32, 8, 8192, 128256),
    ("bert-base", bert, 768, 12, 12, 12, 3072, 30522),
    ("qwen3-0.6B", qwen3, 1024, 28, 16, 8, 3072, 151936),
    ("qwen3moe-1B", moe, 1024, 12, 16, 8, 768, 32000),
    ("gemma3-1B", gemma3, 1152, 26, 4, 1, 6912, 262144),
]


def accelerator():
    return "cuda" if torch.cuda.is_available() else "cpu"


def make_model(maker, sizes):
    """The model in bf16, random, on the accelerator."""
    kind, config = maker(*sizes)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(accelerator()):
        model = kind(config)
    torch.set_default_dtype(torch.float32)
    with torch.no_grad():  # as they are made, norms and biases would hide errors: all 1 or all 0
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * (0.1 if "norm" in name else 0.02))
    return model


def save(model, path, is_encoder):
    model.save_pretrained(path)
    if not is_encoder:
        return
    pooling = {"word_embedding_dimension": model.config.hidden_size,
               "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    os.makedirs(os.path.join(path, "1_Pooling"), exist_ok=True)
    with open(os.path.join(path, "1_Pooling", "config.json"), "w", encoding="utf-8") as file:
        json.dump(pooling, file)
    with open(os.path.join(path, "modules.json"), "w", encoding="utf-8") as file:
        json.dump([{"idx": 0, "name": "0", "path": "",
                    "type": "sentence_transformers.models.Transformer"},
                   {"idx": 1, "name": "1", "path": "1_Pooling",
                    "type": "sentence_transformers.models.Pooling"}], file)


@torch.no_grad()
def reference(model, ids, is_encoder):
    """Rows of logits of the last positions, or a vector for each sequence, in float32."""
    out = []
    for first in range(0, len(ids), 8):
        batch = torch.tensor(ids[first:first + 8].astype(np.int64), device=model.device)
        if is_encoder:
            hidden = model(input_ids=batch).last_hidden_state.float()
            out.append(hidden.mean(dim=1).cpu())
        else:
            logits = model(input_ids=batch, use_cache=False).logits
            out.append(logits[:, -WANTED:].float().cpu())
    return torch.cat(out).reshape(-1, out[0].shape[-1])


def jitney_rows(path, ids, args, chunk):
    """The same by jitney."""
    base = os.path.join(args.work, "rows")
    with open(base + ".tokens", "wb") as file:
        np.array([len(ids), ids.shape[1], WANTED], dtype="<i4").tofile(file)
        ids.astype("<i4").tofile(file)
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(HERE, "lib")}
    done = subprocess.run([os.path.join(HERE, "bin", "gpu_check"), "logits", "--model", path,
                           "--tokens", base + ".tokens", "--out", base + ".floats", "--device",
                           args.device, "--chunk", str(chunk)], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stdout.decode(errors="replace")[-500:])
    return torch.from_numpy(np.fromfile(base + ".floats", dtype="<f4"))


def compare_rows(exact, theirs, ours):
    """Errors against float32, and the best tokens."""
    their_error, our_error = (theirs - exact).abs().max(), (ours - exact).abs().max()
    rms = lambda x: float((x - exact).pow(2).mean().sqrt())
    two = exact.topk(2, dim=-1)
    tolerance = 2 * float(their_error)
    clear = (two.values[:, 0] - two.values[:, 1]) > tolerance
    same = ours.argmax(dim=-1) == two.indices[:, 0]
    wrong = int((clear & ~same).sum())
    return {"agrees": bool(our_error <= tolerance and wrong == 0),
            "largest_error": round(float(our_error), 6),
            "transformers_bf16_error": round(float(their_error), 6),
            "rms_error": round(rms(ours), 6), "transformers_rms_error": round(rms(theirs), 6),
            "largest_logit": round(float(exact.abs().max()), 3), "rows": len(exact),
            "clear_rows": int(clear.sum()), "other_best_token": wrong,
            "same_best_token": int(same.sum())}


def compare_vectors(exact, theirs, ours):
    cosine = torch.nn.functional.cosine_similarity
    their_gap = float((1 - cosine(theirs, exact)).max())
    our_gap = float((1 - cosine(ours, exact)).max())
    return {"agrees": our_gap <= max(2 * their_gap, 1e-6), "largest_gap": our_gap,
            "transformers_bf16_gap": their_gap, "vectors": len(exact)}


def compare_model(entry, args):
    name, maker, *sizes = entry
    is_encoder = maker is bert
    rng = np.random.default_rng(3)
    ids = rng.integers(5, sizes[-1], (SEQS, TOKENS), dtype=np.int32)
    if args.tiny:
        ids = ids[:4]
    path = os.path.join(args.work, name)
    model = make_model(maker, sizes)
    save(model, path, is_encoder)
    kind = type(model)
    del model
    rows = []
    for dtype in (torch.float32, torch.bfloat16):  # loaded again: .to() would round rope's angles
        model = kind.from_pretrained(path, dtype=dtype).to(accelerator()).eval()
        rows.append(reference(model, ids, is_encoder))
        del model
    exact, theirs = rows
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    compare = compare_vectors if is_encoder else compare_rows
    found = compare(exact, theirs, jitney_rows(path, ids, args, 256).reshape(exact.shape))
    if not is_encoder and sizes[-1] < 60000:  # decoding kernels have the bits of prompts
        whole = jitney_rows(path, ids[:4], args, 256)
        found["same_bits_token_by_token"] = bool(
            torch.equal(whole, jitney_rows(path, ids[:4], args, 1)))
    return found


def logits(args):
    os.makedirs(args.work, exist_ok=True)
    found, failed = {}, 0
    for entry in TINY if args.tiny else TINY + LARGE:
        if time.time() - BEGAN > args.limit:
            found[entry[0]] = "skipped: no time left"
            continue
        began = time.time()
        try:
            found[entry[0]] = compare_model(entry, args)
            failed += not found[entry[0]]["agrees"]
        except Exception as error:  # pylint: disable=broad-except
            found[entry[0]] = f"failed: {type(error).__name__}: {error}"[:700]
            failed += 1
        print(f"{entry[0]} ({time.time() - began:.1f} s): {found[entry[0]]}", flush=True)
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(found, file)
    return 1 if failed else 0


@torch.no_grad()
def speed(args):
    lengths = json.loads(args.lengths)
    sizes = (256, 4, 4, 2, 512, 1000) if args.tiny else (4096, 32, 32, 8, 14336, 128256)
    kind, config = llama(*sizes)
    config.tie_word_embeddings = False
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(accelerator()):
        model = kind(config).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    useful, seconds, batches = 0, 0.0, 0
    for first in range(0, len(lengths), BATCH):
        if batches and time.time() - BEGAN + 1.1 * seconds / batches > args.limit:
            break
        batch = lengths[first:first + BATCH]
        longest, answer = max(p for p, _ in batch), max(a for _, a in batch)
        ids = torch.randint(5, sizes[-1], (len(batch), longest), device=model.device)
        mask = torch.ones_like(ids)
        for i, (prompt, _) in enumerate(batch):
            mask[i, :longest - prompt] = 0
        if batches == 0:  # kernels are loaded
            model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False)
        began = time.time()
        out = model.generate(ids, attention_mask=mask, max_new_tokens=answer, do_sample=False)
        assert out.shape[1] == longest + answer
        seconds += time.time() - began
        useful += sum(a for _, a in batch)
        batches += 1
    print(json.dumps({"tokens_per_s": round(useful / seconds, 1), "batches": batches,
                      "of": -(-len(lengths) // BATCH), "seconds": round(seconds, 1)}))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["logits", "speed"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--work", default="/tmp/jitney-transformers")
    parser.add_argument("--out", default="logits.json")
    parser.add_argument("--lengths", default="[]")
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    return logits(args) if args.what == "logits" else speed(args)


if __name__ == "__main__":
    sys.exit(main())
