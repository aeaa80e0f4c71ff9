"""A flow of flows, three deep, with every kind of state, and handmade outcomes for everything that it waits for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fsm_agent import Agent, Approved, Context, Message, Reply, function
from fsm_agent.call import ROWS as LIFECYCLE
from fsm_agent.call import Begun, Replied, Returned, Slept, Started
from fsm_agent.flows import Failure, Flow, FlowRun, ask, each, end, execute, gather, pause, race, subflow, wait
from fsm_agent.flows.parallel import ROWS
from fsm_agent.messages import Inside, Stepped
from fsm_agent.testing import FakeClock, function_call

SECRET = "sk-very-secret"


@dataclass(frozen=True)
class Order:
    items: tuple[int, ...] = (1, 2)
    total: int = 0
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Yes:
    by: str


@dataclass(frozen=True)
class No:
    why: str


@function(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


teller = Agent("openai:gpt-5-mini", name="teller", functions=[pay])
writer = Agent("openai:gpt-5-mini", name="writer", output=int)
over, late = end("over"), end("late", failed="too late")


# The innermost: an item


@wait(int)
def price(n: int) -> str:
    return f"What does {n} cost?"


@ask(writer)
def rounding(n: int) -> str:
    return f"Round {n}."


item = Flow(
    "item",
    int,
    start=price,
    rows=[price.done(rounding, do=lambda n, a: a), rounding.done(over, do=lambda n, a: a), rounding.failed(late)],
)

# The middle: all items, then somebody or a function, whoever is first

pricing = subflow("pricing", item, lambda n: n)
prices = each("prices", pricing, lambda o: o.items, parallel=2)


@wait(Yes, No)
def agreed(o: Order) -> str:
    return f"{o.total}?"


@execute
def found(o: Order) -> Yes | No:
    return Yes("the file")


first = race("first", agreed, found)


def sum_up(o: Order, a: tuple[int, ...]) -> Order:
    return replace(o, total=sum(a))


quote = Flow(
    "quote",
    Order,
    start=prices,
    rows=[prices.done(first, do=sum_up), first.done(over, of=Yes), first.done(late, of=No)],
)

# The outermost


@ask(teller)
def paying(o: Order) -> str:
    return "Pay."


@wait(str, within_s=3600)
def address(o: Order) -> str:
    return "Where to?"


quoting = subflow("quoting", quote, lambda o: o)
everything = gather("everything", paying, quoting)


@execute
def check(n: int) -> int:
    return n


checks = each("checks", check, lambda o: o.items, settled=True)
nap = pause("nap", 60)


@ask(lambda o: teller, str)
def thanking(o: Order) -> str:
    return "Say thank you."


@execute(once=True)
def sending(o: Order, context: Context[Any]) -> str:
    return context.idempotency_key


def keep_quote(o: Order, a: tuple[str, Order]) -> Order:
    return replace(a[1], words=(*o.words, a[0]))


def keep_word(o: Order, a: str) -> Order:
    return replace(o, words=(*o.words, a))


def is_fine(o: Order, a: tuple[int | Failure, ...]) -> bool:
    return not any(isinstance(x, Failure) for x in a)


shop = Flow(
    "shop",
    Order,
    start=everything,
    rows=[
        everything.done(address, do=keep_quote),
        everything.failed(late),
        address.done(checks, do=keep_word),
        address.elapsed(late),
        checks.done(nap, when=is_fine),
        checks.done(late),
        nap.elapsed(thanking),
        thanking.done(sending, do=keep_word),
        sending.done(over, do=keep_word),
    ],
    environment={"clock": FakeClock()},
)


def outcome_for(effect: Any) -> Any:
    """Return a person's answer to an effect."""
    match effect.prefix:
        case "begin":
            return Begun(at_s=1.0, id="r")
        case "model" if "rounding" in effect.key:
            return Replied(reply=Reply.of("5"), at_s=2.0)
        case "model" if "paying" in effect.key and len(effect.request.messages) == 1:
            return Replied(reply=Reply(message=Message.of("assistant", function_call("pay", amount=1))), at_s=2.0)
        case "model":
            return Replied(reply=Reply.of("thanks" if "thanking" in effect.key else "done"), at_s=2.0)
        case "ask":
            return Approved(at_s=2.0)
        case "answer":
            texts = {"price": "3", "agreed": '["Yes",{"by":"ann"}]', "address": '"here"'}
            return Returned(text=texts[effect.state.name], at_s=2.0)
        case "start":
            return Started(at_s=2.0)
        case "sleep":
            return Slept(at_s=effect.until_s)
        case "run" if "found" in effect.key:
            return Returned(text='["Yes",{"by":"the file"}]', at_s=2.0)
        case "run" if "sending" in effect.key:
            return Returned(text='"sent"', at_s=2.0)
        case "run":
            return Returned(text="1", at_s=2.0)
    raise AssertionError(effect)


def wanted(run: FlowRun[Any]) -> list[Any]:
    """Return the effects that the run waits for, with the end of a time only if there is nothing else."""
    return [e for e in run.effects if e.prefix != "sleep"] or list(run.effects)


def walk(seed: int = 0, flow: Flow[Any] = shop) -> Iterator[tuple[FlowRun[Any], Any]]:
    """Yield a run before each outcome, with the effect that is answered next, in a random order; at last with None."""
    chosen = random.Random(seed)
    run: FlowRun[Any] = flow.prepare(Order())
    while run.effects:
        effect = chosen.choice(wanted(run))
        yield run, effect
        run.advance(effect.key, outcome_for(effect))
    yield run, None


def documents() -> list[str]:
    """Return a snapshot of each place of one run."""
    return [run.snapshot() for run, _ in walk()]


# Which table a step has to be a row of

_OF_CALLS = {(row[0], str(source), str(row[2] or source), getattr(row[3], "__name__", "")) for row in LIFECYCLE
             for source in (row[1] if isinstance(row[1], tuple) else (row[1],))}  # fmt: skip
_OF_MEMBERS = {(row[0], str(source), str(row[2] or source), getattr(row[3], "__name__", "")) for row in ROWS
               for source in (row[1] if isinstance(row[1], tuple) else (row[1],))}  # fmt: skip


def table_at(flow: Flow[Any], path: str) -> set[tuple[str, str, str, str]]:
    """Return the rows that a step at a path may be, as trigger, source, target and guard."""
    at: Any = flow
    for name in filter(None, path.split("/")):
        if isinstance(at, Flow):
            state = at.states[name.partition("#")[0]]
        elif name.isdigit():
            state = at.members[0]
        else:
            state = {member.name: member for member in at.members}[name]
        at = getattr(state, "flow", state)
    if isinstance(at, Flow):
        return {(entry.event, entry.source, entry.to, entry.guard) for entry in at.entries}
    return _OF_MEMBERS if at.members else _OF_CALLS


def conforms(flow: Flow[Any], events: list[Any]) -> bool:
    """Return whether the steps of a run are each a row of the table at its path, and go on where the last one led."""
    places: dict[str, str] = {}
    for event in events:
        path, step = (event.path, event.event) if isinstance(event, Inside) else ("", event)
        if not isinstance(step, Stepped):
            continue
        if (step.trigger, step.source, step.to, step.guard) not in table_at(flow, path):
            return False
        if places.setdefault(path, step.source) != step.source:
            return False
        places[path] = step.to
    return True
