"""The requests of the kill loop: every wire format, n above 1, log-probabilities, stop strings,
seeds given and not given; with a real model also grammars."""

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                           "count": {"type": "integer"}},
          "required": ["name", "count"], "additionalProperties": False}


def chat(words, tokens, **fields):
    return "/v1/chat/completions", {"model": "m", "max_tokens": tokens, "messages": [
        {"role": "user", "content": words}], **fields}


def completion(prompt, tokens, **fields):
    return "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": tokens, **fields}


def response(words, tokens, **fields):
    return "/v1/responses", {"model": "m", "input": words, "max_output_tokens": tokens, **fields}


def message(words, tokens, **fields):
    return "/v1/messages", {"model": "m", "max_tokens": tokens, "messages": [
        {"role": "user", "content": words}], **fields}


REQUESTS = [
    chat("Hello", 40, seed=1),
    chat("Three answers", 25, seed=2, n=3),
    chat("With numbers", 30, seed=3, logprobs=True, top_logprobs=2),
    chat("Stop early", 60, seed=4, stop=["e", "st"]),
    chat("Most likely", 30, temperature=0),
    chat("Any seed", 35),
    chat("A long one", 150, seed=6, n=2),
    completion("One prompt", 45, seed=7, logprobs=2),
    completion(["one", "two"], 20, seed=8, n=2),
    completion("Any seed", 30, temperature=1),
    response("Hello", 50, seed=9),
    response("Most likely", 30, temperature=0),
    response("A long one", 140, seed=10),
    response("Any seed", 40),
    message("Hello", 40, temperature=0),
    message("Stop early", 60, temperature=0, stop_sequences=["a", "on"]),
]

WITH_GRAMMARS = [
    chat("Describe a fruit.", 60, seed=11, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}),
    response("Describe a fruit.", 60, seed=12, text={"format": {
        "type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}),
]


def is_comparable(body):
    """Whether another run gives the same answer: not if the server draws the seed."""
    return "seed" in body or body.get("temperature") == 0


def is_last(path, event):
    """Whether a stream ends with this event."""
    _, name, data = event
    if path == "/v1/responses":
        return name in ("response.completed", "response.incomplete", "response.failed",
                        "response.cancelled")
    if path == "/v1/messages":
        return name == "message_stop"
    return data == "[DONE]"
