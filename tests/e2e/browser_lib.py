"""What the tests of the page share: one browser, and pages that note whatever goes wrong in them."""

import contextlib
import json
import os
import shutil

import pytest

from cli_lib import talking_model
from server_lib import wait_until

playwright_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")

CHROMIUM = os.environ.get("JITNEY_CHROMIUM") or shutil.which("chromium")
WAIT_MS = 30_000  # the machine may be busy; nothing is slower than this by design

# Counts violations of the policy and keeps the page's frames comparable from run to run.
WATCH_POLICY = """
window.violations = [];
document.addEventListener('securitypolicyviolation',
    (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
"""


@contextlib.contextmanager
def open_browser():
    with playwright_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM,
                                         args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="module", name="browser")
def browser_fixture():
    """One browser for all tests of a file, which imports this name."""
    if not CHROMIUM:
        pytest.skip("chromium is not installed (Debian: chromium)")
    with open_browser() as browser:
        yield browser


class Tab:
    """A page in a context of its own: nothing is stored from other tests."""

    def __init__(self, browser, width=1280, height=800, scheme="light", **how):
        self.context = browser.new_context(viewport={"width": width, "height": height},
                                           color_scheme=scheme, accept_downloads=True, **how)
        self.context.add_init_script(WATCH_POLICY)
        self.context.set_default_timeout(WAIT_MS)
        self.page = self.context.new_page()
        self.faults, self.requests, self.expected = [], [], []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _on_console(self, message):
        # A refused request is reported by the browser itself; tests that cause one expect it.
        if message.type in ("error", "warning") and not any(part in message.text for part in self.expected):
            self.faults.append(f"{message.type}: {message.text}")

    def check(self, url=None):
        """Nothing was reported, nothing was blocked, and no request left for another server."""
        assert self.faults == []
        assert self.page.evaluate("window.violations") == []
        if url:
            assert [r for r in self.requests if not r.startswith((url, "blob:"))] == []

    def close(self):
        self.context.close()


def long_model(folder):
    """A tiny model with a context that outlasts a slow machine: no answer ends while it is watched."""
    talking_model(folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 4096
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def until(page, expression):
    """Waits until the expression is true in the page. (wait_for_function needs eval, which the
    policy of the page forbids.)"""
    assert wait_until(lambda: page.evaluate(expression), WAIT_MS / 1000, pause=0.03), expression


@contextlib.contextmanager
def open_tab(browser, url=None, **how):
    tab = Tab(browser, **how)
    try:
        if url:
            tab.page.goto(url)
        yield tab
    finally:
        tab.close()


def serious(page):
    """What axe-core finds serious or worse in the page as it is."""
    axe = pytest.importorskip("axe_core_python.sync_playwright", reason="axe-core-python is not installed")
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]})
    return [f"{v['id']}: {v['help']}: {[n['html'][:160] for n in v['nodes'][:3]]}" for v in found["violations"]
            if v["impact"] in ("serious", "critical")]


FEED = """async ([kept, frames]) => {
    const bus = await import('/page/bus.js');
    const { StepStore } = await import('/page/record.js');
    const rows = ['seat', 'request', 'choice', 'tenant', 'first', 'count', 'cached', 'sampled', 'drafts'];
    const store = new StepStore({ seats: 256, epoch_ms: 0, rows, waiting: ['request', 'choice', 'tenant', 'why'] }, {});
    const made = (n) => ({ step: n, at_us: n * 20000, us: 18000 + n % 7 * 500, target_us: 25000, waiting_count: n % 30,
        waiting: Array.from({ length: 32 }, (_, i) => [90000 + i, 0, 0, 'seat']),
        blocks: { used: 3000 + n % 500, shared: 400, cached: 200, free: 2000 },
        rows: Array.from({ length: 256 }, (_, i) => [i, (n + i * 37) / 300 | 0, i, 0, n, (n + i) % 90 ? 1 : 64, 0, 1, 0]) });
    const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const until = performance.now() + 60000;
    // The first event of the server shows the live steps: only after it can others be shown.
    while (!bus.shownStore() && performance.now() < until) await nextFrame();
    let n = 0;
    while (n < kept) store.add(made(n++));
    bus.useStore(store);
    const feed = setInterval(() => store.add(made(n++)), 20);
    const drawn = async (count) => {
        bus.frameTimes.length = 0;
        while (bus.frameTimes.length < count && performance.now() < until) await nextFrame();
    };
    await drawn(5); // the first ones draw all columns
    await drawn(frames);
    clearInterval(feed);
    return [...bus.frameTimes];
}"""


def frame_times(page, kept, frames):
    """Milliseconds of frames in the page's own callback, with 256 seats, `kept` steps kept and 50
    new ones each second."""
    return page.evaluate(FEED, [kept, frames])


def first_paint_ms(browser, url):
    with open_tab(browser, url) as tab:
        until(tab.page, "performance.getEntriesByName('first-contentful-paint').length > 0")
        return tab.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
