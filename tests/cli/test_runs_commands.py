"""Do the commands of runs tell a person what there is, and change only what they say?"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support import shop_agent as shop
from support.inspected_runs import suspended
from support.terminal import LIMIT_S, Terminal
from typer.testing import CliRunner

from fsm_agent import Agent, CallSuspended, Limits, function
from fsm_agent._internal.values import from_json, to_json
from fsm_agent.cli import app
from fsm_agent.cli.runs.tables import moment, waits_for
from fsm_agent.context import Budget, keep_last, shorten
from fsm_agent.flows import Flow, end, wait
from fsm_agent.lifecycle import Approved, Denied, Outcome
from fsm_agent.machine.journal import header_of
from fsm_agent.messages import Question
from fsm_agent.store import Run, Runs
from fsm_agent.testing import Script, call


@dataclass(frozen=True)
class Size:
    width: int


@wait(int, Size)
def measure(data: str) -> str:
    return f"How wide is {data}?"


MEASURING = Flow("measuring", str, start=measure, rows=[measure.done(end("measured"))])
EVIL = "a\x1b[31mred\x1b]0;title\x07b\u202ec"


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FSM_AGENT_STORE", "runs.db")
    monkeypatch.delenv("FSM_AGENT_SIGNING_KEY", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "runs.db"


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), prog_name="fsm-agent", catch_exceptions=False)


def runs(*arguments: str) -> str:
    ended = run("runs", *arguments)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


def refused(*arguments: str, code: int = 1) -> str:
    ended = run("runs", *arguments)
    assert ended.exit_code == code
    return re.sub(r"[│╭╮╰╯─\s]+", " ", ended.stderr)


def begin(store: Path, *names: str, **options) -> None:
    kept = Runs(store, signing_key=options.pop("signing_key", None))
    for name in names:
        with suppress(CallSuspended):
            shop.shop(store=kept).call("Refund order A-17.", run_id=name, extra={"ticket": name}, **options)
    kept.close()


def finish(store: Path, name: str, answer: Outcome) -> None:
    agent = shop.shop(store=store)
    agent.resume(name, {"ask:3.0": answer})
    agent.runs.close()


class TestList:
    def test_piped_no_line_is_broken(self, store):
        name = "a run of a name that is as long as a whole line of a terminal, and of some words more than that"
        begin(store, name)
        assert any(
            line.startswith(name) and line.rstrip().endswith("ask:3.0 (approval)") for line in runs("list").splitlines()
        )

    @pytest.mark.parametrize("columns", [80, 40])
    @pytest.mark.parametrize("words", [("list",), ("list", "--asked"), ("diff", "an_order_of_" + "9" * 30, "B" * 50)])
    def test_at_a_terminal_no_name_is_broken(self, store, monkeypatch, columns, words):
        names = ("an_order_of_" + "9" * 30, "B" * 50)
        begin(store, *names)
        finish(store, names[0], Approved())
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        shown = re.sub(r"\x1b\[[0-9;]*m", "", runs(*words)).split()
        missing = [name for name in names if not any(name in word for word in shown)]
        assert missing == ([names[0]] if "--asked" in words else [])

    def test_a_line_for_each_run_and_what_it_waits_for(self, store):
        begin(store, "one", "two")
        finish(store, "one", Approved())
        lines = [line.split() for line in runs("list").splitlines()]
        assert lines[0] == ["run", "agent", "state", "entries", "changed", "waits", "for"]
        assert lines[1][:4] == ["one", "shop", "Completed", "7"]
        assert lines[2][:4] == ["two", "shop", "ToolInterrupt", "4"]
        assert lines[2][-2:] == ["ask:3.0", "(approval)"]

    def test_a_run_that_asks_says_so_when_its_driver_was_interrupted(self, store):
        """A worker would look at it, and a person can answer it at once."""

        def interrupt(*_: object) -> Approved:
            raise KeyboardInterrupt

        with closing(Runs(store)) as kept, pytest.raises(KeyboardInterrupt):
            shop.shop(store=kept, approve=interrupt).call("Refund A-17.", run_id="one")
        [_, line] = runs("list").splitlines()
        assert line.endswith("ask:1.0 (approval), a worker: it is due")

    def test_those_that_are_wanted(self, store):
        begin(store, "one", "two", "three")
        finish(store, "one", Approved())

        def names(*arguments: str) -> list[str]:
            return [row["id"] for row in json.loads(runs("list", "--json", *arguments))["runs"]]

        assert names() == ["one", "three", "two"]
        assert names("--ended") == ["one"]
        assert names("--open") == ["three", "two"]
        assert names("--open", "--limit", "1") == ["three"]
        assert names("--agent", "nobody") == []
        assert names("--asked") == ["three", "two"]

    def test_open_questions_and_no_journal_is_read_for_them(self, store):
        import sqlite3

        begin(store, "one", "two")
        with closing(sqlite3.connect(store)) as connection, connection:  # journals that nobody could read
            (table,) = connection.execute("select name from sqlite_master where sql like '%line text%'").fetchone()
            assert connection.execute(f"update {table} set line = '?'").rowcount >= 8
        lines = [line.split() for line in runs("list", "--asked").splitlines()]
        assert lines[1][:5] == ["two", "shop", "ask:3.0", "approval", "refund(order='A-17',"]
        assert len(lines) == 3

    def test_a_name_of_a_client_is_no_command_of_the_shell_that_a_person_copies(self, store):
        begin(store, "ann/$(touch x):r1")
        assert "fsm-agent runs answer 'ann/$(touch x):r1' ask:3.0 …" in runs("show", "ann/$(touch x):r1")

    def test_a_list_of_turns_says_that_there_are_more(self, store):
        agent = Agent(Script("1", "2", "3"), name="shop", store=str(store))
        for _ in range(3):
            agent.conversation("anna").call("hi")
        agent.runs.close()
        named = ("list", "--conversation", "anna", "--limit")
        assert json.loads(runs(*named, "2", "--json"))["has_more"] is True
        assert "has_more" not in json.loads(runs(*named, "3", "--json"))
        assert "there are more: --limit 4" in run("runs", *named, "2").stderr
        assert "there are more" not in run("runs", *named, "3").stderr

    def test_the_turns_of_a_conversation(self, store):
        begin(store, "alone")
        agent = Agent(Script(*"123"), name="clerk", store=str(store))
        for name in (EVIL, EVIL, "other"):
            agent.conversation(name).call("hi")
        agent.runs.close()

        def names(*arguments: str) -> list[str]:
            return [row["id"] for row in json.loads(runs("list", "--json", "--conversation", EVIL, *arguments))["runs"]]

        newest, first = names()
        assert newest.startswith(f"{EVIL}:2-")
        assert names("--ended") == [newest, first]
        assert (names("--limit", "1"), names("--agent", "shop"), names("--open"), names("--asked")) == (
            [newest],
            [],
            [],
            [],
        )
        shown = runs("show", newest)
        assert "turn 2 of the conversation 'a[31mred]0;titlebc', behind the run a[31mred]0;titlebc:1-" in shown
        assert "\x1b" not in shown
        assert "there is no conversation 'nobody' in this store" in refused("list", "--conversation", "nobody")

    @pytest.mark.parametrize("name", ["function", "store", "runs"])
    def test_a_store_that_code_makes(self, tmp_path, name):
        module = f"kept_as_a_{name}"
        made = {"function": "def kept(): return SqliteStore('own.db')", "store": "kept = SqliteStore('own.db')"}
        lines = ("from fsm_agent import Runs, SqliteStore", made.get(name, "kept = Runs(SqliteStore('own.db'))"))
        (tmp_path / f"{module}.py").write_text("\n".join(lines))
        begin(tmp_path / "own.db", "r1")
        assert "r1" in runs("list", "--store", f"{module}:kept")
        assert not (tmp_path / f"{module}:kept").exists()

    def test_nothing_is_said_on_stderr(self, store):
        Runs(store).close()
        ended = run("runs", "list")
        assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "", "there are no such runs\n")
        assert run("runs", "list", "--asked").stderr == "no question is open\n"

    def test_no_store_is_made_by_looking(self, tmp_path):
        assert "there is no store at 'no.db'" in refused("list", "--store", "no.db")
        assert os.listdir(tmp_path) == []

    def test_what_is_no_store_is_refused(self, tmp_path):
        (tmp_path / "notes.txt").write_text("Buy milk. " * 1000)
        error = refused("list", "--store", "notes.txt")
        assert "bug" not in error
        assert "notes.txt" in error


class TestShow:
    def test_it_tells_what_a_run_is_and_draws_its_path(self, store):
        begin(store, "one")
        shown = runs("show", "one")
        assert shown.startswith("run one of agent 'shop': ToolInterrupt\n")
        assert "4 entries; digests right\n" in shown
        assert 'task: Refund order A-17.\nextra: {"ticket":"one"}\n' in shown
        assert "ask:3.0 asks (approval): refund(order='A-17', amount=19.5)\n" in shown
        assert "where … is one of: --approve, --arguments JSON, --deny [--reason WHY]\n" in shown
        picture = shown.partition("\n\n╭")[2]
        assert picture.splitlines() == [
            " Seeded",
            "│ ╭ Calling",
            "│ │ ╭ ToolInterrupt",
            "╰─● │  1  0.0 s  begin    begun",
            "│ ╰─●  2  0.0 s  model:0  functions_asked  price(item='kettle')",
            "│ ●─╯  3  0.0 s  run:1.0  returned         → 19.5",
            "│ ╰─●  4  0.0 s  model:1  functions_asked  refund(order='A-17', amount=19.5)",
        ]

    def test_a_run_that_has_not_rested_yet_has_begun_all_the_same(self, store):
        shown = []

        @function
        def look() -> str:
            shown.append(runs("show", "one"))
            return "seen"

        agent = Agent(Script(call("look"), "Done."), functions=[look], name="shop", store=store)
        agent.call("Look.", run_id="one")
        agent.runs.close()
        assert shown[0].startswith("run one of agent 'shop': begun\n")

    def test_it_fits_the_screen(self, store):
        begin(store, "one")
        finish(store, "one", Denied("because " * 50))
        assert max(map(len, runs("show", "one").splitlines())) <= 80
        assert "│ │ │ │   claimed again, fence 2\n" in runs("show", "one")

    def test_as_data(self, store):
        begin(store, "one")
        shown = json.loads(runs("show", "one", "--json"))
        assert (shown["run"]["id"], shown["header"]["extra"], shown["is_sound"]) == ("one", {"ticket": "one"}, True)
        assert [entry["to"] for entry in shown["entries"]] == ["Calling", "ToolInterrupt", "Calling", "ToolInterrupt"]
        assert shown["header"]["seed"]["dialog"][0]["role"] == "user"

    def test_what_is_untrusted_is_plain(self, store):
        kept = Runs(store)
        agent = Agent(Script(call("refund", order=EVIL, amount=1)), functions=[shop.refund], name="x", store=kept)
        with pytest.raises(CallSuspended):
            agent.call(EVIL, run_id="one", extra={"note": EVIL})
        runs("answer", "one", "ask:1.0", "--deny", "--reason", EVIL, "--by", EVIL)
        replace(agent, model=Script(EVIL)).resume("one")
        with pytest.raises(CallSuspended):
            replace(agent, model=Script(call("refund", order=EVIL, amount=1))).call(EVIL, run_id="two")
        kept.close()
        for command in (
            *(["show", "one"], ["show", "two"], ["list", "--asked"], ["list"]),
            *(["show", "one", "--json"], ["diff", "one", "two"], ["diagram", "one"]),
        ):
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", runs(*command))

    def test_a_damaged_journal_is_shown_as_far_as_it_can_be_read(self, store):
        import sqlite3

        begin(store, "one")
        with closing(sqlite3.connect(store)) as connection, connection:
            (table,) = connection.execute("select name from sqlite_master where sql like '%line text%'").fetchone()
            connection.execute(f"update {table} set line = replace(line, 'kettle', 'teapot')")
        ended = run("runs", "show", "one")
        assert ended.exit_code == 1
        assert "price(item='teapot')" in ended.stdout
        assert "is damaged: entry 2 is damaged, changed, or not the next" in ended.stderr

    def test_a_signed_one(self, store, monkeypatch):
        begin(store, "one", signing_key="k" * 32)
        assert "signed, and no signing key was given, so nothing was verified" in runs("show", "one")
        monkeypatch.setenv("FSM_AGENT_SIGNING_KEY", "k" * 32)
        assert "signatures right" in runs("show", "one")
        monkeypatch.setenv("FSM_AGENT_SIGNING_KEY", "x" * 32)
        assert "entry 1 is damaged" in refused("show", "one")

    def test_a_run_that_is_not_there(self, store):
        begin(store, "one")
        for command in (["show", "?"], ["diagram", "?"], ["export", "?"], ["diff", "one", "?"], ["delete", "?"]):
            assert "'?'" in refused(*command)


class TestReplay:
    def test_every_entry_is_verified_with_the_code(self, store):
        begin(store, "one")
        finish(store, "one", Approved())
        assert runs("replay", "one", "--agents", "support.shop_agent") == (
            "7 entries verified, each decided now as it was then; the definition of the agent is the same."
            " The run is in Completed.\n"
        )
        said = json.loads(runs("replay", "one", "--agents", "support.shop_agent:AGENT", "--json"))
        assert said == {"run": "one", "entries": 7, "state": "Completed", "is_definition_unchanged": True}

    def test_code_that_decides_otherwise_is_told(self, store, tmp_path):
        begin(store, "waits", "ended")
        finish(store, "ended", Approved())
        (tmp_path / "new_shop.py").write_text(
            "from support import shop_agent as shop\nfrom dataclasses import dataclass, replace\n"
            "AGENT = replace(shop.AGENT, functions=[shop.price])\n"
        )
        error = refused("replay", "ended", "--agents", "new_shop:AGENT")
        assert "entry 5 (key 'ask:3.0'): 'approved' was taken then" in error
        assert "the definition has changed from" in error
        error = refused("replay", "waits", "--agents", "new_shop:AGENT")
        assert "after entry 4 the run was in 'ToolInterrupt' then, and would be in 'Calling' now" in error

    def test_a_run_is_shown_as_it_was_after_a_step(self, store):
        begin(store, "one")
        finish(store, "one", Approved())
        agents = ["--agents", "support.shop_agent:AGENT"]
        shown = runs("replay", "one", *agents, "--step", "4")
        assert shown == "After step 4 the run was in ToolInterrupt, waiting for ask:3.0.\n"
        said = json.loads(runs("replay", "one", *agents, "--step", "0", "--json"))
        assert said == {"run": "one", "step": 0, "state": "Seeded", "waits_for": ["begin"]}
        assert "the run 'one' has no step 8: it has 7 entries" in refused("replay", "one", *agents, "--step", "8")
        assert "no step 'Calling#1'" in refused("replay", "one", *agents, "--step", "Calling#1")


class TestFork:
    def test_a_fork_is_made_with_the_code_or_without(self, store):
        begin(store, "one")
        finish(store, "one", Approved())
        before = runs("show", "one")
        assert runs("fork", "one", "two", "--step", "4", "--by", "ann") == "two continues one from step 4\n"
        agents = ["--agents", "support.shop_agent:AGENT"]
        assert runs("fork", "one", "three", "--step", "4", *agents) == "three continues one from step 4\n"
        assert "a fork of the run one after its step 4, by ann" in runs("show", "two")
        assert "run two of agent 'shop': Forked" in runs("show", "two")
        assert "ask:3.0 asks (approval): refund(order='A-17'" in runs("show", "three")
        assert runs("show", "one") == before
        for name in ("two", "three"):
            if name == "three":
                runs("answer", name, "ask:3.0", "--deny", "--reason", "not here", "--by", "bob")
            agent = shop.shop(store=store)
            with suppress(CallSuspended):
                agent.resume(name)
            agent.runs.close()
        assert "by bob: not here" in runs("show", "three")
        entries = json.loads(runs("show", "three", "--json"))["entries"]
        assert [entry["by"] for entry in entries[:5]] == ["", "", "", "", "bob"]
        assert "ask:3.0 asks" in runs("show", "two")

    def test_the_last_step_is_the_default(self, store):
        begin(store, "one")
        assert runs("fork", "one", "two") == "two continues one from step 4\n"

    def test_what_is_missing_is_told(self, store):
        begin(store, "one")
        assert "it needs the code of the flow: --agents" in refused("fork", "one", "two", "--data", "{}", code=2)
        assert "it needs the code of the flow: --agents" in refused("fork", "one", "two", "--step", "x#1", code=2)
        agents = ["--agents", "support.shop_agent:AGENT"]
        assert "has none: a run of a flow has" in refused("fork", "one", "two", "--data", "{}", *agents, code=2)
        assert "there is a run 'one' already" in refused("fork", "one", "one")
        assert [row["id"] for row in json.loads(runs("list", "--json"))["runs"]] == ["one"]


class TestDiagram:
    def test_the_path_is_drawn(self, store, tmp_path):
        begin(store, "one")
        drawn = runs("diagram", "one")
        assert "The run one" in drawn
        assert "\N{MULTIPLICATION SIGN}2 functions_asked" in drawn
        assert run("runs", "diagram", "one", "--output", "one.dot").stderr == "diagram written to one.dot\n"
        assert "ToolInterrupt" in (tmp_path / "one.dot").read_text()


class TestDiff:
    def test_the_first_entry_that_differs_and_what(self, store):
        begin(store, "one", "two")
        finish(store, "one", Approved())
        finish(store, "two", Denied("no"))
        shown = [line.split() for line in runs("diff", "one", "two").splitlines()]
        assert ["extra.ticket", "one", "two"] in shown
        assert ["they", "part", "at", "entry", "5:"] in shown
        assert ["outcome.kind", "approved", "denied"] in shown
        assert ["outcome.reason", "-", "no"] in shown
        said = json.loads(runs("diff", "one", "two", "--json"))
        assert (said["n"], said["entry"][0]) == (5, {"where": "outcome.kind", "values": ["approved", "denied"]})

    def test_the_same(self, store):
        begin(store, "one", "two")
        finish(store, "one", Approved(at_s=1.0))
        finish(store, "two", Approved(at_s=2.0))
        said = json.loads(runs("diff", "one", "two", "--json"))
        assert (said["n"], said["entry"]) == (None, [])
        assert "their 7 entries are the same" in runs("diff", "one", "two")


def hide(outcome: Outcome) -> Outcome:
    hidden = to_json(outcome).replace("Ada", "…").replace("Refund order", "…")
    return from_json(hidden, Outcome)


class TestExport:
    def test_the_journal_as_it_is(self, store, tmp_path):
        begin(store, "one")
        lines = runs("export", "one").splitlines()
        assert header_of(lines[0]).agent == "shop"
        assert [json.loads(line)["n"] for line in lines[1:]] == [1, 2, 3, 4]
        assert runs("export", "one", "--output", "one.jsonl") == ""
        assert (tmp_path / "one.jsonl").read_text().splitlines() == lines

    @pytest.mark.system
    def test_on_a_terminal_nothing_in_it_is_a_command(self, store):
        odd = "\x9b31m \x7f \u202e"
        with suppress(CallSuspended):
            shop.shop(store=Runs(store)).call(f"Refund {odd}", run_id="odd")
        assert odd in runs("export", "odd")
        with Terminal("runs", "export", "odd", "--store", str(store)) as terminal:
            terminal.read_until()
            assert terminal.process.wait(LIMIT_S) == 0
        assert not any(c in terminal.seen for c in odd if c in "\x9b\x7f\u202e")
        assert json.loads(terminal.seen.splitlines()[0]) == json.loads(runs("export", "odd").splitlines()[0])

    def test_a_redacted_one_cannot_be_resumed_and_says_so(self, store, monkeypatch):
        begin(store, "one")
        finish(store, "one", Denied("the customer is Ada"))
        (tmp := Path("hiding.py")).write_text(f"from {__name__} import hide\n")
        monkeypatch.syspath_prepend(str(Path(__file__).parent))
        text = runs("export", "one", "--redact", "hiding:hide")
        tmp.unlink()
        first, *lines = [json.loads(line) for line in text.splitlines()]
        assert first["redacted"] == "this export cannot be resumed or replayed"
        assert len(lines) == 6
        assert not any("digest" in line for line in [first, *lines])
        for secret in ("Ada", "Refund order", "ticket"):
            assert secret not in text
        with pytest.raises(ValueError, match="this is no header of a journal"):
            header_of(text.splitlines()[0])


class TestAnswer:
    def test_a_post_without_code_and_lease(self, store):
        begin(store, "one")
        assert runs("answer", "one", "ask:3.0", "--deny", "--reason", "no", "--by", "ann").startswith("posted denied")
        assert json.loads(runs("list", "--json"))["runs"][0]["n"] == 4
        agent = shop.shop(store=store)
        assert agent.resume("one").output == "Done: The call was not allowed: no"
        agent.runs.close()

    def test_the_second_learns_who_was_first(self, store):
        begin(store, "one")
        runs("answer", "one", "ask:3.0", "--approve", "--by", "ann")
        assert "was answered by 'ann'" in refused("answer", "one", "ask:3.0", "--deny")

    def test_an_answer_of_another_kind_is_refused(self, store):
        begin(store, "one")
        error = refused("answer", "one", "ask:3.0", "--result", "19.50")
        assert "'ask:3.0' is not answered with --result: --approve, --arguments JSON, --deny" in error
        assert refused("answer", "one", "ask:9.9", "--approve")

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("ask:3.0",), "no answers: exactly one of --approve,"),
            (("ask:3.0", "--approve", "--run-again"), "2 answers: exactly one of"),
            (("ask:3.0", "--approve", "--deny"), "2 answers: exactly one of"),
            (("--approve",), "the key of the question is missing"),
            (("ask:3.0", "--approve", "--reason", "why not"), "there is a reason only to --deny and --cancel"),
        ],
    )
    def test_a_command_line_that_is_wrong(self, store, arguments, said):
        begin(store, "one")
        assert said in refused("answer", "one", *arguments, code=2)

    @pytest.mark.parametrize(
        ("given", "said"),
        [("[]", "should be an object"), ('{"order"', "Invalid JSON"), ('{"amount": 1}', "order: Field required")],
    )
    def test_arguments_that_do_not_fit_are_refused_where_they_are_given(self, store, given, said):
        """Else the model would be told of a person's mistake, and the question be over."""
        begin(store, "one")
        error = refused("answer", "one", "ask:3.0", "--arguments", given)
        assert "was given arguments that do not fit, and stays open: " in error
        assert said in error
        assert json.loads(runs("list", "--asked", "--json"))["runs"]

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ('"three"', "an answer that does not fit, and stays open: answer.int: Input should be a valid integer"),
            ('["Size", {"width": "w"}]', "answer.width: Input should be a valid integer"),
            ('["Size", 3]', "an answer that does not fit, and stays open: answer: "),
            ("three", "JSON of int | Size would be right"),
        ],
    )
    def test_an_answer_of_another_type_is_refused_where_it_is_given(self, store, given, said):
        with closing(Runs(store)) as kept:
            suspended(lambda: replace(MEASURING, store=kept).call("a", run_id="one"))
        assert said in refused("answer", "one", "answer:measure#1", "--result", given)
        assert runs("answer", "one", "answer:measure#1", "--result", '["Size", {"width": 3}]').startswith("posted")

    def test_a_run_is_cancelled(self, store):
        begin(store, "one")
        runs("answer", "one", "--cancel", "--reason", "a duplicate")
        assert run("worker", "--agents", "support.shop_agent", "--once").exit_code == 0
        assert runs("list", "--ended").splitlines()[1].split()[:3] == ["one", "shop", "Failed"]
        assert "a duplicate" in runs("show", "one")


class TestWorker:
    def test_a_store_that_is_not_there_is_not_made_by_mistake(self, store):
        missing = run("worker", "--agents", "support.shop_agent", "--once", "--store", "typo.db")
        assert (missing.exit_code, "there is no store at 'typo.db'" in missing.stderr) == (1, True)
        assert not Path("typo.db").exists()
        assert run("worker", "--agents", "support.shop_agent", "--once", "--store", "new.db", "--create").exit_code == 0
        assert Path("new.db").exists()

    def test_what_the_users_code_raises_is_told_once_and_from_there(self, store, tmp_path):
        (tmp_path / "deps_of_test.py").write_text("def made(agent, extra):\n    return {}['deps']\n")
        begin(store, "one")
        kept = Runs(store)
        kept.answer("one", {"ask:3.0": Approved()})
        kept.close()
        ended = run("worker", "--agents", "support.shop_agent:AGENT", "--deps", "deps_of_test:made", "--once")
        assert ended.stderr.count("run one of agent 'shop' raised, and is given back") == 1
        assert 'deps_of_test.py", line 2, in made' in ended.stderr
        assert "worker.py" not in ended.stderr


class TestDelete:
    def test_one_that_a_conversation_needs_only_by_force(self, store):
        begin(store, "one")
        agent = Agent(Script(*"12"), name="clerk", store=str(store))
        for name in ("first", "second"):
            agent.conversation("anna").call("hi", run_id=name)
        agent.runs.close()
        error = refused("delete", "one", "first")
        assert "the conversation 'anna' is read from the run 'first', and cannot be continued without it" in error
        assert "--force deletes it all the same" in error
        assert {row["id"] for row in json.loads(runs("list", "--json"))["runs"]} == {"one", "first", "second"}
        forced = run("runs", "delete", "one", "first", "--force", "--yes")
        assert forced.stdout == "deleted one\ndeleted first\n"
        assert forced.stderr == "the conversation 'anna' cannot be continued: it is read from first\n"

    def test_those_that_are_named(self, store):
        begin(store, "one", "two", "three")
        assert runs("delete", "one", "three", "--yes") == "deleted one\ndeleted three\n"
        assert [row["id"] for row in json.loads(runs("list", "--json"))["runs"]] == ["two"]


class TestPrune:
    def test_those_that_have_ended_by_count(self, store):
        begin(store, "one", "two", "three", "waiting")
        for name in ("one", "two", "three"):
            finish(store, name, Approved())
        ended = run("runs", "prune", "--keep", "1", "--dry-run")
        assert (ended.stdout, ended.stderr) == ("one\ntwo\n", "2 runs would be deleted\n")
        assert json.loads(runs("prune", "--keep", "1", "--json")) == {
            "deleted": ["one", "two"],
            "found": ["one", "two"],
        }
        assert [row["id"] for row in json.loads(runs("list", "--json"))["runs"]] == ["three", "waiting"]

    def test_by_age(self, store):
        begin(store, "one")
        finish(store, "one", Approved())
        assert runs("prune", "--older-than", "30d") == ""
        assert runs("prune", "--older-than", "0s") == "one\n"

    def test_without_a_limit_nothing_is_deleted(self, store):
        begin(store, "one")
        assert "neither age nor count is given" in refused("prune", code=2)
        assert "'30' is no span of time: 90s, 15m, 12h, 30d or 8w is" in refused("prune", "--older-than", "30", code=2)


def test_a_run_shows_what_each_request_showed_the_model(store: Path, monkeypatch: pytest.MonkeyPatch):
    @function
    def read(page: int) -> str:
        """Read a page."""
        return f"{page} " * 900

    model = Script(*[call("read", page=n) for n in range(8)], "Read.")
    budget = Budget(hard=6_000, reserve=0, passes=[shorten(1_000), keep_last(2)])
    agent = Agent(model, functions=[read], name="reader", store=store, limits=Limits(rounds=None), context=budget)
    agent.call("Read all.", run_id="pages")
    monkeypatch.setenv("COLUMNS", "130")
    lines = [line for line in runs("show", "pages").splitlines() if "model:" in line]
    said = [re.search(r"(?:[\d,]+ → )?[\d,]+ tokens(?:, new beginning)?", line)[0] for line in lines]
    uses = agent.runs.replay("pages", agent.definition()).record.requests
    assert [int(text.partition(" tokens")[0].rpartition(" ")[2].replace(",", "")) for text in said] == [
        use.estimated for use in uses
    ]
    assert [" → " in text for text in said] == [bool(use.passes) for use in uses]
    assert ["new beginning" in text for text in said[1:]] == [not use.extends for use in uses][1:]
    assert any(use.passes for use in uses)
    shown = json.loads(runs("show", "pages", "--json"))["entries"]
    contexts = [entry["context"] for entry in shown if entry["key"].startswith("model:")]
    assert [one["estimated"] for one in contexts] == [use.estimated for use in uses]
    assert all(entry["context"] is None for entry in shown if not entry["key"].startswith("model:"))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"is_ended": True}, ""),
        ({"holder": "host:1", "due_s": 0.0}, "driven by host:1"),
        ({"due_s": None}, "a post"),
        ({"due_s": 100.0}, "a worker: it is due"),
        ({"due_s": 101.0}, moment(101.0)),
        ({"due_s": None, "waits": (Question("answer:a#1", "answer"),)}, "answer:a#1 (answer)"),
        ({"due_s": 101.0, "waits": (Question("answer:a#1", "answer"),)}, "answer:a#1 (answer)"),
        ({"due_s": 100.0, "waits": (Question("answer:a#1", "answer"),)}, "answer:a#1 (answer), a worker: it is due"),
    ],
)
def test_what_a_run_waits_for_is_told_in_a_few_words(fields: dict[str, object], told: str):
    row = Run(
        **{"id": "r", "agent": "a", "n": 1, "state": "s", "is_ended": False, "due_s": None, "holder": None},
        **{"created_s": 1.0, "updated_s": 2.0, "waits": ()},
    )
    assert waits_for(row.changed(**fields), 100.0) == told
