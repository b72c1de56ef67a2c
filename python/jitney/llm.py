"""LLM: an open model. Stream: one request whose pieces are read as they arrive."""
import asyncio
import collections
import ctypes
import dataclasses
import threading
import weakref

from . import _library, _request
from ._engine import Engine
from .errors import Closed, QueueFull, RequestFailed
from .params import SamplingParams
from .results import Answer

# Sequences that one call has under way: more than can run at a time, fewer than the engine's queue
# holds.
WINDOW = 256


@dataclasses.dataclass(frozen=True)
class Stats:
    """Counters of the engine since the model was opened, and its present state."""

    running: int
    waiting: int
    swapped: int
    steps: int
    preempted: int
    finished: int
    prompt_tokens_looked_up: int
    prompt_tokens_cached: int
    kv_blocks: int
    kv_blocks_free: int
    kv_waste: float


class Inbox:
    """A queue of pieces from the reader's thread to a waiting thread or an event loop."""

    def __init__(self):
        self.items = collections.deque()
        self.arrived = threading.Condition()
        self.waker = None  # (event loop, future)

    def put(self, item):
        with self.arrived:
            self.items.append(item)
            self.arrived.notify()
            waker, self.waker = self.waker, None
        if waker:
            loop, future = waker
            try:
                loop.call_soon_threadsafe(lambda: future.done() or future.set_result(None))
            except RuntimeError:  # the loop was closed, so nothing waits
                pass

    def get(self):
        with self.arrived:
            while not self.items:
                self.arrived.wait()
            return self.items.popleft()

    async def get_async(self):
        loop = asyncio.get_running_loop()
        while True:
            with self.arrived:
                if self.items:
                    return self.items.popleft()
                future = loop.create_future()
                self.waker = (loop, future)
            await future


def check_piece(piece, answer=None):
    if piece is None:
        raise Closed("the model was closed before the answer was complete")
    if piece.finish_reason in ("refused", "error"):
        raise RequestFailed(piece.error or "the request failed", answer)
    return piece


class Stream:
    """One request. Iterate over it, with `for` or `async for`, for its pieces; leaving the loop
    early cancels the request. With n > 1 the pieces of all answers arrive in turn."""

    def __init__(self, llm, request):
        engine = llm._engine
        self._llm = llm  # keeps the model open while the stream is read
        self._engine = engine
        self._inbox = Inbox()
        self._open_count = request.n
        self.answers = [Answer(choice=i, seed=request.seed + i) for i in range(request.n)]
        self.id = engine.submit(request, self._inbox.put)

    @property
    def answer(self):
        """The first answer, up to the last piece that was read."""
        return self.answers[0]

    def cancel(self):
        """End the request; its last piece has the finish_reason "cancelled". May be called again."""
        if self._open_count > 0:
            self._engine.cancel(self.id)

    close = cancel

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cancel()

    def _take(self, piece):
        if piece is not None and piece.finish_reason is not None:
            self._open_count -= 1
        if piece is not None:
            self.answers[piece.choice].add(piece)
        return check_piece(piece, piece and self.answers[piece.choice])

    def __iter__(self):
        try:
            while self._open_count > 0:
                yield self._take(self._inbox.get())
        finally:
            self.cancel()

    async def __aiter__(self):
        try:
            while self._open_count > 0:
                yield self._take(await self._inbox.get_async())
        finally:
            self.cancel()


class Group:
    """The requests of one call: at most `window` sequences under way, answers by index."""

    def __init__(self, engine, requests, window):
        self.engine = engine
        self.window = window
        self.waiting = collections.deque(enumerate(requests))
        self.answers = [None] * len(self.waiting)
        self.inbox = Inbox()
        self.open = {}  # index: [id, unfinished answers]
        self.open_count = 0  # unfinished answers of all requests

    def fill(self):
        """Submit until the window or the engine's queue is full."""
        while self.waiting:
            index, request = self.waiting[0]
            if self.open_count and self.open_count + request.n > self.window:
                return
            self.answers[index] = [Answer(choice=i, seed=request.seed + i) for i in range(request.n)]
            entry = self.open[index] = [None, request.n]
            try:
                entry[0] = self.engine.submit(
                    request, lambda piece, index=index: self.inbox.put((index, piece))
                )
            except BaseException as error:
                del self.open[index]
                if isinstance(error, QueueFull) and self.open:
                    return  # try again when one of these has finished
                raise
            self.waiting.popleft()
            self.open_count += request.n

    def take(self, item):
        index, piece = item
        answer = piece and self.answers[index][piece.choice]
        if piece is not None:
            answer.add(piece)
            if piece.finish_reason is not None:
                self.open[index][1] -= 1
                self.open_count -= 1
            if self.open[index][1] == 0:
                del self.open[index]
        check_piece(piece, answer)

    def cancel(self):
        for request_id, _ in list(self.open.values()):
            self.engine.cancel(request_id)

    def run(self):
        try:
            self.fill()
            while self.open:
                self.take(self.inbox.get())
                self.fill()
            return self.answers
        finally:
            self.cancel()

    async def run_async(self):
        try:
            self.fill()
            while self.open:
                self.take(await self.inbox.get_async())
                self.fill()
            return self.answers
        finally:
            self.cancel()


class LLM:
    """A model, open until `close` or the end of `with`. Its methods may be called from any thread.

    `model` is a name in the model cache, a GGUF file or a Hugging Face folder. `knobs` are the
    engine's settings by name; `jitney knobs` lists them. `on_progress(share)` is called while
    the model is loaded. With `pretend_step_us` nothing is computed: answers are words of the
    vocabulary and a step takes that time, for testing a program without a model.
    """

    def __init__(
        self,
        model,
        *,
        threads=0,
        context_tokens=0,
        kv_bytes=0,
        policy=None,
        knobs=None,
        on_progress=None,
        pretend_step_us=None,
    ):
        options = _library.default(_library.Options)
        options.threads = _request.whole("threads", threads, 0, 256)
        options.ctx_tokens = _request.whole("context_tokens", context_tokens, 0, 2**24)
        options.kv_bytes = _request.whole("kv_bytes", kv_bytes, 0, 2**63)
        if policy is not None:
            options.policy = _library.encode(policy)
        pairs = _library.text_list([f"{k}={knob_text(v)}" for k, v in (knobs or {}).items()])
        if pairs:
            options.set = pairs
        if on_progress is not None:
            options.on_progress = _library.PROGRESS(lambda _, share: on_progress(share))
        if pretend_step_us is not None:
            options.pretend = True
            options.pretend_step_us = _request.whole("pretend_step_us", pretend_step_us, 0, 2**32 - 1)
        self._engine = Engine(str(model), options)
        self._window = min(WINDOW, int((knobs or {}).get("queue_max", WINDOW)))
        self._closer = weakref.finalize(self, Engine.close, self._engine)
        info = _library.Info(size=ctypes.sizeof(_library.Info))
        with self._engine as handle:
            self._engine.lib.jitney_info(handle, ctypes.byref(info))
        self.context_tokens = info.ctx_tokens
        self.vocab_size = info.vocab
        self.threads = info.threads
        self.has_chat = info.has_chat

    def close(self):
        """End all requests and free the model. Safe to call twice."""
        self._closer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- requests

    def generate(self, prompts, params=None, **changes):
        """Continue one text or several at once.

        A prompt is a text or a list of token ids. One prompt gives an Answer, a list of prompts a
        list of them in the same order; with n > 1 each is a list of n. `changes` are fields of
        SamplingParams.
        """
        is_one, group = self._group_of_prompts(prompts, params, changes)
        return unwrap(group.run(), is_one)

    async def generate_async(self, prompts, params=None, **changes):
        """generate, for an event loop."""
        is_one, group = self._group_of_prompts(prompts, params, changes)
        return unwrap(await group.run_async(), is_one)

    def chat(self, messages, params=None, **changes):
        """Answer a message, a conversation (a list of {"role", "content"}) or a list of those."""
        is_one, group = self._group_of_chats(messages, params, changes)
        return unwrap(group.run(), is_one)

    async def chat_async(self, messages, params=None, **changes):
        """chat, for an event loop."""
        is_one, group = self._group_of_chats(messages, params, changes)
        return unwrap(await group.run_async(), is_one)

    def stream(self, prompt, params=None, **changes):
        """Continue a text, piece by piece: a Stream."""
        return Stream(self, self._prompt_request(prompt, merge(params, changes)))

    def stream_chat(self, messages, params=None, **changes):
        """Answer a message or a conversation, piece by piece: a Stream."""
        return Stream(self, self._chat_request(messages, merge(params, changes)))

    # --- text and facts

    def tokenize(self, text, special=True):
        """The token ids of a text; `special`: with the tokens that the model adds (BOS ...)."""
        data = text.encode("utf-8", "surrogatepass")
        tokens = ctypes.POINTER(ctypes.c_int32)()
        count = ctypes.c_size_t()
        why = ctypes.create_string_buffer(_library.ERROR_BYTES)
        lib = self._engine.lib
        with self._engine as handle:
            status = lib.jitney_tokenize(
                handle, data, len(data), special, ctypes.byref(tokens), ctypes.byref(count), why
            )
        _library.check(status, why)
        ids = tokens[: count.value] if count.value else []
        lib.jitney_free(tokens)
        return ids

    def detokenize(self, tokens, special=False):
        """The text of token ids; `special`: show special tokens."""
        ids = [_request.whole("a token", t, -(2**31), 2**31 - 1) for t in tokens]
        array = (ctypes.c_int32 * max(1, len(ids)))(*ids)
        text = ctypes.c_void_p()
        size = ctypes.c_size_t()
        why = ctypes.create_string_buffer(_library.ERROR_BYTES)
        lib = self._engine.lib
        with self._engine as handle:
            status = lib.jitney_detokenize(
                handle, array, len(ids), special, ctypes.byref(text), ctypes.byref(size), why
            )
        _library.check(status, why)
        data = ctypes.string_at(text, size.value)
        lib.jitney_free(text)
        return data.decode("utf-8", "replace")

    def stats(self):
        """Counters of the engine and its present state: a Stats."""
        raw = _library.RawStats(size=ctypes.sizeof(_library.RawStats))
        with self._engine as handle:
            self._engine.lib.jitney_stats(handle, ctypes.byref(raw))
        return Stats(**{f.name: getattr(raw, f.name) for f in dataclasses.fields(Stats)})

    # --- how requests are made

    def _prompt_request(self, prompt, params):
        request = _request.make(params)
        if isinstance(prompt, str) and "\0" not in prompt:
            request.text = _library.encode(prompt)
        else:  # a C string would end at a NUL
            tokens = self.tokenize(prompt) if isinstance(prompt, str) else prompt
            _request.fill_tokens(request, tokens)
        return request

    def _chat_request(self, messages, params):
        request = _request.make(params)
        request.chat_json = _library.encode(_request.messages_json(messages))
        return request

    def _group_of_prompts(self, prompts, params, changes):
        prompts = prompts if isinstance(prompts, str) else list(prompts)
        is_one = isinstance(prompts, str) or (prompts != [] and _request.is_tokens(prompts))
        params = merge(params, changes)
        requests = [self._prompt_request(p, params) for p in ([prompts] if is_one else prompts)]
        return is_one, Group(self._engine, requests, self._window)

    def _group_of_chats(self, messages, params, changes):
        messages = messages if isinstance(messages, str) else list(messages)
        is_one = isinstance(messages, str) or any(isinstance(m, dict) for m in messages)
        params = merge(params, changes)
        requests = [self._chat_request(m, params) for m in ([messages] if is_one else messages)]
        return is_one, Group(self._engine, requests, self._window)


def merge(params, changes):
    return (params or SamplingParams()).replace(**changes)


def knob_text(value):
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def unwrap(answers, is_one):
    """An answer for a request with n = 1, a list for one with several."""
    results = [group[0] if len(group) == 1 else group for group in answers]
    return results[0] if is_one else results
