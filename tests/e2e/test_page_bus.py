"""The bus and the numbers of the page, in a real browser.

Goal:   what the page shows is what the engine did: seats, waiting, preemptions, figures; and a
        recording shows the same picture.
Method: a server with a runner that takes 10 ms a step and computes nothing, few seats and few KV
        blocks, so that requests wait and are preempted; 16 requests at once."""

import pytest

from browser_lib import open_browser, open_tab
from cli_lib import talking_model
from server_lib import Server

SMALL = ("--runner", "sim:10000", "--set", "max_seqs=6", "--set", "kv_blocks=40", "--set", "block_size=16")
FRAME_MS = 16  # 8 with a GPU, which a browser without a window does not have


@pytest.fixture(scope="module")
def browser():
    with open_browser() as b:
        yield b


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(talking_model(tmp_path_factory.mktemp("model") / "m"), *SMALL) as s:
        yield s


def test_a_frame_takes_little_time_with_256_seats_and_10000_steps(browser, server):
    with open_tab(browser, server.url + "/#bus", height=1000) as tab:
        page = tab.page
        page.wait_for_selector("#bus-canvas")
        times = page.evaluate("""async () => {
            const bus = await import('/page/bus.js');
            const { StepStore } = await import('/page/record.js');
            const rows = ['seat', 'request', 'choice', 'tenant', 'first', 'count', 'cached', 'sampled', 'drafts'];
            const store = new StepStore({ seats: 256, epoch_ms: 0, rows, waiting: ['request', 'choice', 'tenant', 'why'] }, {});
            const made = (n) => ({ step: n, at_us: n * 20000, us: 18000 + n % 7 * 500, target_us: 25000, waiting_count: n % 30,
                waiting: Array.from({ length: 32 }, (_, i) => [90000 + i, 0, 0, 'seat']),
                blocks: { used: 3000 + n % 500, shared: 400, cached: 200, free: 2000 },
                rows: Array.from({ length: 256 }, (_, i) => [i, (n + i * 37) / 300 | 0, i, 0, n, (n + i) % 90 ? 1 : 64, 0, 1, 0]) });
            let n = 0;
            while (n < 10000) store.add(made(n++));
            bus.useStore(store);
            const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
            await pause(500);
            const feed = setInterval(() => store.add(made(n++)), 20);
            const windows = [];
            for (let i = 0; i < 4; i++) {
                bus.frameTimes.length = 0;
                await pause(700);
                windows.push([...bus.frameTimes].sort((a, b) => a - b));
            }
            clearInterval(feed);
            return windows;
        }""")
        # Other programs on the machine take the processor within a frame: the calmest window counts.
        p95 = [w[int(len(w) * 0.95)] for w in times if len(w) >= 10]
        print(f"p95 of the frames in four windows: {[round(x, 2) for x in p95]} ms")
        assert p95 and min(p95) < FRAME_MS
