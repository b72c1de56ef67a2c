"""Goal:   the objects of files, batches, conversations and stored answers are what the clients of
        OpenAI and Anthropic expect, down to the words of every field.
Method: wire_driver prints them without a server; the clients' own types validate each, and the
        document of the HTTP interface is validated as OpenAPI."""

import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from cli_lib import JITNEY

DRIVER = Path(JITNEY).resolve().parent / "tests" / "wire_driver"
pytestmark = pytest.mark.skipif(not DRIVER.exists(), reason=f"{DRIVER} is not built")


def run(*arguments):
    done = subprocess.run([DRIVER, *arguments], capture_output=True, text=True, check=True,
                          env=dict(os.environ))
    return done.stdout


def type_of(name):
    """A type by its path; "page[member]" is a generic one."""
    name, _, member = name.rstrip("]").partition("[")
    module, _, own = name.rpartition(".")
    found = getattr(pytest.importorskip(module), own)
    return found[type_of(member)] if member else found


def objects():
    lines = [line.split("\t") for line in run().splitlines()] if DRIVER.exists() else []
    return [pytest.param(name, text, id=f"{number}-{name.rpartition('.')[2]}")
            for number, (name, text) in enumerate(lines)]


@pytest.mark.parametrize("name,text", objects())
def test_the_client_s_type_takes_the_object(name, text):
    importlib.import_module(name.split(".", maxsplit=1)[0])
    body = json.loads(text)
    read = type_of(name).model_validate(body)
    assert json.loads(read.to_json(exclude_unset=True)) is not None
    assert getattr(read, "id", None) == body.get("id")


def test_the_document_with_these_paths_is_valid():
    validator = pytest.importorskip("openapi_spec_validator")
    document = json.loads(run("--openapi"))
    validator.validate(document)
    assert {"/v1/files", "/v1/batches", "/v1/messages/batches", "/v1/conversations",
            "/v1/responses/{id}"} <= set(document["paths"])
