"""libjitney.so as ctypes sees it: include/jitney.h, struct by struct.

The library is looked for in this order: the file that JITNEY_LIBRARY names; build/ of the source
tree that this file lies in; the folder of this file, where pip puts it; lib/ of the Python
environment; where the system's loader looks.
"""
import ctypes
import ctypes.util
import os
import sys
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_bool,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

from . import errors

ERROR_BYTES = 512
SONAME = "libjitney.so.0"

OK, BAD, MISSING, FULL, NOMEM, IO, TIMEOUT, IDLE, CLOSED = range(9)

PROGRESS = CFUNCTYPE(None, c_void_p, c_double)


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("threads", c_uint32),
        ("ctx_tokens", c_uint32),
        ("kv_bytes", c_uint64),
        ("policy", c_char_p),
        ("set", POINTER(c_char_p)),
        ("on_progress", PROGRESS),
        ("progress_ctx", c_void_p),
        ("pretend", c_bool),
        ("pretend_step_us", c_uint32),
    ]


class Info(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("ctx_tokens", c_uint32),
        ("vocab", c_uint32),
        ("threads", c_uint32),
        ("has_chat", c_bool),
    ]


class Logprob(ctypes.Structure):
    _fields_ = [("token", c_int32), ("logprob", c_float)]


class Bias(ctypes.Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class Request(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("chat", c_char_p),
        ("chat_json", c_char_p),
        ("text", c_char_p),
        ("tokens", POINTER(c_int32)),
        ("token_count", c_size_t),
        ("max_tokens", c_uint32),
        ("n", c_uint32),
        ("temperature", c_float),
        ("top_k", c_uint32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("typical_p", c_float),
        ("repetition_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("penalty_window", c_int32),
        ("seed", c_uint64),
        ("bias", POINTER(Bias)),
        ("bias_count", c_size_t),
        ("stop", POINTER(c_char_p)),
        ("ignore_end", c_bool),
        ("keep_special", c_bool),
        ("logprobs", c_bool),
        ("top_logprobs", c_uint32),
        ("tenant", c_uint32),
        ("priority", c_int32),
        ("ttft_target_ms", c_double),
        ("tpot_target_ms", c_double),
        ("expires_ms", c_double),
        ("user", c_void_p),
        ("schema", c_char_p),
        ("regex", c_char_p),
        ("grammar", c_char_p),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("id", c_uint64),
        ("choice", c_uint32),
        ("finish", c_int),
        ("user", c_void_p),
        ("text", c_void_p),  # with its length, not up to a NUL
        ("text_bytes", c_size_t),
        ("tokens", POINTER(c_int32)),
        ("token_count", c_uint32),
        ("top_count", c_uint32),
        ("logprobs", POINTER(Logprob)),
        ("top_logprobs", POINTER(Logprob)),
        ("prompt_tokens", c_uint32),
        ("completion_tokens", c_uint32),
        ("cached_tokens", c_uint32),
        ("error", c_char_p),
        ("memory", c_void_p),
    ]


class RawStats(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("running", c_uint32),
        ("waiting", c_uint32),
        ("swapped", c_uint32),
        ("steps", c_uint64),
        ("preempted", c_uint64),
        ("finished", c_uint64),
        ("prompt_tokens_looked_up", c_uint64),
        ("prompt_tokens_cached", c_uint64),
        ("kv_blocks", c_uint32),
        ("kv_blocks_free", c_uint32),
        ("kv_waste", c_double),
    ]


# name: result, arguments
FUNCTIONS = {
    "jitney_options_init": (None, [POINTER(Options), c_size_t]),
    "jitney_open": (c_int, [c_char_p, POINTER(Options), POINTER(c_void_p), c_char_p]),
    "jitney_stop": (None, [c_void_p]),
    "jitney_close": (None, [c_void_p]),
    "jitney_info": (None, [c_void_p, POINTER(Info)]),
    "jitney_request_init": (None, [POINTER(Request), c_size_t]),
    "jitney_submit": (c_int, [c_void_p, POINTER(Request), POINTER(c_uint64), c_char_p]),
    "jitney_event_init": (None, [POINTER(Event), c_size_t]),
    "jitney_event_clear": (None, [POINTER(Event)]),
    "jitney_next": (c_int, [c_void_p, POINTER(Event), c_int64]),
    "jitney_cancel": (None, [c_void_p, c_uint64]),
    "jitney_stats": (None, [c_void_p, POINTER(RawStats)]),
    "jitney_tokenize": (
        c_int,
        [c_void_p, c_char_p, c_size_t, c_bool, POINTER(POINTER(c_int32)), POINTER(c_size_t), c_char_p],
    ),
    "jitney_detokenize": (
        c_int,
        [c_void_p, POINTER(c_int32), c_size_t, c_bool, POINTER(c_void_p), POINTER(c_size_t), c_char_p],
    ),
    "jitney_free": (None, [c_void_p]),
    "jitney_version": (c_char_p, []),
}

ERRORS = {
    BAD: errors.BadRequest,
    MISSING: errors.ModelNotFound,
    FULL: errors.QueueFull,
    NOMEM: errors.OutOfMemory,
    IO: errors.SystemFailure,
    CLOSED: errors.Closed,
}


def candidates():
    """Paths and names to try, in order."""
    named = os.environ.get("JITNEY_LIBRARY")
    if named:
        return [named]
    found = [Path(__file__).resolve().parents[2] / "build" / "libjitney.so"]
    found.append(Path(__file__).resolve().parent / SONAME)
    found += [Path(prefix) / "lib" / SONAME for prefix in (sys.prefix, "/usr/local")]
    names = [str(path) for path in found if path.exists()]
    return names + [SONAME, ctypes.util.find_library("jitney") or "libjitney.so"]


def open_library():
    tried = []
    for name in candidates():
        try:
            library = ctypes.CDLL(name)
            break
        except OSError as why:
            tried.append(str(why))
    else:
        raise errors.LibraryNotFound(
            "libjitney.so was not found; `make install` installs it, `make build` makes it in the "
            "source tree, JITNEY_LIBRARY names it: " + "; ".join(tried)
        )
    for function, (result, arguments) in FUNCTIONS.items():
        try:
            entry = getattr(library, function)
        except AttributeError:
            raise errors.LibraryNotFound(f"{name} has no {function}; it has another version than this package") from None
        entry.restype = result
        entry.argtypes = arguments
    return library


_opened = []


def get():
    """The library, opened once."""
    if not _opened:
        _opened.append(open_library())
    return _opened[0]


def default(struct):
    """An Options, Request or Event with the library's defaults."""
    value = struct()
    init = getattr(get(), f"jitney_{struct.__name__.lower()}_init")
    init(ctypes.byref(value), ctypes.sizeof(struct))
    return value


def version():
    """The version of the library, as text."""
    return get().jitney_version().decode()


def message(buffer):
    return buffer.value.decode("utf-8", "replace")


def check(status, why):
    """Raise the exception for `status`; `why` is the buffer with the library's message."""
    if status != OK:
        raise ERRORS.get(status, errors.JitneyError)(message(why))


def text_list(texts):
    """A NULL-terminated array of C strings, or None."""
    if not texts:
        return None
    return (c_char_p * (len(texts) + 1))(*[encode(text) for text in texts], None)


def encode(text):
    """UTF-8 for a C string; a NUL inside would end it without an error."""
    data = text.encode("utf-8", "surrogatepass")
    if b"\0" in data:
        raise errors.BadRequest("the text has a NUL character in it; give its tokens instead")
    return data
