"""Saga: undo what was done.

A saga is a series of steps in other people's systems, each of which can be undone. If a step fails, that step and all
earlier ones are undone, in reverse order. You can book, charge or provision in several systems without a common
transaction, and you never end up with half a trip booked.

- One state undoes everything: an `each` over the steps that have begun, one at a time. To add a step, add a name to
  `STEPS`, a function and a row.
- One row, `cancelled(undoing)`, covers all steps: a cancellation from any process undoes them in the same way. A second
  cancellation ends the run, even while it is undoing.
- The failed step is undone, too, because a request that timed out may have been carried out. An undo function must
  therefore be safe to run twice, and safe to run when there is nothing to undo.
- With a store, a run that crashes in the middle continues where it was. Each step gets the same
  `context.idempotency_key` again.

```console
$ python examples/recipes/saga.py
book flight
book hotel
book payment
booked: have a good trip
book flight
book hotel
undo payment
undo hotel
undo flight
undone: LookupError: no payment
```

The traceback of the failed payment is logged to stderr.

**When not to use it.** If all steps are in one database, use its transaction. A step that cannot be undone, such as
sending a mail, should come last, after a [person's approval](approval-chain.md) if it is expensive. If the steps are
independent of each other, a `gather` is faster; undo its results in the `failed` row.
"""

from dataclasses import dataclass, replace

from fsm_agent import Context, Retries
from fsm_agent.flows import Failure, Flow, any_state, cancelled, each, end, execute

STEPS = ("flight", "hotel", "payment")


@dataclass(frozen=True)
class Trip:
    to: str
    booked: tuple[str, ...] = ()
    problem: str = ""


def book(what: str, context: Context[str]) -> str:
    """Stands in for a request to another company, which recognizes ``context.idempotency_key``."""
    if what == context.deps:
        raise LookupError(f"no {what}")
    print(f"book {what}")
    return what


@execute
def flight(t: Trip, context: Context[str]) -> str:
    return book("flight", context)


@execute
def hotel(t: Trip, context: Context[str]) -> str:
    return book("hotel", context)


@execute
def payment(t: Trip, context: Context[str]) -> str:
    return book("payment", context)


@execute(retries=Retries(attempts=5))
def undo(what: str) -> None:
    """Undo a booking, if there is one."""
    print(f"undo {what}")


def begun(t: Trip) -> tuple[str, ...]:
    """Return the steps that may have been booked, the last one first; a failed step may have been booked, too."""
    return STEPS[len(t.booked) :: -1]


undoing = each("undoing", undo, begun, parallel=1)


def keep(t: Trip, what: str) -> Trip:
    return replace(t, booked=(*t.booked, what))


def note(t: Trip, why: Failure) -> Trip:
    return replace(t, problem=why.detail)


saga = Flow(
    "saga",
    Trip,
    start=flight,
    rows=[
        flight.done(hotel, do=keep),
        hotel.done(payment, do=keep),
        payment.done(end("booked"), do=keep),
        *any_state(flight, hotel, payment).failed(undoing, do=note),
        cancelled(undoing, do=note),
        undoing.done(end("undone")),
        undoing.failed(end("stuck", failed="a booking could not be undone")),
    ],
)


def main() -> None:
    for missing in ("nothing", "payment"):
        result = saga.call(Trip("Rome"), deps=missing)
        print(f"{result.state}: {result.output.problem or 'have a good trip'}")


if __name__ == "__main__":
    main()
