"""The page's files over HTTP: who gets the page, what the headers allow, what is sent again.

Goal:   a browser gets the page and nothing but it can run there; other clients get text.
Method: requests without a browser, to a server that computes nothing."""

import re

import pytest

from cli_lib import ROOT, talking_model
from server_lib import FAST, Server

HTML = {"accept": "text/html,application/xhtml+xml"}
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
NAMES = sorted(p.name for p in (ROOT / "web").iterdir() if p.suffix in TYPES)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    keys = tmp_path_factory.mktemp("page") / "keys"
    keys.write_text("sk-page\n")
    model = talking_model(tmp_path_factory.mktemp("model") / "m")
    with Server(model, *FAST, "--api-key-file", keys) as s:
        yield s


def test_a_browser_gets_the_page_and_others_get_text(server):
    page = server.request("GET", "/", headers=HTML)
    assert page.status == 200 and page.headers["content-type"] == TYPES[".html"]
    assert page.body == (ROOT / "web" / "index.html").read_bytes()
    for headers in ({}, {"accept": "*/*"}, {"accept": "application/json"}):
        text = server.request("GET", "/", headers=headers)
        assert text.headers["content-type"].startswith("text/plain")
        assert text.body.startswith(b"jitney is running and serves\n")
        assert text.headers["vary"] == page.headers["vary"] == "accept"


@pytest.mark.parametrize("name", NAMES)
def test_each_file_is_served_open_with_its_type_and_etag(server, name):
    reply = server.request("GET", f"/page/{name}")
    assert reply.status == 200
    assert reply.body == (ROOT / "web" / name).read_bytes()
    assert reply.headers["content-type"] == TYPES["." + name.rpartition(".")[2]]
    again = server.plain("GET", f"/page/{name}", headers={"if-none-match": reply.headers["etag"]})
    assert again.status == 304 and again.body == b"" and again.headers["etag"] == reply.headers["etag"]
    other = server.plain("GET", f"/page/{name}", headers={"if-none-match": '"0123456789abcdef"'})
    assert other.status == 200 and other.body == reply.body
    head = server.plain("HEAD", f"/page/{name}")
    assert head.status == 200 and head.body == b""
    assert int(head.headers["content-length"]) == len(reply.body)


def test_the_headers_allow_this_server_only_and_no_inline_script(server):
    for path in ("/", "/page/main.js", "/page/recording.html"):
        headers = server.plain("GET", path, headers=HTML).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-cache"


def test_unknown_files_and_bodies_are_refused(server):
    for name in ("nothing.js", "../main.js", "%2e%2e/main.js", "main.js/", "MAIN.JS"):
        reply = server.plain("GET", f"/page/{name}")
        assert reply.status == 404 and reply.error["code"] == "unknown_url", name
    assert server.plain("POST", "/page/main.js", b"x", {"authorization": "Bearer sk-page"}).status == 405
    assert server.plain("GET", "/page/main.js", b"x").status == 413


def test_no_page_leaves_it_out(tmp_path):
    with Server(talking_model(tmp_path / "m"), *FAST, "--no-page") as s:
        assert s.request("GET", "/", headers=HTML).headers["content-type"].startswith("text/plain")
        reply = s.request("GET", "/page/main.js")
        assert reply.status == 404 and "--no-page" in reply.error["message"]


def test_the_page_is_light_and_names_nothing_outside():
    total = sum((ROOT / "web" / name).stat().st_size for name in NAMES)
    assert total <= 200 << 10, total
    page = (ROOT / "web" / "index.html").read_text()
    modules = [name for name in NAMES if name.endswith(".js")]
    for name in modules:
        if name != "main.js":
            assert f'<link rel="modulepreload" href="page/{name}">' in page, name
    for name in NAMES:
        text = (ROOT / "web" / name).read_text()
        assert not re.search(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval)\b", text), name
        outside = set(re.findall(r"https?://[\w.]+", text)) - {"http://www.w3.org"}
        assert not outside, (name, outside)
