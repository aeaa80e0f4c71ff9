"""Does an agent that takes the dialog over govern it from then on: its model, limits, turns, snapshots and journal?"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.agent_drivers import StuckScript, Way, both, by_arun, by_astream, by_run, by_run_unheard, by_stream

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallSuspended,
    Denied,
    Dialog,
    Limits,
    Message,
    Prompt,
    UsageError,
    function,
    handoff,
)
from fsm_agent.call import AgentCall, Injected, Reason, Returned, State, snapshot
from fsm_agent.context import keep_last
from fsm_agent.errors import OutcomeError, SnapshotError
from fsm_agent.functions import Retries
from fsm_agent.messages import Done, Event, Inside, Stepped
from fsm_agent.runtime import ResultPipeline
from fsm_agent.store import MemoryStore
from fsm_agent.testing import FakeClock, Script, function_call


@function(needs_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"order {order} was refunded"


@function
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order}: a lamp"


GO = function_call("transfer_to_billing", reason="money")


def billing(*replies: Any, **options: Any) -> Agent[Any, Any]:
    options = {"name": "billing", "system": "You bill.", "functions": [refund], **options}
    return Agent(Script(*(replies or ("It is done.",))), **options)


def triage(*replies: Any, to: Agent[Any, Any] | None = None, **options: Any) -> Agent[Any, Any]:
    options = {"functions": [look_up, handoff(to or billing())], "system": "You ask.", **options}
    return Agent(Script(*(replies or (GO,))), name="triage", **options)


WAYS: list[Way] = [by_run, by_stream, by_arun, by_astream, by_run_unheard]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_other_agent_s_answer_is_the_answer_whoever_drives(way: Way):
    def driven(way: Way) -> tuple[AgentCall[Any], Script]:
        other = billing(function_call("refund", order=17), "It is done.", approve=lambda f: True)
        agent = triage([function_call("look_up", order=17), GO], to=other)
        one = agent.prepare("I want my money back.")
        way(agent, one, [])
        model: Any = other.model
        return one, model

    (one, model), (same, _) = driven(way), driven(by_run)
    assert (one.output, one.record) == ("It is done.", same.record)
    assert [(s.source, s.trigger, s.to, s.key, s.detail) for s in one.record.trace][-3:] == [
        ("ToolInterrupt", "returned", "ToolInterrupt", "run:2.0", ""),
        ("ToolInterrupt", "handed_over", "HandedOver", "run:2.1", "billing"),
        ("HandedOver", "relayed", "Completed", "to:transfer_to_billing", ""),
    ]
    assert [(f.name, f.result) for f in one.record.function_calls] == [
        ("look_up", "order 17: a lamp"),
        ("transfer_to_billing", "The dialog was handed over."),
        ("refund", "order 17 was refunded"),
    ]
    request = model.requests[0]
    assert [m.role for m in request.messages] == ["system", "user", "assistant", "tool", "tool"]
    assert (request.messages[0].text, [f.name for f in request.functions]) == ("You bill.", ["refund"])
    assert [m.text for m in one.record.dialog if m.role == "system"] == ["You ask."]


@both
def test_events_say_who_governs_and_the_hooks_of_that_agent_are_told(way: Way):
    class Hook:
        def __init__(self) -> None:
            self.told: list[str] = []

        def on_stepped(self, event: Stepped) -> None:
            self.told.append(event.to)

        def on_done(self, event: Done[Any]) -> None:
            self.told.append(event.result.output)

    hook, heard = Hook(), list[Event]()
    agent = triage(to=billing(hooks=[hook]))
    way(agent, agent.prepare("?"), heard)
    assert {event.path for event in heard if isinstance(event, Inside)} == {"to:transfer_to_billing"}
    assert hook.told == ["Calling", "Completed", "It is done."]
    over = [event for event in heard if isinstance(event, Stepped) and event.to == State.HANDED_OVER]
    assert [event.detail for event in over] == ["billing"]
    assert isinstance(heard[-1], Done)
    assert heard[-1].result.output == "It is done."


# The next turns


def test_the_next_turns_stay_with_the_agent_until_it_hands_back():
    other = Agent(
        Script("It costs 5.", "Still 5.", function_call("transfer_to_triage")),
        name="billing",
        functions=[handoff(lambda: first, name="transfer_to_triage", description="Any other question.")],
    )
    first = triage(GO, "Goodbye.", "Hello again.", to=other)
    one = first.call("Price?")
    two = first.call("Really?", after=one)
    assert (one.record.governed_by, two.output, two.trace[1].detail) == ("transfer_to_billing", "Still 5.", "billing")
    three = first.call("Thanks.", after=Dialog.from_json(two.dialog.to_json()))
    assert (three.output, three.record.governed_by) == ("Goodbye.", "transfer_to_billing/transfer_to_triage")
    four = first.call("Are you there?", after=three)
    assert (four.output, four.record.governed_by, four.record.successor) == ("Hello again.", "", None)
    assert [m.text for m in four.dialog if m.role == "user"] == ["Price?", "Really?", "Thanks.", "Are you there?"]


def test_a_conversation_in_a_store_stays_with_the_agent_though_the_handoff_is_forgotten():
    store = MemoryStore()
    answers = ["It costs 5.", "Still 5.", "5, I said."]
    for turn, answer in enumerate(answers):  # a process for each
        agent = triage(*[GO][turn:], to=billing(answer), store=store) if turn == 0 else None
        agent = agent or Agent(Script(), name="triage", functions=[look_up, handoff(billing(answer))], store=store)
        result = agent.conversation("customer-17", keep=keep_last(1)).call(f"Turn {turn}?")
        assert (result.output, result.record.governed_by) == (answer, "transfer_to_billing")
    assert "transfer_to_billing" not in str(agent.conversation("customer-17").read().overview())


def test_a_handoff_that_is_gone_leaves_the_dialog_to_the_first_agent():
    one = triage().call("?")
    later = triage("It is me.", functions=[look_up])
    assert later.call("Who is it?", after=one).output == "It is me."


# Limits and ends


def test_agents_that_hand_over_on_and_on_are_stopped():
    a = Agent(
        Script(*[function_call("to_b")] * 9),
        name="a",
        functions=[handoff(lambda: b, name="to_b")],
        limits=Limits(handoffs=3),
    )
    b = Agent(Script(*[function_call("to_a")] * 9), name="b", functions=[handoff(a, name="to_a")])
    with pytest.raises(CallFailed, match="to_a") as e:
        a.call("?")
    record = e.value.call.record
    assert (record.ending.reason, record.ending.function) == (Reason.HANDOFF_LIMIT, "to_a")
    assert (record.ending.limit, record.ending.count) == ("handoffs", 3)
    assert [m.role for m in record.dialog] == ["user", *["assistant", "tool"] * 4]


def test_handoffs_are_counted_anew_in_each_turn():
    a = Agent(Script(function_call("to_b"), "two"), name="a", functions=[handoff(lambda: b, name="to_b")])
    b = Agent(
        Script("one", function_call("to_a")), name="b", functions=[handoff(a, name="to_a")], limits=Limits(handoffs=1)
    )
    first = a.changed(limits=Limits(handoffs=1)).call("?")
    assert (first.output, a.changed(limits=Limits(handoffs=1)).call("!", after=first).output) == ("one", "two")


def test_each_agent_has_rounds_of_its_own_and_the_deadline_is_the_outer_one_s():
    clock = FakeClock()
    agent = triage(
        to=billing(function_call("refund", order=1)), limits=Limits(deadline_s=60), environment={"clock": clock}
    )
    with pytest.raises(CallSuspended) as e:
        agent.call("?")
    clock.advance(61)
    with pytest.raises(CallFailed, match="expired"):
        agent.run(e.value.call)
    record = e.value.call.record
    assert (record.ending.reason, record.children) == (Reason.EXPIRED, {})
    assert record.dialog[-1].role == "tool"  # what was asked has its result


def test_its_failure_is_the_call_s_with_all_that_was_said():
    agent = triage(to=billing("no number", output=int, limits=Limits(parse_retries=0)), output=int | str)
    with pytest.raises(CallFailed) as e:
        agent.call("?")
    assert e.value.reason is Reason.UNPARSEABLE
    assert e.value.call.record.successor.state is State.FAILED


@both
def test_a_call_that_is_cancelled_ends_the_agent_that_has_the_dialog_at_once(way: Way):
    begun = threading.Event()
    model = StuckScript(begun)
    agent = triage(to=Agent(model, name="billing"))
    one = agent.prepare("?")
    canceller = threading.Thread(target=lambda: (begun.wait(), one.cancel("enough")), daemon=True)
    canceller.start()
    with pytest.raises(CallFailed, match="enough"):
        way(agent, one, [])
    assert one.record.ending.reason is Reason.CANCELLED, "though the model does not reply"
    canceller.join()


# Approval and parallel calls


def test_a_handoff_that_is_refused_leaves_the_dialog_where_it_is():
    other = billing()
    agent = triage(GO, "I cannot.", functions=[handoff(other, needs_approval=True)])
    with pytest.raises(CallSuspended) as e:
        agent.call("?")
    one = e.value.call
    one.advance("ask:2.0", Denied("not today"))
    result = agent.run(one)
    assert (result.output, result.record.governed_by) == ("I cannot.", "")
    assert "not today" in (result.function_calls[0].error or "")


@pytest.mark.parametrize("limits", [Limits(), Limits(parallel=1)], ids=["together", "one after another"])
def test_other_functions_of_the_round_are_run_first_and_the_first_handoff_wins(limits: Limits):
    second = Agent(Script(), name="second")
    agent = triage(
        [GO, function_call("transfer_to_second"), function_call("look_up", order=1)],
        functions=[look_up, handoff(billing()), handoff(second)],
        limits=limits,
    )
    result = agent.call("?")
    assert result.output == "It is done."
    assert [(f.name, f.result or f.error) for f in result.function_calls] == [
        ("transfer_to_billing", "The dialog was handed over."),
        ("transfer_to_second", result.function_calls[1].error),
        ("look_up", "order 1: a lamp"),
    ]
    assert "transfer_to_billing" in result.function_calls[1].error


def test_of_two_handoffs_the_first_that_is_allowed_wins():
    second = Agent(Script("I am second."), name="second")
    functions = [handoff(billing(), needs_approval=True), handoff(second)]
    agent = triage([GO, function_call("transfer_to_second")], functions=functions, approve=lambda f: f.name != GO.name)
    assert agent.call("?").output == "I am second."


# Kept and gone on with


def test_a_run_is_gone_on_with_by_the_right_agent_and_replayed():
    store = MemoryStore()
    with pytest.raises(CallSuspended, match=r"to:transfer_to_billing/ask:4.0"):
        triage(to=billing(function_call("refund", order=17)), store=store).call("?", run_id="r1")
    later = triage("never asked", to=billing("It is done."), store=store)
    result = later.runs.resume("r1", {"to:transfer_to_billing/ask:4.0": Approved()})
    assert (result.output, result.record.governed_by) == ("It is done.", "transfer_to_billing")
    again = later.runs.replay("r1")
    assert (again.record, again.output) == (result.record, "It is done.")


def test_a_snapshot_goes_on_with_the_agent_that_has_the_dialog_and_keeps_its_typed_answer():
    agent = triage(to=billing(function_call("refund", order=17), "41", output=int, approve=None), output=str | int)
    with pytest.raises(CallSuspended) as e:
        agent.call("?")
    one = agent.restore(snapshot(e.value.call))
    assert one.record == e.value.call.record
    one.advance("to:transfer_to_billing/ask:4.0", Approved())
    assert agent.run(one).output == 41
    assert agent.restore(snapshot(one)).output == 41


def test_a_snapshot_whose_handoff_is_gone_is_refused_by_name():
    agent = triage(to=billing(function_call("refund", order=17)))
    with pytest.raises(CallSuspended) as e:
        agent.call("?")
    document = snapshot(e.value.call)
    with pytest.raises(SnapshotError, match="transfer_to_billing"):
        triage(functions=[look_up]).restore(document)


def test_it_is_undone_and_redone_step_by_step():
    agent = triage()
    one = agent.prepare("?").journaled()
    agent.run(one)
    states = one.states
    assert State.HANDED_OVER in [record.state for record in states]
    for record in reversed(states[:-1]):
        one.undo()
        assert one.record == record
    assert [effect.key for effect in one.effects] == ["begin"]
    for record in states[1:]:
        one.redo()
        assert one.record == record
    assert one.output == "It is done."


def test_what_is_injected_reaches_the_agent_that_has_the_dialog():
    other = billing("It is done.")
    agent = triage(to=other)
    one = agent.prepare("?")
    for event in agent.stream(one):
        if isinstance(event, Stepped) and event.to == State.HANDED_OVER:
            one.advance("", Injected((Message.of("user", "Hurry."),)))
    model: Any = other.model
    assert model.requests[0].messages[-1].text == "Hurry."
    assert [m.text for m in one.record.dialog if m.role == "user"] == ["?", "Hurry."]


def test_nobody_outside_can_settle_it():
    agent = triage(to=billing(function_call("refund", order=17)))
    with pytest.raises(CallSuspended) as e:
        agent.call("?")
    with pytest.raises(OutcomeError, match="to:transfer_to_billing"):
        e.value.call.advance("to:transfer_to_billing", Returned(text="It is done."))


# Tokens, what it sees, what is refused


def test_an_outcome_that_answers_nothing_ends_neither_call():
    agent = triage(to=billing(function_call("refund", order=1)))
    with pytest.raises(CallSuspended) as e:
        agent.call("Hi.")
    one = e.value.call
    before = one.record
    with pytest.raises(OutcomeError, match="Returned"):
        one.advance("", Returned(text="?"))
    assert one.record is before


def test_it_is_shown_what_its_context_chooses_and_the_dialog_keeps_all():
    other = billing()
    agent = triage("Hello.", GO, functions=[handoff(other, context=[lambda messages: [messages[0], *messages[-3:]]])])
    result = agent.call("And now?", after=agent.call("Hi."))
    model: Any = other.model
    assert [m.role for m in model.requests[0].messages] == ["system", "user", "assistant", "tool"]
    assert [m.text for m in result.dialog if m.role == "user"] == ["Hi.", "And now?"]
    assert result.message.text == "It is done."


def test_what_it_says_has_places_of_its_own_in_the_dialog():
    other = billing(function_call("look_up", order=1), "A lamp.", functions=[look_up])
    agent = triage("Hello.", GO, functions=[handoff(other, context=[lambda messages: [messages[0], *messages[-3:]]])])
    result = agent.call("And now?", after=agent.call("Hi."))
    assert [f.id for f in result.function_calls] == ["4.0", "6.0"]
    assert result.dialog[6].function_calls[0].id == "6.0"
    assert agent.restore(snapshot(result.call)).record == result.record


def test_an_agent_without_a_system_prompt_does_not_inherit_the_other_one_s():
    other = billing(system="")
    triage(to=other).call("?")
    model: Any = other.model
    assert [m.role for m in model.requests[0].messages] == ["user", "assistant", "tool"]


def test_answers_of_another_type_are_refused_where_the_agent_is_made():
    with pytest.raises(UsageError, match=r"triage.*billing.*int"):
        triage(to=billing(output=int))
    assert triage(GO, to=billing("7", output=int), output=int | str).call("?").output == 7
    late = Agent(Script(), functions=[handoff(lambda: billing(output=int), name="go")])
    with pytest.raises(UsageError, match="billing"):
        late.call("?")


def test_handoffs_that_cannot_be_right_are_refused():
    with pytest.raises(UsageError, match="billing"):
        handoff("billing")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="name"):
        handoff(lambda: billing())
    with pytest.raises(UsageError, match="shop"):
        handoff(billing(system=Prompt("You are of {{ shop }}.")))


def test_a_pipeline_that_would_not_see_the_result_of_an_agent_is_refused():
    pipeline = ResultPipeline(processor=lambda name, text: text.upper())
    with pytest.raises(UsageError, match="billing"):
        Agent(Script(), functions=[billing()], results=pipeline)


@pytest.mark.parametrize(
    "policy",
    [
        {"retries": Retries()},
        {"blocking": False},
        {"on_error": "retry"},
        {"once": True},
        {"middleware": [lambda f, following: following(f)]},
    ],
    ids=lambda policy: next(iter(policy)),
)
def test_policies_that_make_no_sense_are_refused(policy: dict[str, Any]):
    with pytest.raises(UsageError, match="billing"):
        billing().as_function(**policy)


def test_the_context_of_a_handoff_is_chosen_at_the_handoff_and_not_again_in_later_turns():
    other = billing("It is done.", "You are welcome.")
    agent = triage("Hello.", GO, functions=[handoff(other, context=[lambda messages: [messages[0], *messages[-3:]]])])
    result = agent.call("And now?", after=agent.call("Hi."))
    agent.call("Thank you.", after=result)
    model: Any = other.model
    assert [m.text for m in model.requests[1].messages if m.role == "user"] == ["Hi.", "And now?", "Thank you."]


@both
def test_the_rounds_of_the_agent_that_took_over_are_counted_on(way: Way) -> None:
    to = Agent(
        Script(function_call("look_up", order=7), function_call("look_up", order=8), "Done."),
        name="billing",
        functions=[look_up],
    )
    agent = triage(function_call("look_up", order=1), GO, to=to)
    one = agent.prepare("?")
    way(agent, one, [])
    assert [(f.name, f.round) for f in one.record.function_calls] == [
        ("look_up", 1),
        ("transfer_to_billing", 2),
        ("look_up", 3),
        ("look_up", 4),
    ]
