"""A reminder: an invoice is waited for until it is due, then reminded of once a week, three times, and handed over.

Run it with ``python examples/recipes/reminder.py``, and pay with ``… 80`` in another process: the run waits in
invoices.db.
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


@execute
def overdue(i: Invoice) -> bool:
    """Return whether one more reminder is worth its stamp."""
    return i.reminders < 3


@execute(once=True)
def reminding(i: Invoice) -> datetime:
    """Stands for a letter, and returns when it was sent."""
    print(f"remind {i.to} of {i.amount - i.paid}")
    return datetime.now(UTC)


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
        payment.elapsed(overdue),
        overdue.done(reminding, of=True),
        overdue.done(end("handed_over"), of=False),
        reminding.done(payment, do=give_a_week),
    ],
    store="invoices.db",
)


def main(amount: str = "") -> None:
    try:
        if amount:
            result = reminder.resume("invoice-17", {payment: int(amount)})
        elif reminder.runs.store.list(text="invoice-17"):  # it has begun before
            result = reminder.resume("invoice-17")
        else:
            due = datetime.now(UTC) + timedelta(seconds=0.05)
            result = reminder.call(Invoice("ann", 80, due), run_id="invoice-17")
        print(f"{result.state}: {result.output.paid}")
    except FlowSuspended as waiting:
        print(f"{waiting.run.state}: {payment.question(waiting.run.data)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
