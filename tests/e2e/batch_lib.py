"""What the tests of files and batches share."""

import json

import httpx2  # what openai is built on
import openai

from server_lib import FAST, Server, checking_hook, wait_until

FINAL = ("completed", "failed", "expired", "cancelled")


def serve(model, folder, *flags, runner=FAST):
    return Server(model, *runner, "--served-model-name", "tiny", "--data-dir", folder / "data",
                  *flags)


def client_of(server, key="any"):
    """OpenAI's client; every answer is held against the document."""
    http = httpx2.Client(event_hooks={"response": [checking_hook(server)]})
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, http_client=http)


def chat_line(number, url="/v1/chat/completions", **fields):
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"Hello {number}"}],
            "max_tokens": 6, **fields}
    return {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": body}


def jsonl(lines):
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n"
                   for line in lines).encode()


def upload(client, lines, name="in.jsonl", purpose="batch", **fields):
    data = lines if isinstance(lines, bytes) else jsonl(lines)
    return client.files.create(file=(name, data), purpose=purpose, **fields)


def create(client, lines, endpoint="/v1/chat/completions", window="24h", **fields):
    return client.batches.create(input_file_id=upload(client, lines).id, endpoint=endpoint,
                                 completion_window=window, **fields)


def wait(client, batch, *states, seconds=30):
    """The batch when it has one of the states; by default a final one."""
    states = states or FINAL
    def look():
        found = client.batches.retrieve(batch.id)
        return found if found.status in states or found.status in FINAL else None
    found = wait_until(look, seconds, pause=0.02)
    assert found and found.status in states, client.batches.retrieve(batch.id)
    return found


def read_lines(client, file_id):
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


def texts_of(lines):
    """{custom_id: text} of the output of a batch of chats."""
    return {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"]
            for line in lines}
