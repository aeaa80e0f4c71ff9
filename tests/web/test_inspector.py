"""Do the pages show the contents of every kind of store?"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support.inspected_runs import Letter, fill, forecaster, letters, shop, suspended
from support.inspector_pages import Markup, Pages
from support.kept_runs import OWN_CLOCK
from support.postgres import NOT_HERE, PostgresServer, programs

from fsm_agent import Agent, Approved, CallFailed, Denied, Image, Limits, RateLimited, Retry, function
from fsm_agent.call import Cancelled, Stopped
from fsm_agent.diagrams import call_diagram
from fsm_agent.flows import Flow, FlowSuspended, end, pause, wait
from fsm_agent.messages import Reply, Usage
from fsm_agent.store import MemoryStore, PostgresStore, ReadOnly, Runs, SqliteStore, Suspension
from fsm_agent.testing import FakeClock, Script, function_call
from fsm_agent.web import inspector_app

ALL = {
    *("order-22", "note-1", "letter-9", "ticket-8", "rent-11", "desk-3", "customer-17:2-call-2"),
    *("customer-17:1-call-1", "order-17", "degrees-paris", "degrees-rome"),
}
ASKING = {"order-22", "note-1", "letter-9", "ticket-8", "rent-11", "desk-3"}


@pytest.fixture(scope="module", params=["memory", pytest.param("postgres", marks=pytest.mark.nightly)])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    if request.param != "postgres":
        with closing(fill(MemoryStore())) as filled:
            yield filled
        return
    if programs() is None:
        pytest.skip(NOT_HERE)
    server = PostgresServer()
    try:
        with closing(fill(PostgresStore(server.url(), OWN_CLOCK))) as filled:
            yield filled
    finally:
        server.close()


@pytest.fixture
def pages(runs: Runs) -> Pages:
    return Pages(inspector_app(runs))


def listed(page: Markup) -> list[str]:
    return [row["data-id"] for row in page.all("tr") if "data-id" in row]


def test_the_runs_are_named_as_for_a_worker(tmp_path: Path):
    """By their `Runs`, those of an agent, a store, or its file."""
    agent = Agent(Script("Hi."), name="host", store=str(tmp_path / "runs.db"))
    agent.call("Hello", run_id="r1")
    for named in (agent.runs.all, agent.runs, agent.runs.all.store, tmp_path / "runs.db"):
        assert listed(Pages(inspector_app(named)).page("/")) == ["r1"]


def grouped(pages: Pages, **query: str) -> dict[str, list[str]]:
    """The names of the runs in the list, by the title of their table."""
    tables = pages.get("/", **query).text.split('<table class="runs"')[1:]
    titles = [found[1] for table in tables if (found := re.search(r"<caption>([^<]*)<", table))]
    names = [re.findall(r'data-id="([^"]*)"', table) for table in tables]
    return dict(zip(titles, names, strict=True))


def test_runs_are_in_groups_by_what_they_need():
    runs = Runs(MemoryStore())
    forecaster(runs, "12").call("How warm is it?", run_id="ended")
    with suppress(CallFailed):
        forecaster(runs, "warm", limits=Limits(parse_retries=0)).call("How warm is it?", run_id="failed")
    suspended(lambda: shop(runs).call("Where is my parcel?", run_id="asks"))
    shop(runs).runs.submit("Where is my parcel?", run_id="due")
    shop(runs).runs.submit("Where is my parcel?", run_id="later", delay_s=3600)
    shop(runs).runs.submit("Where is my parcel?", run_id="driven")
    runs.store.claim("a worker", for_s=60.0, run="driven")
    pages = Pages(inspector_app(runs))
    groups = {"Waiting for an answer": ["asks"], "No driver yet; the runs are due": ["due"], "Running": ["driven"],
              "Paused": ["later"], "Failed": ["failed"], "Ended": ["ended"]}  # fmt: skip
    assert grouped(pages) == groups
    assert [*grouped(pages)] == [*groups]
    assert grouped(pages, only="failed") == {"Failed": ["failed"]}
    heads = re.findall(r"<th [^>]*>(?:<[^>]*>)*([^<]*)", pages.get("/").text)
    assert "Entries" not in heads
    assert (heads.count("Waiting since"), heads.count("Elapsed"), heads.count("Continues")) == (2, 3, 1)


def test_a_run_waits_for_a_driver_since_it_was_due():
    clock = FakeClock(start_s=1_700_000_000.0)
    runs = Runs(MemoryStore(clock=clock.now))
    nap = pause("nap", 600)
    flow = Flow("f", str, start=nap, rows=[nap.elapsed(end("over"))], store=runs, environment={"clock": clock})
    suspended(lambda: flow.call("it", run_id="late"))
    row = runs.store.get("late")
    (since,) = [one["data-at"] for one in Pages(inspector_app(runs)).page("/").all("time")]
    assert float(since) == row.due_s
    assert row.due_s > row.updated_s


@pytest.mark.parametrize(
    ("ago_s", "pico_usd", "texts"),
    [
        (0.5, 0, ("now", "$0.0000", "0 ms")),
        (1, 12_000_000, ("1 s ago", "$0.000012")),
        (59, 100_000_000, ("59 s ago", "$0.0001")),
        (60, 120_000_000, ("1 min ago", "$0.0001")),
        (2 * 3600 + 59, 10**12, ("2 h ago", "$1.0000")),
        (3 * 86_400, 10**12, ("3 d ago", "$1.0000")),
    ],
)
def test_times_and_costs_are_told_in_words(
    ago_s: float, pico_usd: int, texts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    now_s = 1_700_000_000.0
    runs = Runs(MemoryStore(clock=lambda: now_s - ago_s))
    reply = Reply.of("Hi.").changed(usage=Usage(input_tokens=1, cost_pico_usd=pico_usd))
    Agent(Script(reply), name="host", store=runs).call("Hello", run_id="r")
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now_s)
        page = Pages(inspector_app(runs)).get("/run", id="r").text
    assert [text for text in texts if not re.search(rf">\s*{re.escape(text)}\s*<", page)] == []


def test_durations_are_told_in_their_largest_units():
    spans = {0.5: "500 ms", 1: "1.0 s", 59: "59.0 s", 60: "1 min 0 s", 3599: "59 min 59 s", 3600: "1 h 0 min",
             172_799: "47 h 59 min", 172_800: "2 days"}  # fmt: skip
    moment = [1_700_000_000.0]
    store = MemoryStore(clock=lambda: moment[0])
    for span_s in spans:
        store.create(f"{span_s}", "{}", agent="host")
        moment[0] += span_s
        lease = store.claim("w", for_s=60.0, run=f"{span_s}")
        assert lease is not None
        store.append(lease, 0, ["{}"], Suspension(state="Completed", is_ended=True))
    html = Pages(inspector_app(Runs(store))).get("/").text
    found = re.findall(r'data-id="([^"]*)".*?<td role="cell" class="num dim wide">([^<]*)<', html, re.DOTALL)
    assert dict(found) == {f"{span_s}": text for span_s, text in spans.items()}


def test_the_turns_of_a_conversation_stand_together():
    runs = Runs(MemoryStore())
    agent = Agent(Script(*["Hi."] * 4), name="host", store=runs)
    talk = agent.conversation("ada:17")
    talk.call("I am Ada.")
    (first,) = [row.id for row in runs.store.list()]
    agent.call("Hello", run_id="of no conversation:1-x")
    talk.call("Who am I?")
    second = runs.store.list()[0].id
    pages = Pages(inspector_app(runs))
    assert grouped(pages) == {"Ended": [second, first, "of no conversation:1-x"]}
    page = pages.page("/")
    assert [row["data-id"] for row in page.all("tr") if row.get("class") == "turn"] == [first]
    text = " ".join(page.text.split())
    assert text.count("conversation ada:17") == 1
    assert "conversation of no conversation" not in text


def test_a_run_that_nobody_has_driven_is_not_begun() -> None:
    agent = Agent(Script("Done."), name="clerk", store=MemoryStore())
    agent.runs.submit("Tidy up.", run_id="tidy", delay_s=3600)
    assert "not begun" in Pages(inspector_app(agent.runs.all)).page("/").text


def test_open_questions_come_first(pages):
    page = pages.page("/")
    names = listed(page)
    assert len(names) == len(ALL)
    assert set(names) == ALL
    assert set(names[: len(ASKING)]) == ASKING
    assert "Waiting for an answer" in page.text
    assert "11 runs" in page.text
    text = " ".join(page.text.split())
    for said in ("asks for approval of refund", "is in doubt about transfer", "asks review"):
        assert said in text, said


@pytest.mark.parametrize(
    ("query", "right"),
    [
        ({"words": "DEGREES"}, {"degrees-rome", "degrees-paris"}),
        ({"words": "umbrella"}, {"desk-3"}),  # of the task
        ({"agent": "shop"}, {"order-17", "order-22"}),
        ({"state": "review"}, {"letter-9", "ticket-8"}),
        ({"only": "asked"}, ASKING),
        ({"only": "open"}, ASKING),
        ({"only": "ended"}, ALL - ASKING),
        ({"only": "failed"}, {"degrees-paris"}),
        ({"age": "hour"}, ALL),
        ({"only": "ended", "agent": "shop", "words": "parcel"}, {"order-17"}),
        ({"only": "nonsense", "age": "never"}, ALL),
        ({"words": "no such words"}, set()),
    ],
)
def test_filters_stand_in_the_address(pages, query, right):
    page = pages.page("/", **query)
    assert set(listed(page)) == right
    assert set(listed(pages.page("/", rows="1", **query))) == right
    for name, value in query.items():
        if name == "words":
            assert page.all("input", name="words")[0]["value"] == value
        elif name in ("agent", "state"):
            assert [one["value"] for one in page.all("option") if "selected" in one if one["value"] == value]
    assert ("no such runs" in page.text) == (not right)


def test_an_age_is_since_the_last_change(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, moment = 1_700_000_000.0, [0.0]
    store = MemoryStore(clock=lambda: moment[0])
    for name, age_s in {"new": 60, "old": 2 * 3600, "older": 2 * 86_400, "oldest": 8 * 86_400}.items():
        moment[0] = now_s - age_s
        store.create(name, "{}", agent="host")
    pages = Pages(inspector_app(Runs(store)))
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now_s)
        found = {age: {*listed(pages.page("/", age=age))} for age in ("hour", "day", "week", "")}
    assert found == {
        "hour": {"new"}, "day": {"new", "old"}, "week": {"new", "old", "older"}, "": {"new", "old", "older", "oldest"},
    }  # fmt: skip


@pytest.mark.parametrize(("only", "count", "has_more"), [("", 11, True), ("", 10, False), ("failed", 11, False)])
def test_a_list_says_whether_more_runs_ask(only: str, count: int, has_more: bool) -> None:
    runs = Runs(MemoryStore())
    for n in range(count):
        suspended(lambda name=f"r{n}": letters(runs).call(Letter("Hello"), run_id=name))
    with suppress(CallFailed):
        forecaster(runs, "warm", limits=Limits(parse_retries=0)).call("How warm?", run_id="failed")
    page = Pages(inspector_app(runs)).page("/", only=only)
    assert ("All that wait for an answer" in page.text) is has_more
    text = " ".join(page.text.split())
    assert [number in text for number in (f"Asking {count} ", "Failed 1 ", f" {count + 1} runs")] == [True] * 3


def test_a_run_is_shown_whole(pages):
    page = pages.page("/run", id="order-17")
    text = " ".join(page.text.split())
    assert [item["data-n"] for item in page.all("article")] == [str(n) for n in range(1, 8)]
    for said in (
        "Where is my parcel? I am Ada.", "find_order", '{"customer": "Ada"}', "refund",
        "The parcel is lost. I would pay the customer back.", "ann approves refund", "refund returned",
        "19.50 EUR for A-17 are on their way", "$0.0005", "960 + 120", "4711", "verified by its digests",
        "functions asked → ToolInterrupt", "answered → Completed",
    ):  # fmt: skip
        assert said in text, said
    line = json.loads(page.all("div", data_page="run")[0]["data-timeline"])
    spent = [sum(column) for column in zip(*line["spent"], strict=True)][1:]
    assert spent[:2] == [960, 120]
    assert spent[2] > 0
    assert page.all("svg", role="img")
    assert {"Seeded", "Calling", "ToolInterrupt", "Completed", "Failed"} <= {g.get("data-state") for g in page.all("g")}


def drawn(pages: Pages, run: str, inside: str = "") -> ElementTree.Element:
    return ElementTree.fromstring(pages.get("/picture", id=run, inside=inside).text)


def boxes_in(svg: ElementTree.Element) -> dict[str, tuple[float, float, float, float]]:
    """The borders of each state: left, top, right, bottom."""
    found = {}
    for state in svg.iterfind("g[@data-state]"):
        x, y, width, height = [float(state.find("rect").get(name)) for name in ("x", "y", "width", "height")]  # type: ignore[union-attr, arg-type]
        found[str(state.get("data-state"))] = x, y, x + width, y + height
    return found


def points_of(line: str) -> Iterator[tuple[float, float]]:
    """Points of a cubic Bézier curve."""
    a, b, c, d = zip(*[iter(map(float, re.findall(r"-?\d+", line)))] * 2, strict=True)
    for n in range(21):
        t = n / 20
        yield tuple((1 - t) ** 3 * a[i] + 3 * t * (1 - t) ** 2 * b[i] + 3 * t * t * (1 - t) * c[i] + t**3 * d[i]
                    for i in (0, 1))  # type: ignore[misc]  # fmt: skip


def test_the_usual_way_of_an_agent_call_leads_from_left_to_right(pages):
    boxes = boxes_in(drawn(pages, "order-17"))
    usual = [boxes[state] for state in ("Seeded", "Calling", "Checking", "Completed")]
    assert len({(top, bottom) for _, top, _, bottom in usual}) == 1
    assert [left for left, *_ in usual] == sorted(left for left, *_ in usual)
    usual_ways = {(edge.source, edge.target) for edge in call_diagram(level="overview").edges}
    for run in ("order-17", "degrees-paris"):
        ways = {(way.get("data-from"), way.get("data-to")) for way in drawn(pages, run).iterfind("g[@data-from]")}
        assert usual_ways <= ways
    assert ("Calling", "Failed") in ways  # the run has taken it


def test_a_way_says_on_itself_by_which_entries_it_was_taken_and_why_to_those_who_point_at_it(pages):
    svg = drawn(pages, "degrees-paris")
    ways = [*svg.iterfind("g[@data-from]")]
    titles = {(way.get("data-from"), way.get("data-to")): way.findtext("title") for way in ways}
    assert all(titles.values())
    assert titles["Calling", "Backoff"] == "Calling → Backoff: model failed (entries 2, 4)"
    assert titles["Calling", "Failed"] == "Calling → Failed: model failed (entry 6)"
    assert titles["Calling", "Completed"] == "Calling → Completed: answered"
    numbers = {"".join(text.itertext()).strip() for text in svg.iterfind("text[@class='numbers']")}
    assert numbers == {"1", "2, 4", "3, 5", "6"}
    for way in ways:  # it is wide enough to be pointed at
        assert [path.get("class") for path in way.iterfind("path")] == ["hit", "line"]


def test_numbers_of_ways_back_and_forth_stand_where_each_begins(pages):
    svg, seen = drawn(pages, "order-17"), 0
    boxes = boxes_in(svg)
    middles = {name: complex(left + right, top + bottom) / 2 for name, (left, top, right, bottom) in boxes.items()}
    taken = [way for way in svg.iterfind("g[@data-from]") if "(entr" in str(way.findtext("title"))]
    pairs = [(str(way.get("data-from")), str(way.get("data-to"))) for way in taken]
    for (source, to), text in zip(pairs, svg.iterfind("text[@class='numbers']"), strict=True):
        if source != to and (to, source) in pairs:
            seen += 1
            place = complex(float(text.get("x", "")), float(text.get("y", "")))
            assert abs(place - middles[source]) < abs(place - middles[to])
    assert seen


def test_ways_to_a_branch_are_dashed() -> None:
    runs = Runs(MemoryStore())
    Agent(Script("Warm.", "Hot.", RateLimited("busy"), "21"), name="degrees", output=int, store=runs.store).call("?")
    (run,) = runs.store.list()
    ways = [*drawn(Pages(inspector_app(runs)), run.id).iterfind("g[@data-from]")]
    dashed = {(way.get("data-from"), way.get("data-to")) for way in ways if "dashed" in str(way.get("class"))}
    to = "ParseException"
    assert {("Calling", to), (to, to), ("Backoff", to), ("Checking", to)} == dashed


def is_at_border(point: tuple[float, float], box: tuple[float, float, float, float]) -> bool:
    (x, y), (a, b, c, d) = point, box
    return a - 3 < x < c + 3 and b - 3 < y < d + 3 and not (a + 3 < x < c - 3 and b + 3 < y < d - 3)


def test_ways_lead_from_state_to_state_and_neither_through_a_third_nor_on_each_other(pages, runs):
    seen = 0
    for run in ALL:
        paths = {link.get("data-inside", "") for link in pages.page("/run", id=run).all("a")}
        for inside in paths:
            svg = drawn(pages, run, inside)
            boxes, middles = boxes_in(svg), {}
            left, top, width, height = map(float, str(svg.get("viewBox")).split())
            for (a, b, c, d), (e, f, g, h) in combinations(boxes.values(), 2):
                assert not (a < g and e < c and b < h and f < d), "states overlap"
            for way in svg.iterfind("g[@data-from]"):
                seen += 1
                points = [*points_of(str(way.find("path").get("d")))]  # type: ignore[union-attr]
                source, to = str(way.get("data-from")), str(way.get("data-to"))
                assert is_at_border(points[0], boxes[source])
                assert is_at_border(points[-1], boxes[to])
                if source == to:  # as much to its right as to its left
                    xs, (a, _, c, _) = [x for x, _ in points], boxes[to]
                    assert abs(min(xs) + max(xs) - a - c) < 1
                middles[source, to] = points[len(points) // 2]
                others = [box for name, box in boxes.items() if name not in (source, to)]
                for x, y in points:
                    assert not any(a < x < c and b < y < d for a, b, c, d in others), (run, inside, way.attrib)
                    assert left <= x <= left + width
                    assert top <= y <= top + height
            for (source, to), (x, y) in middles.items():
                if source != to and (back := middles.get((to, source))):
                    assert abs(x - back[0]) + abs(y - back[1]) > 9, (run, inside, source, to)
            for state in svg.iterfind("g[@data-state]"):
                left, _, right, _ = boxes[str(state.get("data-state"))]
                assert all(len(str(text.text)) * 6 < right - left for text in state.iterfind("text"))
    assert seen > 100


def test_a_flow_leads_from_its_start_down_to_its_ends(pages):
    boxes = boxes_in(drawn(pages, "ticket-8"))
    tops = {state: top for state, (_, top, _, _) in boxes.items()}
    assert tops["sent"] == tops["rejected"] == max(tops.values())
    assert min(tops.values()) < tops["triage"] < tops["research"] < tops["drafting"] < tops["review"] < tops["sent"]


def test_a_state_of_a_flow_says_who_works_in_it(pages):
    states = drawn(pages, "ticket-8").iterfind("g[@data-state]")
    notes = {str(state.get("data-state")): state.findtext("text[@class='note']") for state in states}
    expected = {"research": "agent researcher", "sending": "function, once", "review": "a person", "sent": None}
    assert expected.items() <= notes.items()


def test_what_failed_says_what_was_tried(pages):
    page = pages.page("/run", id="degrees-paris")
    text = " ".join(page.text.split())
    assert "Why it failed" in text
    assert re.findall(r"attempt (\d) failed; status 529", text) == ["1", "2", "3"]
    assert text.count("again after") == 2  # not after the last
    assert page.all("button", id="retry")
    assert not pages.page("/run", id="degrees-rome").all("button", id="retry")


@pytest.mark.parametrize(
    ("outcome", "verdict", "is_bad"),
    [(Approved(), "approves", False), (Denied(reason="too much"), "denies", True), (None, "cancels", True)],
)
def test_a_person_is_told_with_the_verdict(outcome: Any, verdict: str, is_bad: bool) -> None:
    runs = Runs(MemoryStore())
    agent = shop(runs)
    suspended(lambda: agent.call("Where is my parcel?", run_id="r"))
    if outcome is None:
        runs.cancel("r", "too late", by="ann")
    else:
        runs.answer("r", {runs.only_question("r"): outcome}, by="ann")
    suspended(lambda: agent.runs.resume("r"))
    html = Pages(inspector_app(runs)).get("/run", id="r").text
    assert re.findall(r'<b>ann</b> <span class="verdict( no)?">([^<]*)<', html) == [(" no" if is_bad else "", verdict)]


@pytest.mark.parametrize(
    ("outcome", "is_failure"), [(Cancelled(reason="too late"), True), (Stopped(reason="too late"), False)]
)
def test_an_end_says_its_reason_once_and_is_a_failure_unless_it_completes(outcome: Any, is_failure: bool) -> None:
    runs = Runs(MemoryStore())
    agent = shop(runs)
    suspended(lambda: agent.call("Where is my parcel?", run_id="r"))
    runs.answer("r", {"": outcome}, by="ann")
    with suppress(CallFailed):
        agent.runs.resume("r")
    items = Pages(inspector_app(runs)).get("/items", id="r", after=4).text
    assert items.count(">too late<") == 1
    assert [("bad" in item["class"]) for item in Markup(items).all("article")] == [is_failure]


def test_a_picture_from_elsewhere_is_told_by_its_address_and_not_loaded() -> None:
    runs, url = Runs(MemoryStore()), "https://pictures.example/cat.png"
    agent = Agent(Script("A cat."), name="host", store=runs)
    agent.call(agent.init_dialog().put("What is it?", Image(url=url)), run_id="r")
    page = Pages(inspector_app(runs)).page("/run", id="r")
    assert f"[image] {url}" in page.text
    assert not page.all("img")


def test_a_model_that_declined_is_told_with_its_words() -> None:
    runs = Runs(MemoryStore())
    for run, reply in (("no", Reply.of("").changed(refusal="I must not.", finish="refusal")), ("yes", "Done.")):
        with suppress(CallFailed):
            Agent(Script(reply), name="host", store=runs).call("Do it.", run_id=run)
    declined, done = (Pages(inspector_app(runs)).page("/run", id=run).text for run in ("no", "yes"))
    assert "I must not." in declined
    assert ("the model declined" in declined, "the model declined" in done) == (True, False)


def test_attempts_are_counted_anew_after_a_reply() -> None:
    @function
    def look() -> str:
        """Look."""
        return "a cat"

    runs, busy = Runs(MemoryStore()), RateLimited("busy")
    script = Script(busy, function_call("look"), busy, "A cat.")
    Agent(script, name="host", functions=[look], store=runs.store).call("Look.", run_id="r")
    text = Pages(inspector_app(runs)).page("/run", id="r").text
    assert re.findall(r"attempt (\d) failed", text) == ["1", "1"]


def test_a_refused_reply_says_what_the_model_was_told_and_the_last_one_why_the_call_failed():
    runs = Runs(MemoryStore())
    replies = ["It is warm.", function_call("weather"), function_call("forecast", city="Rome"), "Warm."]
    with suppress(CallFailed):
        forecaster(runs, *replies, limits=Limits(parse_retries=1)).call("How many degrees?", run_id="r")
    page = Pages(inspector_app(runs)).page("/run", id="r")
    text = " ".join(page.text.split())
    for said in ("could not be used: the answer has no int", "city: Field required", "no function 'forecast'"):
        assert f"The model was told: {said}" in text or said in text.partition("The model was told:")[2], said
    assert (text.count("The answer was refused."), text.count("A function call was refused.")) == (2, 2)
    assert "The call failed: the answer has no int" in text
    assert "the answer has no int" in text.partition("Why it failed")[2].partition("Began")[0]


def test_a_refused_and_a_failed_check_say_why():
    runs, problems = Runs(MemoryStore()), [Retry("Say it in Celsius."), LookupError("no thermometer")]

    def check(output: str) -> str:
        raise problems.pop(0)

    agent = Agent(Script("Warm.", "Hot."), name="degrees", check=check, store=runs.store)
    with suppress(CallFailed):
        agent.call("How warm?", run_id="r")
    html = Pages(inspector_app(runs)).get("/run", id="r").text
    refused, failed = re.findall(r'<b>(check \w+)</b>.*?<pre class="data problem">([^<]*)<', html, re.DOTALL)
    assert refused == ("check refused", "Say it in Celsius.")
    assert failed[0] == "check failed"
    assert failed[1].startswith("LookupError: no thermometer")


def test_a_question_says_until_when_it_can_be_answered_in_the_list_and_in_its_form():
    @wait(bool, within_s=3600)
    def ok(data: str) -> str:
        return f"May {data} be sent?"

    runs = Runs(MemoryStore())
    rows = [ok.done(end("yes")), ok.elapsed(end("late"))]
    environment = {"clock": FakeClock(start_s=2_000_000_000.0)}
    with suppress(FlowSuspended):
        Flow("asking", str, start=ok, rows=rows, store=runs, environment=environment).call("it", run_id="r")
    pages = Pages(inspector_app(runs))
    for page in (pages.page("/"), pages.page("/run", id="r")):
        assert "May it be sent?" in page.text
        assert "until 2033-05-18 04:33:20 UTC" in page.text
    suspended(lambda: shop(runs).call("Where is my parcel? I am Ada.", run_id="always"))
    assert "until" not in pages.page("/run", id="always").text


def test_a_run_that_is_due_and_has_no_driver_says_so():
    runs = Runs(MemoryStore())
    shop(runs).runs.submit("Where is my parcel?", run_id="waits")
    forecaster(runs, "12").call("How warm is it?", run_id="ended")
    pages = Pages(inspector_app(runs))
    words = "no driver yet; the run is due"
    assert pages.page("/").text.count("No driver yet; the runs are due") == 1
    assert words in pages.page("/run", id="waits").text
    assert words not in pages.page("/run", id="ended").text


def test_agents_and_members_inside_are_unfolded(pages):
    page = pages.page("/run", id="desk-3")
    assert {link["data-inside"] for link in page.all("a") if "data-inside" in link} == {"", "run:1.0"}
    ticket = pages.page("/run", id="ticket-8")
    paths = [link["data-inside"] for link in ticket.all("a") if "depth" in link.get("class", "")]
    assert paths[0] == ""
    assert [path for path in paths if path.endswith(("draft_warmly", "draft_tersely"))]
    inside = pages.page("/run", id="desk-3", inside="run:1.0")
    assert inside.all("a", data_inside="run:1.0", aria_current="true")
    assert pages.page("/picture", id="ticket-8", inside=paths[1]).all("svg", data_picture=paths[1])
    assert pages.get("/picture", id="ticket-8", inside="nothing").status_code == 409
    flow = {g["data-state"] for g in ticket.all("g") if "data-state" in g}
    assert {"triage", "research", "customer", "drafting", "review", "sent", "rejected"} <= flow


def test_a_retry_undoes_what_is_shown_in_a_page_and_in_news():
    with closing(fill(MemoryStore())) as runs:
        step = runs.retry("degrees-paris", by="bob")
        pages = Pages(inspector_app(runs))
        page = pages.page("/run", id="degrees-paris")
        undone = [item["data-n"] for item in page.all("article") if "undone" in item["class"].split()]
        assert undone == [str(n) for n in range(step + 1, 7)]
        drawn = pages.get("/picture", id="degrees-paris", inside="")
        assert drawn.status_code == 200
        assert "Calling" in drawn.text
        assert "retried" not in drawn.text, "it is no way of the machine"
        assert "bob retries" in " ".join(page.text.split())
        line = json.loads(page.all("div", data_page="run")[0]["data-timeline"])
        assert [(move[0], move[1]) for move in line["processes"][""] if move[3]] == [(7, "Failed")]
        items = Markup(pages.get("/news", id="degrees-paris", after="6").json()["items"]).all("article")
        assert [item["data-n"] for item in items if "undone" in item["class"].split()] == undone
        assert items[-1]["data-n"] == "7"


def test_a_moment_is_read_without_code_and_folded_with_it(pages, runs):
    bare = " ".join(pages.page("/moment", id="desk-3", n="6").text.split())
    assert "desk ToolInterrupt" in bare
    assert "billing ToolInterrupt" in bare
    assert "--agents MODULE" in bare
    known = Pages(inspector_app(runs, agents=[shop(runs), letters(runs)]))
    told = " ".join(known.page("/moment", id="order-17", n="3").text.split())
    assert "waits for model:1" in told
    assert "You help the customers of a shop." in told
    assert "earlier messages" not in told
    assert "The money is on its way" not in told
    assert "The money is on its way" in known.page("/moment", id="order-17", n="7").text
    letter = known.page("/moment", id="letter-9", n="1")
    assert '"text": "Dear Bob, thank you."' in letter.text
    assert "answer:review#1" in letter.text
    assert "earlier messages" not in letter.text
    assert known.get("/moment", id="order-17", n="8").status_code == 409


def test_the_messages_of_a_branch_are_seen_where_the_model_saw_them(runs):
    pages = Pages(inspector_app(runs, agents=[forecaster(runs)]))
    branch = pages.page("/moment", id="degrees-rome", n="6")
    assert "It is rather warm." in branch.text
    assert branch.all("li", class_="assistant branch")
    assert "It is rather warm." not in pages.page("/moment", id="degrees-rome", n="7").text


def test_code_that_decides_otherwise_is_a_plain_problem(runs):
    other = Agent(Script(), name="forecaster", output=str, store=runs)
    changed = Pages(inspector_app(runs, agents=[other])).page("/moment", id="degrees-rome", n="6")
    assert changed.all("p", class_="problem")


def test_two_runs_side_by_side(pages, runs):
    page = pages.page("/compare", a="degrees-rome", b="degrees-paris")
    text = " ".join(page.text.split())
    assert "They part at entry 2. They begin differently." in text
    assert "1 equal entry" in text
    rows = [row for row in page.all("tr") if row.get("class", "") in ("same", "other", "other first")]
    assert [row["class"] for row in rows] == ["other first", "other", "other", "same", "same", "other", "other"]
    assert "outcome.kind replied model_failed" in text
    same = pages.page("/compare", a="order-17", b="order-17")
    assert "Their entries are the same." in same.text
    assert not [row for row in same.all("tr") if "first" in row.get("class", "")]
    assert pages.page("/compare", 404, a="order-17", b="nobody")


def test_an_export_is_that_of_the_command(pages, runs):
    answer = pages.get("/export", id="order-17")
    assert answer.text == "".join(f"{line}\n" for line in runs.export("order-17"))
    assert "attachment" in answer.headers["content-disposition"]
    assert all(json.loads(line) for line in answer.text.splitlines())


def test_news_are_the_pieces_of_the_page(pages):
    news = pages.get("/news", id="order-17", after="5").json()
    assert [item["data-n"] for item in Markup(news["items"]).all("article")] == ["6", "7"]
    page = pages.page("/run", id="order-17").all("div", data_page="run")[0]
    assert news["mark"] == page["data-mark"]
    assert news["timeline"] == json.loads(page["data-timeline"])
    for piece in ("head", "asks", "inside"):
        Markup(news[piece]).assert_harmless()
    assert pages.get("/news", id="nobody").json() == {"mark": "gone"}


def test_a_page_of_the_list_has_a_next_one() -> None:
    runs, count = Runs(MemoryStore()), 60
    for n in range(count):
        runs.store.create(f"r{n}", "{}", agent="host")
    pages, found = Pages(inspector_app(runs)), list[str]()
    page = pages.page("/")
    while True:
        found += listed(page)
        older = page.all("a", id="older")
        if not older:
            break
        page = pages.page(older[0]["href"])
    assert sorted(found) == sorted(f"r{n}" for n in range(count))


def test_earlier_entries_are_on_pages_of_their_own() -> None:
    runs = Runs(MemoryStore())

    @function
    def look(n: int) -> str:
        """Look."""
        return f"the result of {n}"

    script = Script(*[[function_call("look", n=n) for n in range(70)] for _ in range(3)], "Done.")
    Agent(script, functions=[look], name="host", store=runs, limits=Limits(rounds=None)).call("Go.", run_id="r")
    pages, count = Pages(inspector_app(runs)), runs.store.get("r").n
    page = pages.page("/run", id="r")
    assert [item["data-n"] for item in page.all("article")] == [str(n) for n in range(count - 199, count + 1)]
    (earlier,) = [link["href"] for link in page.all("a") if "until=" in link["href"]]
    assert [item["data-n"] for item in pages.page(earlier).all("article")] == [str(n) for n in range(1, count - 199)]
    for wrong in ("-1", "9" * 50, "\u00b2"):
        assert len(pages.page("/run", id="r", until=wrong).all("article")) == 200
    items = pages.page("/items", id="r", after="1", until="3").all("article")
    assert [item["data-n"] for item in items] == ["2", "3"]


def test_a_run_is_read_once_for_each_change_and_what_others_do_is_seen() -> None:
    reads = list[str]()

    class Noting(MemoryStore):
        def load(self, run: str, **options: Any) -> Any:
            reads.append(run)
            return super().load(run, **options)

    runs = Runs(Noting())
    suspended(lambda: shop(runs).call("Where is my parcel?", run_id="r"))
    pages = Pages(inspector_app(runs))
    pages.page("/run", id="r")
    read = len(reads)
    pages.page("/run", id="r")
    assert len(reads) == read
    runs.answer("r", {runs.only_question("r"): Approved()}, by="ann")
    assert "ann has answered" in " ".join(pages.page("/run", id="r").text.split())
    shop(runs, "It is paid.").runs.resume("r")
    assert len(pages.page("/run", id="r").all("article")) == 7


@pytest.mark.parametrize("state", ["asks", "is answered", "is driven"])
def test_all_that_people_posted_is_shown_at_once(state: str) -> None:
    runs = Runs(MemoryStore())
    suspended(lambda: shop(runs).call("Where is my parcel?", run_id="r"))
    if state == "is answered":
        runs.answer("r", {runs.only_question("r"): Approved()}, by="ann")
    elif state == "is driven":
        runs.store.claim("a worker", for_s=60.0, run="r")
    pages = Pages(inspector_app(runs, user=lambda scope: "bob"))
    for by in ("cid", "dan"):
        pages.page("/run", id="r")
        runs.cancel("r", "too late", by=by)
        assert f"{by} has written" in " ".join(pages.page("/run", id="r").text.split())
    pages.do("cancel", "r", reason="too late")
    assert "bob has written" in " ".join(pages.page("/run", id="r").text.split())


@pytest.mark.parametrize("path", ["/run", "/items", "/moment", "/picture", "/export"])
def test_a_run_that_is_not_there_is_a_plain_error(pages, path):
    assert pages.get(path, id="nobody").status_code == 404
    assert "the run 'nobody'" in Markup(pages.get(path, id="nobody").text).text
    assert pages.get(path).status_code == 409  # without a name


def test_it_can_stand_under_a_path(runs):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    pages = Pages(Starlette(routes=[Mount("/ops/runs", inspector_app(runs, name="ours"))]))
    page = pages.page("/ops/runs/")
    assert page.all("html", data_base="/ops/runs")
    for name in ("href", "src", "action"):
        for _, attributes in page.elements:
            assert attributes.get(name, "/ops/runs/").startswith(("/ops/runs/", "#")), attributes
    for link in page.all("a"):
        if not link["href"].startswith("#"):
            assert pages.get(link["href"]).status_code == 200
    script = pages.get("/ops/runs/static/inspector.js")
    assert "javascript" in script.headers["content-type"]


def test_all_that_is_linked_is_there(pages):
    """Each address in each page of each run."""
    seen, left = set[str](), ["/"]
    while left:
        address = left.pop()
        answer = pages.get(address)
        assert answer.status_code == 200, address
        seen.add(address)
        if "html" in answer.headers["content-type"]:
            page = Markup(answer.text)
            page.assert_harmless()
            found = {one["href"].partition("#")[0] for tag in ("a", "link") for one in page.all(tag)}
            left += [one for one in found if one and one not in seen and one not in left]
    assert len(seen) > 40


def test_a_store_that_is_read_only_is_shown(tmp_path: Path):
    path = tmp_path / "runs.db"
    fill(SqliteStore(path, clock=OWN_CLOCK)).close()
    with closing(Runs(path, read_only=True)) as runs:
        pages = Pages(inspector_app(runs))  # though nobody has said so to the application
        assert set(listed(pages.page("/"))) == ALL
        page = pages.page("/run", id="order-22")
        assert not page.all("form", method="post")
        assert "read only" in page.text
        answer = pages.request("POST", "/do/cancel", data={"id": "order-22"}, headers={"origin": pages.origin})
        assert answer.status_code == 403
        with pytest.raises(ReadOnly):
            runs.cancel("order-22")


def test_one_that_only_reads_refuses_every_act() -> None:
    runs = Runs(MemoryStore())
    suspended(lambda: shop(runs).call("Where is my parcel?", run_id="r"))
    pages = Pages(inspector_app(runs, read_only=True))
    page = pages.page("/run", id="r")
    assert not page.all("form", method="post")
    assert not page.all("input", name="form")
    assert "read only" in page.text
    for act in ("answer", "cancel", "retry", "fork", "delete"):
        answer = pages.request("POST", f"/do/{act}", data={"id": "r"}, headers={"origin": pages.origin})
        assert (answer.status_code, "read-only" in answer.text) == (403, True)
    assert len(runs.store.list()) == 1
    assert not runs.store.load("r").signals


def test_a_comparison_says_how_much_more_there_is() -> None:
    with closing(MemoryStore()) as store:
        for name in ("one", "two"):
            extra = {f"{name}-{number}": number for number in range(30)}
            Agent(Script("Done."), name="clerk", store=store).call("Tidy up.", run_id=name, extra=extra)
        text = Pages(inspector_app(Runs(store))).page("/compare", a="one", b="two").text
    (more,) = re.findall(r"and (\d+) more", text)
    assert 0 < int(more) < 60
    assert int(more) + text.count("one-") + text.count("two-") >= 60
