"""Goal:   `jitney grammar check` and `jitney grammar bench` answer with the documented exit codes and
        keys, with bytes and with a model's tokens.
Method: small schemas and instances in files; the golden llama model has the tokens."""

import json
import subprocess
import sys

import pytest

from cli_lib import BAD, GOLDEN, MISSING, ROOT, USAGE, answer, refusal, run

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "tag": {"type": "string", "maxLength": 4}},
          "required": ["id"], "additionalProperties": False}
MODEL = str(GOLDEN / "llama")


def write(folder, name, value):
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def check(*args):
    code, said, _ = run("grammar", "check", *args, "--json")
    return code, json.loads(said) if said else None


@pytest.mark.parametrize("model", [[], ["-m", MODEL]])
def test_check_says_whether_an_instance_is_accepted(tmp_path, model):
    schema = write(tmp_path, "schema.json", SCHEMA)
    code, said = check(schema, *model)
    assert code == 0 and said["compiled"] and said["refused"] is None and said["accepted"] is None
    good = write(tmp_path, "good.json", '{ "id" : 7, "tag" : "\\u00e9x" }')
    code, said = check(schema, "--accepts", good, *model)
    assert code == 0 and said["accepted"] is True and said["rejected_at"] is None
    assert said["states"] > 0 and said["bytes"] > 0 and said["compile_us"] > 0
    assert set(said["mask_us"]) == {"mean", "p50", "p99", "max"} and said["mask_us"]["max"] > 0
    bad = write(tmp_path, "bad.json", {"id": 7, "tag": "12345"})
    code, said = check(schema, "--accepts", bad, *model)
    assert code == 1 and said["accepted"] is False
    assert said["rejected_at"] == len('{"id":7,"tag":"1234')


def test_raw_tests_the_bytes_as_they_are(tmp_path):
    schema = write(tmp_path, "schema.json", SCHEMA)
    assert check(schema, "--raw", "--accepts", write(tmp_path, "a", '{"id":7}'))[0] == 0
    code, said = check(schema, "--raw", "--accepts", write(tmp_path, "b", '{"id": 7}'))
    assert code == 1 and said["rejected_at"] == 6
    code, said = check(schema, "--raw", "--accepts", write(tmp_path, "c", '{"id":7'))
    assert code == 1 and said["rejected_at"] == 7


def test_a_refusal_has_its_place_and_a_sentence(tmp_path):
    schema = write(tmp_path, "s.json", {"properties": {"a": {"type": "string", "pattern": "(?<=x)"}}})
    code, said = check(schema)
    assert code == BAD and not said["compiled"]
    assert said["refused"]["path"] == "#/properties/a" and "pattern" in said["refused"]["sentence"]
    code, plain, _ = run("grammar", "check", schema)
    assert code == BAD and b"refused at #/properties/a: pattern" in plain


def test_bench_counts_schemas_and_instances(tmp_path):
    write(tmp_path, "1.json", {"schema": SCHEMA, "tests": [{"valid": True, "data": {"id": 1}},
                                                           {"valid": False, "data": {}}]})
    write(tmp_path, "2.json", {"schema": {"$ref": "other.json"}, "tests": []})
    write(tmp_path, "3.json", {"schema": {"type": "integer"}, "tests": [{"valid": True, "data": "x"},
                                                                        {"valid": False, "data": 3}]})
    said = answer("grammar", "bench", tmp_path, "-m", MODEL)
    counts = {k: v for k, v in said.items() if not k.endswith("_us")}
    assert counts == {"schemas": 3, "passing": 1, "refused": 1, "valid_rejected": 1, "invalid_accepted": 1,
                      "timeouts": 0}
    assert set(said["compile_us"]) == set(said["mask_us"]) == {"mean", "p50", "p99", "max"}


def test_made_schemas_are_answered_as_the_jsonschema_package_does(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools" / "make_schemas.py", tmp_path, "45", "7"], check=True)
    said = answer("grammar", "bench", tmp_path, "-m", MODEL)
    assert said["schemas"] == said["passing"] == 45, said


def test_wrong_words_and_missing_files(tmp_path):
    refusal(USAGE, "grammar")
    refusal(USAGE, "grammar", "chek", "x")
    refusal(MISSING, "grammar", "check", tmp_path / "none.json")
    refusal(MISSING, "grammar", "bench", tmp_path)
