"""XState, examples/workflow-car-auction-bids (2023; Serverless Workflow): bids are taken for a fixed time.

Its authors mean: bidding is open for one span of time in all, and a bid does not prolong it; then the highest bid is
sold.  Their `after` is of a state that events do not re-enter; here a bid enters the state again, and `restart=False`
keeps the first moment.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, log

from fsm_agent import Context
from fsm_agent.flows import Flow, end, execute, wait


@dataclass(frozen=True)
class Bid:
    bidder: str
    amount: int


@dataclass(frozen=True)
class Auction:
    bids: tuple[Bid, ...] = ()


@wait(Bid, within_s=300, restart=False)
def bidding(a: Auction) -> str:
    return f"more than {max([b.amount for b in a.bids], default=0)}?"


@execute(once=True)
def selling(a: Auction, context: Context[str]) -> None:
    best = max(a.bids, key=lambda b: b.amount, default=Bid("no one", 0))
    log(context, f"sold to {best.bidder} for {best.amount}")


FLOW = Flow(
    "car_auction",
    Auction,
    start=bidding,
    rows=[
        bidding.done(bidding, do=lambda a, bid: replace(a, bids=(*a.bids, bid))),
        bidding.elapsed(selling),
        selling.done(end("over")),
    ],
)


def check(a, log):
    assert [b.bidder for b in a.bids] == ["john", "jane"], "three hundred seconds in all, and not after the last bid"
    assert log == ["sold to jane for 4000"]


PORT = Port(
    FLOW,
    Auction(),
    [
        Day("bidding"),
        Day("bidding", {bidding: Bid("john", 3000)}, after_s=100),
        Day("bidding", {bidding: Bid("jane", 4000)}, after_s=200),
        Day("over", after_s=300),
    ],
    check,
    gives={bidding: [Bid("jane", 3000)], selling: [None]},
    limit=30,
)
