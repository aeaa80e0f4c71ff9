"""What the agent calls that a function makes share with the call around it: `Context.call`."""

from __future__ import annotations

from itertools import count
from typing import Any

from fsm_agent.call.budget import has_budget, with_limits_left
from fsm_agent.call.effects import Reconcile
from fsm_agent.call.process import SEPARATOR, AnyEffect, InsideWait, Process, open_effects, wakes_at_s
from fsm_agent.call.record import CallRecord, Limits
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.runtime.abort import Aborted
from fsm_agent.runtime.recorder import PostedOutcome, Recorder
from fsm_agent.runtime.world import World


def is_in_doubt(process: Process) -> bool:
    """Return whether a process at rest, or one inside of it, does not know what became of a function."""
    return any(effect.prefix == Reconcile.prefix for effect in open_effects(process))


class InnerCalls:
    """The calls of agents and flows that one run of a function makes, in all of its attempts.

    Args:
        outer: The process whose function it is.
        key: An id of the function call that is the same after a resume.
        depth: The depth of the calls inside.
        world: The world of the process.
        recorder: The recorder of its run; None: it is in no store.
        asks_for_them: Whether its run asks the questions of the runs inside, as it runs the function again.

    Attributes:
        posts: The answers to questions of the runs inside, under the keys that those have here.
        used_posts: Those that have been taken.
        waits: What the runs inside wait for that cannot be known now.  The function waits with them: whatever it
            returns or raises then is no outcome.
        is_left: The driver no longer waits for the function.
        is_over: The function will not be run again.
    """

    __slots__ = (
        *("_numbers", "_outer", "_processes", "asks_for_them", "depth", "is_left", "is_over", "key", "posts"),
        *("recorder", "used_posts", "waits", "world"),
    )

    def __init__(
        self, outer: Any, key: str, depth: int, world: World, recorder: Recorder | None, asks_for_them: bool = False
    ) -> None:
        self.key = key
        self.depth = depth
        self.asks_for_them = asks_for_them
        self.posts: list[PostedOutcome] = []
        self.used_posts: list[PostedOutcome] = []
        self.waits: list[InsideWait] = []
        self.world = world
        self.recorder = recorder
        self.is_left = False
        self.is_over = False
        self._outer = outer
        self._numbers = count(1)
        self._processes: list[Process] = []

    @property
    def usage(self) -> Usage:
        """The tokens of the calls so far, including those that have not ended or have failed."""
        return sum([process.record.total_usage for process in self._processes], UNUSED)

    @property
    def has_approver(self) -> bool:
        """True if the call around them has an approver."""
        return self.world.approve is not None or bool(getattr(self._outer, "has_approver", False))

    @property
    def may_rest(self) -> bool:
        """True if a call that is stopped is continued when the function is run again."""
        return self.is_left and not self.is_over

    def next_name(self) -> str:
        """Return the name of the run of the next call, which is the same when the function is run again."""
        return f"{self.key}/{next(self._numbers)}"

    def add(self, process: Process) -> None:
        """Count the tokens of a process from now on."""
        self._processes.append(process)

    def lent(self, record: Any) -> Any:
        """Return the record of a new process with the depth of a call inside, and with what is left for it."""
        outer = self._outer.record
        limits = outer.limits if isinstance(outer, CallRecord) else outer.lent or Limits()
        if record.depth < self.depth:  # it was made in a thread of the function's own
            record = record.changed(depth=self.depth)
        if has_budget(limits):
            record = with_limits_left(record, limits, outer.total_usage + self.usage)
        until_s = getattr(outer, "deadline_s", None)
        if until_s is None or not isinstance(record, CallRecord):  # a flow inside ends with its function
            return record
        left_s, own_s = max(0.0, until_s - self.world.clock.now()), record.limits.deadline_s
        is_shorter = own_s is None or left_s < own_s
        return record.changed(limits=record.limits.changed(deadline_s=left_s)) if is_shorter else record

    def posts_for(self, run: str) -> list[PostedOutcome]:
        """Return the answers to questions of a run inside, under the keys that the run has for them."""
        prefix = self._place_of(run)
        own = [post for post in self.posts if post.key.startswith(prefix) and post not in self.used_posts]
        self.used_posts += own
        return [post.changed(key=post.key.removeprefix(prefix)) for post in own]

    def wait_for(self, process: Process, run: str) -> None:
        """Let the function wait for what a process inside waits for."""
        prefix = self._place_of(run)
        effects: list[AnyEffect] = [effect.changed(key=f"{prefix}{effect.key}") for effect in open_effects(process)]
        self.waits.append(InsideWait(run, tuple(effects), wakes_at_s(process)))

    def _place_of(self, run: str) -> str:
        """Return what the keys of a run inside begin with here; "%" and "/" in a name of the caller's are escaped."""
        number = run.removeprefix(f"{self.key}{SEPARATOR}")
        return f"{number.replace('%', '%25').replace(SEPARATOR, '%2F')}{SEPARATOR}"

    def check(self) -> None:
        """Raise `Aborted` if the driver no longer waits for the function."""
        if self.is_left:
            raise Aborted
