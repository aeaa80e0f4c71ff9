"""Is markup from a model or a user shown as text everywhere, and a damaged store as a plain error?"""

from __future__ import annotations

import json
import re
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.inspected_runs import Letter, letters, suspended
from support.inspector_pages import Markup, Pages

from fsm_agent import Agent, CallSuspended, Function
from fsm_agent.call import Returned
from fsm_agent.flows import Flow, FlowSuspended, end, wait
from fsm_agent.messages import FunctionCall, Image, Message, Question, Reasoning, Reply
from fsm_agent.store import MemoryStore, Runs, SqliteStore, Suspension
from fsm_agent.testing import Script, function_call
from fsm_agent.web import inspector_app

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}{% raw %}javascript:alert(3)&amp;<!--"
NAME = f"n{EVIL}/../?a=b&c#d"
HIDDEN = "a\u202eb\x1b[31mc\x00"


def evil_question(store: Any, run: str) -> None:
    """Have a run ask a question whose every text is markup."""
    lease = store.claim("x", for_s=60.0, run=run)
    schema = {
        "properties": {
            EVIL: {"type": "string", "description": EVIL, "title": EVIL},
            "e": {"enum": [EVIL], "type": EVIL},
        }
    }
    about = json.dumps({"function": EVIL, "arguments": json.dumps({EVIL: EVIL, "e": EVIL}), "question": EVIL})
    asked = [
        Question(EVIL, "approval", about, ("approved", "denied"), json.dumps(schema)),
        Question(f"{EVIL}2", "answer", json.dumps({"question": EVIL, "types": [EVIL, "B"]}), ("returned",),
                 json.dumps({"anyOf": [schema | {"type": "object"}, {"type": "string"}]})),
        Question(f"{EVIL}3", EVIL, EVIL, (EVIL,), EVIL),
    ]  # fmt: skip
    store.append(lease, lease.n, (), Suspension(state=EVIL, questions=tuple(asked)))


@pytest.fixture
def runs() -> Runs:
    runs = Runs(MemoryStore())
    remove = Function(
        name="remove", description=EVIL, parameters={"type": "object", "properties": {"path": {"type": "string"}}}
    )
    message = Message(
        role="assistant",
        parts=(
            *Message.of("assistant", EVIL, FunctionCall(name=EVIL[:60], arguments_json=EVIL)).parts,
            FunctionCall(name="remove", arguments_json=json.dumps({"path": EVIL})),
            Reasoning(text=EVIL),
            Image(url="https://evil.example/pixel.png"),
            Image(data=b"<svg onload=alert(1)>", media_type="image/svg+xml"),
        ),
    )
    agent = Agent(
        Script(Reply(message=message, model=EVIL, refusal=None)),
        system=EVIL.replace("{", "(").replace("%", ""),
        functions=[remove],
        name=f"agent {EVIL}",
        store=runs,
    )
    with suppress(CallSuspended):
        agent.call(agent.init_dialog().put(EVIL), run_id=NAME, extra={EVIL: EVIL})
    runs.answer(NAME, {runs.only_question(NAME): Returned(text=EVIL)}, by=EVIL)

    @wait(str)
    def ask(data: str) -> str:
        return EVIL

    flow = Flow(f"flow {EVIL}", str, start=ask, rows=[ask.done(end("over"))], store=runs)
    with suppress(FlowSuspended):
        flow.call(EVIL, run_id=f"{NAME} flow")
    evil_question(runs.store, f"{NAME} flow")
    runs.fork(NAME, 2, f"{NAME} fork", by=EVIL)
    return runs


NAMES = [NAME, f"{NAME} flow", f"{NAME} fork"]


class TestMarkup:
    @pytest.mark.parametrize("name", NAMES)
    def test_in_a_run(self, runs, name):
        pages = Pages(inspector_app(runs, name=EVIL))
        page = pages.page("/run", id=name)
        assert "<script>alert(1)</script>" in page.text  # as text
        assert page.all("div", data_id=name)
        assert not page.all("img", src="x")
        news = pages.get("/news", id=name).json()
        for piece in ("head", "asks", "inside", "items"):
            Markup(news[piece]).assert_harmless()
        for n in range(runs.store.get(name).n + 1):
            pages.page("/moment", id=name, n=n)
        pages.page("/items", id=name)
        pages.page("/picture", id=name)

    def test_in_the_list_and_its_filters(self, runs):
        pages = Pages(inspector_app(runs, name=EVIL))
        page = pages.page("/", words="alert", agent=EVIL, state=EVIL, after="")
        assert page.all("input", value="alert")
        page = pages.page("/")
        assert {row["data-id"] for row in page.all("tr") if "data-id" in row} == {*NAMES}
        links = [link["href"] for link in page.all("a") if "/run?" in link["href"]]
        assert len(links) == len(NAMES)
        assert all(pages.get(link).status_code == 200 for link in links)
        for name in ("words", "agent", "state", "only", "age"):
            assert pages.get("/", **{name: EVIL}).status_code == 200

    def test_in_the_name_of_a_conversation(self):
        agent = Agent(Script("Hi.", "Hi."), name="host", store=MemoryStore())
        talk = agent.conversation(NAME)
        talk.call("Hello")
        talk.call("Hello")
        pages = Pages(inspector_app(agent.runs.all))
        (link,) = [one["href"] for one in pages.page("/").all("a") if one["href"].startswith("/?words=")]
        assert len([row for row in pages.page(link).all("tr") if "data-id" in row]) == 2

    def test_in_a_comparison_and_in_errors(self, runs):
        pages = Pages(inspector_app(runs))
        pages.page("/compare", a=NAMES[0], b=NAMES[1])
        page = pages.page("/run", 404, id=f"{EVIL} nobody")
        assert "<script>" in page.text
        pages.page("/", 409, after=EVIL)
        for act, fields in (
            ("answer", {"key": EVIL, "kind": EVIL}),
            ("fork", {"at": EVIL, "name": EVIL}),
            ("delete", {}),
        ):
            answer = pages.do(act, NAME, **fields)
            assert answer.status_code in (409, 422)
            Markup(answer.text).assert_harmless()

    def test_in_what_was_typed_wrongly(self, runs):
        pages = Pages(inspector_app(runs))
        answer = pages.do("answer", NAMES[1], key=EVIL, kind="approved", **{"v.0": EVIL, "v.1": EVIL, "reason": EVIL})
        assert answer.status_code == 422
        page = Markup(answer.text)
        page.assert_harmless()
        assert page.all("input", value=EVIL) or EVIL in page.text

    def test_control_characters_and_marks_that_reorder_text_are_left_out(self):
        runs = Runs(MemoryStore())
        Agent(Script(HIDDEN), name=HIDDEN, store=runs).call(HIDDEN, run_id=HIDDEN)
        pages = Pages(inspector_app(runs))
        for address in ("/", "/run", "/moment", "/compare"):
            page = pages.page(address, id=HIDDEN, a=HIDDEN, b=HIDDEN, n="1")
            assert not {"\u202e", "\x1b", "\x00"} & {*page.text}, address

    def test_a_picture_of_svg_is_not_shown_and_none_is_fetched(self, runs):
        page = Pages(inspector_app(runs)).page("/run", id=NAME)
        assert not page.all("img")
        assert "https://evil.example/pixel.png" in page.text


class TestWhatIsLarge:
    def test_a_long_text_is_cut(self):
        runs = Runs(MemoryStore())
        Agent(Script("x" * 3_000_000), name="host", store=runs).call("y" * 3_000_000, run_id="r")
        answer = Pages(inspector_app(runs)).get("/run", id="r")
        assert len(answer.content) < 160_000
        assert "more characters are in the export" in answer.text


class TestDamage:
    @pytest.fixture
    def damaged(self, tmp_path: Path) -> Any:
        with closing(SqliteStore(tmp_path / "runs.db")) as store:
            agent = Agent(Script("Hi."), name="host", store=store)
            for name in ("r", "s"):
                agent = Agent(Script(function_call("none"), "Hi."), name="host", store=store)
                agent.call("Hello", run_id=name)
            yield store

    @pytest.mark.parametrize(
        "line", ["{", "", "null", "[]", '{"n":2}', "x" * 1_000, '{"a":' * 5_000, '{"key":7,"outcome":{}}', "<script>"]
    )
    def test_a_damaged_entry(self, damaged, line):
        with damaged._connections.one() as connection:
            connection.execute("UPDATE journal SET line = ? WHERE place = (SELECT max(place) FROM journal)", (line,))
        pages = Pages(inspector_app(Runs(damaged)))
        page = pages.page("/run", id="s")
        assert "The journal is damaged" in page.text
        assert page.all("article")
        pages.page("/compare", a="r", b="s")
        assert pages.get("/news", id="s").status_code == 200
        pages.page("/run", id="r")

    @pytest.mark.parametrize(
        ("given", "damage"),
        [
            (r'"at_s":[\d.]+', '"at_s":1e999'),
            (r'"at_s":[\d.]+', f'"at_s":{"9" * 400}'),
            (r'"at_s":[\d.]+', '"at_s":NaN'),
            (r'"n":1,', '"n":-1,'),
            (r'"n":3,', '"n":1,'),
            (r'\["","begun"\]', '["x","begun"]'),
        ],
    )
    def test_a_value_that_no_run_has(self, damaged, given, damage):
        """Whether its page can be read by a script is seen from JSON without constants such as Infinity."""
        with damaged._connections.one() as connection:
            lines = connection.execute("SELECT place, line FROM journal ORDER BY place").fetchall()
            for place, line in lines[len(lines) // 2 :]:  # those of the second run
                changed = re.sub(given, damage, line, count=1)
                connection.execute("UPDATE journal SET line = ? WHERE place = ?", (changed, place))

        def strict(text: str) -> Any:
            return json.loads(text, parse_constant=pytest.fail)

        pages = Pages(inspector_app(Runs(damaged)))
        page = pages.page("/run", id="s")
        assert "The journal is damaged" in page.text
        strict(page.all("div", data_page="run")[0]["data-timeline"])
        strict(pages.get("/news", id="s").text)
        pages.page("/compare", a="r", b="s")
        for n in range(len(page.all("article")) + 1):
            pages.page("/moment", id="s", n=n)

    @pytest.mark.parametrize("depth", [100, 490, 990, 5_000])
    def test_an_entry_that_is_nested_deeply(self, damaged, depth):
        """It is shown, or told to be wrong: Python's stack ends somewhere."""
        (name, line), *_ = [(name, line) for name in "rs" for line in [damaged.load(name).lines[-1]]]
        assert name == "r"
        outcome = '{"kind":"returned","text":' + '{"a":' * depth + "1" + "}" * depth + "}"
        before, _, after = line.partition('"outcome":')
        nested = f'{before}"outcome":{outcome},"steps"{after.partition(chr(34) + "steps" + chr(34))[2]}'
        other = nested.replace('"a":1', '"a":2')
        with damaged._connections.one() as connection:
            places = [place for (place,) in connection.execute("SELECT place FROM journal ORDER BY place DESC LIMIT 9")]
            lines = dict(connection.execute("SELECT place, line FROM journal").fetchall())
            last = {name: max(p for p in places if lines[p] == damaged.load(name).lines[-1]) for name in "rs"}
            connection.execute("UPDATE journal SET line = ? WHERE place = ?", (nested, last["r"]))
            connection.execute("UPDATE journal SET line = ? WHERE place = ?", (other, last["s"]))
        pages = Pages(inspector_app(Runs(damaged)))
        for path, query in (("/run", {"id": "r"}), ("/compare", {"a": "r", "b": "s"}), ("/news", {"id": "r"})):
            assert pages.get(path, **query).status_code in (200, 409)

    @pytest.mark.parametrize("header", ["{", "null", "[" * 10_000, "<script>alert(1)</script>"])
    def test_a_damaged_header(self, header):
        store = MemoryStore()
        store.create("s", header, agent="host", title="what it is about")
        pages = Pages(inspector_app(Runs(store)))
        assert "what it is about" in pages.page("/").text
        assert "That did not work" in pages.page("/run", 409, id="s").text
        assert pages.get("/news", id="s").status_code == 409

    def test_half_a_surrogate_pair_in_the_table_of_a_flow(self):
        store = MemoryStore()
        suspended(lambda: letters(store).call(Letter("Hello"), run_id="r"))
        header = store.load("r").header.replace('"start":"review"', r'"start":"\ud800"')
        assert "ud800" in header
        store.create("s", header, agent="letters")
        pages = Pages(inspector_app(Runs(store)))
        for path in ("/run", "/news", "/picture"):
            assert pages.get(path, id="s").status_code == 200

    def test_a_store_that_is_closed(self, damaged):
        pages = Pages(inspector_app(Runs(damaged)))
        damaged.close()
        assert pages.page("/", 409)

    def test_a_signed_journal_without_its_key_says_so(self, tmp_path: Path):
        path = tmp_path / "signed.db"
        with closing(Runs(path, signing_key="k" * 32)) as runs:
            Agent(Script("Hi."), name="host", store=runs).call("Hello", run_id="r")
        with closing(Runs(path, read_only=True)) as runs:
            assert "nothing was verified" in Pages(inspector_app(runs)).page("/run", id="r").text
        with closing(Runs(path, signing_key="k" * 32, read_only=True)) as runs:
            assert "verified by its signatures" in Pages(inspector_app(runs)).page("/run", id="r").text
        with closing(Runs(path, signing_key="x" * 32, read_only=True)) as runs:
            assert "The journal is damaged" in Pages(inspector_app(runs)).page("/run", id="r").text
