"""Reconstruct the states of a run from its triggers, which is all that a journal holds, without the agent's code.

Each row of the table leads from one state to another.  If rows with the same trigger lead to several states, the key of
the next answer decides, since it shows what the run waited for, or else the known last state.  One case is ambiguous:
whether functions were still pending when an unrequested outcome came, such as a cancellation.  They are assumed to be.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent.call.record import ASKING, FINAL, LIVE, TAKES_OVER, State
from fsm_agent.call.table import ROWS
from fsm_agent.messages.events import Stepped

_WAITS: dict[str, tuple[State, ...]] = {  # by the prefix of a key: the states in which there is such an effect
    "begin": (State.SEEDED,),
    "model": ASKING,
    "sleep": (State.BACKOFF,),
    "check": (State.CHECKING,),
    TAKES_OVER.rstrip(":"): (State.HANDED_OVER,),
    **dict.fromkeys(("ask", "start", "run", "doubt"), (State.TOOL_INTERRUPT,)),
}


class _Way:
    """A row for one of its sources, leading to a state."""

    __slots__ = ("guard", "source", "to")

    def __init__(self, source: State, to: State, guard: str) -> None:
        self.source, self.to, self.guard = source, to, guard


def _ways() -> dict[str, list[_Way]]:
    ways: dict[str, list[_Way]] = {}
    for trigger, sources, to, guard, _ in ROWS:
        for source in sources if isinstance(sources, tuple) else (sources,):
            way = _Way(State(source), State(to or source), guard.__name__ if guard else "")
            ways.setdefault(trigger, []).append(way)
    return ways


_WAYS = _ways()


def path(steps: Sequence[Stepped], state: str | None = None) -> list[Stepped] | None:
    """Return steps with their source and target states, and with their guards where those are unambiguous.

    Args:
        steps: All steps of an agent call from its start; only trigger and key have to be set.
        state: The state after the last step; None: unknown.

    Returns:
        None if no agent call can take these steps.
    """
    behind = _possible_states_after(steps, state)
    if behind is None:
        return None
    taken: list[Stepped] = []
    now, is_branch = State.SEEDED, False
    for step, possible in zip(steps, behind, strict=True):
        ways = [way for way in _WAYS.get(step.trigger, ()) if way.source == now and way.to in possible]
        if not ways:
            return None
        to = _likeliest([way.to for way in ways], is_branch)
        guards = [way.guard for way in ways if way.to == to]
        taken.append(step.changed(source=str(now), to=str(to), guard=guards[0] if len(guards) == 1 else ""))
        if now in ASKING:  # remember it: a backoff returns to the branch that it came from
            is_branch = now is State.PARSE_EXCEPTION
        now = to
    return taken


def _possible_states_after(steps: Sequence[Stepped], state: str | None) -> list[set[State]] | None:
    """Return the possible states after each step; None if there is no possible path."""
    before: set[State] = {State.SEEDED}
    sources: list[set[State]] = []
    for step in steps:
        here = before & _states_waiting_for(step.key)
        sources.append({way.source for way in _WAYS.get(step.trigger, ()) if way.source in here})
        before = {way.to for way in _WAYS.get(step.trigger, ()) if way.source in here}
    last = before & {State(state)} if state in {*LIVE, *FINAL} else before
    behind: list[set[State]] = []
    for step, here in zip(reversed(steps), reversed(sources), strict=True):
        behind.append(last)
        last = {way.source for way in _WAYS.get(step.trigger, ()) if way.source in here and way.to in last}
    return behind[::-1] if all(behind) else None


def _states_waiting_for(key: str) -> set[State]:
    """Return the states with an effect of this key; all states, for outcomes that answer no effect."""
    return {*_WAITS.get(key.partition(":")[0], LIVE)}


def _likeliest(states: list[State], is_branch: bool) -> State:
    """Return the likeliest of the possible target states."""
    if State.PARSE_EXCEPTION in states and State.CALLING in states:
        return State.PARSE_EXCEPTION if is_branch else State.CALLING
    live = [state for state in states if state in LIVE]
    return (live or states)[-1]
