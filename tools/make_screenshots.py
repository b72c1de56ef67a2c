#!/usr/bin/env python3
"""Makes the pictures of docs/img: each view of the page, from a running server.

usage: build/venv/bin/python tools/make_screenshots.py [OUT]     (make screenshots)

It serves smollm2 on a free port of loopback, talks to it, loads it as "Try it" does, and takes the
pictures with chromium."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from browser_lib import open_browser, open_tab, until  # noqa: E402
from server_lib import Server  # noqa: E402

QUESTIONS = ("Why is the sky blue? Two sentences.", "Write a short Python function that adds two numbers.")
BYTES_MAX = 120 << 10
# Reads the story of a request that was preempted, or else waited longest.
STORY = """import('/page/bus.js').then(({ shownStore, select }) => {
    const waited = (s) => s.waits.reduce((sum, w) => sum + w.us, 0) + 1e9 * s.preemptions.length;
    select([...shownStore().sequences.values()].sort((a, b) => waited(b) - waited(a))[0]);
})"""


def chat(browser, url, out):
    with open_tab(browser, url, width=1180, height=700) as tab:
        page = tab.page
        for name, value in (("temperature", 0.3), ("seed", 11), ("max_tokens", 220)):
            page.fill(f"#control-{name}", str(value))
            page.dispatch_event(f"#control-{name}", "change")
        for i, text in enumerate(QUESTIONS):
            page.fill("#composer-text", text)
            page.press("#composer-text", "Enter")
            until(page, f"document.querySelectorAll('.assistant:not(.running) .facts').length === {i + 1}")
        page.evaluate("document.querySelector('#chat-settings').scrollTop = 0")
        page.screenshot(path=out / "chat.png")
        tab.check(url)


def phone(browser, url, out):
    with open_tab(browser, url, width=390, height=760, scheme="dark") as tab:
        page = tab.page
        page.evaluate("document.querySelector('#control-max_tokens').value = 100")
        page.dispatch_event("#control-max_tokens", "change")
        page.fill("#composer-text", "Name three primary colours.")
        page.press("#composer-text", "Enter")
        page.wait_for_selector(".message.assistant:not(.running) .facts")
        page.screenshot(path=out / "phone.png")


def bus(browser, url, out):
    with open_tab(browser, url + "/#bus", width=1180, height=800) as tab:
        page = tab.page
        page.click("#try-load")
        until(page, "/24 of 24/.test(document.querySelector('#try-panel').textContent)")
        page.focus("#bus-canvas")
        page.keyboard.press("-")
        for _ in range(30):  # back to when all seats were taken
            page.keyboard.press("ArrowLeft")
            page.wait_for_timeout(300)
            if "4 sequences" in page.inner_text(".summary"):
                break
        page.evaluate(STORY)
        page.wait_for_timeout(300)
        page.evaluate("document.querySelector('#bus-view').scrollTop = 0")
        page.screenshot(path=out / "bus.png")
        page.keyboard.press(" ")
        if page.is_visible("#compare"):
            page.click("#compare")
            page.wait_for_selector("#try-panel .compare canvas")
            page.wait_for_timeout(300)
            page.locator("#try-panel").screenshot(path=out / "compare.png")
        page.evaluate("document.querySelector('#try-load').click()")
        page.click("#go-load")
        page.wait_for_timeout(16000)
        page.screenshot(path=out / "numbers.png")
        tab.check(url)


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "img")
    out.mkdir(parents=True, exist_ok=True)
    with Server("smollm2", "--ctx", "1024", "--set", "max_seqs=4", "--set", "kv_blocks=80") as server, open_browser() as browser:
        for make in (chat, phone, bus):
            make(browser, server.url, out)
    for file in sorted(out.glob("*.png")):
        size = file.stat().st_size
        print(f"{file.name}: {size / 1024:.0f} KiB")
        if size > BYTES_MAX:
            sys.exit(f"{file}: more than {BYTES_MAX >> 10} KiB")


main()
