"""A shop whose agent looks up a price, waits for a person, and pays: for runs in several OS processes."""

from __future__ import annotations

from typing import Any

from fsm_agent import Agent, Context, Prompt, function
from fsm_agent.call import Request
from fsm_agent.errors import Overloaded
from fsm_agent.runtime import SystemClock
from fsm_agent.testing import Script, function_call


@function
def price(item: str) -> float:
    """Look up a price."""
    return 19.5


@function(needs_approval=True)
def refund(order: str, amount: float) -> str:
    """Pay a customer back."""
    return f"{amount:.2f} EUR for {order} are on their way"


@function
def whose(context: Context[str]) -> str:
    """Say whose shop it is."""
    return f"the shop of {context.deps}"


COUNT = Prompt("How many {{ things }}?", path="shop/count", output=int)


def turn(request: Request) -> Any:
    """Reply according to the dialog so far, so that any OS process can continue it."""
    turns = [
        lambda: function_call("price", item="kettle"),
        lambda: function_call("refund", order="A-17", amount=19.5),
        lambda: f"Done: {request.messages[-1].parts[0].text}",
    ]
    return turns[sum(message.role == "assistant" for message in request.messages)]()


def shop(**options: Any) -> Agent:
    return Agent(Script(*[turn] * 50), functions=[price, refund], name="shop", **options)


AGENT = shop()


def busy() -> Agent:
    """An agent whose model is busy for a while, on the clock of this machine."""
    script = Script(Overloaded("busy", retry_after_s=50), "Late, but here.")
    return Agent(script, name="other", environment={"clock": SystemClock()})


OTHER = busy()
