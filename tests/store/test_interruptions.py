"""Is a run whole, and nothing done twice, after every interruption of its driver?"""

from __future__ import annotations

import json
import linecache
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from types import FrameType
from typing import Any

import pytest
from recorded_drivers import HEARD, Way
from support.kept_runs import LastingStore, answers, clerk, definition_of, lose, skip_replies

from fsm_agent.agents import Agent
from fsm_agent.call import Approved, CallSuspended, Outcome, Reconcile, Returned, RunAgain
from fsm_agent.functions import function
from fsm_agent.messages import Done
from fsm_agent.store import MemoryStore, Store

FILES = ("call/journal.py", "runtime/drive_loop.py", "runtime/drivers.py", "store/recorder.py")
SAMPLES = 12


class Effects:
    """Functions whose effects are counted."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

        @function
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            self.done[f"add {a}"] += 1
            return a + b

        @function(once=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.done["pay"] += 1
            return f"paid {amount}"

        @function(needs_approval=True)
        def wipe(path: str) -> str:
            """Wipe."""
            self.done["wipe"] += 1
            return "wiped"

        self.functions = (add, pay, wipe)


def finished(agent: Agent[Any, Any], effects: Effects, run: str = "r1") -> Any:
    """Go on with a run as the next holder does, with a person who knows what was paid."""
    told: dict[str, Outcome] = {}
    for _ in range(20):
        try:
            return agent.runs.resume(run, told, by="ann")
        except CallSuspended as suspended:
            told = {}
            for effect in suspended.call.effects:
                if isinstance(effect, Reconcile):
                    told[effect.key] = Returned(text="paid 3") if effects.done["pay"] else RunAgain()
                else:
                    told[effect.key] = Approved()
    raise AssertionError("it has no end")


def next_holder(store: Store, effects: Effects, **options: Any) -> Agent[Any, Any]:
    """The same agent in another OS process, whose model has said what the journal holds."""
    agent = clerk(store, *effects.functions, **options)
    replies = sum('"kind":"replied"' in line or '"kind":"model_failed"' in line for line in store.load("r1").lines)
    skip_replies(agent.client, replies)
    return agent


class Trap:
    """Raises at the line number ``at`` that is executed in one of the files."""

    def __init__(self, at: int, files: tuple[str, ...] = FILES) -> None:
        self.at = at
        self.files = files
        self.lines = 0
        self.sprung = ""

    def __enter__(self) -> Trap:
        self._before = sys.gettrace()  # that of coverage, perhaps
        sys.settrace(self._call)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.endswith(self.files) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and not _is_with(frame):
            self.lines += 1
            if self.lines == self.at:
                self.sprung = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._line


def _is_with(frame: FrameType) -> bool:
    """Whether it is at the line of a ``with``, which would not be left again: no signal comes there."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith(("with ", "async with "))


def interrupted(at: int) -> tuple[MemoryStore, Effects, Trap]:
    store, effects, trap = (MemoryStore, LastingStore)[at % 2](), Effects(), Trap(at)
    agent = clerk(store, *effects.functions)
    try:
        with trap:
            agent.call("Go.", run_id="r1")
    except (KeyboardInterrupt, CallSuspended):
        pass
    return store, effects, trap


def assert_whole(store: Store, effects: Effects, place: str) -> None:
    """Assert that the run continues elsewhere to its end, and that its journal matches its record."""
    held = store.list()
    if not held or held[0].holder is not None:
        if not held:
            return  # it was not begun
        store.append(lose(store), held[0].n, (), None)
        store._clock = Later()
    agent = next_holder(store, effects)
    result = finished(agent, effects)
    assert result.output == 42, place
    assert effects.done["pay"] == 1, place
    assert effects.done["wipe"] == 1, place
    whole = agent.runs.replay("r1")
    assert whole.record == result.record, place
    assert whole.record.trace == result.record.trace, place


class Later:
    def __call__(self) -> float:
        return time.time() + 10_000.0


def lines_of_a_run() -> int:
    interrupted(0)  # loads what is loaded late
    store, _, trap = interrupted(0)
    assert len(answers(clerk(store).runs.all, "r1")) == 1, "it comes to the approval"
    return trap.lines


def test_an_interruption_at_any_line_leaves_a_run_that_goes_on():
    lines, places = lines_of_a_run(), set()
    for number in range(SAMPLES):
        places.add(check(1 + number * lines // SAMPLES))
    assert len(places) > SAMPLES / 3


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_an_interruption_at_each_line_leaves_a_run_that_goes_on(say: Callable[[str], None]):
    lines = lines_of_a_run()
    places = {check(at) for at in range(1, lines)}
    assert len(places) > 100
    say(f"{lines - 1} interruptions at {len(places)} places: all went on")


def check(at: int) -> str:
    """Return where the run was interrupted, or empty if the driver waited less often for threads than it may."""
    store, effects, trap = interrupted(at)
    assert_whole(store, effects, f"{trap.sprung} (line {at})")
    return trap.sprung


# Where a listener breaks off


class Stop(Exception):
    """The listener breaks off."""


def stopped(way: Way, store: Store, at: int) -> tuple[bool, Effects, int]:
    """Drive a run until its event number ``at``.  Return whether it came, what ran, and what had returned."""
    effects, heard = Effects(), 0
    agent = clerk(store, *effects.functions, approve=lambda f: True)
    one, recorder = agent.runs.all.claims.begin(agent.prepare("Go.", run_id="r1"), definition_of(agent))

    def listen(event: Any) -> None:
        nonlocal heard
        heard += 1
        if heard == at and not isinstance(event, Done):
            raise Stop

    try:
        way(one, agent._own_environment, recorder, listen)
    except Stop:
        return True, effects, effects.done.total()
    return False, effects, effects.done.total()


@pytest.mark.parametrize("way", HEARD, ids=lambda way: way.__name__)
def test_what_had_returned_is_not_run_again_wherever_the_driver_was_stopped(way: Way, monkeypatch: pytest.MonkeyPatch):
    """At each event.  The stores take turns."""
    # A thread may be between its effect and its return when the driver stops, so functions run where they are started.
    monkeypatch.setattr("fsm_agent.runtime.portal._start", lambda job: copy_context().run(job))
    at = 1
    while True:
        store = (MemoryStore, LastingStore)[(at + HEARD.index(way)) % 2]()
        was_stopped, effects, returned = stopped(way, store, at)
        if not was_stopped:
            break
        assert store.get("r1").holder is None, f"event {at}: the run was not given back"
        keys = [json.loads(line)["key"] for line in store.load("r1").lines]
        assert sum(key.startswith("run:") for key in keys) == returned, f"event {at}: {keys}"
        agent = next_holder(store, effects, approve=lambda f: True)
        result = finished(agent, effects)
        assert result.output == 42, f"event {at}"
        assert effects.done == {"add 1": 1, "add 3": 1, "pay": 1, "wipe": 1}, f"event {at}"
        assert agent.runs.replay("r1").record == result.record
        at += 1
    assert at > 20, "it was stopped at each event"
    assert store.get("r1").is_ended
