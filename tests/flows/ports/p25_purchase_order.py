"""Serverless Workflow and XState, "purchase order deadline" (2023): an order is confirmed, shipped, delivered in 30
days.

Its authors mean: from whichever state the order is in, it is cancelled when 30 days are over since it was placed, and
what had happened until then is in the cancellation.  Their `workflowExecTimeout` with `runBefore`, or `after` of a
state around all of them, is the deadline of the flow and its row.
"""

from dataclasses import dataclass, replace
from typing import Literal

from harness import DAY_S, Day, Port, log

from fsm_agent import Context
from fsm_agent.flows import Flow, FlowLimits, end, execute, expired, wait


@dataclass(frozen=True)
class Confirmed:
    kind: Literal["confirmed"] = "confirmed"


@dataclass(frozen=True)
class Shipped:
    parcel: str


@dataclass(frozen=True)
class Delivered:
    kind: Literal["delivered"] = "delivered"


@dataclass(frozen=True)
class Order:
    number: int
    happened: tuple[str, ...] = ("created",)


@wait(Confirmed)
def confirmation(o: Order) -> str:
    return f"Is order {o.number} confirmed?"


@wait(Shipped)
def shipment(o: Order) -> str:
    return f"Is order {o.number} shipped?"


@wait(Delivered)
def delivery(o: Order) -> str:
    return f"Is order {o.number} delivered?"


@execute
def cancelling(o: Order, context: Context[str]) -> None:
    log(context, f"cancel {o.number} after {', '.join(o.happened)}")


def happen(o: Order, a: object) -> Order:
    return replace(o, happened=(*o.happened, type(a).__name__.lower()))


FLOW = Flow(
    "purchase_order",
    Order,
    start=confirmation,
    limits=FlowLimits(deadline_s=30 * DAY_S),
    rows=[
        confirmation.done(shipment, do=happen),
        shipment.done(delivery, do=happen),
        delivery.done(end("complete"), do=happen),
        expired(cancelling),
        cancelling.done(end("cancelled")),
    ],
)


def check(o, log):
    assert o.happened == ("created", "confirmed", "shipped")
    assert log == ["cancel 17 after created, confirmed, shipped"]


PORT = Port(
    FLOW,
    Order(17),
    [
        Day("confirmation"),
        Day("shipment", {confirmation: Confirmed()}, after_s=DAY_S),
        Day("delivery", {shipment: Shipped("p")}, after_s=20 * DAY_S),
        Day("delivery", after_s=29 * DAY_S),
        Day("cancelled", after_s=31 * DAY_S),
    ],
    check,
    gives={confirmation: [Confirmed()], shipment: [Shipped("p")], delivery: [Delivered()], cancelling: [None]},
)
