"""Do the commands of flows show, check, draw and run them, and take the answers of people?"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fsm_agent.cli import app

MODULE = '''
from dataclasses import dataclass, replace
from fsm_agent import Agent, function
from fsm_agent.flows import Flow, call, end, failure, subflow, wait
from fsm_agent.testing import Script, call as asks

print("the module is imported")

@dataclass(frozen=True)
class Letter:
    about: str
    text: str = ""

@dataclass(frozen=True)
class Approve:
    by: str

@dataclass(frozen=True)
class Change:
    wish: str

@function(needs_approval=True)
def look_up(word: str) -> str:
    """Look a word up."""
    return word.upper()

writer = Agent(Script(*["Dear friend"] * 9), name="writer")
asker = Agent(Script(asks("look_up", word="x"), "It is X."), functions=[look_up], name="asker")

@call(writer)
def drafting(d: Letter) -> str:
    return f"Write about {d.about}"

@call(asker)
def asking(d: Letter) -> str:
    return "Look it up."

@wait(Approve, Change)
def review(d: Letter) -> str:
    return d.text

sent, refused = end("sent"), failure("refused", "nobody wants it")
letters = Flow("letters", Letter, start=drafting, rows=[
    drafting.done(review, do=lambda d, a: replace(d, text=a)),
    review.done(sent, of=Approve),
    review.done(drafting, of=Change, when=lambda_free),
    review.done(refused, of=Change),
])
inner = subflow("inner", letters, lambda d: d)
outer = Flow("outer", Letter, start=inner, rows=[inner.done(end("over"))])
words = Flow("words", Letter, start=asking, rows=[asking.done(sent)])
'''.replace("lambda_free", "wants_more").replace(
    "sent, refused", 'def wants_more(d: Letter, a: Change) -> bool:\n    return a.wish != "none"\n\nsent, refused'
)
STORE = ("--store", "runs.db")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("FSM_AGENT_STORE", raising=False)
    (tmp_path / "post.py").write_text(MODULE)
    (tmp_path / "bare.py").write_text("x = 1\n")
    yield tmp_path
    for name in ("post", "bare", "old_of_test", "new_of_test"):
        sys.modules.pop(name, None)


def flows(*words: str, code: int = 0) -> Any:
    ended = CliRunner().invoke(app, ["flows", *words], prog_name="fsm-agent", catch_exceptions=False)
    assert ended.exit_code == code, ended.output
    return ended


def test_an_answer_comes_before_its_state_is_entered(here: Path):
    (here / "post.py").write_text(MODULE.replace("@wait(Approve, Change)", "@wait(Approve, Change, early=True)"))
    flows("run", "post:letters", '{"about": "x"}', "--run-id", "l2", *STORE, code=3)
    for answer in ('{"wish": "warmer"}', '{"wish": "colder"}', '{"by": "ann"}'):
        flows("answer", "post:letters", "l2", "review", answer, *STORE)
    wrong = flows("answer", "post:letters", "l2", "review", '{"nix": 1}', *STORE, code=1)
    assert "JSON of Approve | Change would be right" in wrong.stderr
    ended = flows("run", "post:letters", "--run-id", "l2", "--json", *STORE)
    assert json.loads(ended.stdout.splitlines()[-1])["state"] == "sent"


def test_the_list_names_states_and_what_each_waits_for():
    listed = flows("list", "post")
    assert listed.stdout.splitlines()[:4] == [
        "letters(Letter)",
        "  drafting: call, gives str",
        "  review: wait, gives Approve | Change",
        "  ends: sent, refused, Failed, Cancelled",
    ]
    assert "the module is imported" in listed.stderr
    rows = json.loads(flows("list", "post:words", "--json").stdout)
    assert [(row["name"], row["start"], row["rows"]) for row in rows] == [("words", "asking", 1)]


def test_check_says_that_all_is_in_order_or_which_row_is_not(here: Path):
    assert flows("check", "post").stdout.splitlines() == [
        "letters: 2 states and 4 rows are in order",
        "outer: 1 states and 1 rows are in order",
        "words: 1 states and 1 rows are in order",
    ]
    sys.modules.pop("post")
    (here / "post.py").write_text(MODULE.replace("    review.done(sent, of=Approve),\n", ""))
    failed = flows("check", "post", code=1)
    assert "review" in failed.stderr
    assert "Approve" in failed.stderr


def test_a_run_is_shown_as_it_was_and_forked_with_other_data():
    def runs(*words: str, code: int = 0) -> Any:
        ended = CliRunner().invoke(app, ["runs", *words, *STORE], prog_name="fsm-agent", catch_exceptions=False)
        assert ended.exit_code == code, ended.output
        return ended

    flows("run", "post:letters", '{"about": "rain"}', "--run-id", "one", *STORE, code=3)
    shown = runs("replay", "one", "--agents", "post:letters", "--step", "drafting#1")
    assert shown.stdout.startswith("After step 1 the run was in drafting, waiting for drafting#1/model:0.")
    assert json.loads(shown.stdout.partition("\n")[2]) == {"about": "rain", "text": ""}
    said = json.loads(runs("replay", "one", "--agents", "post:letters", "--step", "2", "--json").stdout)
    assert said["data"] == {"about": "rain", "text": "Dear friend"}
    to = ("fork", "one", "two", "--agents", "post:letters")
    new = '{"about": "snow", "text": "Dear snow"}'
    assert runs(*to, "--data", new, "--by", "ann").stdout == "two continues one from step 2\n"
    shown = runs("show", "two").stdout
    assert re.search(r'  edited +by ann: {"about": "snow"', shown)
    assert "a fork of the run one after its step 2, by ann" in shown
    header = json.loads(runs("show", "two", "--json").stdout)["header"]
    assert (header["forked"], header["forked_by"], header["edit"]["by"]) == (["one", 2], "ann", "ann")
    assert "flow 'letters' was given" in runs(*to[:2], "x", *to[3:], "--data", "3", code=1).stderr
    flows("answer", "post:letters", "two", "review", '{"by": "bob"}', "--by", "bob", *STORE)
    ended = flows("run", "post:letters", "--run-id", "two", *STORE).stdout
    assert (ended.partition("\n")[0], json.loads(ended.partition("\n")[2])) == ("sent", json.loads(new))
    assert "by bob" in runs("show", "two").stdout


def test_the_picture_has_every_state():
    drawn = flows("diagram", "post:letters").stdout
    assert drawn.startswith('---\ntitle: "letters"')
    assert all(name in drawn for name in ("drafting", "review", "sent", "refused"))


def test_a_part_of_a_picture():
    part = flows("diagram", "post:letters", "--around", "sent", "--hops", "0").stdout
    assert "sent" in part
    assert "…" in part
    assert "refused" not in part
    both = flows("diagram", "post:letters", "--around", "sent", "--around", "refused", "--hops", "0").stdout
    assert "refused" in both
    assert "Failed" in flows("diagram", "post:letters", "--defaults").stdout
    assert "not drawn" in flows("diagram", "post:outer", "--depth", "0").stdout
    assert "#47; #955;" not in flows("diagram", "post:letters").stdout
    assert "#47; " in flows("diagram", "post:letters", "--actions").stdout
    wrong = flows("diagram", "post:letters", "--around", "sentt", code=2).stderr
    assert "'sentt' is no state of the flow 'letters'" in wrong
    assert "mean 'sent'" in " ".join(wrong.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("run", "post", "{}"), 2, "post has letters, outer, words: module:name is right"),
        (("run", "post:nothing", "{}"), 1, "nothing"),
        (("list", "bare"), 2, "'bare' has no Flow"),
        (("list", "nowhere"), 1, "nowhere"),
        (("run", "post:letters", '{"abut": 1}'), 2, "no Letter: about: Field required (given: {'abut': 1})"),
        (("run", "post:letters", "7"), 2, "no Letter: input: Input should be an object (given: 7)"),
        (("run", "post:letters", '{"about": 5}'), 2, "no Letter: about: Input should be a valid string (given: 5)"),
        (("run", "post:letters", "rain"), 2, "(given: 'rain'); JSON of this form would be right: {"),
        (("diagram", "post:letters", "--around", "x"), 2, "no state of the flow 'letters'; there are: drafting, "),
        (("run", "post:letters"), 2, "--run-id and --store of a run"),
        (("run", "post:letters", '{"about": "x"}', "--run-id", "a"), 2, "it names a run in a store"),
        (("run", "post:letters", "--run-id", "a", *STORE), 1, "there is no store at 'runs.db'"),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], code: int, problem: str):
    ended = flows(*words, code=code)
    said = " ".join(ended.stderr.replace("│", " ").split())
    assert problem in said
    assert not re.search(r"pydantic|validation error|\[type=", said)


def test_a_run_waits_for_a_person_and_goes_on_with_the_answer():
    waiting = flows("run", "post:letters", '{"about": "x"}', "--run-id", "l1", *STORE, code=3)
    assert "answer:review#2 asks: Dear friend" in waiting.stderr
    assert "fsm-agent flows answer post:letters l1 review JSON --store runs.db" in waiting.stderr
    shown = CliRunner().invoke(app, ["runs", "show", "l1", *STORE], catch_exceptions=False).stdout
    assert "where … is one of: --result 'JSON of Approve | Change'\n" in shown
    words = ["runs", "answer", "l1", "answer:review#2", "--result", "fine", *STORE]
    no_json = CliRunner().invoke(app, words, catch_exceptions=False)
    assert (no_json.exit_code, no_json.stdout) == (1, "")
    assert "was given 'fine', and stays open: JSON of Approve | Change would be right" in no_json.stderr
    assert flows("answer", "post:letters", "l1", "reviev", "{}", *STORE, code=2).exit_code == 2
    wrong = flows("answer", "post:letters", "l1", "review", '{"nix": 1}', *STORE, code=1)
    assert "JSON of Approve | Change would be right" in wrong.stderr
    answered = flows("answer", "post:letters", "l1", "review", '{"wish": "warmer"}', "--by", "ann", *STORE)
    assert "to continue: fsm-agent flows run post:letters --run-id l1 --store runs.db" in answered.stderr
    assert "review → drafting (done Change)" in flows("run", "post:letters", "--run-id", "l1", *STORE, code=3).stderr
    flows("answer", "post:letters", "l1", "answer:review#4", '["Approve", {"by": "ann"}]', *STORE)
    ended = flows("run", "post:letters", "--run-id", "l1", "--json", *STORE)
    *before, last = [json.loads(line) for line in ended.stdout.splitlines()]
    assert before[-1]["type"] == "stepped"
    assert (last["type"], last["state"]) == ("result", "sent")
    assert last["data"] == {"about": "x", "text": "Dear friend"}


def test_the_store_of_the_environment_keeps_what_is_answered_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FSM_AGENT_STORE", "runs.db")
    flows("run", "post:letters", '{"about": "x"}', "--run-id", "l1", code=3)
    flows("answer", "post:letters", "l1", "review", '{"by": "ann"}')
    assert flows("run", "post:letters", "--run-id", "l1").stdout.startswith("sent")


def test_who_answers_what_is_not_asked_is_told_where_the_run_is():
    def refused() -> str:
        said = flows("answer", "post:letters", "l1", "review", "{}", *STORE, code=2).stderr
        return " ".join(said.replace("│", " ").split())

    words = ["submit", '{"about": "x"}', "--agents", "post:letters", "--run-id", "l1", "--create", *STORE]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert "'review' asks nothing now: the run waits for a worker: it is due" in refused()
    flows("run", "post:letters", "--run-id", "l1", *STORE, code=3)
    flows("answer", "post:letters", "l1", "review", '{"by": "ann"}', *STORE)
    flows("run", "post:letters", "--run-id", "l1", *STORE)
    assert "'review' asks nothing now: the run has ended" in refused()


def test_a_question_of_an_older_version_is_brought_up_first(here: Path):
    old = (
        "from dataclasses import dataclass\nfrom fsm_agent.flows import Flow, end, wait\n"
        "@dataclass(frozen=True)\nclass D:\n    n: int\n"
        "@wait(str)\ndef person(d: D) -> str: return 'Who?'\ndone = end('done')\n"
        "asks = Flow('asks', D, start=person, rows=[person.done(done)])\n"
    )
    new = (
        old.replace("person", "human")
        .replace("]", "], version=2, upgrades={1: up}")
        .replace("asks =", "import json\nup = lambda r: json.loads(json.dumps(r).replace('person', 'human'))\nasks =")
    )
    (here / "old_of_test.py").write_text(old)
    (here / "new_of_test.py").write_text(new)
    flows("run", "old_of_test", '{"n": 1}', "--run-id", "a", *STORE, code=3)
    for name in ("human", "person"):
        refused = flows("answer", "new_of_test", "a", name, '"x"', *STORE, code=1).stderr
        assert "'answer:person#1' is asked by no state of the flow 'asks'" in refused
        assert "fsm-agent flows run new_of_test --run-id a --store runs.db asks anew" in refused
    flows("run", "new_of_test", "--run-id", "a", *STORE, code=3)
    flows("answer", "new_of_test", "a", "human", '"x"', *STORE)
    assert flows("run", "new_of_test", "--run-id", "a", *STORE).stdout.startswith("done")


def test_the_function_of_an_agent_inside_is_approved_as_in_any_run():
    waiting = flows("run", "post:words", '{"about": "x"}', "--run-id", "w", *STORE, code=3)
    key = "asking#1/ask:1.0"
    *_, last = waiting.stderr.splitlines()
    assert last.endswith(f": answer with fsm-agent runs answer w '{key}' --approve --store runs.db")
    refused = flows("answer", "post:words", "w", key, '"x"', *STORE, code=1)
    assert f"fsm-agent runs answer w '{key}' is right" in refused.stderr
    words = ["runs", "answer", "w", key, "--approve", *STORE]
    assert CliRunner().invoke(app, words, prog_name="fsm-agent").exit_code == 0
    assert flows("run", "post:words", "--run-id", "w", *STORE).stdout.startswith("sent\n")


def test_a_function_that_raises_is_told_in_one_line_without_keys(here: Path):
    (here / "broken_of_test.py").write_text(
        "from dataclasses import dataclass\nfrom fsm_agent.flows import Flow, end, execute\n"
        "@dataclass(frozen=True)\nclass D:\n    n: int\n"
        "@execute\ndef work(d: D) -> D:\n    raise ValueError('no sk-abcdefghijklmnopqrstuvwx\\n' + 'x ' * 5_000)\n"
        "breaks = Flow('breaks', D, start=work, rows=[work.done(end('done'))])\n"
    )
    ended = flows("run", "broken_of_test", '{"n": 1}', "--quiet", code=1)
    *_, last = ended.stderr.splitlines()
    assert last.startswith("fsm-agent: the run ")
    assert "raised: ValueError: no sk-a*** x x" in last
    assert len(last) < 2_100
