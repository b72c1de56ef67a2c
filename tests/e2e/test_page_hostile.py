"""What a model writes, shown by the page.

Goal:   hostile output changes nothing but text, and makes the browser request nothing.
Method: a model whose answer is all the cases below one after another, in a real browser; then each
        case alone, given to the page's own module. Every element and attribute that comes out is
        held against a list of harmless ones, and every request of the browser is noted."""

import json

import pytest

from browser_lib import browser_fixture, open_tab, until  # noqa: F401
from scripted_model import scripted_model
from server_lib import Server

OUT = "http://127.0.0.1:9/out"  # nobody listens there; a request would be seen

CASES = [
    "<script>alert(1)</script>",
    f"<script src={OUT}></script>",
    f'<img src="{OUT}" onerror="alert(2)">',
    "<img src=x onerror=alert(3)>",
    f'<svg onload="alert(4)"><image href="{OUT}"/></svg>',
    "<svg><script>alert(5)</script></svg>",
    f'<iframe src="{OUT}"></iframe>',
    '<iframe srcdoc="<script>parent.alert(6)</script>"></iframe>',
    f'<object data="{OUT}"></object>',
    f'<embed src="{OUT}">',
    f'<link rel="stylesheet" href="{OUT}">',
    f'<link rel="prefetch" href="{OUT}">',
    f'<meta http-equiv="refresh" content="0;url={OUT}">',
    f'<base href="{OUT}/">',
    f'<style>@import "{OUT}"; body {{ background: url({OUT}) }}</style>',
    f'<form action="{OUT}"><input name=a><button>go</button></form>',
    f'<video src="{OUT}" autoplay></video>',
    f'<audio src="{OUT}" autoplay onplay="alert(7)"></audio>',
    f'<body background="{OUT}" onload="alert(8)">',
    '<div style="position:fixed;inset:0;background:red">cover</div>',
    '<details open ontoggle="alert(9)">x</details>',
    '<input autofocus onfocus="alert(10)">',
    '<a href="javascript:alert(11)">x</a>',
    '<math><mtext><table><mglyph><style><img src=x onerror=alert(12)>',
    '<template><script>alert(13)</script></template>',
    '<noscript><p title="</noscript><img src=x onerror=alert(14)>">',
    '<xmp><script>alert(15)</script></xmp>',
    '<!--><img src=x onerror=alert(16)>-->',
    '<![CDATA[<script>alert(17)</script>]]>',
    '<?xml version="1.0"?><script>alert(18)</script>',
    '<dialog open>fake</dialog>',
    '<button formaction="javascript:alert(19)">x</button>',
    '</div></article></main><h1>outside</h1>',
    '</script><script>alert(20)</script>',
    f"![a picture]({OUT})",
    f"![]({OUT} \"title\")",
    "![x](javascript:alert(21))",
    "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+)",
    f"[![nested]({OUT})]({OUT})",
    "[click](javascript:alert(22))",
    "[click](JaVaScRiPt:alert(23))",
    "[click](java\tscript:alert(24))",
    "[click]( javascript:alert(25))",
    "[click](\x01javascript:alert(26))",
    "[click](data:text/html,<script>alert(27)</script>)",
    "[click](vbscript:msgbox(28))",
    "[click](file:///etc/passwd)",
    "[click](blob:http://127.0.0.1/1)",
    "[click](//example.invalid/29)",
    "[click](/v1/requests/30)",
    "[click](https://user:pass@example.invalid/)",
    "[https://bank.invalid](https://evil.invalid/login)",
    '[click](https://example.invalid/"onmouseover="alert(31))',
    "[click](https://example.invalid/<script>alert(32)</script>)",
    "<javascript:alert(33)>",
    "<https://example.invalid/34>",
    "https://example.invalid/35?a=<b>&c='d'",
    f"[ref]: {OUT}\n\n[ref]",
    "[x](https://[::1]:9/36)",
    "```html\n<script>alert(37)</script>\n```",
    "```\"><img src=x onerror=alert(38)>\ncode\n```",
    "`<img src=x onerror=alert(39)>`",
    "| <b>a</b> | <script>alert(40)</script> |\n|---|---|\n| <img src=x onerror=alert(41)> | [x](javascript:alert(42)) |",
    "> <script>alert(43)</script>",
    "- <img src=x onerror=alert(44)>\n  - [y](javascript:alert(45))",
    "# <svg onload=alert(46)>",
    "**<b onclick=alert(47)>bold</b>**",
    "safe \u202egpj.exe\u202c end",
    "\u2066isolate\u2069 \u200fmark\u200e \u061calm",
    "escape \x1b[31mred\x1b[0m and \x1b]0;title\x07 bell",
    "\x1b]8;;http://example.invalid\x1b\\link\x1b]8;;\x1b\\",
    "nul \x00 back \x08\x08\x08 del \x7f csi \x9b31m",
    "&lt;script&gt;alert(48)&lt;/script&gt; &#60;b&#62;",
    "{{constructor.constructor('alert(49)')()}} ${alert(50)} <%= alert(51) %>",
    "__proto__ constructor toString [__proto__](x)",
    "*" * 3000,
    "[" * 3000 + "]" * 3000,
    "`" * 200 + " unclosed " + "``` x",
    "> " * 500 + "deep",
    "\n".join("  " * i + "- item" for i in range(60)),
    "|" * 2000 + "\n" + "|-" * 1000,
    "_" * 999 + "a" + "~" * 999,
    "a\u0300" * 500,
]

# In the page: elements and attributes that are not harmless.
CHECK = """
(root) => {
    const TAGS = new Set(['P', 'BR', 'CODE', 'PRE', 'DIV', 'SPAN', 'A', 'STRONG', 'EM', 'S', 'HR', 'UL', 'OL', 'LI',
        'BLOCKQUOTE', 'TABLE', 'THEAD', 'TBODY', 'TR', 'TH', 'TD', 'BUTTON']);
    const NAMES = /^(class|dir|tabindex|role|aria-[a-z]+|start|scope|type|rel|target|title|href)$/;
    const bad = [];
    for (const node of root.querySelectorAll('*')) {
        if (!TAGS.has(node.tagName)) bad.push(node.tagName);
        for (const { name, value } of node.attributes) {
            if (!NAMES.test(name)) bad.push(`${node.tagName} ${name}`);
            if (name === 'href' && !/^https?:\\/\\/[^@]*$/.test(value)) bad.push(`href ${value}`);
            if (name === 'href' && node.rel !== 'noopener noreferrer nofollow') bad.push(`rel ${node.rel}`);
        }
    }
    if (/[\\u0000-\\u0008\\u000e-\\u001f\\u007f\\u202a-\\u202e\\u2066-\\u2069]/.test(root.textContent)) bad.push('control');
    return bad;
}
"""


def test_there_are_enough_cases():
    assert len(CASES) >= 60 and len(set(CASES)) == len(CASES)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    text = "\n\n".join(case for case in CASES if len(case) < 400 and "\x00" not in case)
    half = len(text) // 2
    pieces = [text[i:i + 97] for i in range(0, len(text), 97)]
    pieces = [piece for i, piece in enumerate(pieces) if piece not in pieces[:i]]
    assert half and "".join(pieces).count("alert(") > 40
    with Server(scripted_model(tmp_path_factory.mktemp("hostile") / "m", pieces)) as s:
        s.script = "".join(pieces)
        yield s


def test_a_hostile_answer_is_text_and_nothing_is_requested(browser, server):
    with open_tab(browser, server.url + "/") as tab:
        page = tab.page
        page.fill("#composer-text", "<img src=x onerror=alert(0)> What do you say?")
        page.press("#composer-text", "Enter")
        page.wait_for_selector(".message.assistant:not(.running) .facts")
        body = page.query_selector(".message.assistant .body")
        assert page.evaluate(CHECK, body) == []
        shown = body.inner_text()
        for part in ("<script>alert(1)</script>", "onerror=alert(3)", "javascript:alert(22)", "</script><script>alert(20)"):
            assert part in shown
        assert "outside" not in page.evaluate("[...document.querySelectorAll('h1')].map((h) => h.textContent).join()")
        assert page.inner_text(".message.user .body").startswith("<img src=x")
        page.reload()  # what was stored is shown again
        page.wait_for_selector(".message.assistant .facts")
        assert page.evaluate(CHECK, page.query_selector(".message.assistant .body")) == []
        page.click("text=Probabilities")
        page.wait_for_selector(".tokens")
        assert page.locator(".tokens img, .tokens script, .tokens a").count() == 0
        tab.check(server.url)
        assert page.title() == "jitney"


def test_each_case_alone_is_harmless_and_quick(browser, server):
    with open_tab(browser, server.url + "/") as tab:
        page = tab.page
        page.wait_for_selector("#messages .empty-state")
        found = page.evaluate("""
            async (cases) => {
                const { showMarkdown } = await import('/page/markdown.js');
                const check = """ + CHECK + """;
                return cases.map((text) => {
                    const place = document.body.appendChild(document.createElement('div'));
                    const began = performance.now();
                    for (let i = 1; i <= 4; i++) showMarkdown(place, text.slice(0, text.length * i / 4));
                    const ms = performance.now() - began;
                    const whole = document.createElement('div');
                    showMarkdown(whole, text);
                    const bad = check(place);
                    if (whole.textContent !== place.textContent) bad.push('differs when it grows');
                    place.remove();
                    return { bad, ms, text: whole.textContent };
                });
            }""", CASES)
        for case, result in zip(CASES, found, strict=True):
            assert result["bad"] == [], (case[:200], result["bad"])
            assert result["ms"] < 1000, (case[:200], result["ms"])
        texts = {case: result["text"] for case, result in zip(CASES, found, strict=True)}
        for case in CASES[:34]:
            if "\n" not in case:
                assert texts[case] == case, "raw HTML is shown as it was written"
        assert "evil.invalid" in texts["[https://bank.invalid](https://evil.invalid/login)"]
        assert "U+202E" in texts["safe \u202egpj.exe\u202c end"]
        until(page, "document.readyState === 'complete'")
        tab.check(server.url)


def test_hostile_names_and_stored_data_are_text(browser, server, tmp_path):
    """What is imported, dropped or stored may be hostile as well."""
    hostile = "<img src=x onerror=alert(60)>"
    chat = {"id": "x", "title": hostile, "system": hostile, "leaf": "b", "nodes": {
        "a": {"role": "user", "text": hostile, "parent": None, "files": [{"name": hostile, "text": hostile}]},
        "b": {"role": "assistant", "text": hostile, "parent": "a", "state": "failed", "error": hostile, "model": hostile},
        "loop": {"role": "user", "text": "x", "parent": "loop"}, "odd": 7}}
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"jitney_conversations": 1, "conversations": [chat, 5, None, {"nodes": 3}]}))
    with open_tab(browser, server.url + "/") as tab:
        page = tab.page
        page.wait_for_selector("#messages .empty-state")
        with page.expect_file_chooser() as chooser:
            page.click("#import")
        chooser.value.set_files(file)
        page.click("#chat-list .title")
        page.wait_for_selector(".message.assistant")
        assert page.locator("main img").count() == 0
        assert page.inner_text(".message.user .body") == hostile
        assert page.inner_text(".message.assistant .error") == hostile
        tab.check(server.url)
