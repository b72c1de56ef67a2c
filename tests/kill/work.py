"""What the clients of the kill loop do, one function for each kind of work.

Each takes one piece of work to its end, over as many processes as that needs, and compares the
result with the reference. What it was promised on the way (an answer is stored, a batch is
cancelled, a file is deleted) becomes a Promise, which is looked at again after later kills.
"""

import json
import time
from dataclasses import dataclass

from compare import difference, same, same_event
from requests_list import REQUESTS, is_comparable, is_last
from world import FAULTS, TRY_S, Broken, Stopped, connect, events_of, name_of_request, send

POLL_S = 0.01
STORED_S = 20  # the end of a response is stored after it was sent; later while the disk is full
SSE = {"accept": "text/event-stream"}


@dataclass
class Promise:
    """GET `path` has to give `status` and, if it is not None, `value`."""
    path: str
    status: int
    value: object = None
    headers: dict = None
    reads: object = None  # from the answer to what is compared; None: same() of its JSON

    def check(self, world):
        answer = world.ask("GET", self.path, headers=self.headers)
        if answer.status != self.status:
            return f"promise broken: GET {self.path}: {answer}, expected {self.status}"
        if self.value is None:
            return ""
        found = self.reads(answer) if self.reads else same(answer.json, with_ids=True)
        where = difference(found, self.value)
        return f"promise broken: GET {self.path}: {where}" if where else ""


def promise(world, *args, **how):
    with world.lock:
        world.promises.append(Promise(*args, **how))


def expect(world, what, found, expected):
    where = difference(found, expected)
    if where:
        world.fail(f"{what}: differs from the undisturbed run: {where}")
        raise Stopped


def require(world, condition, text):
    if not condition:
        world.fail(text)
        raise Stopped


def post(world, path, body, headers=None):
    """A request that is not repeated. None: the server has gone, and nothing is known."""
    while True:
        world.signal("sent")
        try:
            answer = world.once("POST", path, body, headers)
        except Broken:
            return None
        if answer.status not in world.tried_again and not is_locked(answer):
            return answer
        world.note(answer.status)
        time.sleep(POLL_S)


def is_locked(answer):
    """What the request continues is being generated again; OpenAI's clients try 409 again."""
    return answer.status == 409 and answer.json["error"]["code"] in (
        "previous_response_not_complete", "conversation_locked")


# --- streams ---

def read_list(answer):
    """Events as server-sent events, of an answer that is there whole."""
    class Lines:
        def __init__(self, body):
            self.lines = body.splitlines(keepends=True)

        def readline(self):
            return self.lines.pop(0) if self.lines else b""
    return [same_event(event, with_ids=True) for event in events_of(Lines(answer.body))]


class Stream:
    """A durable stream and the client that reads it, over several connections."""

    def __init__(self, world, rng, path, body):
        self.world, self.rng, self.path = world, rng, path
        self.name = name_of_request()
        self.body = {**body, "stream": True}
        self.headers = {"x-request-id": self.name}
        self.is_stored = path == "/v1/responses" and rng.random() < 0.6
        if self.is_stored:
            self.body["store"] = True
        else:
            self.headers["x-jitney-keep"] = "durable"
        self.how = rng.choice(["last_event_id", "poll", "starting_after"])
        self.events = []
        self.is_known = False  # the server has it: it was acknowledged, or found

    def add(self, event):
        expected = len(self.events) + 1
        require(self.world, event[0] == expected,
                f"{self.path} {self.name} by {self.how}: event {event[0]} after {expected - 1}: "
                f"{event}")
        self.events.append(event)

    @property
    def is_done(self):
        return bool(self.events) and is_last(self.path, self.events[-1])

    def read(self, method, path, body, headers):
        """One connection, until the stream ends, the server goes or the client hangs up."""
        connection = connect(self.world.address(), TRY_S)
        leaves_after = self.rng.randrange(1, 40) if self.rng.random() < 0.3 else None
        try:
            response = send(connection, method, path, body, headers)
            if response.status != 200:
                return response.status, response.read()
            if not self.is_known:
                self.is_known = True
                self.world.acknowledge()
            for count, event in enumerate(events_of(response), 1):
                if event[0] == 0 and "shutting_down" in event[2]:
                    break  # the server ends; the next one goes on after the last number
                self.add(event)
                if count == leaves_after:
                    break
            return 200, b""
        except FAULTS:
            return 0, b""
        finally:
            connection.close()

    def begin(self):
        self.world.signal("sent")
        status, text = self.read("POST", self.path, self.body, self.headers)
        if status == 0 and not self.is_known:
            answer = self.world.ask("GET", f"/v1/requests/{self.name}")
            require(self.world, answer.status in (200, 404), f"{self.name}: {answer}")
            self.is_known = answer.status == 200
            self.name = self.name if self.is_known else name_of_request()
            self.headers["x-request-id"] = self.name
        elif status not in (0, 200):
            require(self.world, status in self.world.tried_again, f"POST {self.path}: {status} {text}")
            self.world.note(status)
            time.sleep(POLL_S)

    def poll(self):
        path = f"/v1/requests/{self.name}?after={len(self.events)}&wait_ms=50"
        answer = self.world.ask("GET", path)
        require(self.world, answer.status == 200, f"LOST: GET {path}: {answer}")
        for event in answer.json["events"]:
            data = event["data"] if isinstance(event["data"], str) else json.dumps(event["data"])
            self.add((event["id"], event.get("event", event.get("type", "")) or "", data))

    def resume(self):
        self.world.count_reconnect()
        if self.how == "poll":
            self.poll()
            return
        path = f"/v1/requests/{self.name}"
        headers = {**SSE, "last-event-id": str(len(self.events))}
        if self.how == "starting_after" and self.is_stored and self.events:
            id_ = json.loads(self.events[0][2])["response"]["id"]
            last = json.loads(self.events[-1][2])["sequence_number"]
            path, headers = f"/v1/responses/{id_}?stream=true&starting_after={last}", SSE
        status, text = self.read("GET", path, None, headers)
        if status == 0:
            time.sleep(POLL_S / 2)
        elif status != 200:
            require(self.world, status in self.world.tried_again, f"LOST: GET {path}: {status} {text}")
            self.world.note(status)
            time.sleep(POLL_S)

    def run(self, reference):
        while not self.is_known:
            self.begin()
        while not self.is_done:
            self.resume()
        named = self.how != "poll" or self.path not in ("/v1/responses", "/v1/messages")
        if is_comparable(self.body):
            body = {k: v for k, v in self.body.items() if k != "stream"}
            expected = reference.stream(self.path, body)
            found = [same_event(event) for event in self.events]
            if not named:  # the type of an event is also in its data
                found = [(number, "", data) for number, _, data in found]
                expected = [(number, "", data) for number, _, data in expected]
            expect(self.world, f"{self.path} {self.name} by {self.how}", found, expected)
        # Everything that came in pieces is what comes whole.
        path = f"/v1/requests/{self.name}"
        answer = self.world.ask("GET", path, headers=SSE)
        require(self.world, answer.status == 200, f"LOST: GET {path}: {answer}")
        again = read_list(answer)
        seen = [same_event(event, with_ids=True) for event in self.events]
        if not named:
            seen = [(n, other[1], data) for (n, _, data), other in zip(seen, again)]
        expect(self.world, f"{self.path} {self.name} by {self.how}, again", again, seen)
        self.keep(path, again)

    def keep(self, path, events):
        if self.rng.random() < 0.25:
            answer = self.world.ask("DELETE", path)
            require(self.world, answer.status in (200, 404), f"DELETE {path}: {answer}")
            promise(self.world, path, 404)
        else:
            promise(self.world, path, 200, events, headers=SSE, reads=read_list)


def stream(world, rng, reference):
    path, body = rng.choice(REQUESTS)
    Stream(world, rng, path, body).run(reference)


# --- whole answers ---

def find_request(world, name):
    """The answer of a request whose connection broke, when it is done; None: it was not stored."""
    while True:
        answer = world.ask("GET", f"/v1/requests/{name}?after=100000&wait_ms=50")
        if answer.status == 404:
            return None
        require(world, answer.status == 200, f"GET /v1/requests/{name}: {answer}")
        found = answer.json
        if found["status"] in ("completed", "failed", "cancelled"):
            return found
        time.sleep(POLL_S)


def wait_response(world, made):
    while True:
        answer = world.ask("GET", f"/v1/responses/{made}")
        require(world, answer.status == 200, f"LOST: GET /v1/responses/{made}: {answer}")
        if answer.json["status"] not in ("queued", "in_progress"):
            return answer.json
        time.sleep(POLL_S)


def send_stored(world, path, body):
    """Until the server has it; its id."""
    while True:
        name = name_of_request()
        answer = post(world, path, body, {"x-request-id": name})
        if answer is not None:
            require(world, answer.status == 200, f"POST {path}: {answer}")
            world.acknowledge()
            return answer.json["id"]
        found = find_request(world, name)
        if found:
            require(world, found["status"] == "completed", f"{name}: {found}")
            prefix = "resp_" if path == "/v1/responses" else "chatcmpl-"
            return found["id"] if found["id"].startswith(prefix) else prefix + found["id"]


def remove(world, path):
    """Delete it; once that is answered, it stays deleted."""
    answer = world.ask("DELETE", path)
    require(world, answer.status in (200, 404), f"DELETE {path}: {answer}")
    promise(world, path, 404)


def background(world, rng, reference):
    """A response in the background; some are cancelled."""
    body = dict(rng.choice([body for path, body in REQUESTS if path == "/v1/responses"]))
    cancels = rng.random() < 0.25
    if cancels:
        body["max_output_tokens"] = 600
    made = send_stored(world, "/v1/responses", {**body, "background": True})
    path = f"/v1/responses/{made}"
    if cancels:
        time.sleep(rng.random() * 0.05)
        answer = world.ask("POST", path + "/cancel")
        require(world, answer.status == 200, f"POST {path}/cancel: {answer}")
        status = answer.json["status"]
        require(world, status in ("cancelled", "completed", "incomplete"), f"cancel: {answer}")
        world.signal("acknowledged")
        promise(world, path, 200, status, reads=lambda a: a.json["status"])
        found = wait_response(world, made)
        require(world, found["status"] == status, f"{path}: was {status}, is {found['status']}")
        return
    found = wait_response(world, made)
    if is_comparable(body):
        expect(world, path, same(found), reference.background(body))
    if rng.random() < 0.3:
        remove(world, path)
    else:
        promise(world, path, 200, same(found, with_ids=True))


def stored_chat(world, rng, reference):
    body = dict(rng.choice([body for path, body in REQUESTS if path == "/v1/chat/completions"]))
    body = {**body, "store": True, "metadata": {"n": str(rng.randrange(1000))}}
    path = f"/v1/chat/completions/{send_stored(world, '/v1/chat/completions', body)}"
    while (answer := world.ask("GET", path)).status == 404:
        # Its end is stored a moment after it was sent, or after it was generated again.
        promise_of = find_request(world, path.rpartition("/")[2])
        require(world, promise_of, f"LOST: {path}")
    require(world, answer.status == 200, f"LOST: GET {path}: {answer}")
    if is_comparable(body):
        expected = {**reference.whole("/v1/chat/completions", body), "metadata": body["metadata"]}
        expect(world, path, same(answer.json), expected)
    if rng.random() < 0.3:
        changed = world.ask("POST", path, {"metadata": {"changed": "yes"}})
        require(world, changed.status == 200, f"POST {path}: {changed}")
        answer = changed
    if rng.random() < 0.3:
        remove(world, path)
    else:
        promise(world, path, 200, same(answer.json, with_ids=True))


def accepted(world, rng, reference):
    """202 Accepted, then the events by polling."""
    del reference  # it has no such requests; what is found must stay the same
    path, body = rng.choice(REQUESTS)
    name = name_of_request()
    answer = post(world, path, body, {"prefer": "respond-async", "x-jitney-keep": "durable",
                                      "x-request-id": name})
    if answer is not None:
        require(world, answer.status == 202, f"POST {path}: {answer}")
        world.acknowledge()
    found = find_request(world, name)
    require(world, found or answer is None, f"LOST: {path} {name}")
    if found:
        require(world, found["status"] == "completed", f"{path} {name}: {found}")
        place = f"/v1/requests/{name}"
        events = read_list(world.ask("GET", place, headers=SSE))
        require(world, events and [e[0] for e in events] == list(range(1, len(events) + 1)),
                f"{place}: {[e[0] for e in events]}")
        promise(world, place, 200, events, headers=SSE, reads=read_list)


# --- conversations ---

def turns_of(rng):
    return [{"model": "m", "input": rng.choice(["And now?", "Go on.", "Why?"]),
             "max_output_tokens": rng.choice([5, 20]), "seed": seed}
            for seed in range(rng.choice([1, 2, 3]))]


def conversation(world, rng, reference):
    """Each response adds its input and its output once."""
    turns = turns_of(rng)
    while (answer := post(world, "/v1/conversations", {})) is None:
        pass
    require(world, answer.status == 200, f"POST /v1/conversations: {answer}")
    world.acknowledge()
    made = answer.json["id"]
    for body in turns:
        id_ = send_stored(world, "/v1/responses", {**body, "conversation": made, "store": True})
        found = wait_response(world, id_)
        promise(world, f"/v1/responses/{id_}", 200, same(found, with_ids=True))
    path = f"/v1/conversations/{made}/items?order=asc"
    expected = reference.conversation([{**body, "store": True} for body in turns])
    end = time.monotonic() + STORED_S
    while True:
        answer = world.ask("GET", path)
        require(world, answer.status == 200, f"LOST: GET {path}: {answer}")
        if len(answer.json["data"]) >= len(expected) or time.monotonic() > end:
            break
        time.sleep(POLL_S)
    expect(world, path, same(answer.json["data"]), expected)
    promise(world, path, 200, same(answer.json, with_ids=True))


def chain(world, rng, reference):
    """Responses that continue each other by previous_response_id."""
    turns, last = turns_of(rng), None
    for body in turns:
        more = {"previous_response_id": last} if last else {}
        last = send_stored(world, "/v1/responses", {**body, "store": True, **more})
        found = wait_response(world, last)
        promise(world, f"/v1/responses/{last}", 200, same(found, with_ids=True))
    expect(world, f"/v1/responses/{last}", same(found), reference.chain(turns))


KINDS = {"stream": (stream, 6), "background": (background, 3), "stored chat": (stored_chat, 3),
         "accepted": (accepted, 2),
         "conversation": (conversation, 1), "chain": (chain, 1)}
