#!/usr/bin/env python3
"""Compares jitney's masks with llguidance's and xgrammar's: `make bench-grammar`.

usage: compare.py [--jitney PATH] [--work FOLDER] [--every N] [--engines LIST] [--vocabulary NAME=GGUF ...]

Schemas: those of the JSON Schema Test Suite (drafts 2020-12 and 7, from the source archive of the jsonschema package) and 300
that tools/make_schemas.py makes. Each schema runs in a fresh process, each instance once, on one thread, compact JSON on all
sides; an instance's tokens are those of the model's tokenizer. `compile` lasts until the first mask is ready; `mask` is every
other mask. The tree of the vocabulary is made once per model on all sides and not counted. The figures are those of the schemas
that all engines compile; the bar is for the suite's and the made ones together, and the two parts are shown beside it. The peers
are called from Python, which costs them about half a microsecond a call.
"""
import argparse
import json
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITE = "jsonschema==4.26.0"
FORMATS = "date time date-time duration email hostname ipv4 ipv6 uri uuid json-pointer".split()
DRAFTS = {"draft2020-12": "https://json-schema.org/draft/2020-12/schema", "draft7": "http://json-schema.org/draft-07/schema#"}
MADE_COUNT = 300
BAR = 0.8  # of the better peer, for masks


def make_venv(work):
    python = work / "venv/bin/python"
    if not python.exists():
        venv.create(work / "venv", with_pip=True)
    wanted = (ROOT / "bench/grammar/requirements.txt").read_text()
    stamp = work / "venv/installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        # Without dependencies: xgrammar's are torch and transformers, which peer.py stands in for.
        pip = [python, "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "--no-deps", *wanted.split()], check=True)
        subprocess.run([*pip, "pydantic"], check=True)
        stamp.write_text(wanted)
    return python


def described_order(schema, order):
    """The order of the names that a schema describes, wherever."""
    if isinstance(schema, dict):
        for name in schema.get("properties") or ():
            order.setdefault(name, len(order))
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        described_order(part, order)
    return order


def canonical(value, order):
    if isinstance(value, dict):
        return {k: canonical(value[k], order) for k in sorted(value, key=lambda k: order.get(k, len(order)))}
    return [canonical(v, order) for v in value] if isinstance(value, list) else value


def suite_files(archive):
    for draft, meta in DRAFTS.items():
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            parts = Path(member.name).parts[1:]
            required = parts[:3] == ("json", "tests", draft) and len(parts) == 4 and parts[3] != "format.json"
            is_format = parts[:5] == ("json", "tests", draft, "optional", "format") and Path(member.name).stem in FORMATS
            if member.name.endswith(".json") and (required or is_format):
                yield f"{draft}-{Path(member.name).stem}", meta, json.load(archive.extractfile(member))


def make_suite(work, folder):
    if folder.exists():
        return
    if not list(work.glob("jsonschema-*.tar.gz")):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "jsonschema", "-d", work, SUITE],
                       check=True)
    folder.mkdir(parents=True)
    with tarfile.open(next(work.glob("jsonschema-*.tar.gz"))) as archive:
        for name, meta, groups in suite_files(archive):
            for n, group in enumerate(groups):
                schema = group["schema"]
                if isinstance(schema, dict):
                    schema = {"$schema": meta, **schema}
                order = described_order(schema, {})
                tests = [{"valid": t["valid"], "data": canonical(t["data"], order)} for t in group["tests"]]
                (folder / f"{name}-{n:03}.json").write_text(json.dumps({"schema": schema, "tests": tests}))


def make_schemas(work):
    make_suite(work, work / "suite")
    if not (work / "made").exists():
        subprocess.run([sys.executable, ROOT / "tools/make_schemas.py", work / "made", str(MADE_COUNT)], check=True)
    return sorted((work / "suite").glob("*.json")) + sorted((work / "made").glob("*.json"))


def token_bytes(path, out):
    """The vocabulary of a GGUF file of byte-level BPE, as bytes in hexadecimal."""
    from gguf import GGUFReader
    reader = GGUFReader(path)
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    byte_of = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}
    texts = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    normal = 1
    tokens = [bytes(byte_of[c] for c in text).hex() if kind == normal else "" for text, kind in zip(texts, kinds)]
    eos = reader.fields["tokenizer.ggml.eos_token_id"].contents()
    out.write_text(json.dumps({"tokens": tokens, "eos": eos}))


def run_jitney(jitney, files, model, work):
    """By file: what `grammar bench --each` says of it."""
    results, folder = {}, work / "one"
    folder.mkdir(exist_ok=True)
    one = folder / "case.json"
    for file in files:
        one.write_text(file.read_text())
        run = subprocess.run([jitney, "grammar", "bench", folder, "-m", model, "--each"], check=True, capture_output=True, text=True)
        results[file.name] = json.loads(run.stdout)
    return results


def jitney_figures(result):
    masks = [us for test in result["tests"] for us in test["mask_us"]]
    return {"compile_us": result["compile_us"] + masks[0], "mask_us": masks[1:],
            "accepted": [test["accepted"] for test in result["tests"]]}


def percentile(values, share):
    return sorted(values)[int((len(values) - 1) * share)] if values else 0.0


def summary(figures):
    masks = [us for f in figures for us in f["mask_us"]]
    compiles = [f["compile_us"] for f in figures]
    return {"schemas": len(figures), "masks": len(masks),
            "mask mean": sum(masks) / max(1, len(masks)), "mask p50": percentile(masks, 0.5), "mask p99": percentile(masks, 0.99),
            "compile mean": sum(compiles) / max(1, len(compiles)),
            "compile p50": percentile(compiles, 0.5), "compile p99": percentile(compiles, 0.99)}


def report(title, figures):
    print(f"\n{title}")
    rows = {name: summary(list(f.values())) for name, f in figures.items()}
    print(f"{'microseconds':<12}" + "".join(f"{k:>13}" for k in rows["jitney"]))
    for name, row in rows.items():
        print(f"{name:<12}" + "".join(f"{v:>13}" if isinstance(v, int) else f"{v:>13.1f}" for v in row.values()))
    met, peers = True, [r for n, r in rows.items() if n != "jitney"]
    for key in ("mask mean", "mask p99"):
        best = min(r[key] for r in peers)
        print(f"{key}: {rows['jitney'][key] / best:.2f} of the better peer (at most {BAR})")
        met &= rows["jitney"][key] <= BAR * best
    for key in ("compile p50", "compile p99"):
        if "llguidance" in rows:
            print(f"{key}: {rows['jitney'][key] / rows['llguidance'][key]:.2f} of llguidance's (at most 1)")
            met &= rows["jitney"][key] <= rows["llguidance"][key]
    return met


def compare(args, name, model, files):
    vocabulary = args.work / f"vocabulary-{name}.json"
    if not vocabulary.exists():
        token_bytes(model, vocabulary)
    results = run_jitney(args.jitney, files, model, args.work)
    compiled = [f for f in files if results[f.name]["compiled"] and any(t["mask_us"] for t in results[f.name]["tests"])]
    cases = args.work / f"cases-{name}.jsonl"
    with cases.open("w") as out:
        for f in compiled:
            case = {"file": f.name, "schema": json.loads(f.read_text())["schema"], "tests": [t["tokens"] for t in results[f.name]["tests"]]}
            out.write(json.dumps(case) + "\n")
    figures = {"jitney": {f.name: jitney_figures(results[f.name]) for f in compiled}}
    for engine in args.engines.split(","):
        run = subprocess.run([args.work / "venv/bin/python", ROOT / "bench/grammar/peer.py", engine, vocabulary, cases], check=True,
                             capture_output=True, text=True)
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        figures[engine] = {line["file"]: line for line in lines if "error" not in line}
    common = set.intersection(*(set(f) for f in figures.values()))
    (args.work / f"figures-{name}.json").write_text(json.dumps(figures))
    print(f"\n{name}: {len(files)} schemas; compiled by jitney {len(compiled)}, and of these by "
          + ", ".join(f"{e} {len(f)}" for e, f in figures.items() if e != "jitney"))
    for title, start in (("suite", "draft"), ("made", "")):
        part = {e: {k: v for k, v in f.items() if k in common and k.startswith("draft") == bool(start)} for e, f in figures.items()}
        report(f"{name}, {title}", part)
    return report(f"{name}, all", {e: {k: f[k] for k in common} for e, f in figures.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jitney", type=Path, default=ROOT / "build/jitney")
    parser.add_argument("--work", type=Path, default=ROOT / "build/bench-grammar")
    parser.add_argument("--every", type=int, default=1, help="take each N-th schema only")
    parser.add_argument("--engines", default="llguidance,xgrammar")
    parser.add_argument("--vocabulary", action="append", metavar="NAME=GGUF", required=True)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    make_venv(args.work)
    files = make_schemas(args.work)[::args.every]
    print("peers: " + ", ".join((ROOT / "bench/grammar/requirements.txt").read_text().split()[:2]))
    met = True
    for pair in args.vocabulary:
        name, model = pair.split("=", 1)
        met &= compare(args, name, model, files)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
