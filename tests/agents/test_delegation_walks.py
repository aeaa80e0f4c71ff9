"""Do calls with inner agents still take the recorded steps, and write the recorded journals and snapshots?

Every scene is walked step by step, in several orders and to several ends, and each walk is compared byte by byte with
`delegation_walks.json`.  After an intended change, write the file again and read the difference:

    PYTHONPATH=tests python tests/agents/test_delegation_walks.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import pytest

from fsm_agent import Agent, Limits, Message, function, handoff
from fsm_agent.call import (
    AgentCall,
    Approved,
    AskApproval,
    Begin,
    Begun,
    CallModel,
    Cancelled,
    Chain,
    Denied,
    Expired,
    Injected,
    Replied,
    Returned,
    RunFunction,
    snapshot,
)
from fsm_agent.call import Stopped as Stop
from fsm_agent.errors import UsageError
from fsm_agent.functions import Default
from fsm_agent.messages import Reply, Usage
from fsm_agent.testing import Script, ScriptError, function_call

RECORDED = Path(__file__).with_name("delegation_walks.json")
MOST_STEPS = 60


@function(needs_approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    raise NotImplementedError("the walk answers for it")


@function
def look(path: str) -> str:
    """Look at a file."""
    raise NotImplementedError("the walk answers for it")


def spending(tokens: int, *what: Any) -> Reply:
    return Reply.of(*what).changed(usage=Usage(input_tokens=tokens, output_tokens=1))


def agent_of(name: str, *replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*replies), name=name, system=f"You are {name}.", **options)


def cleaner(name: str = "cleaner", *replies: Any, **options: Any) -> Agent[Any, Any]:
    return agent_of(
        name, *(replies or (function_call("look", path="x"), "It is clean.")), functions=[look, erase], **options
    )


def a_function() -> Agent[Any, Any]:
    return agent_of("boss", function_call("cleaner", task="Clean."), "Done.", functions=[cleaner()])


def nested_with_an_approval() -> Agent[Any, Any]:
    inner = cleaner("cleaner", function_call("erase", path="x"), "It is gone.")
    middle = agent_of("middle", function_call("cleaner", task="Clean."), "All gone.", functions=[inner])
    return agent_of("boss", function_call("middle", task="Tidy up."), "Done.", functions=[middle])


def several_at_once() -> Agent[Any, Any]:
    inners = [
        cleaner(name, [function_call("look", path="x"), function_call("erase", path="x")], name)
        for name in ("one", "two")
    ]
    asked = [
        function_call("one", task="?"),
        function_call("look", path="y"),
        function_call("two", task="?"),
        function_call("one", task="again"),
    ]
    return agent_of("boss", asked, "Done.", functions=[*inners, look])


def a_failing_agent() -> Agent[Any, Any]:
    asked = [function_call("look", path=path) for path in "xy"]
    inner = agent_of("cleaner", *asked, limits=Limits(rounds=1), functions=[look])
    return agent_of("boss", function_call("cleaner", task="?"), "Done.", functions=[inner])


def a_failing_agent_with_a_default() -> Agent[Any, Any]:
    inner = agent_of("cleaner", "?", output=int, limits=Limits(parse_retries=0))
    made = inner.as_function(on_error=Default(7))
    return agent_of("boss", function_call("cleaner", task="?"), "Done.", functions=[made])


def a_failing_agent_that_ends_the_call() -> Agent[Any, Any]:
    inner = agent_of("cleaner", "?", output=int, limits=Limits(parse_retries=0))
    return agent_of("boss", function_call("cleaner", task="?"), "Done.", functions=[inner.as_function(on_error="fail")])


def a_budget() -> Agent[Any, Any]:
    inner = cleaner("cleaner", spending(60, function_call("look", path="x")), spending(60, "It is clean."))
    asked = spending(10, function_call("cleaner", task="?"), function_call("look", path="y"))
    return agent_of("boss", asked, "Done.", functions=[inner, look], limits=Limits(tokens=100))


def a_task_that_is_refused() -> Agent[Any, Any]:
    return agent_of("boss", function_call("cleaner", task=" "), "Done.", functions=[cleaner()])


def a_handoff(**options: Any) -> Agent[Any, Any]:
    other = cleaner("billing", function_call("erase", path="x"), "It is gone.", limits=Limits(deadline_s=1000.0))
    asked = [function_call("look", path="y"), function_call("transfer_to_billing", reason="money")]
    return agent_of("triage", asked, functions=[look, handoff(other)], **options)


def a_handoff_to_and_fro() -> Agent[Any, Any]:
    there = handoff(lambda: first, name="back", description="Back.")
    second = agent_of("second", function_call("back", reason="?"), "It is done.", functions=[look, there])
    first = agent_of(
        "first",
        function_call("over", reason="?"),
        function_call("over", reason="again"),
        functions=[look, handoff(second, name="over")],
    )
    return first


def handoffs_used_up() -> Agent[Any, Any]:
    return a_handoff(limits=Limits(handoffs=0))


def an_agent_inside_of_a_handoff() -> Agent[Any, Any]:
    other = agent_of("billing", function_call("cleaner", task="Clean."), "It is gone.", functions=[cleaner()])
    over = handoff(other, needs_approval=True)
    return agent_of("triage", function_call("transfer_to_billing", reason="money"), functions=[over])


def a_dialog_that_was_handed_over() -> Agent[Any, Any]:
    return a_handoff()


SCENES: dict[str, Callable[[], Agent[Any, Any]]] = {
    scene.__name__: scene
    for scene in (
        a_function,
        nested_with_an_approval,
        several_at_once,
        a_failing_agent,
        a_failing_agent_with_a_default,
        a_failing_agent_that_ends_the_call,
        a_budget,
        a_task_that_is_refused,
        a_handoff,
        a_handoff_to_and_fro,
        handoffs_used_up,
        an_agent_inside_of_a_handoff,
        a_dialog_that_was_handed_over,
    )
}
QUICK = ("a_failing_agent_with_a_default",)  # all of its walks are in the gate
ENDS = {"cancelled": Cancelled(reason="Enough."), "stopped": Stop(reason="Enough."), "expired": Expired()}


class Walk:
    """A call in progress, with a record of everything visible.

    Args:
        scene: Makes the agent.
        takes: The index of the effect that is answered first, 0 or -1.
        approves: Whether functions may be called.
    """

    def __init__(self, scene: str, takes: int, approves: bool) -> None:
        self.scene = scene
        self.agent = SCENES[scene]()
        self.takes = takes
        self.approves = approves
        self.now_s = 0.0
        self.is_looked_at = True
        self.seen: list[Any] = []
        seed = self.agent.prepare("Go.")
        if scene == "a_dialog_that_was_handed_over":
            seed.record = seed.record.changed(governed_by="transfer_to_billing")
        self.call: AgentCall[Any] = seed.journaled()

    def step(self) -> None:
        """Answer an effect."""
        effect = self.call.effects[self.takes]
        self.now_s += 1.0
        self.take(effect.key, self._outcome(effect))

    def to_its_end(self) -> Self:
        """Answer all effects until the call ends."""
        for _ in range(MOST_STEPS):
            if not self.call.effects:
                return self
            self.step()
        raise AssertionError(f"{self.scene} takes more than {MOST_STEPS} steps")

    def take(self, key: str, outcome: Any) -> None:
        """Take an outcome, or see how it is refused."""
        before = self.call.record
        try:
            self.call.advance(key, outcome)
        except UsageError as error:
            assert self.call.record is before
            self.seen.append([key, f"{type(error).__name__}: {error}"])
            return
        if not self.is_looked_at:
            _ = self.call.effects, self.call.change  # a driver asks for them after each step
            return
        call, journal = self.call, self.call.journal
        assert journal is not None
        (line,) = Chain("header").written(journal.since(journal.n - 1), 1)
        told = list(call.steps)
        wanted = [effect.key for effect in call.effects]
        sent = [repr([*effect.request.messages]) for effect in call.effects if isinstance(effect, CallModel)]
        digests = [_digest(text) for text in (snapshot(call), repr(told), *sent)]
        steps = " and ".join([f"{path}: {trigger}" if path else trigger for path, trigger in json.loads(line)["steps"]])
        about = [line, _change(call), call.deadline, repr(call.output), *digests]
        self.seen.append([key, steps, f"{call.state}, waits for {', '.join(wanted) or 'nothing'}", *about])

    def resume(self) -> None:
        """Continue the call in its snapshot."""
        self.call = self.agent.restore(snapshot(self.call)).journaled()
        self.seen.append([effect.key for effect in self.call.effects])

    def undo(self) -> None:
        """Take the last step back, and again."""
        self.call.undo()
        self.seen.append([effect.key for effect in self.call.effects])
        self.call.redo()
        self.seen.append([effect.key for effect in self.call.effects])

    def _outcome(self, effect: Any) -> Any:
        match effect:
            case Begin():
                return Begun(at_s=self.now_s, id="c")
            case CallModel():
                owner = self.call.owner(effect.key)
                client: Any = owner.environments[0].client if owner.environments else self.agent.client
                try:
                    reply = client.complete(effect.request)
                except ScriptError:  # it has said all that it has to say
                    reply = Reply.of("Anything else?")
                return Replied(reply=reply, at_s=self.now_s)
            case AskApproval():
                return Approved(at_s=self.now_s) if self.approves else Denied("No.", at_s=self.now_s)
            case RunFunction():
                return Returned(text=f"{effect.call.name} did it", at_s=self.now_s)
        raise AssertionError(effect)


def _change(call: AgentCall[Any]) -> Any:
    change = call.change
    return change and [change.gone, [effect.key for effect in change.new], change.has_moved_deadline]


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def walked(whole: Walk, at: int, then: str) -> list[Any]:
    """What is seen of the same walk with something else at a step.

    That is an end, "injected", "resumed", "undone" or a wrong key.
    """
    walk = Walk(whole.scene, whole.takes, whole.approves)
    walk.is_looked_at = False  # until then it is as it was
    for _ in range(at):
        walk.step()
    walk.is_looked_at = True
    walk.seen = whole.seen[:at]
    if then in ENDS:
        walk.take("", ENDS[then].changed(at_s=walk.now_s))
    elif then == "injected":
        walk.take("", Injected((Message.of("user", "Hurry."),), at_s=walk.now_s))
    elif then == "resumed":
        walk.resume()
    elif then == "undone":
        walk.undo()
    else:
        walk.take(then, Returned(text="?", at_s=walk.now_s))
    return walk.to_its_end().seen


def walks_of(scene: str) -> dict[str, Walk]:
    """The walks on which nothing else happens, by name."""
    first, last = (Walk(scene, takes, approves) for takes, approves in ((0, True), (-1, False)))
    return {"from the first, approved": first.to_its_end(), "from the last, denied": last.to_its_end()}


def steps_of(whole: Walk) -> list[str]:
    """Return each step of a walk, with a digest of everything visible."""
    return [f"{'; '.join(map(str, step[:3]))} [{_digest(json.dumps(step))}]" for step in whole.seen]


def branches_of(name: str, whole: Walk) -> dict[str, str]:
    """What is kept of the walks that leave one at each of its steps: their number, and a digest."""
    kept: dict[str, str] = {}
    inside = sorted({step[0].rpartition("/")[0] + "/" for step in whole.seen if "/" in step[0]})
    for then in (*ENDS, "injected", "resumed", "undone", *inside, "run:2.0", "nothing/asked"):
        first = 1 if then in ("resumed", "undone") else 0
        ways = [walked(whole, at, then) for at in range(first, len(whole.seen))]
        kept[f"{name}, {then}"] = f"{len(ways)} walks [{_digest(json.dumps(ways))}]"
    return kept


def recorded_of(scene: str) -> dict[str, Any]:
    """What is kept of a scene."""
    kept: dict[str, Any] = {}
    for name, whole in walks_of(scene).items():
        kept |= {name: steps_of(whole), **branches_of(name, whole)}
    return kept


@pytest.mark.parametrize("scene", SCENES)
def test_steps_journals_and_snapshots_are_those_that_were_recorded(scene: str) -> None:
    recorded = json.loads(RECORDED.read_text())[scene]
    for name, whole in walks_of(scene).items():
        assert steps_of(whole) == recorded[name], name


@pytest.mark.parametrize(
    "scene", [scene if scene in QUICK else pytest.param(scene, marks=pytest.mark.nightly) for scene in SCENES]
)
def test_so_are_those_of_walks_that_end_resume_or_are_disturbed_at_any_step(scene: str) -> None:
    recorded, wholes = json.loads(RECORDED.read_text())[scene], walks_of(scene)
    now = {name: text for kept in (branches_of(*named) for named in wholes.items()) for name, text in kept.items()}
    assert now.keys() == recorded.keys() - wholes.keys()
    for name, walks in now.items():
        assert walks == recorded[name], name


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({scene: recorded_of(scene) for scene in SCENES}, indent=1) + "\n")
