"""The same requests on a server that nothing disturbs; each is sent once."""

import json
import threading
import time

from compare import same, same_event
from requests_list import is_last
from world import Process, connect, events_of, fetch, send

# The choices of a durable answer take turns, so that its events have the same numbers each time.
DURABLE = {"x-jitney-keep": "durable"}


class Reference:
    def __init__(self, command):
        self.process = Process(command, {})
        assert self.process.wait_ready() is not None, self.process.lines
        self.lock = threading.Lock()
        self.known = {}

    def close(self):
        self.process.kill()

    def _once(self, key, make):
        with self.lock:
            if key not in self.known:
                self.known[key] = make()
            return self.known[key]

    def _fetch(self, method, path, body=None):
        answer = fetch(self.process.address, method, path, body)
        assert answer.status == 200, (method, path, body, str(answer))
        return answer

    def whole(self, path, body):
        """The answer as one object."""
        return self._once(("whole", path, json.dumps(body)),
                          lambda: same(self._fetch("POST", path, body).json))

    def status(self, path, body):
        """The status alone, of a request that may be refused."""
        return self._once(("status", path, json.dumps(body)),
                          lambda: fetch(self.process.address, "POST", path, body).status)

    def stream(self, path, body):
        """The events of the answer."""
        def make():
            connection = connect(self.process.address, 60)
            response = send(connection, "POST", path, {**body, "stream": True}, DURABLE)
            events = list(events_of(response))
            connection.close()
            assert events and is_last(path, events[-1]), (path, body, events[-2:])
            return [same_event(event) for event in events]
        return self._once(("stream", path, json.dumps(body)), make)

    def background(self, body):
        """The response object of a request in the background, when it is done."""
        def make():
            made = self._fetch("POST", "/v1/responses", {**body, "background": True}).json
            while made["status"] in ("queued", "in_progress"):
                time.sleep(0.01)
                made = self._fetch("GET", f"/v1/responses/{made['id']}").json
            return same(made)
        return self._once(("background", json.dumps(body)), make)

    def conversation(self, turns):
        """The items of a conversation after these responses."""
        def make():
            made = self._fetch("POST", "/v1/conversations", {}).json["id"]
            for body in turns:
                self._fetch("POST", "/v1/responses", {**body, "conversation": made})
            return same(self._fetch("GET", f"/v1/conversations/{made}/items?order=asc").json["data"])
        return self._once(("conversation", json.dumps(turns)), make)

    def chain(self, turns):
        """The last of several responses, each of which continues the one before."""
        def make():
            last = None
            for body in turns:
                more = {"previous_response_id": last["id"]} if last else {}
                last = self._fetch("POST", "/v1/responses", {**body, "store": True, **more}).json
            return same(last)
        return self._once(("chain", json.dumps(turns)), make)
