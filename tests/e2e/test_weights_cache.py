"""Goal:   a server keeps its weights and starts from them the next time, with the same answers; a
        model that has changed gets new ones; damaged ones are found, logged and made
        again; whatever is wrong with the cache, the server serves.
Method: servers of a real tiny model, each with a cache folder of its own, started again and again;
        the files under images/ are looked at, touched and damaged in between."""

import json
import os
import shutil
import signal

import pytest

from cli_lib import GOLDEN, answer, run, talking_model
from server_lib import Server, wait_until

BODY = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temperature": 0,
        "logprobs": True, "top_logprobs": 5}


@pytest.fixture(name="model")
def model_fixture(tmp_path):
    return talking_model(tmp_path / "model")


@pytest.fixture(name="cache")
def cache_fixture(tmp_path):
    return tmp_path / "cache"


def start(model, cache, *flags, **how):
    env = {"JITNEY_CACHE": str(cache), "JITNEY_WEIGHTS_CACHE": "on"}
    return Server(model, "--served-model-name", "tiny", *flags, env=env, **how)


def images(cache):
    return sorted((cache / "images").glob("*.jpk"))


def uses_kept(server):
    """Whether its weights came from an image."""
    assert wait_until(lambda: any("state=ready" in line for line in server.lines))
    return any("state=ready" in line and "weights=kept" in line for line in server.lines)


def logged(server, text):
    return any("event=weights" in line and text in line for line in server.lines)


def load_once(model, cache, *flags):
    """Start a server, ask it, wait until its weights are kept, end it: (kept ones used, answer)."""
    with start(model, cache, *flags) as server:
        kept = uses_kept(server)
        reply = server.plain("POST", "/v1/chat/completions", BODY)
        assert reply.status == 200, reply.body
        if not kept:
            assert wait_until(lambda: logged(server, "MiB")), server.lines
    return kept, reply.json["choices"]


def test_the_second_start_uses_what_the_first_has_kept(model, cache):
    first, one = load_once(model, cache)
    assert not first and len(images(cache)) == 1
    second, two = load_once(model, cache)
    assert second and len(images(cache)) == 1
    assert one == two
    assert not list((cache / "images").glob("*.part"))


def test_a_model_that_was_touched_gets_new_ones(model, cache):
    assert not load_once(model, cache)[0]
    weights = next(path for path in model.iterdir() if path.suffix in (".gguf", ".safetensors"))
    os.utime(weights, ns=(1, 1))
    assert not load_once(model, cache)[0]
    assert len(images(cache)) == 1  # the old one is of no use any more
    assert load_once(model, cache)[0]


def damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_damaged_byte_is_found_by_verify(model, cache):
    right = load_once(model, cache)[1]
    damage(images(cache)[0])
    with start(model, cache, "--verify") as server:
        text = "fails its checksum; the weights were converted again"
        assert wait_until(lambda: logged(server, text))
        assert not uses_kept(server)  # not all of them
        assert wait_until(lambda: logged(server, "MiB kept")), server.lines
        reply = server.plain("POST", "/v1/chat/completions", BODY)
        assert reply.json["choices"] == right
    assert load_once(model, cache, "--verify") == (True, right)


def test_a_damaged_byte_is_found_after_the_start_and_fails_the_model(model, cache):
    right = load_once(model, cache)[1]
    with start(model, cache) as server:
        assert wait_until(lambda: logged(server, "are right")), server.lines
        assert server.metrics()["jitney:weights_verified"] == 1
    damage(images(cache)[0])
    with start(model, cache, ready=False) as server:  # it may never be seen to be
        assert wait_until(lambda: any("event=model" in line and "state=failed" in line and
                                      "fails its checksum" in line for line in server.lines), 20)
        reply = server.plain("POST", "/v1/chat/completions", BODY)
        assert (reply.status, reply.error["code"]) == (503, "model_failed")
        assert server.metrics()["jitney:weights_verified"] == 0
        assert not images(cache)
    assert load_once(model, cache) == (False, right)


@pytest.mark.parametrize("change", ["mode", "owner"])
def test_weights_that_others_could_have_written_are_not_used(model, cache, change):
    assert not load_once(model, cache)[0]
    image = images(cache)[0]
    if change == "mode":
        image.chmod(0o666)
    elif os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    else:
        os.chown(image, 12345, -1)
    with start(model, cache) as server:
        assert not uses_kept(server)
        words = "lets other users write" if change == "mode" else "belongs to user 12345"
        assert wait_until(lambda: logged(server, words)), server.lines
        assert wait_until(lambda: logged(server, "MiB")), server.lines
    assert images(cache)[0].stat().st_mode & 0o22 == 0
    assert load_once(model, cache)[0]


def test_commands_use_what_a_server_has_kept(model, cache):
    env = {"JITNEY_CACHE": str(cache)}
    args = ("generate", "-m", model, "--temp", "0", "-n", "8", "-p", "Hello")
    plain = answer(*args, "--weights-cache", "off", env=env)
    assert answer(*args, env=env)["text"] == plain["text"]
    assert not (cache / "images").exists()  # they keep none themselves
    load_once(model, cache)
    assert answer(*args, "--verify", env=env)["text"] == plain["text"]
    damage(images(cache)[0])
    code, _, stderr = run(*args, "--verify", env=env)
    assert code == 0 and b"checksum" in stderr and stderr.count(b"\n") == 1
    assert not images(cache)


def test_without_the_cache_nothing_is_kept(model, cache):
    with start(model, cache, "--weights-cache", "off") as server:
        assert server.plain("POST", "/v1/chat/completions", BODY).status == 200
    assert not (cache / "images").exists()


def test_no_room_under_the_cap_is_said_and_harmless(model, cache):
    with start(model, cache, "--weights-cache-max", "1K") as server:
        assert wait_until(lambda: logged(server, "in all (weights-cache-max); not kept")), \
            server.lines
        assert server.plain("POST", "/v1/chat/completions", BODY).status == 200
    assert not images(cache)


def test_the_oldest_give_way_under_the_cap(model, cache, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    load_once(model, cache)
    size = images(cache)[0].stat().st_size
    load_once(other, cache, "--weights-cache-max", str(size + size // 2))
    assert len(images(cache)) == 1
    assert load_once(other, cache)[0]
    assert not load_once(model, cache)[0]


@pytest.mark.skipif(not shutil.which("prlimit"), reason="prlimit is not there")
def test_a_limit_on_files_is_said_and_ends_nothing(model, cache):
    env = {"JITNEY_CACHE": str(cache), "JITNEY_WEIGHTS_CACHE": "on"}
    with Server(model, env=env, wrap=("prlimit", "--fsize=1500000")) as server:
        assert wait_until(lambda: logged(server, "File too large")), server.lines
        assert server.plain("GET", "/health").status == 200
    assert not list((cache / "images").iterdir())


def test_a_cache_that_cannot_be_written_is_said_once(model, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with start(model, file) as server:
        assert wait_until(lambda: logged(server, str(file))), server.lines
        assert server.plain("POST", "/v1/chat/completions", BODY).status == 200
    assert sum("event=weights" in line for line in server.lines) == 1


def test_an_image_of_rubbish_is_replaced(model, cache):
    right = load_once(model, cache)[1]
    images(cache)[0].write_bytes(b"JITNEYPK" + os.urandom(5000))
    assert load_once(model, cache) == (False, right)
    assert load_once(model, cache) == (True, right)


def test_two_servers_at_once_keep_one(model, cache):
    with start(model, cache) as one, start(model, cache) as two:
        for server in (one, two):
            assert uses_kept(server) or wait_until(lambda s=server: logged(s, str(cache)))
    assert len(images(cache)) == 1
    assert load_once(model, cache, "--verify")[0]


def test_what_a_killed_server_left_is_cleared(model, cache):
    (cache / "images").mkdir(parents=True)
    (cache / "images" / ("0" * 16 + "-" + "0" * 16 + ".1-0.part")).write_bytes(b"half")
    load_once(model, cache)
    assert [path.suffix for path in (cache / "images").iterdir()] == [".jpk"]


def test_an_end_right_after_the_start_is_orderly(model, cache):
    for _ in range(3):
        server = start(model, cache)
        server.stop(sig=signal.SIGTERM)
    assert load_once(model, cache, "--verify")[1]


def test_an_encoder_keeps_its_weights_too(cache):
    model = GOLDEN / "bert"
    with start(model, cache) as server:
        assert not uses_kept(server)
        assert wait_until(lambda: logged(server, "MiB")), server.lines
        one = server.plain("POST", "/v1/embeddings", {"input": "Hello"}).json["data"]
    with start(model, cache) as server:
        assert uses_kept(server)
        assert server.plain("POST", "/v1/embeddings", {"input": "Hello"}).json["data"] == one
    with start(model, cache, "--isa", "portable") as server:
        assert not uses_kept(server)  # they are another instruction set's
        assert server.plain("POST", "/v1/embeddings", {"input": "Hello"}).json["data"] == one


def test_a_model_that_is_removed_takes_its_images_along(model, cache):
    folder = cache / "models" / "tiny"
    shutil.copytree(model, folder)
    env = {"JITNEY_CACHE": str(cache)}
    load_once(model, cache)
    kept = images(cache)
    load_once(folder, cache)
    load_once(folder, cache, "--isa", "portable")
    assert len(images(cache)) == 3
    files = [{"path": path.name, "bytes": path.stat().st_size, "sha256": "0" * 64,
              "mtime_ns": path.stat().st_mtime_ns} for path in sorted(folder.iterdir())]
    note = {"name": "tiny", "source": "test", "arch": "llama", "entry": "", "files": files}
    (folder / "jitney.json").write_text(json.dumps(note))
    weights = next(path for path in folder.iterdir() if path.suffix in (".gguf", ".safetensors"))
    os.utime(weights, ns=(1, 1))  # they are found by where the model is
    code, _, stderr = run("rm", "tiny", env=env)
    assert code == 0, stderr
    assert not folder.exists()
    assert images(cache) == kept
