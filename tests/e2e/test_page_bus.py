"""The bus and the numbers of the page, in a real browser.

Goal:   what the page shows is what the engine did: seats, waiting, preemptions, figures; and a
        recording shows the same picture.
Method: a server with a runner that takes 5 ms a step and computes nothing, few seats and few KV
        blocks, so that requests wait and are preempted; 16 requests at once."""

import json
import re

import pytest

from browser_lib import browser_fixture, frame_times, long_model, open_tab, serious, until  # noqa: F401
from cli_lib import answer
from made_recording import made_recording
from server_lib import Server, wait_until

SMALL = ("--runner", "sim:5000", "--set", "max_seqs=6", "--set", "kv_blocks=40", "--set", "block_size=16")
COUNT = 16
# A promise of the module that the page itself has loaded.
BUS = "import('/page/bus.js')"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(long_model(tmp_path_factory.mktemp("model") / "m"), *SMALL) as s:
        yield s


def send_load(server, count=COUNT, tokens=90):
    """Requests that nobody waits for; their ids."""
    ids = []
    for i in range(count):
        reply = server.plain("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": f"Question {i} " + "word " * (i % 5)}], "max_tokens": tokens,
            "ignore_eos": True, "seed": i}, {"prefer": "respond-async"})
        assert reply.status == 202, reply.body
        ids.append(reply.json["id"])
    return ids


@pytest.fixture
def busy(server):
    """The server, which has made some steps."""
    if counter(server, "jitney:engine_steps_total") == 0:
        ids = send_load(server, 8, 60)
        wait_completed(server, ids)
    return server


def wait_completed(server, ids):
    assert wait_until(lambda: set(statuses(server, ids)) == {"completed"}, 60, pause=0.1), statuses(server, ids)


def statuses(server, ids):
    return [server.plain("GET", f"/v1/requests/{name}?after=100000").json["status"] for name in ids]


def counter(server, name):
    text = server.plain("GET", "/metrics").body.decode()
    return sum(float(v) for v in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M))


def test_the_bus_moves_and_tells_who_waits_and_who_was_preempted(browser, server):
    with open_tab(browser, server.url + "/#bus", height=1100) as tab:
        page = tab.page
        page.wait_for_selector("#bus-canvas")
        ids = send_load(server)
        until(page, "/Step \\d/.test(document.querySelector('.summary').textContent)")
        before = page.evaluate("document.querySelector('#bus-canvas').toDataURL()")
        wait_completed(server, ids)
        assert page.evaluate("document.querySelector('#bus-canvas').toDataURL()") != before
        assert counter(server, "vllm:num_preemptions_total") > 0, "the load did not force a preemption"
        until(page, f"{BUS}.then((b) => [...b.shownStore().sequences.values()].filter((s) => s.ended).length >= {COUNT})")
        told = page.evaluate(f"""{BUS}.then((b) => [...b.shownStore().sequences.values()].filter((s) =>
            s.preemptions.some((p) => p.forRequest)).map((s) => [s.request, s.preemptions.find((p) => p.forRequest).forRequest]))""")
        assert told, "no preemption names the request that it was for"
        request, winner = told[-1]
        page.mouse.move(5, 5)
        page.click(f".requests button:text-matches('^[Rr]equest {request}$')")
        story = page.inner_text(".story")
        assert f"preempted for request {winner}" in story and "arrived with a prompt of" in story
        assert "It took seat" in story and "ended at its limit" in story
        rows = page.evaluate(f"""{BUS}.then((b) => {{
            const store = b.shownStore(), at = store.at.rows;
            let sampled = 0;
            for (const step of store.steps)
                for (let i = 0; i < step.rows.length; i += store.stride) sampled += step.rows[i + at.sampled];
            return sampled; }})""")
        assert rows == COUNT * 90 == counter(server, "vllm:generation_tokens_total")
        page.focus("#bus-canvas")
        for _ in range(40):  # back to when requests waited
            if page.locator(".bus-side ol li button").count():
                break
            before = page.inner_text(".summary")
            page.keyboard.press("PageUp")
            until(page, f"document.querySelector('.summary').textContent !== {json.dumps(before)}")
        assert re.search("all seats were taken|not enough free KV blocks", page.inner_text(".bus-side section >> nth=1"))
        tab.check(server.url)


def test_a_recording_from_its_file_shows_the_same_picture(browser, busy, tmp_path):
    with open_tab(browser, busy.url + "/#bus") as tab:
        page = tab.page
        until(page, "document.querySelector('.summary') && /Step \\d/.test(document.querySelector('.summary').textContent)")
        page.click("text=Pause")
        page.keyboard.press("Escape")
        with page.expect_download() as download:
            page.click("text=Save recording")
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        live = page.evaluate("[...document.querySelectorAll('.bus-main canvas')].slice(0, 4).map((c) => c.toDataURL())")
        tab.check(busy.url)
    with open_tab(browser, file.as_uri()) as tab:
        page = tab.page
        until(page, "document.querySelector('.summary') && /Step \\d/.test(document.querySelector('.summary').textContent)")
        kept = page.evaluate("[...document.querySelectorAll('.bus-main canvas')].slice(0, 4).map((c) => c.toDataURL())")
        assert len(kept) == 4 and kept == live
        assert not page.is_visible("#try-panel")
        assert page.inner_text(".story") != "" and page.locator(".requests li").count() > 4
        page.click(".requests button >> nth=0")
        assert "arrived" in page.inner_text(".story")
        assert serious(page) == []
        tab.check(file.as_uri())


def test_stories_are_in_order_and_their_waits_add_up(browser, server):
    with open_tab(browser, server.url + "/") as tab:
        stories = tab.page.evaluate("""async (recording) => {
            const { openRecording } = await import('/page/record.js');
            const { storyOf } = await import('/page/story.js');
            return [...openRecording(recording).sequences.values()].filter((s) => s.ended).map((s) =>
                ({ story: storyOf(s), arrived: s.arrived, seated: s.admissions[0].at, preempted: s.preemptions.length }));
        }""", made_recording(seats=12, steps=500, blocks=250))
    assert len(stories) > 30 and any(s["preempted"] for s in stories)
    for s in stories:
        times = [at for at, _ in s["story"] if at is not None]
        assert times == sorted(times), s
        text = " ".join(sentence for _, sentence in s["story"])
        assert "arrived with a prompt of" in text and "It took seat" in text and text.endswith("its limit of tokens.")
        assert text.count("It was preempted for request") == s["preempted"] == text.count("It returned to seat")
        waited_ms = (s["seated"] - s["arrived"]) / 1000
        if waited_ms >= 100:
            said = re.search(r"It waited ([\d.,]+) (ms|s|min) because", text)
            assert float(said[1].replace(",", "")) * {"ms": 1, "s": 1000, "min": 60000}[said[2]] == pytest.approx(waited_ms, rel=0.01)


def test_pause_scroll_zoom_and_keyboard(browser, busy):
    with open_tab(browser, busy.url + "/#bus", width=390, scheme="dark") as tab:
        page = tab.page
        until(page, "document.querySelector('.summary') && /Step \\d/.test(document.querySelector('.summary').textContent)")
        shot = "document.querySelector('#bus-canvas').toDataURL()"
        end = page.evaluate(shot)
        page.focus("#bus-canvas")
        page.keyboard.press("PageUp")
        until(page, f"{shot} !== {end!r}")
        assert page.inner_text(".bar button >> nth=0") == "Paused"
        early = page.evaluate(shot)
        page.keyboard.press("+")
        until(page, f"{shot} !== {early!r}")
        page.keyboard.press("-")
        until(page, f"{shot} === {early!r}")
        page.keyboard.press(" ")
        until(page, f"{shot} === {end!r}")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('.story').textContent.includes('arrived')")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert serious(page) == []
        tab.check(busy.url)


def test_the_numbers_equal_the_metrics(browser, busy):
    with open_tab(browser, busy.url + "/#load") as tab:
        page = tab.page
        page.wait_for_selector("#totals [data-metric]")
        shown = page.evaluate("Object.fromEntries([...document.querySelectorAll('#totals [data-metric]')]"
                              ".map((e) => [e.dataset.metric, Number(e.textContent.replace(/,/g, ''))]))")
        assert len(shown) >= 10
        for name, value in shown.items():
            assert value == counter(busy, name), name
        until(page, "document.querySelectorAll('.chart').length === 8")
        until(page, "document.querySelector('.load').textContent.includes('Prompt tokens')")
        until(page, "document.querySelector('.load').textContent.includes('kv_blocks')")
        assert re.search(r"engine [\d.]+ (µs|ms|s)", page.inner_text(".load")), "how long the start took is not shown"
        assert serious(page) == []
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert serious(page) == []
        tab.check(busy.url)


MADE = """vllm:prompt_tokens_total{{model_name="m"}} {a}000
vllm:generation_tokens_total{{model_name="m"}} {a}500
vllm:num_requests_running{{model_name="m"}} 3
vllm:num_requests_waiting{{model_name="m"}} {a}
vllm:kv_cache_usage_perc{{model_name="m"}} 0.25
vllm:prefix_cache_queries_total{{model_name="m"}} {a}00
vllm:prefix_cache_hits_total{{model_name="m"}} {a}5
vllm:num_preemptions_total{{model_name="m"}} {a}2
jitney:http_requests_total{{path="/a",status="200"}} {a}0
jitney:http_requests_total{{path="/a",status="404"}} {a}
jitney:kv_blocks_held{{model_name="m"}} 17
process_start_time_seconds 1000
process_resident_memory_bytes 3145728
jitney:http_connections 9
jitney:build_info{{version="9.8.7"}} 1
"""


def made_metrics(a):
    """Counters that grow with a: {a}000 is a thousand times a. Latencies: 10 a at up to 0.1 s, 20 a
    at up to 0.2 s, so that half of them lie below 0.1 s."""
    latencies = ("vllm:time_to_first_token_seconds", "vllm:request_time_per_output_token_seconds",
                 "vllm:request_queue_time_seconds", "vllm:e2e_request_latency_seconds")
    buckets = "".join(f'{name}_bucket{{le="{le}",model_name="m"}} {count * a}\n' for name in latencies
                      for le, count in (("0.1", 10), ("0.2", 20), ("+Inf", 20)))
    return MADE.format(a=a) + buckets


def test_every_figure_of_the_numbers_follows_from_the_metrics(browser, server):
    """With texts of /metrics that are written here, so that every figure can be worked out by hand."""
    texts = iter([made_metrics(1)])
    with open_tab(browser) as tab:
        page = tab.page
        page.route("**/metrics", lambda route: route.fulfill(
            body=next(texts, made_metrics(3)), content_type="text/plain"))
        page.goto(server.url + "/#load")
        until(page, "(document.querySelector('#load-view').dataset.times || '').includes(' ')")
        times, charts, latencies, line = page.evaluate("""[
            document.querySelector('#load-view').dataset.times.split(' ').map(Number),
            [...document.querySelectorAll('.chart-values')].map((c) => [...c.querySelectorAll('b')].map((b) => Number(b.dataset.value))),
            [...document.querySelectorAll('[data-latency]')].map((e) => [Number(e.dataset.value), e.textContent]),
            document.querySelector('.load .bar').textContent]""")
        tab.check(server.url)
    seconds = (times[1] - times[0]) / 1000
    latency = [100, 190, 198]  # ms; in a straight line from 0.1 s to 0.2 s
    expected = [[2000 / seconds] * 2, latency, latency, [3, 3], [25], [10], [20 / seconds], [22 / seconds, 2 / seconds]]
    assert len(charts) == len(expected)
    for got, want in zip(charts, expected, strict=True):
        assert got == pytest.approx(want)
    assert [value for value, _ in latencies] == pytest.approx(latency * 4)
    assert [text for _, text in latencies] == ["100 ms", "190 ms", "198 ms"] * 4
    assert "Version 9.8.7" in line and "3 MiB resident" in line and "9 connections" in line


def test_tenants_add_up_to_the_metrics(browser, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a tenant=alpha\nsk-b name=b tenant=beta\nsk-ops name=ops admin\n")
    with Server(long_model(tmp_path / "m"), "--runner", "sim:0", "--api-key-file", keys) as server, open_tab(browser) as tab:
        page = tab.page
        page.add_init_script("sessionStorage['jitney.key'] = 'sk-ops'")
        page.goto(server.url + "/#bus")
        until(page, f"{BUS}.then((b) => b.shownStore() !== null)")
        used = {"alpha": [0, 0, 0, 0], "beta": [0, 0, 0, 0]}
        for i in range(9):
            name = "alpha" if i % 3 else "beta"
            usage = server.plain("POST", "/v1/completions", {"prompt": "word " * (i + 1), "max_tokens": 3 + i, "ignore_eos": True},
                                 {"authorization": f"Bearer sk-{name[0]}"}).json["usage"]
            for k, n in enumerate((1, usage["prompt_tokens"], usage["completion_tokens"], 0)):
                used[name][k] += n
        until(page, f"{BUS}.then((b) => [...b.shownStore().sequences.values()].filter((s) => s.ended).length === 9)")
        page.click("#go-load")
        until(page, "document.querySelectorAll('[data-tenant]').length === 8")
        cells = page.evaluate("[...document.querySelectorAll('[data-tenant]')].map((e) => [e.dataset.tenant, Number(e.textContent.replace(/,/g, ''))])")
        shown = {name: [n for tenant, n in cells if tenant == name] for name in used}
        assert shown == used
        text = server.plain("GET", "/metrics", headers={"authorization": "Bearer sk-ops"}).body.decode()
        for k, name in ((1, "vllm:prompt_tokens_total"), (2, "vllm:generation_tokens_total")):
            total = sum(float(v) for v in re.findall(rf"^{name}{{[^}}]*}} (\S+)$", text, re.M))
            assert total == sum(row[k] for row in shown.values())
        tab.check(server.url)


def test_a_switch_of_the_policy_under_load_drops_nobody(browser, busy):
    with open_tab(browser, busy.url + "/#bus") as tab:
        page = tab.page
        until(page, "document.querySelector('#policy') && document.querySelector('#policy').options.length === 10")
        ids = send_load(busy)
        for name in ("fair", "mlfq", "chunked"):
            page.select_option("#policy", name)
            page.click("#switch-policy")
            until(page, f"document.querySelector('#toast').textContent.includes('is now {name}')")
        wait_completed(busy, ids)
        tab.check(busy.url)


def test_a_knob_is_changed_in_the_numbers(browser, busy):
    def state():
        return {k["name"]: k["value"] for k in busy.plain("GET", "/v1/engine/state").json["knobs"]}

    with open_tab(browser, busy.url + "/#load") as tab:
        tab.expected = ["400"]
        page = tab.page
        field = "input[aria-label='step_target_ms']"
        page.wait_for_selector(field)
        page.fill(field, "40")
        page.click("button[aria-label='Set step_target_ms']")
        until(page, "document.querySelector('#toast').textContent.includes('step_target_ms is now 40')")
        assert state()["step_target_ms"] == 40
        page.wait_for_selector(field)
        page.fill(field, "-5")
        page.click("button[aria-label='Set step_target_ms']")
        until(page, "/step_target_ms/.test(document.querySelector('#toast').textContent) &&"
                    " !/is now/.test(document.querySelector('#toast').textContent)")
        assert state()["step_target_ms"] == 40
        tab.check(busy.url)


def test_each_of_several_models_can_be_watched(browser, tmp_path):
    models = [long_model(tmp_path / name) for name in ("one", "two")]
    with Server(models, *SMALL) as server, open_tab(browser, server.url + "/#bus") as tab:
        page = tab.page
        assert server.plain("POST", "/v1/completions", {"model": "two", "prompt": "a b", "max_tokens": 5}).status == 200
        until(page, "document.querySelector('#bus-model') && document.querySelector('#bus-model').options.length === 2")
        assert page.input_value("#bus-model") == "one"
        assert "Nothing has run yet" in page.inner_text(".bus-message")
        page.select_option("#bus-model", "two")
        until(page, "/Step \\d/.test(document.querySelector('.summary').textContent)")
        assert page.evaluate(f"{BUS}.then((b) => b.shownStore().hello.model)") == "two"
        tab.check(server.url)


def shown_ends(page, server, count, tokens):
    """Sends requests, and waits until the page has seen their ends."""
    ids = send_load(server, count, tokens)
    wait_completed(server, ids)
    until(page, f"{BUS}.then((b) => b.shownStore() && [...b.shownStore().sequences.values()].slice(-{count})"
                f".filter((s) => s.ended && s.ended.generated === {tokens}).length === {count})")


def test_two_policies_are_compared_on_the_last_minute(browser, server):
    """The table has the figures of the answer, says which policy is better, and both pictures show
    what the simulations did."""
    with open_tab(browser, server.url + "/#bus") as tab:
        page = tab.page
        until(page, "document.querySelector('#compare-a') && document.querySelector('#compare-a').options.length === 10")
        shown_ends(page, server, 8, 21)
        page.select_option("#compare-a", "static")
        page.select_option("#compare-b", "chunked")
        with page.expect_response("**/v1/engine/whatif*") as response:
            page.click("#compare")
        page.wait_for_selector("#try-panel .compare canvas")
        results = response.value.json()["results"]
        assert [r["policy"] for r in results] == ["static", "chunked"]
        sent = response.value.request.post_data_json["recording"]
        assert all(set(step) <= {"arrived", "ended"} for step in sent["steps"])
        rows = page.evaluate("""[...document.querySelectorAll('#try-panel tr[data-figure]')].map((row) => [row.dataset.figure,
            ...[...row.querySelectorAll('td[data-value]')].map((d) => Number(d.dataset.value)), row.lastChild.textContent])""")
        assert len(rows) == 12
        for path, *values, verdict in rows:
            for value, result in zip(values, results, strict=True):
                figure = result["figures"]
                for name in path.split("."):
                    figure = figure[name]
                assert value == figure, path
            if values[0] == values[1]:
                assert verdict == "the same", path
            elif abs(values[1] - values[0]) < 0.01 * abs(values[0]):
                assert "better" not in verdict and "worse" not in verdict, (path, verdict)
            elif path in ("ttft_ms.p99", "kv_waste", "output_tokens_per_s"):
                is_better = (values[1] > values[0]) == (path == "output_tokens_per_s")
                assert verdict.endswith("better" if is_better else "worse"), (path, verdict)
        pictures = page.evaluate("[...document.querySelectorAll('#try-panel .compare canvas')].map((c) => c.toDataURL())")
        assert len(pictures) == 2 and pictures[0] != pictures[1]
        assert page.evaluate("""import('/page/picture.js').then(({ Picture }) => {
            const picture = Object.create(Picture.prototype);
            return [[1044, 10], [1044, 500], [344, 1600]].map(([width, columns]) => picture.zoomFor(width, columns)); })""") == [24, 2, 0.1875]
        assert serious(page) == []
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        tab.check(server.url)


def test_the_requests_of_the_last_minute_can_be_replayed(browser, server, tmp_path):
    with open_tab(browser, server.url + "/#bus") as tab:
        page = tab.page
        until(page, "document.querySelector('.summary')")
        shown_ends(page, server, 6, 20)
        with page.expect_download() as download:
            page.click("text=Save the requests of the last minute")
        file = tmp_path / "requests.json"
        download.value.save_as(file)
        tab.check(server.url)
    rows = [row for step in json.loads(file.read_text())["steps"] for row in step.get("arrived", [])]
    assert [row[5] for row in rows[-6:]] == [20] * 6
    got = {name: answer("replay", "--sim", "this-cpu", "--requests", file, "--policy", name) for name in ("chunked", "static")}
    assert all(6 <= x["choices"] <= len(rows) and x["finish_reasons"]["length"] >= 6 for x in got.values())
    assert got["chunked"]["ttft_ms"] != got["static"]["ttft_ms"]


def test_try_it_fills_the_bus(browser, server):
    with open_tab(browser, server.url + "/#bus") as tab:
        page = tab.page
        page.click("#try-load")
        until(page, "/[1-9]\\d* of \\d+ answered/.test(document.querySelector('#try-panel').textContent)")
        page.click("text=Stop the load")
        until(page, "document.querySelector('#try-panel').textContent.includes('stopped')")
        assert wait_until(lambda: b"jitney:answers_under_way 0" in server.plain("GET", "/metrics").body)
        tab.check(server.url)


def test_frames_are_drawn_with_256_seats(browser, server):
    """How long a frame takes is measured by bench/page.py; here it is only not absurd."""
    with open_tab(browser, server.url + "/#bus", height=1000) as tab:
        tab.page.wait_for_selector("#bus-canvas")
        times = frame_times(tab.page, kept=1000, frames=10)
        assert len(times) >= 10 and sorted(times)[5] < 1000
        assert tab.page.evaluate(f"{BUS}.then((b) => b.shownStore().seatsUsed)") == 256
        tab.check(server.url)
