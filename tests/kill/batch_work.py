"""Files and batches in the kill loop; see work.py."""

import json
import time

from compare import same
from requests_list import REQUESTS, is_comparable
from work import POLL_S, expect, post, promise, remove, require
from world import Broken, name_of_request

BOUNDARY = "kill-loop-boundary"
FINAL = ("completed", "failed", "expired", "cancelled")


def multipart(filename, data, purpose):
    parts = [f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n',
             f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="file"; '
             f'filename="{filename}"\r\ncontent-type: application/octet-stream\r\n\r\n']
    return "".join(parts).encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()


def send_file(world, data, purpose="batch"):
    """Upload until one is acknowledged; its id. What was not acknowledged is whole or not there."""
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    while True:
        name = name_of_request()
        answer = post(world, "/v1/files", multipart(name, data, purpose), headers)
        if answer is None:
            for file in world.ask("GET", "/v1/files?limit=100").json["data"]:
                if file["filename"] == name:
                    check_content(world, file["id"], data)
                    return file["id"]
            continue
        require(world, answer.status == 200, f"POST /v1/files: {answer}")
        require(world, answer.json["bytes"] == len(data), f"POST /v1/files: {answer}")
        world.acknowledge()
        return answer.json["id"]


def content(world, id_):
    answer = world.ask("GET", f"/v1/files/{id_}/content")
    require(world, answer.status == 200, f"LOST: file {id_}: {answer}")
    return answer.body


def check_content(world, id_, data):
    found = content(world, id_)
    require(world, found == data, f"file {id_}: {len(found)} bytes that differ from the "
                                  f"{len(data)} that were sent")


def upload(world, rng, reference):
    del reference
    data = rng.randbytes(rng.choice([0, 1, 100, 4096, 70_000, 1_500_000]) or 1)
    id_ = send_file(world, data, rng.choice(["batch", "user_data"]))
    check_content(world, id_, data)
    if rng.random() < 0.5:
        remove(world, f"/v1/files/{id_}")
    else:
        promise(world, f"/v1/files/{id_}/content", 200, data, reads=lambda a: a.body)


# --- batches of OpenAI ---

def lines_of(rng, endpoint):
    """(custom_id, body) of the lines; the server refuses one of ten."""
    bodies = [body for path, body in REQUESTS if path == endpoint]
    lines = []
    for number in range(rng.choice([1, 3, 10, 40])):
        body = dict(rng.choice(bodies))
        if rng.random() < 0.1:
            body["temperature"] = -1
        lines.append((f"line-{number}", body))
    return lines


def begin_batch(world, file, endpoint, window="24h"):
    """Until one is acknowledged, or found by its name."""
    while True:
        name = name_of_request()
        body = {"input_file_id": file, "endpoint": endpoint, "completion_window": window,
                "metadata": {"name": name}}
        answer = post(world, "/v1/batches", body)
        if answer is not None:
            require(world, answer.status == 200, f"POST /v1/batches: {answer}")
            world.acknowledge()
            return answer.json["id"]
        found = [batch["id"] for batch in world.ask("GET", "/v1/batches?limit=100").json["data"]
                 if batch["metadata"] == {"name": name}]
        require(world, len(found) < 2, f"one POST has made {found}")
        if found:
            return found[0]


def follow(world, path, cancels_at, rng):
    """Poll until it has ended. Its counts never go back."""
    before, was_cancelled = 0, False
    while True:
        answer = world.ask("GET", path)
        require(world, answer.status == 200, f"LOST: GET {path}: {answer}")
        batch = answer.json
        counts = batch["request_counts"]
        done = counts["completed"] + counts["failed"]
        require(world, done >= before, f"{path}: {before} lines were done, now {done}")
        require(world, done <= counts["total"] or counts["total"] == 0, f"{path}: {counts}")
        before = done
        require(world, not was_cancelled or batch["status"] in ("cancelling", "cancelled"),
                f"{path}: was cancelled and is {batch['status']}")
        if batch["status"] == "finalizing" or (counts["total"] and done >= counts["total"] - 1):
            world.signal("finalizing")
        if batch["status"] in FINAL:
            return batch
        if cancels_at is not None and done >= cancels_at and not was_cancelled and \
                batch["status"] in ("validating", "in_progress"):
            was_cancelled = cancel(world, path)
        time.sleep(POLL_S + rng.random() * 0.02)


def cancel(world, path):
    """Whether it was cancelled; it may have ended meanwhile."""
    try:
        answer = world.once("POST", path + "/cancel")
    except Broken:
        return False
    require(world, answer.status in (200, 400, 409, *world.tried_again),
            f"POST {path}/cancel: {answer}")
    if answer.status == 200 and answer.json["status"] in ("cancelling", "cancelled"):
        world.signal("acknowledged")
        return True
    return False


def read_lines(world, file):
    return [json.loads(line) for line in content(world, file).splitlines()] if file else []


def check_output(world, batch, lines, endpoint, reference):
    """Every custom_id once; each result as in an undisturbed run."""
    path = f"batch {batch['id']}"
    good, bad = (read_lines(world, batch[name]) for name in ("output_file_id", "error_file_id"))
    ids = [line["custom_id"] for line in good + bad]
    require(world, len(ids) == len(set(ids)), f"{path}: twice: "
            f"{sorted(i for i in set(ids) if ids.count(i) > 1)[:5]}")
    require(world, set(ids) == {name for name, _ in lines}, f"{path}: has {len(ids)} of "
            f"{len(lines)} lines; {batch['status']}")
    counts = batch["request_counts"]
    require(world, counts["total"] == len(lines), f"{path}: {counts}")
    require(world, counts["completed"] == len(good), f"{path}: {counts}, {len(good)} in the output")
    bodies = dict(lines)
    for line in good:
        body = bodies[line["custom_id"]]
        require(world, line["response"]["status_code"] == 200, f"{path}: {line}")
        if is_comparable(body):
            expect(world, f"{path} {line['custom_id']}", same(line["response"]["body"]),
                   reference.whole(endpoint, body))
    for line in bad:
        if line["response"]:
            status = line["response"]["status_code"]
            require(world, status == reference.status(endpoint, bodies[line["custom_id"]]),
                    f"{path}: {line}")
        else:
            require(world, batch["status"] in ("cancelled", "expired"), f"{path}: {line}")


def batch(world, rng, reference):
    endpoint = rng.choice(["/v1/chat/completions", "/v1/completions", "/v1/responses"])
    lines = lines_of(rng, endpoint)
    data = "".join(json.dumps({"custom_id": name, "method": "POST", "url": endpoint, "body": body})
                   + "\n" for name, body in lines).encode()
    file = send_file(world, data)
    window = "1s" if rng.random() < 0.15 else "24h"
    id_ = begin_batch(world, file, endpoint, window)
    path = f"/v1/batches/{id_}"
    cancels_at = rng.randrange(len(lines)) if rng.random() < 0.25 else None
    found = follow(world, path, cancels_at, rng)
    require(world, found["status"] in ("completed", "cancelled") or
            (found["status"], window) == ("expired", "1s"), f"{path}: {found}")
    if found["status"] == "completed" or found["request_counts"]["total"]:
        check_output(world, found, lines, endpoint, reference)
    promise(world, path, 200, same(found, with_ids=True))
    if rng.random() < 0.5:
        remove(world, f"/v1/files/{file}")
    else:
        promise(world, f"/v1/files/{file}/content", 200, data, reads=lambda a: a.body)
    for name in ("output_file_id", "error_file_id"):
        if found[name]:
            promise(world, f"/v1/files/{found[name]}/content", 200, content(world, found[name]),
                    reads=lambda a: a.body)


def bad_batch(world, rng, reference):
    """A file that cannot be a batch: it fails, with the lines that are wrong."""
    del reference
    data = rng.choice([b"{}\n", b"not json\n", b'{"custom_id":"a"}\n{"custom_id":"a"}\n'])
    file = send_file(world, data)
    path = f"/v1/batches/{begin_batch(world, file, '/v1/chat/completions')}"
    found = follow(world, path, None, rng)
    require(world, found["status"] == "failed" and found["errors"]["data"], f"{path}: {found}")
    promise(world, path, 200, same(found, with_ids=True))
    remove(world, f"/v1/files/{file}")


# --- batches of Anthropic ---

def message_batch(world, rng, reference):
    bodies = [body for path, body in REQUESTS if path == "/v1/messages"]
    lines = [(f"line-{n}", rng.choice(bodies)) for n in range(rng.choice([1, 5, 20]))]
    requests = [{"custom_id": name, "params": body} for name, body in lines]
    while (answer := post(world, "/v1/messages/batches", {"requests": requests})) is None:
        pass
    require(world, answer.status == 200, f"POST /v1/messages/batches: {answer}")
    world.acknowledge()
    path = f"/v1/messages/batches/{answer.json['id']}"
    cancels = rng.random() < 0.25
    while True:
        answer = world.ask("GET", path)
        require(world, answer.status == 200, f"LOST: GET {path}: {answer}")
        if answer.json["processing_status"] == "ended":
            break
        if cancels:
            world.ask("POST", path + "/cancel")
            cancels = False
        time.sleep(POLL_S)
    results = world.ask("GET", path + "/results")
    require(world, results.status == 200, f"GET {path}/results: {results}")
    check_results(world, path, answer.json, [json.loads(x) for x in results.body.splitlines()],
                  lines, reference)
    promise(world, path, 200, same(answer.json, with_ids=True))
    promise(world, path + "/results", 200, results.body, reads=lambda a: a.body)


def check_results(world, path, batch_, results, lines, reference):
    ids = [line["custom_id"] for line in results]
    require(world, sorted(ids) == sorted(name for name, _ in lines),
            f"{path}: {len(ids)} results of {len(lines)} requests: {ids}")
    bodies = dict(lines)
    kinds = [line["result"]["type"] for line in results]
    for name in ("succeeded", "errored", "canceled", "expired"):
        require(world, batch_["request_counts"][name] == kinds.count(name),
                f"{path}: {batch_['request_counts']}, {name} in results: {kinds.count(name)}")
    for line in results:
        if line["result"]["type"] == "succeeded":
            expect(world, f"{path} {line['custom_id']}", same(line["result"]["message"]),
                   reference.whole("/v1/messages", bodies[line["custom_id"]]))


KINDS = {"upload": (upload, 2), "batch": (batch, 3), "bad batch": (bad_batch, 1),
         "message batch": (message_batch, 2)}
