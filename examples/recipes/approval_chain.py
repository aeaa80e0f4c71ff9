"""An approval chain.

The larger the amount, the more people have to approve it. If an approver does not answer within two days, the request
goes to the next one. A request can wait in a file for weeks. Every answer has a type, and the table has a row for each
type, so no answer is lost.

- The chain is a series of rows. After an `Approve`, a guard on the amount decides whether the request goes to the next
  approver or is paid. A `Refuse` from anyone ends it.
- `within_s` and the row `elapsed` of each state pass the request on. `fsm-agent worker` continues the run when the time
  is up.
- The payment is marked `once=True` and has one idempotency key.
- An answer may come from a web form, as JSON: `Returned(text='{"Approve": {"by": "ann"}}')`. Anything other than an
  `Approve` or a `Refuse` is rejected, and the question stays open.

```console
$ python examples/recipes/approval_chain.py
lead: a server for 4000?
$ python examples/recipes/approval_chain.py approve ann
lead: a server for 4000?
ann has signed, and manager is asked
$ python examples/recipes/approval_chain.py refuse bob "too much"
manager: a server for 4000, signed by ann?
refused: bob: too much
$ python examples/recipes/approval_chain.py
refused: bob: too much
```

**When not to use it.** To approve one function that a model wants to call, `needs_approval=True` is enough: see
[approval](../functions.md#approval). To ask everyone at once, use `gather` or `each`; each person can answer on a
different day.
"""

import sys
from dataclasses import dataclass, replace

from fsm_agent import Context
from fsm_agent.flows import AwaitAnswer, Flow, FlowSuspended, any_state, end, execute, wait

DAY_S = 24 * 3600.0


@dataclass(frozen=True)
class Expense:
    what: str
    amount: int
    signed: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class Approve:
    by: str


@dataclass(frozen=True)
class Refuse:
    by: str
    reason: str


@wait(Approve, Refuse, within_s=2 * DAY_S)
def lead(e: Expense) -> str:
    return f"{e.what} for {e.amount}?"


@wait(Approve, Refuse, within_s=2 * DAY_S)
def manager(e: Expense) -> str:
    return f"{e.what} for {e.amount}, signed by {', '.join(e.signed) or 'no one'}?"


@wait(Approve, Refuse, within_s=2 * DAY_S)
def director(e: Expense) -> str:
    return f"{e.what} for {e.amount}, signed by {', '.join(e.signed) or 'no one'}?"


@execute(once=True)
def paying(e: Expense, context: Context[None]) -> None:
    print(f"pay {e.amount} under {context.idempotency_key}")


def needs_manager(e: Expense) -> bool:
    return e.amount > 1_000


def needs_director(e: Expense) -> bool:
    return e.amount > 10_000


def sign(e: Expense, a: Approve) -> Expense:
    return replace(e, signed=(*e.signed, a.by))


def keep_refusal(e: Expense, a: Refuse) -> Expense:
    return replace(e, refusal=f"{a.by}: {a.reason}")


refused, forgotten = end("refused"), end("forgotten", failed="no one has answered")

approval_chain = Flow(
    "approval_chain",
    Expense,
    start=lead,
    rows=[
        lead.done(manager, of=Approve, when=needs_manager, do=sign),
        lead.done(paying, of=Approve, do=sign),
        lead.elapsed(manager),
        manager.done(director, of=Approve, when=needs_director, do=sign),
        manager.done(paying, of=Approve, do=sign),
        manager.elapsed(director),
        director.done(paying, of=Approve, do=sign),
        director.elapsed(forgotten),
        *any_state(lead, manager, director).done(refused, of=Refuse, do=keep_refusal),
        paying.done(end("paid")),
    ],
    store="approvals.db",
)


def main(word: str = "", by: str = "", reason: str = "") -> None:
    try:
        result = approval_chain.call(Expense("a server", 4_000), run_id="expense-17")
        if word:
            print("it has ended")
    except FlowSuspended as waiting:
        (question,) = [effect for effect in waiting.run.effects if isinstance(effect, AwaitAnswer)]
        print(f"{question.state.name}: {question.shown}")
        if not word:
            return
        answer = Approve(by) if word == "approve" else Refuse(by, reason)
        try:
            result = approval_chain.runs.resume("expense-17", {question.state: answer}, by=by)
        except FlowSuspended as still:
            print(f"{by} has signed, and {still.run.state} is asked")
            return
    print(f"{result.state}: {result.output.refusal or result.output.signed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
