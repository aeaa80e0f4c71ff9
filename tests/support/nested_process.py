"""A toy process with children: members give drafts at once, then one draft is picked.

A member is an agent call or another team.  The pick is an effect that only the toy has.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import field
from msgspec.structs import astuple

from fsm_agent._internal.structs import Value, Vector, from_json
from fsm_agent.call import (
    AgentCall,
    Begin,
    Begun,
    CallRecord,
    Cancelled,
    ChildHandle,
    EffectValue,
    Expired,
    Limits,
    Process,
    Replied,
    State,
    machine_of,
)
from fsm_agent.messages import Reply, Stepped
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.runtime import Environment
from fsm_agent.runtime.activity import Activity, activity_of
from fsm_agent.testing import Script, as_json, function_call


class Stage(StrEnum):
    SEEDED = "Seeded"
    DRAFTING = "Drafting"
    DECIDING = "Deciding"
    DONE = "Done"
    FAILED = "Failed"


LIVE = (Stage.SEEDED, Stage.DRAFTING, Stage.DECIDING)


class Gave(Value, frozen=True, kw_only=True):
    """A member has ended well."""

    member: str
    text: str
    record: Any
    at_s: float = 0.0
    kind: str = "gave"


class Broke(Value, frozen=True, kw_only=True):
    """A member has failed."""

    member: str
    reason: str
    record: Any
    at_s: float = 0.0
    kind: str = "broke"


class Picked(Value, frozen=True, kw_only=True):
    """One of the drafts was picked."""

    index: int
    at_s: float = 0.0
    kind: str = "picked"


class Pick(EffectValue, frozen=True):
    """A decision between drafts."""

    prefix, outcomes = "pick", (Picked,)

    key: str
    drafts: tuple[str, ...]


class Considered(Value, frozen=True):
    """An event that only the toy has: a person looks at a draft."""

    draft: str
    key: str  # that the performer was given


class Patience:
    """What a pick waits for in a test."""

    def __init__(self) -> None:
        self.begun, self.free = threading.Event(), threading.Event()


PATIENCE: dict[str, Patience] = {}  # by a draft: who picks among it waits


@activity_of(Pick)
class PickActivity(Activity):
    """Looks at each draft before it picks one."""

    __slots__ = ()

    async def perform(self) -> Any:
        for draft in self.effect.drafts:
            if draft in PATIENCE:
                PATIENCE[draft].begun.set()
                await asyncio.sleep(30)
            if self.driver.has_listener:
                yield Considered(draft, self.effect.key)
        yield Picked(index=_longest(self.effect.drafts), at_s=self.environment.clock.now())


def _longest(drafts: tuple[str, ...]) -> int:
    return max(range(len(drafts)), key=lambda index: len(drafts[index]))


class TeamRecord(Value, frozen=True, kw_only=True):
    """The state of a team, with the states of its members inside."""

    id: str = ""
    state: Stage = Stage.SEEDED
    children: Mapping[str, Any] = field(default_factory=dict)
    drafts: Mapping[str, str] = field(default_factory=dict)  # by member
    ended: Mapping[str, Any] = field(default_factory=dict)  # the records of members that have ended
    text: str = ""
    reason: str = ""
    started_at_s: float = 0.0
    trace: Vector[Stepped] = field(default_factory=Vector)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TeamRecord) and astuple(self)[:-1] == astuple(other)[:-1]

    __hash__ = None  # type: ignore[assignment]

    @property
    def ending(self) -> str | None:
        return self.state if self.state in (Stage.DONE, Stage.FAILED) else None

    @property
    def failure(self) -> str | None:
        return self.reason if self.state is Stage.FAILED else None


class Solo(Value, frozen=True, kw_only=True):
    """A member that is an agent call."""

    prompt: Prompt = Prompt("x", path="p")
    limits: Limits = Limits()
    environment: Environment | None = None


Plan: TypeAlias = Mapping[str, Any]  # a Solo or a Plan, by the member's name


def has_all(r: TeamRecord, answer: Gave, team: Team) -> bool:
    return not r.children


def ask_all(r: TeamRecord, answer: Begun, team: Team) -> TeamRecord:
    return r.changed(id=answer.id, started_at_s=answer.at_s, children=team.seeds())


def keep_draft(r: TeamRecord, answer: Gave, team: Team) -> TeamRecord:
    drafts, ended = {**r.drafts, answer.member: answer.text}, {**r.ended, answer.member: answer.record}
    return r.changed(drafts=drafts, ended=ended)


def keep_pick(r: TeamRecord, answer: Picked, team: Team) -> TeamRecord:
    return r.changed(text=team.drafts(r)[answer.index])


def keep_reason(r: TeamRecord, answer: Any, team: Team) -> TeamRecord:
    ended = {**r.ended, **r.children}
    if isinstance(answer, Broke):
        ended[answer.member] = answer.record
    return r.changed(reason=f"{answer.kind}: {getattr(answer, 'reason', '')}", children={}, ended=ended)


ROWS = (
    ("begun", Stage.SEEDED, Stage.DRAFTING, None, ask_all),
    ("gave", Stage.DRAFTING, Stage.DECIDING, has_all, keep_draft),
    ("gave", Stage.DRAFTING, None, None, keep_draft),
    ("picked", Stage.DECIDING, Stage.DONE, None, keep_pick),
    ("broke", Stage.DRAFTING, Stage.FAILED, None, keep_reason),
    ("expired", LIVE, Stage.FAILED, None, keep_reason),
    ("cancelled", LIVE, Stage.FAILED, None, keep_reason),
    ("stopped", LIVE, Stage.DONE, None, keep_reason),
)


class Team(Process):
    """A process whose members are agent calls and teams."""

    machine = machine_of(ROWS, Stage)

    def __init__(self, record: TeamRecord, plan: Plan, deadline_s: float | None = None) -> None:
        super().__init__(record)
        self.plan = plan
        self.deadline_s = deadline_s

    def seeds(self) -> dict[str, Any]:
        dialog = Dialog().put("Write.").messages
        return {
            name: CallRecord.of(dialog, limits=member.limits) if isinstance(member, Solo) else TeamRecord()
            for name, member in self.plan.items()
        }

    def drafts(self, r: TeamRecord) -> tuple[str, ...]:
        return tuple([r.drafts[name] for name in self.plan])

    def own_effects(self) -> Iterable[EffectValue]:
        if self.record.state is Stage.SEEDED:
            return (Begin("begin"),)
        return (Pick("pick:1", self.drafts(self.record)),) if self.record.state is Stage.DECIDING else ()

    def child(self, name: str, record: Any) -> ChildHandle:
        member = self.plan[name]
        made: Any = AgentCall(record, member.prompt) if isinstance(member, Solo) else Team(record, member)
        own = member.environment if isinstance(member, Solo) else None
        return ChildHandle(made, (), environment=None if own is None else lambda: own)

    def begin(self, record: TeamRecord, name: str, child: Any) -> None:
        child.advance("begin", Begun(id=f"{record.id}/{name}", at_s=record.started_at_s))

    def result_of_child(self, name: str, child: Any) -> Gave | Broke:
        r = child.record
        at_s = r.trace[-1].at_s
        if r.state in (State.COMPLETED, Stage.DONE):
            text = r.text if isinstance(child, Team) else str(child.output)
            return Gave(member=name, text=text, record=r, at_s=at_s)
        reason = r.reason if isinstance(child, Team) else str(r.ending.reason)
        return Broke(member=name, reason=reason, record=r, at_s=at_s)

    @property
    def result_so_far(self) -> str:
        return self.record.text

    @property
    def fingerprint(self) -> str:
        return repr(self.plan)

    def encode_own(self, key: str, outcome: Any) -> str:
        return json.dumps(as_json(outcome))

    def decode_own(self, key: str, document: bytes | str) -> Any:
        kinds = {"begin": Begun, "pick:1": Picked, "": Cancelled | Expired}
        return from_json(document, kinds.get(key, Gave | Broke))

    @property
    def own_deadline_s(self) -> float | None:
        if self.deadline_s is None or self.record.state is Stage.SEEDED:
            return None
        return self.record.started_at_s + self.deadline_s


# Teams that tests drive or advance


def solo(*entries: Any, functions: Any = (), limits: Limits = Limits(), **environment: Any) -> Solo:
    """A member with its own model."""
    return Solo(
        prompt=Prompt("x", path="p", functions=functions),
        limits=limits,
        environment=Environment.of(Script(*entries), **environment),
    )


def double(n: int) -> int:
    """Double it."""
    return 2 * n


async def triple(n: int) -> int:
    """Triple it."""
    return 3 * n


def pair(*failures: Exception) -> Team:
    """Two agent calls at once, and then a decision."""
    round_of_two = [function_call("double", n=1), function_call("triple", n=2)]
    warm = solo(round_of_two, *failures, "dear all of you", functions=[double, triple])
    return Team(TeamRecord(), {"warm": warm, "terse": solo("no")})


def tower() -> Team:
    """Three levels, with a decision on each."""
    inner = {"one": solo("1"), "two": solo(function_call("double", n=11), "twenty-two", functions=[double])}
    return Team(TeamRecord(), {"deep": {"deeper": inner, "beside": solo("a word")}, "alone": solo("x")})


def started(one: Team) -> Team:
    one.advance("begin", Begun(id="t", at_s=1.0))
    return one


def answer(one: Team, key: str, *parts: Any) -> None:
    one.advance(key, Replied(reply=Reply.of(*parts), at_s=2.0))
