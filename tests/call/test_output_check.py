"""Does the verdict of a check decide what becomes the output, in a snapshot, a journal and a call inside too?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field
from support.agent_calls import PROMPT, begun, keys, say
from support.agent_drivers import Way
from support.checked_agents import Shop, checked, driven, everywhere, judged, plain

from fsm_agent import (
    Agent,
    AgentBase,
    CallFailed,
    Context,
    Limits,
    MemoryStore,
    Prompt,
    Retry,
    UsageError,
    function,
    handoff,
)
from fsm_agent.call import (
    Cancelled,
    Checked,
    CheckFailed,
    CheckOutput,
    CheckRefused,
    Reason,
    Replied,
    State,
    Stop,
    StopContext,
    restore,
    snapshot,
)
from fsm_agent.errors import OutcomeError, ReplayError, SnapshotError
from fsm_agent.flows import Flow, end
from fsm_agent.flows import ask as call_state
from fsm_agent.messages import Reply
from fsm_agent.store import RunExists
from fsm_agent.testing import Script, check_record, function_call


@dataclass(frozen=True)
class Count:
    n: int = 0


class Order(BaseModel):
    lamps: int
    note: str = ""


# What it is given


@pytest.mark.parametrize("check", [int, 7, lambda: 1], ids=["class", "value", "none"])
def test_what_takes_no_output_is_refused_when_the_agent_is_made(check: Any):
    with pytest.raises(UsageError, match="check"):
        checked(check)


def test_the_context_first_is_refused():
    def look(context: Context[Shop], output: int) -> int:
        return output

    def quoted(context, output):
        return output

    quoted.__annotations__ = {"context": "Context[Shop]"}
    for check in (look, quoted):
        with pytest.raises(UsageError, match=r"\(output, context\)"):
            checked(check)


# What it returns


@everywhere
def test_a_changed_output_is_in_the_record_as_json(way: Way):
    def noted(output: Order, context: Context[Any]) -> Order:
        return output.model_copy(update={"note": f"{output.lamps} of 12"})

    agent = checked(noted, '{"lamps": 3}', output=Order)
    one, _ = driven(way, agent)
    assert one.output == Order(lamps=3, note="3 of 12")
    assert one.record.ending.output_json == '{"lamps":3,"note":"3 of 12"}'
    assert agent.restore(snapshot(one)).output == Order(lamps=3, note="3 of 12")
    assert one.record.dialog[-1].text == '{"lamps": 3}', "the dialog is what the model said"


def test_an_output_that_is_changed_in_its_place_is_noticed():
    def noted(output: Order) -> Order:
        output.note = "seen"
        return output

    agent = checked(noted, '{"lamps": 3}', output=Order)
    result = agent.call("?")
    assert (result.output, result.ending.output_json) == (Order(lamps=3, note="seen"), '{"lamps":3,"note":"seen"}')
    assert agent.restore(snapshot(result.call)).output == result.output


def test_an_output_that_is_not_changed_is_not_written():
    for check in (lambda output: output, lambda output: output.model_copy()):
        assert checked(check, '{"lamps": 3}', output=Order).call("?").ending.output_json is None


@everywhere
@pytest.mark.parametrize("is_async", [False, True])
def test_nothing_is_no_output(way: Way, is_async: bool):
    def forgets(output: int) -> None: ...

    async def aforgets(output: int) -> None: ...

    with pytest.raises(UsageError, match=r"forgets': .*None"):
        driven(way, checked(aforgets if is_async else forgets, "12"))


@pytest.mark.parametrize(
    ("output", "said", "wrong"), [(int, "12", "twelve"), (Order, '{"lamps": 1}', 3), (str, "x", 3)]
)
def test_another_type_is_no_output(output: Any, said: str, wrong: Any):
    agent = checked(lambda _: wrong, said, output=output)
    one = agent.prepare("?")
    with pytest.raises(UsageError, match="'<lambda>'"):
        agent.run(one)
    assert one.state is State.CHECKING, "so that it can go on when the check is right"


# Which answers are checked


def test_answers_to_the_last_request_by_a_function_and_in_two_stages():
    seen = list[Any]()

    def look(output: Any) -> Any:
        seen.append(output)
        if len(seen) % 2:
            raise Retry("look again")
        return output

    @function
    def tick() -> str:
        """Tick."""
        return "now"

    at_limit = checked(look, function_call("tick"), "1", "2", functions=[tick], limits=Limits(rounds=1))
    result = at_limit.call("?")
    assert (result.output, result.ending.limit) == (2, "rounds")
    by_function = checked(
        look, function_call("give_final_answer", value=3), function_call("give_final_answer", value=4)
    )
    result = by_function.call(Prompt("?", output=int, mode="function"))
    assert (result.output, result.dialog.tail.role) == (4, "tool")
    staged = checked(look, "Let me see.", "5", "6").call(Prompt("?", output=int, mode="two_stage"))
    assert staged.output == 6
    assert seen == [1, 2, 3, 4, 5, 6]


def test_the_answer_in_the_exception_branch_is_read_by_its_own_prompt():
    again = Prompt("Again, in words: {{ error_message }}", output=Order)
    agent = checked(lambda output: judged(output, 12) if isinstance(output, int) else output, "40", '{"lamps": 1}')
    result = agent.call(Prompt("?", output=int, on_exception=again))
    assert result.output == Order(lamps=1)
    assert agent.restore(snapshot(result.call), Prompt("?", output=int, on_exception=again)).output == Order(lamps=1)


def test_what_stop_when_provides_is_not_checked():
    def stop(context: StopContext) -> Stop:
        return Stop("enough", "99")

    result = checked(plain, "40", stop_when=stop).call("?")
    assert (result.output, result.ending.reason) == (99, Reason.STOPPED)


def test_the_agent_that_took_the_dialog_over_checks_its_own_answer():
    seen = list[str]()

    def of(name: str) -> Any:
        def look(output: int) -> int:
            seen.append(name)
            return output + 1

        return look

    billing = checked(of("billing"), "7", name="billing")
    front = checked(of("front"), function_call("transfer_to_billing"), name="front", functions=[handoff(billing)])
    result = front.call("?")
    assert (result.output, seen) == (8, ["billing"])
    assert front.restore(snapshot(result.call)).output == 8


# Kept, and gone on with


def at_check(**options: Any) -> Any:
    one = say(begun(check=plain, **options), "40")
    assert keys(one) == ["check:2"] or one.state is State.CHECKING
    return one


def test_a_call_that_waits_for_its_check_is_a_snapshot():
    one = at_check()
    (effect,) = one.effects
    assert (type(effect), effect.question, one.proposed, one.output) == (CheckOutput, None, 40, None)
    again = restore(snapshot(one), PROMPT, check=plain)
    assert (again.record, again.proposed, again.record.is_checked) == (one.record, 40, True)
    again.advance(effect.key, CheckRefused("only 12 are left"))
    assert again.state is State.PARSE_EXCEPTION
    assert check_record(again.record) is None
    say(again, "12").advance(keys(again)[0], Checked(output_json="13"))
    assert (again.state, again.output, again.proposed) == (State.COMPLETED, 13, None)
    assert restore(snapshot(again), PROMPT).output == 13, "an ended call needs no check"


def test_a_snapshot_needs_the_check_that_its_call_began_with():
    for one in (at_check(), begun(check=plain)):
        with pytest.raises(SnapshotError, match="check"):
            restore(snapshot(one), PROMPT)


def test_a_check_that_a_snapshot_did_not_have_judges_its_answers_from_now_on():
    one = restore(snapshot(begun()), PROMPT, check=plain)
    assert say(one, "40").state is State.CHECKING


def test_only_a_verdict_answers_it():
    one = at_check()
    (key,) = keys(one)
    with pytest.raises(OutcomeError, match=key):
        one.advance(key, Replied(reply=Reply.of("12")))
    with pytest.raises(OutcomeError):
        one.advance("check:9", Checked())
    with pytest.raises(OutcomeError, match="output_json"):
        Checked(output_json=7)
    one.advance(key, CheckFailed(text="KeyError: 'x'", name="look"))
    with pytest.raises(CallFailed, match="look: KeyError: 'x'") as caught:
        one.result()
    assert str(caught.value.__cause__) == "look: KeyError: 'x'"


def test_steps_can_be_undone_and_done_again():
    one = at_check().journaled()
    one.advance(keys(one)[0], Checked(output_json="13"))
    assert one.output == 13
    one.undo()
    assert (one.state, one.proposed) == (State.CHECKING, 40)
    one.redo()
    assert one.output == 13
    forked = one.fork(0)
    forked.advance(keys(forked)[0], Checked(output_json="14"))
    assert (forked.output, one.output) == (14, 13)


class Crash(BaseException):
    """The process is gone."""


def test_a_run_that_began_without_a_check_can_be_read_and_goes_on_without():
    store = MemoryStore()

    @function
    def tick() -> str:
        """Tick."""
        raise Crash

    agent = checked(None, function_call("tick"), store=store, name="shop", functions=[tick])
    assert agent.changed(model=Script("40")).call("How many?", run_id="r0").output == 40
    with pytest.raises(Crash):
        agent.call("How many?", run_id="r1")
    later = agent.changed(model=Script("40"), check=plain, functions=[function(lambda: "now", name="tick")])
    assert later.runs.resume("r0").output == 40
    assert later.runs.resume("r1").output == 40
    with pytest.raises(RunExists, match="check"):
        later.call("How many?", run_id="r0")


def test_a_verdict_that_nobody_asked_for_is_no_replay():
    store = MemoryStore()
    agent = checked(plain, "12", store=store, name="shop")
    agent.call("How many?", run_id="r1")
    with pytest.raises((ReplayError, UsageError)):
        agent.changed(output=str, check=plain, model=Script()).changed(
            prompt=Prompt("{{ task }}", parser=lambda text: 1 / 0)
        ).runs.replay("r1")


# Inside of others


@everywhere
def test_an_agent_that_is_a_function_checks_its_answer(way: Way):
    def by_stock(output: int, context: Context[Shop]) -> int:
        return judged(output, context.deps.stock)

    inner = checked(by_stock, "40", "12", name="counter")
    outer = Agent(Script(function_call("counter", task="count"), "done"), functions=[inner.as_function()])
    one, _ = driven(way, outer, deps=Shop(12))
    assert (one.output, one.record.function_calls[0].result) == ("done", "12")
    keys_ = [step.key for step in one.record.trace]
    assert "check:1" not in keys_


def test_an_agent_that_is_a_function_and_lost_its_check_is_not_gone_on_with():
    def crashing(output: int) -> int:
        raise Crash

    def team(check: Any, *replies: Any) -> Agent[Any, Any]:
        inner = checked(check, *replies, name="counter")
        return Agent(
            Script(function_call("counter", task="count"), "done"), functions=[inner.as_function()], name="team"
        )

    outer = team(crashing, "12")
    one = outer.prepare("?")
    with pytest.raises(Crash):
        outer.run(one)
    assert keys(one) == ["run:1.0/check:1"]
    without = team(None)
    with pytest.raises(UsageError, match="check"):
        without.run(without.restore(snapshot(one)))
    right = team(plain)
    restored = right.restore(snapshot(one))
    right.changed(model=Script("done")).run(restored)
    assert restored.output == "done"


def test_a_failed_check_inside_is_told_to_the_model_outside():
    def look(output: int) -> int:
        raise LookupError("no such lamp")

    inner = checked(look, "12", name="counter")
    outer = Agent(Script(function_call("counter", task="count"), "done"), functions=[inner.as_function()])
    (call,) = outer.call("?").function_calls
    assert "counter" in call.error
    assert "LookupError: no such lamp" in call.error


def test_an_agent_in_a_flow_checks_its_answer():
    counter = checked(plain, *["40", "12"] * 2, name="counter")

    @call_state(counter)
    def counting(d: Count) -> str:
        return "How many?"

    counted = end("counted")
    rows = [counting.done(counted, do=lambda d, a: Count(a)), counting.failed(counted)]
    flow = Flow("count", Count, start=counting, rows=rows)
    assert flow.call(Count()).output == Count(12)
    assert asyncio.run(flow.acall(Count())).output == Count(12)


class Counting(AgentBase, register=False):
    output = int
    expertise = "You count."
    most = 12

    def check(self, output: int, context: Context[Any]) -> int:
        return judged(output, self.most)


class CountingLater(Counting, register=False):
    async def check(self, output: int) -> int:
        return judged(output, self.most)


@pytest.mark.parametrize("cls", [Counting, CountingLater])
def test_a_method_of_a_class_is_its_check(cls: Any):
    agent = cls(client=Script("40", "12"))
    result = agent.call("How many?")
    assert (result.output, result.record.parse_errors) == (12, 1)
    assert asyncio.run(cls(client=Script("40", "12")).acall("How many?")).output == 12


def test_the_repairs_of_an_answer_are_those_of_the_one_that_was_taken():
    prompt, mended = Prompt("{{ task }}", output=Order), "Here: {'lamps': 40}"
    repairs = ("the JSON was repaired by json-repair",)
    one = say(begun(prompt=prompt, check=plain), mended)
    assert (one.record.repairs, check_record(one.record)) == (repairs, None)
    again = restore(snapshot(one), prompt, check=plain)
    again.advance(keys(again)[0], CheckRefused("too many"))
    assert (again.record.repairs, check_record(again.record)) == ((), None)
    say(again, mended).advance(keys(again)[0], Checked())
    assert (again.record.repairs, again.output) == (repairs, Order(lamps=40))
    for key, outcome in (("", Cancelled()), (keys(one)[0], CheckFailed(text="no", name="odd"))):
        ended = restore(snapshot(one), prompt, check=plain)
        ended.advance(key, outcome)
        assert (ended.record.repairs, check_record(ended.record)) == ((), None)
    last = say(begun(Limits(parse_retries=0), prompt=prompt, check=plain), mended)
    last.advance(keys(last)[0], CheckRefused("too many"))
    assert (last.state, last.record.repairs, check_record(last.record)) == (State.FAILED, (), None)


def test_the_turns_of_a_conversation_are_checked():
    store = MemoryStore()

    def look(text: str) -> str:
        if text == "no":
            raise Retry("say yes")
        return f"{text}!"

    agent = Agent(Script("no", "yes", "sure"), check=look, store=store, name="shop")
    talk = agent.conversation("k")
    assert [talk.call("one").output, talk.call("two").output] == ["yes!", "sure!"]
    later = agent.changed(model=Script("well"), check=None)
    assert later.conversation("k").call("three").output == "well", "earlier turns can be read without it"


# Values that JSON does not keep


class Stocked(BaseModel):
    lamps: int
    left: int = Field(default=0, exclude=True)


class Signed(Stocked):
    by: str


@pytest.mark.parametrize(
    ("output", "answer", "changed"),
    [
        (Stocked, '{"lamps": 1}', Stocked(lamps=1, left=5)),
        (Stocked, '{"lamps": 1}', Signed(lamps=2, by="Ada")),
        (dict, '{"1": 2}', {1: 2}),
    ],
)
def test_a_change_that_json_would_lose_is_refused(output: Any, answer: str, changed: Any):
    with pytest.raises(UsageError, match="'<lambda>'"):
        checked(lambda _: changed, answer, output=output).call("?")


class Found(BaseModel):
    number: str


class Nothing(BaseModel):
    """Nothing was found."""


def test_a_check_may_return_another_member_of_the_union_which_a_restored_call_reads_too():
    agent = checked(lambda _: Nothing(), '{"Found": {"number": "1"}}', output=Found | Nothing)
    result = agent.call("?")
    again = agent.restore(snapshot(result.call))
    assert result.output == again.result_so_far.output == Nothing()
