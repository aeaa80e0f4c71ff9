"""The records of flows, their endings and limits, and the effects that only flows have."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

import msgspec
from msgspec import field
from msgspec.structs import astuple, force_setattr

from fsm_agent._internal.structs import GrowingMap, Tagged, Value, Vector, is_amount, is_whole, to_json
from fsm_agent.call.effects import RunFunction, Sleep
from fsm_agent.call.limits import Limits
from fsm_agent.call.outcomes import Expired, Returned, Slept
from fsm_agent.call.process import SEPARATOR, EffectValue
from fsm_agent.call.record import OnceRun
from fsm_agent.flows.states import WaitState
from fsm_agent.flows.values import Failure
from fsm_agent.functions.function import result_text
from fsm_agent.messages.events import Question, Stepped
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.validation import require


class AwaitAnswer(EffectValue, frozen=True):
    """The effect of waiting for a person's answer or for an event outside the program.

    Examples:
        >>> @wait(bool)
        ... def review(text: str) -> str:
        ...     return text
        >>> try:
        ...     Flow("letters", str, start=review, rows=[review.done(end("over"))]).call("Dear Ada")
        ... except FlowSuspended as waiting:
        ...     print([(effect.key, effect.shown) for effect in waiting.run.effects])
        [('answer:review#1', 'Dear Ada')]
    """

    prefix, outcomes = "answer", (Returned,)

    key: str
    state: WaitState[Any, Any]
    shown: Any  # the question

    @property
    def question(self) -> Question:
        about = to_json({"question": result_text(self.shown), "types": self.state.answer_types.names})
        return Question(self.key, "answer", about, ("returned",), self.state.answer_types.schema)


class Timer(Sleep, frozen=True):
    """The effect of waiting until a state's time runs out."""

    outcomes: ClassVar[tuple[type, ...]] = (Slept, Expired)  # type: ignore[assignment]


class RunOnData(RunFunction, frozen=True, kw_only=True):
    """The effect of running a state's function on the data."""

    data: Any


class Edited(Tagged, frozen=True, kw_only=True, tag="edited"):
    """A person's change to the data in a fork.  Its key is ``""``, because it answers no effect."""

    data: msgspec.Raw
    by: str = ""  # who changed them, for people
    at_s: float = 0.0


class FlowLimits(Value, frozen=True, kw_only=True):
    """The limits on a run of a flow.

    Examples:
        >>> @execute
        ... def count(n: int) -> int:
        ...     return n + 1
        >>> def is_high(n: int) -> bool:
        ...     return n >= 100
        >>> rows = [count.done(end("over"), when=is_high), count.done(count, do=lambda n, more: more)]
        >>> counting = Flow("counting", int, start=count, rows=rows, limits=FlowLimits(steps=5))
        >>> try:
        ...     counting.call(0)
        ... except FlowFailed as error:
        ...     print(error.run.state)
        Failed
    """

    steps: int = 1000  # the maximum number of states that a run enters
    inbox: int = 100  # the maximum number of early answers that a run keeps
    deadline_s: float | None = None  # from the start of the run

    def __post_init__(self) -> None:
        for name in ("steps", "inbox"):
            require(
                f"limits.{name}", getattr(self, name), is_whole(getattr(self, name), 1), "a whole number of at least 1"
            )
        is_right = self.deadline_s is None or is_amount(self.deadline_s)
        require("limits.deadline_s", self.deadline_s, is_right, "a number of seconds, or None")
        if self.deadline_s is not None:  # the type that JSON gives back
            force_setattr(self, "deadline_s", float(self.deadline_s))


class FlowEnding(Value, frozen=True):
    """How a flow, or a group of members, ended."""

    state: str
    is_failure: bool = False
    detail: str = ""
    where: str = ""  # the member that failed

    @property
    def reason(self) -> str:
        """The name of the end."""
        return self.state


class FlowProcessRecord(Value, frozen=True, kw_only=True):
    """The base class of all records of flows.  Equality ignores the trace, and everything that is not saved.

    ``once`` holds the attempts to run states without a child, by name.
    """

    id: str = ""
    state: Any
    depth: int = 0  # how many agent calls are around it
    once: Mapping[str, OnceRun] = field(default_factory=dict)
    children: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = UNUSED  # of agent calls that have ended
    budget_left: Limits | None = None  # the rest of the outer agent call's budgets
    ending: FlowEnding | None = None
    trace: Vector[Stepped] = Vector()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            mine == others
            for name, mine, others in zip(self.__struct_fields__, astuple(self), astuple(other), strict=True)
            if name not in ("trace", "asked_version")
        )

    __ne__ = object.__ne__  # the opposite of __eq__; msgspec's compares identities under eq=False

    @property
    def total_usage(self) -> Usage:
        """The tokens of all agent calls, including those in progress."""
        if not self.children:
            return self.usage
        return sum([child.total_usage for child in self.children.values()], self.usage)

    @property
    def usage_by_agent(self) -> dict[str, Usage]:
        """The tokens used by each agent call, by its path.  Calls that have ended are summed under the empty path."""
        used = {"": self.usage}
        for name, child in self.children.items():
            for path, usage in child.usage_by_agent.items():
                used[f"{name}{SEPARATOR}{path}" if path else name] = usage
        return used

    @property
    def failure(self) -> str | None:
        """Why the run failed, worded for the model that requested it, or None if it did not fail."""
        if self.ending is None or not self.ending.is_failure:
            return None
        return f"{self.ending.state}: {self.ending.detail}".rstrip(": ")


class FlowRecord(FlowProcessRecord, frozen=True, kw_only=True, eq=False):
    """The whole state of a run of a flow."""

    flow: str
    version: int = 1
    data: Any
    limits: FlowLimits = FlowLimits()
    extra: Mapping[str, Any] = field(default_factory=dict)  # JSON data of the caller, which the package does not read
    by: str = ""  # the user who asked; empty: unknown
    steps: int = 0  # states that were entered
    former_names: tuple[str, ...] = ()  # names of the current step in older versions; its question may use them
    upgraded_from: int = 0  # the oldest version of the record, for early answers; 0: never upgraded
    asked_version: int = 0  # the version under which its questions were asked; 0: this one; not saved
    inbox: Mapping[str, tuple[Returned, ...]] = field(default_factory=dict)  # early answers by state, the oldest first
    entered_at_s: float = 0.0  # Unix time
    due_at_s: float | None = 0.0  # Unix time at which the state's time ends; None: no limit; 0: not recorded
    first_due_at_s: Mapping[str, float] = field(default_factory=dict)  # the same by name, for states with restart=False
    started_at_s: float = 0.0  # Unix time
    reacted_to: tuple[str, ...] = ()  # "cancelled" and "expired", once a row has handled it
    reaction: tuple[str, str] | None = None  # a trigger, with its detail, that waits for a result

    @property
    def here(self) -> str:
        """The name of the current step."""
        return step_name(self.state, self.steps)

    @property
    def deadline_s(self) -> float | None:
        """The Unix time at which the run expires, or None if no deadline applies at present."""
        limit = self.limits.deadline_s
        return None if limit is None or not self.steps or "expired" in self.reacted_to else self.started_at_s + limit


def step_name(state: Any, steps: int) -> str:
    """Return the name of a step: the state, and the number of states entered so far."""
    return f"{state}#{steps}"


class Stage(StrEnum):
    """The state that a group of members is in."""

    SEEDED = "Seeded"
    WORKING = "Working"
    COMPLETED = "Completed"
    FAILED = "Failed"


class Settled(Value, frozen=True):
    """The result of a member that has ended."""

    text: str = ""  # the value as JSON, or the last data of a failed flow
    failure: Failure | None = None


class MembersRecord(FlowProcessRecord, frozen=True, kw_only=True, eq=False):
    """The whole state of a group of members.  The data is in the record of the flow."""

    begun: int = 0  # how many members have begun, in order
    lost: int = 0  # how many of them have failed, unless failures count as results
    settled: GrowingMap[Settled] = GrowingMap()  # by name
