"""Temporal, money-transfer-project-template-python (2023): withdraw, deposit, and refund when the deposit fails.

Its authors mean: each activity is tried again after transient errors, and not after those that say that it can never
work; a deposit that fails for good refunds the withdrawal, under the same reference, so that no try pays twice; the
workflow fails with what happened.  Their reference is the argument of each activity; here it is the idempotency key.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, log

from fsm_agent import Context, Retries
from fsm_agent.flows import Failure, Flow, end, execute


class InsufficientFunds(Exception):
    pass


class InvalidAccount(Exception):
    pass


@dataclass(frozen=True)
class Transfer:
    source: str
    target: str
    amount: int
    error: str = ""
    receipts: tuple[str, ...] = ()


def may_pass(error: Exception) -> bool:
    return not isinstance(error, (InsufficientFunds, InvalidAccount))


RETRIES = Retries(attempts=5, delay_s=1, max_delay_s=2, retry_if=may_pass)


@execute(retries=RETRIES)
def withdrawing(t: Transfer, context: Context[str]) -> str:
    return log(context, f"-{t.amount} {t.source} {context.idempotency_key}")


@execute(retries=RETRIES)
def depositing(t: Transfer, context: Context[str]) -> str:
    line = log(context, f"+{t.amount} {t.target} {context.idempotency_key}")
    with open(context.deps, encoding="utf-8") as file:
        if file.read().count(f"{t.target} ") < 3:
            raise ConnectionError("the bank is busy")
    if t.target == "no-one":
        raise InvalidAccount("no-one has no account")
    return line


@execute(retries=RETRIES)
def refunding(t: Transfer, context: Context[str]) -> str:
    return log(context, f"+{t.amount} {t.source} {context.idempotency_key}")


def keep_receipt(t: Transfer, receipt: str) -> Transfer:
    return replace(t, receipts=(*t.receipts, receipt))


def note(t: Transfer, why: Failure) -> Transfer:
    return replace(t, error=why.detail)


FLOW = Flow(
    "money_transfer",
    Transfer,
    start=withdrawing,
    rows=[
        withdrawing.done(depositing, do=keep_receipt),
        withdrawing.failed(end("not_withdrawn", failed=True), do=note),
        depositing.done(end("transferred"), do=keep_receipt),
        depositing.failed(refunding, do=note),
        refunding.done(end("refunded", failed="the deposit failed"), do=keep_receipt),
        refunding.failed(end("lost", failed="neither deposited nor refunded")),
    ],
)


def check(t, log):
    assert log == [
        "-250 ann r/withdrawing#1",
        *["+250 no-one r/depositing#2"] * 3,
        "+250 ann r/refunding#3",
    ], "two tries while it is busy, one that can never work, each under one key"
    assert t.error == "InvalidAccount: no-one has no account"
    assert [receipt.split()[0] for receipt in t.receipts] == ["-250", "+250"]


PORT = Port(
    FLOW,
    Transfer("ann", "no-one", 250),
    [Day("refunded")],
    check,
    gives={withdrawing: ["a"], depositing: ["b"], refunding: ["c"]},
)
