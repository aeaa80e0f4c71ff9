"""LangGraph, tutorials/customer-support.ipynb, part 4 (2024): a host and four specialists over one dialog.

Its authors mean: the host delegates to a desk, which may search, and books only what the customer has approved; a
desk that is done or lost hands back; who speaks is a stack.  The four copies of their assistant are one state whose
agent the stack chooses, and sensitive tools are functions that need an approval.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from harness import DAY_S, Day, Port, agent, log

from fsm_agent import Agent, Approved, CallResult, Context, Denied, Dialog, function
from fsm_agent.flows import Flow, ask, end, execute, wait
from fsm_agent.testing import Script, function_call


class Desk(Enum):
    FLIGHT = "flights"
    CAR = "cars"
    HOTEL = "hotels"
    EXCURSION = "excursions"


@dataclass(frozen=True)
class To:
    """Pass the customer on to a desk."""

    desk: Desk
    request: str


@dataclass(frozen=True)
class Back:
    """It is done, or another desk is needed."""

    reason: str


@dataclass(frozen=True)
class Say:
    """Words for the customer."""

    text: str


@dataclass(frozen=True)
class Customer:
    said: str
    ticket: str = ""
    stack: tuple[Desk, ...] = ()
    dialog: Dialog = field(default_factory=Dialog)
    reply: str = ""


@function
def search(what: str) -> str:
    """Search flights, hotels, cars or excursions."""
    return f"{what}: 2 found"


@function(needs_approval=True, once=True)
def book(context: Context[Any], what: str) -> str:
    """Book, change or cancel."""
    return log(context, f"{what} booked")


host = agent("host", functions=[search], system="You leave bookings to the desks.")
desks = {desk: agent(desk.value, functions=[search, book]) for desk in Desk}


@execute
def looking_up(c: Customer) -> str:
    return "ticket 72400 to Basel"


@ask(host, Say, To, whole=True)
def hosting(c: Customer) -> Dialog:
    return c.dialog.put(f"{c.ticket}\n{c.said}")


def desk_of(c: Customer) -> Agent:
    return desks[c.stack[-1]]


@ask(desk_of, Say, Back, whole=True)
def serving(c: Customer) -> Dialog:
    return c.dialog.put(c.said)


@wait(str, within_s=3 * DAY_S)
def customer(c: Customer) -> str:
    return c.reply


def is_bye(c: Customer, said: str) -> bool:
    return said == "bye"


def is_at_desk(c: Customer, said: str) -> bool:
    return bool(c.stack)


def say(c: Customer, r: CallResult[Any]) -> Customer:
    return replace(c, dialog=r.dialog, reply=r.output.text)


def enter(c: Customer, r: CallResult[Any]) -> Customer:
    return replace(c, dialog=r.dialog, stack=(*c.stack, r.output.desk), said=r.output.request)


def leave(c: Customer, r: CallResult[Any]) -> Customer:
    return replace(c, dialog=r.dialog, stack=c.stack[:-1], said=f"back from a desk: {r.output.reason}")


def hear(c: Customer, said: str) -> Customer:
    return replace(c, said=said)


over = end("over")

FLOW = Flow(
    "customer_support",
    Customer,
    start=looking_up,
    rows=[
        looking_up.done(hosting, do=lambda c, ticket: replace(c, ticket=ticket)),
        hosting.done(customer, of=Say, do=say),
        hosting.done(serving, of=To, do=enter),
        serving.done(customer, of=Say, do=say),
        serving.done(hosting, of=Back, do=leave),
        customer.done(over, when=is_bye),
        customer.done(serving, when=is_at_desk, do=hear),
        customer.done(hosting, do=hear),
        customer.elapsed(over),
    ],
)


def whole(text: str, *types: Any) -> CallResult[Any]:
    """Return the result of a call; explore needs a whole one."""
    return Agent(Script(text), name="x", output=types[0] | types[1]).call("x")


def knows_all(request):
    said = "\n".join(message.text for message in request.messages)
    assert "72400" in said
    assert "a cheaper one" in said, "of the function that was denied a day ago"
    return '{"text": "Ibis is booked."}'


def heard(request):
    """Be done, having heard everything that was said at this desk."""
    said = [message.text for message in request.messages]
    assert '{"text": "Ibis is booked."}' in said
    assert said[-1] == "and that is all"
    return '{"reason": "all booked"}'


def host_again(request):
    assert request.messages[-1].text.endswith("yes, it is")
    return '{"text": "Bye, then."}'


def check(c, log):
    assert (c.reply, c.stack) == ("Bye, then.", ())
    assert log == ["Ibis booked"], "what was denied is not, and what was approved is once"
    assert any("back from a desk: all booked" in message.text for message in c.dialog)


PORT = Port(
    FLOW,
    Customer("I want a hotel in Basel"),
    [
        Day(
            "serving",
            models={
                hosting: ['{"desk": "hotels", "request": "a hotel in Basel"}'],
                serving: [[function_call("search", what="hotel")], [function_call("book", what="Hilton")]],
            },
        ),
        Day(
            "serving", {"serving#3/ask:5.0": Denied("a cheaper one")}, {serving: [[function_call("book", what="Ibis")]]}
        ),
        Day("customer", {"serving#3/ask:7.0": Approved()}, {serving: [knows_all]}),
        Day(
            "customer",
            {customer: "and that is all"},
            {serving: [heard], hosting: ['{"text": "Dear, is it not?"}']},
            shows="Dear, is it not?",
        ),
        Day("customer", {customer: "yes, it is"}, {hosting: [host_again]}),
        Day("over", {customer: "bye"}),
    ],
    check,
    gives={
        looking_up: ["ticket"],
        customer: ["bye", "more"],
        hosting: [whole('{"text": "hm"}', Say, To), whole('{"desk": "hotels", "request": "r"}', Say, To)],
        serving: [whole('{"text": "hm"}', Say, Back), whole('{"reason": "done"}', Say, Back)],
    },
)
