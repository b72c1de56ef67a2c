"""Goal:   /openapi.json is a valid document, says what the server does, and the server does what
        it says.
Method: a validator of OpenAPI documents; the paths against the table of routes in the source; and
        schemathesis, which makes requests from the document, bounded and with a fixed seed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli_lib import ROOT
from server_lib import FAST, Server, tiny_model

# OpenAI's paths are answered without their /v1 as well; once in the document is enough.
ALIASES = {"/chat/completions", "/completions", "/embeddings", "/models", "/models/{id}",
           "/v1/health"}


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    with Server(tiny_model(tmp_path_factory), *FAST, "--served-model-name", "tiny",
                "--log-level", "warn") as server:
        yield server


@pytest.fixture(scope="module", name="document")
def document_fixture(server):
    return server.get("/openapi.json").json


def test_the_document_is_valid(document):
    validator = pytest.importorskip("openapi_spec_validator",
                                    reason="openapi-spec-validator is not installed")
    validator.validate(document)
    assert document["openapi"].startswith("3.1")


def test_the_document_has_every_route_and_no_other(document):
    rows = re.findall(r'\{HTTP_([A-Z]+), "([^"]+)"',
                      (ROOT / "src" / "server" / "routes.c").read_text())
    assert len(rows) > 20
    routes = {(method.lower(), path.replace("*", "{id}", 1).replace("*", "{item_id}"))
              for method, path in rows}
    documented = {(method, path) for path, item in document["paths"].items() for method in item}
    assert {r for r in routes if r[1] not in ALIASES} == documented


def test_every_reference_resolves(document):
    names = set(document["components"]["schemas"])
    used = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert used <= names
    assert {n for n in names if not n.endswith("Request")} <= used | {"ToolCallPiece"}


def test_api_md_agrees_with_the_document(server):
    done = subprocess.run([sys.executable, ROOT / "tools" / "make_api_docs.py",
                           server.url + "/openapi.json", "--check"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_answers_without_a_body_of_their_own(server):
    for path in ("/", "/livez", "/readyz", "/health", "/version", "/metrics", "/v1/models",
                 "/api/tags", "/api/ps", "/api/version", "/openapi.json"):
        assert server.get(path).status == 200, path


def test_tokens_there_and_back(server):
    text = "Hello w\u00f6rld"
    tokens = server.post("/tokenize", {"model": "tiny", "prompt": text,
                                       "add_special_tokens": False}).json
    assert tokens["count"] == len(tokens["tokens"]) > 3
    back = server.post("/detokenize", {"model": "tiny", "tokens": tokens["tokens"]}).json
    assert back["prompt"] == back["content"] == text
    same = server.post("/tokenize", {"content": text, "add_special": False}).json
    assert same["tokens"] == tokens["tokens"]
    messages = [{"role": "user", "content": "Hi"}]
    prompt = server.post("/apply-template", {"messages": messages}).json["prompt"]
    assert prompt == "<|user|>Hi\n<|assistant|>"
    count = server.post("/tokenize", {"messages": messages}).json["count"]
    answer = server.chat("Hi", max_tokens=1).json
    assert answer["usage"]["prompt_tokens"] == count


def test_schemathesis_finds_nothing(server, tmp_path):
    program = Path(sys.executable).parent / "schemathesis"
    if not program.exists() and not shutil.which("schemathesis"):
        pytest.skip("schemathesis is not installed")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance," \
        "response_schema_conformance"
    done = subprocess.run(
        [str(program), "run", server.url + "/openapi.json", "--url", server.url,
         "--checks", checks, "--max-examples", "15", "--seed", "1", "--phases",
         "examples,fuzzing", "--generation-database", "none", "--exclude-path", "/v1/stream",
         "--exclude-path", "/v1/engine/steps", "--max-failures", "5", "--request-timeout", "20", "--no-color",
         "--suppress-health-check", "all"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)}, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert server.process.poll() is None
