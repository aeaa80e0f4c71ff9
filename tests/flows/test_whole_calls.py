"""Does a state give the whole result of its agent call, by every driver, through JSON, and among others?"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from flow_runs import Driver, everywhere

from fsm_agent import Agent, CallResult, Dialog, Message, Reply, SqliteStore
from fsm_agent.call import Begun, Returned
from fsm_agent.errors import OutcomeError
from fsm_agent.flows import Flow, FlowError, FlowSuspended, ask, each, end, gather, race, wait
from fsm_agent.testing import Script, example_result, function_call


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True)
class Talk:
    topic: str = "tea"
    dialog: Dialog = field(default_factory=Dialog)
    messages: tuple[Message, ...] = ()
    said: tuple[str, ...] = ()
    tokens: int = 0


def look(what: str) -> str:
    """Look something up."""
    return f"{what} is hot"


first = Agent("openai:gpt-5-mini", name="first", functions=[look], system="You are the first.")
second = Agent("openai:gpt-5-mini", name="second", system="You are the second.")
over, bad = end("over"), end("bad")


@ask(first, whole=True)
def opening(t: Talk) -> str:
    return f"Talk about {t.topic}."


@ask(second, Mood, whole=True)
def closing(t: Talk) -> Dialog:
    return t.dialog.put("How was it?")


def keep(t: Talk, a: CallResult[Any]) -> Talk:
    said = (*t.said, str(a.output), *[f.name for f in a.function_calls])
    return replace(t, dialog=a.dialog, messages=tuple(a.dialog), said=said, tokens=t.tokens + len(a.trace))


talking = Flow(
    "talking",
    Talk,
    start=opening,
    rows=[
        opening.done(closing, do=keep),
        closing.done(over, of=Mood.GOOD, do=keep),
        closing.done(bad, of=Mood.BAD, do=keep),
    ],
)


def models(mood: str = '"good"') -> dict[Any, Script]:
    return {opening: Script(function_call("look", what="tea"), "Tea it is."), closing: Script(mood)}


def result_of(agent: Agent[Any, Any], *replies: Any) -> CallResult[Any]:
    return agent.call("Go", model=Script(*replies))


class TestWhole:
    @everywhere
    def test_the_dialog_goes_on_in_the_next_state(self, driven: Driver) -> None:
        scripts = models()
        run = talking.prepare(Talk(), clients=scripts)
        driven(talking, run)
        assert run.state == "over"
        assert run.data.said == ("Tea it is.", "look", "Mood.GOOD")
        (request,) = scripts[closing].requests
        roles = [message.role for message in request.messages]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
        assert request.messages[0].text.startswith("You are the second."), "its own, and not the first's"
        assert run.data.messages == tuple(run.data.dialog)
        assert run.data.tokens > 3

    def test_a_stored_run_continues_with_the_dialog(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "runs.db")

        @wait(bool)
        def person(t: Talk) -> str:
            return "Go on?"

        flow = Flow(
            "stored",
            Talk,
            start=opening,
            store=store,
            rows=[opening.done(person, do=keep), person.done(closing), closing.done(over, do=keep)],
        )
        with pytest.raises(FlowSuspended) as waiting:
            flow.call(Talk(), run_id="a", clients=models())
        before = waiting.value.run.data
        result = flow.runs.resume("a", {person: True}, clients=models())
        assert result.output.dialog.messages[: len(before.dialog)] != ()
        assert result.output.said == ("Tea it is.", "look", "Mood.GOOD")


def refusal() -> Reply:
    return Reply(message=Message.of("assistant", "no"), finish="refusal", refusal="no")


class TestSpokenFor:
    def test_a_result_is_given_by_hand_and_as_json(self) -> None:
        result = result_of(first, "by hand")
        run = talking.prepare(Talk())
        run.advance("begin", begun())
        run.give(opening, result)
        assert run.data.said == ("by hand",)
        again = talking.prepare(Talk())
        again.advance("begin", begun())
        again.advance("opening#1", Returned(text=opening.answer_types.dump(result)))
        assert again.record.data == run.record.data

    def test_a_result_that_nobody_made_is_kept_as_any_other(self) -> None:
        run = talking.prepare(Talk())
        run.advance("begin", begun())
        run.give(opening, example_result("Tea it is.", dialog=Dialog().put("Talk about tea.")))
        again = talking.restore(run.snapshot())
        assert again.data == run.data
        assert [m.text for m in again.data.dialog] == ["Talk about tea.", "Tea it is."]
        again.give(closing, example_result(Mood.GOOD))
        assert again.state == "over"

    def test_what_is_no_such_result_is_refused(self) -> None:
        run = talking.prepare(Talk())
        run.advance("begin", begun())
        before = run.record
        for value in ("an output alone", Agent(Script("7"), output=int).call("Go")):
            with pytest.raises(OutcomeError, match="opening"):
                run.give(opening, value)
        assert run.record is before

    @pytest.mark.parametrize("text", ['"an output alone"', "{", "{}", "null"])
    def test_json_that_is_no_result_is_refused(self, text: str) -> None:
        run = talking.prepare(Talk())
        run.advance("begin", begun())
        with pytest.raises(OutcomeError, match="CallResult"):
            run.advance("opening#1", Returned(text=text))

    def test_a_record_that_contradicts_itself_is_refused(self) -> None:
        record = json.loads(opening.answer_types.dump(result_of(first, "by hand")))
        del record["trace"]
        with pytest.raises(OutcomeError, match="Completed"):
            opening.answer_types.load(json.dumps(record))


def begun() -> Begun:
    return Begun(at_s=1.0, id="r")


@ask(second, whole=True)
def other(t: Talk) -> str:
    return f"And you, about {t.topic}?"


@ask(second)
def plain(t: Talk) -> str:
    return "Plainly."


class TestAmongOthers:
    @everywhere
    def test_at_once(self, driven: Driver) -> None:
        both = gather("both", opening, other, plain)

        def join(t: Talk, a: tuple[CallResult[str], CallResult[str], str]) -> Talk:
            x, y, z = a
            return replace(t, dialog=x.dialog, messages=tuple(y.dialog), said=(x.output, y.output, z))

        flow = Flow("both_at_once", Talk, start=both, rows=[both.done(over, do=join)])
        run = flow.prepare(Talk(), clients={opening: Script("x"), other: Script("y"), plain: Script("z")})
        driven(flow, run)
        assert run.data.said == ("x", "y", "z")
        assert (run.data.dialog[-1].text, run.data.messages[-1].text) == ("x", "y")

    @pytest.mark.parametrize("settled", [False, True])
    def test_one_for_each(self, settled: Any) -> None:
        @ask(second, whole=True)
        def about(topic: str) -> str:
            return topic

        all_of = each("all_of", about, lambda t: ["tea", "milk"], settled=settled)
        rows = [all_of.done(over, do=lambda t, a: replace(t, said=tuple([r.output + r.dialog[1].text for r in a])))]
        flow = Flow("for_each", Talk, start=all_of, rows=rows)
        assert flow.call(Talk(), clients={about: Script("1", "1")}).output.said == ("1tea", "1milk")

    def test_the_first_of_several(self) -> None:
        fastest = race("fastest", opening, plain)
        rows = [
            fastest.done(bad, of=str),
            fastest.done(over, do=lambda t, a: replace(t, said=(a if isinstance(a, str) else a.output,))),
        ]
        flow = Flow("racing", Talk, start=fastest, rows=rows)
        result = flow.call(Talk(), clients={opening: Script("x"), plain: Script(refusal())})
        assert (result.state, result.output.said) == ("over", ("x",))
        result = flow.call(Talk(), clients={opening: Script(refusal()), plain: Script("z")})
        assert result.state == "bad"


def by_topic(t: Talk) -> Agent[Any, Any] | str:
    return first if t.topic == "tea" else "other"


@ask("speaker", str, whole=True)
def by_role(t: Talk) -> str:
    return f"Talk about {t.topic}."


@ask(by_topic, str, whole=True)
def chosen(t: Talk) -> str:
    return f"Talk about {t.topic}."


@ask(by_topic, int, Mood, whole=True)
def graded(t: Talk) -> str:
    return "A grade?"


class TestAgentsOfRunTime:
    """An agent by its role, or one that the data choose, gives its whole result as one that is named does."""

    def flow(self, state: Any, **options: Any) -> Flow[Talk]:
        rows = [state.done(closing, do=keep), closing.done(over, do=keep)]
        return Flow("late", Talk, start=state, rows=rows, agents={"speaker": first, "other": second}, **options)

    @everywhere
    @pytest.mark.parametrize(("state", "topic"), [(by_role, "tea"), (chosen, "tea"), (chosen, "milk")])
    def test_the_dialog_goes_on_as_of_one_that_is_named(self, state: Any, topic: str, driven: Driver) -> None:
        looking = [function_call("look", what="tea")] if topic == "tea" else []
        scripts = {state: Script(*looking, "It is."), closing: Script('"good"')}
        flow = self.flow(state)
        run = flow.prepare(Talk(topic), clients=scripts)
        driven(flow, run)
        assert run.data.said == ("It is.", *(["look"] * len(looking)), "Mood.GOOD")
        assert scripts[state].requests[0].messages[0].text.startswith("You are the first" if topic == "tea" else "You")
        assert [f.name for f in scripts[state].requests[0].functions] == (["look"] if topic == "tea" else [])

    def test_it_waits_among_others_and_is_read_again(self) -> None:
        @wait(str)
        def person(t: Talk) -> str:
            return "?"

        both = gather("both", chosen, graded, person)
        rows = [both.done(over, do=lambda t, a: replace(t, dialog=a[0].dialog, said=(str(a[1].output), a[2])))]
        flow = Flow("late", Talk, start=both, rows=rows, agents={"other": second})
        clients = {chosen: Script("It is."), graded: Script("7")}
        with pytest.raises(FlowSuspended) as waiting:
            flow.call(Talk("milk"), clients=clients)
        run = flow.restore(waiting.value.run.snapshot())
        run.give(person, "well")
        assert run.data.dialog[-1].text == "It is."
        assert run.data.said[1] == "well"

    @pytest.mark.parametrize("outcome", ["7", '"good"'])
    def test_rows_tell_outputs_apart(self, outcome: str) -> None:
        rows = [graded.done(bad, of=int), graded.done(over, of=Mood)]
        flow = Flow("graded", Talk, start=graded, rows=rows)
        result = flow.call(Talk(), clients={graded: Script(outcome)})
        assert result.state == ("bad" if outcome == "7" else "over")

    def test_an_agent_that_gives_another_type_is_refused(self) -> None:
        counting = Agent("openai:gpt-5-mini", name="counting", output=int)
        with pytest.raises(FlowError, match=r"speaker.*int"):
            self.flow(by_role).bound(speaker=counting)
        late = ask(lambda t: counting, str, name="late")(lambda t: "?")
        for state in (chosen, late):
            flow = Flow("f", Talk, start=state, rows=[state.done(over)], agents={"other": counting})
            with pytest.raises(FlowError, match=f"{state.name}.*int"):
                flow.call(Talk("milk"), clients={state: Script("7")})


class TestDefinition:
    @pytest.mark.parametrize("whole", [False, True])
    def test_a_function_that_chooses_needs_types(self, whole: Any) -> None:
        with pytest.raises(FlowError, match="by_topic"):
            ask(by_topic, whole=whole)
        with pytest.raises(FlowError, match="'x'"):
            ask("x", whole=whole)
        with pytest.raises(FlowError, match="5"):
            ask(5, str, whole=whole)
