"""A reminder.

The flow waits for a payment until the invoice is due, sends three weekly reminders, and then hands the invoice over,
for example to debt collection. In the same way, you can tie any wait to a moment in your data, such as a due date, an
appointment, or a server's `Retry-After`.

- `until=` is a function of the data. After each reminder, the run enters the state again, and the data holds the moment
  of the next reminder.
- Each week is counted from the last reminder, not from the due date. A worker that was down for a month therefore sends
  one reminder, not three at once. Only an `@execute` function may read the clock, so `reminding` returns the time at
  which it sent the letter.
- A single `wait` accepts payments at any time, including partial ones. A partial payment does not extend the wait,
  because the due date is in the data.
- Nothing runs between reminders. `fsm-agent worker` continues the run when it is due, and any process that receives a
  payment calls `flow.runs.resume(run_id, {payment: 80})`.
- `reminding` is marked `once=True`, so no reminder is sent twice after a crash unless you say so.

```console
$ python examples/recipes/reminder.py
remind ann of 80
payment: 80 of ann, after 1 reminder(s)
$ python examples/recipes/reminder.py 30
payment: 50 of ann, after 1 reminder(s)
$ python examples/recipes/reminder.py 50
paid: 80
```

**When not to use it.** For something that happens every Monday for all customers, use cron and one flow per customer.
If the waiting time is constant, `within_s=` is simpler.
"""

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from fsm_agent.flows import Flow, FlowSuspended, end, execute, wait

WEEK = timedelta(weeks=1)


@dataclass(frozen=True)
class Invoice:
    to: str
    amount: int
    patient_until: datetime  # until it is due; then, until the next reminder
    reminders: int = 0
    paid: int = 0


@wait(int, until=lambda i: i.patient_until)
def payment(i: Invoice) -> str:
    return f"{i.amount - i.paid} of {i.to}, after {i.reminders} reminder(s)"


@execute(once=True)
def reminding(i: Invoice) -> datetime:
    """Stands in for sending a letter, and returns the time at which it was sent."""
    print(f"remind {i.to} of {i.amount - i.paid}")
    return datetime.now(UTC)


def may_remind(i: Invoice) -> bool:
    return i.reminders < 3


def is_enough(i: Invoice, paid: int) -> bool:
    return i.paid + paid >= i.amount


def add(i: Invoice, paid: int) -> Invoice:
    return replace(i, paid=i.paid + paid)


def give_a_week(i: Invoice, sent: datetime) -> Invoice:
    return replace(i, reminders=i.reminders + 1, patient_until=sent + WEEK)


reminder = Flow(
    "reminder",
    Invoice,
    start=payment,
    rows=[
        payment.done(end("paid"), when=is_enough, do=add),
        payment.done(payment, do=add),
        payment.elapsed(reminding, when=may_remind),
        payment.elapsed(end("handed_over")),
        reminding.done(payment, do=give_a_week),
    ],
    store="invoices.db",
)


def main(amount: str = "") -> None:
    try:
        if amount:
            result = reminder.runs.resume("invoice-17", {payment: int(amount)})
        elif reminder.runs.all.store.list(text="invoice-17"):  # it has begun before
            result = reminder.runs.resume("invoice-17")
        else:
            due = datetime.now(UTC) + timedelta(seconds=0.05)
            result = reminder.call(Invoice("ann", 80, due), run_id="invoice-17")
        print(f"{result.state}: {result.output.paid}")
    except FlowSuspended as waiting:
        print(f"{waiting.run.state}: {payment.question(waiting.run.data)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
