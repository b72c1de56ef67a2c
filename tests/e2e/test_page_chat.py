"""The chat of the page, in a real browser.

Goal:   a person can chat: see the answer come, stop it, ask again, edit, branch, reload, export.
Method: Chromium without a window; a server with a runner that takes 10 ms a step and computes
        nothing, so that an answer is under way long enough to be watched."""

import json
import re

import pytest

from browser_lib import browser_fixture, long_model, open_tab, serious, until  # noqa: F401
from cli_lib import talking_model
from server_lib import Server, wait_until

SLOW = ("--runner", "sim:10000")
DONE = ".message.assistant:not(.running)"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(long_model(tmp_path_factory.mktemp("model") / "m"), *SLOW, "--served-model-name", "tiny") as s:
        yield s


@pytest.fixture
def tab(browser, server):
    with open_tab(browser, server.url + "/") as t:
        until(t.page, "document.querySelector('#model').options.length > 0")
        yield t


def set_field(page, name, value):
    page.fill(f"#control-{name}", str(value))
    page.dispatch_event(f"#control-{name}", "change")


def ask(page, text, tokens=12):
    set_field(page, "max_tokens", tokens)
    page.fill("#composer-text", text)
    page.press("#composer-text", "Enter")


def wait_done(page, count=1):
    until(page, f"document.querySelectorAll('{DONE}').length >= {count} && !document.querySelector('.running')")


def answer_text(page):
    return page.inner_text(".message.assistant:last-of-type .body")


def test_an_answer_streams_and_says_what_it_took(tab, server):
    page = tab.page
    ask(page, "Hello there", 100)
    page.wait_for_selector(".message.running")
    lengths = page.evaluate("""() => new Promise((resolve) => {
        const found = new Set();
        const timer = setInterval(() => {
            found.add(document.querySelector('.message.assistant .body').textContent.length);
            if (document.querySelector('.message.running')) return;
            clearInterval(timer);
            resolve(found.size);
        }, 5);
    })""")
    assert lengths >= 4, "the text did not grow in pieces"
    wait_done(page)
    facts = page.inner_text(".message.assistant .facts")
    assert "wrote 100 tokens" in facts and "tokens/s" in facts and "first token after" in facts and "tiny" in facts
    assert "limit of tokens" in page.inner_text(".message.assistant .notes")
    assert page.inner_text("#chat-list .title") == "Hello there"
    tab.check(server.url)


def test_stop_ends_the_answer_in_the_page_and_on_the_server(tab, server):
    page = tab.page
    ask(page, "A long story", 5000)
    until(page, "document.querySelector('.message.running .body').textContent.length > 5")
    page.click("#stop")
    wait_done(page)
    assert "You stopped this answer." in page.inner_text(".message.assistant .notes")
    assert page.is_visible("#send") and not page.is_visible("#stop")
    assert wait_until(lambda: b"jitney:answers_under_way 0" in server.plain("GET", "/metrics").body)
    tab.check(server.url)


def test_regenerate_and_edit_make_branches_that_keep_what_follows(tab, server):
    page = tab.page
    ask(page, "First question")
    wait_done(page)
    first = answer_text(page)
    page.click("text=Regenerate")
    wait_done(page)
    assert page.inner_text(".message.assistant .branches .count") == "2 of 2"
    page.click(".message.assistant [aria-label='Earlier version']")
    assert answer_text(page) == first
    page.click(".message.user >> text=Edit")
    assert page.input_value("#composer-text") == "First question"
    page.fill("#composer-text", "Second question")
    page.press("#composer-text", "Enter")
    wait_done(page)
    assert page.inner_text(".message.user .body") == "Second question"
    assert page.inner_text(".message.user .branches .count") == "2 of 2"
    page.click(".message.user [aria-label='Earlier version']")
    assert page.inner_text(".message.user .body") == "First question"
    assert page.inner_text(".message.assistant .branches .count").endswith("of 2")
    tab.check(server.url)


def test_an_answer_that_was_resumed_shows_no_pace(tab):
    """Its events come in a heap after a reload, so their times say nothing about the model."""
    page = tab.page
    ask(page, "Tell me a little", 120)
    until(page, "document.querySelector('.message.running .body').textContent.length > 10")
    page.reload()
    wait_done(page)
    facts = page.inner_text(".message.assistant .facts")
    assert "wrote 120 tokens" in facts and "tokens/s" not in facts


def test_a_reload_keeps_the_conversation_and_resumes_the_answer(tab, server):
    page = tab.page
    set_field(page, "seed", 7)
    ask(page, "Tell me everything", 4000)
    until(page, "document.querySelector('.message.running .body').textContent.length > 10")
    page.reload()
    page.wait_for_selector(".message.running")
    early = len(answer_text(page))
    assert early > 0
    until(page, f"document.querySelector('.message.running .body').textContent.length > {early + 20}")
    page.click("#stop")
    wait_done(page)
    stored, events = page.evaluate(
        "Object.values(JSON.parse(localStorage['jitney.chat.' + sessionStorage['jitney.current']]).nodes)"
        ".filter((n) => n.role === 'assistant').map((n) => [n.text, n.event])[0]")
    reply = server.plain("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Tell me everything"}], "max_tokens": events, "seed": 7,
        "temperature": 0.7, "top_p": 0.95})
    whole = reply.json["choices"][0]["message"]["content"]
    assert len(stored) > early and whole.startswith(stored), "an event was lost or taken twice"
    assert any("/v1/requests/" in r for r in tab.requests)
    assert page.inner_text(".message.user .body") == "Tell me everything"
    tab.check(server.url)


def test_probabilities_show_what_else_could_have_been_there(browser, tmp_path):
    with Server(talking_model(tmp_path / "m")) as server, open_tab(browser, server.url + "/") as tab:
        page = tab.page
        set_field(page, "temperature", 1.5)
        set_field(page, "seed", 5)
        ask(page, "Some words", 10)
        wait_done(page)
        page.click("text=Probabilities")
        page.wait_for_selector(".tokens .token")
        assert page.locator(".message .note", has_text="another answer").count() == 0
        wrote = int(re.search(r"wrote (\d+) token", page.inner_text(".message.assistant .facts"))[1])
        assert page.locator(".tokens .token").count() == wrote
        page.press(".tokens", "ArrowRight")
        page.wait_for_selector(".token-tip tr.chosen")
        assert page.locator(".token-tip tr").count() >= 5 and "%" in page.inner_text(".token-tip")
        page.hover(".token >> nth=4")
        assert "current" in page.get_attribute(".token >> nth=4", "class")
        page.click("text=Back to the text")
        assert page.locator(".tokens").count() == 0
        tab.check(server.url)


def test_conversations_are_exported_imported_and_deleted(tab, server, tmp_path):
    page = tab.page
    ask(page, "Keep this")
    wait_done(page)
    before = answer_text(page)
    with page.expect_download() as download:
        page.click("#export")
    file = tmp_path / "c.json"
    download.value.save_as(file)
    assert json.loads(file.read_text())["jitney_conversations"] == 1
    page.evaluate("window.confirm = () => true")
    page.click("#chat-list .remove")
    assert page.locator("#chat-list li").count() == 0
    for name, text, words in (("bad.json", "[", "is not JSON"), ("other.json", "{}", "jitney_conversations")):
        (tmp_path / name).write_text(text)
        with page.expect_file_chooser() as chooser:
            page.click("#import")
        chooser.value.set_files(tmp_path / name)
        until(page, f"document.querySelector('#toast').textContent.includes('{words}')")
    with page.expect_file_chooser() as chooser:
        page.click("#import")
    chooser.value.set_files(file)
    page.click("#chat-list .title")
    wait_done(page)
    assert answer_text(page) == before
    tab.check(server.url)


def test_a_dropped_file_is_counted_and_becomes_part_of_the_prompt(tab, server):
    page = tab.page
    count = server.plain("POST", "/tokenize", {"content": "alpha beta gamma"}).json["count"]
    page.set_input_files("#file-input", {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"alpha beta gamma"})
    until(page, f"document.querySelector('#draft-files').textContent.includes('{count} tokens')")
    with page.expect_request("**/v1/chat/completions") as request:
        ask(page, "What is in it?")
    sent = request.value.post_data_json["messages"][-1]["content"]
    assert "notes.txt" in sent and "alpha beta gamma" in sent and sent.endswith("What is in it?")
    wait_done(page)
    assert "notes.txt" in page.inner_text(".message.user details summary")
    page.set_input_files("#file-input", {"name": "x.bin", "mimeType": "application/x", "buffer": b"\0\1\2"})
    until(page, "document.querySelector('#toast').textContent.includes('not a text file')")
    tab.check(server.url)


def test_the_system_prompt_and_the_controls_reach_the_server(tab, server):
    page = tab.page
    page.fill("#system", "Be brief.")
    page.dispatch_event("#system", "change")
    set_field(page, "temperature", 0.25)
    with page.expect_request("**/v1/chat/completions") as request:
        ask(page, "Hi", 4)
    body = request.value.post_data_json
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["temperature"] == 0.25 and body["max_tokens"] == 4 and body["model"] == "tiny"
    set_field(page, "temperature", 9)
    assert page.get_attribute("#control-temperature", "aria-invalid") == "true"
    wait_done(page)
    tab.check(server.url)


def test_errors_are_shown_in_words(tab, server):
    tab.expected = ["400"]
    page = tab.page
    ask(page, "word " * 3000, 4)
    page.wait_for_selector(".message.assistant .error")
    assert "context" in page.inner_text(".message.assistant .error")
    tab.check(server.url)


def test_the_whole_chat_works_by_keyboard(tab, server):
    page = tab.page

    def tab_to(selector):
        for _ in range(60):
            if page.evaluate("(s) => document.activeElement.matches(s)", selector):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not reach {selector}")

    set_field(page, "max_tokens", 400)
    page.evaluate("document.activeElement.blur()")
    tab_to("#composer-text")
    page.keyboard.type("By keyboard")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message.running")
    page.keyboard.press("Escape")
    wait_done(page)
    page.evaluate("document.querySelector('#messages').focus()")
    tab_to(".message.assistant .actions button:nth-of-type(2)")
    page.keyboard.press("Enter")  # Regenerate
    page.wait_for_selector(".message.running")
    page.keyboard.press("Escape")
    wait_done(page)
    assert page.inner_text(".message.assistant .branches .count") == "2 of 2"
    page.evaluate("document.querySelector('#messages').focus()")
    tab_to(".message.user .actions button:nth-of-type(2)")
    page.keyboard.press("Enter")  # Edit
    assert page.evaluate("document.activeElement.id") == "composer-text"
    page.keyboard.press("Escape")
    assert page.input_value("#composer-text") == ""
    page.evaluate("document.querySelector('.brand').focus()")
    tab_to("#new-chat")
    page.keyboard.press("Enter")
    assert page.locator(".message").count() == 0
    assert page.evaluate("document.activeElement.id") == "composer-text"
    tab.check(server.url)


def check_readable(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    until(page, f"document.documentElement.dataset.theme === '{scheme}'")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious(page) == []


def test_every_width_and_theme_is_readable(browser, server):
    """Also where it changes while the page is open."""
    with open_tab(browser, server.url + "/", width=390, scheme="dark") as tab:
        page = tab.page
        page.wait_for_selector("#messages .empty-state")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.click(".examples button >> nth=0")
        page.wait_for_selector(".message.running")
        page.click("#stop")
        wait_done(page)
        for width in (390, 1280):
            for scheme in ("dark", "light"):
                check_readable(page, width, scheme)
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": 390, "height": 800})
            page.click("#toggle-chats")
            assert page.inner_text("#toggle-chats") == "Close"
            page.click("#new-chat")
            assert not page.is_visible("#chats")
            assert page.get_attribute("#toggle-chats", "aria-expanded") == "false"
            page.click("#toggle-settings")
            assert page.is_visible("#system")
            check_readable(page, 390, scheme)
            page.click("#toggle-settings")
        tab.check(server.url)


def test_the_page_asks_for_a_key_and_keeps_it_for_the_tab(browser, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-right\nsk-ops admin\n")
    with Server(talking_model(tmp_path / "m"), *SLOW, "--api-key-file", keys) as server, \
            open_tab(browser, server.url + "/") as tab:
        tab.expected = ["401", "403"]
        page = tab.page
        page.wait_for_selector("#key-dialog[open]")
        page.fill("#key-input", "sk-wrong")
        page.press("#key-input", "Enter")
        until(page, "document.querySelector('#key-dialog').open &&"
                    " document.querySelector('#key-reason').textContent.includes('does not know the key')")
        page.fill("#key-input", "sk-right")
        page.click("#key-dialog >> text=Use this key")
        until(page, "document.querySelector('#model').options.length > 0")
        ask(page, "Hello", 4)
        wait_done(page)
        assert page.evaluate("sessionStorage['jitney.key']") == "sk-right"
        assert "sk-right" not in page.evaluate("JSON.stringify(localStorage)")
        page.reload()
        until(page, "document.querySelector('#model').options.length > 0")
        assert not page.evaluate("document.querySelector('#key-dialog').open")
        page.click("#go-bus")  # which needs an admin's key
        page.click("#another-key")
        page.wait_for_selector("#key-dialog[open]")
        page.fill("#key-input", "sk-ops")
        page.press("#key-input", "Enter")
        until(page, "/Nothing has run yet|Step \\d/.test(document.querySelector('.bus-main').textContent)")
        assert page.evaluate("sessionStorage['jitney.key']") == "sk-ops"
        tab.check(server.url)


def test_the_first_paint_does_not_wait_for_the_server(browser, server):
    """How fast it comes is measured by bench/page.py. Here no request is answered but those for the
    page's own files: it is painted all the same."""
    with open_tab(browser) as tab:
        tab.page.route(re.compile(r"/(v1/.*|metrics|openapi\.json|health|readyz|version)$"), lambda route: None)
        tab.page.goto(server.url + "/")
        until(tab.page, "performance.getEntriesByName('first-contentful-paint').length > 0")
        assert tab.page.is_visible("#composer-text")
