"""What must be equal between a disturbed and an undisturbed run, and what may differ.

Equal: texts, tokens, log-probabilities, finish reasons, counts, event numbers and event data.
Different: ids, times, and how many tokens of a prompt came from the cache.
"""

import json

# Fields that hold an id, a time or a share of the cache. custom_id is the client's own.
TIMES = {"created", "created_at", "completed_at", "in_progress_at", "finalizing_at", "expires_at",
         "cancelled_at", "cancelling_at", "failed_at", "expired_at", "ended_at", "archived_at",
         "cancel_initiated_at", "total_duration", "load_duration", "prompt_eval_duration",
         "eval_duration", "timings"}
# Where the server is.
PLACES = {"results_url"}
CACHE = {"cached_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}


def is_id(name):
    return (name == "id" or name.endswith("_id")) and name != "custom_id"


def same(value, with_ids=False):
    """A value of JSON without what may differ. with_ids: of the same request, where the ids and
    times are the same, too."""
    if isinstance(value, list):
        return [same(item, with_ids) for item in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for name, item in value.items():
        if name in CACHE or name in PLACES or (not with_ids and (is_id(name) or name in TIMES)):
            continue
        if with_ids and name in ("completed_at",):
            continue  # of the run that ended it
        out[name] = same(item, with_ids)
    # Anthropic counts the cached tokens of a prompt apart from the others.
    if "cache_read_input_tokens" in value and isinstance(out.get("input_tokens"), int):
        out["input_tokens"] += value["cache_read_input_tokens"] or 0
    return out


def same_event(event, with_ids=False):
    """(number, name, data) of an event, its data as JSON."""
    number, name, data = event
    return number, name, data if data == "[DONE]" else same(json.loads(data), with_ids)


def difference(found, expected, place=""):
    """Where two values first differ, in words; "" if they do not."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for name in sorted({*found, *expected}):
            if name not in found or name not in expected:
                return f"{place}.{name} is {'missing' if name not in found else 'new'}"
            if where := difference(found[name], expected[name], f"{place}.{name}"):
                return where
        return ""
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)):
        for at, (one, other) in enumerate(zip(found, expected)):
            if where := difference(one, other, f"{place}[{at}]"):
                return where
        if len(found) != len(expected):
            return f"{place} has {len(found)} items, expected {len(expected)}"
        return ""
    return "" if found == expected else f"{place} is {found!r}, expected {expected!r}"
