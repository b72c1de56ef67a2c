#!/usr/bin/env python3
"""What speculation gains: tokens a second with and without drafts, on texts that copy and texts that
do not.

    python3 bench/speculation.py [-m smollm2] [--text FILE] [--rounds 5] [--only NAME] [flags of replay]

Workloads, made from the lines of a text:

    copy    the prompt has a paragraph twice and the beginning of a third copy: a quote, or an edit
            that changes little. Requests are kept whose answers, without speculation, consist of at
            least 70 % copied 8-grams (8 tokens in a row that stand earlier in the prompt or the answer).
    random  the prompt is a sentence, the answer is drawn at temperature 1.5: nothing to copy.

Each workload runs with 1, 8 and 32 sequences at a time, with every drafter in turn, `rounds` times.
Printed are the share of copied 8-grams, the medians of tokens a second, what was drafted and accepted,
and the ratio to the runs without drafts. Answers are compared token by token: they must not differ.
"""

import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
GRAM = 8  # tokens
LEAST_COPIED = 0.7


def paragraphs(path, rng):
    """Paragraphs of 250 to 700 characters, in random order."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    found = [line for line in lines if 250 <= len(line) <= 700 and not line.startswith("=")]
    rng.shuffle(found)
    return found


def copy_request(number, text, tokens):
    words = text.split()
    start = " ".join(words[:4])
    return {"id": f"copy{number}", "prompt": f"{text}\n\n{text}\n\n{start}", "max_tokens": tokens,
            "temperature": 0, "ignore_eos": True}


def random_request(number, text, tokens):
    sentence = re.split(r"(?<=\.) ", text)[0]
    return {"id": f"random{number}", "prompt": sentence, "max_tokens": tokens, "temperature": 1.5,
            "seed": number, "ignore_eos": True}


def copied_share(prompt, answer):
    """How many of the answer's 8-grams stand earlier in prompt and answer."""
    tokens, seen, copied, count = prompt + answer, set(), 0, 0
    for end in range(GRAM, len(tokens) + 1):
        gram = tuple(tokens[end - GRAM:end])
        if end > len(prompt):
            count += 1
            copied += gram in seen
        seen.add(gram)
    return copied / count if count else 0.0


class Runner:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder

    def run(self, requests, drafter, at_once):
        """(tokens a second, drafted, accepted, answers by id)"""
        requests_file, out = self.folder / "requests.jsonl", self.folder / "out.jsonl"
        requests_file.write_text("".join(json.dumps(r) + "\n" for r in requests))
        command = [str(ROOT / "build/jitney"), "replay", "-m", self.args.model, "--requests",
                   str(requests_file), "--json", "--out", str(out), "--set",
                   f"max_seqs={at_once}", "--speculate", drafter, *self.args.flags]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        summary = json.loads(done.stdout)
        answers = {a["id"]: (a["tokens"], a["logprobs"])
                   for a in map(json.loads, out.read_text().splitlines())}
        return (summary["output_tokens_per_s"], summary.get("drafted", 0),
                summary.get("accepted", 0), answers)

    def tokens_of(self, text):
        done = subprocess.run([str(ROOT / "build/jitney"), "tokenize", "-m", self.args.model],
                              input=text.encode(), check=True, stdout=subprocess.PIPE)
        return [int(token) for token in done.stdout.split()]


def make_workload(runner, name, count, tokens):
    """(requests, mean share of copied 8-grams)"""
    rng = random.Random(1)
    make = copy_request if name == "copy" else random_request
    texts = paragraphs(runner.args.text, rng)[:count * 4 if name == "copy" else count]
    requests = [make(i, text, tokens) for i, text in enumerate(texts)]
    answers = runner.run(requests, "off", 32)[3]
    kept, shares = [], []
    for request in requests:
        prompt = runner.tokens_of(request["prompt"])
        share = copied_share(prompt, answers[request["id"]][0])
        if name == "copy" and share < LEAST_COPIED:
            continue
        kept.append(request)
        shares.append(share)
        if len(kept) == count:
            break
    if len(kept) < count:
        sys.exit(f"speculation: only {len(kept)} of {count} requests copy enough; give another --text")
    return kept, statistics.mean(shares)


def measure(runner, requests, at_once, drafters, rounds):
    rates = {drafter: [] for drafter in drafters}
    drafts, expected, is_same = {}, None, True
    for _ in range(rounds):
        for drafter in drafters:
            rate, drafted, accepted, answers = runner.run(requests, drafter, at_once)
            rates[drafter].append(rate)
            drafts[drafter] = (drafted, accepted)
            expected = expected or answers
            is_same = is_same and answers == expected
    return {d: statistics.median(r) for d, r in rates.items()}, drafts, is_same


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--text", type=pathlib.Path,
                        default=ROOT.parent / "shared/data/text/wikitext2.test.raw")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--drafters", default="off,ngram,suffix")
    parser.add_argument("--only", choices=["copy", "random"])
    args, args.flags = parser.parse_known_args()
    drafters, failed = args.drafters.split(","), False
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(args, pathlib.Path(folder))
        for name in ["copy", "random"]:
            if args.only not in (None, name):
                continue
            requests, share = make_workload(runner, name, 32, args.tokens)
            print(f"{name}: {len(requests)} requests of {args.tokens} tokens, {share:.0%} of the "
                  f"8-grams are copied", flush=True)
            for at_once in (1, 8, 32):
                some = requests[:8] if at_once == 1 else requests
                rates, drafts, is_same = measure(runner, some, at_once, drafters, args.rounds)
                for drafter in drafters:
                    drafted, accepted = drafts[drafter]
                    print(f"  {at_once:2} at once, {drafter:8} {rates[drafter]:8.1f} tokens/s  "
                          f"{rates[drafter] / rates[drafters[0]]:.2f}x  drafted {drafted}, "
                          f"accepted {accepted}", flush=True)
                if not is_same:
                    print("  answers differ")
                    failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
