"""Goal:   clients that do everything at once and go away at any moment leave nothing behind.
Method: many seeded clients on plain sockets, each of which does something at random again
        and again: whole answers, streams, polls, cancels, resumes, WebSockets, embeddings, texts
        to tokenise, nonsense, leaving in the middle with FIN or RST, reading slowly. Each has one
        of three keys, whose limits some requests exceed. Then nothing may run, wait or be held,
        the descriptors are those of the beginning, and SIGTERM ends the server with 0 (under the
        sanitizers: without a report): it checks that every key, tenant and peer has given back
        what it held."""

import asyncio
import contextlib
import json
import random
import socket
import struct

import pytest

from cli_lib import GOLDEN
from server_lib import ASAN_JITNEY, JITNEY, Server, http_request, tiny_model, wait_until

SEED = 20261115
CLIENTS = 60
SECONDS = 3
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat",
         "/api/generate", "/tokenize", "/v1/messages/count_tokens", "/v1/embeddings"]
KEYS = """one tenant=a concurrent=12 tpm=200000
two tenant=a tpm=20000
three concurrent=8
boss admin
@a concurrent=18
"""
NAMES = ["one", "two", "three", "three", "unknown"]
GAUGES = ["http_bodies_bytes", "http_queued_bytes", "answers_under_way", "kept_answers",
          "kept_answers_bytes", "answers_bytes", "embeddings_bytes", "work_items", "work_bytes",
          "kv_blocks_held"]


def body_for(path, rng):
    tokens = rng.choice([1, 3, 20, 200, 800])
    text = rng.choice(["x", "Hello there", "\u00e9\U0001f600" * 20, "word " * 500])
    body = {"model": "tiny", "stream": rng.random() < 0.6, "seed": rng.randrange(100)}
    if path == "/v1/completions":
        body |= {"prompt": rng.choice([text, [text, "y"]]), "max_tokens": tokens,
                 "n": rng.choice([1, 1, 3])}
    elif path == "/tokenize":
        body |= {"content": text * rng.choice([1, 60])}
    elif path == "/v1/embeddings":
        body |= {"model": "bert", "input": [text[:100]] * rng.choice([1, 40])}
    elif path == "/v1/responses":
        body |= {"input": text, "max_output_tokens": tokens}
    elif path == "/api/generate":
        body |= {"prompt": text, "options": {"num_predict": tokens}}
    else:
        body |= {"messages": [{"role": "user", "content": text}], "max_tokens": tokens,
                 "options": {"num_predict": tokens}}
    return json.dumps(body).encode()


class Client:
    def __init__(self, server, seed):
        self.server, self.rng = server, random.Random(seed)
        self.key = f"Bearer {NAMES[seed % len(NAMES)]}"
        self.names = []  # of requests that may be asked for again
        self.answers = 0

    async def open(self):
        return await asyncio.open_connection(*self.server.address)

    async def leave(self, writer):
        if self.rng.random() < 0.5:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async def read_some(self, reader, share):
        """All of it, a part of it, or nothing."""
        if share == 0:
            return b""
        data = b""
        with contextlib.suppress(asyncio.TimeoutError):
            while share == 1 or len(data) < share:
                piece = await asyncio.wait_for(reader.read(2000), 1)
                data += piece
                done = b"0\r\n\r\n" in data or (b"content-length" in data and b"}" in data)
                if not piece or done:
                    break
                if self.rng.random() < 0.05:
                    await asyncio.sleep(0.05)
        return data

    async def ask(self):
        path = self.rng.choice(PATHS)
        name = f"r{self.rng.randrange(1 << 40)}"
        headers = {"x_request_id": name, "authorization": self.key}
        if self.rng.random() < 0.2:
            headers["x_jitney_keep"] = "true"
        if self.rng.random() < 0.1:
            headers["prefer"] = "respond-async"
        if self.rng.random() < 0.1:
            headers["x_jitney_deadline_ms"] = str(self.rng.choice([1, 50]))
        self.names = [*self.names[-5:], name]
        reader, writer = await self.open()
        writer.write(http_request("POST", path, body_for(path, self.rng), **headers))
        data = await self.read_some(reader, self.rng.choice([0, 1, 300, 3000]))
        self.answers += data.startswith(b"HTTP/1.1 200")
        await self.leave(writer)

    async def ask_again(self):
        if not self.names:
            return
        name = self.rng.choice(self.names)
        method = self.rng.choice(["GET", "GET", "DELETE"])
        headers = {"authorization": self.key}
        if self.rng.random() < 0.5:
            headers |= {"accept": "text/event-stream", "last_event_id": str(self.rng.randrange(50))}
        path = f"/v1/requests/{name}?after={self.rng.randrange(9)}&wait_ms={self.rng.randrange(99)}"
        reader, writer = await self.open()
        writer.write(http_request(method, path, **headers))
        await self.read_some(reader, self.rng.choice([0, 1, 200]))
        await self.leave(writer)

    async def talk_nonsense(self):
        reader, writer = await self.open()
        good = http_request("POST", "/v1/chat/completions", body_for(PATHS[0], self.rng),
                            authorization=self.key)
        data = bytearray(good[:self.rng.randrange(1, len(good))])
        for _ in range(self.rng.randrange(3)):
            data[self.rng.randrange(len(data))] = self.rng.randrange(256)
        writer.write(bytes(data))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(1000), 0.05)
        await self.leave(writer)

    async def use_websocket(self):
        reader, writer = await self.open()
        writer.write(http_request("GET", "/v1/stream", connection="Upgrade", upgrade="websocket",
                                  sec_websocket_version="13", authorization=self.key,
                                  sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ=="))
        for _ in range(self.rng.randrange(1, 4)):
            text = self.rng.choice([body_for(PATHS[0], self.rng), b'{"type":"cancel"}', b"{"])
            writer.write(self.frame(0x81, text))
        await self.read_some(reader, self.rng.choice([0, 500, 3000]))
        if self.rng.random() < 0.3:
            writer.write(self.frame(0x88, b"\x03\xe8"))
        await self.leave(writer)

    def frame(self, kind, payload):
        mask = self.rng.randbytes(4)
        size = len(payload)
        head = bytes([kind, 0x80 | size]) if size < 126 else \
            bytes([kind, 0x80 | 126]) + size.to_bytes(2, "big")
        return head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))

    async def live(self, until):
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            act = self.rng.choices([self.ask, self.ask_again, self.talk_nonsense,
                                    self.use_websocket], [6, 2, 1, 2])[0]
            with contextlib.suppress(OSError):
                await act()


@pytest.mark.parametrize("program, pause_us", [
    (JITNEY, 0), (JITNEY, 2000),
    pytest.param(ASAN_JITNEY, 500, marks=pytest.mark.skipif(
        not ASAN_JITNEY.exists(), reason="there is no build under sanitizers")),
], ids=["bursts", "paced", "sanitizers"])
def test_nothing_is_left_behind(tmp_path_factory, tmp_path, program, pause_us):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    flags = ("--runner", f"sim:{pause_us}", "--served-model-name", "tiny", "--served-model-name",
             "bert", "--api-key-file", keys, "--keep-s", "0.5", "--set", "max_seqs=16", "--set",
             "queue_max=64", "--log-level", "error")
    models = [tiny_model(tmp_path_factory), GOLDEN / "bert"]
    with Server(models, *flags, program=program) as server:
        server.key = "boss"
        server.plain("GET", "/livez")
        before = server.descriptors()
        clients = [Client(server, SEED + i) for i in range(CLIENTS)]

        async def main():
            until = asyncio.get_running_loop().time() + SECONDS
            await asyncio.gather(*(client.live(until) for client in clients))
        asyncio.run(main())
        assert sum(client.answers for client in clients) > 10
        assert server.process.poll() is None, server.lines[-5:]
        assert wait_until(server.is_quiet, 20), server.metrics()
        assert wait_until(lambda: server.descriptors() <= before, 15)

        def held():
            found = server.metrics()
            return {name: found[f"jitney:{name}"] for name in GAUGES if found[f"jitney:{name}"]}
        assert wait_until(lambda: not held()), held()

        def is_alone():
            found = server.metrics()
            return found["jitney:http_connections"] == found["jitney:http_exchanges"] == 1
        assert wait_until(is_alone)
