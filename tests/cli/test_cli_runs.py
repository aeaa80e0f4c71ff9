"""Do the commands of runs tell a person what there is, and change only what they say?"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CONTROLS, EVIL, at_terminal, ran, refused
from support import shop_agent as shop
from support.kept_runs import OWN_CLOCK

from fsm_agent import Agent, CallFailed, CallSuspended, Limits, function
from fsm_agent.call import Approved, Denied, Outcome
from fsm_agent.cli.options import store_option
from fsm_agent.context import Budget, keep_last, shorten
from fsm_agent.flows import Flow, FlowLimits, FlowSuspended, end, wait
from fsm_agent.store import Runs, SqliteStore
from fsm_agent.testing import FakeClock, Script, function_call

AGENTS = ("--agents", "support.shop_agent:AGENT")


@dataclass(frozen=True)
class Size:
    width: int


@wait(int, Size)
def measure(data: str) -> str:
    return f"How wide is {data}?"


MEASURING = Flow("measuring", str, start=measure, rows=[measure.done(end("measured"))])


@pytest.fixture(autouse=True)
def store(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FSM_AGENT_STORE", "runs.db")
    return here / "runs.db"


def runs(*words: str) -> str:
    return str(ran("runs", *words).stdout)


def data(*words: str) -> Any:
    return json.loads(runs(*words, "--json"))


def names(*words: str) -> list[str]:
    return [row["id"] for row in data("list", *words)["runs"]]


def not_done(*words: str, code: int = 1) -> str:
    return refused("runs", *words, code=code)


def begin(store: Path, *names: str, **options: Any) -> None:
    with closing(Runs(SqliteStore(store, OWN_CLOCK), signing_key=options.pop("signing_key", None))) as kept:
        for name in names:
            with suppress(CallSuspended):
                shop.shop(store=kept).call("Refund order A-17.", run_id=name, extra={"ticket": name}, **options)


def finish(store: Path, name: str, answer: Outcome) -> None:
    with closing(Runs(store)) as kept:
        shop.shop(store=kept).runs.resume(name, {"ask:3.0": answer})


@function(on_error="fail")
def printing(text: str) -> str:
    """Print."""
    raise RuntimeError("the printer is on fire")


def fail(store: Path, *names: str) -> None:
    with closing(Runs(store)) as kept:
        for name in names:
            agent = Agent(Script(function_call("printing", text="x")), functions=[printing], name="press", store=kept)
            with pytest.raises(CallFailed):
                agent.call(f"Print {name}.", run_id=name)


def converse(store: Path, name: str, *turns: str) -> None:
    with closing(Runs(store)) as kept:
        for turn in turns:
            Agent(Script("Hi."), name="clerk", store=kept).conversation(name).call("hi", run_id=turn or None)


def table_of(connection: sqlite3.Connection) -> str:
    """The table of the lines of journals."""
    (name,) = connection.execute("select name from sqlite_master where sql like '%line text%'").fetchone()
    return str(name)


class TestList:
    def test_a_line_for_each_run_and_what_it_waits_for(self, store: Path):
        long = "a run of a name that is as long as a whole line of a terminal, and of some words more"
        begin(store, "one", long)
        finish(store, "one", Approved())
        _, ended, waiting = runs("list").splitlines()
        assert ended.split()[:4] == ["one", "shop", "Completed", "7"]
        assert waiting.startswith(
            "a run of a name that is as long as a whole line of a terminal, and of some words more "
        )
        assert waiting.split()[-2:] == ["ask:3.0", "(approval)"], "no line is broken where no terminal is"

    def test_who_drives_a_run_and_what_it_waits_for(self, store: Path):
        with closing(Runs(store)) as kept:
            for name, after_s in (("due", 0), ("driven", 0), ("later", 3600)):
                shop.shop(store=kept).runs.submit("Refund A-17.", run_id=name, delay_s=after_s)
            kept.store.claim("host:1", for_s=600, run="driven")
        told = {line.split()[0]: line for line in runs("list").splitlines()[1:]}
        assert told["due"].rstrip().endswith("a worker: it is due")
        assert told["driven"].rstrip().endswith("driven by host:1")
        moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        assert re.search(moment, told["later"])
        for command, *code in (("show",), ("replay", *AGENTS)):
            assert "driven by host:1" in runs(command, "driven", *code).splitlines()
            assert re.search(f"^waits until {moment}$", runs(command, "later", *code), re.MULTILINE)

    def test_a_run_whose_driver_was_interrupted_at_a_question_is_due(self, store: Path):
        def interrupt(*_: object) -> Approved:
            raise KeyboardInterrupt

        with closing(Runs(store)) as kept, pytest.raises(KeyboardInterrupt):
            shop.shop(store=kept, approve=interrupt).call("Refund A-17.", run_id="one")
        [_, line] = runs("list").splitlines()
        assert line.endswith("ask:1.0 (approval), a worker: it is due")

    def test_those_that_are_wanted(self, store: Path):
        begin(store, "one", "two", "three")
        finish(store, "one", Approved())
        fail(store, "broken")
        assert names() == ["broken", "one", "three", "two"]
        for words, found in (
            (("--ended",), ["broken", "one"]),
            (("--open", "--limit", "1"), ["three"]),
            (("--agent", "nobody"), []),
            (("--asked",), ["three", "two"]),
            (("--failed",), ["broken"]),
            (("--state", "ToolInterrupt"), ["three", "two"]),
            (("--waiting-for", "approval", "--agent", "shop"), ["three", "two"]),
            (("--waiting-for", "doubt"), []),
            (("--text", "PRINT"), ["broken"]),
            (("--older-than", "1h"), []),
        ):
            assert names(*words) == found, words
        assert len(names("--older-than", "0s")) == 4
        assert "'soon'" in not_done("list", "--older-than", "soon", code=2)

    def test_pages(self, store: Path):
        begin(store, *[f"r{n}" for n in range(3)])
        page = data("list", "--limit", "2")
        assert names("--limit", "2", "--after", page["next"]) == ["r0"]
        (place,) = re.findall(r"--after (\S+)", ran("runs", "list", "--limit", "2").stderr)
        assert runs("list", "--after", place).splitlines()[1].startswith("r0")
        assert not_done("list", "--after", "nonsense")

    def test_open_questions_and_no_journal_is_read_for_them(self, store: Path):
        begin(store, "one", "two")
        with closing(sqlite3.connect(store)) as connection, connection:  # journals that nobody could read
            assert connection.execute(f"update {table_of(connection)} set line = '?'").rowcount >= 8
        _, *lines = runs("list", "--asked").splitlines()
        assert lines[0].split()[:5] == ["two", "shop", "ask:3.0", "approval", "refund(order='A-17',"]
        assert len(lines) == 2

    def test_a_run_says_which_turn_it_is(self, store: Path):
        converse(store, EVIL, "", "")
        newest, _ = names()
        shown = runs("show", newest)
        assert "turn 2 of the conversation 'a[31mred]0;title2Jbc'" in shown
        assert not CONTROLS.search(shown)

    def test_a_store_in_the_home_folder(self, store: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("HOME", str(store.parent))
        monkeypatch.setenv("USERPROFILE", str(store.parent))
        begin(store, "one")
        assert names("--store", "~/runs.db") == ["one"]

    @pytest.mark.parametrize("code", ["def kept(): return SqliteStore('own.db')", "kept = Runs(SqliteStore('own.db'))"])
    def test_a_store_that_code_makes(self, here: Path, code: str):
        (here / "keeping.py").write_text(f"from fsm_agent.store import Runs, SqliteStore\n{code}")
        begin(here / "own.db", "r1")
        assert names("--store", "keeping:kept") == ["r1"]
        assert not (here / "keeping:kept").exists()

    def test_no_store_is_made_by_looking_and_what_is_none_is_refused(self, here: Path):
        assert "'no.db'" in not_done("list", "--store", "no.db")
        assert os.listdir(here) == []
        (here / "notes.txt").write_text("Buy milk. " * 1000)
        error = not_done("list", "--store", "notes.txt")
        assert "notes.txt" in error
        assert "bug" not in error

    def test_counts(self, store: Path):
        SqliteStore(store).close()
        assert ran("runs", "list").stdout == ran("runs", "stats").stdout == ""
        begin(store, "one", "two")
        fail(store, "broken")
        lines = [line.split()[:6] for line in runs("stats").splitlines()]
        assert ["press", "Failed", "1", "1", "-", "-"] in lines
        assert ["shop", "ToolInterrupt", "2", "-", "2", "-"] in lines
        assert lines[-1][:5] == ["all", "3", "1", "2", "-"]
        assert {(row["agent"], row["count"], row["is_failed"]) for row in data("stats")} == {
            ("press", 1, True),
            ("shop", 2, False),
        }


class TestShow:
    def test_it_tells_what_a_run_is_and_draws_its_path(self, store: Path):
        begin(store, "one")
        shown = runs("show", "one")
        for told in ("'shop'", "ToolInterrupt", "Refund order A-17.", '{"ticket":"one"}', "--deny [--reason WHY]"):
            assert told in shown
        assert "ask:3.0 asks (approval): refund(order='A-17', amount=19.5)\n" in shown
        assert shown.partition("\n\n╭")[2].splitlines() == [
            " Seeded",
            "│ ╭ Calling",
            "│ │ ╭ ToolInterrupt",
            "╰─● │  1  0.0 s  begin    begun",
            "│ ╰─●  2  0.0 s  model:0  functions_asked  price(item='kettle')",
            "│ ●─╯  3  0.0 s  run:1.0  returned         → 19.5",
            "│ ╰─●  4  0.0 s  model:1  functions_asked  refund(order='A-17', amount=19.5)",
        ]
        finish(store, "one", Denied("because " * 50))
        shown = ran("runs", "show", "one", env={"TTY_COMPATIBLE": "1", "NO_COLOR": "1"}).stdout
        assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines())) <= 80

    def test_as_data(self, store: Path):
        begin(store, "one")
        shown = data("show", "one")
        assert (shown["run"]["id"], shown["header"]["extra"], shown["is_sound"]) == ("one", {"ticket": "one"}, True)
        assert [entry["to"] for entry in shown["entries"]] == ["Calling", "ToolInterrupt", "Calling", "ToolInterrupt"]

    def test_what_is_untrusted_is_plain(self, store: Path):
        with closing(Runs(store)) as kept:
            for run in ("one", "two"):
                agent = Agent(
                    Script(function_call("refund", order=EVIL, amount=1)), functions=[shop.refund], name="x", store=kept
                )
                with pytest.raises(CallSuspended):
                    agent.call(EVIL, run_id=run, extra={"note": EVIL})
            runs("answer", "one", "ask:1.0", "--deny", "--reason", EVIL, "--by", EVIL)
            agent.changed(model=Script(EVIL)).runs.resume("one")
        for command in (
            *(["show", "one"], ["show", "two"], ["list", "--asked"], ["list"]),
            *(["show", "one", "--json"], ["diff", "one", "two"], ["diagram", "one"]),
        ):
            assert not CONTROLS.search(runs(*command)), command

    def test_a_name_of_a_client_is_no_command_of_the_shell_that_a_person_copies(self, store: Path):
        begin(store, "ann/$(touch x):r1")
        assert "fsm-agent runs answer 'ann/$(touch x):r1' ask:3.0 …" in runs("show", "ann/$(touch x):r1")

    @pytest.mark.parametrize(
        ("store", "shown"),
        [
            ("my runs.db", "--store 'my runs.db'"),
            ("postgresql://ann:s3c:r@t@db:5/x?schema=s", "--store 'postgresql://ann@db:5/x?schema=s'"),
            ("postgresql://db/x", "--store postgresql://db/x"),
            ("postgresql://db/x?password=s3cret", "--store postgresql://db/x"),
            ("postgresql://db:5/x?password=s3cr@t", "--store 'postgresql://***'"),
            ("postgresql://ann:s3c?r@db/x", "--store 'postgresql://***'"),
            ("postgresql:///x?schema=s&sslpass%77ord=y&host=/run", "--store 'postgresql:///x?schema=s&host=/run'"),
        ],
    )
    def test_a_command_to_copy_holds_no_password(self, store: str, shown: str):
        assert store_option(store) == shown

    def test_a_damaged_journal_is_shown_as_far_as_it_can_be_read(self, store: Path):
        begin(store, "one")
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute(f"update {table_of(connection)} set line = replace(line, 'kettle', 'teapot')")
        ended = ran("runs", "show", "one", code=1)
        assert "price(item='teapot')" in ended.stdout
        assert "entry 2" in ended.stderr

    def test_a_signed_one(self, store: Path, monkeypatch: pytest.MonkeyPatch):
        begin(store, "one", signing_key="k" * 32)
        assert "nothing was verified" in runs("show", "one")
        monkeypatch.setenv("FSM_AGENT_SIGNING_KEY", "k" * 32)
        assert "verified by its signatures" in runs("show", "one")
        monkeypatch.setenv("FSM_AGENT_SIGNING_KEY", "x" * 32)
        assert "entry 1" in not_done("show", "one")

    def test_a_run_that_is_not_there_is_named(self, store: Path):
        begin(store, "one")
        for command in (["show", "?"], ["diagram", "?"], ["export", "?"], ["diff", "one", "?"], ["delete", "?"]):
            assert "'?'" in not_done(*command)

    def test_what_each_request_showed_the_model(self, store: Path, monkeypatch: pytest.MonkeyPatch):
        @function
        def read(page: int) -> str:
            """Read a page."""
            return f"{page} " * 900

        model = Script(*[function_call("read", page=n) for n in range(8)], "Read.")
        budget = Budget(hard=6_000, reserve=0, passes=[shorten(1_000), keep_last(2)])
        with closing(Runs(store)) as kept:
            agent = Agent(
                model, functions=[read], name="reader", store=kept, limits=Limits(rounds=None), context=budget
            )
            agent.call("Read all.", run_id="pages")
            uses = agent.runs.replay("pages").record.requests
        assert any(use.passes for use in uses)
        monkeypatch.setenv("COLUMNS", "130")
        lines = [line for line in runs("show", "pages").splitlines() if "model:" in line]
        assert [f"{use.estimated:,} tokens" in line for use, line in zip(uses, lines, strict=True)] == [True] * len(
            uses
        )
        assert [bool(re.search(r"[\d,]+ → [\d,]+ tokens", line)) for line in lines] == [
            bool(use.passes) for use in uses
        ]
        assert ["new beginning" in line for line in lines[1:]] == [not use.extends for use in uses][1:]
        contexts = [entry["context"] for entry in data("show", "pages")["entries"]]
        assert [one["estimated"] for one in contexts if one is not None] == [use.estimated for use in uses]


COUNTER = Agent(Script("x", function_call("sub"), "y"), output=int, name="counter", limits=Limits(parse_retries=1))


class TestWhy:
    def test_a_refused_reply_is_followed_by_what_the_model_was_told(self, store: Path, monkeypatch: pytest.MonkeyPatch):
        with closing(Runs(store)) as kept, suppress(CallFailed):
            replace(COUNTER, store=kept).call("How many?", run_id="one")
        code = ("replay", "one", "--agents", f"{__name__}:COUNTER")
        for columns in ("60", "200"):
            monkeypatch.setenv("COLUMNS", columns)
            for shown in (runs("show", "one"), runs(*code)):
                text = " ".join(re.sub("[│╭╰]", "", shown).split())
                assert "the model was told: Your answer could not be used: the answer has no int" in text
                assert "the model was told: There is no function 'sub'" in text
                assert "the call failed: the answer has no int" in text
        whys = [entry["why"] for entry in data("show", "one")["entries"]]
        assert [bool(why) for why in whys] == [False, True, True, True]
        assert [(one["n"], one["why"]) for one in data(*code)["refused"]] == [*enumerate(whys, 1)][1:]

    def test_a_question_says_until_when_it_can_be_answered(self, store: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("COLUMNS", "200")
        rows = [measure.done(end("measured"))]
        clock = FakeClock(start_s=2_000_000_000.0)
        flow = Flow(
            "timed", str, start=measure, rows=rows, limits=FlowLimits(deadline_s=3600.0), environment={"clock": clock}
        )
        with closing(Runs(SqliteStore(store, clock=clock.now))) as kept, suppress(FlowSuspended):
            replace(flow, store=kept).call("the door", run_id="one")
        for shown in (runs("show", "one"), runs("list"), runs("list", "--asked")):
            assert "2033-05-18 04:33:20 UTC" in shown
        assert "How wide is the door?" in runs("list", "--asked")

    def test_a_run_that_is_due_without_a_driver_says_so(self, store: Path):
        with closing(Runs(store)) as kept:
            replace(shop.AGENT, store=kept).runs.submit("Refund order A-17.", run_id="one")
        begin(store, "waits")
        for words in (("show", "one"), ("replay", "one", *AGENTS)):
            assert "no driver yet; the run is due" in runs(*words)
        assert "no driver" not in runs("show", "waits")


class TestReplayAndFork:
    def test_every_entry_is_verified_with_the_code(self, store: Path, here: Path):
        begin(store, "one", "waits")
        finish(store, "one", Approved())
        told = {"run": "one", "entries": 7, "state": "Completed", "is_definition_unchanged": True, "refused": []}
        assert data("replay", "one", "--agents", "support.shop_agent") == told
        (here / "new_shop.py").write_text(
            "from support import shop_agent as shop\nfrom dataclasses import replace\n"
            "AGENT = replace(shop.AGENT, functions=[shop.price])\n"
        )
        error = not_done("replay", "one", "--agents", "new_shop:AGENT")
        assert "entry 5 (key 'ask:3.0')" in error
        error = not_done("replay", "waits", "--agents", "new_shop:AGENT")
        assert "entry 4" in error
        assert "'Calling'" in error

    def test_a_run_is_shown_as_it_was_after_a_step(self, store: Path):
        begin(store, "one")
        assert "ToolInterrupt, waiting for ask:3.0" in runs("replay", "one", *AGENTS, "--step", "4")
        assert data("replay", "one", *AGENTS, "--step", "0") == {
            "run": "one",
            "step": 0,
            "state": "Seeded",
            "waits_for": ["begin"],
        }
        assert "step of the run 'one'" in not_done("replay", "one", *AGENTS, "--step", "8")
        assert "'Calling#1'" in not_done("replay", "one", *AGENTS, "--step", "Calling#1")

    def test_a_fork_is_made_with_the_code_or_without_and_leaves_the_run_alone(self, store: Path):
        begin(store, "one")
        finish(store, "one", Approved())
        before = runs("show", "one")
        runs("fork", "one", "two", "--step", "4", "--by", "ann")
        runs("fork", "one", "three", "--step", "4", *AGENTS)
        assert "a fork of the run one after its step 4, by ann" in runs("show", "two")
        runs("answer", "three", "ask:3.0", "--deny", "--reason", "not here", "--by", "bob")
        for name in ("two", "three"):
            with closing(Runs(store)) as kept, suppress(CallSuspended):
                shop.shop(store=kept).runs.resume(name)
        assert [entry["by"] for entry in data("show", "three")["entries"][:5]] == ["", "", "", "", "bob"]
        assert "ask:3.0 asks" in runs("show", "two")
        assert runs("show", "one") == before
        assert "--agents" in not_done("fork", "one", "x", "--data", "{}", code=2)
        assert "--agents" in not_done("fork", "one", "x", "--step", "x#1", code=2)
        assert "'one'" in not_done("fork", "one", "one")
        assert sorted(names()) == ["one", "three", "two"]

    def test_the_path_is_drawn(self, store: Path, here: Path):
        begin(store, "one")
        assert "2, 4 functions_asked" in runs("diagram", "one")
        runs("diagram", "one", "--output", "one.dot")
        assert "ToolInterrupt" in (here / "one.dot").read_text()

    def test_the_first_entry_that_differs_and_what(self, store: Path):
        begin(store, "one", "two", "three")
        finish(store, "one", Approved(at_s=1.0))
        finish(store, "two", Denied("no"))
        finish(store, "three", Approved(at_s=2.0))
        shown = [line.split() for line in runs("diff", "one", "two").splitlines()]
        assert ["extra.ticket", "one", "two"] in shown
        assert ["outcome.reason", "-", "no"] in shown
        told = data("diff", "one", "two")
        assert (told["n"], told["entry"][0]) == (5, {"where": "outcome.kind", "values": ["approved", "denied"]})
        told = data("diff", "one", "three")
        assert (told["n"], told["entry"]) == (None, [])


class TestExport:
    def test_the_journal_as_it_is(self, store: Path):
        begin(store, "one")
        header, *lines = runs("export", "one").splitlines()
        assert json.loads(header)["agent"] == "shop"
        assert [json.loads(line)["n"] for line in lines] == [1, 2, 3, 4]

    def test_a_redacted_one_hides_and_has_no_digests(self, store: Path, here: Path):
        begin(store, "one")
        finish(store, "one", Denied("the customer is Ada"))
        (here / "hiding.py").write_text(
            "from fsm_agent import Denied\nfrom fsm_agent.messages import Message\n"
            "def hide(outcome):\n    if isinstance(outcome, Denied):\n        return Denied('…')\n"
            "    if not hasattr(outcome, 'reply'):\n        return outcome\n"
            "    return outcome.changed(reply=outcome.reply.changed(message=Message.of('assistant', '…')))\n"
        )
        text = runs("export", "one", "--redact", "hiding:hide")
        first, *lines = [json.loads(line) for line in text.splitlines()]
        assert "redacted" in first
        assert len(lines) == 6
        assert not any("digest" in line for line in [first, *lines])
        for secret in ("Ada", "ticket"):
            assert secret not in text


class TestAnswer:
    def test_a_post_without_code_and_lease(self, store: Path):
        begin(store, "one")
        runs("answer", "one", "ask:3.0", "--deny", "--reason", "no", "--by", "ann")
        assert "'ann'" in not_done("answer", "one", "ask:3.0", "--approve")
        assert data("list")["runs"][0]["n"] == 4
        with closing(Runs(store)) as kept:
            assert shop.shop(store=kept).runs.resume("one").output.endswith("no")

    @pytest.mark.parametrize(
        ("words", "code", "at_fault"),
        [
            (("ask:3.0",), 2, "--approve"),
            (("ask:3.0", "--approve", "--deny"), 2, "--approve"),
            (("--approve",), 2, "key"),
            (("ask:3.0", "--approve", "--reason", "why not"), 2, "reason"),
            (("ask:3.0", "--result", "19.50"), 1, "Returned"),
            (("ask:9.9", "--approve"), 1, "'ask:9.9'"),
            (("ask:3.0", "--arguments", '{"order"'), 1, "JSON"),
            (("ask:3.0", "--arguments", '{"amount": 1}'), 1, "order"),
        ],
    )
    def test_what_is_wrong_is_refused_where_it_is_given_and_the_question_stays(
        self, store: Path, words: tuple[str, ...], code: int, at_fault: str
    ):
        begin(store, "one")
        assert at_fault in not_done("answer", "one", *words, code=code)
        assert names("--asked") == ["one"]

    @pytest.mark.parametrize(
        ("given", "at_fault"),
        [('"three"', "int"), ('["Size", {"width": "w"}]', "width"), ("x", "int | Size")],
    )
    def test_an_answer_of_another_type_is_refused_where_it_is_given(self, store: Path, given: str, at_fault: str):
        with closing(Runs(store)) as kept, pytest.raises(FlowSuspended):
            replace(MEASURING, store=kept).call("a", run_id="one")
        assert at_fault in not_done("answer", "one", "answer:measure#1", "--result", given)
        runs("answer", "one", "answer:measure#1", "--result", '["Size", {"width": 3}]')

    @pytest.mark.skipif(sys.platform == "win32", reason="terminals are POSIX")
    @pytest.mark.parametrize(
        ("answers", "kind", "facts"),
        [
            (["app\n"], "approved", []),
            (["no\n", "deny\n", "too much\n"], "denied", ["too much"]),
            (["arguments\n", "\n", "much\n", "1.5\n"], "modified", ["A-17", "1.5"]),
        ],
    )
    def test_at_a_terminal_the_form_of_a_question_is_filled_in(
        self, store: Path, answers: list[str], kind: str, facts: list[str], monkeypatch: pytest.MonkeyPatch
    ):
        begin(store, "one")
        told = at_terminal(monkeypatch, "runs", "answer", "one", answers=answers)
        assert "ask:3.0 asks (approval): refund(" in told
        with closing(Runs(store)) as kept:
            (signal,) = kept.store.load("one").signals
        assert json.loads(signal.body)["outcome"]["kind"] == kind
        assert [fact for fact in facts if fact not in signal.body] == []

    @pytest.mark.skipif(sys.platform == "win32", reason="terminals are POSIX")
    def test_the_form_of_a_flow_asks_for_a_type_and_its_fields_again_until_they_fit(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ):
        with closing(Runs(store)) as kept, pytest.raises(FlowSuspended):
            replace(MEASURING, store=kept).call("a", run_id="one")
        told = at_terminal(monkeypatch, "runs", "answer", "one", answers=["Size\n", "\n", "wide\n", "3\n"])
        assert told.count("width") >= 3
        with closing(Runs(store)) as kept:
            assert replace(MEASURING, store=kept).runs.resume("one").state == "measured"

    @pytest.mark.skipif(sys.platform == "win32", reason="terminals are POSIX")
    def test_of_several_questions_a_person_chooses_one(self, store: Path, monkeypatch: pytest.MonkeyPatch):
        asks = [function_call("remind", text=text) for text in ("a", "b")]

        @function(needs_approval=True)
        def remind(text: str) -> str:
            """Remind."""
            return text

        with closing(Runs(store)) as kept, pytest.raises(CallSuspended):
            Agent(Script(asks), functions=[remind], name="two", store=kept).call("?", run_id="two")
        for words in ((), ("ask:1.2",)):
            told = not_done("answer", "two", *words)
            assert "'ask:1.0', 'ask:1.1'" in told
        assert "--deny" in not_done("answer", "two", "ask:1.1", code=2)
        told = at_terminal(monkeypatch, "runs", "answer", "two", answers=["ask:1.1\n", "approve\n"])
        assert "remind(text='b')" in told
        assert [question["key"] for row in data("list", "--asked")["runs"] for question in row["waits"]] == ["ask:1.0"]

    def test_runs_are_cancelled_by_a_post(self, store: Path):
        begin(store, "one", "two", "three")
        runs("cancel", "one", "two", "--reason", "a duplicate", "--by", "ann")
        runs("answer", "three", "--cancel", "--reason", "a duplicate")
        ran("worker", "--agents", "support.shop_agent", "--once")
        assert sorted(names("--failed")) == ["one", "three", "two"]
        assert re.search(r"cancelled +by ann: a duplicate", runs("show", "one"))
        assert "one" in not_done("cancel", "one")


class TestOperating:
    def test_a_failed_run_is_due_again_and_what_is_refused_keeps_nobody_else_from_it(self, store: Path):
        begin(store, "one")
        fail(store, "a", "b")
        ended = ran("runs", "retry", "a", "one", "nobody", "b", "--by", "ann", code=1)
        assert [line.split()[0] for line in ended.stdout.splitlines()] == ["a", "b"]
        assert "2 of 4" in ended.stderr
        assert names("--failed") == []
        assert re.search(r"retried +by ann: continues from step 2", runs("show", "a"))

        @function(name="printing")
        def mended(text: str) -> str:
            """Print."""
            return "printed"

        with closing(Runs(store)) as kept:
            agent = Agent(Script("It is printed."), functions=[mended], name="press", store=kept)
            assert agent.runs.resume("a").output == "It is printed."

    @pytest.mark.parametrize("others", [[], ["a"], ["a", "b"]])
    def test_one_that_is_refused_is_named_however_many_there_are(self, store: Path, others: list[str]):
        fail(store, "a", "b")
        ended = ran("runs", "retry", "nobody", *others, code=1)
        assert "'nobody'" in ended.stderr
        assert ended.stderr.count("\n") == (2 if others else 1), "a summary of one is none"
        assert [line.split()[0] for line in ended.stdout.splitlines()] == others

    def test_what_is_refused_suggests_a_command(self, store: Path):
        begin(store, "waits")
        begin(store, "done")
        finish(store, "done", Approved())
        fail(store, "failed")
        for command, remedy in [
            (("show", "nobody"), "runs list"),
            (("cancel", "done"), "runs resume"),
            (("retry", "waits"), "runs requeue"),
            (("requeue", "failed"), "runs retry"),
            (("fork", "waits", "done"), "runs resume"),
        ]:
            assert f"'fsm-agent {remedy}'" in not_done(*command), command

    def test_a_run_is_made_due(self, store: Path):
        begin(store, "one")
        assert not runs("list").splitlines()[1].endswith("it is due")
        assert runs("requeue", "one") != runs("requeue", "one"), "the second time it was due already"
        assert runs("list").splitlines()[1].endswith("it is due")
        fail(store, "broken")
        assert "retry" in not_done("requeue", "broken")

    def test_what_has_not_ended_or_is_needed_is_deleted_only_when_a_person_says_so(self, store: Path):
        begin(store, "one", "two")
        converse(store, "anna", "first", "second")
        assert "one" in not_done("delete", "one", "two")
        assert "'anna'" in not_done("delete", "one", "first")
        assert sorted(names()) == ["first", "one", "second", "two"]
        assert runs("delete", "one", "--yes") == "deleted one\n"
        assert "'anna'" in ran("runs", "delete", "first", "--force", "--yes").stderr
        assert sorted(names()) == ["second", "two"]

    def test_those_that_have_ended_are_pruned_by_count_and_age(self, store: Path):
        begin(store, "one", "two", "three", "waiting")
        for name in ("one", "two", "three"):
            finish(store, name, Approved())
        assert runs("prune", "--keep", "1", "--dry-run") == "one\ntwo\n"
        assert runs("prune", "--keep", "1") == "one\ntwo\n"
        assert runs("prune", "--older-than", "30d") == ""
        assert runs("prune", "--older-than", "0s") == "three\n"
        assert names() == ["waiting"]
        assert not_done("prune", code=2)
        assert "'30'" in not_done("prune", "--older-than", "30", code=2)

    def test_a_copy_goes_on_and_overwrites_nothing(self, store: Path, here: Path):
        begin(store, "one")
        runs("backup", "copy.db")
        assert (here / "copy.db").stat().st_mode == store.stat().st_mode
        (here / "mine").write_text("mine")
        assert "mine" in not_done("backup", "mine")
        assert (here / "mine").read_text() == "mine"
        assert "x.db" in not_done("backup", "no/such/folder/x.db")
        assert "nobody.db" in not_done("backup", "x.db", "--store", "nobody.db")
        assert not (here / "x.db").exists()
        assert "pg_dump" in not_done("backup", "x.db", "--store", "postgresql://host/db")
        store.unlink()
        with closing(Runs(here / "copy.db")) as kept:
            assert shop.shop(store=kept).runs.resume("one", {"ask:3.0": Approved()}).output.startswith("Done")

    def test_a_damaged_store_is_not_copied(self, store: Path, here: Path):
        begin(store, *[f"r{n}" for n in range(9)])
        content = bytearray(store.read_bytes())
        content[3000:9000] = b"\xff" * 6000
        store.write_bytes(content)
        ran("runs", "backup", "copy.db", code=1)
        assert [file.name for file in here.glob("copy*")] == []


class TestWorker:
    def test_a_store_that_is_not_there_is_not_made_by_mistake(self, here: Path):
        words = ("worker", "--agents", "support.shop_agent", "--once", "--store")
        assert "'typo.db'" in refused(*words, "typo.db")
        assert not (here / "typo.db").exists()
        ran(*words, "new.db", "--create")
        assert (here / "new.db").exists()

    def test_what_the_users_code_raises_is_told_once_and_from_there(self, store: Path, here: Path):
        (here / "deps.py").write_text("def made(agent, extra, user):\n    return {}['deps']\n")
        begin(store, "one")
        runs("answer", "one", "ask:3.0", "--approve")
        told = ran("worker", *AGENTS, "--deps", "deps:made", "--once").stderr
        assert told.count("run one of agent 'shop' raised") == 1
        assert 'deps.py", line 2, in made' in told
        assert "worker.py" not in told

    def test_deps_are_a_value_or_a_function_of_who_asks(self, here: Path):
        (here / "desk.py").write_text(
            "from fsm_agent import Agent, Context, function\nfrom fsm_agent.testing import Script, function_call\n"
            "class Shop:\n    def __init__(self, name): self.name = name\n"
            "@function\ndef look(context: Context[Shop]) -> str:\n    'Look.'\n    return context.deps.name\n"
            "agent = Agent(Script(*[function_call('look'), lambda request: request.messages[-1].text] * 9),\n"
            "    functions=[look], name='desk', system=lambda shop: f'You work for {shop.name}.')\n"
            "def of_user(agent, extra, user):\n    return Shop(f'{user} {agent}')\n"
            "corner = Shop('corner')\n"
        )
        submit = ("submit", "--agents", "desk", "--create", "--store", "runs.db", "?", "--run-id")
        worker = ("worker", "--agents", "desk", "--store", "runs.db", "--once")
        for deps, told in (("corner", "corner"), ("of_user", "ada desk")):
            ran(*submit, deps, "--by", "ada")
            ran(*worker, "--deps", f"desk:{deps}")
            assert told in runs("show", deps)

    def test_what_is_submitted_is_done(self, here: Path):
        (here / "desk.py").write_text(
            "from dataclasses import dataclass\nfrom fsm_agent import Agent\nfrom fsm_agent.testing import Script\n"
            "from fsm_agent.flows import Flow, end, execute\nclerk = Agent(Script(*['Sorted.'] * 9), name='clerk')\n"
            "@dataclass(frozen=True)\nclass Letter:\n    about: str\n"
            "@execute\ndef send(letter: Letter) -> str:\n    return letter.about\n"
            "letters = Flow('letters', Letter, start=send, rows=[send.done(end('over'))])\n"
        )
        assert "--create" in refused("submit", "--agents", "desk", "x", "--store", "new.db")
        assert "--create" in refused("worker", "--agents", "desk", "--store", "new.db")
        submit = ("submit", "--agents", "desk", "--create")
        for _ in range(2):
            assert ran(*submit, "Sort.", "--agent", "clerk", "--run-id", "r1", "--extra", "ticket=17").stdout == "r1\n"
        ran(*submit, '{"about": "rain"}', "--agent", "letters", "--run-id", "r2", "--after", "r1")
        piped = ran(*submit, "--agent", "clerk", input="a list").stdout.strip()
        ran("worker", "--agents", "desk", "--once")
        assert {row["id"]: row["is_ended"] for row in data("list")["runs"]} == {"r1": True, "r2": True, piped: True}
        assert data("show", "r1")["header"]["extra"] == {"ticket": "17"}
        assert "a list" in runs("show", piped)
        ran(*submit, "Sort.", "--agent", "clerk", "--run-id", "r3", "--delay", "2h")
        later = data("show", "r3")["run"]
        assert round((later["due_s"] - later["created_s"]) / 60) == 120
        for words, at_fault in (
            (["Sort it."], "clerk, letters"),
            (["Sort it.", "--agent", "clark"], "'clerk'"),
            (["rain", "--agent", "letters"], "about"),
            (["x", "--agent", "clerk", "--delay", "soon"], "'soon'"),
            (["x", "--agent", "clerk", "--after", "r9"], "'r9'"),
        ):
            code = 1 if at_fault in ("'clerk'", "'r9'") else 2
            assert at_fault in refused(*submit, *words, code=code)

    @pytest.mark.parametrize(
        ("words", "code", "at_fault"),
        [
            (["--threads", "2", "--tasks", "2"], 2, "--tasks"),
            (["--deps", "support.shop_agent:nothing"], 1, "nothing"),
            (["--deps", "support.shop_agent"], 2, "--deps"),
            (["--max-age", "soon"], 2, "'soon'"),
            (["--engine", "dbos"], 2, "--once"),
        ],
    )
    def test_a_worker_that_cannot_do_its_work_says_why_and_takes_none(
        self, store: Path, words: list[str], code: int, at_fault: str
    ):
        begin(store, "one")
        assert at_fault in refused("worker", "--agents", "support.shop_agent", "--once", *words, code=code)
