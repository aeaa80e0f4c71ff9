"""Do wrong arguments and data of a flow get an error that names them and what would be right, in words of ours?"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fsm_agent import Agent, Approved, Function, MemoryStore, Retries, UsageError, snapshot
from fsm_agent.errors import FsmAgentError, OutcomeError, SnapshotError
from fsm_agent.flows import (
    Flow,
    FlowError,
    FlowFailed,
    FlowLimits,
    FlowSuspended,
    call,
    each,
    end,
    execute,
    subflow,
    wait,
)
from fsm_agent.functions import Default
from fsm_agent.lifecycle import Begun, Returned
from fsm_agent.store import RunExists, RunUnknown
from fsm_agent.testing import Script
from fsm_agent.testing import call as wants


@dataclass(frozen=True)
class Letter:
    about: str
    n: int = 0


review = wait(Letter, int, name="review")(lambda d: "?")
letters = Flow("letters", Letter, start=review, rows=[review.done(end("over"))])


def made(**options: Any) -> Flow[Letter]:
    return replace(letters, **options)


def begun() -> Any:
    run = letters.seed(Letter("x"))
    run.advance("begin", Begun(at_s=1.0, id="r"))
    return run


ARGUMENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "name": (lambda: made(name=5), "the name of a flow is 5: a text such as 'support' would be right"),
    "rows": (lambda: made(rows=5), "rows of the flow 'letters' is 5: a list of rows would be right"),
    "rows once": (lambda: made(rows=iter(letters.rows)), "rows of the flow 'letters' is <tuple_iterator"),
    "limits": (lambda: made(limits=5), "limits of the flow 'letters' is 5: FlowLimits(steps=100), say, would be right"),
    "steps": (lambda: FlowLimits(steps=0), "limits.steps is 0: a whole number from 1 on would be right"),
    "deadline": (lambda: FlowLimits(deadline_s=-1), "limits.deadline_s is -1: a number of seconds, or None, would be"),
    "never": (lambda: FlowLimits(deadline_s=float("nan")), "limits.deadline_s is nan: a number of seconds, or None,"),
    "version": (lambda: made(version="1"), "version of the flow 'letters' is '1': a whole number from 1 on"),
    "upgrades": (lambda: made(upgrades={"1": str}), "upgrades of the flow 'letters' is {'1': …}: functions by version"),
    "store": (lambda: made(store=5), "store of the flow 'letters' is 5: the path of a file such as 'runs.db'"),
    "approve": (lambda: made(approve=True), "approve of the flow 'letters' is True: a function of a FunctionCall, or"),
    "answer": (lambda: made(answer="yes"), "answer of the flow 'letters' is 'yes': a function of an AwaitAnswer, or"),
    "agents": (lambda: made(agents=[5]), "agents of the flow 'letters' is [5]: a mapping of agents by role"),
    "world": (lambda: made(world={"clok": 5}), "world of the flow 'letters' has no 'clok': did you mean 'clock'?"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_a_flow(name: str) -> None:
    make, problem = ARGUMENTS[name]
    with pytest.raises(UsageError) as error:
        make()
    assert str(error.value).startswith(problem)


DATA: dict[str, tuple[Callable[[], Any], type[FsmAgentError], str]] = {
    "JSON of a person": (
        lambda: letters.data_of('{"abut": 1, "n": "x"}'),
        FlowError,
        """flow 'letters' was given '{"abut": 1, "n": "x"}': JSON of Letter would be right: about: Field required"""
        " (given: {'abut': 1, 'n': 'x'}); n: Input should be a valid integer, unable to parse string as an integer"
        " (given: 'x')",
    ),
    "no JSON": (
        lambda: letters.data_of("{"),
        FlowError,
        "flow 'letters' was given '{': JSON of Letter would be right: ",
    ),
    "half a pair": (lambda: letters.data_of('"\ud800"'), FlowError, "flow 'letters' was given '\"\\ud800\"': JSON of"),
    "a field of another type": (
        lambda: made(store=MemoryStore()).seed(Letter(5)),  # type: ignore[arg-type]
        FlowError,
        "flow 'letters' was given 5 in Letter.about: str would be right",
    ),
    "an answer of several types": (
        lambda: begun().advance("answer:review#1", Returned(text='{"about": 5}')),
        OutcomeError,
        """review was given '{"about": 5}': JSON of Letter | int would be right: Letter.about: Input should be a"""
        " valid string (given: 5); int: Input should be a valid integer (given: {'about': 5})",
    ),
    "a document": (
        lambda: letters.restore(begun().snapshot().replace('"about"', '"abut"')),
        SnapshotError,
        "the snapshot of the flow 'letters' cannot be read: about: Field required (given: {'abut': 'x', 'n': 0})",
    ),
    "no call": (
        lambda: snapshot(begun()),  # type: ignore[arg-type]
        UsageError,
        "what is kept is FlowRun('letters', 'r', review, Letter(about='x', n=0)): its own method, run.snapshot(),"
        " would be right",
    ),
    "an answer to a run that is not there": (
        lambda: made(store=MemoryStore()).resume("r", [5]),
        RunUnknown,
        "there is no run 'r'",
    ),
    "a model for who asks none": (
        lambda: letters.seed(Letter("x"), clients={review: Script()}),
        UsageError,
        "clients has a model for <WaitState review>, which asks no agent in the flow 'letters'; states that do: none",
    ),
    "a model for a state of another flow": (
        lambda: asked.seed(Letter("x"), clients={call(bot)(lambda d: "?"): Script()}),
        UsageError,
        "clients has a model for <CallState <lambda>>, which asks no agent in the flow 'f'; states that do: asking",
    ),
    "a model that is none": (
        lambda: asked.seed(Letter("x"), clients={asked.start: "hello"}),
        UsageError,
        "clients[<CallState asking>] is 'hello': a client, such as Script('…') for tests, would be right",
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_data_of_a_flow(name: str) -> None:
    do, kind, problem = DATA[name]
    with pytest.raises(kind) as error:
        do()
    assert str(error.value).startswith(problem)
    assert "pydantic" not in str(error.value).lower()
    assert "\n" not in str(error.value)


def test_what_is_right_is_taken() -> None:
    assert letters.data_of('{"about": "x"}') == Letter("x")
    assert letters.data_of(letters.data_json(Letter("x", 5))) == Letter("x", 5)
    assert made(limits=FlowLimits(steps=1, deadline_s=0), store="runs.db", version=3, world={"threads": 1})


def answered(state: Any) -> Any:
    return Flow("f", Letter, start=state, rows=[state.done(end("over"))])


bot = Agent("openai:gpt-5-mini", name="bot")
asked = answered(call(bot, name="asking")(lambda d: "?"))


async def later(d: Letter) -> str:
    return ""


async def laters(d: Letter) -> Any:
    yield ""


def forgets(d: Letter, a: Any) -> bool:
    a == 5  # noqa: B015
    return None  # type: ignore[return-value]


@execute
def counting(d: Letter) -> int:
    return 5


def generating(d: Letter) -> str:
    yield ""  # type: ignore[misc]


def each_of(over: Any = lambda d: (), member: Any = counting, parallel: Any = 1) -> Any:
    every = each("every", member, over, parallel=parallel)
    return Flow("f", Letter, start=every, rows=[every.done(end("over"))])


def nothing() -> str:
    return "?"


def is_late() -> bool:
    return True


def is_meant(d: Letter, a: int) -> bool:
    return a > 3


def counted(*rows: Any, **functions: Any) -> Any:
    over = end("over")
    return Flow("f", Letter, start=counting, rows=[*rows, counting.done(over, **functions), counting.done(end("x"))])


PURE = "a coroutine function: a plain, pure one would be right"
DECLARED: dict[str, tuple[Callable[[], Any], str]] = {
    "task": (lambda: call(bot)("Hi"), "the task of a call is 'Hi': a function of the data would be right"),
    "task later": (lambda: call(bot)(later), PURE),
    "whole task later": (lambda: call(bot, whole=True)(later), PURE),
    "chosen later": (lambda: call(later, str), PURE),
    "question": (lambda: wait(str)(5), "the question of a wait is 5: a function of the data would be right"),
    "question later": (lambda: wait(str)(later), PURE),
    "no types": (lambda: wait(generating), "the types of the answer, as in @wait(Approve, Change), would be right"),
    "items": (lambda: each_of(5), "over of 'every' is 5: a function of the data would be right"),
    "items later": (lambda: each_of(laters), PURE),
    "member": (lambda: each_of(member=forgets), "'every' has the member <function forgets"),
    "parallel": (lambda: each_of(parallel="2"), "every has parallel='2': 1 or more, or None for all, would be right"),
    "half": (lambda: each_of(parallel=1.5), "every has parallel=1.5: 1 or more, or None for all, would be right"),
    "flow": (lambda: subflow("sub", None, later), "the flow of the subflow 'sub' is None: a Flow would be right"),
    "start": (lambda: subflow("sub", letters, 5), "the start of the subflow 'sub' is 5: a function of the data"),
    "start later": (lambda: subflow("sub", letters, later), PURE),
    "generator": (lambda: execute(generating), "a generator: a function that returns would be right"),
    "generator later": (lambda: execute(laters), "a generator: a function that returns would be right"),
    "agents": (lambda: letters.bound(5), "agents is 5: a mapping of agents by role would be right"),
    "action of the data alone": (
        lambda: counted(when=is_meant, do=lambda d: d),
        "the action of the row counting --done [is_meant]--> over: <lambda> takes (d): (data, answer) would be right",
    ),
    "guard of nothing": (
        lambda: counted(when=is_late),
        "the guard of the row counting --done [is_late]--> over: is_late takes (): (data, answer), or (data) alone",
    ),
    "action after a failure": (
        lambda: counted(counting.failed(end("lost"), do=lambda d: d), when=is_meant),
        "the action of the row counting --failed--> lost: <lambda> takes (d): (data, failure) would be right",
    ),
    "task of nothing": (lambda: answered(call(bot)(nothing)), "flow 'f': nothing: nothing takes (): (data) would be"),
    "question of two": (
        lambda: answered(wait(int)(forgets)),
        "forgets: forgets takes (d, a): (data) would be right",
    ),
    "items of nothing": (lambda: each_of(lambda: ()), "every: <lambda> takes (): (data) would be right"),
    "data": (lambda: made(data=int | str), "the data are 'int | str', which is no class: a frozen dataclass"),
}


@pytest.mark.parametrize("name", DECLARED)
def test_what_is_declared(name: str) -> None:
    do, problem = DECLARED[name]
    with pytest.raises(FlowError) as error:
        do()
    assert problem in str(error.value)


def test_a_guard_that_returns_nothing_takes_no_other_way_in_silence() -> None:
    over, other = end("over"), end("other")
    flow = Flow("f", Letter, start=counting, rows=[counting.done(over, when=forgets), counting.done(other)])
    run = flow.seed(Letter("x"))
    with pytest.raises(
        FlowError, match=r"the guard of counting --done \[forgets\]--> over returned None: True or False"
    ):
        flow.run(run)
    assert run.state == "counting"
    assert flow_of_guard(lambda d, a: a).call(Letter("x")).state == "over", "what is true or false is, as ever"


def flow_of_guard(held: Callable[[Letter, int], Any]) -> Flow[Letter]:
    def holds(d: Letter, a: int) -> Any:
        return held(d, a)

    rows = [counting.done(end("over"), when=holds), counting.done(end("other"))]
    return Flow("f", Letter, start=counting, rows=rows)


def test_a_copy_of_a_flow_runs_as_it_does() -> None:
    flow = flow_of_guard(lambda d, a: a == 5)
    copied = copy.deepcopy({"flow": flow})["flow"]
    assert copied is not flow
    assert copied.call(Letter("x")).state == "over"


def test_an_answer_to_a_run_that_asks_nothing_is_told_so() -> None:
    kept = made(store=MemoryStore(), answer=lambda question: 5)
    assert kept.call(Letter("x"), run_id="r").state == "over"
    with pytest.raises(OutcomeError, match="<WaitState review> asks nothing now; asked: nothing"):
        kept.resume("r", {review: 7})


def test_an_answer_and_a_result_of_another_type_are_named_without_a_riddle() -> None:
    person = wait(bool, name="person")(lambda d: "Is it?")
    kept = replace(answered(person), store=MemoryStore())
    with pytest.raises(FlowSuspended) as waiting:
        kept.call(Letter("x"), run_id="r")
    assert str(waiting.value).endswith(
        " waits for 'answer:person#1' (bool): answer with flow.resume('r', {'answer:person#1': …}), where … is bool"
    )
    with pytest.raises(OutcomeError, match=r"^person was given 'yes': bool would be right$"):
        kept.resume("r", {person: "yes"})
    run = answered(person).seed(Letter("x"))
    run.advance("begin", Begun(at_s=1.0))
    with pytest.raises(OutcomeError, match="JSON of bool would be right: it is no JSON, expected value at line 1"):
        run.advance("answer:person#1", Returned(text="yes"))
    with pytest.raises(FlowSuspended, match=r"answer with error\.run\.give\(person, …\); flow\.run\(error\.run\)"):
        run.flow.run(run)

    @execute
    def counting(d: Letter) -> int:
        return "many"  # type: ignore[return-value]

    with pytest.raises(FlowFailed, match="wrong type: counting was given 'many': int would be right"):
        answered(counting).call(Letter("x"))


async def in_a_coroutine(d: Letter) -> int:
    return "many"  # type: ignore[return-value]


def in_a_thread(d: Letter) -> int:
    return "many"  # type: ignore[return-value]


@pytest.mark.parametrize("function", [in_a_coroutine, in_a_thread])
@pytest.mark.parametrize("options", [{}, {"on_error": Default(7)}, {"retries": Retries(attempts=2, delay_s=0)}])
def test_a_result_of_another_type_fails_with_both_drivers_whatever_the_policy(function: Any, options: Any) -> None:
    flow = answered(execute(name="counting", **options)(function))
    for driven in (flow.call, lambda data: asyncio.run(flow.acall(data))):
        with pytest.raises(FlowFailed, match="wrong type: counting was given 'many': int would be right"):
            driven(Letter("x"))


def test_a_run_that_waits_for_an_approval_says_of_what_and_how_to_answer() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    model = Script(wants("pay", amount=5), "done")
    payer = Agent(model, name="payer", functions=[Function.of(pay, needs_approval=True)])
    asking = call(payer, name="asking")(lambda d: "go")
    run = answered(asking).seed(Letter("x"))
    with pytest.raises(FlowSuspended) as waiting:
        run.flow.run(run)
    about = (
        """in asking waits for 'asking#1/ask:1.0' (approval of pay({"amount": 5})): advance the run with Approved()"""
    )
    assert about in str(waiting.value)
    waiting.value.run.advance("asking#1/ask:1.0", Approved())
    assert run.flow.run(waiting.value.run).state == "over"


def test_a_question_of_nothing_is_refused_before_the_step_is_taken() -> None:
    run = answered(wait(int, name="person")(lambda d: None)).seed(Letter("x"))
    with pytest.raises(FlowError, match="the question of 'person' is None: what the person is shown would be right"):
        run.flow.run(run)
    assert run.state == "Seeded"


def test_limits_are_written_as_they_are_read() -> None:
    limited = made(limits=FlowLimits(deadline_s=99))
    run = limited.seed(Letter("x"))
    run.advance("begin", Begun(at_s=1.0, id="r"))
    assert limited.restore(run.snapshot()).snapshot() == run.snapshot()


@pytest.mark.parametrize("module", ["fsm_agent", "fsm_agent.flows"])
@pytest.mark.parametrize("name", ["Inside", "FunctionEnded", "RequestStarted"])
def test_events_say_where_they_are(module: str, name: str) -> None:
    with pytest.raises(ImportError, match=f"{name} is in fsm_agent.messages"):
        exec(f"from {module} import {name}", {})


def test_an_empty_task_is_an_error_that_names_its_state() -> None:
    @call(Agent(Script("ok"), name="echo"))
    def echoing(d: Letter) -> str:
        return ""

    run = Flow("f", Letter, start=echoing, rows=[echoing.done(end("over"))]).seed(Letter("x"))
    with pytest.raises(FlowError, match="the state 'echoing': the task is '': a text that asks for something"):
        run.flow.run(run)
    assert run.state == "Seeded"


def test_a_run_of_another_flow_is_not_driven() -> None:
    state = execute(name="counting")(in_a_thread)
    other = Flow("other", Letter, start=state, rows=[state.done(end("over"))])
    run = other.seed(Letter("x"))
    with pytest.raises(UsageError, match=r"run drives a run of the flow '.*', and .* is none: call"):
        answered(state).run(run)
    assert run.state == "Seeded"


def test_one_name_of_a_run_is_not_for_two_calls_that_differ() -> None:
    kept = replace(answered(wait(int, name="person")(lambda d: "?")), store=MemoryStore())
    for extra in ({"a": 1}, {"a": 1}):
        with pytest.raises(FlowSuspended):
            kept.call(Letter("x"), run_id="r", extra=extra)
    for other in ({"a": 2}, None):
        with pytest.raises(RunExists, match="extra"):
            kept.call(Letter("x"), run_id="r", extra=other)
    with pytest.raises(RunExists, match="data"):
        kept.call(Letter("y"), run_id="r", extra={"a": 1})
