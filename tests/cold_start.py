"""A program in which many threads use everything for the first time at once: ``python cold_start.py runs.db``.

Each thread begins with another part, so that each part is first used together with each of the others.  The program
prints every deviation, and then exits with 1.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from fsm_agent import Agent, Approved, CallSuspended, Limits, Prompt, Worker, function
from fsm_agent import testing as doubles
from fsm_agent.flows import Flow, ask, end, execute, gather, pause
from fsm_agent.store import MemoryStore, Runs

THREADS = 32


class City(BaseModel):
    name: str
    people: int


@dataclass(frozen=True)
class Trip:
    n: int
    cities: tuple[str, ...] = ()


@function
def look(at: int, deep: bool = False) -> str:
    """Look."""
    return f"seen {at}"


@function(needs_approval=True)
def wipe(path: str) -> str:
    """Wipe."""
    return f"wiped {path}"


def clerk(store: Any, *replies: Any) -> Agent[Any, Any]:
    """An agent whose run has a function, an approval, an answer that cannot be parsed, and a number."""
    script = doubles.Script(*replies or ("many", "42"))
    return Agent(script, functions=[look, wipe], output=int, store=store, name="clerk")


def city(name: str) -> doubles.Script:
    return doubles.Script(f'{{"name": "{name}", "people": 1}}', f'{{"name": "{name}", "people": 1}}')


def journey(**options: Any) -> Flow[Trip]:
    """A flow of two members at once, a little time and a function."""

    @ask(Agent(city("Oslo"), name="here", output=City))
    def here(t: Trip) -> str:
        return f"Which city is {t.n}?"

    @ask(Agent(city("Rome"), name="there", output=City))
    def there(t: Trip) -> str:
        return f"Which city is {t.n + 1}?"

    @execute
    def counting(t: Trip) -> int:
        return t.n + 1

    def keep(t: Trip, found: tuple[City, ...]) -> Trip:
        return replace(t, cities=tuple(city.name for city in found))

    both, nap = gather("both", here, there), pause("nap", 0.001)
    rows = [both.done(nap, do=keep), nap.elapsed(counting), counting.done(end("over"), do=lambda t, n: replace(t, n=n))]
    return Flow("journey", Trip, start=both, rows=rows, **options)


def prepare(path: str) -> None:
    """Fill a store with runs that wait for an approval, and runs that were approved."""
    runs = Runs(path)
    for run in [f"{kind}{i}" for kind in "rp" for i in range(THREADS)]:
        agent = clerk(runs, doubles.function_call("look", at=1), doubles.function_call("wipe", path="x"))
        with suppress(CallSuspended):
            agent.call("Go.", run_id=run)
        if run.startswith("p"):
            runs.answer(run, {"ask:3.0": Approved()}, by="ann")
    runs.store.close()


def resumed(runs: Runs, i: int) -> Iterator[bool]:
    yield clerk(runs).runs.resume(f"r{i}", {"ask:3.0": Approved()}).output == 42


def asked(runs: Runs, i: int) -> Iterator[bool]:
    prompt = Prompt("Of which {{ what }} is this, {{ names | join(', ') }}?", output=City)
    model = doubles.Script(doubles.function_call("look", at=i), '{"name": "Oslo", "people": 700000}')
    agent = Agent(model, functions=[look], limits=Limits(rounds=3))
    yield agent.call(prompt(what="city", names=["a", "b"])).output == City(name="Oslo", people=700000)
    *_, done = Agent(doubles.Script("fine")).stream("Go.")
    yield done.result.output == "fine"
    yield asyncio.run(Agent(doubles.Script("fine")).acall("Go.")).output == "fine"


def flown(runs: Runs, i: int) -> Iterator[bool]:
    yield journey(store=runs).call(Trip(i), run_id=f"f{i}").output == Trip(i + 1, ("Oslo", "Rome"))
    yield journey().call(Trip(i)).output == Trip(i + 1, ("Oslo", "Rome"))


def talked(runs: Runs, i: int) -> Iterator[bool]:
    agent = Agent(doubles.Script("one", "two"), name="talker", store=runs)
    yield agent.conversation(f"c{i}").call("First.").output == "one"
    yield agent.conversation(f"c{i}").call("Second.").output == "two"


def worked(runs: Runs, i: int) -> Iterator[bool]:
    Worker([clerk(runs)], runs).advance()
    yield True


def looked(runs: Runs, i: int) -> Iterator[bool]:
    yield len(runs.store.list(agent="clerk", limit=500)) >= THREADS
    yield runs.store.load(f"p{i}").run.agent == "clerk"


def classified(runs: Runs, i: int) -> Iterator[bool]:
    yield Agent(doubles.Script("positive")).classify("Fine.", ["positive", "negative"]).label == "positive"
    memory = Agent(
        doubles.Script(doubles.function_call("look", at=1), "ok"), functions=[look], store=MemoryStore(), name="memory"
    )
    yield memory.call("Go.", run_id="m").output == "ok"


PARTS: list[Callable[[Runs, int], Iterator[bool]]] = [resumed, asked, flown, talked, worked, looked, classified]


def main(path: str, only: str = "") -> int:
    runs = Runs(path)
    parts = [part for part in PARTS if not only or part.__name__ == only]
    go, wrong = threading.Barrier(THREADS), list[str]()

    def one(i: int) -> None:
        go.wait()
        for part in [*parts[i % len(parts) :], *parts[: i % len(parts)]]:
            try:
                if not all(part(runs, i)):
                    wrong.append(f"{part.__name__}: another result")
            except Exception as error:
                wrong.append(f"{part.__name__}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=one, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
