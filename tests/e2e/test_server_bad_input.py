"""Goal:   any input gets the right error in OpenAI's format, the connection is kept or closed as
        it should be, nothing leaks, and the server keeps running.
Method: bytes on plain sockets: smuggling attempts, malformed JSON by class (json_bodies.py), each
        limit at its edge, clients that are slow or go away, and a wrong type for each field that
        /openapi.json lists. Descriptors are counted before and after. Where there is a build under
        sanitizers, it is the one that is asked."""

import json
import re
import socket
import time

import pytest

from json_bodies import RIGHT, WRONG
from server_lib import (ASAN_JITNEY, FAST, JITNEY, Server, http_request, read_all, read_until,
                        statuses, tiny_model, wait_until)

PATH = "/v1/chat/completions"


@pytest.fixture(scope="module", name="server")
def server_fixture(tmp_path_factory):
    with Server(tiny_model(tmp_path_factory), *FAST, "--served-model-name", "tiny",
                "--head-timeout-s", "0.5", "--body-timeout-s", "0.5", "--idle-timeout-s", "2",
                "--body-max", "1M",
                program=ASAN_JITNEY if ASAN_JITNEY.exists() else JITNEY) as server:
        server.get("/livez")
        yield server


@pytest.fixture(autouse=True)
def no_leak(server):
    """Every test leaves the server as it found it."""
    before = server.descriptors()
    yield
    assert server.process.poll() is None, server.lines[-20:]
    assert wait_until(lambda: server.descriptors() <= before, 15), \
        (before, server.descriptors())
    assert server.get("/livez").status == 200
    assert wait_until(server.is_quiet, 15)


def good_body(**fields):
    return json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x"}],
                       "max_tokens": 2, **fields}).encode()


def check_error(data, status):
    """One response with `status` and an error of OpenAI's shape."""
    assert statuses(data)[:1] == [status], data[:400]
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower(), head
    error = json.loads(body)["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert error["message"] and error["type"]
    return head.lower(), error


# --- framing ---

BODY = good_body()
LENGTH = b"content-length: %d" % len(BODY)
SMUGGLING = {
    "length_and_chunked": (b"POST %s HTTP/1.1", LENGTH + b"\r\ntransfer-encoding: chunked"),
    "chunked_and_length": (b"POST %s HTTP/1.1", b"transfer-encoding: chunked\r\n" + LENGTH),
    "two_lengths_that_differ": (b"POST %s HTTP/1.1", LENGTH + b"\r\ncontent-length: 3"),
    "two_lengths_in_one_line": (b"POST %s HTTP/1.1", LENGTH + b", 3"),
    "two_equal_lengths": (b"POST %s HTTP/1.1", LENGTH + b"\r\n" + LENGTH),
    "length_with_plus": (b"POST %s HTTP/1.1", b"content-length: +3"),
    "length_negative": (b"POST %s HTTP/1.1", b"content-length: -1"),
    "length_hex": (b"POST %s HTTP/1.1", b"content-length: 0x10"),
    "length_with_letters": (b"POST %s HTTP/1.1", b"content-length: 10abc"),
    "length_empty": (b"POST %s HTTP/1.1", b"content-length: "),
    "length_too_big_for_64_bits": (b"POST %s HTTP/1.1",
                                   b"content-length: 99999999999999999999999"),
    "encoding_unknown": (b"POST %s HTTP/1.1", b"transfer-encoding: xchunked"),
    "encoding_identity": (b"POST %s HTTP/1.1", b"transfer-encoding: identity"),
    "encoding_chunked_not_last": (b"POST %s HTTP/1.1", b"transfer-encoding: chunked, gzip"),
    "encoding_chunked_twice": (b"POST %s HTTP/1.1", b"transfer-encoding: chunked, chunked"),
    "encoding_with_tab": (b"POST %s HTTP/1.1", b"transfer-encoding:\x0bchunked"),
    "space_before_colon": (b"POST %s HTTP/1.1", LENGTH.replace(b":", b" :")),
    "folded_header": (b"POST %s HTTP/1.1", LENGTH + b"\r\nx-a: 1\r\n folded: 2"),
    "header_without_colon": (b"POST %s HTTP/1.1", LENGTH + b"\r\nnonsense"),
    "header_without_name": (b"POST %s HTTP/1.1", LENGTH + b"\r\n: value"),
    "nul_in_header": (b"POST %s HTTP/1.1", LENGTH + b"\r\nx-a: a\x00b"),
    "bare_cr_in_header": (b"POST %s HTTP/1.1", LENGTH + b"\r\nx-a: a\rb"),
    "two_hosts": (b"POST %s HTTP/1.1", LENGTH + b"\r\nhost: other"),
    "unknown_version": (b"POST %s HTTP/1.2", LENGTH),
    "version_2": (b"POST %s HTTP/2.0", LENGTH),
    "lower_case_version": (b"POST %s http/1.1", LENGTH),
    "no_version": (b"POST %s", LENGTH),
    "space_in_path": (b"POST %s x HTTP/1.1", LENGTH),
    "control_in_path": (b"POST %s\x01 HTTP/1.1", LENGTH),
    "path_without_slash": (b"POST v1/models HTTP/1.1", LENGTH),
    "lower_case_method": (b"post %s HTTP/1.1", LENGTH),
    "space_before_method": (b" POST %s HTTP/1.1", LENGTH),
    "unknown_method": (b"FROB %s HTTP/1.1", LENGTH),
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_a_request_with_two_meanings_is_refused_and_the_connection_closed(server, name):
    line, headers = SMUGGLING[name]
    line = line.replace(b"%s", PATH.encode())
    # A second request hides behind the body: it must never be answered.
    data = line + b"\r\nhost: localhost\r\n" + headers + b"\r\n\r\n" + BODY + \
        b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n"
    answer = server.raw(data)
    codes = statuses(answer)
    assert len(codes) == 1, answer
    assert codes[0] in (400, 405, 413, 501, 505), answer
    head, _ = check_error(answer, codes[0])
    assert b"connection: close" in head


@pytest.mark.parametrize("chunks", [
    b"g\r\n", b"-1\r\n", b"0x5\r\n", b"5 \r\nabcde\r\n", b"5\nabcde\n", b"5\r\nabcdeXX0\r\n\r\n",
    b"fffffffffffffffff\r\n", b"\r\n", b";\r\n", b"5;\x00\r\nabcde\r\n0\r\n\r\n",
], ids=repr)
def test_damaged_chunks_are_refused(server, chunks):
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = server.raw(head.encode() + chunks)
    assert statuses(answer)[0] in (400, 413), answer
    assert len(statuses(answer)) == 1


def test_a_bare_lf_does_not_end_a_line(server):
    answer = server.raw(b"GET /livez HTTP/1.1\nhost: localhost\n\n")
    assert statuses(answer) in ([400], [408]), answer


def test_a_chunked_body_is_read(server):
    pieces = [BODY[i:i + 7] for i in range(0, len(BODY), 7)]
    chunks = b"".join(b"%x;note=1\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" \
        "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    assert statuses(server.raw(head.encode() + chunks)) == [200]


def test_a_request_in_single_bytes_is_the_same_request(server):
    with server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in http_request("POST", PATH, BODY, connection="close"):
            sock.send(bytes([byte]))
        assert statuses(read_all(sock)) == [200]


def test_host_is_needed(server):
    check_error(server.raw(b"GET /livez HTTP/1.1\r\n\r\n"), 400)


def test_expect_continue(server):
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n" \
        f"connection: close\r\ncontent-length: {len(BODY)}\r\n\r\n"
    with server.connect() as sock:
        sock.sendall(head.encode())
        assert b"100" in read_until(sock, b"\r\n\r\n").split(b"\r\n")[0]
        sock.sendall(BODY)
        assert statuses(read_all(sock)) == [200]
    answer = server.raw(head.replace("100-continue", "miracle").encode() + BODY)
    assert statuses(answer)[0] in (200, 417)


def test_compressed_bodies_are_not_read(server):
    for coding in ("gzip", "br", "gzip, identity"):
        reply = server.request("POST", PATH, BODY, headers={"content-encoding": coding})
        assert reply.status == 415 and reply.error["code"] == "unsupported_content_encoding"
    assert server.request("POST", PATH, BODY,
                          headers={"content-encoding": "identity"}).status == 200


# --- limits ---

def test_heads_over_their_limits(server):
    long_value = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"a" * 20000 + b"\r\n\r\n"
    check_error(server.raw(long_value), 431)
    many = b"".join(b"x-%d: 1\r\n" % i for i in range(150))
    check_error(server.raw(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n" + many + b"\r\n"), 431)
    long_path = b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert statuses(server.raw(long_path))[0] in (414, 431)
    endless = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"a" * 100000
    assert statuses(server.raw(endless))[0] == 431


def test_bodies_over_their_limit(server):
    announced = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000000\r\n\r\n"
    head, _ = check_error(server.raw(announced.encode()), 413)
    assert b"connection: close" in head
    chunks = (b"10000\r\n" + b" " * 65536 + b"\r\n") * 20
    start = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = server.raw(start.encode() + chunks)
    # The server may close while the client still sends; if its answer arrives it is 413.
    assert not answer or statuses(answer)[0] == 413
    whole = b'{"model":"tiny","x":"' + b"a" * (1 << 20) + b'"}'
    answer = server.raw(http_request("POST", PATH, whole))
    assert not answer or statuses(answer)[0] == 413


def test_json_over_its_limits(server):
    deep = b'{"model":"tiny","messages":' + b"[" * 100 + b"]" * 100 + b"}"
    assert server.plain("POST", PATH, deep).status == 400
    wide = b'{"x":[' + b"0," * 200000 + b"0]}"
    assert server.plain("POST", PATH, wide).status in (400, 413)


@pytest.mark.parametrize("fields, param", [
    ({"stop": ["x"] * 17}, "stop"),
    ({"stop": ["x" * 257]}, "stop[0]"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"99999999": 1}}, ""),
    ({"n": 17}, "n"),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ({"messages": [{"role": "user", "content": "x"}] * 2049}, "messages"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}] * 1025}, "tools"),
    ({"stop_token_ids": list(range(65))}, "stop_token_ids"),
    ({"max_tokens": 10**20}, "max_tokens"),
    ({"seed": 2**63}, "seed"),
    ({"temperature": 1e40}, "temperature"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_values_over_their_limits(server, fields, param):
    reply = server.post(PATH, json.loads(good_body()) | fields)
    assert reply.status == 400
    assert (reply.error["param"] or "").startswith(param.split("[")[0])


# --- JSON ---

@pytest.mark.parametrize("path", [PATH, "/v1/embeddings", "/v1/messages", "/api/chat", "/tokenize"])
def test_a_body_that_is_not_json_is_400(server, path):
    for name, body in WRONG:
        reply = server.plain("POST", path, body, headers={"content-type": "application/json"})
        assert reply.status in (400, 413), (name, reply.status, reply.body)
        server.document.check("POST", path, reply.status, "application/json", reply.body)


def test_odd_json_is_json(server):
    for name, value in RIGHT:
        body = BODY[:-1] + b',"nobody_knows":' + value + b"}"
        reply = server.plain("POST", PATH, body, headers={"content-type": "application/json"})
        # A server may be stricter than the standard where the standard leaves it open.
        open_cases = ("duplicated_key", "number_big_int", "number_tiny", "nul_escape_in_string",
                      "escaped_noncharacter")
        allowed = (200, 400) if name in open_cases else (200,)
        assert reply.status in allowed, (name, reply.status, reply.body)


def test_json_that_is_not_an_object(server):
    for body in (b"null", b"true", b"1", b'"x"', b"[]", b"[{}]"):
        assert server.post(PATH, body).status == 400


def test_invalid_utf8_in_a_prompt(server):
    for bad in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\x80"):
        body = b'{"model":"tiny","messages":[{"role":"user","content":"a%sb"}]}' % bad
        reply = server.post(PATH, body)
        assert reply.status == 400, bad


def test_a_prompt_with_every_character_is_fine(server):
    text = "".join(map(chr, [1, 9, 10, 127, 0x80, 0x7FF, 0x800, 0xFFFD, 0xFFFF, 0x10FFFF]))
    reply = server.chat(text, max_tokens=2)
    assert reply.status == 200


def wrong_values(schema):
    """A value of each JSON type that a property's schema does not allow."""
    if "enum" in schema:  # a field that may only be given to ask for nothing
        allowed = [json.dumps(value) for value in schema["enum"]]
        return [v for v in (True, False, "wrong", [[]], {"x": 1}) if json.dumps(v) not in allowed]
    kinds = set()
    for option in schema.get("anyOf", [schema]):
        kind = option.get("type")
        kinds |= set(kind if isinstance(kind, list) else [kind] if kind else
                     ["null", "boolean", "integer", "number", "string", "array", "object"])
    values = {"boolean": True, "string": "wrong", "array": [[]], "object": {"wrong": 1},
              "number": 0.5, "integer": 1}
    if "number" in kinds:
        kinds.add("integer")
    if "integer" in kinds:
        kinds.add("number_of_another_kind")
    return [value for kind, value in values.items()
            if kind not in kinds and not (kind == "number" and "integer" in kinds)]


def bodies_to_spoil():
    message = [{"role": "user", "content": "x"}]
    return {
        PATH: {"model": "tiny", "messages": message, "max_tokens": 1},
        "/v1/completions": {"model": "tiny", "prompt": "x", "max_tokens": 1},
        "/v1/responses": {"model": "tiny", "input": "x", "max_output_tokens": 1},
        "/v1/messages": {"model": "tiny", "messages": message, "max_tokens": 1},
        "/v1/messages/count_tokens": {"model": "tiny", "messages": message},
        "/v1/embeddings": {"model": "tiny", "input": "x"},
        "/api/embed": {"model": "tiny", "input": "x"},
        "/api/chat": {"model": "tiny", "messages": message, "stream": False,
                      "options": {"num_predict": 1}},
        "/api/generate": {"model": "tiny", "prompt": "x", "stream": False,
                          "options": {"num_predict": 1}},
        "/tokenize": {"model": "tiny", "prompt": "x"},
        "/detokenize": {"model": "tiny", "tokens": [40]},
        "/apply-template": {"model": "tiny", "messages": message},
    }


@pytest.fixture(scope="module", name="computing")
def computing_fixture(tmp_path_factory):
    """A server that computes: one that only pretends gives no vectors."""
    with Server(tiny_model(tmp_path_factory), "--served-model-name", "tiny") as server:
        yield server


@pytest.mark.parametrize("path", bodies_to_spoil())
def test_a_wrong_type_for_each_field(server, computing, path):
    if "embed" in path:
        server = computing
    document = server.get("/openapi.json").json
    body = bodies_to_spoil()[path]
    assert server.post(path, body).status == 200
    reference = document["paths"][path]["post"]["requestBody"]["content"]["application/json"][
        "schema"]["$ref"].rpartition("/")[2]
    properties = document["components"]["schemas"][reference]["properties"]
    assert properties
    for name, schema in properties.items():
        # A field that is refused may still be given to ask for nothing: best_of 1, say.
        refused = "Refused" in schema.get("description", "")
        replies = [(value, server.post(path, {**body, name: value}))
                   for value in wrong_values(schema)]
        assert not refused or any(reply.status == 400 for _, reply in replies), name
        for value, reply in replies:
            if refused and reply.status == 200:
                continue
            assert reply.status == 400, (path, name, value, reply.body)
            if path.startswith("/v1/") and "messages" not in path:
                assert re.match(rf"{name}(\W|$)", reply.error["param"] or ""), \
                    (name, value, reply.error)


# --- slow, silent and gone ---

def test_slow_heads_are_cut(server):
    start = time.monotonic()
    with server.connect() as sock:
        data = b""
        sock.settimeout(0.1)
        for byte in b"GET /livez HTTP/1.1\r\nx-slow: " + b"a" * 100:
            try:
                sock.send(bytes([byte]))
                piece = sock.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
            if not piece:
                break
            data += piece
        assert time.monotonic() - start < 10
        assert not data or statuses(data) == [408]


def test_slow_bodies_are_cut(server):
    start = time.monotonic()
    answer = server.raw(f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n"
                        "{".encode())
    assert 0.3 < time.monotonic() - start < 20
    head, _ = check_error(answer, 408)
    assert b"connection: close" in head


def test_silent_connections_are_closed(server):
    with server.connect() as sock:
        start = time.monotonic()
        assert read_all(sock) == b""
        assert 0.4 < time.monotonic() - start < 20


@pytest.fixture(scope="module", name="slow")
def slow_fixture(tmp_path_factory):
    """A server that gives a token in 50 ms, so that an answer of 1,000 never comes to its end."""
    with Server(tiny_model(tmp_path_factory), "--served-model-name", "tiny", "--runner",
                "sim:50000", "--body-timeout-s", "1") as server:
        yield server


def count_of(server, path, status):
    """How many requests of a path have ended with a status."""
    text = server.plain("GET", "/metrics").body.decode()
    name = rf'jitney:http_requests_total{{route="{path}",status="{status}"}} (\d+)'
    return sum(map(int, re.findall(name, text)))


def has_nothing_left(server):
    """The request for the metrics is the only one, and holds no body."""
    found = server.metrics()
    return server.is_quiet() and found["jitney:http_exchanges"] == 1 and not any(
        found[name] for name in ("jitney:http_bodies_bytes", "jitney:http_queued_bytes",
                                 "jitney:answers_under_way", "jitney:work_items"))


def read_to_end(sock):
    """Everything up to the end of the connection. A connection that stays open, or is reset, is an
    error."""
    data = b""
    while piece := sock.recv(65536):
        data += piece
    return data


def test_a_half_closed_client_gets_what_is_ready_and_an_end(server):
    with server.connect() as sock:
        sock.sendall(http_request("GET", "/livez"))
        sock.shutdown(socket.SHUT_WR)
        assert statuses(read_to_end(sock)) == [200]
    with server.connect() as sock:
        sock.sendall(http_request("POST", PATH, BODY)[:-1])
        sock.shutdown(socket.SHUT_WR)
        assert read_to_end(sock) == b""


@pytest.mark.parametrize("stream", [False, True])
def test_a_half_closed_client_does_not_wait_for_its_answer(slow, stream):
    before, submitted = count_of(slow, PATH, 499), slow.metrics()["vllm:prompt_tokens_total"]
    body = good_body(max_tokens=1000, ignore_eos=True, stream=stream)
    with slow.connect() as sock:
        sock.sendall(http_request("POST", PATH, body))
        if stream:
            read_until(sock, b'"content":"')
        else:
            assert wait_until(lambda: slow.metrics()["vllm:num_requests_running"])
        sock.shutdown(socket.SHUT_WR)
        assert b"[DONE]" not in (rest := read_to_end(sock)) and (stream or rest == b"")
    assert wait_until(lambda: count_of(slow, PATH, 499) == before + 1)
    assert wait_until(lambda: has_nothing_left(slow))
    assert slow.metrics()["vllm:prompt_tokens_total"] > submitted  # it had begun


def test_clients_that_disconnect_in_the_middle_of_a_request(server):
    whole = http_request("POST", PATH, BODY)
    before = server.metrics()
    for cut in range(1, len(whole), 13):
        sock = server.connect()
        sock.sendall(whole[:cut])
        if cut % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
    assert wait_until(lambda: has_nothing_left(server))
    after = server.metrics()
    for name in ("jitney:requests_submitted_total", "jitney:http_faults_total"):
        assert after[name] == before[name], name


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_leave_while_their_answer_is_made(slow, stream):
    before = count_of(slow, PATH, 499)
    body = good_body(max_tokens=1000, ignore_eos=True, stream=stream)
    socks = [slow.connect() for _ in range(4)]
    for sock in socks:
        sock.sendall(http_request("POST", PATH, body))
    assert wait_until(lambda: slow.metrics()["vllm:num_requests_running"] == len(socks))
    for sock in socks:
        sock.close()
    assert wait_until(lambda: count_of(slow, PATH, 499) == before + len(socks))
    assert wait_until(lambda: has_nothing_left(slow))


def test_hundreds_of_slow_clients_do_not_delay_others(server):
    socks = [server.connect() for _ in range(200)]
    for i, sock in enumerate(socks):
        sock.sendall(b"POST / HTTP/1.1\r\nhost: x" if i % 2 else b"G")
    start = time.monotonic()
    assert server.chat(max_tokens=5).status == 200
    assert time.monotonic() - start < 10
    for sock in socks:
        sock.close()


# --- HTTP/2 ---

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + \
        payload


def split_frames(data):
    """The frames of some bytes: type, flags, stream, payload."""
    found = []
    while data:
        length = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + length, data
        found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:9 + length]))
        data = data[9 + length:]
    return found


def send_http2(server, data):
    """What the server sends until it closes, without its own settings and window."""
    with server.connect() as sock:
        sock.sendall(PREFACE + frame(SETTINGS) + data)
        frames = split_frames(read_to_end(sock))
    assert frames[0][:3] == (SETTINGS, 0, 0)
    return [found for found in frames if found[0] not in (SETTINGS, WINDOW_UPDATE)]


def ends_with(frames, code):
    """The last stream that was taken, of the GOAWAY that is the last frame."""
    kind, _, stream, payload = frames[-1]
    assert (kind, stream) == (GOAWAY, 0), frames[-3:]
    assert int.from_bytes(payload[4:8], "big") == code, payload
    return int.from_bytes(payload[:4], "big")


DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = \
    0, 1, 2, 3, 4, 6, 7, 8, 9
NO_ERROR, PROTOCOL_ERROR, FRAME_SIZE_ERROR, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = \
    0, 1, 6, 8, 9, 11
GET_ROOT = b"\x82\x84\x86\x41\x09localhost"  # in HPACK
RESET_BURST, RESETS_PER_S, FRAME_BURST = 200, 20, 2000  # of net/http2.c


@pytest.mark.parametrize("code, frames", [
    (PROTOCOL_ERROR, frame(DATA, 0, 0, b"x")),
    (PROTOCOL_ERROR, frame(HEADERS, 5, 2, b"\x82")),
    (COMPRESSION_ERROR, frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff")),
    (FRAME_SIZE_ERROR, frame(SETTINGS, 0, 0, b"abc")),
    (FRAME_SIZE_ERROR, frame(PING, 0, 0, b"abc")),
    (PROTOCOL_ERROR, frame(WINDOW_UPDATE, 0, 0, bytes(4))),
    (FRAME_SIZE_ERROR, (1 << 20).to_bytes(3, "big") + bytes([0, 0, 0, 0, 0, 1])),
    (PROTOCOL_ERROR, frame(CONTINUATION, 4, 1, b"\x82")),
    (PROTOCOL_ERROR, b"\x00\x01\x02" * 50),
], ids=["data_on_stream_0", "headers_on_even_stream", "bad_hpack", "settings_of_odd_length",
        "ping_of_wrong_length", "window_update_of_zero", "huge_frame", "continuation_first",
        "garbage"])
def test_broken_http2_ends_that_connection_only(server, code, frames):
    before = server.metrics()["jitney:http_faults_total"]
    with server.connect() as other:
        other.sendall(PREFACE + frame(SETTINGS))
        found = send_http2(server, frames)
        assert len(found) == 1 and ends_with(found, code) <= 1
        other.sendall(frame(PING, 0, 0, b"12345678"))
        read_until(other, frame(PING, 1, 0, b"12345678"))
    assert server.metrics()["jitney:http_faults_total"] == before + 1
    assert wait_until(lambda: has_nothing_left(server))


def reset_streams(count):
    return b"".join(frame(HEADERS, 4, 2 * i + 1, GET_ROOT) +
                    frame(RST_STREAM, 0, 2 * i + 1, CANCEL.to_bytes(4, "big"))
                    for i in range(count))


def test_streams_that_are_reset_are_limited(server):
    start = time.monotonic()
    last = ends_with(send_http2(server, reset_streams(5000)), ENHANCE_YOUR_CALM)
    most = RESET_BURST + 1 + RESETS_PER_S * (time.monotonic() - start)
    assert RESET_BURST < (last + 1) // 2 <= most
    assert wait_until(lambda: has_nothing_left(server))
    # As many as are allowed do no harm: the connection answers after them.
    with server.connect() as sock:
        sock.sendall(PREFACE + frame(SETTINGS) + reset_streams(RESET_BURST) +
                     frame(PING, 0, 0, b"12345678"))
        data = read_until(sock, frame(PING, 1, 0, b"12345678"))
        assert GOAWAY not in [kind for kind, *_ in split_frames(data)]


@pytest.mark.parametrize("name, flood", [
    ("settings", frame(SETTINGS)), ("ping", frame(PING, 0, 0, bytes(8))),
    ("priority", frame(PRIORITY, 0, 1, bytes(4) + b"\x10")),
    ("window_update", frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1")),
], ids=lambda v: v if isinstance(v, str) else "")
def test_frames_without_a_request_are_limited(server, name, flood):
    before = server.metrics()
    found = send_http2(server, flood * 5000)
    assert ends_with(found, ENHANCE_YOUR_CALM) == 0
    answers = [kind for kind, flags, _, _ in found[:-1] if (kind, flags) != (PING, 1)]
    assert not answers, (name, found[:3])
    after = server.metrics()
    assert after["jitney:http_faults_total"] == before["jitney:http_faults_total"] + 1
    assert wait_until(lambda: has_nothing_left(server))


def test_frames_up_to_the_limit_are_fine(server):
    some = frame(PRIORITY, 0, 1, bytes(4) + b"\x10") * (FRAME_BURST - 10)
    with server.connect() as sock:
        sock.sendall(PREFACE + frame(SETTINGS) + some + frame(PING, 0, 0, b"12345678"))
        data = read_until(sock, frame(PING, 1, 0, b"12345678"))
        assert GOAWAY not in [kind for kind, *_ in split_frames(data)]


def test_frames_of_unknown_types_keep_no_connection_open(server):
    """They are ignored, as the standard demands: the connection is idle."""
    start = time.monotonic()
    assert ends_with(send_http2(server, frame(0x77, 0, 0, b"x") * 5000), NO_ERROR) == 0
    assert time.monotonic() - start > 1.5  # --idle-timeout-s 2
