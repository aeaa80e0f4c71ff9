"""A store with runs of each kind: asking, failed, ended, with agents inside, members of flows, parse errors, a fork."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from fsm_agent import Agent, CallFailed, CallSuspended, Limits, Worker, function
from fsm_agent.call import Approved, Price
from fsm_agent.errors import Overloaded
from fsm_agent.flows import Flow, FlowSuspended, end, execute, wait
from fsm_agent.messages import FunctionCall, Reply, Usage
from fsm_agent.store import Runs, Store
from fsm_agent.testing import Script, function_call
from support.paths import ROOT

PRICE = Price(input_micro_usd=250_000, output_micro_usd=2_000_000)


class Moving:
    """A clock that is moved by what happens: each look takes a while, and no wait does."""

    def __init__(self, at_s: float, step_s: float = 0.4) -> None:
        self.at_s, self.step_s = at_s, step_s

    def now(self) -> float:
        self.at_s += self.step_s
        return self.at_s

    __call__ = now

    def sleep(self, delay_s: float) -> None:
        self.at_s += delay_s

    async def asleep(self, delay_s: float) -> None:
        self.at_s += delay_s


@function(needs_approval=True)
def refund(order: str, amount: float, reason: str = "") -> str:
    """Pay a customer back.

    Args:
        order: The number of the order.
        amount: How much, in EUR.
        reason: Why, for the books.
    """
    return f"{amount:.2f} EUR for {order} are on their way"


@function
def find_order(customer: str) -> dict[str, Any]:
    """Find the newest order of a customer."""
    return {"order": "A-17", "amount": 19.5, "shipped": "2026-11-02", "status": "lost"}


@function
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"12 degrees, light rain in {city}"


@function(once=True)
def transfer(iban: str, amount: float) -> str:
    """Transfer money; never twice."""
    raise KeyboardInterrupt


def said(*content: str | FunctionCall, tokens: tuple[int, int] = (320, 40)) -> Reply:
    usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1])
    return Reply.of(*content).changed(usage=usage, model="gpt-5-mini")


def shop(store: Any, *replies: Any, **options: Any) -> Agent[Any, Any]:
    replies = replies or (
        said(function_call("find_order", customer="Ada")),
        said(
            "The parcel is lost. I would pay the customer back.",
            function_call("refund", order="A-17", amount=19.5, reason="The parcel was lost"),
        ),
        said("The money is on its way, 19.50 EUR for order A-17."),
    )
    return Agent(
        Script(*replies),
        system="You help the customers of a shop. Be kind, and short.",
        functions=[find_order, refund],
        name="shop",
        store=store,
        prices=PRICE,
        **options,
    )


def desk(store: Any, **options: Any) -> Agent[Any, Any]:
    """An agent with another one inside, whose function waits for approval."""
    billing = Agent(
        Script(
            said(function_call("find_order", customer="Ada"), tokens=(210, 22)),
            said(function_call("refund", order="C-3", amount=12.0), tokens=(260, 30)),
            said("12 EUR for order C-3 are on their way.", tokens=(330, 12)),
        ),
        functions=[find_order, refund],
        name="billing",
        prices=PRICE,
    )
    model = Script(
        said(
            "Let me see.", function_call("billing", task="Refund order C-3."), function_call("weather", city="Bergen")
        ),
        said("You have your money back, and yes: take an umbrella."),
    )
    functions: list[Any] = [billing.as_function("billing", "Pays customers back."), weather]
    return Agent(model, functions=functions, name="desk", store=store, prices=PRICE, **options)


def forecaster(store: Any, *replies: Any, **options: Any) -> Agent[Any, Any]:
    """An agent that must answer with a number."""
    replies = replies or (
        said(function_call("weather", city="Rome")),
        Overloaded("the model is overloaded", status=529),
        said("It is rather warm."),
        said("12"),
    )
    return Agent(
        Script(*replies), functions=[weather], output=int, name="forecaster", store=store, prices=PRICE, **options
    )


@dataclass(frozen=True)
class Approve:
    by: str


@dataclass(frozen=True)
class Change:
    wish: str
    how_often: int = 1
    is_urgent: bool = False


@dataclass(frozen=True)
class Letter:
    text: str
    wish: str = ""


@wait(Approve, Change)
def review(letter: Letter) -> str:
    """Our review."""
    return f"Shall this be sent? {letter.text}"


@wait(int)
def stamps(letter: Letter) -> str:
    return "How many stamps?"


@execute(once=True)
def sending(letter: Letter) -> str:
    return "sent"


SENT = end("sent")
LETTERS = Flow(
    "letters",
    Letter,
    start=review,
    rows=[
        review.done(stamps, of=Approve),
        review.done(review, of=Change, do=lambda letter, a: replace(letter, wish=a.wish)),
        stamps.done(sending),
        sending.done(SENT),
    ],
)


def letters(store: Any, name: str = "letters", **options: Any) -> Flow[Any]:
    return replace(LETTERS, name=name, store=store, **options)


def example(name: str, scripts: dict[str, Script]) -> ModuleType:
    """An example's module, whose agents ask scripts in place of models."""
    text = (ROOT / "examples" / f"{name}.py").read_text("utf-8")
    for agent in scripts:
        text = text.replace(f"{agent} = Agent(MODEL,", f"{agent} = Agent(SCRIPTS[{agent!r}],")
    module = ModuleType(f"scripted_{name}")
    module.__dict__["SCRIPTS"] = scripts
    sys.modules[module.__name__] = module  # for its annotations
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


def support_flow() -> ModuleType:
    """The support flow of the examples, at a question to the customer first, then at the review of a reply."""
    return example(
        "support",
        {
            "triager": Script(said('{"kind": "delivery", "is_spam": false}', tokens=(120, 14))),
            "researcher": Script(
                said('{"question": "Which order is it about?"}', tokens=(150, 12)),
                said('{"facts": ["Order A-17 was shipped on November 2."]}', tokens=(170, 18)),
            ),
            "warm": Script(
                said('{"text": "Dear Ada, we are so sorry! A new parcel is on its way."}', tokens=(190, 24))
            ),
            "terse": Script(said('{"text": "A new parcel is on its way."}', tokens=(180, 12))),
            "judge": Script(said('{"best": 0}', tokens=(190, 4))),
        },
    )


def suspended(act: Callable[[], Any]) -> None:
    with suppress(CallSuspended, FlowSuspended, CallFailed, KeyboardInterrupt):
        act()


def fill(store: Store, clock: Moving | None = None) -> Runs:
    """Fill a store with runs of each kind; return its runs."""
    runs = Runs(store)
    environment: dict[str, Any] = {} if clock is None else {"environment": {"clock": clock}}
    forecaster(runs, **environment).call("How many degrees are there in Rome?", run_id="degrees-rome")
    failing = [Overloaded("the model is overloaded", status=529)] * 3
    suspended(
        lambda: forecaster(runs, *failing, limits=Limits(recalls=2), **environment).call(
            "How many degrees are there in Paris?", run_id="degrees-paris"
        )
    )
    ended = shop(runs, **environment)
    suspended(lambda: ended.call("Where is my parcel? I am Ada.", run_id="order-17", extra={"ticket": 4711}))
    ended.runs.resume("order-17", {runs.only_question("order-17"): Approved()}, by="ann")
    host = Agent(
        Script(said("Hello, Ada."), said("You are Ada.")), name="host", store=runs, prices=PRICE, **environment
    )
    talk = host.conversation("customer-17")
    talk.call("I am Ada.")
    talk.call("Who am I?")
    suspended(
        lambda: desk(runs, **environment).call("I want my money for C-3 back. Do I need an umbrella?", run_id="desk-3")
    )
    doubting = Agent(
        Script(said(function_call("transfer", iban="NO93 8601 1117 947", amount=250.0)), said("It is paid.")),
        functions=[transfer],
        name="bank",
        store=runs,
        **environment,
    )
    suspended(lambda: doubting.call("Pay the rent.", run_id="rent-11"))
    suspended(lambda: doubting.runs.resume("rent-11"))
    module = support_flow()
    flow = replace(module.support, store=runs, **environment)
    suspended(lambda: flow.call(module.Ticket("My parcel has not arrived."), run_id="ticket-8"))
    key = runs.only_question("ticket-8")
    suspended(lambda: flow.runs.resume("ticket-8", {key: "It is order A-17."}, by="the customer"))
    suspended(lambda: letters(runs, **environment).call(Letter("Dear Bob, thank you."), run_id="letter-9"))
    suspended(lambda: letters(runs, "notes", **environment).call(Letter("Hello"), run_id="note-1"))
    runs.answer("note-1", {"": Approved()})
    other = Flow("notes", Letter, start=stamps, rows=[stamps.done(SENT)], store=runs)
    Worker([other], runs).run(once=True)
    suspended(lambda: shop(runs, **environment).call("Refund my order, please. I am Ada.", run_id="order-22"))
    return runs
