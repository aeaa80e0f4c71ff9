"""Does a real Chromium talk to the page, approve, answer, reload in the middle of an answer, and see the rest?"""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from served import Letter, desk, letters, reply_to
from service import running
from support.chromium import MISSING, chromium

from fsm_agent import Agent, Function, function
from fsm_agent.testing import Pieces, Script, function_call
from fsm_agent.web import serve

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.system, pytest.mark.timeout(300)]
WAIT_MS = 30_000  # the machine may be busy
DOT = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
EVIL = (
    '<img src=x onerror="alert(1)"><script>alert(2)</script> <b onclick=alert(3)>onerror</b> '
    "[a](javascript:alert(4)) [b](JaVaScRiPt&#58;alert(5)) [c](data:text/html,x) ![d](https://elsewhere.example/d.png)\n\n"
    '<iframe src="https://elsewhere.example"></iframe>\n<svg onload=alert(6)>\n\n<style>body {display: none}</style>'
)
MARKDOWN = """You get **20 EUR** back.

| item | price |
|---|---:|
| lamp | 20 |

```python
print("refund")
```

See [the terms](https://example.org/terms).
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


class Order(BaseModel, title="Order"):
    count: int = Field(default=0, title="count")
    note: str = Field(default="usual", title="note")
    model_config = ConfigDict(frozen=True, json_schema_extra={"required": ["count"]})


class Tab:
    """A page of a browser, and its complaints."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.page = browser.new_context(**options).new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.goto(address)

    def _dismiss(self, dialog: Any) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def say(self, text: str) -> None:
        self.page.fill("#text", text)
        self.page.click("#send")

    def sees(self, text: str, where: str = "#log") -> None:
        self.page.locator(where).get_by_text(text).last.wait_for(state="attached")


class Gate:
    """A function that waits until it is released, and a model that asks for it."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()

        @function
        def slow() -> str:
            "Wait."
            self.began.set()
            assert self.go.wait(60)
            return "went on"

        self.function = slow

    def reply(self, request: Any) -> Any:
        last = request.messages[-1]
        if last.role == "user" and last.text == "slow":
            return function_call("slow")
        if last.role == "user" and last.text == "evil":
            return Pieces(EVIL)
        if last.role == "user" and last.text == "table":
            return Pieces(*[MARKDOWN[at : at + 7] for at in range(0, len(MARKDOWN), 7)])
        return reply_to(request)

    def agent(self, folder: Path) -> Any:
        agent = desk(str(folder / "runs.db"))
        functions: list[Any] = [*agent.functions, self.function]
        return agent.changed(model=Script(*[self.reply] * 100), functions=functions)


def test_a_conversation(browser: Any, tmp_path: Path) -> None:
    gate = Gate()
    with running(serve(gate.agent(tmp_path))) as base:
        tab = Tab(browser, base)
        tab.say("hello")
        tab.sees("Hello there")
        tab.say("refund")
        euros = tab.page.get_by_label("Euros", exact=True)
        assert (tab.page.get_by_label("Order", exact=True).input_value(), euros.input_value()) == ("A-17", "20")
        euros.fill("5")
        tab.page.get_by_label("Order", exact=True).fill("B-2")
        tab.page.click("button.yes")
        tab.sees("refunded 5 for B-2")
        tab.say("refund")
        tab.page.get_by_label("Reason").fill("too much")
        tab.page.get_by_label("Reason").press("Enter")  # presses no button, least of all the first, Approve
        assert tab.page.locator(".asked").count() == 1
        tab.page.click("button.no")
        tab.sees("too much", ".assistant")
        tab.say("evil")
        tab.sees("onerror")
        for tag in ("script", "img", "iframe", "svg", "style", "b", "a[href]"):
            assert tab.page.locator(f"#log {tag}").count() == 0, tag
        tab.say("slow")
        tab.sees("slow", "summary")
        assert gate.began.wait(30)
        tab.page.reload()
        tab.sees("slow", "summary")
        other = Tab(browser, tab.page.url)
        other.sees("slow", "summary")
        gate.go.set()
        for each in (tab, other):
            each.sees("It is so: went on")
            each.sees("refunded 5 for B-2")
        tab.page.locator("#conversations li").wait_for()
        assert tab.page.locator("#conversations li").count() == 1
        tab.page.click("#new")
        tab.say("hello")
        tab.sees("Hello there")
        tab.page.locator("#conversations li").nth(1).wait_for()
        assert tab.complaints == other.complaints == []


def test_markdown_is_rendered_and_a_function_shows_its_outcome(browser: Any, tmp_path: Path) -> None:
    with running(serve(Gate().agent(tmp_path))) as base:
        tab = Tab(browser, base)
        tab.sees("Write a message to begin")
        tab.say("table")
        tab.sees("See the terms")
        message = tab.page.locator(".assistant").last
        assert message.locator("strong").inner_text() == "20 EUR"
        assert message.locator("td").all_inner_texts() == ["lamp", "20"]
        assert message.locator("th").last.get_attribute("align") == "right"
        assert message.locator("pre code").inner_text() == 'print("refund")\n'
        assert message.locator("a").get_attribute("href") == "https://example.org/terms"
        assert message.locator("a").get_attribute("rel") == "noopener noreferrer nofollow"
        assert tab.page.locator(".empty").count() == 0
        tab.say("weather")
        tab.page.locator(".call.done .how").get_by_text("done").wait_for()
        tab.say("broken")
        tab.page.locator(".call.failed .how").get_by_text("failed").wait_for()
        assert tab.complaints == []


def test_a_question_stays_until_it_is_answered(browser: Any, tmp_path: Path) -> None:
    with running(serve(Gate().agent(tmp_path))) as base:
        tab = Tab(browser, base)
        tab.say("refund")
        field = tab.page.locator("label", has_text="Euros")
        euros = field.locator("input")
        euros.wait_for()
        assert tab.page.locator("#text").is_disabled()
        assert tab.page.locator("#send").is_disabled()
        for given, told in (("", "number"), ("5.5", "euros: ")):
            euros.fill(given)
            tab.page.click("button.yes")
            field.locator(".error").get_by_text(told).wait_for()
            assert euros.input_value() == given, "what was written is not lost"
        assert "ask:" not in tab.page.inner_text("#log")
        euros.fill("5")
        tab.page.get_by_label("Order", exact=True).fill("B-2")
        tab.page.click("button.yes")
        tab.sees("refunded 5 for B-2")
        assert tab.page.locator(".asked").count() == 0
        assert tab.page.locator("#text").is_enabled()
        tab.say("fail")
        tab.sees("The model could not be reached")
        assert "AuthFailed" not in tab.page.inner_text("#log")
        assert tab.complaints == []


def test_a_fault_of_the_page_is_told_and_not_read_again(browser: Any, tmp_path: Path) -> None:
    with running(serve(Gate().agent(tmp_path))) as base:
        tab = Tab(browser, base)
        tab.page.evaluate("() => { View.prototype.take = () => { throw new TypeError('no such element') } }")
        tab.say("hello")
        tab.sees("This page could not show the rest")
        assert tab.page.locator(".user.refused").count() == 0, "the message was sent"
        tab.page.reload()
        tab.sees("Hello there")


def test_a_message_that_was_taken_is_not_shown_as_refused(browser: Any, tmp_path: Path) -> None:
    with running(serve(Agent(Script(), name="host", store=str(tmp_path / "runs.db")))) as base:
        tab = Tab(browser, base)
        tab.say("hello")
        tab.sees("Something went wrong")
        tab.page.locator("#conversations li").wait_for()
        assert tab.page.locator(".user.refused").count() == 0
        assert tab.page.input_value("#text") == ""


def test_a_message_that_was_refused_is_not_lost(browser: Any, tmp_path: Path) -> None:
    with running(serve(Gate().agent(tmp_path))) as base:
        tab = Tab(browser, base)
        tab.say("hello")
        tab.sees("Hello there")
        other = Tab(browser, tab.page.url)
        other.sees("Hello there")
        other.say("refund")
        other.page.locator("button.yes").wait_for()
        tab.say("weather")
        tab.page.locator(".user.refused").get_by_text("Not sent").wait_for()
        assert tab.page.input_value("#text") == "weather"


def test_a_picture_is_removed_and_one_that_was_refused_stays(browser: Any, tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(DOT)
    with running(serve(Gate().agent(tmp_path))) as base:
        tab = Tab(browser, base)
        tab.page.set_input_files("#picture", picture)
        tab.sees("dot.png", "#named")
        tab.page.click("#remove")
        assert tab.page.inner_text("#named") == ""
        tab.say("hello")
        tab.sees("Hello there")
        assert tab.page.locator(".user img").count() == 0
        other = Tab(browser, tab.page.url)
        other.say("refund")
        other.page.locator("button.yes").wait_for()
        tab.page.set_input_files("#picture", picture)
        tab.say("weather")
        tab.page.locator(".user.refused").get_by_text("Not sent").wait_for()
        assert (tab.page.input_value("#text"), tab.page.inner_text("#named")) == ("weather", "dot.png")
        other.page.click("button.no")
        other.page.locator(".asked").wait_for(state="detached")
        tab.page.click("#send")
        tab.page.locator(".user:not(.refused) img").wait_for()
        assert tab.complaints == []


def test_an_error_of_a_form_leaves_its_buttons_in_sight(browser: Any, tmp_path: Path) -> None:
    with running(serve(Gate().agent(tmp_path))) as base:
        tab = Tab(browser, base, viewport={"width": 390, "height": 700})
        tab.say("hello " * 300)
        tab.sees("Hello there")
        tab.say("refund")
        tab.page.get_by_label("Euros", exact=True).fill("5.5")
        tab.page.click("button.yes")
        tab.page.locator("label .error").wait_for()
        tab.page.wait_for_function(
            "document.querySelector('button.yes').getBoundingClientRect().bottom <= log.getBoundingClientRect().bottom"
        )


def test_a_form_begins_with_the_default_of_an_argument(browser: Any, tmp_path: Path) -> None:
    @function(needs_approval=True)
    def send(to: str, how: Literal["post", "mail"] = "mail", copies: int = 2, note: str = "soon") -> str:
        "Send it."
        return f"{copies} by {how} to {to}: {note}"

    agent = desk(str(tmp_path / "runs.db")).changed(
        model=Script(function_call("send", to="Ada"), lambda request: request.messages[-1].text), functions=[send]
    )
    with running(serve(agent)) as base:
        tab = Tab(browser, base)
        tab.say("send it")
        labels = [f"{name} (optional)" for name in ("How", "Copies", "Note")]
        given = [tab.page.get_by_label(label).input_value() for label in labels]
        assert given == ['"mail"', "2", "soon"]
        tab.page.get_by_label("Note (optional)").fill("now")
        tab.page.click("button.yes")
        tab.sees("2 by mail to Ada: now", ".assistant")
        assert tab.complaints == []


@pytest.mark.parametrize("extra", ["copies", "constructor", "toString"])  # each object of JavaScript has the last two
def test_no_argument_is_approved_unseen(browser: Any, tmp_path: Path, extra: str) -> None:
    send = Function(
        name="send",
        parameters={"type": "object", "properties": {"to": {"type": "string"}}},  # open to other arguments
        call=lambda **given: f"sent {given}",
        needs_approval=True,
    )
    agent = desk(str(tmp_path / "runs.db")).changed(
        model=Script(function_call("send", **{"to": "Ada", extra: "everything"}), "Sent."), functions=[send]
    )
    with running(serve(agent)) as base:
        tab = Tab(browser, base)
        tab.say("send it")
        tab.page.locator("button.yes").wait_for()
        assert "everything" in tab.page.locator(".asked textarea").first.input_value()


@pytest.mark.parametrize("unseen", ["\u200b", "\u202e", "\U000e0041", "\ufe00", "\u200c\u200d", "\x1b"])
def test_no_character_is_approved_unseen(browser: Any, tmp_path: Path, unseen: str) -> None:
    @function(needs_approval=True)
    def send(to: str) -> str:
        "Send."
        return f"sent to {len(to)} characters"

    agent = desk(str(tmp_path / "runs.db")).changed(
        model=Script(function_call("send", to=f"Ada{unseen}"), lambda request: request.messages[-1].text),
        functions=[send],
    )
    with running(serve(agent)) as base:
        tab = Tab(browser, base)
        tab.say("send it")
        tab.page.locator("button.yes").wait_for()
        assert json.dumps(f"Ada{unseen}") in tab.page.locator(".asked textarea").first.input_value()
        tab.page.click("button.yes")
        tab.sees(f"sent to {3 + len(unseen)} characters", ".assistant")


def test_words_and_emojis_with_joiners_are_approved_as_they_are(browser: Any, tmp_path: Path) -> None:
    @function(needs_approval=True)
    def send(to: str) -> str:
        "Send."
        return to

    words = "می\u200cخواهم ❤\ufe0f\u200d🔥"  # noqa: RUF001
    agent = desk(str(tmp_path / "runs.db")).changed(model=Script(function_call("send", to=words)), functions=[send])
    with running(serve(agent)) as base:
        tab = Tab(browser, base)
        tab.say("send it")
        assert tab.page.get_by_label("To", exact=True).input_value() == words


def test_on_a_phone_the_conversations_are_shown_on_demand(browser: Any, tmp_path: Path) -> None:
    with running(serve(Gate().agent(tmp_path))) as base:
        tab = Tab(browser, base, viewport={"width": 390, "height": 800})
        tab.say("hello")
        tab.sees("Hello there")
        assert not tab.page.locator("#conversations").is_visible()
        tab.page.click("#show")
        tab.page.locator("#conversations li").wait_for()
        tab.page.click("#conversations button")
        assert not tab.page.locator("#conversations").is_visible()
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert tab.complaints == []


def test_a_flow_asks_in_a_form(browser: Any, tmp_path: Path) -> None:
    flow = letters(str(tmp_path / "runs.db"))
    with running(serve(flow, task=lambda message: Letter(message.text))) as base:
        tab = Tab(browser, base, color_scheme="dark", viewport={"width": 380, "height": 700})
        tab.say("the delay")
        tab.page.get_by_label("Answer", exact=True).fill("fine")
        tab.page.click("button.yes")
        tab.sees('"verdict": "fine"')
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits a narrow screen"
        assert tab.complaints == []
