"""n8n, "Error handling" of its documentation (2025: Retry On Fail, Error Trigger, Stop And Error).

Its authors mean: a node is tried again three times, a second apart; what fails for good starts the error workflow of
the workflow, which is one for many workflows, and is given the name of the node and the message; the execution counts
as failed all the same.  Their error workflow is started from outside; here it is a flow inside, with the failure as
its data.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, log

from fsm_agent import Context, Retries
from fsm_agent.flows import Failure, Flow, end, execute, failure, subflow


@dataclass(frozen=True)
class Incident:
    node: str
    message: str
    is_told: bool = False


@execute
def looking_up(i: Incident) -> bool:
    return "timeout" in i.message


@execute
def alerting(i: Incident, context: Context[str]) -> None:
    log(context, f"alert: {i.node}: {i.message}")


handled = end("handled")
ERROR_WORKFLOW = Flow(
    "error_workflow",
    Incident,
    start=looking_up,
    rows=[
        looking_up.done(handled, of=True),
        looking_up.done(alerting, of=False),
        alerting.done(handled, do=lambda i, _: replace(i, is_told=True)),
    ],
)


@dataclass(frozen=True)
class Order:
    number: int
    rate: float = 0.0
    incident: Incident = Incident("", "")


def tried_thrice(name: str):
    return execute(name=name, retries=Retries(attempts=3, delay_s=1, jitter=0))


@tried_thrice("fetching_rate")
def fetching_rate(o: Order, context: Context[str]) -> float:
    log(context, "rate")
    with open(context.deps, encoding="utf-8") as file:
        if file.read().count("rate") < 3:
            raise ConnectionError("busy")
    return 1.1


@tried_thrice("billing")
def billing(o: Order, context: Context[str]) -> None:
    log(context, f"bill {o.number * o.rate:.0f}")
    raise ValueError("no such customer")


def incident(o: Order) -> Incident:
    return o.incident


def note(o: Order, why: Failure) -> Order:
    return replace(o, incident=Incident(why.where, why.detail))


on_error = subflow("on_error", ERROR_WORKFLOW, incident)

FLOW = Flow(
    "order",
    Order,
    start=fetching_rate,
    rows=[
        fetching_rate.done(billing, do=lambda o, rate: replace(o, rate=rate)),
        fetching_rate.failed(on_error, do=note),
        billing.done(end("billed")),
        billing.failed(on_error, do=note),
        on_error.done(failure("stopped", "the error workflow has been told"), do=lambda o, i: replace(o, incident=i)),
    ],
)


def check(o, log):
    assert log[:3] == ["rate"] * 3, "the third time it is there"
    assert log[3:6] == ["bill 110"] * 3
    assert log[6:] == ["alert: billing: ValueError: no such customer"]
    assert o.incident == Incident("billing", "ValueError: no such customer", is_told=True)


PORT = Port(
    FLOW,
    Order(100),
    [Day("stopped")],
    check,
    gives={fetching_rate: [1.0], billing: [None], on_error: [Incident("a", "b", True)]},
)
