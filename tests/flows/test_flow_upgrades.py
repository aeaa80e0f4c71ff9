"""Does a run in a flow with other names and fields have the same result?"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from fsm_agent import Agent, MemoryStore
from fsm_agent.call import Begun, CallModel, FunctionFailed, Replied, Returned, Slept, Started, StartFunction
from fsm_agent.errors import JournalError, OutcomeError, SnapshotError
from fsm_agent.flows import (
    Flow,
    FlowError,
    FlowSuspended,
    ask,
    each,
    end,
    execute,
    gather,
    race,
    renamed,
    reshaped,
    subflow,
    wait,
)
from fsm_agent.messages import Reply
from fsm_agent.testing import Script

# Names: a random flow, renamed at random in the middle of a run


@dataclass(frozen=True)
class Log:
    entries: tuple[str, ...] = ()


bot = Agent(Script(), name="bot")


def words(log: Log) -> str:
    return f"person#1 {len(log.entries)}"


def act(log: Log) -> str:
    return "acted"


def act_alone(log: str) -> str:
    return "acted"


def noted(log: Log, answer: Any) -> Log:
    return Log((*log.entries, repr(answer)))


class RandomNames:
    """Draws a flow of states of all kinds; the same seed draws the same flow, under the names that are given."""

    def __init__(self, seed: int, names: dict[str, str]) -> None:
        self.random = Random(seed)
        self.names = names
        self.used: list[str] = []

    def name(self) -> str:
        self.used.append(name := f"s{len(self.used)}")
        return self.names.get(name, name)

    def single(self) -> Any:
        kind = self.random.randrange(4)
        name = self.name()
        if kind == 0:
            return wait(str, name=name)(words)
        if kind == 1:
            return ask(bot, name=name)(words)
        return execute(name=name, once=kind == 2)(act)

    def state(self) -> Any:
        kind = self.random.randrange(7)
        if kind == 0:
            return gather(self.name(), self.single(), self.single(), subflow(self.name(), INNER, lambda log: "x"))
        if kind == 1:
            one, other = wait(str, name=self.name())(words), ask(bot, name=self.name())(words)
            return race(self.name(), one, other)
        if kind == 2:
            member = execute(name=self.name(), once=self.random.random() < 0.5)(act_alone)
            return each(self.name(), member, lambda log: ("a", "b", "c"), parallel=2)
        if kind == 3:
            return subflow(self.name(), INNER, lambda log: "x")
        if kind == 4:
            return wait(str, name=self.name(), within_s=5)(words)
        return self.single()

    def flow(self, **options: Any) -> Flow[Log]:
        states = [self.state() for _ in range(self.random.randint(2, 5))]
        over, lost = end(self.name()), end(self.name(), failed=True)
        rows: list[Any] = []
        for state, after in zip(states, [*states[1:], over], strict=True):
            rows.append(state.done(after, do=noted))
            if "failed" in state.triggers:
                rows.append(state.failed(self.random.choice([after, lost]), do=noted))
            if state.within_s:
                rows.append(state.elapsed(after, do=noted))
        return Flow("random", Log, start=states[0], rows=rows, **options)


asking = wait(str, name="s0")(lambda text: "?")
INNER = Flow("inner", str, start=asking, rows=[asking.done(end("said"), do=lambda text, a: text + a)])


def outcome_for(effect: Any, random: Random) -> Any:
    """Return an outcome that says nothing of names."""
    if effect.prefix == "begin":
        return Begun(at_s=1.0, id="r")
    if isinstance(effect, CallModel):
        return Replied(reply=Reply.of("fine"), at_s=2.0)
    if isinstance(effect, StartFunction):
        return Started(at_s=2.0)
    if effect.prefix == "sleep":
        return Slept(at_s=effect.until_s)
    if effect.prefix == "run" and random.random() < 0.15:
        return FunctionFailed(text="broken", at_s=2.0)
    return Returned(text='"said"', at_s=2.0)


def step(run: Any, random: Random) -> None:
    effects = run.effects
    effect = effects[random.randrange(len(effects))]
    run.advance(effect.key, outcome_for(effect, random))


def told(run: Any, names: dict[str, str]) -> Any:
    """Return a run in words, under other names."""

    def now(text: str) -> str:
        return re.sub(r"\bs\d+\b", lambda found: names.get(found[0], found[0]), text)

    trace = [(now(s.source), s.trigger, now(s.to), now(s.key), s.detail and "…") for s in run.record.trace]
    entries = [re.sub(r"where='\w*'", "", entry) for entry in run.data.entries]
    return now(run.state), entries, trace


SEEDS = [range(25), pytest.param(range(25, 600), marks=pytest.mark.nightly)]


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_a_run_that_is_renamed_comes_to_the_same_end(seeds: range) -> None:
    places = set[type]()
    for seed in seeds:
        chance = Random(seed)
        drawn = RandomNames(seed, {})
        flow = drawn.flow()
        few = chance.sample(drawn.used, chance.randint(1, len(drawn.used)))
        new = [f"t{number}" for number in range(len(few))] if chance.random() < 0.6 else chance.sample(few, len(few))
        names = dict(zip(few, new, strict=True))
        changed = {old: name for old, name in names.items() if old != name} or {drawn.used[0]: "t0"}
        later = RandomNames(seed, changed).flow(version=2, upgrades={1: renamed(**changed)})
        run = flow.prepare(Log())
        for _ in range(chance.randint(1, 12)):
            if run.effects:
                step(run, chance)
        if run.record.ending is None:
            places.add(type(flow.states[run.state]))
        again = later.restore(run.snapshot())
        schedule = chance.random()
        for one in (run, again):
            then = Random(schedule)
            while one.effects:
                step(one, then)
        assert told(run, changed) == told(again, {}), (seed, changed)
        assert later.restore(again.snapshot()).record == again.record
    assert len(places) > 3


# Fields


@dataclass(frozen=True)
class Old:
    text: str = ""
    old: int = 0
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class New:
    words: str
    lang: str
    tags: tuple[str, ...] = ()


person = wait(str, name="person")(lambda d: "?")
customer = wait(str, name="customer")(lambda d: "?")
over = end("over")
helper = reshaped(add={"lang": "en"}, drop=["old"], rename={"text": "words"})


def flow_of(data: Any, upgrades: Any = None, state: Any = person, version: int = 2, **options: Any) -> Flow[Any]:
    is_new = upgrades is not None
    given = {"version": version, "upgrades": upgrades} if is_new else {}
    return Flow("letters", data, start=state, rows=[state.done(over)], **given, **options)


def document(flow: Flow[Any], data: Any) -> str:
    run = flow.prepare(data)
    run.advance("begin", Begun(at_s=1.0, id="r"))
    return run.snapshot()


BEFORE = document(flow_of(Old), Old("x", 5, ("a",)))


def test_fields_are_added_dropped_and_renamed() -> None:
    run = flow_of(New, {1: helper}).restore(BEFORE)
    assert (run.data, run.record.version) == (New("x", "en", ("a",)), 2)
    run.give(person, "y")
    assert run.state == "over"


class Model(BaseModel, frozen=True):
    words: str
    lang: str = "de"


class Pair(NamedTuple):
    words: str


@pytest.mark.parametrize(
    "upgrades", [{1: [renamed(person="customer"), helper]}, {1: [helper, renamed(person="customer")]}]
)
def test_several_helpers_for_one_version(upgrades: Any) -> None:
    run = flow_of(New, upgrades, customer).restore(BEFORE)
    assert (run.state, run.data) == ("customer", New("x", "en", ("a",)))
    run.advance("answer:person#1", Returned(text='"y"'))
    assert run.state == "over"


def test_upgrades_of_several_versions_follow_each_other() -> None:
    upgrades = {
        1: reshaped(drop=["old", "tags"]),
        2: reshaped(rename={"text": "word"}),
        3: reshaped(rename={"word": "words"}),
    }
    assert flow_of(Model, upgrades, version=4).restore(BEFORE).data == Model(words="x", lang="de")


def test_a_run_that_was_only_submitted_is_upgraded_too() -> None:
    store = MemoryStore()
    flow_of(Old, store=store).runs.submit(Old("x", 5, ("a",)), run_id="r")
    flow = flow_of(New, {1: [renamed(person="customer"), helper]}, customer, store=store)
    assert flow.runs.at("r").data == New("x", "en", ("a",))
    with pytest.raises(FlowSuspended):
        flow.runs.resume("r")
    result = flow.runs.resume("r", {customer: "y"})
    assert (result.state, result.output, result.record.version) == ("over", New("x", "en", ("a",)), 2)


def test_what_happened_under_older_names_is_replayed_and_forked() -> None:
    store = MemoryStore()

    def made(first: str, state: Any, **options: Any) -> Flow[str]:
        start = wait(str, name=first)(lambda d: "?")
        rows = [start.done(state, do=lambda d, a: a), state.done(over, do=lambda d, a: d + a)]
        return Flow("letters", str, start=start, store=store, rows=rows, **options)

    old = made("first", person)
    for answer in (None, "x"):
        with pytest.raises(FlowSuspended):
            old.runs.resume("r", answer) if answer else old.call("", run_id="r")
    new = made("beginning", customer, version=2, upgrades={1: renamed(first="beginning", person="customer")})
    assert new.runs.resume("r", "y").output == "xy"
    assert new.runs.replay("r").data == "xy"
    assert new.runs.at("r", "customer#2").data == "x"
    new.runs.fork("r", "customer#2", new_run_id="fork")
    assert new.runs.resume("fork", "z").output == "xz"


def beside(state: Any) -> Any:
    return gather("all_of", state, wait(int, name="other")(lambda n: "?"))


@pytest.mark.parametrize("around", [lambda state: state, beside])
def test_a_flow_inside_and_among_members_is_upgraded_by_itself(around: Callable[[Any], Any]) -> None:
    def outer(inner: Flow[Any], data: Any) -> Flow[int]:
        state = around(subflow("at", inner, lambda n: data))
        return Flow("outer", int, start=state, rows=[state.done(over)])

    kept = document(outer(flow_of(Old), Old("x", 5)), 1)
    run = outer(flow_of(New, {1: helper}), New("never", "used")).restore(kept)
    assert "New(words='x', lang='en'" in repr(run.record)


# What is wrong


@pytest.mark.parametrize(
    ("flow", "name"),
    [
        (lambda: flow_of(New, {1: reshaped(drop=["olt"])}), "olt"),
        (lambda: flow_of(New, {1: reshaped(rename={"txt": "words"})}), "txt"),
        (lambda: flow_of(New, {1: reshaped(add={"tags": []})}), "tags"),
        (lambda: flow_of(New, {1: helper, 2: reshaped(drop=["text"])}, version=3), "version 2"),
        (lambda: flow_of(New, {1: reshaped(drop=["old"], rename={"text": "words"})}), "lang"),
        (lambda: flow_of(New, {1: reshaped(add={"lang": "en"}, rename={"text": "words"})}), "old"),
        (lambda: flow_of(Model), "words"),
        (lambda: flow_of(New, {}), "version 1"),
        (lambda: flow_of(str, {1: helper}), "letters"),
        (lambda: flow_of(New, {1: [helper, lambda record: record["txt"]]}), "version 1.*KeyError.*txt"),
        (lambda: flow_of(New, {1: helper, 2: lambda record: 1 // 0}, version=3), "version 2.*ZeroDivisionError"),
        (lambda: flow_of(New, {1: lambda record: None}), "version 1.*None"),
        (lambda: flow_of(New, {1: lambda record: {}}), "version 1.*state"),
    ],
)
def test_what_is_missing_is_named_with_its_version_and_the_helper(flow: Any, name: str) -> None:
    with pytest.raises(SnapshotError, match=name):
        flow().restore(BEFORE)


def test_a_field_that_is_no_more_is_not_lost_in_silence() -> None:
    @dataclass(frozen=True)
    class Less:
        text: str = ""
        tags: tuple[str, ...] = ()

    with pytest.raises(SnapshotError, match="'old'"):
        flow_of(Less).restore(BEFORE)
    assert flow_of(Less, {1: reshaped(drop=["old"])}).restore(BEFORE).data == Less("x", ("a",))
    store = MemoryStore()
    flow_of(Old, store=store).runs.submit(Old("x", 5), run_id="r")
    with pytest.raises(JournalError, match="'old'"):
        flow_of(Less, store=store).runs.resume("r")


def test_data_without_fields_have_none_to_change() -> None:
    kept = document(flow_of(Pair), Pair("x"))
    with pytest.raises(SnapshotError, match="reshaped"):
        flow_of(Pair, {1: reshaped(add={"lang": "en"})}).restore(kept)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"drop": "old"},
        {"drop": ["a"], "rename": {"a": "b"}},
        {"add": {"b": 1}, "rename": {"a": "b"}},
        {"drop": [5]},
        {"add": {"a": object()}},
    ],
)
def test_what_are_no_fields_is_refused(fields: Any) -> None:
    with pytest.raises((FlowError, ValueError), match="reshaped"):
        reshaped(**fields)


@pytest.mark.parametrize("upgrades", [{1: []}, {1: [5]}, {1: "renamed"}])
def test_upgrades_are_functions_or_lists_of_them(upgrades: Any) -> None:
    with pytest.raises(FlowError, match="upgrades"):
        flow_of(Old, upgrades)


def test_a_value_that_is_added_is_of_each_run_by_itself() -> None:
    value = {"a": [1]}
    upgrade = reshaped(add={"more": value})
    value["a"].append(2)
    assert upgrade({"flow": "f", "data": {}})["data"] == {"more": {"a": [1]}}


@pytest.mark.parametrize("is_inside", [False, True], ids=["alone", "inside"])
def test_a_gather_that_is_renamed_is_replayed(is_inside: bool) -> None:
    """The journal holds the path of each step under the names that its states had."""
    store = MemoryStore()

    def made(group: str, member: str, **options: Any) -> Flow[str]:
        both = gather(group, *[wait(str, name=name)(lambda d: "?") for name in (member, "bob")])
        rows = [both.done(over, do=lambda d, found: "".join(found))]
        if not is_inside:
            return Flow("letters", str, start=both, store=store, rows=rows, **options)
        inner = subflow("inner", Flow("letters", str, start=both, rows=rows, **options), lambda d: d)
        return Flow("outer", str, start=inner, store=store, rows=[inner.done(over, do=lambda d, found: found)])

    old = made("both", "ann")
    with pytest.raises(FlowSuspended):
        old.call("", run_id="r")
    path = "inner#1/both#1" if is_inside else "both#1"
    with pytest.raises(FlowSuspended):
        old.runs.resume("r", {f"{path}/answer:ann": "x"})
    new = made("all_of_them", "anna", version=2, upgrades={1: renamed(both="all_of_them", ann="anna")})
    assert new.runs.resume("r", "y").output == "xy"
    assert new.runs.replay("r").data == "xy"


def test_states_that_swap_their_names_are_replayed() -> None:
    store = MemoryStore()

    def made(first: str, second: str, **options: Any) -> Flow[str]:
        one, two = (wait(str, name=name)(lambda d: "?") for name in (first, second))
        rows = [one.done(two, do=lambda d, a: d + a), two.done(over, do=lambda d, a: d + a)]
        return Flow("letters", str, start=one, store=store, rows=rows, **options)

    old = made("a", "b")
    for answer in (None, "x"):
        with pytest.raises(FlowSuspended):
            old.runs.resume("r", answer) if answer else old.call("", run_id="r")
    new = made("b", "a", version=2, upgrades={1: renamed(a="b", b="a")})
    assert new.runs.resume("r", "y").output == "xy"
    assert new.runs.replay("r").data == "xy"


def test_an_upgrade_lets_no_state_take_the_answer_to_another() -> None:
    """Not even if the key names the step that the run is in."""
    one, two = (wait(str, name=name)(lambda d: "?") for name in ("one", "two"))
    rows = [one.done(two, do=lambda d, a: d + a), two.done(over, do=lambda d, a: d + a)]
    flow = Flow("letters", str, start=one, rows=rows, version=2, upgrades={1: renamed(first="one")})
    with pytest.raises(FlowSuspended) as waiting:
        flow.call("")
    run = waiting.value.run
    run.advance("answer:one#1", Returned(text='"x"'))
    with pytest.raises(OutcomeError, match="no effect has the key 'answer:one#2'"):
        run.advance("answer:one#2", Returned(text='"y"'))


@pytest.mark.parametrize("failing", [KeyError(), KeyError(["n"]), KeyError(1)], ids=["none", "a list", "a number"])
def test_an_unknown_key_is_refused_although_an_upgrade_cannot_be_tried_with_it(failing: KeyError) -> None:
    def upgrade(record: dict[str, Any]) -> dict[str, Any]:
        raise failing

    one = wait(str, name="one")(lambda d: "?")
    flow = Flow("letters", str, start=one, rows=[one.done(over)], version=2, upgrades={1: upgrade})
    with pytest.raises(FlowSuspended) as waiting:
        flow.call("")
    with pytest.raises(OutcomeError, match="no effect has the key 'answer:once#1'"):
        waiting.value.run.advance("answer:once#1", Returned(text='"x"'))


def test_an_upgrade_that_asks_for_ever_more_fields_is_tried_no_longer() -> None:
    def upgrade(record: dict[str, Any]) -> dict[str, Any]:
        return dict(record["data"][f"n{len(record['data'])}"])

    one = wait(str, name="one")(lambda d: "?")
    flow = Flow("letters", str, start=one, rows=[one.done(over)], version=2, upgrades={1: upgrade})
    with pytest.raises(FlowSuspended) as waiting:
        flow.call("")
    with pytest.raises(OutcomeError, match="no effect has the key 'answer:once#1'"):
        waiting.value.run.advance("answer:once#1", Returned(text='"x"'))
