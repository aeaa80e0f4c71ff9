"""Does a real Chromium do all that the inspector offers, on stores as the examples make them?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from support.chromium import MISSING, chromium, served
from support.inspected_runs import desk, fill, letters, shop

from fsm_agent import Agent
from fsm_agent.store import Runs, SqliteStore
from fsm_agent.testing import Script

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.system,
    pytest.mark.timeout(300),
]
WAIT_MS = 30_000  # the machine may be busy


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with closing(fill(SqliteStore(tmp_path / "runs.db"))) as filled:
        yield filled


class Tab:
    """A page of a browser, and its complaints."""

    def __init__(self, browser: Any, server: Any, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.base = server.url.partition("?")[0].rstrip("/")
        self.dialogs: list[str] = []
        self.complaints: list[str] = []
        self.page.on("dialog", self._dismiss)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.goto(server.url)

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def go(self, path: str = "/", **query: Any) -> Any:
        self.page.goto(f"{self.base}{path}?{urlencode(query)}")
        return self.page

    def live(self) -> Any:
        """Wait until news come."""
        self.until("document.querySelector('#live').textContent === 'live'")
        return self.page

    def text(self, what: str) -> str:
        return " ".join(self.page.locator(what).inner_text().split())

    def until(self, is_true: str, argument: Any = None) -> None:
        """Wait until an expression is true; `wait_for_function` would have the page evaluate text."""
        ends_s = time.monotonic() + WAIT_MS / 1000
        while not self.page.evaluate(is_true, argument):
            assert time.monotonic() < ends_s, is_true
            self.page.wait_for_timeout(20)


@pytest.fixture
def server(runs: Runs, tmp_path: Path) -> Iterator[Any]:
    agents = [shop(runs), desk(runs), letters(runs)]
    with served(runs, name="runs.db", file=tmp_path / "runs.db", agents=agents) as serving:
        yield serving


@pytest.fixture
def tab(browser: Any, server: Any) -> Iterator[Tab]:
    opened = Tab(browser, server)
    yield opened
    opened.context.close()
    assert not opened.dialogs
    assert not opened.complaints


class TestTheList:
    def test_filter_and_open_by_the_keyboard(self, tab):
        page = tab.live()
        page.keyboard.press("/")
        page.keyboard.type("degrees")
        tab.until("location.search.endsWith('words=degrees')")
        tab.until("document.querySelectorAll('tr[data-id]').length === 2")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        page.keyboard.press("j")
        chosen = page.locator("tr.at").get_attribute("data-id")
        assert chosen == page.locator("tr[data-id]").nth(1).get_attribute("data-id")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run?**")
        assert page.locator("h1").inner_text() == chosen
        page.go_back()
        assert page.locator("[name=words]").input_value() == "degrees"

    def test_a_run_that_changes_appears(self, tab, runs):
        page = tab.go("/", only="ended")
        tab.live()
        assert page.locator("tr[data-id=newest]").count() == 0
        Agent(Script("Hi."), name="host", store=runs).call("Hello", run_id="newest")
        page.wait_for_selector("tr[data-id=newest]")
        tab.until("location.search.includes('only=ended')")


class TestTimeTravel:
    def test_step_through(self, tab, runs):
        page = tab.go("/run", id="order-17")
        tab.live()
        assert tab.text("#now-state") == "Completed"
        page.keyboard.press("Home")
        states = [
            "Seeded",
            "Calling",
            "ToolInterrupt",
            "Calling",
            "ToolInterrupt",
            "ToolInterrupt",
            "Calling",
            "Completed",
        ]
        for n, state in enumerate(states):
            assert tab.text("#now-state") == state, n
            assert page.locator("#machine .state.is").get_attribute("data-state") == state
            assert page.locator(".item.later").count() == 7 - n
            assert tab.text("#live") == ("in the past" if n < 7 else "live")
            page.keyboard.press("ArrowRight")
        assert page.locator("#machine .way.is").count() == 1
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        tab.until("n => location.hash === `#n${n}`", 5)  # `page.url` learns of it later
        page.reload()
        assert tab.text("#at") == "5 / 7"  # the address keeps the place
        page.locator("#machine .state[data-state=ToolInterrupt]").click()
        assert tab.text("#now-state") == "ToolInterrupt"
        page.click("[data-step=last]")
        assert tab.text("#live") == "live"

    def test_what_is_not_known_yet_is_not_shown(self, tab):
        page = tab.go("/run", id="degrees-paris")
        tab.live()
        shown = {name: page.locator(f"#now-{name}").is_visible() for name in ("state", "time", "tokens", "cost")}
        assert shown == {"state": True, "time": True, "tokens": False, "cost": False}

    def test_numbers_of_later_entries_are_faint(self, tab):
        page = tab.go("/run", id="order-17")
        tab.live()
        faint = "[...document.querySelectorAll('#machine tspan.later')].map((one) => +one.dataset.n).sort()"
        assert page.evaluate(faint) == []
        page.locator(".item .n[data-go='4']").click()
        assert page.evaluate(faint) == [5, 6, 7]

    def test_texts_of_the_machine_can_be_read(self, tab):
        for width in (1280, 390):
            tab.page.set_viewport_size({"width": width, "height": 900})
            for run in ("order-17", "ticket-8"):
                page = tab.go("/run", id=run)
                tab.live()
                heights = page.evaluate(
                    "[...document.querySelectorAll('#machine text')].map((one) =>"
                    " parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a)"
                )
                assert min(heights) >= 10
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


class TestAnswering:
    def test_a_reason_and_enter_approve_nothing(self, tab, runs):
        page = tab.go("/run", id="order-22")
        tab.live()
        page.fill("form.ask [name=reason]", "not before Monday")
        page.keyboard.press("Enter")
        page.click("form.ask button[value=denied]")
        page.wait_for_selector(".posted")
        (post,) = runs.store.load("order-22").signals
        assert "not before Monday" in post.body
        assert "denied" in post.body

    def test_wrong_arguments_are_told_and_kept(self, tab, runs):
        page = tab.go("/run", id="order-22")
        page.fill("form.ask input[name='v.1']", "much")
        page.click("[data-approve]")
        page.wait_for_selector(".field.wrong")
        assert page.input_value("form.ask input[name='v.1']") == "much"
        assert not runs.store.load("order-22").signals
        tab.complaints.clear()  # Chromium notes the status 422


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>\"'><script src=//evil.invalid>"


class TestAttacks:
    def test_no_script_of_a_planted_text_runs(self, tab, runs):
        agent = Agent(Script(EVIL, EVIL), name=EVIL, store=runs)
        agent.call(EVIL, run_id=f"evil {EVIL}", extra={EVIL: EVIL})
        Agent(Script(EVIL), name=EVIL, store=runs).runs.submit(EVIL, run_id="later")
        for path, query in (
            ("/", {}),
            ("/", {"words": EVIL}),
            ("/run", {"id": f"evil {EVIL}"}),
            ("/run", {"id": "later"}),
        ):
            page = tab.go(path, **query)
            tab.live()
        hosts = set[str]()
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        agent.runs.resume("later")  # it comes as news, too
        tab.until("document.querySelectorAll('.item').length === 2")
        page.keyboard.press("Home")
        page.keyboard.press("End")
        page.click("#moment-box summary")
        page.wait_for_selector("#moment dl")
        tab.go("/compare", a="later", b=f"evil {EVIL}")
        assert not tab.dialogs
        assert hosts == {urlsplit(tab.base).netloc}

    def test_a_page_of_another_origin_does_nothing(self, browser, server, tab, runs):
        """Another port of this machine is the same site: cookies go along, and Origin tells."""
        token = tab.go("/run", id="order-22").locator("[name=form]").first.get_attribute("value")
        html = f"""<form method=post action="{tab.base}/do/answer"><input name=form value="{token}">
            <input name=id value=order-22><input name=key value="ask:4.0"><input name=kind value=approved></form>"""
        page = tab.context.new_page()
        for origin in ("http://127.0.0.1:9", "http://evil.invalid"):
            page.route(f"{origin}/**", lambda route: route.fulfill(body=html, content_type="text/html"))
            page.goto(f"{origin}/")
            framed = page.evaluate(
                "(url) => fetch(url, {credentials: 'include', mode: 'no-cors'}).then((r) => r.type, () => 'failed')",
                f"{tab.base}/run?id=order-22",
            )
            assert framed in ("failed", "opaque")
            page.evaluate("document.forms[0].submit()")
            page.wait_for_selector("text=/requests from other sites|token/")
        assert not runs.store.load("order-22").signals
