"""Runs in stores, for tests of journals: agents that use every feature, and stores that note their calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from fsm_agent.agents import Agent
from fsm_agent.call import Approved, CallSuspended, Header, Outcome
from fsm_agent.errors import RateLimited
from fsm_agent.functions import function
from fsm_agent.store import Lease, LeaseLost, Loaded, MemoryStore, Runs, Store, Suspension
from fsm_agent.store.claiming import ProcessFactory
from fsm_agent.store.recorder import StoreRecorder
from fsm_agent.testing import Script, as_json, function_call
from support.nested_process import Team, TeamRecord

LONG_S = 30.0
APPROVED = Approved()


def OWN_CLOCK() -> float:
    """A store's clock, separate from the clock of scripts, which wait for nothing."""
    return time.time()


def renew(recorder: StoreRecorder) -> None:
    """Renew the lease of a recorder, as the thread for all leases does."""
    (result,) = recorder.store.renew_all([recorder.lease], for_s=recorder.lease_s)
    recorder.note_renewal(result)


@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function(once=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@function(needs_approval=True)
def wipe(path: str) -> str:
    """Wipe."""
    return f"wiped {path}"


def clerk(store: Any, *functions: Any, name: str = "clerk", **options: Any) -> Agent[Any, Any]:
    """An agent whose run has parallel functions, one of them once, a backoff, a parse error, and an approval."""
    script = Script(
        [function_call("add", a=1, b=2), function_call("pay", amount=3), function_call("add", a=3, b=4)],
        RateLimited("slow down", status=429, retry_after_s=2.0),
        "many",
        function_call("wipe", path="x"),
        "42",
    )
    return Agent(script, functions=functions or (add, pay, wipe), output=int, store=store, name=name, **options)


def rested(store: Any, run: str = "r1", **options: Any) -> Agent[Any, Any]:
    """The clerk, whose run waits for the approval."""
    agent = clerk(store, **options)
    try:
        agent.call("Go.", run_id=run)
    except CallSuspended:
        return agent
    raise AssertionError("it asked nobody")


def ended(store: Any, run: str = "r1", **options: Any) -> Agent[Any, Any]:
    """The clerk, whose run has ended."""
    agent = rested(store, run, **options)
    assert agent.runs.resume(run, answers(agent.runs.all, run), by="ann").output == 42
    return agent


def answers(runs: Runs, run: str, outcome: Outcome = APPROVED) -> dict[str, Outcome]:
    """The same answer to all that a run asks."""
    return {question.key: outcome for question in runs.store.load(run).run.waits}


def definition_of(agent: Agent[Any, Any]) -> ProcessFactory:
    return agent._definition({})


def loaded(store: Store, run: str = "r1") -> Loaded:
    return store.load(run, after=0)


def triggers(process: Any) -> list[str]:
    return [step.trigger for step in process.record.trace]


class Elsewhere:
    """The clock of a store that another holder uses, for whom all leases have passed."""

    def __init__(self, ahead_s: float = 100.0) -> None:
        self.ahead_s = ahead_s

    def __call__(self) -> float:
        return time.time() + self.ahead_s


class Moving:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


class LastingStore(MemoryStore):
    """A store in memory that drivers take for one on a disk."""

    is_volatile = False
    has_own_clock = True


class Noting(MemoryStore):
    """A store that notes each append; `before` is called with the number of each before it is done.

    Attributes:
        is_volatile: As the driver shall see it.
    """

    has_own_clock = True

    def __init__(self, before: Callable[[int], None] | None = None, *, is_volatile: bool = False) -> None:
        super().__init__()
        self.is_volatile = is_volatile
        self.noted: list[Any] = []
        self.before = before
        self.appends = 0

    def append(self, lease: Lease, n: int, lines: Sequence[str], rest: Suspension | None = None, **rest_: Any) -> int:
        self.appends += 1
        if self.before is not None:
            self.before(self.appends)
        left = super().append(lease, n, lines, rest, **rest_)
        self.noted.append(("append", n, len(lines), rest))
        return left

    def submit(
        self, lease: Lease, n: int, lines: Sequence[str], rest: Suspension | None = None, **rest_: Any
    ) -> Future[int]:
        future = Future[int]()
        try:
            future.set_result(self.append(lease, n, lines, rest, **rest_))
        except Exception as error:
            future.set_exception(error)
        return future


def lose(store: Store, run: str = "r1") -> Lease:
    """Have another holder claim a run that is held: its lease passes first."""
    kept: Any = store
    clock, kept._clock = kept._clock, Elsewhere()
    try:
        lease = store.claim("another", for_s=1000.0, run=run)
    finally:
        kept._clock = clock
    assert lease is not None
    return lease


def is_lost(act: Callable[[], Any]) -> bool:
    try:
        act()
    except LeaseLost:
        return True
    return False


def team_definition(make: Callable[[TeamRecord], Team]) -> ProcessFactory:
    """How teams are made; they are never restored from documents."""

    def of(header: Header, document: str | None) -> Team:
        assert document is None
        return make(TeamRecord())

    return ProcessFactory("team", of, lambda process: "{}", lambda: "team")


def team_header() -> str:
    return json.dumps(as_json(Header(version=1, agent="team", fingerprint="", seed=msgspec.Raw(b"{}"))))


def skip_replies(script: Any, count: int) -> None:
    """Leave out the first replies of a script, for a run whose earlier driver has had them."""
    for _ in range(count):
        script._entries.popleft()


def assert_fences(lines: Sequence[str]) -> None:
    """Assert that fences never fall in a journal, and that nothing was started twice without a person's word."""
    entries = [msgspec.json.decode(line) for line in lines]
    fences = [entry["fence"] for entry in entries]
    assert fences == sorted(fences)
    started: set[tuple[str, str]] = set()
    for entry in entries:
        path, _, effect = entry["key"].rpartition("/")
        subject = path, effect.partition(":")[2].partition(":")[0]
        if entry["outcome"]["kind"] == "run_again":
            started.remove(subject)
        elif entry["outcome"]["kind"] == "started":
            assert subject not in started
            started.add(subject)
