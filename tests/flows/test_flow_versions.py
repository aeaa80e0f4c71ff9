"""Do runs of flows that wait survive changes of the code, and are damaged documents refused?"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from deep_flow import Order, documents, outcome_for, over, shop, walk, wanted

from fsm_agent import Agent, MemoryStore, Reply
from fsm_agent.call import Begun, FunctionFailed, Replied, Returned, Started
from fsm_agent.errors import JournalError, OutcomeError, SnapshotError
from fsm_agent.flows import Flow, FlowError, FlowSuspended, ask, each, end, execute, gather, renamed, subflow, wait
from fsm_agent.testing import Script


@dataclass(frozen=True)
class Old:
    text: str = ""


@dataclass(frozen=True)
class New:
    words: str
    n: int = 0


person = wait(str, name="person", within_s=10**6)(lambda d: "?")
somebody = wait(str, name="somebody", within_s=10**6)(lambda d: "?")
old = Flow("letters", Old, start=person, rows=[person.done(over, do=lambda d, a: Old(a))])


def brought_up(record: dict[str, Any]) -> dict[str, Any]:
    return {**renamed(person="somebody")(record), "data": {"words": record["data"]["text"], "n": 17}}


new = Flow(
    "letters", New, start=somebody, rows=[somebody.done(over, do=lambda d, a: New(a, d.n))],
    version=2, upgrades={1: brought_up},
)  # fmt: skip


class TestStored:
    """A run that waits in a store under version 1, and code of version 2."""

    @pytest.fixture
    def flows(self) -> tuple[Flow[Old], Flow[New]]:
        store = MemoryStore()
        before = replace(old, store=store)
        with pytest.raises(FlowSuspended):
            before.call(Old("x"), run_id="r")
        return before, replace(new, store=store)

    @pytest.mark.parametrize("whom", [somebody, "answer:somebody#1", "answer:person#1"])
    def test_it_is_brought_up_and_answered_at_once(self, whom: Any, flows: tuple[Flow[Old], Flow[New]]) -> None:
        result = flows[1].runs.resume("r", {whom: "y"})
        assert (result.output, result.record.version) == (New("y", 17), 2)

    def test_an_answer_that_is_none_changes_nothing(self, flows: tuple[Flow[Old], Flow[New]]) -> None:
        before, after = flows
        for answers in ({somebody: 17}, {person: "y"}, {"answer:nobody#1": "y"}):
            with pytest.raises(OutcomeError):
                after.runs.resume("r", answers)
        assert not before.runs.all.store.load("r").signals
        assert before.runs.resume("r", {person: "y"}).output == Old("y")

    def test_an_answer_to_the_older_question_is_not_lost(self, flows: tuple[Flow[Old], Flow[New]]) -> None:
        before, after = flows
        before.runs.all.answer("r", {"answer:person#1": Returned(text='"by mail"')})
        assert after.runs.resume("r").output == New("by mail", 17)

    def test_older_code_refuses_a_newer_run(self, flows: tuple[Flow[Old], Flow[New]]) -> None:
        before, after = flows
        with pytest.raises(FlowSuspended):
            after.runs.resume("r")
        with pytest.raises(JournalError, match=r"letters.*2"):
            before.runs.resume("r")


def test_the_states_inside_are_found_by_their_names_of_now() -> None:
    """Among members, in flows in flows, and where two states have changed their names with each other."""

    def flow_of(is_new: bool, store: Any) -> tuple[Flow[Old], Any, Any]:
        asks_int, asks_str = [
            wait(kind, name=name)(lambda d: "?")
            for kind, name in ([(int, "two"), (str, "one")] if is_new else [(int, "one"), (str, "two")])
        ]

        rows = [
            asks_int.done(asks_str, do=lambda d, n: Old(f"{d.text}{n}")),
            asks_str.done(over, do=lambda d, a: Old(d.text + a)),
        ]
        upgrades = {1: renamed(one="two", two="one")} if is_new else {}
        inner = Flow("inner", Old, start=asks_int, rows=rows, version=1 + is_new, upgrades=upgrades)
        nested = subflow("nested", inner, lambda d: d)
        other = wait(bool, name="other")(lambda d: "?")
        both = gather("both", nested, other)
        return (
            Flow("outer", Old, start=both, rows=[both.done(over, do=lambda d, a: a[0])], store=store),
            asks_int,
            asks_str,
        )

    store = MemoryStore()
    before, *_ = flow_of(False, store)
    with pytest.raises(FlowSuspended):
        before.call(Old("x"), run_id="r")
    after, asks_int, asks_str = flow_of(True, store)
    with pytest.raises(OutcomeError, match="one"):
        after.runs.resume("r", {asks_str: "y"})
    with pytest.raises(FlowSuspended, match="both#1/nested/answer:one#2"):
        after.runs.resume("r", {asks_int: 7, "both#1/answer:other": True})
    assert after.runs.resume("r", {asks_str: "y"}).output == Old("x7y")


def waiting(flow: Flow[Any], data: Any) -> Any:
    run = flow.prepare(data)
    run.advance("begin", Begun(at_s=0.0, id="r"))
    return run


class TestChanged:
    def test_a_name_that_no_upgrade_gave_is_still_foreign(self) -> None:
        run = new.restore(waiting(old, Old("x")).snapshot())
        with pytest.raises(OutcomeError):
            run.advance("answer:nobody#1", Returned(text='"y"'))
        with pytest.raises(OutcomeError):
            run.advance("answer:person#2", Returned(text='"y"'))
        with pytest.raises(OutcomeError, match="answer:salesperson#1"):  # it ends alike
            run.advance("answer:salesperson#1", Returned(text='"y"'))
        run = new.restore(run.snapshot())
        run.advance("answer:person#1", Returned(text='"y"'))
        assert (run.state, run.data) == ("over", New("y", 17))

    def test_an_answer_of_two_versions_ago_is_taken_though_the_run_was_kept_in_between(self) -> None:
        def letters(version: int, name: str) -> Flow[Old]:
            asks = wait(str, name=name)(lambda d: "?")
            all_upgrades = {1: renamed(person="clerk"), 2: renamed(clerk="boss")}
            upgrades = {before: upgrade for before, upgrade in all_upgrades.items() if before < version}
            rows = [asks.done(over, do=lambda d, a: Old(a))]
            return Flow("letters", Old, start=asks, rows=rows, version=version, upgrades=upgrades)

        first, second, third = [letters(n, name) for n, name in enumerate(("person", "clerk", "boss"), 1)]
        run = third.restore(second.restore(waiting(first, Old("x")).snapshot()).snapshot())
        run.advance("answer:person#1", Returned(text='"y"'))
        assert (run.state, run.data) == ("over", Old("y"))

    def test_a_new_field_with_a_default_needs_no_version(self) -> None:
        @dataclass(frozen=True)
        class Longer:
            text: str = ""
            extra: int = 5

        longer = Flow("letters", Longer, start=person, rows=[person.done(over)])
        assert longer.restore(waiting(old, Old("x")).snapshot()).data == Longer("x", 5)

    def test_a_state_of_another_kind_is_refused(self) -> None:
        other = subflow("person", old, lambda d: d)
        changed = Flow("letters", Old, start=other, rows=[other.done(over)])
        with pytest.raises(SnapshotError, match="person"):
            changed.restore(waiting(old, Old("x")).snapshot())

    def test_members_that_are_gone_are_refused_and_new_ones_begin_with_the_next_run(self) -> None:
        a, b, c = [wait(str, name=name)(lambda d: "?") for name in "abc"]

        def of(*members: Any) -> Flow[Old]:
            both: Any = gather("both", *members)
            return Flow("f", Old, start=both, rows=[both.done(over)])

        run = waiting(of(a, b), Old())
        run.advance("both#1/answer:a", Returned(text='"x"'))
        document = run.snapshot()
        with pytest.raises(SnapshotError, match="'b'"):
            of(a, c).restore(document)
        more = of(a, b, c).restore(document)
        assert [e.key for e in more.effects] == ["both#1/answer:b"]
        more.advance("both#1/answer:b", Returned(text='"y"'))
        assert [e.key for e in more.effects] == ["both#1/answer:c"], "the record began two of now three"
        with pytest.raises(SnapshotError, match="'c'"):
            of(a, c, b).restore(document)  # or b would begin twice, and c never

    def test_members_that_are_miscounted_are_refused(self) -> None:
        a, b = [wait(str, name=name)(lambda d: "?") for name in "ab"]
        both = gather("both", a, b)
        flow = Flow("f", Old, start=both, rows=[both.done(over)])
        document = waiting(flow, Old()).snapshot()
        assert '"begun":2' in document
        with pytest.raises(SnapshotError, match="both"):
            flow.restore(document.replace('"begun":2', '"begun":1'))

    def test_items_that_are_fewer_now_are_refused(self) -> None:
        one = wait(str, name="one")(lambda n: "?")

        def of(count: int) -> Flow[Old]:
            many = each("many", one, lambda d: range(count))
            return Flow("f", Old, start=many, rows=[many.done(over)])

        document = waiting(of(3), Old()).snapshot()
        with pytest.raises(SnapshotError, match="'2'"):
            of(2).restore(document)

    def test_a_flow_inside_has_a_version_of_its_own(self) -> None:
        """Restored under the new one its answers come under the names of before, and of now."""

        def around(inner: Flow[Any], data: Any) -> Flow[Order]:
            at = subflow("at", inner, lambda o: data)
            return Flow("outer", Order, start=at, rows=[at.done(over)])

        outer = [around(old, Old("x")), around(new, New("x"))]
        document = waiting(outer[0], Order()).snapshot()
        run = outer[1].restore(document)
        assert [e.key for e in run.effects] == ["at#1/answer:somebody#1", "at#1/sleep:somebody#1"]
        assert run.record.children["at#1"].version == 2
        for name in ("person", "somebody"):
            run = outer[1].restore(document)
            run.advance(f"at#1/answer:{name}#1", Returned(text='"y"'))
            assert run.state == "over"
        with pytest.raises(SnapshotError, match="version 1"):
            around(replace(new, upgrades={}), New("x")).restore(document)

    @pytest.mark.parametrize(
        "upgrade", [lambda r: None, lambda r: 17, lambda r: {**r, "state": 5}, lambda r: r["gone"]]
    )
    def test_an_upgrade_that_gives_nothing_is_named(self, upgrade: Any) -> None:
        bad = replace(new, upgrades={1: upgrade})
        with pytest.raises(SnapshotError, match="letters"):
            bad.restore(waiting(old, Old("x")).snapshot())


NAMES = {"person": "customer", "both": "drafts", "warmly": "kindly", "acting": "sending", "lost": "given_up"}


def flow_of_names(names: dict[str, str], **options: Any) -> tuple[Flow[Old], dict[str, Any]]:
    """A flow of states of all kinds, under the names that are given."""
    called = {name: names.get(name, name) for name in (*NAMES, "tersely")}
    asking = wait(str, name=called["person"])(lambda d: "person#1?")
    members = [wait(str, name=called[name])(lambda d: "?") for name in ("warmly", "tersely")]
    model = ask(Agent(Script("?"), name="bot"), name="asked")(lambda d: "person")
    both: Any = gather(called["both"], *members, subflow("nested", inner_flow, lambda d: 1), model)

    def act(d: Old) -> str:
        return d.text

    acting = execute(name=called["acting"], once=True)(act)
    rows = [
        asking.done(both, do=lambda d, a: Old(f"{a} person#1 warmly")),
        both.done(acting, do=lambda d, a: Old(f"{d.text} {a[0]}")),
        acting.done(over),
        acting.failed(end(called["lost"], failed=True)),
    ]
    states = {"person": asking, "both": both, "warmly": members[0], "tersely": members[1], "acting": acting}
    return Flow("names", Old, start=asking, rows=rows, **options), states


asks_warmly = wait(int, name="warmly")(lambda n: "?")
inner_flow = Flow("inner", int, start=asks_warmly, rows=[asks_warmly.done(end("over"))])
PLACES = ("person", "both", "one of both", "acting", "acting in doubt", "lost")


def at_place(flow: Flow[Old], states: dict[str, Any], place: str) -> Any:
    """Return a run that has come to a place."""
    run = waiting(flow, Old())
    if place != "person":
        run.give(states["person"], "warmly", at_s=1.0)
    if place not in ("person", "both"):
        run.give(states["warmly"], "person", at_s=2.0)
    if place in PLACES[3:]:
        run.give(states["tersely"], "x", at_s=3.0)
        run.give(asks_warmly, 5, at_s=4.0)
        (asked,) = [child for child in run.record.children[run.record.here].children if child == "asked"]
        run.advance(f"{run.record.here}/{asked}/model:0", Replied(reply=Reply.of("y"), at_s=5.0))
    if place in PLACES[4:]:
        (effect,) = run.effects
        run.advance(effect.key, Started(at_s=6.0))
    if place == "lost":
        (effect,) = run.effects
        run.advance(effect.key, FunctionFailed(text="no", at_s=7.0))
    return run


class TestRenamed:
    @pytest.mark.parametrize("place", PLACES)
    def test_a_run_is_as_if_it_had_begun_under_the_new_names(self, place: str) -> None:
        """But for the ids that its calls have got: keys of idempotency are among what they make."""
        before = at_place(*flow_of_names({}), place)
        flow, states = flow_of_names(NAMES, version=2, upgrades={1: renamed(**NAMES)})
        run, whole = flow.restore(before.snapshot()), at_place(flow, states, place)
        assert list(run.record.trace) == list(whole.record.trace)
        assert [effect.key for effect in run.effects] == [effect.key for effect in whole.effects]
        assert (run.record.state, run.record.once, [*run.record.children], run.record.ending) == (
            *(whole.record.state, whole.record.once, [*whole.record.children], whole.record.ending),
        )
        for name, child in run.record.children.items():
            assert list(child.trace) == list(whole.record.children[name].trace)
            assert child.settled == whole.record.children[name].settled
        assert run.data == before.data == whole.data
        assert flow.restore(run.snapshot()).record == run.record

    def test_answers_come_by_the_path_of_before(self) -> None:
        before = at_place(*flow_of_names({}), "both")
        flow, _ = flow_of_names({"both": "drafts"}, version=2, upgrades={1: renamed(both="drafts")})
        for key in ("both#2/nested/answer:warmly#1", "drafts#2/nested/answer:warmly#1"):
            run, answer = flow.restore(before.snapshot()), Returned(text="5")
            assert run.decode(key, run.encode(key, answer)) == answer
            run.advance(key, answer)
            assert [*run.record.children["drafts#2"].settled] == ["nested"]
        for key in ("both#2/answer:tersely", "both#2/asked/model:0"):
            flow.restore(before.snapshot()).owner(key)

    @pytest.mark.parametrize("states", [{}, {"person": 5}, {"person": "a b"}])
    def test_what_is_no_name_is_refused(self, states: Any) -> None:
        with pytest.raises(FlowError, match="renamed"):
            renamed(**states)


class TestDamaged:
    def test_each_beginning_of_a_document_is_refused(self) -> None:
        """Of one in the midst of flows in flows, at every length; of the others, at some."""
        texts = documents()
        whole = max(texts[: len(texts) // 2], key=len)
        for text, step in [(whole, 1), *[(other, 41) for other in texts]]:
            for length in range(0, len(text), step):
                with pytest.raises(SnapshotError):
                    shop.restore(text[:length])

    def test_each_part_of_a_document_in_another_ones_place_is_refused_or_read(self) -> None:
        """The only error is a `SnapshotError`.  Everything that is read has effects, and can be saved or says that it
        cannot.
        """
        chosen = random.Random(3)
        values = (None, "x", -1, 10**30, 1.5, True, [], {}, [1], {"x": 1}, "\ud800", float("nan"))
        read = refused = 0
        for text in documents()[2::8]:
            document = json.loads(text)
            for path in [path for path in paths(document) if path and ("trace" not in path or chosen.random() < 0.1)]:
                for value in chosen.sample(values, 2):
                    try:
                        run = shop.restore(json.dumps(put(document, path, value)))
                    except SnapshotError:
                        refused += 1
                        continue
                    read += 1
                    _ = run.effects, run.deadline
                    try:
                        again = shop.restore(run.snapshot())
                    except SnapshotError:
                        continue
                    assert again.record == run.record or value == "\ud800", path  # which is written as a mark
        assert refused > 5 * read

    def test_an_agent_call_inside_that_contradicts_itself_is_refused(self) -> None:
        document = json.loads(at_place(*flow_of_names({}), "both").snapshot())
        path = ("record", "children", "both#2", "children", "asked", "turn")
        with pytest.raises(SnapshotError, match="names"):
            flow_of_names({})[0].restore(json.dumps(put(document, path, 7)))

    @pytest.mark.parametrize(
        ("place", "changes", "problem"),
        [
            ("person", {"once": {}}, "person#1"),
            ("person", {"ending": {"state": "over"}}, "person"),
            ("lost", {"ending": None}, "lost"),
            ("both", {"children": {}, "once": {"both#2": {}}}, "both"),
            ("person", {"once": {"acting#1": {}}}, "acting#1"),
            ("person", {"state": "acting"}, "acting"),
        ],
    )
    def test_a_record_that_contradicts_itself_is_refused(self, place: str, changes: Any, problem: str) -> None:
        flow, states = flow_of_names({})
        document = json.loads(at_place(flow, states, place).snapshot())
        document["record"] |= changes
        with pytest.raises(SnapshotError, match=problem):
            flow.restore(json.dumps(document))

    def test_a_part_that_is_missing_is_refused_or_has_its_default(self) -> None:
        document = json.loads(documents()[6])
        for path in [path for path in paths(document) if path and isinstance(path[-1], str)]:
            try:
                run = shop.restore(json.dumps(put(document, path, None, gone=True)))
            except SnapshotError:
                continue
            _ = run.effects
            assert shop.restore(run.snapshot()).record == run.record


def paths(document: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield before
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, part in inside:
        yield from paths(part, (*before, name))


def put(document: Any, path: tuple[Any, ...], value: Any, gone: bool = False) -> Any:
    document = copy.deepcopy(document)
    part = document
    for name in path[:-1]:
        part = part[name]
    if gone:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return document


def test_restored_at_every_place_it_ends_as_it_would_have() -> None:
    (whole, _) = list(walk(1))[-1]
    for place, document in enumerate(documents()):
        run = shop.restore(document)
        assert run.snapshot() == document
        while run.effects:
            effect = wanted(run)[0]
            if effect.prefix == "reconcile":
                run.advance(effect.key, Returned(text='"sent"', at_s=2.0))
                continue
            run.advance(effect.key, outcome_for(effect))
            run = shop.restore(run.snapshot())
        assert run.record == whole.record, place
