"""An open model with one thread that reads its events and delivers them to the requests.

The thread waits in jitney_next without holding Python's lock, so that other Python threads run
meanwhile. Each request has a key, which every event carries in `user`: events may arrive before
jitney_submit has returned the request's id.
"""
import ctypes
import itertools
import threading
import time

from . import _library, errors
from .results import piece_of


class Engine:
    def __init__(self, model, options):
        self.lib = _library.get()
        self.handle = ctypes.c_void_p()
        why = ctypes.create_string_buffer(_library.ERROR_BYTES)
        status = self.lib.jitney_open(
            _library.encode(model), ctypes.byref(options), ctypes.byref(self.handle), why
        )
        _library.check(status, why)
        self.keys = itertools.count(1)
        self.sinks = {}  # key: [function that takes its pieces, unfinished answers]
        self.changed = threading.Condition()
        self.open_count = 0  # submitted and not finished: the reader waits for these
        self.inside_count = 0  # threads inside the library
        self.is_closed = False
        self.reader = threading.Thread(target=self.read, name="jitney-reader", daemon=True)
        self.reader.start()

    # Every call but the reader's is made inside `with self`, so that close can wait for it.

    def __enter__(self):
        with self.changed:
            if self.is_closed:
                raise errors.Closed("the model was closed")
            self.inside_count += 1
        return self.handle

    def __exit__(self, *_):
        with self.changed:
            self.inside_count -= 1
            self.changed.notify_all()

    def submit(self, request, put):
        """Submit; `put(piece)` is called for each piece, in the reader's thread, and with None if
        the model is closed before the last one. Returns the request's id."""
        request_id = ctypes.c_uint64()
        why = ctypes.create_string_buffer(_library.ERROR_BYTES)
        key = next(self.keys)
        request.user = key
        with self as handle:
            self.sinks[key] = [put, request.n]
            status = self.lib.jitney_submit(
                handle, ctypes.byref(request), ctypes.byref(request_id), why
            )
            if status != _library.OK:
                del self.sinks[key]
            _library.check(status, why)
            with self.changed:
                self.open_count += 1
                self.changed.notify_all()
        return request_id.value

    def cancel(self, request_id):
        try:
            with self as handle:
                self.lib.jitney_cancel(handle, request_id)
        except errors.Closed:
            pass

    def read(self):
        event = _library.default(_library.Event)
        while self.wait_for_work():
            status = self.lib.jitney_next(self.handle, ctypes.byref(event), -1)
            if status == _library.OK:
                self.deliver(event)
            elif status == _library.CLOSED:
                break
            elif status == _library.NOMEM:
                time.sleep(0.01)
        self.lib.jitney_event_clear(ctypes.byref(event))

    def wait_for_work(self):
        with self.changed:
            while self.open_count <= 0 and not self.is_closed:
                self.changed.wait()
            return not self.is_closed

    def deliver(self, event):
        sink = self.sinks[event.user]
        text = ctypes.string_at(event.text, event.text_bytes).decode("utf-8", "replace")
        piece = piece_of(event, text)
        if piece.finish_reason is not None:
            sink[1] -= 1
        if sink[1] == 0:
            del self.sinks[event.user]
            with self.changed:
                self.open_count -= 1
        sink[0](piece)

    def close(self):
        """Safe to call twice. Threads that wait for pieces get errors.Closed."""
        with self.changed:
            if self.is_closed:
                return
            self.is_closed = True
            self.changed.notify_all()
        self.lib.jitney_stop(self.handle)
        if threading.current_thread() is not self.reader:
            self.reader.join()
        with self.changed:
            while self.inside_count > 0:
                self.changed.wait()
        while self.sinks:
            _, (put, _) = self.sinks.popitem()
            put(None)
        self.lib.jitney_close(self.handle)
