"""Take the pictures of the chat page in ``docs/``, with Chromium and playwright.

PYTHONPATH=tests python tools/chat_pictures.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "web"))

from playwright.sync_api import sync_playwright
from service import running
from support.paths import ROOT

from fsm_agent import Agent, function
from fsm_agent.testing import Script, function_call
from fsm_agent.web import serve

LOOKS: dict[str, dict[str, Any]] = {
    "chat-light": {"color_scheme": "light", "viewport": {"width": 1000, "height": 720}},
    "chat-dark": {"color_scheme": "dark", "viewport": {"width": 1000, "height": 720}},
    "chat-narrow": {"color_scheme": "light", "viewport": {"width": 390, "height": 720}},
}
FOUND = """I am sorry about that. This is the order:

| order | item | price |
|---|---|---:|
| A-17 | lamp | 40 EUR |

The terms let me **refund all of it**. Shall I?
"""


@function
def find_order(number: str) -> str:
    "Look an order up."
    return '{"what": "a lamp", "state": "delivered", "euros": 40}'


@function(needs_approval=True)
def refund(number: str, euros: int) -> str:
    "Refund an order."
    return f"{euros} euros are refunded"


def main() -> None:
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, look in LOOKS.items():
            model = Script(
                function_call("find_order", number="A-17"), FOUND, function_call("refund", number="A-17", euros=40)
            )
            agent = Agent(model, name="support", functions=[find_order, refund], store=f"{folder}/{name}.db")
            with running(serve(agent)) as base:
                page = browser.new_page(**look)
                page.goto(base)
                page.fill("#text", "My lamp, order A-17, arrived broken. I want my money back.")
                page.click("#send")
                page.get_by_text("Shall I").wait_for()
                page.fill("#text", "Yes, please.")
                page.click("#send")
                page.get_by_label("Euros", exact=True).wait_for()
                page.evaluate("document.querySelector('#log').scrollTop = 1e6")
                page.screenshot(path=str(ROOT / "docs" / f"{name}.png"))
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
