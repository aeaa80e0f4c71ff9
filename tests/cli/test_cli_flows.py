"""Do the commands of flows show, check, draw and run them, and take the answers of people?"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from command_line import at_terminal, lines_of, ran, refused

MODULE = '''
from dataclasses import dataclass, replace
from fsm_agent import Agent, function
from fsm_agent.flows import Flow, ask, end, subflow, wait
from fsm_agent.testing import Script, function_call

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
asker = Agent(Script(function_call("look_up", word="x"), "It is X."), functions=[look_up], name="asker")

@ask(writer)
def drafting(d: Letter) -> str:
    return f"Write about {d.about}"

@ask(asker)
def asking(d: Letter) -> str:
    return "Look it up."

@wait(Approve, Change)
def review(d: Letter) -> str:
    return d.text

def wants_more(d: Letter, a: Change) -> bool:
    return a.wish != "none"

sent, refused = end("sent"), end("refused", failed="nobody wants it")
letters = Flow("letters", Letter, start=drafting, rows=[
    drafting.done(review, do=lambda d, a: replace(d, text=a)),
    review.done(sent, of=Approve),
    review.done(drafting, of=Change, when=wants_more),
    review.done(refused, of=Change),
])
inner = subflow("inner", letters, lambda d: d)
outer = Flow("outer", Letter, start=inner, rows=[inner.done(end("over"))])
words = Flow("words", Letter, start=asking, rows=[asking.done(sent)])
'''
STORE = ("--store", "runs.db")
RUN = ("flows", "run", "post:letters")
ANSWER = ("flows", "answer", "post:letters")


@pytest.fixture(autouse=True)
def _post(here: Path) -> None:
    (here / "post.py").write_text(MODULE)
    (here / "bare.py").write_text("x = 1\n")


def test_check_names_states_and_what_is_wrong(here: Path):
    listed = ran("flows", "check", "post")
    for name in ("letters(Letter)", "drafting", "Approve | Change", "sent, refused"):
        assert name in listed.stdout
    assert "the module is imported" in listed.stderr
    assert "words(Letter) is valid (states: 1, rows: 1)\n" in ran("flows", "check", "post:words").stdout
    assert re.findall(r"^(\w+)\(Letter\) is valid", listed.stdout, re.M) == ["letters", "outer", "words"]
    sys.modules.pop("post")
    (here / "post.py").write_text(MODULE.replace("    review.done(sent, of=Approve),\n", ""))
    told = refused("flows", "check", "post")
    assert "review" in told
    assert "Approve" in told


def test_a_picture_has_every_state():
    whole = str(ran("flows", "diagram", "post:letters").stdout)
    assert all(name in whole for name in ("drafting", "review", "sent", "refused"))
    assert "Failed" not in whole


@pytest.mark.parametrize(
    ("words", "code", "at_fault"),
    [
        (("run", "post", "{}"), 2, "letters, outer, words"),
        (("run", "post:nothing", "{}"), 1, "nothing"),
        (("check", "bare"), 2, "'bare'"),
        (("check", "nowhere"), 1, "nowhere"),
        (("run", "post:letters", '{"abut": 1}'), 2, "about"),
        (("run", "post:letters", "rain"), 2, "'rain'"),
        (("run", "post:letters"), 2, "--run-id"),
        (("run", "post:letters", '{"about": "x"}', "--run-id", "a"), 2, "--run-id"),
        (("run", "post:letters", "--run-id", "a", *STORE), 1, "'runs.db'"),
    ],
)
def test_what_is_wrong_is_named(words: tuple[str, ...], code: int, at_fault: str):
    told = refused("flows", *words, code=code)
    assert at_fault in told
    assert not re.search(r"pydantic|validation error|\[type=", told)


def test_a_run_waits_for_a_person_and_goes_on_with_the_answer():
    waiting = ran(*RUN, '{"about": "x"}', "--run-id", "l1", *STORE, code=3).stderr
    assert "answer:review#2 asks: Dear friend" in waiting
    assert "fsm-agent flows answer post:letters l1 review JSON --store runs.db" in waiting
    shown = ran("runs", "show", "l1", *STORE).stdout
    assert "Approve | Change" in shown
    assert re.search(r"\ndrafting#1 +writer +Completed ", shown), "what is inside has a line"
    assert "Approve | Change" in refused("runs", "answer", "l1", "answer:review#2", "--result", "fine", *STORE)
    assert "reviev" in refused(*ANSWER, "l1", "reviev", "{}", *STORE, code=2)
    assert "Approve | Change" in refused(*ANSWER, "l1", "review", '{"nix": 1}', *STORE)
    answered = ran(*ANSWER, "l1", "review", '{"wish": "warmer"}', "--by", "ann", *STORE).stderr
    command = answered.partition("to continue: ")[2].splitlines()[0]
    assert "review → drafting (done Change)" in ran(*shlex.split(command)[1:], code=3).stderr
    ran(*ANSWER, "l1", "answer:review#4", '["Approve", {"by": "ann"}]', *STORE)
    *before, last = lines_of(ran(*RUN, "--run-id", "l1", "--json", *STORE))
    assert before[-1]["type"] == "stepped"
    assert (last["type"], last["state"], last["data"]) == ("result", "sent", {"about": "x", "text": "Dear friend"})
    assert "has ended" in refused(*ANSWER, "l1", "review", "{}", *STORE, code=2)


@pytest.mark.skipif(sys.platform == "win32", reason="terminals are POSIX")
def test_at_a_terminal_a_form_asks_for_the_answer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOGNAME", "ada")
    ran(*RUN, '{"about": "x"}', "--run-id", "l1", *STORE, code=3)
    assert "Approve | Change" in refused(*ANSWER, "l1", *STORE, code=2)
    told = at_terminal(monkeypatch, *ANSWER, "l1", *STORE, answers=["Change\n", "warmer\n"])
    assert "Dear friend" in told
    ran(*RUN, "--run-id", "l1", *STORE, code=3)
    assert "by ada" in ran("runs", "show", "l1", *STORE).stdout
    at_terminal(monkeypatch, *ANSWER, "l1", "review", *STORE, answers=["app\n", "ann\n"])
    assert ran(*RUN, "--run-id", "l1", *STORE).stdout.startswith("sent")


def test_answers_come_before_their_state_is_entered(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FSM_AGENT_STORE", "runs.db")
    (here / "post.py").write_text(MODULE.replace("@wait(Approve, Change)", "@wait(Approve, Change, early=True)"))
    ran(*RUN, '{"about": "x"}', "--run-id", "l2", code=3)
    for answer in ('{"wish": "warmer"}', '{"wish": "colder"}', '{"by": "ann"}'):
        ran(*ANSWER, "l2", "review", answer)
    assert lines_of(ran(*RUN, "--run-id", "l2", "--json"))[-1]["state"] == "sent"


def test_a_run_is_shown_as_it_was_and_forked_with_other_data():
    def runs(*words: str, code: int = 0) -> str:
        return str(ran("runs", *words, *STORE, code=code).stdout)

    ran(*RUN, '{"about": "rain"}', "--run-id", "one", *STORE, code=3)
    shown = runs("replay", "one", "--agents", "post:letters", "--step", "drafting#1")
    assert json.loads(shown.partition("\n")[2]) == {"about": "rain", "text": ""}
    shown = runs("replay", "one", "--agents", "post:letters", "--step", "2")
    assert json.loads(shown.partition("\n")[2]) == {"about": "rain", "text": "Dear friend"}
    new = '{"about": "snow", "text": "Dear snow"}'
    runs("fork", "one", "two", "--agents", "post:letters", "--data", new, "--by", "ann")
    header = json.loads(runs("show", "two", "--json"))["header"]
    assert (header["forked"], header["forked_by"], header["edit"]["by"]) == (["one", 2], "ann", "ann")
    assert "letters" in refused("runs", "fork", "one", "x", "--agents", "post:letters", "--data", "3", *STORE)
    ran(*ANSWER, "two", "review", '{"by": "bob"}', "--by", "bob", *STORE)
    ended = ran(*RUN, "--run-id", "two", *STORE).stdout
    assert (ended.partition("\n")[0], json.loads(ended.partition("\n")[2])) == ("sent", json.loads(new))


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
    (here / "old_flow.py").write_text(old)
    (here / "new_flow.py").write_text(new)
    ran("flows", "run", "old_flow", '{"n": 1}', "--run-id", "a", *STORE, code=3)
    told = refused("flows", "answer", "new_flow", "a", "human", '"x"', *STORE)
    command = re.search(r"fsm-agent (flows run new_flow --run-id a --store runs\.db)", told)
    ran(*command[1].split(), code=3)
    ran("flows", "answer", "new_flow", "a", "human", '"x"', *STORE)
    assert ran("flows", "run", "new_flow", "--run-id", "a", *STORE).stdout.startswith("done")


def test_a_run_of_another_flow_is_not_answered_though_a_state_has_the_same_name(here: Path):
    asks = "from fsm_agent.flows import Flow, end, wait\n@wait(KIND)\ndef person(d: int) -> str: return 'Who?'\n"
    flow = "NAME = Flow('NAME', int, start=person, rows=[person.done(end('done'))])\n"
    (here / "texts.py").write_text((asks + flow).replace("KIND", "str").replace("NAME", "texts"))
    (here / "numbers_.py").write_text((asks + flow).replace("KIND", "int").replace("NAME", "numbers_"))
    ran("flows", "run", "numbers_", "1", "--run-id", "n", *STORE, code=3)
    assert "'n'" in refused("flows", "answer", "texts", "n", "person", '"x"', *STORE)
    ran("flows", "answer", "numbers_", "n", "person", "2", *STORE)


def test_the_function_of_an_agent_inside_is_approved_as_in_any_run():
    words = ("flows", "run", "post:words")
    key = "asking#1/ask:1.0"
    *told, last = ran(*words, '{"about": "x"}', "--run-id", "w", *STORE, code=3).stderr.splitlines()
    assert f"waits for approval as {key}: look_up(word='x')" in told, "a person sees what it would do"
    assert f"'{key}'" in refused("flows", "answer", "post:words", "w", key, '"x"', *STORE)
    ran(*shlex.split(last.partition("answer with ")[2])[1:])
    assert ran(*words, "--run-id", "w", *STORE).stdout.startswith("sent\n")


@pytest.mark.skipif(sys.platform == "win32", reason="terminals are POSIX")
def test_at_a_terminal_a_person_approves_the_function_of_an_agent_inside(monkeypatch: pytest.MonkeyPatch):
    told = at_terminal(monkeypatch, "flows", "run", "post:words", '{"about": "x"}', answers=["y\n"])
    assert "May the model call look_up(word='x')?" in told


def test_a_function_that_raises_is_told_in_one_line_without_keys(here: Path):
    (here / "broken.py").write_text(
        "from dataclasses import dataclass\nfrom fsm_agent.flows import Flow, end, execute\n"
        "@dataclass(frozen=True)\nclass D:\n    n: int\n"
        "@execute\ndef work(d: D) -> D:\n    raise ValueError('no sk-abcdefghijklmnopqrstuvwx\\n' + 'x ' * 5_000)\n"
        "breaks = Flow('breaks', D, start=work, rows=[work.done(end('done'))])\n"
    )
    *_, last = ran("flows", "run", "broken", '{"n": 1}', "--quiet", code=1).stderr.splitlines()
    assert "ValueError: no sk-a***" in last
    assert "sk-abcdef" not in last
    assert len(last) < 2_100


OWN = """
from dataclasses import dataclass
from fsm_agent import SqliteStore
from fsm_agent.flows import Flow, end, pause, wait

@dataclass(frozen=True)
class D:
    n: int

@wait(bool, within_s=3600)
def review(d: D) -> str:
    return "Is it so?"

nap, done, late = pause("nap", 3600), end("done"), end("late")
naps = Flow("naps", D, start=nap, rows=[nap.elapsed(done)])
rows = [review.done(done), review.elapsed(late)]
asks = Flow("asks", D, start=review, rows=rows, store="own.db")
made = Flow("made", D, start=review, rows=rows, store=SqliteStore("made.db"))
"""
MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


@pytest.fixture
def _own(here: Path) -> None:
    (here / "own.py").write_text(OWN)


@pytest.mark.usefixtures("_own")
def test_a_run_that_waits_for_a_time_says_until_when_and_what_continues_it():
    *_, last = ran("flows", "run", "own:naps", '{"n": 1}', "--run-id", "y", *STORE, code=3).stderr.splitlines()
    assert MOMENT.search(last)
    assert "resume(" not in last, "that is Python"
    again = last[last.index("fsm-agent flows run") :]
    assert "--run-id y" in ran(*shlex.split(again)[1:], code=3).stderr
    assert "y" in ran("runs", "list", *STORE).stdout
    *_, last = ran("flows", "run", "own:naps", '{"n": 1}', code=3).stderr.splitlines()
    assert "--store" in last
    assert "fsm-agent flows run" not in last, "nothing is there to continue"


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize("name", ["asks", "made"])
def test_a_flow_with_a_store_of_its_own_keeps_its_runs_there(name: str):
    flow = f"own:{name}"
    waiting = ran("flows", "run", flow, '{"n": 1}', "--run-id", "x", code=3).stderr
    assert MOMENT.search(waiting), "it goes on by itself"
    command = waiting.partition("answer with ")[2].strip()
    assert "JSON" in command
    told = ran(*shlex.split(command.replace("JSON", "true"))[1:])
    assert "answer:review#1" in told.stdout
    again = told.stderr.partition("to continue: ")[2].strip()
    assert ran(*shlex.split(again)[1:]).stdout.startswith("done\n")
    assert "x" in ran("runs", "list", "--store", "own.db" if name == "asks" else "made.db").stdout


@pytest.mark.parametrize("named", ["ours:asks", "ours"])
def test_an_approval_of_a_flow_whose_store_is_made_by_code_is_given_as_the_command_says(here: Path, named: str):
    (here / "ours.py").write_text(
        "from fsm_agent import Agent, SqliteStore, function\n"
        "from fsm_agent.flows import Flow, ask, end\n"
        "from fsm_agent.testing import Script, function_call\n"
        "@function(needs_approval=True)\n"
        "def look(): return 'X'\n"
        "@ask(Agent(Script(function_call('look'), 'It is X.'), functions=[look], name='asker'))\n"
        "def asking(about: str): return about\n"
        "asks = Flow('asks', str, start=asking, rows=[asking.done(end('done'))], store=SqliteStore('made.db'))\n"
    )
    waiting = ran("flows", "run", named, '"x"', "--run-id", "r", code=3).stderr
    command = waiting.partition("answer with ")[2].strip()
    assert "approve" in ran(*shlex.split(command)[1:]).stdout


@pytest.mark.usefixtures("_own")
def test_a_run_of_no_store_cannot_be_answered():
    assert "--store" in refused("flows", "answer", "own:naps", "x", "nap", "true", code=2)


def test_a_run_without_a_key_or_with_wrong_data_is_not_begun(here: Path):
    refused(*RUN, '{"abut": "x"}', "--run-id", "l1", *STORE, code=2)
    assert not (here / "runs.db").exists()
    sys.modules.pop("post")
    (here / "post.py").write_text(MODULE.replace('Script(*["Dear friend"] * 9)', '"groq:m"'))
    assert "GROQ_API_KEY" in refused(*RUN, '{"about": "x"}', "--run-id", "l1", *STORE)
    assert not (here / "runs.db").exists()
